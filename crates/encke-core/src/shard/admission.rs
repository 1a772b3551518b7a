use crate::connections::admission::{LIGHT_BYTES_MAX, LIGHT_WORK_MAX, Weight, held_back_ms, part_of};
use crate::events::SessionKey;
use crate::fanout::backpressure::{PATIENCE_MS, mark};
use crate::now::Now;
use crate::shard::Shard;

impl Shard {
    /// Whether a message of this weight may be worked through now. If so, what it causes counts as that.
    pub fn admits(&mut self, now: Now, weight: Weight) -> bool {
        self.now = now;
        if self.burst.bytes() > BURST_BYTES_MAX || (self.budget.weight != weight && !self.burst.is_empty()) {
            self.fan_out_pending();
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

    /// What is handed out from now on counts as this.
    pub(super) fn count_as(&mut self, weight: Weight) {
        self.budget.weight = weight;
    }

    /// Whether handing out so many bytes to the subscribers of a channel is light work.
    pub(super) fn is_light(&self, bytes: usize, subscribers: usize) -> bool {
        bytes <= LIGHT_BYTES_MAX && bytes * subscribers <= LIGHT_WORK_MAX as usize
    }

    /// Whether what waits has to go on waiting for readers that are behind.
    pub(super) fn are_arrivals_held_back(&self) -> bool {
        self.budget.is_held_back() && self.arrivals.small.is_empty() && !self.has_budget(Weight::Heavy)
    }

    /// Whether heavy messages are to wait for somebody.
    fn has_readers_behind(&mut self) -> bool {
        while let Some((key, since)) = self.backpressure.readers.front().copied()
            && !self.is_waited_for(key, since)
        {
            self.backpressure.readers.pop_front();
        }
        !self.backpressure.readers.is_empty()
    }

    /// Forgets all those who have caught up, before everybody is given more.
    fn forget_who_caught_up(&mut self) {
        let mut readers = std::mem::take(&mut self.backpressure.readers);
        readers.retain(|(key, since)| self.is_waited_for(*key, *since));
        self.backpressure.readers = readers;
    }

    /// Whether a reader that was behind since then still is, and not for too long.
    fn is_waited_for(&mut self, key: SessionKey, since: u32) -> bool {
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let outbox = &mut session.outbox;
        if outbox.behind_since != since {
            return false;
        }
        if !outbox.is_full(0, 0, &part_of(&self.capacity)) {
            outbox.behind_since = 0;
            return false;
        }
        mark(self.now).wrapping_sub(since) < PATIENCE_MS
    }
}

/// What may be put into all outboxes together between two such flushes, in bytes: some milliseconds of writing.
const WRITE_BYTES_MAX: u64 = 8 << 20;

/// So many bytes of messages go into each outbox all the same, in bytes: a write to each subscriber has to be worth it.
const TURN_BYTES_LEAST: usize = 64 * 1024;

/// A burst of more bytes is handed out before its budget is looked at.
const BURST_BYTES_MAX: usize = 32 * 1024;
