//! Messages from other shards. They are processed at once while the budget lasts, and in fair order when it does not.
//!
//! Publications wait in one queue for each channel. The next one comes from the channel that has caused the least work
//! so far (start-time fair queueing), so a flood on one channel delays only that channel. A light publication passes
//! the queues of other channels. Large requests for sessions of this shard wait in a separate queue. Small requests
//! wait only if very many arrive at once, and use the budget of light messages. All other messages never wait.
//!
//! Waiting envelopes stay on the [account](super::account) of bytes between shards, which bounds them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use foldhash::fast::RandomState;
use slab::Slab;

use crate::events::{Envelope, ExchangeId, ShardMessage};
use crate::id::Id;

/// Waiting envelopes, by flow.
#[derive(Default)]
pub(super) struct Arrivals {
    flows: Slab<Flow>,
    names: HashMap<Box<str>, usize, RandomState>,
    /// The flow of each waiting request, and the session id of its client. An `Abandoned` message for a waiting request
    /// joins the same flow, so that it comes after the request.
    requests: HashMap<ExchangeId, (&'static str, Option<Id>), RandomState>,
    /// Small requests. No heavy message makes them wait.
    small: VecDeque<Envelope>,
    /// All flows that are not empty, by their start. Of equal starts the older entry comes first.
    order: BinaryHeap<Reverse<(u64, u64, usize)>>,
    /// The start of the flow that was served last.
    clock: u64,
    listed: u64,
    envelopes: usize,
}

/// Envelopes that must stay in order: the publications of a channel, or requests.
struct Flow {
    name: Box<str>,
    /// The virtual start time of its first envelope, in work.
    start: u64,
    envelopes: VecDeque<Envelope>,
}

impl Arrivals {
    /// The number of waiting envelopes.
    pub(super) fn len(&self) -> usize {
        self.envelopes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.envelopes == 0
    }

    pub(super) fn has(&self, name: &str) -> bool {
        if name == SMALL_REQUESTS { !self.small.is_empty() } else { self.names.contains_key(name) }
    }

    pub(super) fn push(&mut self, name: &str, envelope: Envelope) {
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

    /// The next envelope and its flow. The caller reports the work to [`Arrivals::done`].
    pub(super) fn pop(&mut self) -> Option<(usize, Envelope)> {
        let Reverse((start, _, index)) = self.order.pop()?;
        let envelope = self.flows.get_mut(index)?.envelopes.pop_front()?;
        self.clock = start;
        self.taken(&envelope);
        Some((index, envelope))
    }

    /// The next small request.
    pub(super) fn pop_small(&mut self) -> Option<Envelope> {
        let envelope = self.small.pop_front()?;
        self.taken(&envelope);
        Some(envelope)
    }

    /// Notes the flow of a request that is about to wait, and its client.
    pub(super) fn note_request(&mut self, exchange: ExchangeId, flow: &'static str, client: Option<Id>) {
        self.requests.insert(exchange, (flow, client));
    }

    /// The flow of a request that waits.
    pub(super) fn flow_of(&self, exchange: &ExchangeId) -> Option<&'static str> {
        self.requests.get(exchange).map(|(flow, _)| *flow)
    }

    /// The clients of the requests that wait, as far as they are known.
    pub(super) fn clients(&self) -> Vec<Id> {
        self.requests.values().filter_map(|(_, client)| *client).collect()
    }

    fn taken(&mut self, envelope: &Envelope) {
        if let ShardMessage::Request(request) = &envelope.message {
            self.requests.remove(&request.exchange);
        }
        self.envelopes -= 1;
    }

    /// Notes the work that an envelope of a flow has caused.
    pub(super) fn done(&mut self, index: usize, work: u64) {
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

/// Flow names that no channel has.
pub(super) const SMALL_REQUESTS: &str = "small requests";

pub(super) const LARGE_REQUESTS: &str = "large requests";
