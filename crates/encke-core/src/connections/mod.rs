//! The connections of a shard: its sockets and requests, what waits of them and of other shards, and limits on the bytes
//! in transit.

pub(crate) mod account;
pub(crate) mod admission;
pub(crate) mod arrivals;
pub(crate) mod exchanges;
pub(crate) mod pending_replies;
pub(crate) mod socket;
pub(crate) mod sockets;
pub(crate) mod waits;

/// The connections of a shard, and all that has come from them and from other shards and waits.
#[derive(Default)]
pub(crate) struct Connections {
    /// WebSockets.
    pub(crate) sockets: sockets::Sockets,
    /// HTTP requests that are not answered yet, and responses on their way.
    pub(crate) exchanges: exchanges::Exchanges,
    /// Replies to publications that are not persisted yet.
    pub(crate) pending_replies: pending_replies::PendingReplies,
    /// Messages that wait for the application.
    pub(crate) waits: waits::Waits,
    /// Envelopes from other shards that wait for budget.
    pub(crate) arrivals: arrivals::Arrivals,
    /// Room for the replies to a batch.
    pub(crate) replies: Vec<u8>,
    /// True if the server is about to stop: clients come back later.
    pub(crate) draining: bool,
}
