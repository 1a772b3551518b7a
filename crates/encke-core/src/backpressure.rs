//! Backpressure: heavy messages wait for readers that are behind.
//!
//! A flush writes what sockets take; what they do not take stays in outboxes. A reader is behind from the moment that it is given more than a quarter
//! of what its outbox may hold, until it has less. While any reader is, flushes do not renew the budget of heavy messages
//! (see [`super::admission`]). So publishers go on as fast as those who read can take it, and these are not ended as slow.
//!
//! Nobody stops publishers that way. A reader that has been behind for a second holds nothing back until its outbox has been empty, and the
//! budget is renewed after a while whoever is behind. A client that does not read so fills its outbox, and its channel's policy acts.

use std::collections::VecDeque;

use super::Shard;
use super::admission::part_of;
use super::effect::{Now, SessionKey};
use super::session::Session;

/// Readers that are behind.
#[derive(Debug, Default)]
pub(super) struct Backpressure {
    /// Those for which heavy messages may wait, the one that has been behind for longest first; among them some that have caught up.
    readers: VecDeque<(SessionKey, u32)>,
}

impl Backpressure {
    /// A session was given more than its part.
    #[cold]
    pub(super) fn is_behind(&mut self, session: &mut Session, index: u32, now: Now) {
        let since = mark(now);
        if session.outbox.behind_since == 0 {
            session.outbox.behind_since = since;
            self.readers.push_back((session.key(index), since));
        }
    }
}

impl Shard {
    /// Whether heavy messages are to wait for somebody.
    pub(super) fn has_readers_behind(&mut self) -> bool {
        while let Some((key, since)) = self.backpressure.readers.front().copied()
            && !self.is_waited_for(key, since)
        {
            self.backpressure.readers.pop_front();
        }
        !self.backpressure.readers.is_empty()
    }

    /// Forgets all those who have caught up, before everybody is given more.
    pub(super) fn forget_who_caught_up(&mut self) {
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

/// A time, in milliseconds, that is never 0. It comes again after weeks.
fn mark(now: Now) -> u32 {
    now.ms as u32 | 1
}

/// How long a reader may be behind before nobody waits for it any more, in milliseconds.
const PATIENCE_MS: u32 = 1_000;
