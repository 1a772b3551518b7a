//! The claim of a partition in the engine's keys: its owner, and the nodes that have all that is committed.

use bytes::Bytes;
use encke_core::history::{Lineage, mixed};

use super::entry::{NodeId, Term};

/// The value of the key of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) owner: NodeId,
    /// Grows by [`OWNER_STEP`] with each owner, and by one when the owner writes its claim again because the engine has lost it.
    pub(super) number: u64,
    pub(super) lineage: Lineage,
    /// The nodes that have all committed entries, the owner among them, in order; [`NodeId::JOURNAL`] if the journal has them, too. Without their acknowledgement nothing is committed.
    pub(super) in_sync: Vec<NodeId>,
}

impl Claim {
    /// The term of its owner.
    pub(super) fn term(&self) -> Term {
        Term { seed: self.lineage.seed, number: self.number }
    }

    /// True if a node has all that is committed.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.in_sync.contains(&node)
    }

    /// The nodes in sync.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.in_sync.iter().copied().filter(|node| *node != NodeId::JOURNAL)
    }

    /// The same claim with another list.
    pub(super) fn with(&self, mut in_sync: Vec<NodeId>) -> Claim {
        in_sync.sort_unstable();
        in_sync.dedup();
        Claim { in_sync, ..self.clone() }
    }

    /// The next owner's claim.
    pub(super) fn passed_to(&self, owner: NodeId, in_sync: Vec<NodeId>) -> Claim {
        Claim { owner, number: next_number(self.number), ..self.with(in_sync) }
    }

    /// The claim of a node that goes on alone, with the journal if that has all.
    pub(super) fn passed_to_one(&self, owner: NodeId, has_journal: bool) -> Claim {
        let journal = (has_journal && self.has(NodeId::JOURNAL)).then_some(NodeId::JOURNAL);
        self.passed_to(owner, [owner].into_iter().chain(journal).collect())
    }

    /// The claim that its owner writes when the engine has lost this one.
    pub(super) fn restored(&self) -> Claim {
        Claim { number: self.number + 1, ..self.clone() }
    }

    /// True if the owner has written it again, and a later claim may have held before the engine has lost its keys.
    pub(super) fn is_restored(&self) -> bool {
        !self.number.is_multiple_of(OWNER_STEP)
    }

    pub(super) fn write(&self) -> Bytes {
        let mut bytes = vec![VERSION];
        let numbers = [self.owner.0, self.number, self.lineage.seed, self.lineage.first];
        let numbers = numbers.into_iter().chain(self.in_sync.iter().map(|node| node.0));
        numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.into()
    }

    /// Reads a claim. None if it is none, or one of another version.
    pub(super) fn read(bytes: &[u8]) -> Option<Claim> {
        let [VERSION, numbers @ ..] = bytes else { return None };
        let (numbers, []) = numbers.as_chunks::<8>() else { return None };
        let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let (owner, number) = (NodeId(numbers.next()?), numbers.next()?);
        let lineage = Lineage { seed: numbers.next()?, first: numbers.next()? };
        Some(Claim { owner, number, lineage, in_sync: numbers.map(NodeId).collect() })
    }
}

/// The number of the first claim of the owner after this one.
pub(super) fn next_number(number: u64) -> u64 {
    (number / OWNER_STEP + 1) * OWNER_STEP
}

/// The node that a partition belongs to: rendezvous hashing, so that few partitions move when a node comes or goes.
pub(super) fn first_of(nodes: impl Iterator<Item = NodeId>, partition: u16) -> Option<NodeId> {
    nodes.max_by_key(|node| (mixed(node.0 ^ mixed(u64::from(partition) + 1)), *node))
}

const VERSION: u8 = 1;
/// The numbers between the claims of two owners.
const OWNER_STEP: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_reads_back_and_nothing_else_is_one() {
        let lineage = Lineage { seed: 3, first: 4 };
        let claim = Claim { owner: NodeId(1), number: 2, lineage, in_sync: vec![NodeId(1), NodeId(u64::MAX)] };
        let bytes = claim.write();
        assert_eq!(Claim::read(&bytes), Some(claim));
        for length in (0..bytes.len()).filter(|length| length % 8 != 1 || *length < 33) {
            assert_eq!(Claim::read(&bytes[..length]), None, "{length}");
        }
        assert_eq!(Claim::read(&[&[2], &bytes[1..]].concat()), None);
    }

    #[test]
    fn a_restored_claim_has_a_number_before_that_of_the_next_owner() {
        let lineage = Lineage { seed: 3, first: 4 };
        let first = Claim { owner: NodeId(1), number: next_number(0), lineage, in_sync: vec![NodeId(1), NodeId(2)] };
        let (next, restored) = (first.passed_to(NodeId(2), vec![NodeId(2)]), first.restored().restored());
        assert!(!first.is_restored() && !next.is_restored() && restored.is_restored());
        assert!(first.number < restored.number && restored.number < next.number);
        let certain = restored.passed_to(NodeId(1), restored.in_sync.clone());
        assert!(!certain.is_restored() && certain.number == next.number);
    }

    #[test]
    fn few_partitions_move_when_a_node_comes() {
        let of = |count: u64, partition| first_of((1..=count).map(NodeId), partition);
        let moved: Vec<_> = (0..1_000).filter(|partition| of(3, *partition) != of(4, *partition)).collect();
        assert!(moved.iter().all(|partition| of(4, *partition) == Some(NodeId(4))));
        assert!((150..350).contains(&moved.len()), "{}", moved.len());
    }
}
