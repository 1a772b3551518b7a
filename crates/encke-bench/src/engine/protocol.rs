//! The protocol of a session, without its connection.

use std::time::Instant;

use encke_client::session::{ClientSession, Event, SessionOptions, Transmission};
use encke_client::{ConnectionType, LostReason, ReplayFrom};

use crate::engine::raw::Raw;
use crate::order::{Recovery, Replay, Transport};

/// A session without its connection.
#[derive(Debug)]
pub(super) enum Protocol {
    /// Bayeux.
    Bayeux(Box<ClientSession>),
    /// Bare lines.
    Raw(Raw),
}

impl Protocol {
    /// Creates a session that joins `rooms`, whose channels are `channels`. Also returns the id of the subscription, if
    /// there is one.
    pub(super) fn new(
        transport: Transport,
        recovery: Recovery,
        rooms: &[u32],
        channels: &[String],
    ) -> (Protocol, Option<u64>) {
        let connection_type = match transport {
            Transport::Raw => return (Protocol::Raw(Raw::new(rooms.to_vec())), None),
            Transport::Websocket => ConnectionType::WebSocket,
            Transport::LongPolling => ConnectionType::LongPolling,
            Transport::Eventsource => ConnectionType::EventSource,
        };
        // A session that only publishes has nothing to recover.
        let recovery = if channels.is_empty() { Recovery::default() } else { recovery };
        let replay = match recovery.replay {
            Replay::No => None,
            Replay::Live => Some(ReplayFrom::Latest),
            Replay::Stored => Some(ReplayFrom::Earliest),
        };
        let mut session = ClientSession::new(SessionOptions {
            connection_type,
            ack: recovery.ack,
            replay,
            ..SessionOptions::default()
        });
        let subscription = (!channels.is_empty()).then(|| session.subscribe(channels));
        (Protocol::Bayeux(Box::new(session)), subscription)
    }

    /// See [`ClientSession::connection_opened`].
    pub(super) fn connection_opened(&mut self, now: Instant) {
        match self {
            Protocol::Bayeux(session) => session.connection_opened(now),
            Protocol::Raw(raw) => raw.connection_opened(),
        }
    }

    /// See [`ClientSession::connection_lost`].
    pub(super) fn connection_lost(&mut self, reason: &str, now: Instant) {
        match self {
            Protocol::Bayeux(session) => session.connection_lost(LostReason::Other(reason.into()), now),
            Protocol::Raw(raw) => raw.connection_lost(reason),
        }
    }

    /// See [`ClientSession::connection_failed`].
    pub(super) fn connection_failed(&mut self, reason: &str, now: Instant) {
        match self {
            Protocol::Bayeux(session) => session.connection_failed(LostReason::Other(reason.into()), now),
            Protocol::Raw(raw) => raw.connection_lost(reason),
        }
    }

    /// Takes a text without deliveries.
    ///
    /// # Errors
    /// It is not in the session's language.
    pub(super) fn received(&mut self, text: &[u8], now: Instant) -> Result<(), String> {
        let text = std::str::from_utf8(text).map_err(|_| "sent text that is not UTF-8".to_owned())?;
        match self {
            Protocol::Bayeux(session) => {
                session.received(text, now).map_err(|error| format!("sent no Bayeux: {error}"))
            }
            Protocol::Raw(raw) => raw.received(text),
        }
    }

    /// See [`ClientSession::transmit`].
    pub(super) fn transmit(&mut self) -> Option<Transmission> {
        match self {
            Protocol::Bayeux(session) => session.transmit(),
            Protocol::Raw(raw) => raw.transmit(),
        }
    }

    /// See [`ClientSession::event`].
    pub(super) fn event(&mut self) -> Option<Event> {
        match self {
            Protocol::Bayeux(session) => session.event(),
            Protocol::Raw(raw) => raw.event(),
        }
    }

    /// See [`ClientSession::wake_at`].
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self {
            Protocol::Bayeux(session) => session.wake_at(),
            Protocol::Raw(_) => None,
        }
    }

    /// See [`ClientSession::wake`].
    pub(super) fn wake(&mut self, now: Instant) {
        if let Protocol::Bayeux(session) = self {
            session.wake(now);
        }
    }

    /// Disconnects. Returns false if the protocol has no disconnect.
    pub(super) fn disconnect(&mut self) -> bool {
        match self {
            Protocol::Bayeux(session) => {
                session.disconnect();
                true
            }
            Protocol::Raw(_) => false,
        }
    }

    /// The recovery that the server agreed to: acknowledgement, and a position in this channel's history.
    pub(super) fn recovers(&self, channel: &str) -> (bool, bool) {
        match self {
            Protocol::Bayeux(session) => (session.acknowledges(), session.position(channel).is_some()),
            Protocol::Raw(_) => (false, false),
        }
    }

    /// The number of messages that the session dropped as repeats.
    pub(super) fn repeats(&self) -> u64 {
        match self {
            Protocol::Bayeux(session) => session.repeats(),
            Protocol::Raw(_) => 0,
        }
    }

    /// The session's id in publications; empty where it has none.
    pub(super) fn client_id(&self) -> &str {
        match self {
            Protocol::Bayeux(session) => session.client_id().unwrap_or_default(),
            Protocol::Raw(_) => "",
        }
    }
}
