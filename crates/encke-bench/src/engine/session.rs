//! One session of the clients.

use crate::engine::events_link::EventsLink;
use crate::engine::http_link::HttpLink;
use crate::engine::protocol::Protocol;
use crate::engine::socket::Socket;
use crate::engine::stream_link::StreamLink;
use crate::engine::timers::Timer;
use crate::engine::websocket_link::WebSocketLink;
use crate::order::{Recovery, Transport};

/// A session with its connection. Small while idle: there may be tens of thousands.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) protocol: Protocol,
    pub(super) connection: Connection,
    pub(super) state: SessionState,
    /// The id of the subscription that was not answered yet.
    pub(super) subscribing: Option<u64>,
    /// True if the session knows that it has a connection.
    pub(super) announced: bool,
    /// True if the session is connected, regardless of `subscribing`.
    pub(super) usable: bool,
    /// The way it reconnected since [`Clients::reset_breaks`](crate::engine::Clients::reset_breaks).
    pub(super) reconnection: Reconnection,
    /// The last value of [`Protocol::repeats`].
    pub(super) repeats: u64,
    /// True if its connection has broken since [`Clients::begin`](crate::engine::Clients::begin), so that repeated
    /// messages are allowed.
    pub(super) has_broken: bool,
    pub(super) timer: Timer,
    /// The time to reopen the connection, in microseconds.
    pub(super) reopen_us: Option<u64>,
}

/// A session's connection.
#[derive(Debug)]
pub(super) enum Connection {
    WebSocket(WebSocketLink),
    /// A stream of a connection that is among the [`Links`](crate::engine::http2::Links).
    Stream(StreamLink),
    /// The connection for its connects, and its `Cookie` header.
    Http {
        link: HttpLink,
        cookies: String,
    },
    /// The stream for its messages, and its `Cookie` header.
    Events {
        link: EventsLink,
        cookies: String,
    },
}

/// The state of a session.
///
/// ```text
/// Opening ──▶ Open ──▶ Disconnecting ──▶ Gone
///    ▲         │                          ▲
///    └─ Away ◀─┴─────── dropped ──────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionState {
    /// Connecting and subscribing.
    Opening,
    /// It can publish and receives.
    Open,
    /// Its connection is lost; it comes back.
    Away,
    /// It waits for the reply to its disconnect.
    Disconnecting,
    /// It is over.
    Gone,
}

/// The way in which a session reconnected after its server was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reconnection {
    /// It has received nothing yet.
    No,
    /// It resumed.
    Connect,
    /// It needed a new handshake.
    Handshake,
}

impl Session {
    /// A session that opens now; its connection is to be begun. Its WebSocket `shares` a connection or not.
    pub(super) fn new(
        transport: Transport,
        shares: bool,
        recovery: Recovery,
        rooms: &[u32],
        channels: &[String],
    ) -> Session {
        let (protocol, subscribing) = Protocol::new(transport, recovery, rooms, channels);
        let connection = match transport {
            Transport::LongPolling => Connection::Http { link: HttpLink::default(), cookies: String::new() },
            Transport::Eventsource => Connection::Events { link: EventsLink::default(), cookies: String::new() },
            Transport::Websocket | Transport::Raw if shares => Connection::Stream(StreamLink::default()),
            Transport::Websocket | Transport::Raw => Connection::WebSocket(WebSocketLink::default()),
        };
        Session {
            protocol,
            connection,
            state: SessionState::Opening,
            subscribing,
            announced: false,
            usable: false,
            reconnection: Reconnection::No,
            repeats: 0,
            has_broken: false,
            timer: Timer::default(),
            reopen_us: None,
        }
    }

    /// Its connection, if it is open and not shared.
    pub(super) fn socket(&self) -> Option<&Socket> {
        match &self.connection {
            Connection::WebSocket(link) => link.socket.as_ref(),
            Connection::Stream(_) => None,
            Connection::Http { link, .. } => link.socket(),
            Connection::Events { link, .. } => link.socket.as_ref(),
        }
    }

    /// Returns true if messages can come: over server-sent events when the stream is open.
    pub(super) fn can_receive(&self) -> bool {
        !matches!(&self.connection, Connection::Events { link, .. } if !link.is_open())
    }

    /// Returns true if the session knows of its connection.
    pub(super) fn is_announced(&self) -> bool {
        match &self.connection {
            Connection::WebSocket(link) => link.is_upgraded(),
            Connection::Stream(link) => link.is_open(),
            Connection::Http { .. } | Connection::Events { .. } => self.announced,
        }
    }

    /// Closes its connection, unless it is shared.
    pub(super) fn close(&mut self) {
        match &mut self.connection {
            Connection::WebSocket(link) => *link = WebSocketLink::default(),
            Connection::Stream(link) => *link = StreamLink::default(),
            Connection::Http { link, .. } => drop(link.close()),
            Connection::Events { link, .. } => *link = EventsLink::default(),
        }
        (self.announced, self.usable) = (false, false);
    }
}
