//! The deadlines of sessions and sockets in the timer wheel.

use bayeux::session::Due;

use crate::delivery::connections::socket::Phase;
use crate::delivery::{Delivery, Holder};
use crate::events::{SessionKey, SocketKey};

impl Delivery {
    /// The sessions and sockets whose timer has come, for [`Delivery::session_due`] and [`Delivery::socket_due`].
    pub(crate) fn due(&mut self) -> Vec<Holder> {
        let mut due = Vec::new();
        self.schedule.timers.advance(self.now.ms, &mut due);
        due
    }

    /// Schedules the lazy messages of a session whose timer has come. Returns what else is due, if anything: its held
    /// connect must be answered, or it has expired. The owner then calls [`Delivery::arm`], unless the session has ended.
    pub(crate) fn session_due(&mut self, key: SessionKey) -> Option<Due> {
        let now_ms = self.now.ms;
        let session = self.sessions.get_mut(key).filter(|session| session.armed_ms <= now_ms)?;
        session.armed_ms = u64::MAX;
        if session.lazy_due_ms <= now_ms {
            session.lazy_due_ms = u64::MAX;
            session.make_urgent(key.index, &mut self.schedule);
        }
        let due = session.protocol.due(now_ms);
        if due.is_none() {
            self.arm(key);
        }
        due
    }

    /// Ends a socket whose timer has come, if its client is silent or has no session for too long.
    pub(crate) fn socket_due(&mut self, key: SocketKey) {
        let now_ms = self.now.ms;
        let Some(socket) = self.sockets.get_mut(key).filter(|socket| socket.armed_ms <= now_ms) else { return };
        socket.armed_ms = u64::MAX;
        if socket.is_suspended {
            // The server does not read it.
            (socket.last_received_ms, socket.alone_ms) = (now_ms, now_ms);
        }
        let alone_until_ms = socket.alone_ms + self.settings.handshake_timeout_ms;
        let idle_ms = self.settings.websocket_idle_timeout_ms;
        let idle_until_ms = if idle_ms == 0 { u64::MAX } else { socket.last_received_ms + idle_ms };
        let stream_until_ms = socket.stream().map(|stream| stream.until_ms);
        // A stream hears nothing from its client.
        let beat_ms = now_ms + self.settings.stream_heartbeat_ms;
        let idle_until_ms = stream_until_ms.map_or(idle_until_ms, |until_ms| beat_ms.min(until_ms));
        let next_ms = match socket.phase {
            Phase::Closed => return,
            Phase::Closing { until_ms } if now_ms >= u64::from_ne_bytes(until_ms) => {
                self.metrics.timeouts.add(1);
                return self.reset_socket(key);
            }
            Phase::Closing { until_ms } => u64::from_ne_bytes(until_ms),
            Phase::Open if socket.session.is_none() && now_ms >= alone_until_ms => {
                self.metrics.timeouts.add(1);
                return self.close_socket(key, 1008, "no session");
            }
            Phase::Open if stream_until_ms.is_some_and(|until_ms| now_ms >= until_ms) => {
                return self.close_socket(key, 1000, "");
            }
            Phase::Open if now_ms >= idle_until_ms => {
                self.metrics.timeouts.add(1);
                return self.close_socket(key, 1001, "idle");
            }
            Phase::Open if socket.session.is_none() => alone_until_ms.min(idle_until_ms),
            Phase::Open => idle_until_ms,
        };
        if next_ms != u64::MAX {
            self.arm_socket(key, next_ms);
        }
        if stream_until_ms.is_some() && self.is_open(key) {
            self.beat(key);
        }
    }

    /// Sets the timer of a session for its next deadline. A later deadline needs no new entry: the earlier entry comes
    /// and is set again.
    pub(crate) fn arm(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.deadline_ms() < u64::MAX) else {
            return;
        };
        session.armed_ms = self.schedule.timers.set(Holder::Session(key), session.deadline_ms(), session.armed_ms);
    }

    /// Notes that the owner of a timer has gone. Its entry is removed together with those of many others.
    pub(super) fn disarm(&mut self, armed_ms: u64) {
        if armed_ms < u64::MAX && self.schedule.timers.forget() {
            let Delivery { schedule, sessions, sockets, .. } = self;
            schedule.timers.retain(|timer| match timer {
                Holder::Session(key) => sessions.get(*key).is_some(),
                Holder::Socket(key) => sockets.get(*key).is_some(),
            });
        }
    }

    /// Sets the timer of a socket to `at_ms` or earlier.
    pub(super) fn arm_socket(&mut self, key: SocketKey, at_ms: u64) {
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.armed_ms = self.schedule.timers.set(Holder::Socket(key), at_ms, socket.armed_ms);
        }
    }
}
