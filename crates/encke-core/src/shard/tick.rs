//! Acts on the passage of time: timers of sessions and sockets, budgets, retention and memory. The server calls
//! [`Shard::advance`] at short, regular intervals.

use bayeux::session::Due;

use crate::application::EndReason;
use crate::connections::socket::Phase;
use crate::events::{SessionKey, SocketKey};
use crate::now::Now;
use crate::schedule::Timer;
use crate::shard::{Parts, Shard};

impl Shard {
    /// Does everything that is due.
    pub fn advance(&mut self, now: Now) {
        self.settle_burst_at(now).tick();
        self.time_out_waits();
    }
}

impl Parts {
    fn tick(&mut self) {
        self.keep_arrivals_alive();
        let mut due = Vec::new();
        self.schedule.timers.advance(self.now.ms, &mut due);
        for timer in due {
            match timer {
                Timer::Session(key) => self.session_due(key),
                Timer::Socket(key) => self.socket_due(key),
                Timer::Owner(key) => self.owner_due(key),
                Timer::Wait(key) => self.schedule.overdue.push(key),
            }
        }
        if self.admission.is_held_back() && self.schedule.is_complete() {
            self.renew_budget();
        }
        self.look_for_room();
        self.go_on_with_withdrawals();
        self.sweep_history();
        self.check_memory();
        self.give_room_back();
        self.update_gauges();
    }

    fn session_due(&mut self, key: SessionKey) {
        let now_ms = self.now.ms;
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.armed_ms <= now_ms) else { return };
        session.armed_ms = u64::MAX;
        if session.lazy_due_ms <= now_ms {
            session.lazy_due_ms = u64::MAX;
            session.make_urgent(key.index, &mut self.schedule);
        }
        match session.protocol.due(now_ms) {
            Some(Due::Connect) => self.answer_held(key, None),
            // The client waits for the application.
            Some(Due::Expiry) if self.requests.has_batch_of(key) => self.received(key),
            Some(Due::Expiry) if !session.is_taking() => return self.expire(key),
            Some(Due::Expiry) | None => {}
        }
        self.arm(key);
    }

    /// Ends a silent session. If the server had ended it already, its client was only to learn so with its next
    /// connect.
    fn expire(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let why = if session.protocol.is_ending() { EndReason::Kicked } else { EndReason::Expired };
        let socket = session.socket();
        let unread = session.was_read();
        if unread > 0 {
            self.metrics.unread.add(unread as usize);
            tracing::info!(session = ?session.id, messages = unread, "session expired: its last messages may be lost");
        }
        self.remove_session(key, why);
        if let Some(socket) = socket {
            self.close_socket(socket, 1000, "session expired");
        }
    }

    fn socket_due(&mut self, key: SocketKey) {
        let now_ms = self.now.ms;
        let Some(socket) = self.socket_mut(key).filter(|socket| socket.armed_ms <= now_ms) else { return };
        socket.armed_ms = u64::MAX;
        if socket.is_suspended {
            // The server does not read it.
            (socket.last_received_ms, socket.alone_ms) = (now_ms, now_ms);
        }
        let Some(socket) = self.socket(key) else { return };
        let alone_until_ms = socket.alone_ms + self.settings.given().handshake_timeout_ms;
        let idle_ms = self.settings.given().websocket_idle_timeout_ms;
        let idle_until_ms = if idle_ms == 0 { u64::MAX } else { socket.last_received_ms + idle_ms };
        let next_ms = match socket.phase {
            Phase::Closed => return,
            Phase::Closing { until_ms } if now_ms >= until_ms => {
                self.metrics.timeouts.add(1);
                return self.reset_socket(key);
            }
            Phase::Closing { until_ms } => until_ms,
            Phase::Open if socket.session.is_none() && now_ms >= alone_until_ms => {
                self.metrics.timeouts.add(1);
                return self.close_socket(key, 1008, "no session");
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
    }
}
