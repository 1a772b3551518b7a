//! Input of a shard: sockets, requests and messages of other shards, and limits on how much may be under way.

pub(crate) mod account;
pub(crate) mod admission;
pub(crate) mod arrivals;
pub(crate) mod pending_replies;
pub(crate) mod socket;
