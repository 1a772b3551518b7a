//! Decides whether a message may be processed now, by the budget of fan-outs, the bytes between shards and the memory
//! of sessions. The server asks [`Shard::admits`] before each WebSocket message and each HTTP batch; `from_shards` asks
//! for messages of other shards. `flush` and `tick` renew the budget.

use crate::admission::budget::Weight;
use crate::now::Now;
use crate::shard::{Parts, Shard};

impl Shard {
    /// True if a message of this weight may be processed now. Its fan-outs then count as that weight.
    pub fn admits(&mut self, now: Now, weight: Weight) -> bool {
        let burst = self.burst();
        if burst.bytes() > BURST_BYTES_MAX || (self.parts().admission.weight() != weight && !burst.is_empty()) {
            self.settle_burst();
        }
        let pending = (self.burst().messages(), self.burst().bytes());
        let parts = self.beside_burst();
        parts.now = now;
        let has_memory = weight == Weight::Light || !parts.is_memory_short();
        let Parts { admission, settings, shared, .. } = parts;
        admission.admits(weight, pending, settings.capacity(), has_memory, || shared.mailbox.has_room(weight))
    }
}

impl Parts {
    /// Renews the budget, as all that sockets take is written.
    pub(super) fn renew_budget(&mut self) {
        let Parts { fanout, admission, sessions, settings, now, .. } = self;
        let (backpressure, capacity) = (&mut fanout.backpressure, settings.capacity());
        let is_behind = backpressure.has_readers(sessions, capacity, *now);
        admission.renew(*now, is_behind, capacity);
        match admission.is_held_back() {
            true => self.metrics.reader_waits.add(1),
            false if is_behind => backpressure.forget_who_caught_up(sessions, capacity, *now),
            false => {}
        }
    }
}

/// A burst of more bytes is fanned out before the budget is checked.
const BURST_BYTES_MAX: usize = 32 * 1024;
