//! Messages from thread to thread.

use encke_core::{Charge, Envelope, Shard, SocketOrigin};
use websocket::Decoder;

use super::connections::{Arrival, Counted};
use super::stream_request::StreamRequest;
use crate::byte_stream::Detached;

/// A message for the thread of a shard.
pub(crate) enum ThreadMessage {
    /// A message for the shard.
    FromShard(Envelope),
    /// Handles have published something.
    Published,
    /// A new connection.
    Connection(Detached, Arrival),
    /// A WebSocket whose session lives on the receiving shard.
    Socket(Box<Moving>),
    /// A stream whose session lives on the receiving shard.
    Stream(Box<MovingStream>),
    /// From now on the thread reads and writes no sockets; only messages between shards are processed.
    Freeze,
    /// Asks whether the shard had messages since the last `Settle`. It answers once everything it sends is in other
    /// mailboxes.
    Settle(std::sync::mpsc::Sender<bool>),
    /// Calls this function with the shard, for reading. It is dropped uncalled if the server stops first.
    Inspect(Box<dyn FnOnce(&Shard) + Send>),
    /// Nothing more follows: the shard's thread ends.
    Stop,
}

/// A WebSocket on its way to another shard.
pub(crate) struct Moving {
    pub(crate) connection: Detached,
    pub(crate) decoder: Decoder,
    pub(crate) origin: SocketOrigin,
    /// None for a stream of an HTTP/2 connection, which counts itself.
    pub(crate) counted: Option<Counted>,
    /// The message that named the session.
    pub(crate) text: String,
    /// Bytes that were read after that message.
    pub(crate) rest: Vec<u8>,
    /// The charge for all of it.
    pub(crate) charge: Charge,
}

/// A stream on its way to another shard.
pub(crate) struct MovingStream {
    pub(crate) connection: Detached,
    /// None for one of another node.
    pub(crate) counted: Option<Counted>,
    pub(crate) request: StreamRequest,
    /// The head of its response.
    pub(crate) head: Vec<u8>,
    /// The charge for it.
    pub(crate) charge: Charge,
}
