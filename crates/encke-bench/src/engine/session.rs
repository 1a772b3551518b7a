//! One session of a crowd.

use crate::engine::http_link::HttpLink;
use crate::engine::protocol::Protocol;
use crate::engine::socket::Socket;
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
    /// Whether the session knows that there is a connection.
    pub(super) announced: bool,
    /// Whether the session can be used, apart from `subscribing`.
    pub(super) usable: bool,
    /// How it came back since [`Clients::reset_breaks`](crate::engine::Clients::forget_breaks).
    pub(super) reconnection: Reconnection,
    /// What [`Protocol::repeats`] said when it was asked last.
    pub(super) repeats: u64,
    /// Whether its connection has broken since [`Clients::begin`](crate::engine::Clients::begin): then messages may come again.
    pub(super) has_broken: bool,
    pub(super) timer: Timer,
    /// When the connection is to be opened again, in microseconds.
    pub(super) reopen_us: Option<u64>,
}

/// What carries a session.
#[derive(Debug)]
pub(super) enum Connection {
    WebSocket(WebSocketLink),
    /// The connection for its connects, and what is sent in `Cookie`.
    Http {
        link: HttpLink,
        cookies: String,
    },
}

/// Where a session stands.
///
/// ```text
/// Opening ──▶ Open ──▶ Leaving ──▶ Gone
///    ▲         │                    ▲
///    └─ Away ◀─┴───── for good ─────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionState {
    /// On its way to being open.
    Opening,
    /// It can publish and receives.
    Open,
    /// Its connection is lost; it comes back.
    Away,
    /// It says goodbye.
    Disconnecting,
    /// It is over.
    Gone,
}

/// How a session came back after its server went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reconnection {
    /// It was not heard of.
    No,
    /// As it was.
    Connect,
    /// It had to begin anew.
    Handshake,
}

impl Session {
    /// A session that opens now; its connection is to be begun.
    pub(super) fn new(transport: Transport, recovery: Recovery, rooms: &[u32], channels: &[String]) -> Session {
        let (protocol, subscribing) = Protocol::new(transport, recovery, rooms, channels);
        let connection = match transport {
            Transport::LongPolling => Connection::Http { link: HttpLink::default(), cookies: String::new() },
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

    /// Its connection, if there is one.
    pub(super) fn socket(&self) -> Option<&Socket> {
        match &self.connection {
            Connection::WebSocket(link) => link.socket.as_ref(),
            Connection::Http { link, .. } => link.socket(),
        }
    }

    /// Whether the session knows of its connection.
    pub(super) fn is_announced(&self) -> bool {
        match &self.connection {
            Connection::WebSocket(link) => link.is_upgraded(),
            Connection::Http { .. } => self.announced,
        }
    }

    /// Lets its connection break in the middle of what comes next, after so many bytes.
    pub(super) fn break_after(&mut self, bytes: u16) {
        let socket = match &mut self.connection {
            Connection::WebSocket(link) => link.socket.as_mut(),
            Connection::Http { link, .. } => link.socket_mut(),
        };
        if let Some(socket) = socket {
            socket.break_after(bytes);
        }
    }

    /// Gives up its connection, which stays open; the session is still to be told.
    pub(super) fn abandon(&mut self) -> Option<Socket> {
        match &mut self.connection {
            Connection::WebSocket(link) => link.socket.take(),
            Connection::Http { link, .. } => link.abandon(),
        }
    }

    /// Closes its connection.
    pub(super) fn close(&mut self) {
        match &mut self.connection {
            Connection::WebSocket(link) => *link = WebSocketLink::default(),
            Connection::Http { link, .. } => drop(link.close()),
        }
        (self.announced, self.usable) = (false, false);
    }
}
