//! A WebSocket as its shard sees it: its session, its own queue of frames, pings and pongs (RFC 6455 §5.5.2), and its
//! close.

use std::sync::Arc;

use crate::events::SessionKey;
use crate::identity::Head;
use crate::outbox::{Lent, Outbox};
use crate::schedule::Marks;
use crate::sessions::id::Id;
use crate::sessions::newcomers::Origins;

/// The close code and the reason for the WebSockets of a draining server.
pub(crate) const GOING_AWAY: (u16, &str) = (1001, "server going away");

/// A WebSocket of this shard.
#[derive(Debug)]
pub struct Socket {
    pub(crate) generation: u32,
    /// The session attached to it.
    pub(crate) session: Option<SessionKey>,
    /// Frames that go out before anything of the session: replies while there is no session, and the close frame.
    pub(crate) out: Outbox,
    /// The charge on the session's outbox for messages that wait here.
    pub(crate) handed: Lent,
    /// The browser id in the cookie of its upgrade request.
    pub(crate) browser: Option<Id>,
    /// Its connection and its address.
    pub(crate) origins: Origins,
    /// The head of its upgrade request, if the application reads heads.
    pub(crate) head: Option<Arc<Head>>,
    pub(crate) phase: Phase,
    /// True while its last batch waits for the application: nothing more is read from it.
    pub(crate) is_suspended: bool,
    /// Its entries in the shard's schedule.
    pub(crate) marks: Marks,
    /// The payload of the latest unanswered ping, held back while the kernel takes no bytes.
    pub(crate) pong: Option<Box<[u8]>>,
    /// Bytes of pongs queued since the last write.
    pub(crate) pong_bytes: usize,
    /// The number of replies to its publications that are not persisted yet.
    pub(crate) pending_replies: u32,
    /// Replies that follow those: the reply to a disconnect, after which the client stops reading.
    pub(crate) final_replies: Vec<u8>,
    /// The time of the client's last sign of life, in milliseconds.
    pub(crate) last_received_ms: u64,
    /// The time at which it was opened or lost its session, in milliseconds.
    pub(crate) alone_ms: u64,
    /// The time of its entry in the timer wheel, in milliseconds. `u64::MAX` for none.
    pub(crate) armed_ms: u64,
}

impl Socket {
    /// True if the socket can be written to now.
    pub(crate) fn may_write(&self) -> bool {
        !self.marks.is_blocked() && self.phase != Phase::Closed
    }
}

/// The state of a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// The close frame is queued. The socket is shut when all is written or the time is up.
    Closing {
        until_ms: u64,
    },
    /// The environment has been asked to shut the socket.
    Closed,
}

/// The result of receiving a text message from a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The message was processed.
    Here,
    /// The message waits for the application. The next one must not come before [`Effect::Continue`](crate::Effect).
    Waits,
    /// Its session lives on another shard. The socket must move there, and that shard must receive this text first.
    Elsewhere(usize),
}

/// The most bytes of replies that may wait on a socket without a session. A single batch may have more.
pub(crate) const STRANGER_REPLIES_BYTES_MAX: usize = 256 * 1024;
