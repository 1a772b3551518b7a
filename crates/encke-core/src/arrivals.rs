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

use super::Shard;
use super::account::Envelope;
use super::admission::{LIGHT_BYTES_MAX, Weight};
use super::effect::{ExchangeId, Mail, Now};
use super::ids::Id;

/// Envelopes that wait, by flow.
#[derive(Default)]
pub(super) struct Arrivals {
    flows: Slab<Flow>,
    names: HashMap<Box<str>, usize, RandomState>,
    /// Which flow a request waits in, and whose it is: that its client has gone comes after it.
    requests: HashMap<ExchangeId, (&'static str, Option<Id>), RandomState>,
    /// Small requests: no heavy message makes them wait.
    small: VecDeque<Envelope>,
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
    pub(super) fn len(&self) -> usize {
        self.envelopes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.envelopes == 0
    }

    fn has(&self, name: &str) -> bool {
        if name == SMALL_REQUESTS { !self.small.is_empty() } else { self.names.contains_key(name) }
    }

    fn push(&mut self, name: &str, envelope: Envelope) {
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
    fn pop(&mut self) -> Option<(usize, Envelope)> {
        let Reverse((start, _, index)) = self.order.pop()?;
        let envelope = self.flows.get_mut(index)?.envelopes.pop_front()?;
        self.clock = start;
        self.taken(&envelope);
        Some((index, envelope))
    }

    /// The next small request.
    fn pop_small(&mut self) -> Option<Envelope> {
        let envelope = self.small.pop_front()?;
        self.taken(&envelope);
        Some(envelope)
    }

    fn taken(&mut self, envelope: &Envelope) {
        if let Mail::Request(request) = &envelope.mail {
            self.requests.remove(&request.exchange);
        }
        self.envelopes -= 1;
    }

    /// The envelope of a flow has caused so much work.
    fn done(&mut self, index: usize, work: u64) {
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

impl Shard {
    /// A message from another shard, or from a handle of the server: worked through now, or by [`Shard::flush`] when it is its turn.
    pub fn receive(&mut self, now: Now, envelope: Envelope) {
        self.now = now;
        self.spread();
        let (flow, is_light) = match &envelope.mail {
            Mail::Publication(publication) | Mail::Record(publication) => {
                let subscribers = self.subscribers(&publication.channel);
                (&*publication.channel, self.is_light(publication.frames.len(), subscribers))
            }
            Mail::Request(request) if request.body.len() <= LIGHT_BYTES_MAX => (SMALL_REQUESTS, true),
            Mail::Request(_) => (LARGE_REQUESTS, false),
            Mail::Abandoned(exchange) if let Some((flow, _)) = self.arrivals.requests.get(exchange) => {
                return self.arrivals.push(flow, envelope);
            }
            _ => return self.open(envelope),
        };
        let weight = if self.arrivals.is_empty() && self.has_budget(Weight::Heavy) {
            Weight::Heavy
        } else if is_light && !self.arrivals.has(flow) && self.has_budget(Weight::Light) {
            Weight::Light
        } else {
            self.metrics.arrivals_delayed.add(1);
            let flow = Box::<str>::from(flow);
            if let Mail::Request(request) = &envelope.mail {
                let name = if is_light { SMALL_REQUESTS } else { LARGE_REQUESTS };
                let client = self.client_of_request(&request.body);
                self.arrivals.requests.insert(request.exchange, (name, client));
            }
            return self.arrivals.push(&flow, envelope);
        };
        self.count_as(weight);
        self.open(envelope);
    }

    /// Works through what waits, as long as the budget lasts; `all` of it if that does not matter any more.
    pub(super) fn take_arrivals(&mut self, all: bool) {
        while (all || self.has_budget(Weight::Light))
            && let Some(envelope) = self.arrivals.pop_small()
        {
            self.count_as(Weight::Light);
            self.open(envelope);
        }
        while (all || self.has_budget(Weight::Heavy))
            && let Some((flow, envelope)) = self.arrivals.pop()
        {
            let before = self.work;
            self.count_as(Weight::Heavy);
            self.open(envelope);
            self.arrivals.done(flow, self.work - before + ARRIVAL_WORK);
        }
    }

    /// Whether what waits has to go on waiting for readers that are behind.
    pub(super) fn are_arrivals_held_back(&self) -> bool {
        self.budget.is_held_back() && self.arrivals.small.is_empty() && !self.has_budget(Weight::Heavy)
    }

    /// Works through a message, and releases its charge.
    fn open(&mut self, envelope: Envelope) {
        let Envelope { mail, charge } = envelope;
        self.mail(self.now, mail);
        drop(charge);
    }

    /// Works through everything that waits: nothing is written any more.
    pub fn take_all_arrivals(&mut self, now: Now) {
        self.now = now;
        self.take_arrivals(true);
    }

    /// Whether a request has come and waits.
    pub fn has_waiting(&self, exchange: ExchangeId) -> bool {
        self.arrivals.requests.contains_key(&exchange)
    }

    /// Clients whose requests wait here are not silent.
    pub(super) fn keep_arrivals_alive(&mut self) {
        let clients: Vec<Id> = self.arrivals.requests.values().filter_map(|(_, client)| *client).collect();
        clients.iter().for_each(|client| self.alive(self.now, client));
    }

    /// How many subscriptions a publication on a channel would go to.
    fn subscribers(&mut self, channel: &str) -> usize {
        let Some(channel) = sent_channel(channel) else { return 0 };
        let mut lists = std::mem::take(&mut self.lists);
        self.hub.route(channel, &mut lists);
        let subscribers = lists.iter().map(|list| self.hub.subscribers(*list).len()).sum();
        self.lists = lists;
        subscribers
    }
}

/// The channel of a publication from another shard, which has checked it: by the limits that held there, and not by those that hold now.
pub(super) fn sent_channel(name: &str) -> Option<ChannelName<'_>> {
    let limits =
        bayeux::Limits { channel_bytes_max: usize::MAX, channel_segments_max: usize::MAX, ..bayeux::Limits::default() };
    ChannelName::parse(name, &limits).ok()
}

/// Names of flows that no channel has.
const SMALL_REQUESTS: &str = "small requests";
const LARGE_REQUESTS: &str = "large requests";
/// The work of an envelope beside what it causes, in bytes.
const ARRIVAL_WORK: u64 = 256;
