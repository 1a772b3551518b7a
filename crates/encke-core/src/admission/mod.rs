//! Limits on what an edge may admit. An edge is a WebSocket before each message, an HTTP request before its batch, or a
//! queue of other shards' publications before each of them. The machine owns the budget of fan-outs and the messages of
//! other shards that wait for it.

pub(crate) mod account;
mod arrivals;
pub(crate) mod budget;
#[cfg(test)]
mod tests;

use crate::admission::arrivals::{Arrivals, LARGE_REQUESTS, SMALL_REQUESTS};
use crate::admission::budget::{LIGHT_BYTES_MAX, Spent, Weight, held_back_ms, is_light};
use crate::events::{Envelope, ExchangeId, ShardMessage};
use crate::id::Id;
use crate::limits::Capacity;
use crate::now::Now;

/// The admission of one shard.
#[derive(Default)]
pub(crate) struct Admission {
    /// The budget that is used up, of each weight.
    spent: [Spent; 2],
    /// The weight that fan-outs count as now.
    weight: Weight,
    /// True if readers are behind although the last flush wrote everything.
    is_held_back: bool,
    /// The end of the wait of heavy messages for readers that are behind, in milliseconds.
    held_until_ms: u64,
    /// True if a message at an edge has had to wait since the last flush that wrote everything.
    edge_waits: bool,
    edges_first: bool,
    /// The work since the start, in bytes written for subscribers and other shards.
    work: u64,
    /// The bytes of publications recorded in durable histories since the start.
    recorded_bytes: u64,
    /// Envelopes from other shards that wait for budget.
    arrivals: Arrivals,
}

/// The turn of a message of another shard.
pub(crate) enum Turn {
    /// It is processed now.
    Now(Envelope),
    /// It waits for budget.
    Later,
    /// It waits behind the request that it is about.
    Behind,
}

/// A message that had waited and is processed now: its flow, and the work before it.
#[must_use = "its work counts for its flow"]
pub(crate) struct Served {
    /// None for a small request.
    flow: Option<usize>,
    work: u64,
}

impl Admission {
    /// Takes a message of another shard. `reach`: the number of subscriptions to which its publications go.
    /// `client_in`: the client that sent a request with this body.
    pub(crate) fn arrive(
        &mut self,
        envelope: Envelope,
        reach: usize,
        capacity: &Capacity,
        client_in: impl FnOnce(&str) -> Option<Id>,
    ) -> Turn {
        let (flow, is_light) = match &envelope.message {
            ShardMessage::Publication(publication) | ShardMessage::Record(publication) => {
                (&*publication.channel, is_light(publication.frames.len(), reach))
            }
            // In the order of its channel.
            ShardMessage::Gap(gap) => (&*gap.channel, true),
            ShardMessage::Request(request) if request.body.len() <= LIGHT_BYTES_MAX => (SMALL_REQUESTS, true),
            ShardMessage::Request(_) => (LARGE_REQUESTS, false),
            ShardMessage::Abandoned(exchange) => match self.arrivals.flow_of(exchange) {
                Some(flow) => {
                    self.arrivals.push(flow, envelope);
                    return Turn::Behind;
                }
                None => return Turn::Now(envelope),
            },
            _ => return Turn::Now(envelope),
        };
        let weight = if self.arrivals.is_empty() && self.has_room(Weight::Heavy, (0, 0), capacity) {
            Weight::Heavy
        } else if is_light && !self.arrivals.has(flow) && self.has_room(Weight::Light, (0, 0), capacity) {
            Weight::Light
        } else {
            let flow = Box::<str>::from(flow);
            if let ShardMessage::Request(request) = &envelope.message {
                let name = if is_light { SMALL_REQUESTS } else { LARGE_REQUESTS };
                self.arrivals.note_request(request.exchange, name, client_in(&request.body));
            }
            self.arrivals.push(&flow, envelope);
            return Turn::Later;
        };
        self.weight = weight;
        Turn::Now(envelope)
    }

    /// The next message that has waited: as long as the budget lasts, or `all` of them. Small requests come first. The
    /// caller returns the second part to [`Admission::served`].
    pub(crate) fn next(&mut self, all: bool, capacity: &Capacity) -> Option<(Envelope, Served)> {
        let work = self.work;
        if (all || self.has_room(Weight::Light, (0, 0), capacity))
            && let Some(envelope) = self.arrivals.pop_small()
        {
            self.weight = Weight::Light;
            return Some((envelope, Served { flow: None, work }));
        }
        if !all && !self.has_room(Weight::Heavy, (0, 0), capacity) {
            return None;
        }
        let (flow, envelope) = self.arrivals.pop()?;
        self.weight = Weight::Heavy;
        Some((envelope, Served { flow: Some(flow), work }))
    }

