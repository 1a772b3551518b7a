//! The latest messages of one channel, each with its offset. Offsets grow. They are mostly consecutive; they jump after
//! an unclean end of the server, and where the disk refused a message.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::HistoryTerms;
use crate::id::Id;
use crate::limits::shares::Share;
use crate::side::Side;

/// One life of a channel's history.
#[derive(Debug)]
pub struct Ring {
    pub(super) name: Box<str>,
    /// Distinguishes this life from others, including those before a restart.
    pub(super) epoch: Arc<str>,
    /// Distinguishes this ring from all others of this process.
    pub(super) serial: u64,
    pub(super) terms: HistoryTerms,
    /// The time when it lost its last message, in milliseconds, if it has none now.
    pub(super) empty_since_ms: u64,
    entries: VecDeque<Entry>,
    /// No message from this offset on has been dropped.
    oldest: u64,
    /// The offset of the next message.
    next: u64,
    bytes: usize,
    /// The time when it last dropped a message, in milliseconds of the monotonic clock.
    dropped_ms: u64,
    /// The time when the last message came that it has dropped, in milliseconds of the monotonic clock.
    lost_ms: u64,
    /// True if messages of its channel are not there any more, or may not be.
    is_partial: bool,
    /// True until its first message.
    is_unused: bool,
    /// Its share of the channels with a history. The owner is its rule.
    pub(super) share: Share<u64>,
}

/// A retained message.
#[derive(Debug)]
pub struct Entry {
    /// Its offset, assigned by [`Ring::append`].
    pub offset: u64,
    /// The plain message: a JSON object.
    pub text: Box<str>,
    /// The time when it was published by the monotonic clock, in milliseconds.
    pub at_ms: u64,
    /// The same time by the wall clock, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The side that has made it.
    pub side: Side,
    /// The session that published it and must not get it back.
    pub except: Option<Box<Id>>,
}

impl Entry {
    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.len() + ENTRY_BYTES
    }
}

