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

use super::Shard;
use super::batch::client_of;
use super::effect::{Effect, Mail, Now, SocketKey};
use super::ids::Id;
use super::outbox::Capacity;

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
pub(super) struct Budget {
    spent: [Spent; 2],
    /// What is handed out now counts as this.
    weight: Weight,
    /// The last flush wrote everything, and readers are behind all the same.
    is_held_back: bool,
    /// Until then heavy messages wait for readers that are behind, in milliseconds.
    held_until_ms: u64,
}

#[derive(Debug, Default)]
struct Spent {
    /// What each outbox was given at most since it was renewed.
    messages: usize,
    /// Of the messages.
    bytes: usize,
    /// Of the messages since the last flush that wrote everything.
    turn_bytes: usize,
    /// The same for each subscriber: what there is to write.
    write_bytes: u64,
}

impl Budget {
    /// Whether nothing was spent that a flush could renew.
    pub(super) fn is_fresh(&self) -> bool {
        let is_fresh = |spent: &Spent| spent.turn_bytes == 0 && (spent.messages == 0 || self.is_held_back);
        self.spent.iter().all(is_fresh)
    }

    /// Whether heavy messages wait for readers that are behind.
    pub(super) fn is_held_back(&self) -> bool {
        self.is_held_back
    }

    /// When heavy messages may go on, whoever is behind, in milliseconds.
    pub(super) fn held_until_ms(&self) -> Option<u64> {
        self.is_held_back.then_some(self.held_until_ms)
    }

    /// Everything is written that sockets take. While readers are behind, heavy messages get no more than before, for so many milliseconds.
    pub(super) fn renew(&mut self, now: Now, is_behind: bool, held_back_ms: u64) {
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

    pub(super) fn spend(&mut self, messages: usize, bytes: usize, write_bytes: u64) {
        let spent = &mut self.spent[self.weight as usize];
        spent.messages += messages;
        spent.bytes += bytes;
        spent.turn_bytes += bytes;
        spent.write_bytes += write_bytes;
    }
}

impl Shard {
    /// Work that was caused since the start, in bytes for subscribers and other shards: what a connection has caused is seen by the
    /// difference.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Whether a message of this weight may be worked through now. If so, what it causes counts as that.
    pub fn admits(&mut self, now: Now, weight: Weight) -> bool {
        self.now = now;
        if self.burst.bytes() > BURST_BYTES_MAX || (self.budget.weight != weight && !self.burst.is_empty()) {
            self.spread();
        }
        let has_memory = weight == Weight::Light || !self.is_memory_short();
        let has_budget = has_memory && self.has_budget(weight);
        self.edge_waits |= !has_budget;
        let admits = has_budget && self.shared.mailbox.has_room(weight);
        if admits {
            self.budget.weight = weight;
        }
        admits
    }

    /// Whether not too much was handed out since the last flush that wrote everything.
    pub(super) fn has_budget(&self, weight: Weight) -> bool {
        let spent = &self.budget.spent[weight as usize];
        let (bytes, messages) = (spent.bytes + self.burst.bytes(), spent.messages + self.burst.messages());
        let share = part_of(&self.capacity);
        bytes < share.bytes_max
            && messages < share.messages_max
            && (spent.write_bytes < WRITE_BYTES_MAX || spent.turn_bytes + self.burst.bytes() < TURN_BYTES_LEAST)
    }

    /// All that sockets take is written: what is handed out counts from here.
    pub(super) fn renew_budget(&mut self) {
        let is_behind = self.has_readers_behind();
        self.budget.renew(self.now, is_behind, held_back_ms(&self.capacity));
        match self.budget.is_held_back() {
            true => self.metrics.reader_waits.add(1),
            false if is_behind => self.forget_who_caught_up(),
            false => {}
        }
    }

    /// A socket waits to be read, and is not silent: neither it nor its session expires for that.
    pub fn socket_waits(&mut self, now: Now, key: SocketKey) {
        self.now = now;
        let Some(socket) = self.socket_mut(key) else { return };
        (socket.heard_ms, socket.alone_ms) = (now.ms, now.ms);
        if let Some(session) = socket.session {
            self.heard(session);
            self.active(session);
        }
    }

    /// A request of this session's client waits to be worked through, and is not silent.
    pub fn request_waits(&mut self, now: Now, session: Id) {
        if session.shard() == self.index {
            self.alive(now, &session);
        } else if session.shard() < self.shared.shards {
            self.effects.push(Effect::Mail(session.shard(), Mail::Alive(session)));
        }
    }

    /// The session whose client a request is of, for [`Shard::request_waits`].
    pub fn client_of_request(&self, body: &str) -> Option<Id> {
        let messages = bayeux::parse_batch(body, &self.limits).ok()?;
        client_of(&messages)
    }

    pub(super) fn alive(&mut self, now: Now, session: &Id) {
        self.now = now;
        if let Some(key) = self.sessions.find(session) {
            self.heard(key);
            self.active(key);
        }
    }

    /// What is handed out from now on counts as this.
    pub(super) fn count_as(&mut self, weight: Weight) {
        self.budget.weight = weight;
    }

    /// Whether handing out so many bytes to the subscribers of a channel is light work.
    pub(super) fn is_light(&self, bytes: usize, subscribers: usize) -> bool {
        bytes <= LIGHT_BYTES_MAX && bytes * subscribers <= LIGHT_WORK_MAX as usize
    }
}

/// The part of an outbox that may be filled between two flushes that wrote everything: by heavy messages, and once more by light ones. A
/// reader of which as much waits behind such a flush is [behind](super::backpressure).
pub(super) fn part_of(capacity: &Capacity) -> Capacity {
    let part = |most: usize| (most / OUTBOX_SHARE).max(1);
    Capacity { messages_max: part(capacity.messages_max), bytes_max: part(capacity.bytes_max) }
}

/// How long heavy messages wait for readers that are behind: for these to take what outboxes are given at once, which may be little.
fn held_back_ms(capacity: &Capacity) -> u64 {
    let part = part_of(capacity);
    let ms = (part.bytes_max / READ_BYTES_PER_MS).min(part.messages_max / READ_MESSAGES_PER_MS);
    HELD_BACK_MS_MAX.min(ms as u64)
}

/// How long half of what a connection has caused is remembered, in milliseconds.
const SLOT_MS: u64 = 128;
/// The largest light message, in bytes.
pub(super) const LIGHT_BYTES_MAX: usize = 8 * 1024;
/// What a connection may have caused lately for its next message to be light, in bytes for all subscribers: 2 MB/s lasting.
const LIGHT_WORK_MAX: u32 = 256 * 1024;
/// See [`part_of`].
const OUTBOX_SHARE: usize = 4;
/// How long heavy messages wait for readers that are behind, in milliseconds, before each outbox is given a quarter again. A reader has this time
/// for it, whatever others do.
const HELD_BACK_MS_MAX: u64 = 250;
/// Who reads so much each millisecond keeps up: no slower do publishers get for anybody.
const READ_BYTES_PER_MS: usize = 16 * 1024;
const READ_MESSAGES_PER_MS: usize = 100;
/// What may be put into all outboxes together between two such flushes, in bytes: some milliseconds of writing.
const WRITE_BYTES_MAX: u64 = 8 << 20;
/// So many bytes of messages go into each outbox all the same, in bytes: a write to each subscriber has to be worth it.
const TURN_BYTES_LEAST: usize = 64 * 1024;
/// A burst of more bytes is handed out before its budget is looked at.
const BURST_BYTES_MAX: usize = 32 * 1024;
