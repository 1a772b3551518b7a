//! The publications of a session that the server has confirmed.

use std::collections::HashSet;

/// The replies to the publications of one session in one room, whose ids are then their sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    pub(super) confirmed: HashSet<u64>,
    /// Those whose reply may still come.
    pub(super) unanswered: HashSet<u64>,
}

impl Confirmations {
    /// The reply to a publication has come.
    pub(super) fn answered(&mut self, id: u64, successful: bool) {
        self.unanswered.remove(&id);
        if successful {
            self.confirmed.insert(id);
        }
    }
}
