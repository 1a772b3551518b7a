//! Input of a shard: sockets, requests and messages of other shards, and limits on the bytes in transit.

pub(crate) mod account;
pub(crate) mod admission;
pub(crate) mod arrivals;
pub(crate) mod exchanges;
pub(crate) mod pending_replies;
pub(crate) mod socket;
pub(crate) mod sockets;
pub(crate) mod waits;
