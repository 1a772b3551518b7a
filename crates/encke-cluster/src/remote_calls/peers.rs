//! The other nodes that are there: each says so again and again. Clocks are not compared: a node from which nothing has come for a while,
//! by the clock of this one, is gone.

use std::collections::BTreeMap;

use encke_core::NodeTag;

/// The other nodes, by the numbers of their processes.
#[derive(Default)]
pub(super) struct Peers {
    others: BTreeMap<u64, Peer>,
    /// The time at which this node says again that it is there, in milliseconds.
    due_ms: u64,
}

struct Peer {
    tag: NodeTag,
    /// The time of its last message, in milliseconds.
    seen_ms: u64,
}

impl Peers {
    /// A node has said that it is there. True if it was not known.
    pub(super) fn seen(&mut self, now_ms: u64, node: u64, tag: NodeTag) -> bool {
        let is_new = self.others.insert(node, Peer { tag, seen_ms: now_ms }).is_none();
        if self.others.len() > PEERS_MAX {
            let oldest = self.others.iter().min_by_key(|(_, peer)| peer.seen_ms).map(|(node, _)| *node);
            oldest.and_then(|oldest| self.others.remove(&oldest));
        }
        is_new
    }

    /// Nobody listens for a node any more.
    pub(super) fn left(&mut self, node: u64) {
        self.others.remove(&node);
    }

    /// This node was cut off: the others count as seen now, and learn of it at once.
    pub(super) fn resume(&mut self, now_ms: u64) {
        self.others.values_mut().for_each(|peer| peer.seen_ms = now_ms);
        self.due_ms = now_ms;
    }

    /// Forgets nodes that are gone.
    pub(super) fn expire(&mut self, now_ms: u64) {
        self.others.retain(|_, peer| now_ms < peer.seen_ms + GONE_MS);
    }

    /// The nodes, in the order of their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = u64> {
        self.others.keys().copied()
    }

    /// True if a node is there.
    pub(super) fn has(&self, node: u64) -> bool {
        self.others.contains_key(&node)
    }

    /// The node with this tag.
    pub(super) fn tagged(&self, tag: NodeTag) -> Option<u64> {
        self.others.iter().find(|(_, peer)| peer.tag == tag).map(|(node, _)| *node)
    }

    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.others.len()
    }

    /// True if it is time to say that this node is there.
    pub(super) fn is_due(&mut self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.due_ms;
        if is_due {
            self.due_ms = now_ms + HELLO_MS;
        }
        is_due
    }

    /// The time of the next one, in milliseconds.
    pub(super) fn next_ms(&self) -> u64 {
        self.due_ms
    }
}

/// The time between two messages that say that a node is there, in milliseconds.
const HELLO_MS: u64 = 2_000;
/// The time after which a silent node is gone, in milliseconds.
pub(super) const GONE_MS: u64 = 7_000;
/// The most nodes. The one that has been silent for the longest time gives way.
const PEERS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::tests::tag;

    #[test]
    fn a_silent_node_is_gone_and_too_many_push_the_oldest_out() {
        let mut peers = Peers::default();
        assert!(peers.seen(1_000, 7, tag(7)) && !peers.seen(2_000, 7, tag(7)));
        peers.expire(2_000 + GONE_MS - 1);
        assert_eq!((peers.tagged(tag(7)), peers.tagged(tag(8))), (Some(7), None));
        peers.expire(2_000 + GONE_MS);
        assert!(!peers.has(7));
        (0..=PEERS_MAX as u64).for_each(|node| _ = peers.seen(10_000 + node, node, tag(node)));
        assert_eq!((peers.len(), peers.has(0), peers.has(1)), (PEERS_MAX, false, true));
    }

    #[test]
    fn after_a_break_the_others_have_time_to_be_seen_again() {
        let mut peers = Peers::default();
        peers.seen(1_000, 7, tag(7));
        assert!(peers.is_due(1_000) && !peers.is_due(1_000 + HELLO_MS - 1));
        peers.resume(100_000);
        peers.expire(100_000);
        assert!(peers.has(7) && peers.is_due(100_000));
    }
}
