//! All metrics of a server.

use std::sync::Arc;

use crate::metric::{AddedMetrics, Metric};
use encke_core::Metrics;

/// The metrics of the shards and of the other threads, and those that the program adds.
pub(crate) struct ServerMetrics {
    shards: usize,
    all: Vec<Arc<Metrics>>,
    added: AddedMetrics,
}

impl ServerMetrics {
    pub(crate) fn new(shards: usize) -> ServerMetrics {
        let all = (0..shards + OTHERS).map(|_| Arc::default()).collect();
        ServerMetrics { shards, all, added: AddedMetrics::default() }
    }

    /// Those of a shard.
    pub(crate) fn of_shard(&self, shard: usize) -> &Arc<Metrics> {
        &self.all[shard]
    }

    /// Those of the store thread.
    pub(crate) fn of_store(&self) -> &Arc<Metrics> {
        &self.all[self.shards]
    }

    /// Those of the subscribers in the process.
    pub(crate) fn of_local(&self) -> &Arc<Metrics> {
        &self.all[self.shards + 1]
    }

    /// Those of the server as a whole, such as presence.
    pub(crate) fn of_server(&self) -> &Arc<Metrics> {
        &self.all[self.shards + 2]
    }

    /// All of them, whose sums a scrape shows.
    pub(crate) fn all(&self) -> &[Arc<Metrics>] {
        &self.all
    }

    /// Adds a function that reads metrics of the program.
    pub(crate) fn add(&self, read: impl Fn() -> Vec<Metric> + Send + Sync + 'static) {
        self.added.add(Arc::new(read));
    }

    /// The metrics of the program.
    pub(crate) fn added(&self) -> Vec<Metric> {
        self.added.all()
    }

    /// True if the store thread has panicked and answers every request as not persisted.
    pub(crate) fn history_store_has_panicked(&self) -> bool {
        self.of_store().history_store_panicked.get() > 0
    }
}

/// The store thread, the subscribers in the process, and the server.
const OTHERS: usize = 3;
