//! The connections of a shard: its sockets and requests, what waits of them and of other shards, and limits on the bytes
//! in transit.

pub(crate) mod account;
pub(crate) mod admission;
pub(crate) mod arrivals;
pub(crate) mod exchanges;
pub(crate) mod socket;
pub(crate) mod sockets;

/// The connections of a shard, and all that has come from them and from other shards and waits.
#[derive(Default)]
pub(crate) struct Connections {
    /// WebSockets.
    pub(crate) sockets: sockets::Sockets,
    /// HTTP requests that are not answered yet, and responses on their way.
    pub(crate) exchanges: exchanges::Exchanges,
    /// Envelopes from other shards that wait for budget.
    pub(crate) arrivals: arrivals::Arrivals,
    /// True if the server is about to stop: clients come back later.
    pub(crate) draining: bool,
}