    /// Notes that a message that had waited is processed.
    pub(crate) fn served(&mut self, served: Served) {
        if let Some(flow) = served.flow {
            self.arrivals.done(flow, self.work - served.work + ARRIVAL_WORK);
        }
    }

    /// The number of messages of other shards that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.arrivals.len()
    }

    /// True if this request waits.
    pub(crate) fn has_request(&self, exchange: &ExchangeId) -> bool {
        self.arrivals.flow_of(exchange).is_some()
    }

    /// The clients of the requests that wait, as far as they are known.
    pub(crate) fn clients(&self) -> Vec<Id> {
        self.arrivals.clients()
    }

    /// True if messages of other shards wait, and a flush would process some.
    pub(crate) fn may_serve(&self, capacity: &Capacity) -> bool {
        let has_room = || self.arrivals.has(SMALL_REQUESTS) || self.has_room(Weight::Heavy, (0, 0), capacity);
        !self.arrivals.is_empty() && (!self.is_held_back || has_room())
    }

    /// True if a message may be fanned out beside `pending` messages and bytes.
    pub(crate) fn has_room(&self, weight: Weight, pending: (usize, usize), capacity: &Capacity) -> bool {
        self.spent[weight as usize].has_room(pending, capacity)
    }

    /// Decides if a message at an edge may be processed. `has_memory`: sessions may hold more. `is_open`: there is room
    /// between shards.
    pub(crate) fn admits(
        &mut self,
        weight: Weight,
        pending: (usize, usize),
        capacity: &Capacity,
        has_memory: bool,
        is_open: impl FnOnce() -> bool,
    ) -> bool {
        let has_budget = has_memory && self.has_room(weight, pending, capacity);
        if !has_budget {
            self.edge_waits = true;
        }
        let admits = has_budget && is_open();
        if admits {
            self.weight = weight;
        }
        admits
    }

    /// The weight that fan-outs count as now.
    #[inline]
    pub(crate) fn weight(&self) -> Weight {
        self.weight
    }

    /// True if messages at the edges go before those of other shards this time: they take turns while edges wait.
    pub(crate) fn let_edges_go_first(&mut self) -> bool {
        self.edges_first = std::mem::take(&mut self.edge_waits) && !self.edges_first;
        self.edges_first
    }

    /// True if a flush has nothing to renew.
    pub(crate) fn is_fresh(&self) -> bool {
        let is_fresh = |spent: &Spent| spent.turn_bytes == 0 && (spent.messages == 0 || self.is_held_back);
        self.spent.iter().all(is_fresh)
    }

    /// True if heavy messages wait for readers that are behind.
    pub(crate) fn is_held_back(&self) -> bool {
        self.is_held_back
    }

    /// Renews the budget, as all that sockets take is written. While readers are behind, the limit of heavy messages is
    /// not renewed, for as long as [`held_back_ms`] says.
    pub(crate) fn renew(&mut self, now: Now, is_behind: bool, capacity: &Capacity) {
        self.is_held_back = is_behind && now.ms < self.held_until_ms;
        let [light, heavy] = &mut self.spent;
        *light = Spent::default();
        *heavy = if self.is_held_back {
            Spent { turn_bytes: 0, write_bytes: 0, ..*heavy }
        } else {
            self.held_until_ms = now.ms + held_back_ms(capacity);
            Spent::default()
        };
        self.weight = Weight::default();
    }

    /// Counts a fan-out.
    #[inline]
    pub(crate) fn spend(&mut self, messages: usize, bytes: usize, write_bytes: u64) {
        let spent = &mut self.spent[self.weight as usize];
        spent.messages += messages;
        spent.bytes += bytes;
        spent.turn_bytes += bytes;
        spent.write_bytes += write_bytes;
        self.work += write_bytes;
    }

    /// Counts bytes for another shard.
    #[inline]
    pub(crate) fn add_work(&mut self, bytes: u64) {
        self.work += bytes;
    }

    /// The work since the start, in bytes written for subscribers and other shards.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Counts bytes recorded in durable histories.
    pub(crate) fn record(&mut self, bytes: usize) {
        self.recorded_bytes += bytes as u64;
    }

    /// The bytes recorded in durable histories since the start.
    pub(crate) fn recorded_bytes(&self) -> u64 {
        self.recorded_bytes
    }
}

/// The cost of an envelope beside the work that it causes, in bytes.
const ARRIVAL_WORK: u64 = 256;
