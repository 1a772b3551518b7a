//! Takes a held connect out of its session. A newer connect, the end of the session and the loss of the connection lead
//! here, and so does each answer to a held connect.

use crate::events::{Response, SessionKey};
use crate::sessions::session::{HeldConnect, ReplyTo};
use crate::shard::Parts;

impl Parts {
    /// Ends the held connect, as a newer one has come: over HTTP with an error status, on a WebSocket without a reply
    /// (CometD 9).
    pub(super) fn supersede(&mut self, key: SessionKey) {
        self.end_held(key, self.settings.given().duplicate_connect_status);
    }

    /// Takes the held connect out of a session, and updates the counts.
    pub(super) fn take_held(&mut self, key: SessionKey) -> Option<(ReplyTo, HeldConnect)> {
        let session = self.sessions.get_mut(key)?;
        let held = session.take_held()?;
        self.metrics.held.set((self.metrics.held.get() as usize).saturating_sub(1));
        if let ReplyTo::Request(exchange, _) = &held.0 {
            self.connections.exchanges.release(exchange, session.browser);
        }
        self.release(key);
        Some(held)
    }

    /// Marks the session as holding no connect. Its expiry counts from now.
    pub(super) fn release(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.now.ms, self.settings.terms());
        if let Some(session) = self.sessions.get_mut(key) {
            session.protocol.release(now_ms, &terms);
            self.arm(key);
        }
    }

    /// Ends the held connect without a Bayeux reply. An HTTP request gets this status.
    pub(super) fn end_held(&mut self, key: SessionKey, status: u16) {
        if let Some((ReplyTo::Request(exchange, _), _)) = self.take_held(key) {
            self.respond(exchange, Response::empty(status));
        }
    }
}
