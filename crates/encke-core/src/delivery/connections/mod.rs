//! The connections of a shard: its sockets and requests.

pub(crate) mod exchanges;
pub(crate) mod reached;
pub(crate) mod socket;
pub(crate) mod sockets;
