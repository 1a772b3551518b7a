//! Limits on what an edge may admit. An edge is a WebSocket before each message, an HTTP request before its batch, or a
//! queue of other shards' publications before each of them.
//!
//! Two things can be used up: the [account](super::account) of bytes between shards, and the budget of messages fanned
//! out since the last flush that wrote everything. The budget has two limits. Each outbox gets at most a quarter of its
//! capacity, so that no reader that keeps up is ended, however many clients publish at once. All outboxes together get
//! at most some milliseconds of writing. While readers are [behind](crate::delivery::backpressure), a flush that wrote
//! all that sockets take does not renew the first limit of heavy messages.
//!
//! While sessions hold more than `sessions_bytes_max`, or packing their memory is behind, no heavy message is admitted.
//!
//! Messages are heavy or light. A light message is small, and its connection has caused little work lately. Light
//! messages have an account and a budget of the same size for themselves, so that a flood by others does not stop them.

use crate::limits::Capacity;
use crate::now::Now;

/// The class of a message for admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// A small message of a connection that has caused little work lately.
    Light,
    /// Any other message.
    #[default]
    Heavy,
}

/// The work that a connection has caused lately.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    slot: u32,
    work: u32,
}

impl Usage {
    /// Adds work that the connection has caused, as [`Shard::work`](crate::Shard::work) counts it.
    pub fn add(&mut self, now: Now, work: u64) {
        self.work = u32::try_from(work).unwrap_or(u32::MAX).saturating_add(self.lately(now));
        self.slot = slot(now);
    }

    /// The weight of a message of this many bytes that arrives now.
    pub fn weigh(&self, now: Now, bytes: usize) -> Weight {
        if bytes <= LIGHT_BYTES_MAX && self.lately(now) <= LIGHT_WORK_MAX { Weight::Light } else { Weight::Heavy }
    }

    /// The remembered work: half of it is forgotten in each slot of time.
    fn lately(&self, now: Now) -> u32 {
        self.work.checked_shr(slot(now).wrapping_sub(self.slot)).unwrap_or(0)
    }
}

fn slot(now: Now) -> u32 {
    (now.ms / SLOT_MS) as u32
}

/// The messages of a weight fanned out since the last flush that wrote everything.
#[derive(Debug, Default)]
pub(super) struct Spent {
    /// The most messages that one outbox can have received since the last renewal.
    pub(super) messages: usize,
    /// The bytes of these messages.
    pub(super) bytes: usize,
    /// The bytes of messages since the last flush that wrote everything.
    pub(super) turn_bytes: usize,
    /// The same bytes counted once for each subscriber: the bytes to write.
    pub(super) write_bytes: u64,
}

impl Spent {
    /// True if a message may be fanned out beside `pending` messages and bytes.
    pub(super) fn has_room(&self, pending: (usize, usize), capacity: &Capacity) -> bool {
        let (messages, bytes) = (self.messages + pending.0, self.bytes + pending.1);
        let share = part_of(capacity);
        bytes < share.bytes_max
            && messages < share.messages_max
            && (self.write_bytes < WRITE_BYTES_MAX || self.turn_bytes + pending.1 < TURN_BYTES_LEAST)
    }
}

/// True if a fan-out of this many bytes to this many subscribers is light work.
pub(crate) fn is_light(bytes: usize, subscribers: usize) -> bool {
    bytes <= LIGHT_BYTES_MAX && bytes * subscribers <= LIGHT_WORK_MAX as usize
}

/// The part of an outbox that heavy messages may fill between two flushes that wrote everything. Light messages may
/// fill as much again. A reader that still has this much waiting after such a flush is
/// [behind](crate::delivery::backpressure).
pub(crate) fn part_of(capacity: &Capacity) -> Capacity {
    let part = |most: usize| (most / OUTBOX_SHARE).max(1);
    Capacity { messages_max: part(capacity.messages_max), bytes_max: part(capacity.bytes_max) }
}

/// The time that heavy messages wait for readers that are behind: as long as a reader that keeps up takes for one part
/// of its outbox, which may be short.
pub(crate) fn held_back_ms(capacity: &Capacity) -> u64 {
    let part = part_of(capacity);
    let ms = (part.bytes_max / READ_BYTES_PER_MS).min(part.messages_max / READ_MESSAGES_PER_MS);
    HELD_BACK_MS_MAX.min(ms as u64)
}

/// The time in which half of a connection's work is forgotten, in milliseconds.
const SLOT_MS: u64 = 128;

/// The largest light message, in bytes.
pub const LIGHT_BYTES_MAX: usize = 8 * 1024;

/// The most work that a connection may have caused lately for its next message to be light, in bytes for all
/// subscribers: 2 MB/s sustained.
const LIGHT_WORK_MAX: u32 = 256 * 1024;

/// The divisor in [`part_of`].
const OUTBOX_SHARE: usize = 4;

/// The longest wait of heavy messages for readers that are behind, in milliseconds. After it each outbox may get a
/// quarter again. A reader has this time to take its part, whatever others do.
const HELD_BACK_MS_MAX: u64 = 250;

/// A reader that takes this many bytes in each millisecond keeps up. Publishers are never slowed below this rate.
const READ_BYTES_PER_MS: usize = 16 * 1024;

const READ_MESSAGES_PER_MS: usize = 100;

/// The most bytes that all outboxes together may get between two flushes that wrote everything: some milliseconds of
/// writing.
const WRITE_BYTES_MAX: u64 = 8 << 20;

/// The bytes of messages that each outbox may get in any case, so that a write to each subscriber is worth its cost.
const TURN_BYTES_LEAST: usize = 64 * 1024;
