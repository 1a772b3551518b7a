//! Backpressure: heavy messages wait for readers that are behind.
//!
//! A flush writes what sockets take; the rest stays in outboxes. A reader is behind from the moment its outbox holds
//! more than a quarter of its capacity until it holds less. While any reader is behind, flushes do not renew the budget
//! of heavy messages (see [`crate::connections::admission`]). So publishers go as fast as active readers take messages,
//! and these readers are not ended as slow.
//!
//! No reader can stop publishers that way. A reader that has been behind for a second holds nothing back until its
//! outbox has been empty. And the budget is renewed after a while even if readers are behind. So a client that does not
//! read fills its outbox, and the policy of its channel acts.

use std::collections::VecDeque;

use crate::events::SessionKey;
use crate::now::Now;
use crate::sessions::session::Session;

/// Readers that are behind.
#[derive(Debug, Default)]
pub(crate) struct Backpressure {
    /// Readers for which heavy messages may wait, with the time since which each is behind, longest first. Some of them
    /// have caught up since.
    pub(crate) readers: VecDeque<(SessionKey, u32)>,
}

impl Backpressure {
    /// Notes that a session holds more than its part of an outbox.
    #[cold]
    pub(crate) fn is_behind(&mut self, session: &mut Session, index: u32, now: Now) {
        let since = mark(now);
        if session.outbox.behind_since == 0 {
            session.outbox.behind_since = since;
            self.readers.push_back((session.key(index), since));
        }
    }
}

/// A time in milliseconds that is never 0. It wraps around after weeks.
pub(crate) fn mark(now: Now) -> u32 {
    now.ms as u32 | 1
}

/// The time that a reader may be behind before it no longer holds messages back, in milliseconds.
pub(crate) const READER_WAIT_MAX_MS: u32 = 1_000;
