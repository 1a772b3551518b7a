//! HTTP requests that are not answered yet, and responses on their way.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::events::{ExchangeId, SessionKey};
use crate::id::Id;

/// The open exchanges of a shard.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    /// The session of each request that has a held connect, or whose response is on its way.
    sessions: HashMap<ExchangeId, SessionKey, RandomState>,
    /// The number of held connects and streams of each browser that has any.
    browsers: HashMap<Id, u32, RandomState>,
}

impl Exchanges {
    /// The number of exchanges with a session, and of browsers.
    pub(crate) fn lens(&self) -> [usize; 2] {
        [self.sessions.len(), self.browsers.len()]
    }

    /// Notes that a request holds the connect of a session, which this browser has opened.
    pub(crate) fn hold(&mut self, exchange: ExchangeId, session: SessionKey, browser: Option<Id>) {
        self.sessions.insert(exchange, session);
        self.count(browser);
    }

    /// Counts one more held connect or stream of a session that this browser has opened.
    pub(crate) fn count(&mut self, browser: Option<Id>) {
        if let Some(browser) = browser {
            *self.browsers.entry(browser).or_default() += 1;
        }
    }

    /// Notes that a request does not hold a connect any more.
    pub(crate) fn release(&mut self, exchange: &ExchangeId, browser: Option<Id>) {
        self.sessions.remove(exchange);
        self.discount(browser);
    }

    /// Counts one less.
    pub(crate) fn discount(&mut self, browser: Option<Id>) {
        if let Some(browser) = browser
            && let Some(count) = self.browsers.get_mut(&browser)
        {
            *count -= 1;
            if *count == 0 {
                self.browsers.remove(&browser);
            }
        }
    }

    /// The number of connects and streams that a browser holds.
    pub(crate) fn held_by(&self, browser: &Id) -> usize {
        self.browsers.get(browser).copied().unwrap_or(0) as usize
    }

    /// Notes that a response of a session is on its way.
    pub(crate) fn respond(&mut self, exchange: ExchangeId, session: SessionKey) {
        self.sessions.insert(exchange, session);
    }

    /// The session of a held connect, or of a response on its way.
    pub(crate) fn session(&self, exchange: &ExchangeId) -> Option<SessionKey> {
        self.sessions.get(exchange).copied()
    }

    /// Notes that a response has been delivered, or does not count any more. Returns its session.
    pub(crate) fn end(&mut self, exchange: &ExchangeId) -> Option<SessionKey> {
        self.sessions.remove(exchange)
    }
}
