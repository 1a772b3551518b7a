//! The memory of queues: swept, counted, freed.

use std::collections::HashSet;

use crate::delivery::outbox::Outbox;
use crate::delivery::outbox::arena::Chunk;
use crate::delivery::{Delivery, Holder, Sweep};

impl Delivery {
    /// The bytes that sessions and sockets hold, with the room reserved for the next frames.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.encoder.bytes()
    }

    /// The same without that room.
    pub(crate) fn held_bytes(&self) -> usize {
        self.encoder.held_bytes()
    }

    /// The bytes of the frames that queues hold.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.encoder.held_chunk_bytes()
    }

    /// A sweep over all queues, for [`Delivery::go_on_with_sweep`].
    pub(crate) fn sweep(&self) -> Sweep {
        self.encoder.sweep()
    }

    /// Continues a sweep over up to `runs_max` runs: sessions first, then sockets. The first walk marks all of them, the
    /// second packs them. Returns true if it is over.
    pub(crate) fn go_on_with_sweep(&mut self, sweep: &mut Sweep, runs_max: usize) -> bool {
        sweep.looked_at = 0;
        let mut is_over = false;
        while sweep.looked_at < runs_max && !is_over {
            let (at, sessions) = (sweep.next, self.sessions.slots());
            sweep.next += 1;
            sweep.looked_at += 1;
            if at < sessions {
                let session = self.sessions.in_slot(at);
                session.into_iter().for_each(|session| session.sweep(sweep, self.encoder.packed()));
            } else if at - sessions < self.sockets.slots() {
                let own = self.sockets.in_slot(at - sessions).and_then(|socket| socket.own.as_mut());
                own.into_iter().for_each(|own| own.out.sweep(sweep, self.encoder.packed()));
            } else if !sweep.packs {
                (sweep.packs, sweep.next) = (true, 0);
            } else {
                is_over = true;
            }
        }
        self.schedule.count_steps(sweep.looked_at);
        is_over
    }

    /// The number of slots that sessions and sockets are in.
    pub(crate) fn slots(&self) -> usize {
        self.sessions.slots() + self.sockets.slots()
    }

    /// The session or socket in a slot.
    pub(crate) fn holder_in_slot(&self, slot: usize) -> Option<Holder> {
        self.schedule.count_steps(1);
        let session = self.in_slot(slot).map(|(key, _)| Holder::Session(key));
        let socket = || self.sockets.key_in_slot(slot.checked_sub(self.sessions.slots())?);
        session.or_else(|| socket().map(Holder::Socket))
    }

    /// The bytes that the queues of a session or socket hold, and those that it holds beside them. Shared bytes count for
    /// each holder with its part.
    pub(crate) fn bytes_of(&self, holder: Holder) -> (usize, usize) {
        match holder {
            Holder::Session(key) => self.sessions.get(key).map_or((0, 0), |session| {
                self.schedule.count_steps(1 + session.outbox.runs());
                (session.share_bytes(), 0)
            }),
            Holder::Socket(key) => self.socket(key).map_or((0, 0), |socket| {
                let of_head = socket.head.as_ref().map_or(0, |head| head.counted.bytes());
                self.schedule.count_steps(1 + socket.out().map_or(0, Outbox::runs));
                (socket.out().map_or(0, Outbox::share_bytes), of_head)
            }),
        }
    }

    /// True if queues of ended sessions are left to be freed.
    pub(crate) fn has_waste(&self) -> bool {
        !self.waste.is_empty()
    }

    /// Frees a part of them: about as many runs as `steps_max`. Returns true if there was anything to free.
    pub(crate) fn free(&mut self, steps_max: usize) -> bool {
        let steps = self.waste.free(steps_max);
        self.schedule.count_steps(steps);
        steps > 0
    }

    /// Shrinks tables that were large once.
    pub(crate) fn give_room_back(&mut self) {
        self.sessions.give_room_back();
        self.sockets.give_room_back();
    }

    /// The bytes of everything that holds chunks, without chunks that are in `seen`.
    pub(crate) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        let mut walked = self.own_terms.bytes() + self.resuming.recount(seen);
        walked += self.waste.recount(seen) + self.encoder.recount(seen) + self.pass.recount(seen);
        for (_, socket) in self.sockets.with_keys() {
            walked += socket.out().map_or(0, |out| out.recount(seen));
            walked += socket.head.as_ref().map_or(0, |head| head.counted.bytes());
        }
        for (_, session) in self.sessions.with_keys() {
            walked += session.outbox.recount(seen);
            walked += session.handed_out().map(|messages| messages.recount(seen)).sum::<usize>();
        }
        walked
    }
}
