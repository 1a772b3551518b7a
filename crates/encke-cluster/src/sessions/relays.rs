//! WebSockets and streams of this node whose session stays on another one, and those of other nodes here: their bytes are carried
//! between the nodes, one piece in each direction at a time. The next piece is read when the other end has written the last one.
//!
//! ```text
//!   client ──▶ connection on this node ── Carry ──▶ one end of a pair of sockets on the node of the session ──▶ its shard
//! ```

use std::collections::HashMap;
use std::net::IpAddr;

use bytes::Bytes;
use encke_core::{Amount, Budget, Format, Id, NodeTag, Opener, Share, Shares, StreamOpening, Urgency, network};
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

impl RelayRequest {
    /// The address of its client.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            RelayRequest::WebSocket { address, .. } => *address,
            RelayRequest::Stream(visitor, _) => visitor.address,
        }
    }
}

/// The relays of one node. Addresses of clients share them.
pub(super) struct Relays {
    /// The other node of each, and its share.
    open: HashMap<RelayId, (NodeTag, Share<ClientOwner>), RandomState>,
    budget: Budget,
    shares: Shares<ClientOwner>,
    /// The number of the last one that this node has opened.
    last: u64,
}

/// The owner of what a node does for a client that is connected to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClientOwner {
    /// The network of its address.
    Address(u128),
    /// Its address is not known: it is an owner by itself. That node has given it this number.
    Unknown(NodeTag, u64),
}

impl ClientOwner {
    pub(super) fn of(address: Option<IpAddr>, (node, number): (NodeTag, u64)) -> ClientOwner {
        address.map_or(ClientOwner::Unknown(node, number), |address| ClientOwner::Address(network(address)))
    }
}

impl Relays {
    pub(super) fn new(count_max: usize) -> Relays {
        let (budget, shares) = (Budget::new(count_max, usize::MAX), Shares::default());
        Relays { open: HashMap::default(), budget, shares, last: 0 }
    }

    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// A new number for one that this node opens.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds a relay with another node, for a client of this address. False if it is there already, there are too many, or the address has
    /// its share.
    pub(super) fn add(&mut self, relay: RelayId, peer: NodeTag, address: Option<IpAddr>) -> bool {
        if self.has(&relay) {
            return false;
        }
        let owner = ClientOwner::of(address, (relay.node, relay.number));
        let share = self.shares.take(&self.budget, owner, Amount::of(1), Urgency::Common);
        share.map(|share| self.open.insert(relay, (peer, share))).is_ok()
    }

    /// True if a relay is open.
    pub(super) fn has(&self, relay: &RelayId) -> bool {
        self.open.contains_key(relay)
    }

    /// The other node of a relay.
    pub(super) fn peer(&self, relay: &RelayId) -> Option<NodeTag> {
        self.open.get(relay).map(|(peer, _)| *peer)
    }

    /// Removes a relay. Returns its other node.
    pub(super) fn remove(&mut self, relay: &RelayId) -> Option<NodeTag> {
        let (peer, share) = self.open.remove(relay)?;
        self.shares.give_back(share);
        Some(peer)
    }

    /// The relays with a node, or all of them, in their order.
    pub(super) fn with(&self, node: Option<NodeTag>) -> Vec<RelayId> {
        let is_with = |peer: NodeTag| node.is_none_or(|node| node == peer);
        let mut all: Vec<RelayId> =
            self.open.iter().filter(|(_, (peer, _))| is_with(*peer)).map(|(relay, _)| *relay).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::tests::tag;

    #[test]
    fn one_address_leaves_relays_to_others() {
        let mut relays = Relays::new(80);
        let open = |relays: &mut Relays, last: u8| {
            let address = Some(IpAddr::from([10, 0, 0, last]));
            let relay = RelayId::new(tag(1), relays.number());
            relays.add(relay, tag(2), address).then_some(relay)
        };
        let of_one: Vec<RelayId> = std::iter::from_fn(|| open(&mut relays, 1)).collect();
        assert!((60..80).contains(&of_one.len()), "{}", of_one.len());
        let other = open(&mut relays, 2).expect("room for another address");
        assert!(!relays.add(other, tag(2), None), "it is there already");
        assert_eq!((relays.remove(&of_one[0]), relays.remove(&of_one[0])), (Some(tag(2)), None));
        assert_eq!((relays.with(Some(tag(2))).len(), relays.with(Some(tag(3))).len()), (of_one.len(), 0));
    }
}
