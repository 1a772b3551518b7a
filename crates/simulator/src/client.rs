//! A client: its state, and the replies that it awaits.

use std::collections::BTreeMap;

use crate::follower::Follower;

use crate::script::Transport;

/// One client.
#[derive(Debug)]
pub struct Client {
    /// The transport it uses now.
    pub transport: Transport,
    /// The browser of which it is a window.
    pub browser: usize,
    /// Its phase.
    pub phase: Phase,
    /// Its WebSocket, if it uses one.
    pub conn: Option<usize>,
    /// Earlier WebSockets that it still reads.
    pub old_conns: Vec<usize>,
    /// Its pending request other than a connect, or the connect with which it resumed. There is only one, so that
    /// messages stay in order.
    pub busy: Option<usize>,
    /// The replies it awaits, by message id.
    pub awaited: BTreeMap<u64, Awaited>,
    /// Its connect: the message id, and the time it was sent.
    pub connect: Option<(u64, u64)>,
    /// The earliest time of the next connect or handshake, in milliseconds.
    pub next_ms: u64,
    /// The advised pause between connects, in milliseconds.
    pub interval_ms: u64,
    /// The stream of its publications.
    pub stream: usize,
    /// True if it reads.
    pub reading: bool,
    /// The last batch it has received, if its session acknowledges.
    pub acknowledged: Option<i64>,
    /// Its replay state, if it replays.
    pub follower: Option<Follower>,
    /// The number of error replies without an id that it expects, for garbage.
    pub nameless: usize,
}

/// The phase of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has no session.
    Away,
    /// It has sent a handshake.
    Shaking,
    /// It has this session.
    On(usize),
    /// It has left permanently.
    Vanished,
}

/// An awaited reply.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// The route on which the reply has to come.
    pub route: Route,
    /// The session of the message: its WebSocket may carry another one since.
    pub session: Option<usize>,
    /// True if the reply must come.
    pub owed: bool,
    /// The request that it answers.
    pub what: What,
}

/// The route of a message: a WebSocket or an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A WebSocket.
    Conn(usize),
    /// An HTTP exchange.
    Exchange(usize),
}

/// The request in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Open a session.
    Handshake,
    /// Wait for messages.
    Connect,
    /// End the session.
    Disconnect,
    /// Subscribe to these names.
    Subscribe(Vec<String>),
    /// End this subscription.
    Unsubscribe(String),
    /// Publish this publication.
    Publish(usize),
    /// A message that is refused or has no effect.
    Odd,
}

/// A message before it has an id.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its channel.
    pub channel: String,
    /// More fields, each with a comma before it.
    pub fields: String,
    /// The request in it.
    pub what: What,
}

impl Client {
    /// A client without a session.
    pub fn new(transport: Transport, browser: usize) -> Client {
        Client {
            transport,
            browser,
            phase: Phase::Away,
            conn: None,
            old_conns: Vec::new(),
            busy: None,
            awaited: BTreeMap::new(),
            connect: None,
            next_ms: 0,
            interval_ms: 0,
            stream: 0,
            reading: true,
            acknowledged: None,
            follower: None,
            nameless: 0,
        }
    }

    /// Its session.
    pub fn session(&self) -> Option<usize> {
        match self.phase {
            Phase::On(session) => Some(session),
            _ => None,
        }
    }

    /// True if it waits only for its connect.
    pub fn is_settled(&self) -> bool {
        self.phase != Phase::Shaking && self.first_owed().is_none()
    }

    /// A message other than a connect whose reply is owed.
    pub fn first_owed(&self) -> Option<(u64, &What)> {
        let owed = |(id, awaited): (&u64, &Awaited)| !matches!(awaited.what, What::Connect) && awaited.owed && *id > 0;
        self.awaited.iter().find(|(id, awaited)| owed((id, awaited))).map(|(id, awaited)| (*id, &awaited.what))
    }

    /// The time since which it awaits the reply to its connect, in milliseconds.
    pub fn connect_since_ms(&self) -> Option<u64> {
        let (id, since_ms) = self.connect?;
        self.awaited.get(&id).filter(|awaited| awaited.owed).map(|_| since_ms)
    }
}

/// A message without effect.
pub(crate) fn odd(channel: &str, fields: &str) -> Outgoing {
    Outgoing { channel: channel.into(), fields: fields.into(), what: What::Odd }
}
