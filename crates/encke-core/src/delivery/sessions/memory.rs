//! The memory of a session: packed, counted, and left to be freed when it ends.

use crate::delivery::outbox::waste::Waste;
use crate::delivery::outbox::{Packed, Sweep};
use crate::delivery::sessions::session::{Confirmation, Session};

impl Session {
    /// Marks or packs its messages.
    pub(crate) fn sweep(&mut self, sweep: &mut Sweep, packed: &mut Packed) {
        self.outbox.sweep(sweep, packed);
        let mut sweep_taken = |messages| self.outbox.sweep_taken(messages, sweep, packed);
        match &mut self.confirmation {
            Confirmation::ByKernel { in_flight, .. } => {
                in_flight.iter_mut().for_each(|in_flight| sweep_taken(&mut in_flight.1));
            }
            Confirmation::ByClient(unacked) => unacked.messages_mut().for_each(sweep_taken),
        }
    }

    /// The bytes that it holds. Bytes shared with other sessions count in proportion.
    pub(crate) fn share_bytes(&self) -> usize {
        self.outbox.share_bytes() + self.handed_out().map(|messages| messages.share_bytes()).sum::<usize>()
    }

    /// Leaves its messages to be freed. Returns the number of steps.
    pub(crate) fn discard(self, waste: &mut Waste) -> usize {
        let of_outbox = waste.add(self.outbox);
        let mut add = |messages| waste.add_taken(messages);
        of_outbox
            + match self.confirmation {
                Confirmation::ByKernel { in_flight, .. } => in_flight.map_or(0, |in_flight| add(in_flight.1)),
                Confirmation::ByClient(unacked) => unacked.into_messages().map(add).sum(),
            }
    }
}
