//! What an edge may take in: a WebSocket before each message, an HTTP request before its batch, a queue of other shards' publications
//! before each of them.
//!
//! Two things can be used up. The [account](super::account) of bytes between shards; and the budget of what was handed out since the last flush
//! that wrote everything. The budget has two limits. No outbox is given more than a quarter of what it may hold, so that no reader that keeps up is ended,
//! however many publish at once. And all outboxes together are not given more than some milliseconds of writing. A flush that wrote everything
//! that sockets take does not renew the first limit of heavy messages while readers are [behind](super::backpressure).
//!
//! While sessions hold more than `sessions_bytes_max`, or packing what they hold is behind, no heavy message is taken in.
//!
//! Messages are heavy or light. Light ones are small, and what their connection has caused lately is little; they have an account and a budget of the
//! same size for themselves, so that a flood by others does not stop them.

use crate::now::Now;
use crate::outbox::Capacity;

/// How a message counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Small, of a connection that has caused little lately.
    Light,
    /// All else.
    #[default]
    Heavy,
}

/// How much work a connection has caused lately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    slot: u32,
    work: u32,
}

impl Usage {
    /// Adds the work that it has caused, as [`Shard::work`] counts.
    pub fn add(&mut self, now: Now, work: u64) {
        self.work = u32::try_from(work).unwrap_or(u32::MAX).saturating_add(self.lately(now));
        self.slot = slot(now);
    }

    /// How a message of so many bytes counts that comes now.
    pub fn weigh(&self, now: Now, bytes: usize) -> Weight {
        if bytes <= LIGHT_BYTES_MAX && self.lately(now) <= LIGHT_WORK_MAX { Weight::Light } else { Weight::Heavy }
    }

    /// Half of it is forgotten in each slot of time.
    fn lately(&self, now: Now) -> u32 {
        self.work.checked_shr(slot(now).wrapping_sub(self.slot)).unwrap_or(0)
    }
}

fn slot(now: Now) -> u32 {
    (now.ms / SLOT_MS) as u32
}

/// What was handed out since the last flush that wrote everything.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    pub(crate) spent: [Spent; 2],
    /// What is handed out now counts as this.
    pub(crate) weight: Weight,
    /// The last flush wrote everything, and readers are behind all the same.
    is_held_back: bool,
    /// Until then heavy messages wait for readers that are behind, in milliseconds.
    held_until_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Spent {
    /// What each outbox was given at most since it was renewed.
    pub(crate) messages: usize,
    /// Of the messages.
    pub(crate) bytes: usize,
    /// Of the messages since the last flush that wrote everything.
    pub(crate) turn_bytes: usize,
    /// The same for each subscriber: what there is to write.
    pub(crate) write_bytes: u64,
}

impl Budget {
    /// Whether nothing was spent that a flush could renew.
    pub(crate) fn is_fresh(&self) -> bool {
        let is_fresh = |spent: &Spent| spent.turn_bytes == 0 && (spent.messages == 0 || self.is_held_back);
        self.spent.iter().all(is_fresh)
    }

    /// Whether heavy messages wait for readers that are behind.
    pub(crate) fn is_held_back(&self) -> bool {
        self.is_held_back
    }

    /// When heavy messages may go on, whoever is behind, in milliseconds.
    pub(crate) fn held_until_ms(&self) -> Option<u64> {
        self.is_held_back.then_some(self.held_until_ms)
    }

    /// Everything is written that sockets take. While readers are behind, heavy messages get no more than before, for so many milliseconds.
    pub(crate) fn renew(&mut self, now: Now, is_behind: bool, held_back_ms: u64) {
        self.is_held_back = is_behind && now.ms < self.held_until_ms;
        let [light, heavy] = &mut self.spent;
        *light = Spent::default();
        *heavy = if self.is_held_back {
            Spent { turn_bytes: 0, write_bytes: 0, ..*heavy }
        } else {
            self.held_until_ms = now.ms + held_back_ms;
            Spent::default()
        };
        self.weight = Weight::default();
    }

    pub(crate) fn spend(&mut self, messages: usize, bytes: usize, write_bytes: u64) {
        let spent = &mut self.spent[self.weight as usize];
        spent.messages += messages;
        spent.bytes += bytes;
        spent.turn_bytes += bytes;
        spent.write_bytes += write_bytes;
    }
}

/// The part of an outbox that may be filled between two flushes that wrote everything: by heavy messages, and once more by light ones. A
/// reader of which as much waits behind such a flush is [behind](super::backpressure).
pub(crate) fn part_of(capacity: &Capacity) -> Capacity {
    let part = |most: usize| (most / OUTBOX_SHARE).max(1);
    Capacity { messages_max: part(capacity.messages_max), bytes_max: part(capacity.bytes_max) }
}

/// How long heavy messages wait for readers that are behind: for these to take what outboxes are given at once, which may be little.
pub(crate) fn held_back_ms(capacity: &Capacity) -> u64 {
    let part = part_of(capacity);
    let ms = (part.bytes_max / READ_BYTES_PER_MS).min(part.messages_max / READ_MESSAGES_PER_MS);
    HELD_BACK_MS_MAX.min(ms as u64)
}

/// How long half of what a connection has caused is remembered, in milliseconds.
const SLOT_MS: u64 = 128;

/// The largest light message, in bytes.
pub(crate) const LIGHT_BYTES_MAX: usize = 8 * 1024;

/// What a connection may have caused lately for its next message to be light, in bytes for all subscribers: 2 MB/s lasting.
pub(crate) const LIGHT_WORK_MAX: u32 = 256 * 1024;

/// See [`part_of`].
const OUTBOX_SHARE: usize = 4;

/// How long heavy messages wait for readers that are behind, in milliseconds, before each outbox is given a quarter again. A reader has this time
/// for it, whatever others do.
const HELD_BACK_MS_MAX: u64 = 250;

/// Who reads so much each millisecond keeps up: no slower do publishers get for anybody.
const READ_BYTES_PER_MS: usize = 16 * 1024;

const READ_MESSAGES_PER_MS: usize = 100;
