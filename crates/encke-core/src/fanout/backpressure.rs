//! Backpressure: heavy messages wait for readers that are behind.
//!
//! A flush writes what sockets take; what they do not take stays in outboxes. A reader is behind from the moment that it is given more than a quarter
//! of what its outbox may hold, until it has less. While any reader is, flushes do not renew the budget of heavy messages
//! (see [`super::admission`]). So publishers go on as fast as those who read can take it, and these are not ended as slow.
//!
//! Nobody stops publishers that way. A reader that has been behind for a second holds nothing back until its outbox has been empty, and the
//! budget is renewed after a while whoever is behind. A client that does not read so fills its outbox, and its channel's policy acts.

use std::collections::VecDeque;

use crate::events::SessionKey;
use crate::now::Now;
use crate::sessions::session::Session;

/// Readers that are behind.
#[derive(Debug, Default)]
pub(crate) struct Backpressure {
    /// Those for which heavy messages may wait, the one that has been behind for longest first; among them some that have caught up.
    pub(crate) readers: VecDeque<(SessionKey, u32)>,
}

impl Backpressure {
    /// A session was given more than its part.
    #[cold]
    pub(crate) fn is_behind(&mut self, session: &mut Session, index: u32, now: Now) {
        let since = mark(now);
        if session.outbox.behind_since == 0 {
            session.outbox.behind_since = since;
            self.readers.push_back((session.key(index), since));
        }
    }
}

/// A time, in milliseconds, that is never 0. It comes again after weeks.
pub(crate) fn mark(now: Now) -> u32 {
    now.ms as u32 | 1
}

/// How long a reader may be behind before nobody waits for it any more, in milliseconds.
pub(crate) const PATIENCE_MS: u32 = 1_000;
