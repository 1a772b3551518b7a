//! The latest messages of one channel. Each has its number; numbers follow each other without gaps.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::settings::HistoryTerms;
use crate::shard::ids::Id;

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
    /// The number of the next message.
    next: u64,
    bytes: usize,
}

/// A message that is kept.
#[derive(Debug)]
pub struct Entry {
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

    /// The number of the oldest message that is kept; of the next one where none is.
    pub fn oldest(&self) -> u64 {
        self.next - self.entries.len() as u64
    }

    /// Messages that are kept.
    pub fn messages(&self) -> usize {
        self.entries.len()
    }

    /// What keeping them costs, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The messages from this number on, or from the oldest, each with its number.
    pub fn from(&self, number: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let skip = number.saturating_sub(self.oldest()).min(self.entries.len() as u64);
        (self.oldest() + skip..).zip(self.entries.range(skip as usize..))
    }

    /// Adds a message. The oldest go, if the ring's own terms say so; never the new one.
    pub fn append(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.next += 1;
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
