//! What happens because time passes.

use bayeux::session::Due;

use super::effect::{Now, SessionKey, SocketKey};
use super::session::Ended;
use super::sockets::Phase;
use super::{Carrier, Dirty, Shard, Timer};

impl Shard {
    /// Does what is due.
    pub fn advance(&mut self, now: Now) {
        self.now = now;
        self.spread();
        self.keep_arrivals_alive();
        let mut due = Vec::new();
        self.wheel.advance(now.ms, &mut due);
        for timer in due {
            match timer {
                Timer::Session(key) => self.session_due(key),
                Timer::Socket(key) => self.socket_due(key),
            }
        }
        if self.budget.is_held_back() && self.dirty.is_empty() {
            self.renew_budget();
        }
        self.look_for_room();
        self.go_on_with_withdrawals();
        self.sweep_history();
        self.mind_memory();
        self.give_room_back();
        self.update_gauges();
    }

    /// When [`Shard::advance`] has something to do next, in milliseconds.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.wheel.next_ms().into_iter().chain(self.budget.held_until_ms()).min()
    }

    /// Sees to it that the session is looked at when its next deadline comes. Later deadlines need no new entry: the earlier one comes, and arms again.
    pub(super) fn arm(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.deadline_ms() < u64::MAX) else {
            return;
        };
        session.armed_ms = self.wheel.set(Timer::Session(key), session.deadline_ms(), session.armed_ms);
    }

    /// The owner of a timer has gone: its entry goes with those of many others.
    pub(super) fn disarm(&mut self, armed_ms: u64) {
        if armed_ms < u64::MAX && self.wheel.forget() {
            let Shard { wheel, sessions, sockets, .. } = self;
            wheel.retain(|timer| match timer {
                Timer::Session(key) => sessions.get(*key).is_some(),
                Timer::Socket(key) => sockets.get(key.index as usize).is_some_and(|socket| socket.is(*key)),
            });
        }
    }

    /// Sees to it that the socket is looked at by then.
    pub(super) fn arm_socket(&mut self, key: SocketKey, at_ms: u64) {
        let Shard { sockets, wheel, .. } = self;
        if let Some(socket) = sockets.get_mut(key.index as usize).filter(|socket| socket.is(key)) {
            socket.armed_ms = wheel.set(Timer::Socket(key), at_ms, socket.armed_ms);
        }
    }

    fn session_due(&mut self, key: SessionKey) {
        let now_ms = self.now.ms;
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.armed_ms <= now_ms) else { return };
        session.armed_ms = u64::MAX;
        if session.lazy_due_ms <= now_ms {
            session.lazy_due_ms = u64::MAX;
            session.urgent = true;
            if session.is_reachable() && !session.dirty {
                session.dirty = true;
                self.dirty.push_back(Dirty::Session(key));
            }
        }
        match session.protocol.due(now_ms) {
            Some(Due::Connect) => self.answer_held(key, None),
            Some(Due::Expiry) if !session.is_taking() => return self.expire(key),
            Some(Due::Expiry) | None => {}
        }
        self.arm(key);
    }

    /// A silent session ends. One that the server ended already was only waiting to be told.
    fn expire(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else { return };
        let why = if session.protocol.is_ending() { Ended::Kicked } else { Ended::Expired };
        let carrier = session.carrier;
        self.remove_session(key, why);
        if let Carrier::Socket(socket) = carrier {
            self.close_socket(socket, 1000, "session expired");
        }
    }

    fn socket_due(&mut self, key: SocketKey) {
        let now_ms = self.now.ms;
        let Some(socket) = self.socket_mut(key).filter(|socket| socket.armed_ms <= now_ms) else { return };
        socket.armed_ms = u64::MAX;
        let Some(socket) = self.socket(key) else { return };
        let alone_until_ms = socket.alone_ms + self.settings.handshake_timeout_ms;
        let idle_ms = self.settings.websocket_idle_timeout_ms;
        let idle_until_ms = if idle_ms == 0 { u64::MAX } else { socket.heard_ms + idle_ms };
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
