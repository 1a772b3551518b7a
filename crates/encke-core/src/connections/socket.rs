//! Pings and pongs of WebSockets (RFC 6455 §5.5.2).

use crate::events::{SessionKey, SocketKey};
use crate::outbox::{Lent, Outbox};
use crate::sessions::id::Id;
use crate::sessions::newcomers::Origins;

/// The code and the reason that the WebSockets of a draining server are closed with.
pub(crate) const GOING_AWAY: (u16, &str) = (1001, "server going away");

/// A WebSocket as its shard keeps it.
#[derive(Debug)]
pub struct Socket {
    pub(crate) generation: u32,
    /// The session it carries.
    pub(crate) session: Option<SessionKey>,
    /// What goes out before anything of the session: replies while there is none, and the close frame.
    pub(crate) out: Outbox,
    /// What its session's outbox is charged with for messages that wait here.
    pub(crate) handed: Lent,
    /// The browser of its upgrade request.
    pub(crate) browser: Option<Id>,
    /// Its connection and its address.
    pub(crate) origins: Origins,
    pub(crate) phase: Phase,
    /// Whether the kernel takes nothing at the moment.
    pub(crate) blocked: bool,
    pub(crate) dirty: bool,
    /// The payload of the latest ping that has no answer yet, while the kernel takes nothing.
    pub(crate) pong: Option<Box<[u8]>>,
    /// Bytes of pongs that were queued since something was written last.
    pub(crate) pong_bytes: usize,
    /// Replies to its publications that are not kept yet.
    pub(crate) pending_replies: u32,
    /// Replies that come after those: to its client's goodbye, after which that listens no more.
    pub(crate) final_replies: Vec<u8>,
    /// When its client was heard last, in milliseconds.
    pub(crate) last_received_ms: u64,
    /// When it lost its session or was opened, in milliseconds.
    pub(crate) alone_ms: u64,
    /// When its entry in the timer wheel comes, in milliseconds; `u64::MAX` for none.
    pub(crate) armed_ms: u64,
}

impl Socket {
    /// Whether it is the one that this key was made for.
    pub(crate) fn is(&self, key: SocketKey) -> bool {
        self.generation == key.generation
    }

    /// Whether anything can be written to it now.
    pub(crate) fn may_write(&self) -> bool {
        !self.blocked && self.phase != Phase::Closed
    }
}

/// How far a WebSocket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// The close frame is queued; when all is written, or the time is up, it is shut.
    Closing {
        until_ms: u64,
    },
    /// Whoever runs it has been told to shut it.
    Closed,
}

/// What became of bytes from a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// They were worked through.
    Here,
    /// Their session lives on another shard: the socket must move there, and this text be received there first.
    Elsewhere(usize),
}

/// Bytes of replies that may wait on a socket without a session; a single batch may have more.
pub(crate) const STRANGER_REPLIES_BYTES_MAX: usize = 256 * 1024;
