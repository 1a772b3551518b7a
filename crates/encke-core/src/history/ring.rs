//! The latest messages of one channel, each with its number. Numbers grow. Mostly they follow each other; after an end of the
//! server that was not clean they jump, and where the disk refused a message.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::HistoryTerms;
use crate::sessions::id::Id;

/// One life of a channel's history.
#[derive(Debug)]
pub struct Ring {
    pub(super) name: Box<str>,
    /// Tells this life from others, before a restart, too.
    pub(super) epoch: Arc<str>,
    /// Tells it from all others of this process.
    pub(super) serial: u64,
    pub(super) terms: HistoryTerms,
    /// When it lost its last message, in milliseconds, if it has none now.
    pub(super) empty_since_ms: u64,
    entries: VecDeque<Entry>,
    /// Nothing from this number on has left it.
    oldest: u64,
    /// The number of the next message.
    next: u64,
    bytes: usize,
}

/// A message that is kept.
#[derive(Debug)]
pub struct Entry {
    /// Its number. [`Ring::append`] gives it one.
    pub number: u64,
    /// The plain message: a JSON object.
    pub text: Box<str>,
    /// When it was published by the monotonic clock, in milliseconds.
    pub at_ms: u64,
    /// The same by the clock on the wall, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The session that published it and must not get it back.
    pub except: Option<Box<Id>>,
}

impl Entry {
    /// What keeping it costs, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len() + ENTRY_BYTES
    }
}

impl Ring {
    /// An empty ring, whose first message will have this number.
    pub fn new(name: &str, epoch: Arc<str>, serial: u64, terms: HistoryTerms, first: u64) -> Ring {
        Ring {
            name: name.into(),
            epoch,
            serial,
            terms,
            empty_since_ms: 0,
            entries: VecDeque::new(),
            oldest: first,
            next: first,
            bytes: 0,
        }
    }

    /// The channel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its epoch.
    pub fn epoch(&self) -> &Arc<str> {
        &self.epoch
    }

    /// The number of the next message.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The lowest number from which on nothing has gone: that of the oldest message that is kept, or one below it where numbers jump,
    /// or of the next message where none is.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Messages that are kept.
    pub fn messages(&self) -> usize {
        self.entries.len()
    }

    /// What keeping them costs, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The messages from this number on, or from the oldest.
    pub fn from(&self, number: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        let skip = self.entries.partition_point(|entry| entry.number < number);
        self.entries.range(skip..)
    }

    /// Adds a message and gives it the next number. The oldest go, if the ring's own terms say so; never the new one.
    pub fn append(&mut self, mut entry: Entry) {
        entry.number = self.next;
        self.next += 1;
        self.push(entry);
    }

    /// Adds a message of an earlier life of the process, which has its number. False if it does not follow what is there.
    pub fn restore(&mut self, entry: Entry) -> bool {
        let follows = entry.number >= self.next;
        if follows {
            self.next = entry.number + 1;
            self.push(entry);
        }
        follows
    }

    /// The next message has this number, if it would have a lower one.
    pub fn jump_to(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        let HistoryTerms { messages_max, bytes_max, .. } = self.terms;
        while self.entries.len() > 1 && (self.entries.len() > messages_max || self.bytes > bytes_max) {
            self.drop_oldest();
        }
    }

    /// Drops the oldest message.
    pub fn drop_oldest(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.bytes();
            self.oldest = entry.number + 1;
        }
        // A busy minute must not pin its memory for ever.
        if self.entries.capacity() > ENTRIES_KEPT && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    /// When the oldest message is too old, in milliseconds of the monotonic clock; None without any.
    pub fn due_ms(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.at_ms.saturating_add(self.terms.age_max_ms))
    }
}

/// What an entry costs beside its text: its own fields and what the allocator adds.
const ENTRY_BYTES: usize = 64;
/// Entries a ring keeps room for.
const ENTRIES_KEPT: usize = 64;
