//! Sessions that acknowledge, of a node of a cluster: the messages that their clients have not confirmed, and those that come again with
//! the ones that a session has missed.

use bayeux::ext;

use crate::delivery::Delivery;
use crate::events::SessionKey;

/// The messages of a session that acknowledges, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unconfirmed {
    /// Those that its client has confirmed.
    pub(crate) confirmed: u64,
    /// Those that it has not confirmed, or was not sent yet.
    pub(crate) queued: usize,
}

impl Delivery {
    /// The messages of a session that acknowledges. None for any other, and for one that replays: its client knows its positions.
    pub(crate) fn unconfirmed(&self, key: SessionKey) -> Option<Unconfirmed> {
        let session = self.sessions.get(key).filter(|session| !session.replays())?;
        let queued = session.outbox.messages();
        session.unacked().map(|unacked| Unconfirmed { confirmed: unacked.confirmed(), queued })
    }

    /// The messages, and their bytes, that the outbox of a session takes.
    pub(crate) fn outbox_room(&self) -> (usize, usize) {
        (self.capacity.messages_max, self.capacity.bytes_max)
    }

    /// Removes the messages that wait for a session on channels for which `is_read` is true: they are read from the history.
    pub(crate) fn remove_read(&mut self, key: SessionKey, is_read: &mut dyn FnMut(&str) -> bool) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        self.schedule.count_steps(session.outbox.messages());
        session.withdraw(|payload| !ext::channel_of(payload).is_some_and(|channel| is_read(&channel)));
    }
}
