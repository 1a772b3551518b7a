//! The table of sessions: their activity, and who may use them. Most other chapters call these methods.
use std::sync::atomic::Ordering;

use crate::application::Caller;
use crate::connections::socket::Opener;
use crate::events::SessionKey;
use crate::protocol::batch::Batch;
use crate::sessions::id::Id;
use crate::sessions::session::Session;
use crate::shard::Parts;

impl Parts {
    /// A session as the application's hooks see it.
    pub(super) fn caller(&self, key: SessionKey) -> Option<Caller<'_>> {
        Some(Caller::new(self.sessions.get(key)?.id.as_str(), self.clients.identity(key)))
    }

    /// True if a session acknowledges messages.
    pub(super) fn acknowledges(&self, key: SessionKey) -> bool {
        self.sessions.get(key).is_some_and(|session| session.unacked().is_some())
    }

    pub(super) fn alive(&mut self, session: &Id) {
        if let Some(key) = self.sessions.find(session) {
            self.active(key);
        }
    }

    /// The session's id, for the log.
    pub(super) fn id_of(&self, batch: &Batch) -> Option<Id> {
        batch.session.and_then(|key| self.sessions.get(key)).map(|session| session.id)
    }

    pub(super) fn received(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.now.ms, self.settings.terms());
        if let Some(session) = self.sessions.get_mut(key) {
            session.protocol.received(now_ms, &terms);
        }
    }

    /// Notes that the client did something other than connecting (the activity extension). It is alive.
    pub(super) fn active(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.now.ms, self.settings.terms());
        if let Some(session) = self.sessions.get_mut(key) {
            session.active_ms = now_ms;
            session.protocol.received(now_ms, &terms);
        }
    }

    pub(super) fn is_inactive(&self, key: SessionKey) -> bool {
        let max_ms = self.settings.given().activity_timeout_ms;
        let quiet_ms = |session: &Session| self.now.ms.saturating_sub(session.active_ms);
        max_ms > 0 && self.sessions.get(key).is_some_and(|session| quiet_ms(session) >= max_ms)
    }

    pub(super) fn id_of_session(&self, key: Option<SessionKey>) -> Option<Id> {
        key.and_then(|key| self.sessions.get(key)).map(|session| session.id)
    }

    pub(super) fn wait_lazily(&mut self, key: SessionKey, due_ms: Option<u64>) {
        if let Some(session) = self.sessions.get_mut(key)
            && !session.urgent
        {
            session.lazy_due_ms = session.lazy_due_ms.min(due_ms.unwrap_or(u64::MAX));
            self.arm(key);
        }
    }

    /// Removes a session from the newcomers, as it has connected or is about to end.
    pub(super) fn has_arrived(&mut self, key: SessionKey) {
        if self.clients.has_connected(key) {
            self.shared.newcomers[self.index].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Schedules a session to replay more, if it has something to replay.
    pub(super) fn replay_later(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key)
            && session.may_replay()
        {
            self.schedule.replay(key, &mut session.marks);
        }
    }

    /// True if a client may use a session. Knowing the client id is not enough for a session that a browser opened
    /// (CometD 9: `402::session_unknown`). Only programs need no more, on a WebSocket without any cookie: Faye's client
    /// shakes hands over HTTP and does not send the cookie with its WebSocket. A page's browser sends its cookie, or it
    /// is another browser.
    pub(super) fn is_usable(&self, key: SessionKey, opener: Opener) -> bool {
        self.sessions.get(key).is_some_and(|session| {
            let own = session.browser.is_none() || session.browser == opener.browser() || opener == Opener::Program;
            own || self.settings.given().trust_client_session
        })
    }
}
