//! WebSockets and streams of this node whose session stays on another one, and those of other nodes here: their bytes are carried
//! between the nodes, one piece in each direction at a time. The next piece is read when the other end has written the last one.
//!
//! ```text
//!   client ──▶ connection on this node ── Carry ──▶ one end of a pair of sockets on the node of the session ──▶ its shard
//! ```

use std::collections::HashMap;
use std::net::IpAddr;

use bytes::Bytes;
use encke_core::{Format, Id, NodeTag, Opener, StreamOpening};
use foldhash::fast::RandomState;

/// Names a relay in both nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId {
    /// The node that has opened it, to which the client is connected.
    pub(super) node: NodeTag,
    /// Its number there.
    pub(super) number: u64,
}

impl RelayId {
    /// The relay with this number of a node.
    pub fn new(node: NodeTag, number: u64) -> RelayId {
        RelayId { node, number }
    }
}

/// A connection that is to be served by the node of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayRequest {
    /// A WebSocket.
    WebSocket {
        /// Its client.
        opener: Opener,
        /// The address of the client.
        address: Option<IpAddr>,
        /// The compression on which its client and its node have agreed, as a byte; 0 for none.
        compression: u8,
        /// The message that names the session.
        text: String,
    },
    /// A stream, as server-sent events or as JSON lines.
    Stream(Visitor, Format),
}

/// A client that wants a stream of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// The session.
    pub session: Id,
    /// The client.
    pub opener: Opener,
    /// Its address.
    pub address: Option<IpAddr>,
    /// True if its connection carries several requests at the same time (HTTP/2).
    pub is_multiplexed: bool,
}

/// Something to be done for a relay.
#[derive(Debug)]
pub enum RelayOutput {
    /// A client of another node: pass its connection to a shard, and call [`Sessions::opened`](super::Sessions::opened) with the text.
    Open(RelayId, RelayRequest, String),
    /// Write these bytes, then call [`Sessions::carried`](super::Sessions::carried) with the text.
    Write(RelayId, Bytes, String),
    /// Read the next piece, and call [`Sessions::carry`](super::Sessions::carry).
    Read(RelayId),
    /// End the connection.
    End(RelayId),
    /// The same, because the other node refuses the stream for this reason.
    Refuse(RelayId, StreamOpening),
}

/// The relays of one node.
#[derive(Default)]
pub(super) struct Relays {
    /// The other node of each.
    pub(super) open: HashMap<RelayId, NodeTag, RandomState>,
    /// The number of the last one that this node has opened.
    pub(super) last: u64,
}

impl Relays {
    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }
}
