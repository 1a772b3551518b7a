//! The log of the histories on a simulated disk.

use std::collections::VecDeque;

use encke_core::PersistRequest;
use encke_store::HistoryStore;
use simulated_disk::SimDisk;

/// The data directory of the server, and its store.
pub(crate) struct Log {
    /// The disk, which outlives the process.
    pub(crate) disk: SimDisk,
    pub(crate) history_store: HistoryStore<SimDisk>,
    /// The requests of each shard, oldest first. Those of different shards may overtake each other.
    pub(crate) inboxes: Vec<VecDeque<PersistRequest>>,
}

impl Log {
    /// True if no shard has a pending request.
    pub(crate) fn is_idle(&self) -> bool {
        self.inboxes.iter().all(VecDeque::is_empty)
    }
}
