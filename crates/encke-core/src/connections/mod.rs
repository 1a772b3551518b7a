//! The connections of a shard: its sockets and requests.

pub(crate) mod exchanges;
pub(crate) mod socket;
pub(crate) mod sockets;

/// The connections of a shard.
#[derive(Default)]
pub(crate) struct Connections {
    /// WebSockets.
    pub(crate) sockets: sockets::Sockets,
    /// HTTP requests that are not answered yet, and responses on their way.
    pub(crate) exchanges: exchanges::Exchanges,
    /// True if the server is about to stop: clients come back later.
    pub(crate) draining: bool,
}
