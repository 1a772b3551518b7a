use crate::events::{Response, SessionKey};
use crate::sessions::session::{Held, HeldVia};
use crate::shard::Shard;

impl Shard {
    /// A newer connect has come. The older one ends: its request with an error status, on a WebSocket without a word (CometD 9).
    pub(super) fn supersede(&mut self, key: SessionKey) {
        if let Some(held) = self.take_held(key)
            && let HeldVia::Exchange(exchange, _) = held.via
        {
            self.respond(exchange, Response::empty(self.settings.duplicate_connect_status));
        }
    }

    /// Takes the held connect out of a session, and puts the accounts right.
    pub(super) fn take_held(&mut self, key: SessionKey) -> Option<Box<Held>> {
        let session = self.sessions.get_mut(key)?;
        let held = session.held.take()?;
        self.metrics.held.set((self.metrics.held.get() as usize).saturating_sub(1));
        if let HeldVia::Exchange(exchange, _) = &held.via {
            self.exchanges.remove(exchange);
            if let Some(browser) = session.browser
                && let Some(count) = self.browsers.get_mut(&browser)
            {
                *count -= 1;
                if *count == 0 {
                    self.browsers.remove(&browser);
                }
            }
        }
        self.release(key);
        Some(held)
    }

    /// The session holds no connect any more: its expiry counts from now.
    pub(super) fn release(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.now.ms, self.terms);
        if let Some(session) = self.sessions.get_mut(key) {
            session.protocol.release(now_ms, &terms);
            self.arm(key);
        }
    }

    /// The held connect of a session that is being removed gets no answer here, but its request must not wait for ever.
    pub(super) fn release_held(&mut self, key: SessionKey) {
        if let Some(held) = self.take_held(key)
            && let HeldVia::Exchange(exchange, _) = held.via
        {
            self.respond(exchange, Response::empty(503));
        }
    }
}
