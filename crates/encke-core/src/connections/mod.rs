//! What sockets, requests and other shards bring, and how much of it may be under way.

pub(crate) mod account;
pub(crate) mod admission;
pub(crate) mod arrivals;
pub(crate) mod pending_replies;
pub(crate) mod socket;
