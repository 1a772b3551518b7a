//! What comes from other shards: worked through at once while the budget lasts, in fair order when it does not.
//!
//! Publications wait in a queue for each channel. The next one is of the channel that has caused the least work so far (start-time fair
//! queueing), so a flood on one channel delays that channel. A light publication passes by the queues of others. Large requests of sessions that
//! live here wait in a queue of their own. Small ones wait only where very many come at once, and go on with the budget of light messages. All other
//! messages never wait.
//!
//! What waits stays on the [account](super::account) of bytes between shards, which bounds it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use bayeux::ChannelName;
use foldhash::fast::RandomState;
use slab::Slab;

use crate::events::{Envelope, ExchangeId, ShardMessage};
use crate::sessions::id::Id;

/// Envelopes that wait, by flow.
#[derive(Default)]
pub(crate) struct Arrivals {
    flows: Slab<Flow>,
    names: HashMap<Box<str>, usize, RandomState>,
    /// Which flow a request waits in, and whose it is: that its client has gone comes after it.
    pub(crate) requests: HashMap<ExchangeId, (&'static str, Option<Id>), RandomState>,
    /// Small requests: no heavy message makes them wait.
    pub(crate) small: VecDeque<Envelope>,
    /// Every flow that has something, by its start, the older first among equals.
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// The start of the flow that was served last.
    clock: u64,
    listed: u64,
    envelopes: usize,
}

/// What has to stay in order: a channel's publications, or requests.
struct Flow {
    name: Box<str>,
    /// When its first envelope begins, in work.
    start: u64,
    envelopes: VecDeque<Envelope>,
}

impl Arrivals {
    /// Envelopes that wait.
    pub(crate) fn len(&self) -> usize {
        self.envelopes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.envelopes == 0
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        if name == SMALL_REQUESTS { !self.small.is_empty() } else { self.names.contains_key(name) }
    }

    pub(crate) fn push(&mut self, name: &str, envelope: Envelope) {
        self.envelopes += 1;
        if name == SMALL_REQUESTS {
            return self.small.push_back(envelope);
        }
        if let Some(flow) = self.names.get(name).and_then(|flow| self.flows.get_mut(*flow)) {
            return flow.envelopes.push_back(envelope);
        }
        let flow = Flow { name: name.into(), start: self.clock, envelopes: VecDeque::from([envelope]) };
        let index = self.flows.insert(flow);
        self.names.insert(name.into(), index);
        self.list(index, self.clock);
    }

    /// The next envelope, and its flow, which is to be [`Arrivals::done`] with it.
    pub(crate) fn pop(&mut self) -> Option<(usize, Envelope)> {
        let Reverse((start, _, index)) = self.order.pop()?;
        let envelope = self.flows.get_mut(index)?.envelopes.pop_front()?;
        self.clock = start;
        self.taken(&envelope);
        Some((index, envelope))
    }

    /// The next small request.
    pub(crate) fn pop_small(&mut self) -> Option<Envelope> {
        let envelope = self.small.pop_front()?;
        self.taken(&envelope);
        Some(envelope)
    }

    fn taken(&mut self, envelope: &Envelope) {
        if let ShardMessage::Request(request) = &envelope.message {
            self.requests.remove(&request.exchange);
        }
        self.envelopes -= 1;
    }

    /// The envelope of a flow has caused so much work.
    pub(crate) fn done(&mut self, index: usize, work: u64) {
        let Some(flow) = self.flows.get_mut(index) else { return };
        if flow.envelopes.is_empty() {
            let flow = self.flows.remove(index);
            self.names.remove(&flow.name);
            return;
        }
        flow.start += work;
        let start = flow.start;
        self.list(index, start);
    }

    fn list(&mut self, index: usize, start: u64) {
        self.listed += 1;
        self.order.push(Reverse((start, self.listed, index)));
    }
}

/// The channel of a publication from another shard, which has checked it: by the limits that held there, and not by those that hold now.
pub(crate) fn sent_channel(name: &str) -> Option<ChannelName<'_>> {
    let limits =
        bayeux::Limits { channel_bytes_max: usize::MAX, channel_segments_max: usize::MAX, ..bayeux::Limits::default() };
    ChannelName::parse(name, &limits).ok()
}

/// Names of flows that no channel has.
pub(crate) const SMALL_REQUESTS: &str = "small requests";

pub(crate) const LARGE_REQUESTS: &str = "large requests";
