//! A WebSocket as its shard sees it: its session, its own queue of frames, pings and pongs (RFC 6455 §5.5.2), and its
//! close. A stream is a socket that only writes, in another format than frames.

use std::sync::Arc;

use websocket::Compression;

use crate::clients::newcomers::Origins;
use crate::delivery::connections::reached::Reached;
use crate::delivery::outbox::format::Format;
use crate::delivery::outbox::{Lent, Outbox};
use crate::delivery::schedule::Marks;
use crate::events::SessionKey;
use crate::id::Id;
use crate::identity::Head;
use crate::memory::Counted;
use crate::opener::Opener;

/// The close code and the reason for the WebSockets of a draining server.
pub(crate) const GOING_AWAY: (u16, &str) = (1001, "server going away");

/// A WebSocket or a stream of this shard.
#[derive(Debug)]
pub struct Socket {
    pub(in crate::delivery) generation: u32,
    /// The session attached to it.
    pub(in crate::delivery) session: Option<SessionKey>,
    /// Its own frames. Most sockets have none most of the time: an idle socket needs no memory for them.
    pub(in crate::delivery) own: Option<Box<OwnFrames>>,
    /// The sender of its upgrade request.
    pub(in crate::delivery) opener: Opener,
    /// Its connection and its address.
    pub(in crate::delivery) origins: Origins,
    /// The head of its upgrade request, if the application reads heads: a later handshake needs it, too.
    pub(in crate::delivery) head: Option<Box<OwnHead>>,
    pub(in crate::delivery) phase: Phase,
    /// The compression of its messages, if its client takes that.
    pub(in crate::delivery) compression: Option<Compression>,
    /// True if it reached another node, which carries its bytes: its head and its address are not known here.
    pub(in crate::delivery) is_carried: bool,
    /// True while its last batch waits for the application: nothing more is read from it.
    pub(in crate::delivery) is_suspended: bool,
    /// Its entries in the shard's schedule.
    pub(in crate::delivery) marks: Marks,
    /// The number of replies to its publications that are not persisted yet.
    pub(in crate::delivery) pending_replies: u32,
    /// The time of the client's last sign of life, in milliseconds.
    pub(in crate::delivery) last_received_ms: u64,
    /// The time at which it was opened or lost its session, in milliseconds.
    pub(in crate::delivery) alone_ms: u64,
    /// The time of its entry in the timer wheel, in milliseconds. `u64::MAX` for none.
    pub(in crate::delivery) armed_ms: u64,
}

/// The head of an upgrade request, with its memory.
#[derive(Debug)]
pub(crate) struct OwnHead {
    pub(crate) head: Arc<Head>,
    pub(crate) counted: Counted,
}

/// The frames of a WebSocket that belong to no session, and what follows them.
#[derive(Debug, Default)]
pub(crate) struct OwnFrames {
    /// Frames that go out before anything of the session: replies while there is no session, and the close frame.
    pub(crate) out: Outbox,
    /// The charge on the session's outbox for messages that wait here.
    pub(crate) handed: Lent,
    /// The payload of the latest unanswered ping, held back while the kernel takes no bytes.
    pub(crate) pong: Option<Box<[u8]>>,
    /// Bytes of pongs queued since the last write.
    pub(crate) pong_bytes: usize,
    /// Replies that follow those to its publications: the reply to a disconnect, after which the client stops reading.
    pub(crate) final_replies: Vec<u8>,
    /// Set if the socket is a stream. It stands here, as a WebSocket needs no room for it.
    pub(crate) stream: Option<Stream>,
}

/// The output of a stream: a response that stays open. Queues hold frames; the stream gets their text.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) format: Format,
    /// The bytes that the kernel has of the text of the first frame that waits.
    pub(crate) written: usize,
    /// The time at which it ends, in milliseconds; `u64::MAX` for none.
    pub(crate) until_ms: u64,
    /// The positions that it has reached, if its ids name those of several channels.
    pub(crate) reached: Option<Box<Reached>>,
}

