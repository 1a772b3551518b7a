//! Requests of clients of other nodes for sessions of this one. Each has an exchange of the shards, as a request of this node has,
//! until the fate of its response is known.

use std::collections::{HashMap, VecDeque};

use encke_core::{ExchangeId, Id, NodeTag, OTHER_NODES};
use foldhash::fast::RandomState;

/// The requests of other nodes.
#[derive(Default)]
pub(super) struct Serving {
    all: HashMap<u64, Served, RandomState>,
    /// By the node that has read it, and its number there.
    askers: HashMap<(NodeTag, u64), u64, RandomState>,
    /// Responses whose fate is awaited, with the time until which, in milliseconds: oldest first.
    fates: VecDeque<(u64, u64)>,
    last: u64,
}

/// A request of another node.
#[derive(Clone, Debug)]
pub(super) struct Served {
    /// The subject of the answer. None if it is answered.
    pub(super) reply_to: Option<String>,
    pub(super) session: Id,
    asker: (NodeTag, u64),
}

impl Serving {
    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a request. None if it has come before.
    pub(super) fn add(&mut self, asker: (NodeTag, u64), session: Id, reply_to: String) -> Option<ExchangeId> {
        if self.askers.contains_key(&asker) {
            return None;
        }
        self.last += 1;
        self.askers.insert(asker, self.last);
        self.all.insert(self.last, Served { reply_to: Some(reply_to), session, asker });
        Some(exchange(self.last))
    }

    /// The request with this exchange.
    pub(super) fn get(&mut self, exchange: &ExchangeId) -> Option<&mut Served> {
        self.all.get_mut(&exchange.number)
    }

    /// Waits for the fate of a response until this time, in milliseconds.
    pub(super) fn await_fate(&mut self, exchange: &ExchangeId, until_ms: u64) {
        self.fates.push_back((until_ms, exchange.number));
    }

    /// Removes the request of an asker.
    pub(super) fn settle(&mut self, asker: (NodeTag, u64)) -> Option<(ExchangeId, Served)> {
        let number = *self.askers.get(&asker)?;
        Some((exchange(number), self.remove(&exchange(number))?))
    }

    /// Removes a request.
    pub(super) fn remove(&mut self, exchange: &ExchangeId) -> Option<Served> {
        let served = self.all.remove(&exchange.number)?;
        self.askers.remove(&served.asker);
        Some(served)
    }

    /// Removes a request whose fate has not come in time.
    pub(super) fn overdue(&mut self, now_ms: u64) -> Option<(ExchangeId, Served)> {
        while self.fates.front().is_some_and(|(until_ms, _)| *until_ms <= now_ms) {
            let (_, number) = self.fates.pop_front()?;
            if let Some(served) = self.remove(&exchange(number)) {
                return Some((exchange(number), served));
            }
        }
        None
    }

    /// The time at which the next fate is overdue.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.fates.front().map(|(until_ms, _)| *until_ms)
    }

    /// Removes all.
    pub(super) fn clear(&mut self) -> Vec<(ExchangeId, Served)> {
        self.askers.clear();
        self.fates.clear();
        let mut all: Vec<_> = self.all.drain().map(|(number, served)| (exchange(number), served)).collect();
        all.sort_by_key(|(exchange, _)| exchange.number);
        all
    }
}

fn exchange(number: u64) -> ExchangeId {
    ExchangeId { shard: OTHER_NODES, number }
}
