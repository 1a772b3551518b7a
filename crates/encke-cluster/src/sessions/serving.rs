//! Requests of clients of other nodes for sessions of this one. Each has an exchange of the shards, as a request of this node has,
//! until the fate of its response is known.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use encke_core::{Amount, Budget, ExchangeId, Id, LIGHT_BYTES_MAX, NodeTag, OTHER_NODES, Share, Shares, Urgency};
use foldhash::fast::RandomState;

use super::relays::ClientOwner;

/// The requests of other nodes. Addresses of clients share them.
pub(super) struct Serving {
    budget: Budget,
    shares: Shares<ClientOwner>,
    all: HashMap<u64, (Served, Share<ClientOwner>), RandomState>,
    /// By the node that has read it, and its number there.
    askers: HashMap<(NodeTag, u64), u64, RandomState>,
    /// Responses whose fate is awaited, with the time until which, in milliseconds: oldest first.
    fates: VecDeque<(u64, u64)>,
    last: u64,
}

/// A request of another node.
#[derive(Debug)]
pub(super) struct Served {
    /// The subject of the answer. None if it is answered.
    pub(super) reply_to: Option<String>,
    pub(super) session: Id,
    asker: (NodeTag, u64),
}

/// The reasons why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotServed {
    /// It has come before.
    Known,
    /// There are too many, or too many large ones, or the address of its client has its share.
    Full,
}

impl Serving {
    /// `bytes_max`: that of the large ones together.
    pub(super) fn new(count_max: usize, bytes_max: usize) -> Serving {
        Serving {
            budget: Budget::new(count_max, bytes_max),
            shares: Shares::default(),
            all: HashMap::default(),
            askers: HashMap::default(),
            fates: VecDeque::new(),
            last: 0,
        }
    }

    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Adds a request of a client of this address, with a body of so many bytes.
    pub(super) fn add(
        &mut self,
        asker: (NodeTag, u64),
        session: Id,
        reply_to: String,
        (address, bytes): (Option<IpAddr>, usize),
    ) -> Result<ExchangeId, (NotServed, String)> {
        if self.askers.contains_key(&asker) {
            return Err((NotServed::Known, reply_to));
        }
        let owner = ClientOwner::of(address, asker);
        // A shard processes small ones at once. Large ones wait in its mailbox for their turn.
        let bytes = if bytes > LIGHT_BYTES_MAX { bytes } else { 0 };
        let share = self.shares.take(&self.budget, owner, Amount { count: 1, bytes }, Urgency::Common);
        let Ok(share) = share else { return Err((NotServed::Full, reply_to)) };
        self.last += 1;
        self.askers.insert(asker, self.last);
        self.all.insert(self.last, (Served { reply_to: Some(reply_to), session, asker }, share));
        Ok(exchange(self.last))
    }

    /// The request with this exchange.
    pub(super) fn get(&mut self, exchange: &ExchangeId) -> Option<&mut Served> {
        self.all.get_mut(&exchange.number).map(|(served, _)| served)
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
        let (served, share) = self.all.remove(&exchange.number)?;
        self.shares.give_back(share);
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
        let mut all = Vec::new();
        for (number, (served, share)) in self.all.drain() {
            self.shares.give_back(share);
            all.push((exchange(number), served));
        }
        all.sort_by_key(|(exchange, _)| exchange.number);
        all
    }
}

fn exchange(number: u64) -> ExchangeId {
    ExchangeId { shard: OTHER_NODES, number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::tests::{id, tag};

    #[test]
    fn one_address_leaves_requests_to_others_and_a_copy_of_one_is_known() {
        let mut serving = Serving::new(80, usize::MAX);
        let add = |serving: &mut Serving, number: u64, last: u8| {
            let address = (last > 0).then(|| IpAddr::from([10, 0, 0, last]));
            serving.add((tag(1), number), id(1, 0), String::new(), (address, 100))
        };
        let of_one = (0..100).filter(|number| add(&mut serving, *number, 1).is_ok()).count();
        assert!((60..80).contains(&of_one), "{of_one}");
        let other = add(&mut serving, 200, 2).expect("room for another address");
        assert!(matches!(add(&mut serving, 200, 2), Err((NotServed::Known, _))));
        assert!(add(&mut serving, 201, 0).is_ok() && add(&mut serving, 202, 0).is_ok(), "and for unknown ones");
        assert!(serving.remove(&other).is_some() && serving.settle((tag(1), 0)).is_some());
        assert_eq!(serving.clear().len(), of_one + 1);
        assert_eq!((0..100).filter(|number| add(&mut serving, *number, 1).is_ok()).count(), of_one);
    }

    #[test]
    fn large_requests_of_one_address_leave_room_for_those_of_others_and_small_ones_need_none() {
        let mut serving = Serving::new(1_000, 8 * 100_000);
        let mut number = 0;
        let mut add = |last: u8, bytes: usize| {
            number += 1;
            let address = Some(IpAddr::from([10, 0, 0, last]));
            serving.add((tag(1), number), id(1, 0), String::new(), (address, bytes)).is_ok()
        };
        let of_one = (0..100).filter(|_| add(1, 100_000)).count();
        assert!((5..8).contains(&of_one), "{of_one}");
        assert!(add(2, 50_000) && add(1, LIGHT_BYTES_MAX) && !add(1, LIGHT_BYTES_MAX + 1));
    }
}
