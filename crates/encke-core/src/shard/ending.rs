//! The end of a session or of a socket whose client does not read: removes the session from all tables and defers the
//! application's actions. A disconnect, expiry, an end by the server, a full outbox and a lack of memory lead here.

use crate::application::{Actions, Caller, EndReason};
use crate::events::{SessionKey, SocketKey};
use crate::shard::Parts;

impl Parts {
    /// Ends a session that is too slow. No loss is silent: the client finds its session unknown and starts a new one.
    pub(super) fn end_slow(&mut self, key: SessionKey, channel: &str) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        tracing::info!(session = ?session.id, channel, messages = session.outbox.messages(),
            bytes = session.outbox.bytes(), "slow consumer: session ended");
        let socket = session.socket();
        let queue = std::mem::take(&mut session.outbox);
        self.discard(queue);
        self.remove_session(key, EndReason::Slow);
        if let Some(socket) = socket {
            self.reset_socket(socket);
        }
    }

    /// Ends a session and everything that belongs to it. Its connection stays open; the callers decide about that.
    pub(super) fn remove_session(&mut self, key: SessionKey, why: EndReason) {
        self.withdraw_now(key);
        let subscriptions = self.sessions.get(key).map_or(0, |_| self.channels.count_of(key.index));
        self.schedule.count_steps(1 + subscriptions);
        self.drop_subscriptions(key);
        // Its HTTP request must not wait forever.
        self.end_held(key, 503);
        self.has_arrived(key);
        let (counted_for, owner) = self.clients.close(key);
        owner.iter().for_each(|owner| self.disarm(owner.armed_ms));
        let Some(mut session) = self.sessions.remove(key) else { return };
        // A session whose client was away ends later, by another way.
        let own = owner.as_ref().and_then(|owner| owner.ends).filter(|_| why == EndReason::Kicked);
        let why = own.unwrap_or(why);
        self.schedule.gauges_are_old = true;
        self.disarm(session.armed_ms);
        counted_for.into_iter().for_each(|owner| self.shared.sessions.give_back(owner));
        if let Some(exchange) = session.response_in_flight() {
            self.connections.exchanges.end(&exchange);
            // Older messages are on their way in a response. These would overtake them.
            session.outbox.drop_messages();
        }
        if let Some(owner) = owner.as_ref().filter(|owner| owner.is_counted) {
            self.release_user(&owner.identity);
        }
        match why {
            EndReason::Disconnected => self.metrics.disconnected.add(1),
            EndReason::Expired => self.metrics.expired.add(1),
            EndReason::Kicked => self.metrics.kicked.add(1),
            EndReason::Slow => self.metrics.slow_disconnected.add(1),
            EndReason::Unused => self.metrics.unused_ended.add(1),
            EndReason::TokenExpired => self.metrics.tokens_expired.add(1),
            EndReason::Revoked => self.metrics.revoked.add(1),
        }
        tracing::debug!(session = ?session.id, why = ?why, "session ended");
        if let Some(socket) = session.socket() {
            if session.must_resend(Some(socket)) {
                // Messages sent on an earlier connection may still arrive. Newer ones must not come before them, and
                // the client must not come back with the positions of newer ones. Only the disconnect message stays.
                session.outbox.filter(|_, payload| payload.starts_with(b"[{\"channel\":\"/meta/"));
            }
            self.inherit(socket, std::mem::take(&mut session.outbox));
        }
        let id = session.id;
        let steps = session.discard(self.fanout.relief.waste());
        self.schedule.count_steps(steps);
        let caller = Caller::new(id.as_str(), owner.as_ref().map(|owner| &owner.identity));
        let mut actions = Actions::default();
        self.shared.application.ended(&caller, why, &mut actions);
        self.act_later(actions);
    }

    /// Runs an application's actions later: publications may be on their way through outboxes, and the actions come
    /// after them.
    pub(super) fn act_later(&mut self, actions: Actions) {
        if !actions.0.is_empty() {
            self.deferred_actions.push_back(actions);
        }
    }

    /// Ends a socket and its session, because its client sends requests and does not read the replies.
    pub(super) fn cut_off(&mut self, key: SocketKey) {
        tracing::info!("socket aborted: its client does not read the replies");
        self.metrics.websocket_errors.add(1);
        if let Some(session) = self.socket(key).and_then(|socket| socket.session) {
            self.remove_session(session, EndReason::Slow);
        }
        self.reset_socket(key);
    }
}
