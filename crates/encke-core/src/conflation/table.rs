//! The channels of groups that have an interval now, and the latest message of each.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::BuildHasher;
use std::rc::Rc;

use bayeux::ChannelName;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;

use crate::conflation::message::{Due, Group, Offer, Offered, Room, Waiting};
use crate::conflation::notes::{Note, Notes};
use crate::memory::Account;

/// The channels of groups, within bounds of their number and of the bytes that wait.
pub(super) struct Table {
    entries: Slab<Entry>,
    /// The entries by group and channel.
    index: HashTable<u32>,
    hasher: RandomState,
    /// The entries by the time at which their interval is over.
    queue: BTreeSet<(u64, u32)>,
    /// The groups that have entries.
    groups: HashMap<Group, OfGroup, RandomState>,
    /// The bytes of channel names, messages, and notes of what members have had.
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

/// The entries of a group.
#[derive(Default)]
struct OfGroup {
    entries: HashSet<u32, RandomState>,
    /// The number of those with a message that waits.
    waiting: usize,
    /// The members that have had what waits.
    notes: Notes,
}

impl Table {
    pub(super) fn new(account: &Rc<Account>) -> Table {
        Table {
            entries: Slab::new(),
            index: HashTable::new(),
            hasher: RandomState::default(),
            queue: BTreeSet::new(),
            groups: HashMap::default(),
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

    /// The messages of a group that wait, on the channels of a name if there is one, and the entries that were looked at.
    pub(super) fn waiting(&self, group: Group, name: Option<ChannelName<'_>>) -> (Vec<(&str, &Waiting)>, usize) {
        let waiting = |at: u32| {
            let entry = &self.entries[at as usize];
            Some((&*entry.channel, entry.waiting.as_ref()?))
        };
        if let Some(name) = name.filter(|name| !name.is_pattern()) {
            return (self.find(group, name.as_str()).and_then(waiting).into_iter().collect(), 1);
        }
        let Some(of_group) = self.groups.get(&group) else { return (Vec::new(), 1) };
        let all = of_group.entries.iter().filter_map(|at| waiting(*at));
        let is_wanted = |channel: &str| name.is_none_or(|name| name.matches(ChannelName::known(channel)));
        (all.filter(|(channel, _)| is_wanted(channel)).collect(), of_group.entries.len())
    }

    /// Notes that a member of a group has had what waits on the channels of this name, up to this number. Where nothing waits, there is
    /// nothing to note.
    pub(super) fn note_had(&mut self, group: Group, session: u32, name: ChannelName<'_>, number: u64) {
        let waits = match name.is_pattern() {
            true => self.groups.get(&group).is_some_and(|of_group| of_group.waiting > 0),
            false => self.find(group, name.as_str()).is_some_and(|at| self.entries[at as usize].waiting.is_some()),
        };
        // Whatever waits goes when its interval is over, if not before.
        let until_ms = self.queue.last().filter(|_| waits).map(|(next_ms, _)| *next_ms);
        if let Some(until_ms) = until_ms {
            self.with_notes(group, |notes| notes.add(session, name.as_str(), Note { number, until_ms }));
        }
    }

    /// The members of a group that have had the message with this number, which goes now, and the number of steps to find them. Their
    /// notes go with it.
    pub(super) fn take_had(&mut self, group: Group, channel: ChannelName<'_>, number: u64) -> (Vec<u32>, usize) {
        let first_ms = self.queue.first().map_or(u64::MAX, |(next_ms, _)| *next_ms);
        self.with_notes(group, |notes| notes.take(channel, number, first_ms)).unwrap_or_default()
    }

    /// True if a member of a group has had the message with this number.
    pub(super) fn has_had(&self, group: Group, session: u32, channel: ChannelName<'_>, number: u64) -> bool {
        self.groups.get(&group).is_some_and(|of_group| of_group.notes.has(session, channel, number))
    }

    /// Forgets a member of a group.
    pub(super) fn left(&mut self, group: Group, session: u32) {
        self.with_notes(group, |notes| notes.left(session));
    }

    /// Changes the notes of a group. None if it has no entries.
    fn with_notes<T>(&mut self, group: Group, change: impl FnOnce(&mut Notes) -> T) -> Option<T> {
        let before = self.bytes();
        let notes = &mut self.groups.get_mut(&group)?.notes;
        self.held_bytes -= notes.bytes();
        let changed = change(notes);
        self.held_bytes += notes.bytes();
        self.account.queue_changed(before, self.bytes());
        Some(changed)
    }

    /// Drops all entries of a group. Returns their number.
    pub(super) fn drop_group(&mut self, group: Group) -> usize {
        let before = self.bytes();
        let entries: Vec<u32> = self.groups.get(&group).into_iter().flat_map(|of| &of.entries).copied().collect();
        for at in &entries {
            self.take_waiting(*at);
            self.remove(*at);
        }
        self.account.queue_changed(before, self.bytes());
        entries.len()
    }

    /// Drops what waits on a channel of a group.
    pub(super) fn drop_waiting(&mut self, group: Group, channel: &str) {
        let before = self.bytes();
        if let Some(at) = self.find(group, channel) {
            self.take_waiting(at);
        }
        self.account.queue_changed(before, self.bytes());
    }

    /// Ends all intervals: whatever waits is due now.
    pub(super) fn end_intervals(&mut self) {
        self.queue.clear();
        for (at, entry) in &mut self.entries {
            (entry.interval_ms, entry.next_ms) = (0, 0);
            self.queue.insert((0, at as u32));
        }
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
        if let Some(of_group) = self.groups.get_mut(&offer.group) {
            of_group.waiting += 1;
        }
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
        self.groups.entry(group).or_default().entries.insert(at);
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
        let Entry { group, waiting, .. } = &mut self.entries[at as usize];
        let waiting = waiting.take()?;
        self.held_bytes -= waiting.frame.capacity();
        if let Some(of_group) = self.groups.get_mut(group) {
            of_group.waiting -= 1;
        }
        Some(waiting)
    }

    fn remove(&mut self, at: u32) {
        let entry = self.entries.remove(at as usize);
        self.queue.remove(&(entry.next_ms, at));
        self.held_bytes -= entry.channel.len();
        if let Some(of_group) = self.groups.get_mut(&entry.group) {
            of_group.entries.remove(&at);
            self.held_bytes -= of_group.notes.bytes();
            of_group.notes.remove_all_of(&entry.channel);
            if of_group.entries.is_empty() {
                self.groups.remove(&entry.group);
            } else {
                self.held_bytes += of_group.notes.bytes();
            }
        }
        let hash = self.hasher.hash_one((entry.group, &*entry.channel));
        if let Ok(found) = self.index.find_entry(hash, |other| *other == at) {
            found.remove();
        }
        if self.entries.is_empty() && self.entries.capacity() > ROOM_RETAINED {
            (self.entries, self.index) = (Slab::new(), HashTable::new());
        }
    }
}

/// The bytes of an entry with its slots in the index, in the queue and in its group.
const ENTRY_BYTES: usize = size_of::<Entry>() + 96;
/// An empty table retains room for so many entries.
const ROOM_RETAINED: usize = 1_024;