impl Ring {
    /// An empty ring, whose first message will have this offset.
    pub fn new(name: &str, epoch: Arc<str>, serial: u64, terms: HistoryTerms, first: u64, share: Share<u64>) -> Ring {
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
            dropped_ms: 0,
            lost_ms: 0,
            is_partial: false,
            is_unused: true,
            share,
        }
    }

    /// The rule that has the share of this ring.
    pub(super) fn rule(&self) -> u64 {
        *self.share.owner()
    }

    /// The channel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True if its messages are compressed.
    pub fn compresses(&self) -> bool {
        self.terms.compresses
    }

    /// Its epoch.
    pub fn epoch(&self) -> &Arc<str> {
        &self.epoch
    }

    /// The offset of the next message.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The lowest offset from which on no message has been dropped: that of the oldest retained message, or a lower one
    /// where offsets jump; the offset of the next message if the ring is empty.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// True if it has all messages after this position: no life of the ring has ended since, and no message was dropped.
    pub fn has_all_after(&self, offset: u64, epoch: Option<&str>) -> bool {
        let is_this_life = epoch.is_none_or(|epoch| *epoch == *self.epoch);
        is_this_life && offset.saturating_add(1) >= self.oldest && offset < self.next
    }

    /// True if it has all messages of its channel since the channel has a history. A ring of an earlier process cannot
    /// know.
    pub fn has_all(&self) -> bool {
        !self.is_partial
    }

    /// The offset of the first of its latest messages, up to this number.
    pub fn last(&self, messages: u64) -> u64 {
        let skipped = self.entries.len().saturating_sub(usize::try_from(messages).unwrap_or(usize::MAX));
        match skipped {
            0 => self.oldest,
            _ => self.entries.get(skipped).map_or(self.next, |entry| entry.offset),
        }
    }

    /// The offset of the first of the messages published at this time or later, in milliseconds of the monotonic clock.
    pub fn first_since(&self, since_ms: u64) -> u64 {
        match self.entries.partition_point(|entry| entry.at_ms < since_ms) {
            0 => self.oldest,
            older => self.entries.get(older).map_or(self.next, |entry| entry.offset),
        }
    }

    /// True if it may have dropped a message at this time or later, in milliseconds of the monotonic clock.
    pub fn has_dropped_since(&self, since_ms: u64) -> bool {
        self.is_partial && self.dropped_ms >= since_ms
    }

    /// The number of retained messages.
    pub fn messages(&self) -> usize {
        self.entries.len()
    }

    /// The memory that they take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The messages from this offset on, or from the oldest.
    pub fn from(&self, offset: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        let skip = self.entries.partition_point(|entry| entry.offset < offset);
        self.entries.range(skip..)
    }

    /// The messages from offset `first` on and below `end`.
    pub fn between(&self, first: u64, end: u64) -> impl DoubleEndedIterator<Item = &Entry> {
        let below = |offset: u64| self.entries.partition_point(|entry| entry.offset < offset);
        let from = below(first);
        self.entries.range(from..below(end).max(from))
    }

    /// The messages that came at this time or later, in milliseconds of the monotonic clock. None if some of them may be gone.
    pub(super) fn since(&self, since_ms: u64) -> Option<impl Iterator<Item = &Entry>> {
        let came_before = self.entries.iter().rposition(|entry| entry.at_ms < since_ms);
        let has_all = came_before.is_some() || !self.is_partial || self.lost_ms < since_ms;
        has_all.then(|| self.entries.range(came_before.map_or(0, |last| last + 1)..))
    }

    /// Adds a message and assigns the next offset. Drops the oldest messages if the ring's own limits require it, but
    /// never the new one.
    pub fn append(&mut self, mut entry: Entry) {
        entry.offset = self.next;
        self.next += 1;
        self.push(entry);
    }

    /// Adds a message from an earlier process, which has its offset. False if the offset is below the next one.
    pub fn restore(&mut self, entry: Entry) -> bool {
        let follows = entry.offset >= self.next;
        if follows {
            self.next = entry.offset + 1;
            self.push(entry);
        }
        follows
    }

    /// Raises the next offset to this one, if it is lower: the ring is that of an earlier process.
    pub fn jump_to(&mut self, next: u64) {
        self.is_partial = true;
        self.next = self.next.max(next);
    }

    /// True if it has never had a message.
    pub(super) fn is_unused(&self) -> bool {
        self.is_unused
    }

    /// The next message has this offset. No message has had one between.
    pub(super) fn leap_to(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// The ring begins at this offset: earlier messages of its channel are unknown.
    pub(super) fn begin_at(&mut self, first: u64) {
        self.clear();
        (self.oldest, self.next) = (first, first);
        self.is_partial = true;
    }

    fn push(&mut self, entry: Entry) {
        let now_ms = entry.at_ms;
        self.is_unused = false;
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        let HistoryTerms { messages_max, bytes_max, .. } = self.terms;
        while self.entries.len() > 1 && (self.entries.len() > messages_max || self.bytes > bytes_max) {
            self.drop_oldest(now_ms);
        }
    }

    /// Drops the oldest message. `now_ms`: the time of the monotonic clock, in milliseconds.
    pub fn drop_oldest(&mut self, now_ms: u64) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.bytes();
            self.oldest = entry.offset + 1;
            (self.is_partial, self.dropped_ms, self.lost_ms) = (true, now_ms, entry.at_ms);
        }
        // Releases the memory that a busy minute needed.
        if self.entries.capacity() > ENTRIES_RETAINED && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    /// Drops all messages.
    pub fn clear(&mut self) {
        self.lost_ms = self.newest_ms();
        self.is_partial |= !self.entries.is_empty();
        self.entries = VecDeque::new();
        self.oldest = self.next;
        self.bytes = 0;
    }

    /// The time when its last message came, as far as it is known, in milliseconds of the monotonic clock.
    pub(super) fn newest_ms(&self) -> u64 {
        self.entries.back().map_or(self.lost_ms, |entry| entry.at_ms)
    }

    /// Drops the messages below an offset. `now_ms`: the time of the monotonic clock, in milliseconds.
    pub(super) fn clear_below(&mut self, offset: u64, now_ms: u64) {
        if offset >= self.next {
            return self.clear();
        }
        while self.entries.front().is_some_and(|entry| entry.offset < offset) {
            self.drop_oldest(now_ms);
        }
    }

    /// The time when the oldest message expires, in milliseconds of the monotonic clock; None if there is none.
    pub fn due_ms(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.at_ms.saturating_add(self.terms.age_max_ms))
    }
}

/// The memory of an entry without its text: its own fields and the allocator's overhead.
const ENTRY_BYTES: usize = 72;
/// Rings with at most this capacity are not shrunk.
const ENTRIES_RETAINED: usize = 64;
