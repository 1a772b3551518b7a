//! Publications on their way to outboxes.

pub(crate) mod backpressure;
pub(crate) mod burst;
pub(crate) mod delivery;
pub(crate) mod encoder;
pub(crate) mod push;

use crate::outbox::Latest;
use crate::relief::Relief;

/// The frames of publications on this shard, and their readers.
pub(crate) struct FanOut {
    /// The frames that outboxes share.
    pub(crate) encoder: encoder::Encoder,
    /// The care for their memory: it is packed and freed.
    pub(crate) relief: Relief,
    /// Readers that are behind.
    pub(crate) backpressure: backpressure::Backpressure,
    /// A pass over the outbox of the session that is the first to get one.
    pub(crate) pass: Latest,
    publications: u64,
}

impl FanOut {
    /// Nothing is fanned out yet.
    pub(crate) fn new() -> FanOut {
        let (relief, backpressure) = (Relief::default(), backpressure::Backpressure::default());
        FanOut { encoder: encoder::Encoder::new(), relief, backpressure, pass: Latest::default(), publications: 0 }
    }

    /// Counts a fan-out. Its number is the stamp of the sessions that have got it.
    pub(crate) fn next_publication(&mut self) -> u64 {
        self.publications += 1;
        self.publications
    }
}
