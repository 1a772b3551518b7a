//! The end of a session or of a socket: by its client, by expiry, by the server, because its client does not read, or for
//! memory. All machines forget it, and the application hears of it.

use std::sync::Arc;

use crate::application::{Actions, Caller, EndReason};
use crate::attributes::Attributes;
use crate::clients::Departed;
use crate::delivery::{GivenUp, Socket};
use crate::events::{SessionKey, SocketKey};
use crate::id::Id;
use crate::limits::sessions::SessionOwner;
use crate::shard::Machines;

impl Machines {
    /// Ends what the delivery has given up, if it has.
    pub(super) fn end_given_up(&mut self, outcome: Result<(), GivenUp>) {
        match outcome {
            Ok(()) => {}
            Err(GivenUp::Session(key)) => self.end_slow(key),
            Err(GivenUp::Socket(key)) => self.cut_off(key),
        }
    }

    /// Ends a session that is too slow. No loss is silent: the client finds its session unknown and starts a new one.
    fn end_slow(&mut self, key: SessionKey) {
        let socket = self.delivery.drop_queue(key);
        self.end_session(key, EndReason::Slow);
        if let Some(socket) = socket {
            self.delivery.reset_socket(socket);
        }
    }

    /// Ends a session and everything that belongs to it. Its connection stays open; the callers decide about that.
    pub(super) fn end_session(&mut self, key: SessionKey, why: EndReason) {
        let Some(Removed { id, counted_for, owner, attributes }) = self.remove_session(key) else { return };
        // The program's own end was reported by `kick`. What is left comes from the state of this copy.
        self.note_end(id, why == EndReason::Disconnected);
        // A session whose client was away ends later, by another way.
        let own = owner.as_ref().and_then(|owner| owner.ends).filter(|_| why == EndReason::Kicked);
        let why = own.unwrap_or(why);
        let metrics = &self.env.metrics;
        match why {
            EndReason::Disconnected => metrics.disconnected.add(1),
            EndReason::Expired => metrics.expired.add(1),
            EndReason::Kicked => metrics.kicked.add(1),
            EndReason::Slow => metrics.slow_disconnected.add(1),
            EndReason::Unused => metrics.unused_ended.add(1),
            EndReason::TokenExpired => metrics.tokens_expired.add(1),
            EndReason::Revoked => metrics.revoked.add(1),
        }
        tracing::debug!(session = ?id, why = ?why, "session ended");
        let caller = Caller::new(id.as_str(), owner.as_ref().map(|owner| &owner.identity));
        let caller = caller.with_attributes(attributes.as_ref()).with_owner(counted_for);
        let mut actions = Actions::default();
        self.env.shared.application.ended(&caller, why, &mut actions);
        self.act_later(actions, counted_for);
    }

    /// Removes a session from all machines.
    pub(super) fn remove_session(&mut self, key: SessionKey) -> Option<Removed> {
        if !self.delivery.has(key) {
            return None;
        }
        self.env.count_steps(1 + self.channels.count_of(key.index));
        self.drop_subscriptions(key);
        self.has_arrived(key);
        let (counted_for, owner, attributes) = self.clients.close(key);
        owner.iter().for_each(|owner| self.disarm(owner.armed_ms));
        let id = self.delivery.close(key)?;
        self.env.confirmed.remove(key);
        self.env.gauges_are_old = true;
        counted_for.into_iter().for_each(|owner| self.env.shared.sessions.give_back(owner));
        if let Some(owner) = owner.as_ref().filter(|owner| owner.is_counted) {
            self.env.release_user(&owner.identity);
        }
        Some(Removed { id, counted_for, owner, attributes })
    }

    /// Runs an application's actions later: publications may be on their way through outboxes, and the actions come
    /// after them. `owner`: the one who has caused them.
    pub(super) fn act_later(&mut self, actions: Actions, owner: Option<SessionOwner>) {
        if !actions.0.is_empty() {
            self.env.deferred_actions.push_back((actions, owner));
        }
    }

    /// Ends a socket and its session, because its client sends requests and does not read the replies.
    pub(super) fn cut_off(&mut self, key: SocketKey) {
        tracing::info!("socket aborted: its client does not read the replies");
        self.env.metrics.websocket_errors.add(1);
        if let Some(session) = self.delivery.socket(key).and_then(Socket::session) {
            self.end_session(session, EndReason::Slow);
        }
        self.delivery.reset_socket(key);
    }
}

/// A session that was removed.
pub(super) struct Removed {
    id: Id,
    /// The owner that it counted for.
    counted_for: Option<SessionOwner>,
    /// Its own owner.
    owner: Option<Departed>,
    attributes: Option<Arc<Attributes>>,
}
