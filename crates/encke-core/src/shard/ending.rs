use std::sync::atomic::Ordering;

use crate::application::Actions;
use crate::events::{SessionKey, SocketKey};
use crate::sessions::session::{Attachment, Ended};
use crate::shard::Shard;

impl Shard {
    /// Ends a session that is too slow. Nothing is lost in silence: the client finds its session unknown and starts anew.
    pub(super) fn end_slow(&mut self, key: SessionKey, channel: &str) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        tracing::info!(session = ?session.id, channel, messages = session.outbox.messages(),
            bytes = session.outbox.bytes(), "slow consumer: session ended");
        let attachment = session.attachment;
        session.outbox = Default::default();
        self.remove_session(key, Ended::Slow);
        if let Attachment::Socket(socket) = attachment {
            self.reset_socket(socket);
        }
    }

    /// Ends a session and everything that hangs on it. Its carrier stays: see the callers.
    pub(super) fn remove_session(&mut self, key: SessionKey, why: Ended) {
        self.withdraw_now(key);
        self.drop_subscriptions(key);
        self.release_held(key);
        self.has_arrived(key);
        let Some(mut session) = self.sessions.remove(key) else { return };
        self.disarm(session.armed_ms);
        self.shared.sessions.fetch_sub(1, Ordering::Relaxed);
        if let Some(in_flight) = &session.in_flight {
            self.exchanges.remove(&in_flight.0);
            // Older messages are on their way in a response: these would overtake them.
            session.outbox.drop_messages();
        }
        match why {
            Ended::Disconnected => self.metrics.disconnected.add(1),
            Ended::Expired => self.metrics.expired.add(1),
            Ended::Kicked => self.metrics.kicked.add(1),
            Ended::Slow => self.metrics.slow_disconnected.add(1),
            Ended::Unused => self.metrics.unused_ended.add(1),
        }
        tracing::debug!(session = ?session.id, why = ?why, "session ended");
        if let Attachment::Socket(socket) = session.attachment {
            let is_owing = session.unacked.as_ref().is_some_and(|unacked| unacked.is_owing(Some(socket)));
            if is_owing {
                // What it was sent elsewhere may still arrive: newer messages must not come before that, nor its client come back with
                // their places. That it has ended it is told.
                session.outbox.filter(|_, payload| payload.starts_with(b"[{\"channel\":\"/meta/"));
            }
            self.inherit(socket, session.outbox);
        }
        let mut actions = Actions::default();
        self.shared.application.ended(session.id.as_str(), &mut actions);
        // Not now: publications may be on their way through outboxes, and what comes after this end comes after them.
        self.deferred_actions.push_back(actions);
    }

    /// Ends a socket, and its session, whose client asks and never reads what it asked for.
    pub(super) fn cut_off(&mut self, key: SocketKey) {
        tracing::info!("socket aborted: its client does not read the replies");
        self.metrics.websocket_errors.add(1);
        if let Some(session) = self.socket(key).and_then(|socket| socket.session) {
            self.remove_session(session, Ended::Slow);
        }
        self.reset_socket(key);
    }
}
