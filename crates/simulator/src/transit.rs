//! Messages, sockets, results and decisions on their way inside the server.

use encke_core::{Awaited, Charge, Envelope, ExchangeId, SocketOrigin, WaitKey};

/// An item on its way from one shard to another.
#[derive(Debug)]
pub(crate) enum InTransit {
    ShardMessage(Envelope),
    Socket(Box<MovingSocket>),
}

/// A WebSocket that moves.
#[derive(Debug)]
pub(crate) struct MovingSocket {
    /// Its number.
    pub(crate) conn: usize,
    pub(crate) origin: SocketOrigin,
    /// The text that caused the move, and the session that it names.
    pub(crate) text: String,
    pub(crate) session: Option<usize>,
    pub(crate) _charge: Charge,
}

/// The result of a response that carries messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) exchange: ExchangeId,
    pub(crate) home: usize,
    pub(crate) taken: bool,
}

/// A future for which a shard waits.
#[derive(Debug)]
pub(crate) struct WaitingFuture {
    pub(crate) shard: usize,
    pub(crate) key: WaitKey,
    pub(crate) awaited: Awaited,
}
