//! The channels of groups that have an interval now, and the latest message of each.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::rc::Rc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;

use crate::conflation::message::{Due, Group, Offer, Offered, Room, Waiting};
use crate::memory::Account;

/// The channels of groups, within bounds of their number and of the bytes that wait.
pub(super) struct Table {
    entries: Slab<Entry>,
    /// The entries by group and channel.
    index: HashTable<u32>,
    hasher: RandomState,
    /// The entries by the time at which their interval is over.
    queue: BTreeSet<(u64, u32)>,
    /// The bytes of channel names and messages.
    held_bytes: usize,
    account: Rc<Account>,
}

/// A channel of a group of which a message has gone within the interval.
struct Entry {
    group: Group,
    channel: Box<str>,
    interval_ms: u32,
    /// The time at which the next message may go.
    next_ms: u64,
    /// The latest message since.
    waiting: Option<Waiting>,
}

impl Table {
    pub(super) fn new(account: &Rc<Account>) -> Table {
        Table {
            entries: Slab::new(),
            index: HashTable::new(),
            hasher: RandomState::default(),
            queue: BTreeSet::new(),
            held_bytes: 0,
            account: account.clone(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.held_bytes + self.entries.len() * ENTRY_BYTES
    }

    pub(super) fn offer(&mut self, offer: &Offer<'_>, number: u64, now_ms: u64, room: Room) -> Offered {
        let before = self.bytes();
        let offered = match self.find(offer.group, offer.channel) {
            Some(at) => self.offer_again(at, offer, number, now_ms, room),
            None if self.entries.len() >= room.channels_max => Offered::HasNoRoom,
            None => {
                self.insert(offer, now_ms);
                Offered::Goes
            }
        };
        self.account.queue_changed(before, self.bytes());
        offered
    }

    pub(super) fn take_due(&mut self, now_ms: u64) -> Option<Due> {
        let before = self.bytes();
        let mut due = None;
        while let Some((_, at)) = self.queue.first().copied().filter(|(next_ms, _)| due.is_none() && *next_ms <= now_ms)
        {
            due = match self.take_waiting(at) {
                Some(message) => {
                    self.begin_interval(at, now_ms);
                    let Entry { group, channel, .. } = &self.entries[at as usize];
                    Some(Due { group: *group, channel: channel.clone(), message })
                }
                None => {
                    self.remove(at);
                    None
                }
            };
        }
        self.account.queue_changed(before, self.bytes());
        due
    }

    pub(super) fn holds(&self, group: Group, channel: &str) -> bool {
        self.find(group, channel).is_some()
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = (Group, &str, &Waiting)> {
        let entries = self.entries.iter().map(|(_, entry)| entry);
        entries.filter_map(|entry| Some((entry.group, &*entry.channel, entry.waiting.as_ref()?)))
    }

    pub(super) fn take_all(&mut self) -> Vec<Due> {
        self.account.queue_changed(self.bytes(), 0);
        (self.queue, self.index, self.held_bytes) = (BTreeSet::new(), HashTable::new(), 0);
        let entries = std::mem::take(&mut self.entries).into_iter();
        let due = |Entry { group, channel, waiting, .. }| Some(Due { group, channel, message: waiting? });
        entries.filter_map(|(_, entry)| due(entry)).collect()
    }

    /// Offers a message of a channel that has an interval.
    fn offer_again(&mut self, at: u32, offer: &Offer<'_>, number: u64, now_ms: u64, room: Room) -> Offered {
        // Whatever waits is older than this one.
        let older = self.take_waiting(at);
        if self.entries[at as usize].next_ms <= now_ms {
            self.entries[at as usize].interval_ms = offer.interval_ms;
            self.begin_interval(at, now_ms);
            return Offered::Goes;
        }
        if self.bytes() + offer.frame.len() > room.bytes_max {
            return Offered::HasNoRoom;
        }
        let replaces = older.is_some();
        let mut frame = older.map(|older| older.frame).unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(offer.frame);
        self.held_bytes += frame.capacity();
        let Offer { except, is_lazy, .. } = *offer;
        self.entries[at as usize].waiting = Some(Waiting { frame, except, is_lazy, number });
        if replaces { Offered::Replaces } else { Offered::Waits }
    }

    fn find(&self, group: Group, channel: &str) -> Option<u32> {
        let is_it = |at: &u32| {
            let entry = &self.entries[*at as usize];
            entry.group == group && *entry.channel == *channel
        };
        self.index.find(self.hasher.hash_one((group, channel)), is_it).copied()
    }

    fn insert(&mut self, offer: &Offer<'_>, now_ms: u64) {
        let Offer { group, channel, interval_ms, .. } = *offer;
        let next_ms = now_ms + u64::from(interval_ms);
        let entry = Entry { group, channel: channel.into(), interval_ms, next_ms, waiting: None };
        let at = self.entries.insert(entry) as u32;
        let (hasher, entries) = (&self.hasher, &self.entries);
        let hash_of = |at: &u32| hasher.hash_one((entries[*at as usize].group, &*entries[*at as usize].channel));
        self.index.insert_unique(hash_of(&at), at, hash_of);
        self.queue.insert((next_ms, at));
        self.held_bytes += channel.len();
    }

    /// Begins the next interval of a channel.
    fn begin_interval(&mut self, at: u32, now_ms: u64) {
        let entry = &mut self.entries[at as usize];
        self.queue.remove(&(entry.next_ms, at));
        entry.next_ms = now_ms + u64::from(entry.interval_ms);
        self.queue.insert((entry.next_ms, at));
    }

    fn take_waiting(&mut self, at: u32) -> Option<Waiting> {
        let waiting = self.entries[at as usize].waiting.take()?;
        self.held_bytes -= waiting.frame.capacity();
        Some(waiting)
    }

    fn remove(&mut self, at: u32) {
        let entry = self.entries.remove(at as usize);
        self.queue.remove(&(entry.next_ms, at));
        self.held_bytes -= entry.channel.len();
        let hash = self.hasher.hash_one((entry.group, &*entry.channel));
        if let Ok(found) = self.index.find_entry(hash, |other| *other == at) {
            found.remove();
        }
        if self.entries.is_empty() && self.entries.capacity() > ROOM_RETAINED {
            (self.entries, self.index) = (Slab::new(), HashTable::new());
        }
    }
}

/// The bytes of an entry with its slots in the index and in the queue.
const ENTRY_BYTES: usize = size_of::<Entry>() + 64;
/// An empty table retains room for so many entries.
const ROOM_RETAINED: usize = 1_024;
