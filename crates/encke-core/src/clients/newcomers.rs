//! Sessions that have completed a handshake and have not connected yet, oldest first: all of them, per connection, and
//! per address.
//!
//! A handshake is cheap for a client and costs the server a session. So the number of unused sessions is small, and
//! they are the first to go when room is needed. Each is in up to three lists at once, linked through one slab. Adding,
//! removing and finding the oldest take constant time.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use slab::Slab;

use crate::events::{Peer, SessionKey};
use crate::limits::network;
use crate::limits::sessions::SessionOwner;

/// The origins of a session: hashes of its connection and its address; 0 if unknown.
pub(crate) type Origins = [u64; 2];

/// The newcomers of one shard.
#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    entries: Slab<Entry>,
    lists: HashMap<u64, List, RandomState>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Entry {
    session: SessionKey,
    owner: SessionOwner,
    origins: [u64; LISTS],
    links: [Link; LISTS],
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    behind: u32,
}

#[derive(Debug)]
struct List {
    oldest: u32,
    latest: u32,
    len: usize,
}

/// All newcomers, those of a connection, and those of an address.
const LISTS: usize = 3;
/// The key of the list that holds all newcomers.
const ALL: u64 = 1;
/// The index that means "no entry".
const NONE: u32 = u32::MAX;

/// The origins of a client, with [`network`] for its address, by the hasher of all shards.
pub(crate) fn origins(hasher: &RandomState, peer: Peer) -> Origins {
    let hash = |kind: u8, value: u128| hasher.hash_one((kind, value)).max(ALL + 1);
    let connection = if peer.connection == 0 { 0 } else { hash(0, u128::from(peer.connection)) };
    [connection, peer.address.map_or(0, |address| hash(1, network(address)))]
}

impl Newcomers {
    /// No newcomers. `hasher`: that of all shards, so that an address is the same on each.
    pub(super) fn new(hasher: RandomState) -> Newcomers {
        Newcomers { hasher, ..Newcomers::default() }
    }

    /// The origins of a client.
    pub(crate) fn origins(&self, peer: Peer) -> Origins {
        origins(&self.hasher, peer)
    }

    /// The number of newcomers.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of newcomers with this origin.
    pub(crate) fn of(&self, origin: u64) -> usize {
        self.lists.get(&origin).map_or(0, |list| list.len)
    }

    /// The oldest session of a connection or address, or of all.
    pub(crate) fn oldest(&self, origin: Option<u64>) -> Option<SessionKey> {
        let list = self.lists.get(&origin.unwrap_or(ALL))?;
        Some(self.entries.get(list.oldest as usize)?.session)
    }

    /// The owner of a newcomer, by its index.
    pub(super) fn owner_of(&self, index: u32) -> Option<SessionOwner> {
        self.entries.get(index as usize).map(|entry| entry.owner)
    }

    /// Adds the newest one. Returns the index to remove it by.
    pub(super) fn add(&mut self, session: SessionKey, owner: SessionOwner, [connection, address]: Origins) -> u32 {
        let origins = [ALL, connection, address];
        let none = Link { before: NONE, behind: NONE };
        let index = self.entries.insert(Entry { session, owner, origins, links: [none; LISTS] }) as u32;
        for (at, origin) in origins.into_iter().enumerate().filter(|(_, origin)| *origin > 0) {
            let list = self.lists.entry(origin).or_insert(List { oldest: index, latest: NONE, len: 0 });
            self.entries[index as usize].links[at].before = list.latest;
            if let Some(latest) = self.entries.get_mut(list.latest as usize) {
                latest.links[at].behind = index;
            }
            list.latest = index;
            list.len += 1;
        }
        index
    }

    /// Removes one by its index.
    pub(super) fn remove(&mut self, index: u32) {
        let Some(Entry { origins, links, .. }) = self.entries.try_remove(index as usize) else { return };
        for (at, (origin, Link { before, behind })) in origins.into_iter().zip(links).enumerate() {
            let Some(list) = self.lists.get_mut(&origin) else { continue };
            match self.entries.get_mut(before as usize) {
                Some(entry) => entry.links[at].behind = behind,
                None => list.oldest = behind,
            }
            match self.entries.get_mut(behind as usize) {
                Some(entry) => entry.links[at].before = before,
                None => list.latest = before,
            }
            list.len -= 1;
            if list.len == 0 {
                self.lists.remove(&origin);
            }
        }
        // Releases the memory that many newcomers needed at once.
        if self.entries.is_empty() && self.entries.capacity() > RETAINED {
            *self = Newcomers { hasher: self.hasher.clone(), ..Newcomers::default() };
        }
    }
}

/// A slab of at most this capacity is not released.
const RETAINED: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn the_oldest_of_each_origin_is_found_after_any_removal() {
        let mut newcomers = Newcomers::default();
        let key = |index| SessionKey { index, generation: 1 };
        let address = |last| Some(IpAddr::from([10, 0, 0, last]));
        let of = |connection, last| Peer { connection, address: address(last), is_multiplexed: false };
        let (one, two) = (newcomers.origins(of(1, 1)), newcomers.origins(of(2, 1)));
        let positions: Vec<u32> = [one, two, one, two, [0, 0]]
            .into_iter()
            .enumerate()
            .map(|(n, o)| newcomers.add(key(n as u32), SessionOwner::default(), o))
            .collect();
        assert_eq!((newcomers.of(one[0]), newcomers.of(two[0]), newcomers.of(one[1]), newcomers.len()), (2, 2, 4, 5));
        assert_eq!((newcomers.oldest(None), newcomers.oldest(Some(two[0]))), (Some(key(0)), Some(key(1))));
        newcomers.remove(positions[0]);
        newcomers.remove(positions[2]);
        assert_eq!(
            (newcomers.of(one[0]), newcomers.oldest(Some(one[0])), newcomers.oldest(None)),
            (0, None, Some(key(1)))
        );
        newcomers.remove(positions[1]);
        assert_eq!((newcomers.oldest(Some(one[1])), newcomers.oldest(None)), (Some(key(3)), Some(key(3))));
        newcomers.remove(positions[3]);
        assert_eq!((newcomers.oldest(Some(one[1])), newcomers.oldest(None)), (None, Some(key(4))));
        newcomers.remove(positions[4]);
        assert!(newcomers.len() == 0 && newcomers.lists.is_empty());
    }

    #[test]
    fn sessions_that_are_gone_leave_no_memory() {
        let mut newcomers = Newcomers::default();
        let key = |index| SessionKey { index, generation: 1 };
        let positions: Vec<u32> =
            (0..10_000).map(|index| newcomers.add(key(index), SessionOwner::default(), [0, 0])).collect();
        positions.into_iter().for_each(|position| newcomers.remove(position));
        assert!(newcomers.len() == 0 && newcomers.entries.capacity() <= RETAINED);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_origin() {
        let newcomers = Newcomers::default();
        let origin = |text: &str| newcomers.origins(Peer { address: text.parse().ok(), ..Peer::default() });
        assert_eq!(origin("2001:db8::1"), origin("2001:db8::ffff:2"));
        assert_ne!(origin("2001:db8::1"), origin("2001:db8:0:1::1"));
        assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
    }
}
