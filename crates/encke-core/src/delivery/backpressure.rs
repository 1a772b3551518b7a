//! Backpressure: heavy messages wait for readers that are behind.
//!
//! A flush writes what sockets take; the rest stays in outboxes. A reader is behind from the moment its outbox holds
//! more than a quarter of its capacity until it holds less. While any reader is behind, flushes do not renew the budget
//! of heavy messages (see [`crate::admission`]). So publishers go as fast as active readers take messages,
//! and these readers are not ended as slow.
//!
//! No reader can stop publishers that way. A reader that has been behind for a second holds nothing back until its
//! outbox has been empty. And the budget is renewed after a while even if readers are behind. So a client that does not
//! read fills its outbox, and the policy of its channel acts.

use std::collections::VecDeque;

use crate::admission::budget::part_of;
use crate::delivery::sessions::session::Session;
use crate::delivery::sessions::table::Sessions;
use crate::events::SessionKey;
use crate::limits::Capacity;
use crate::now::Now;

/// Readers that are behind.
#[derive(Debug, Default)]
pub(crate) struct Backpressure {
    /// Readers for which heavy messages may wait, with the time since which each is behind, longest first. Some of them
    /// have caught up since.
    readers: VecDeque<(SessionKey, u32)>,
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

    /// True if heavy messages must wait for some reader.
    pub(crate) fn has_readers(&mut self, sessions: &mut Sessions, capacity: &Capacity, now: Now) -> bool {
        while let Some((key, since)) = self.readers.front().copied()
            && !is_waited_for(sessions.get_mut(key), since, capacity, now)
        {
            self.readers.pop_front();
        }
        !self.readers.is_empty()
    }

    /// Removes all readers that have caught up from the list, before everybody gets more.
    pub(crate) fn forget_who_caught_up(&mut self, sessions: &mut Sessions, capacity: &Capacity, now: Now) {
        self.readers.retain(|(key, since)| is_waited_for(sessions.get_mut(*key), *since, capacity, now));
    }
}

/// True if a reader that has been behind since `since` still is, and not for too long.
fn is_waited_for(session: Option<&mut Session>, since: u32, capacity: &Capacity, now: Now) -> bool {
    let Some(Session { outbox, .. }) = session else { return false };
    if outbox.behind_since != since {
        return false;
    }
    if !outbox.is_full(0, 0, &part_of(capacity)) {
        outbox.behind_since = 0;
        return false;
    }
    mark(now).wrapping_sub(since) < READER_WAIT_MAX_MS
}

/// A time in milliseconds that is never 0. It wraps around after weeks.
fn mark(now: Now) -> u32 {
    now.ms as u32 | 1
}

/// The time that a reader may be behind before it no longer holds messages back, in milliseconds.
const READER_WAIT_MAX_MS: u32 = 1_000;
