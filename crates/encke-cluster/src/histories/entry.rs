//! The entries of a partition's log, and the names of those that write and read them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use encke_core::{Id, Side};

/// One process of a node. A node that starts again is another one, because it has lost what it had in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NodeId(pub(super) u64);

impl NodeId {
    /// Stands for the journal among the nodes in sync.
    pub(super) const JOURNAL: NodeId = NodeId(u64::MAX);
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The time in which one node owns a partition. Its log goes on from one term to the next as long as the seed is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    /// The seed of the epochs.
    pub(super) seed: u64,
    /// Grows when the owner changes.
    pub(super) number: u64,
}

impl Term {
    /// True if it is of a later owner of the same log.
    pub(super) fn is_later_than(self, other: Term) -> bool {
        self.seed == other.seed && self.number > other.number
    }
}

/// A change of the history of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The channel.
    pub channel: Box<str>,
    /// The change.
    pub content: Content,
}

/// The content of a [`Submission`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Messages, as shards exchange them.
    Publications {
        /// The side that has made them.
        side: Side,
        /// The session that must not get them back.
        except: Option<Id>,
        /// Their number.
        messages: u32,
        /// WebSocket text frames, each with one message in an array.
        frames: Bytes,
    },
    /// Remove all messages before.
    Clear,
}

/// A change with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The node of the publisher.
    pub(super) source: NodeId,
    /// Its number among the entries of this source in this partition: 1, 2, 3, …
    pub(super) sequence: u64,
    /// The offset of its first message in the history of the channel.
    pub first: u64,
    /// The time of the owner, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The change.
    pub submission: Arc<Submission>,
}

#[cfg(test)]
impl Entry {
    /// An entry of some source.
    pub(crate) fn of_test(first: u64, wall_ms: u64, submission: Submission) -> Entry {
        Entry { source: NodeId(1), sequence: 1, first, wall_ms, submission: Arc::new(submission) }
    }
}

impl Submission {
    /// The number of its messages.
    pub fn messages(&self) -> u64 {
        match self.content {
            Content::Publications { messages, .. } => messages.into(),
            Content::Clear => 0,
        }
    }

    /// The memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let frames = match &self.content {
            Content::Publications { frames, .. } => frames.len(),
            Content::Clear => 0,
        };
        SUBMISSION_BYTES + self.channel.len() + frames
    }
}

/// The memory of an entry beside its channel and frames, and more than it takes in a message, in bytes.
const SUBMISSION_BYTES: usize = 192;
