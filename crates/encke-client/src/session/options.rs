//! The options of a session.

use std::time::Duration;

use crate::{Position, ReplayFrom};

/// The options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The transport of its connections.
    pub connection_type: ConnectionType,
    /// The time that the server may take to reply, beyond the time for which it holds a connect.
    pub reply_timeout: Duration,
    /// Each failed attempt lengthens the pause before the next by this; and each pause gets up to this much random jitter.
    pub backoff_step: Duration,
    /// The longest pause after failures.
    pub backoff_max: Duration,
    /// Turns on acknowledgement (CometD's extension `ack`): as long as the server knows the session, breaks lose nothing and
    /// double nothing. Messages then come with connect replies only.
    pub ack: bool,
    /// Turns on replay: the session remembers its positions in the histories of its channels and resumes there after a break,
    /// also in a new session. Subscriptions begin at this point.
    pub replay: Option<ReplayFrom>,
    /// Positions of an earlier session, at which this one resumes with these channels if it replays.
    pub positions: Vec<(String, Position)>,
    /// True if the caller has tokens: the session requests one before each handshake, and when the one in use is about to end
    /// ([`Event::TokenWanted`](super::Event::TokenWanted)).
    pub takes_tokens: bool,
    /// The limit of messages that a session which acknowledges may get before the reply that confirms them: a server's outbox,
    /// over long-polling. More end the session.
    pub unacknowledged_messages_max: usize,
    /// The limit of their memory, in bytes.
    pub unacknowledged_bytes_max: usize,
    /// The seed of the jitter. `None` takes one from the kernel.
    pub jitter_seed: Option<[u8; 8]>,
}

/// A transport (Bayeux 1.0, "connectionType").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionType {
    /// One WebSocket.
    WebSocket,
    /// HTTP requests, one of which the server holds until it has a message.
    LongPolling,
    /// HTTP requests, and one response that stays open: it has the messages and the replies to connects, as server-sent events.
    /// The caller opens it at [`Event::Opened`](super::Event::Opened), and sends connects after that. [`Client`](crate::Client) does not use it.
    EventSource,
}

impl Default for SessionOptions {
    /// CometD's defaults where its clients have the option, over a WebSocket.
    fn default() -> SessionOptions {
        SessionOptions {
            connection_type: ConnectionType::WebSocket,
            reply_timeout: Duration::from_secs(10),
            backoff_step: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            ack: false,
            replay: None,
            positions: Vec::new(),
            takes_tokens: false,
            unacknowledged_messages_max: 100_000,
            unacknowledged_bytes_max: 64 * 1024 * 1024,
            jitter_seed: None,
        }
    }
}

impl ConnectionType {
    /// Its name in Bayeux.
    pub fn name(self) -> &'static str {
        match self {
            ConnectionType::WebSocket => "websocket",
            ConnectionType::LongPolling => "long-polling",
            ConnectionType::EventSource => "eventsource",
        }
    }
}
