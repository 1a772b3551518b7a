//! The nodes that are there: each writes its key again and again. Clocks of nodes are never compared: a node whose key has not changed for
//! a while, by the clock of this one, is gone.

use std::collections::BTreeMap;

use super::entry::NodeId;

/// The nodes, as this one sees them.
pub(super) struct Members {
    own: NodeId,
    others: BTreeMap<NodeId, Seen>,
    /// The number of the last write of the own key, and the time when it was sent, if it is on its way.
    on_way: Option<u64>,
    /// The time of the next write, in milliseconds.
    due_ms: u64,
    /// The time until which no other node takes this one for gone, in milliseconds.
    lease_ms: u64,
    /// The time of the last write that was done, in milliseconds.
    beaten_ms: Option<u64>,
    /// The time of the first write that was done and that the watch has not reported, in milliseconds.
    unreported_ms: Option<u64>,
    /// The time at which this node has come back after others may have taken it for gone for long, in milliseconds.
    back_ms: Option<u64>,
}

/// The key of another node.
struct Seen {
    revision: u64,
    /// The time of its last change here, in milliseconds.
    at_ms: u64,
    /// The time of its first change since it was gone or not there, in milliseconds.
    since_ms: u64,
    /// True if the running watch has reported it.
    is_reported: bool,
}

impl Members {
    pub(super) fn new(own: NodeId) -> Members {
        Members {
            own,
            others: BTreeMap::new(),
            on_way: None,
            due_ms: 0,
            lease_ms: 0,
            beaten_ms: None,
            unreported_ms: None,
            back_ms: None,
        }
    }

    /// A key is there, or has changed.
    pub(super) fn seen(&mut self, now_ms: u64, node: NodeId, revision: u64) {
        if node == self.own {
            // The writes of others come with it.
            if self.is_blind(now_ms) {
                self.resume(now_ms);
            }
            self.unreported_ms = None;
            return;
        }
        let seen =
            self.others.entry(node).or_insert(Seen { revision: 0, at_ms: 0, since_ms: now_ms, is_reported: true });
        seen.is_reported = true;
        if revision != seen.revision {
            if now_ms >= seen.at_ms + GONE_MS {
                seen.since_ms = now_ms;
            }
            (seen.revision, seen.at_ms) = (revision, now_ms);
        }
    }

    /// A key is gone: its node has left, or has been gone for long.
    pub(super) fn left(&mut self, node: NodeId) {
        self.others.remove(&node);
    }

    /// A watch begins: keys that it does not report are gone. The engine may have lost the own key, too, and others have to see it before they
    /// see a claim of this node.
    pub(super) fn watch_begins(&mut self) {
        (self.due_ms, self.lease_ms, self.unreported_ms) = (0, 0, None);
        self.others.values_mut().for_each(|seen| seen.is_reported = false);
    }

    /// A watch has reported all keys.
    pub(super) fn watch_is_complete(&mut self) {
        self.others.retain(|_, seen| seen.is_reported);
    }

    /// This node has not looked for a while: others count as seen now.
    pub(super) fn resume(&mut self, now_ms: u64) {
        self.others.values_mut().for_each(|seen| seen.at_ms = now_ms);
    }

    /// True if a node is there.
    pub(super) fn is_alive(&self, now_ms: u64, node: NodeId) -> bool {
        node == self.own || self.others.get(&node).is_some_and(|seen| now_ms < seen.at_ms + GONE_MS)
    }

    /// True if a node has a key, though it may not have written it for a while.
    pub(super) fn is_known(&self, node: NodeId) -> bool {
        node == self.own || self.others.contains_key(&node)
    }

    /// The nodes that are there.
    pub(super) fn alive(&self, now_ms: u64) -> impl Iterator<Item = NodeId> {
        let others = self.others.iter().filter(move |(_, seen)| now_ms < seen.at_ms + GONE_MS);
        std::iter::once(self.own).chain(others.map(|(node, _)| *node))
    }

    /// The nodes that have been there for a while.
    pub(super) fn settled(&self, now_ms: u64) -> impl Iterator<Item = NodeId> {
        let is_settled = move |seen: &Seen| now_ms < seen.at_ms + GONE_MS && now_ms >= seen.since_ms + SETTLED_MS;
        let others = self.others.iter().filter(move |(_, seen)| is_settled(seen));
        std::iter::once(self.own).chain(others.map(|(node, _)| *node))
    }

    /// True if it is time to write the own key with a command that has this number.
    pub(super) fn beat(&mut self, now_ms: u64) -> bool {
        let is_due = self.on_way.is_none() && now_ms >= self.due_ms;
        if is_due {
            self.on_way = Some(now_ms);
            self.due_ms = now_ms + BEAT_MS;
        }
        is_due
    }

