//! A client that replays: it stores the position it has reached in each channel with a history, and resumes there.
//!
//! Such a client gets each retained message that it has not seen once and in order, across all its sessions, or a
//! report of the loss. To check this, the world reads the histories themselves: see [`Records`](crate::records::Records).

use std::collections::{BTreeMap, BTreeSet};

/// The replay state of a client.
#[derive(Debug, Default)]
pub struct Follower {
    /// The names to which it resubscribes when it returns.
    pub wanted: BTreeSet<String>,
    /// The epoch and offset of the last message of each channel that it received or that was reported to it.
    pub last: BTreeMap<String, (String, u64)>,
    /// Its expectation for each channel in its session.
    pub footing: BTreeMap<String, Footing>,
    /// Losses that were reported on another connection before the reply to the subscribe from which they come: the first and the last offset.
    pub early_losses: BTreeMap<String, (u64, u64)>,
    /// True if it continues its session, but must first resubscribe at its positions.
    pub names_positions: bool,
}

/// A client's expectation for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Footing {
    /// It has requested the channel, after the first offset if it named one. The second offset is the first message
    /// received.
    Requested(Option<u64>, Option<u64>),
    /// The next message directly follows the last.
    Firm,
}
