//! The rings of a node, as its partitions see them: the histories of the channels.

use bytes::Bytes;
use encke_core::PublishToken;
use encke_core::history::Lineage;

use super::entry::Entry;

/// A position among the rings of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The shard of the ring.
    pub owner: u64,
    /// Its index there.
    pub slot: u64,
    /// The offset of a message in it.
    pub offset: u64,
}

/// Rings, or parts of rings, as bytes.
#[derive(Debug, Default)]
pub struct Copied {
    /// Each with a ring, or a part of one.
    pub records: Vec<Bytes>,
    /// Where the rest begins, if there is one.
    pub next: Option<Cursor>,
    /// An offset above those of all rings of the partition that are gone.
    pub floor: u64,
}

/// The rings of this node. Only its partitions change them.
pub trait Rings {
    /// Begins the rings of a partition: those of another lineage are removed. Until the first call for a partition its channels have
    /// none.
    fn begin(&mut self, partition: usize, lineage: Lineage);

    /// Removes the rings of a partition: what they have is not all that was before what comes now.
    fn clear(&mut self, partition: usize);

    /// The offset of the next message of a channel, in its ring or in a new one.
    fn next_of(&mut self, channel: &str) -> u64;

    /// Applies an entry that is committed, and passes its messages to the subscribers. Messages that the ring has already change
    /// nothing. `token`: the publisher on this node that waits for the position.
    fn commit(&mut self, entry: &Entry, token: Option<PublishToken>);

    /// Applies an entry that the journal has, as [`Rings::commit`] does. It has come at this time, in milliseconds. `is_live`: its messages
    /// are passed to subscribers.
    fn replay(&mut self, entry: &Entry, came_ms: u64, is_live: bool);

    /// An offset above those of all rings of a partition.
    fn floor(&self, partition: usize) -> u64;

    /// Copies rings of a partition from here on, in some `bytes_max` bytes.
    fn copy(&mut self, partition: usize, from: Option<Cursor>, bytes_max: usize) -> Copied;

    /// Adds a record of another node's rings to this node's. `is_live`: its messages that are new here are passed to subscribers.
    fn restore(&mut self, lineage: Lineage, record: &Bytes, is_live: bool);

    /// New rings of a partition begin at this offset or above it, in this lineage.
    fn raise_floor(&mut self, partition: usize, lineage: Lineage, floor: u64);

    /// The next message of each ring of a partition gets this offset or a higher one, in this lineage.
    fn leap(&mut self, partition: usize, lineage: Lineage, next: u64);

    /// True if there is room for more that is committed in a partition.
    fn has_room(&self, partition: usize) -> bool;
}
