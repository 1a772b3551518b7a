//! Gauges, and the memory that this shard holds. Other chapters update them after each event; `relief` acts on them.

use std::collections::HashSet;

use crate::outbox::Outbox;
use crate::outbox::arena::Chunk;
use crate::shard::Parts;

impl Parts {
    /// Frees a queue: now if it is short, else in the next flushes.
    pub(super) fn discard(&mut self, queue: Outbox) {
        let steps = self.fanout.relief.discard(queue);
        self.schedule.count_steps(steps);
    }

    /// Updates the gauges where sessions or subscriptions may have come or gone. A publication changes none of these.
    pub(super) fn update_old_gauges(&mut self) {
        if self.schedule.gauges_are_old {
            self.update_gauges();
        }
    }

    pub(crate) fn update_gauges(&mut self) {
        self.schedule.gauges_are_old = false;
        let metrics = &self.metrics;
        metrics.sessions.set(self.sessions.len());
        metrics.sockets.set(self.connections.sockets.len());
        metrics.channels.set(self.channels.len());
        metrics.subscriptions.set(self.channels.subscriptions());
        metrics.arrivals.set(self.admission.waiting());
        metrics.frame_bytes.set(self.fanout.encoder.held_chunk_bytes());
        // Response bodies and revoked tokens belong to no shard, so the first shard counts them.
        let is_first = self.index == 0;
        let bodies = if is_first { self.shared.memory.body_bytes() } else { 0 };
        metrics.tokens_revoked.set(if is_first { self.shared.revoked.len() } else { 0 });
        metrics.memory_bytes.set(self.fanout.encoder.bytes() + bodies);
        if self.index == 0 {
            metrics.rates_forgotten.set(self.shared.limits.buckets.forgotten() as usize);
        }
    }

    /// Publishes the memory of this shard to the others.
    pub(super) fn publish_memory(&self) {
        self.shared.memory.publish(self.index, self.fanout.encoder.held_bytes());
    }

    /// The bytes of everything that holds chunks, without chunks that are in `seen`.
    pub(super) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        let mut walked = self.fanout.relief.recount(seen) + self.fanout.encoder.recount(seen);
        walked += self.fanout.pass.recount(seen);
        for (_, socket) in self.connections.sockets.with_keys() {
            walked += socket.out().map_or(0, |out| out.recount(seen));
            walked += socket.head.as_ref().map_or(0, |head| head.counted.bytes());
        }
        walked += self.channels.bytes();
        for (key, session) in self.sessions.with_keys() {
            walked += self.clients.bytes_of(key);
            walked += session.outbox.recount(seen);
            walked += session.handed_out().map(|messages| messages.recount(seen)).sum::<usize>();
        }
        walked
    }
}
