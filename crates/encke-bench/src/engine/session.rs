//! One session of a crowd.

use crate::engine::http_link::HttpLink;
use crate::engine::socket::Socket;
use crate::engine::talk::Talk;
use crate::engine::wakes::Alarm;
use crate::engine::websocket_link::WebSocketLink;
use crate::run::{Recovery, Transport};

/// A session with its connection. Small while idle: there may be tens of thousands.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) talk: Talk,
    pub(super) carrier: Carrier,
    pub(super) life: Life,
    /// The id of the subscription that was not answered yet.
    pub(super) subscribing: Option<u64>,
    /// Whether the session knows that there is a connection.
    pub(super) announced: bool,
    /// Whether the session can be used, apart from `subscribing`.
    pub(super) usable: bool,
    /// How it came back since [`Crowd::forget_breaks`](crate::engine::Crowd::forget_breaks).
    pub(super) back: Back,
    /// What [`Talk::repeats`] said when it was asked last.
    pub(super) repeats: u64,
    /// Whether its connection has broken since [`Crowd::begin`](crate::engine::Crowd::begin): then messages may come again.
    pub(super) has_broken: bool,
    pub(super) alarm: Alarm,
    /// When the connection is to be opened again, in microseconds.
    pub(super) reopen_us: Option<u64>,
}

/// What carries a session.
#[derive(Debug)]
pub(super) enum Carrier {
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
///    └─ Away ◀─┴──── permanent ─────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// On its way to being open.
    Opening,
    /// It can publish and receives.
    Open,
    /// Its connection is lost; it comes back.
    Away,
    /// It says goodbye.
    Leaving,
    /// It is over.
    Gone,
}

/// How a session came back after its server went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Back {
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
        let (talk, subscribing) = Talk::new(transport, recovery, rooms, channels);
        let carrier = match transport {
            Transport::LongPolling => Carrier::Http { link: HttpLink::default(), cookies: String::new() },
            Transport::Websocket | Transport::Raw => Carrier::WebSocket(WebSocketLink::default()),
        };
        Session {
            talk,
            carrier,
            life: Life::Opening,
            subscribing,
            announced: false,
            usable: false,
            back: Back::No,
            repeats: 0,
            has_broken: false,
            alarm: Alarm::default(),
            reopen_us: None,
        }
    }

    /// Its connection, if there is one.
    pub(super) fn socket(&self) -> Option<&Socket> {
        match &self.carrier {
            Carrier::WebSocket(link) => link.socket.as_ref(),
            Carrier::Http { link, .. } => link.socket(),
        }
    }

    /// Whether the session knows of its connection.
    pub(super) fn is_carried(&self) -> bool {
        match &self.carrier {
            Carrier::WebSocket(link) => link.is_upgraded(),
            Carrier::Http { .. } => self.announced,
        }
    }

    /// Lets its connection break in the middle of what comes next, after so many bytes.
    pub(super) fn break_after(&mut self, bytes: u16) {
        let socket = match &mut self.carrier {
            Carrier::WebSocket(link) => link.socket.as_mut(),
            Carrier::Http { link, .. } => link.socket_mut(),
        };
        if let Some(socket) = socket {
            socket.break_after(bytes);
        }
    }

    /// Gives up its connection, which stays open; the session is still to be told.
    pub(super) fn abandon(&mut self) -> Option<Socket> {
        match &mut self.carrier {
            Carrier::WebSocket(link) => link.socket.take(),
            Carrier::Http { link, .. } => link.abandon(),
        }
    }

    /// Closes its connection.
    pub(super) fn close(&mut self) {
        match &mut self.carrier {
            Carrier::WebSocket(link) => *link = WebSocketLink::default(),
            Carrier::Http { link, .. } => drop(link.close()),
        }
        (self.announced, self.usable) = (false, false);
    }
}