    /// The write of the own key has ended.
    pub(super) fn beaten(&mut self, is_written: bool) {
        if let Some(sent_ms) = self.on_way.take().filter(|_| is_written) {
            self.lease_ms = sent_ms + LEASE_MS;
            if self.beaten_ms.is_some_and(|before_ms| sent_ms >= before_ms + AWAY_MS) {
                self.back_ms = Some(sent_ms);
            }
            self.beaten_ms = Some(sent_ms);
            self.unreported_ms.get_or_insert(sent_ms);
        }
    }

    /// True if the watch does not report what this node writes: it reports nothing of others either, so they may be there.
    pub(super) fn is_blind(&self, now_ms: u64) -> bool {
        self.unreported_ms.is_some_and(|written_ms| now_ms >= written_ms + BLIND_MS)
    }

    /// True if others may have taken this node for gone for long, a moment ago.
    pub(super) fn was_away(&self, now_ms: u64) -> bool {
        let is_away = self.beaten_ms.is_some_and(|beaten_ms| now_ms >= beaten_ms + AWAY_MS);
        is_away || self.back_ms.is_some_and(|back_ms| now_ms < back_ms + BACK_MS)
    }

    /// True if all others know that this node is there.
    pub(super) fn has_lease(&self, now_ms: u64) -> bool {
        now_ms < self.lease_ms
    }

    /// The time of the next write, in milliseconds.
    pub(super) fn next_ms(&self) -> u64 {
        self.due_ms
    }
}

/// The time between two writes of the own key, in milliseconds.
pub(super) const BEAT_MS: u64 = 1_000;
/// The time after which a node without a write is gone, in milliseconds.
pub(super) const GONE_MS: u64 = 5_000;
/// The time for which a write holds for this node itself, in milliseconds: shorter than [`GONE_MS`], and from the time when it was sent.
const LEASE_MS: u64 = 3_000;
/// The time after which a watch that does not report the own key is broken, in milliseconds: with [`BEAT_MS`] shorter than [`GONE_MS`].
const BLIND_MS: u64 = 3_000;
/// The time after which a node that has come gets partitions of others, in milliseconds.
const SETTLED_MS: u64 = 10_000;
/// A node that has written nothing for so long was away, in milliseconds: in twice that time others may have gone on with its partitions.
const AWAY_MS: u64 = 7_000;
/// The time for which it takes care after that, in milliseconds.
const BACK_MS: u64 = 30_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_gone_when_its_key_does_not_change() {
        let mut members = Members::new(NodeId(1));
        members.seen(1_000, NodeId(2), 7);
        members.seen(4_000, NodeId(2), 7);
        assert!(members.is_alive(5_999, NodeId(2)) && !members.is_alive(6_000, NodeId(2)));
        members.seen(6_000, NodeId(2), 9);
        assert!(members.is_alive(6_000, NodeId(2)) && members.is_known(NodeId(2)));
        members.watch_begins();
        members.watch_is_complete();
        assert!(!members.is_known(NodeId(2)) && members.is_alive(6_000, NodeId(1)));
    }

    #[test]
    fn a_node_whose_watch_is_silent_knows_it_before_it_takes_others_for_gone() {
        let mut members = Members::new(NodeId(1));
        let beat = |members: &mut Members, now_ms: u64, is_reported: bool| {
            assert!(members.beat(now_ms));
            if is_reported {
                members.seen(now_ms, NodeId(1), now_ms);
                members.seen(now_ms, NodeId(2), now_ms);
            }
            members.beaten(true);
        };
        for now_ms in [10_000, 11_000] {
            beat(&mut members, now_ms, true);
            assert!(!members.is_blind(now_ms + 1_000));
        }
        (12..16).for_each(|second| beat(&mut members, second * 1_000, false));
        assert!(members.is_blind(15_999) && members.is_alive(15_999, NodeId(2)));
        assert!(!members.is_alive(16_500, NodeId(2)));
        members.seen(16_500, NodeId(1), 1);
        assert!(!members.is_blind(16_500) && members.is_alive(16_500, NodeId(2)), "it is looked for again");
    }

    #[test]
    fn the_lease_ends_before_others_take_this_node_for_gone() {
        let mut members = Members::new(NodeId(1));
        assert!(members.beat(1_000) && !members.beat(5_000), "one write at a time");
        members.beaten(true);
        assert!(!members.has_lease(5_000), "it counts from the time when it was sent");
        assert!(members.beat(5_000));
        members.beaten(true);
        assert!(members.has_lease(7_999) && !members.has_lease(8_000));
        assert!(members.beat(6_000));
        members.beaten(false);
        assert!(members.has_lease(7_999) && members.next_ms() == 7_000);
        members.watch_begins();
        assert!(!members.has_lease(7_000) && members.beat(6_500), "the engine may have lost the key");
    }
}