impl OwnFrames {
    fn is_empty(&self) -> bool {
        let has_replies = !self.out.is_empty() || !self.final_replies.is_empty();
        !has_replies && self.handed == (0, 0) && self.pong.is_none() && self.pong_bytes == 0 && self.stream.is_none()
    }
}

impl Socket {
    /// The head of its upgrade request, if the application reads heads.
    pub(crate) fn head(&self) -> Option<&Arc<Head>> {
        Some(&self.head.as_ref()?.head)
    }

    /// The client that opened it.
    pub(crate) fn opener(&self) -> Opener {
        self.opener
    }

    /// The browser that opened it, if its cookie names one.
    pub(crate) fn browser(&self) -> Option<Id> {
        self.opener.browser()
    }

    /// The session attached to it.
    pub(crate) fn session(&self) -> Option<SessionKey> {
        self.session
    }

    /// True if the kernel takes no bytes at the moment.
    pub(crate) fn is_blocked(&self) -> bool {
        self.marks.is_blocked()
    }

    /// Its output, if it is a stream.
    pub(crate) fn stream(&self) -> Option<&Stream> {
        self.own.as_ref().and_then(|own| own.stream.as_ref())
    }

    /// Its own queue, unless that is empty.
    pub(crate) fn out(&self) -> Option<&Outbox> {
        self.own.as_ref().map(|own| &own.out).filter(|out| !out.is_empty())
    }

    /// The bytes of that queue.
    pub(crate) fn out_bytes(&self) -> usize {
        self.out().map_or(0, Outbox::bytes)
    }

    /// Its own frames, to add some.
    pub(crate) fn own_mut(&mut self) -> &mut OwnFrames {
        self.own.get_or_insert_default()
    }

    /// Frees the memory for its own frames if it has none.
    pub(crate) fn free_own(&mut self) {
        self.own.take_if(|own| own.is_empty());
    }

    /// True if the socket can be written to now.
    pub(crate) fn may_write(&self) -> bool {
        !self.marks.is_blocked() && self.phase != Phase::Closed
    }
}

/// The origin of a WebSocket, which moves with it from shard to shard.
#[derive(Debug)]
pub struct SocketOrigin {
    pub(crate) opener: Opener,
    pub(crate) origins: Origins,
    pub(crate) head: Option<Arc<Head>>,
    pub(crate) compression: Option<Compression>,
    /// True if another node carries its bytes.
    pub(crate) is_carried: bool,
}

impl SocketOrigin {
    /// The origin of a WebSocket of another node, which carries its bytes.
    pub fn of_node(opener: Opener, origins: [u64; 2], compression: Option<Compression>) -> SocketOrigin {
        SocketOrigin { opener, origins, head: None, compression, is_carried: true }
    }

    /// Hashes of its connection and its client's address, as [`Shared::origins_of`](crate::Shared::origins_of) makes them; 0 if not known.
    pub fn origins(&self) -> [u64; 2] {
        self.origins
    }

    /// Its client.
    pub fn opener(&self) -> Opener {
        self.opener
    }

    /// The compression on which its client and the server have agreed.
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }
}

/// The state of a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// The close frame is queued. The socket is shut when all is written or the time is up. The time is in bytes, as an aligned
    /// number would take eight bytes more of each socket.
    Closing {
        until_ms: [u8; 8],
    },
    /// The environment has been asked to shut the socket.
    Closed,
}

/// The result of receiving a text message from a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The message was processed.
    Here,
    /// The same, and it was a handshake. One costs as much as many publications, so the other connections get a turn before
    /// the next message.
    Handshake,
    /// The message waits for the application. The next one must not come before [`Effect::Continue`](crate::Effect).
    Waits,
    /// Other nodes are asked for its session. This text must come again with [`Effect::Continue`](crate::Effect), and nothing before
    /// it.
    Searches,
    /// Its session lives on another shard. The socket must move there, and that shard must receive this text first.
    Elsewhere(usize),
}

/// The most bytes of replies that may wait on a socket without a session. A single batch may have more.
pub(crate) const STRANGER_REPLIES_BYTES_MAX: usize = 256 * 1024;
