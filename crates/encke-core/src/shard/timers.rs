//! Entries of sessions and sockets in the timer wheel. Other chapters arm them; [`Shard::advance`] takes the entries
//! that are due.

use crate::connections::Connections;
use crate::events::{SessionKey, SocketKey};
use crate::schedule::Timer;
use crate::shard::Parts;

impl Parts {
    /// Sets the timer of a session for its next deadline. A later deadline needs no new entry: the earlier entry comes
    /// and is set again.
    pub(super) fn arm(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.deadline_ms() < u64::MAX) else {
            return;
        };
        session.armed_ms = self.schedule.timers.set(Timer::Session(key), session.deadline_ms(), session.armed_ms);
    }

    /// Notes that the owner of a timer has gone. Its entry is removed together with those of many others.
    pub(super) fn disarm(&mut self, armed_ms: u64) {
        if armed_ms < u64::MAX && self.schedule.timers.forget() {
            let Parts { schedule, sessions, connections: Connections { sockets, .. }, requests, .. } = self;
            schedule.timers.retain(|timer| match timer {
                Timer::Session(key) | Timer::Owner(key) => sessions.get(*key).is_some(),
                Timer::Socket(key) => sockets.get(*key).is_some(),
                Timer::Wait(key) => requests.due_ms(*key).is_some(),
            });
        }
    }

    /// Sets the timer of a socket to `at_ms` or earlier.
    pub(super) fn arm_socket(&mut self, key: SocketKey, at_ms: u64) {
        let Parts { connections, schedule, .. } = self;
        if let Some(socket) = connections.sockets.get_mut(key) {
            socket.armed_ms = schedule.timers.set(Timer::Socket(key), at_ms, socket.armed_ms);
        }
    }
}
