//! The numbers of a store of sessions: its state, and what it has done.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::metric::Metric;

/// The numbers of a store since the start of the node.
#[derive(Debug, Default)]
pub(crate) struct StoreNumbers {
    /// The store with its address.
    pub(crate) name: String,
    pub(crate) is_there: AtomicBool,
    /// Reads and writes that wait for the store, or are on their way.
    pub(crate) waiting: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) scavenges: AtomicU64,
    pub(crate) scavenged: AtomicU64,
    pub(crate) purged: AtomicU64,
}

impl StoreNumbers {
    /// Those of a store that has not answered yet.
    pub(crate) fn new(name: String) -> StoreNumbers {
        StoreNumbers { name, ..StoreNumbers::default() }
    }

    /// The metrics.
    pub(crate) fn metrics(&self) -> [Metric; 10] {
        let gauge = |name, help, value: u64| Metric::gauge_of(name, help, value as usize);
        let counter = |name, help, value: &AtomicU64| Metric::counter_of(name, help, value.load(Relaxed));
        [
            gauge(
                "encke_session_store_connected",
                "1 while the store of sessions answers.",
                self.is_there.load(Relaxed).into(),
            ),
            gauge(
                "encke_session_store_waiting",
                "Reads and writes of sessions that wait for their store: at most 64 writes, and forwarded_max reads.",
                self.waiting.load(Relaxed),
            ),
            counter("encke_session_store_batches", "Batches of reads or of writes.", &self.batches),
            counter("encke_session_store_read", "Sessions read from their store.", &self.read),
            counter("encke_session_store_written", "Sessions written to their store.", &self.written),
            counter(
                "encke_session_store_conflicts",
                "Writes of sessions that were refused, because another write came first.",
                &self.conflicts,
            ),
            counter(
                "encke_session_store_failed",
                "Reads and writes of sessions that have failed. They are tried again.",
                &self.failed,
            ),
            counter("encke_session_store_scavenges", "Scavenges of this node.", &self.scavenges),
            counter(
                "encke_session_store_scavenged",
                "Sessions that this node has ended, because their node was gone for longer than their clients may stay away.",
                &self.scavenged,
            ),
            counter(
                "encke_session_store_purged",
                "Old sessions that this node has deleted from the store.",
                &self.purged,
            ),
        ]
    }
}
