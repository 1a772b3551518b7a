//! All metrics of a server.

use std::sync::Arc;

use crate::metric::Metric;
use encke_core::Metrics;
use parking_lot::Mutex;

type Read = dyn Fn() -> Vec<Metric> + Send + Sync;

/// The metrics of the shards and of the other threads, and those that the program adds.
pub(crate) struct ServerMetrics {
    shards: usize,
    all: Vec<Arc<Metrics>>,
    /// The functions that read the metrics of the program.
    added: Mutex<Vec<Arc<Read>>>,
}

impl ServerMetrics {
    pub(crate) fn new(shards: usize) -> ServerMetrics {
        let all = (0..shards + OTHERS).map(|_| Arc::default()).collect();
        ServerMetrics { shards, all, added: Mutex::default() }
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

    /// The sums of all of them, and the metrics of the program with their current values.
    pub(crate) fn read(&self) -> Vec<Metric> {
        let parts: Vec<_> = self.all.iter().map(|metrics| metrics.all()).collect();
        let sum = |(index, (name, help, kind, _)): (usize, _)| {
            let value = parts.iter().map(|metrics| metrics[index].3).sum();
            Metric { name, help, kind, values: vec![(Vec::new(), value)] }
        };
        let added = self.added.lock().clone();
        let first = self.all[0].all().into_iter();
        first.enumerate().map(sum).chain(added.iter().flat_map(|read| read())).collect()
    }

    /// Adds a function that reads metrics of the program.
    pub(crate) fn add(&self, read: impl Fn() -> Vec<Metric> + Send + Sync + 'static) {
        self.added.lock().push(Arc::new(read));
    }
}

/// The store thread, the subscribers in the process, and the server.
const OTHERS: usize = 3;
