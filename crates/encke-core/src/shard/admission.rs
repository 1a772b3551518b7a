//! Decides whether a message may be processed now, by the budget of fan-outs, the bytes between shards and the memory
//! of sessions. The server asks [`Shard::admits`] before each WebSocket message and each HTTP batch; `from_shards` asks
//! for messages of other shards. `flush` and `tick` renew the budget.

use crate::connections::admission::{LIGHT_BYTES_MAX, LIGHT_WORK_MAX, Weight, held_back_ms};
use crate::now::Now;
use crate::shard::{Parts, Shard};

impl Shard {
    /// True if a message of this weight may be processed now. Its fan-outs then count as that weight.
    pub fn admits(&mut self, now: Now, weight: Weight) -> bool {
        let burst = self.burst();
        if burst.bytes() > BURST_BYTES_MAX || (self.parts().schedule.budget.weight() != weight && !burst.is_empty()) {
            self.settle_burst();
        }
        let pending = (self.burst().messages(), self.burst().bytes());
        let parts = self.beside_burst();
        parts.now = now;
        let has_memory = weight == Weight::Light || !parts.is_memory_short();
        let has_budget = has_memory && parts.has_budget(weight, pending);
        if !has_budget {
            parts.schedule.budget.edge_waits();
        }
        let admits = has_budget && parts.shared.mailbox.has_room(weight);
        if admits {
            parts.schedule.budget.count_as(weight);
        }
        admits
    }
}

impl Parts {
    /// True if the fan-outs since the last flush that wrote everything leave budget beside `pending`, the messages and
    /// bytes that wait for their fan-out.
    pub(super) fn has_budget(&self, weight: Weight, pending: (usize, usize)) -> bool {
        self.schedule.budget.has_room(weight, pending, self.settings.capacity())
    }

    /// Renews the budget, as all that sockets take is written.
    pub(super) fn renew_budget(&mut self) {
        let Parts { fanout, schedule, sessions, settings, now, .. } = self;
        let (backpressure, budget, capacity) = (&mut fanout.backpressure, &mut schedule.budget, settings.capacity());
        let is_behind = backpressure.has_readers(sessions, capacity, *now);
        budget.renew(*now, is_behind, held_back_ms(capacity));
        match budget.is_held_back() {
            true => self.metrics.reader_waits.add(1),
            false if is_behind => backpressure.forget_who_caught_up(sessions, capacity, *now),
            false => {}
        }
    }

    /// True if a fan-out of this many bytes to this many subscribers is light work.
    pub(super) fn is_light(&self, bytes: usize, subscribers: usize) -> bool {
        bytes <= LIGHT_BYTES_MAX && bytes * subscribers <= LIGHT_WORK_MAX as usize
    }

    /// True if waiting envelopes must go on waiting for readers that are behind.
    pub(super) fn are_arrivals_held_back(&self) -> bool {
        self.schedule.budget.is_held_back()
            && self.connections.arrivals.small.is_empty()
            && !self.has_budget(Weight::Heavy, (0, 0))
    }
}

/// A burst of more bytes is fanned out before the budget is checked.
const BURST_BYTES_MAX: usize = 32 * 1024;
