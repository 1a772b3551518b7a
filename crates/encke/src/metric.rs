//! The metrics that a program adds to those of its server.

use std::sync::{Arc, Mutex, PoisonError};

use encke_core::Meaning;

/// A metric of a program around the server, with its values. See [`Handle::add_metrics`].
///
/// [`Handle::add_metrics`]: crate::Handle::add_metrics
#[derive(Clone, Debug)]
pub struct Metric {
    name: &'static str,
    help: &'static str,
    kind: Meaning,
    values: Vec<(Vec<(&'static str, String)>, u64)>,
}

impl Metric {
    /// A metric that only increases. A scrape shows its name with `_total` at the end.
    pub fn counter(name: &'static str, help: &'static str) -> Metric {
        Metric { name, help, kind: Meaning::Counter, values: Vec::new() }
    }

    /// A metric that increases and decreases.
    pub fn gauge(name: &'static str, help: &'static str) -> Metric {
        Metric { name, help, kind: Meaning::Gauge, values: Vec::new() }
    }

    /// Adds a value, with names and values of labels. Each value of a metric has other labels; a value without labels is the only one.
    pub fn with(mut self, labels: &[(&'static str, &str)], value: u64) -> Metric {
        let labels = labels.iter().map(|(name, value)| (*name, value.to_string())).collect();
        self.values.push((labels, value));
        self
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn help(&self) -> &'static str {
        self.help
    }

    pub(crate) fn kind(&self) -> Meaning {
        self.kind
    }

    pub(crate) fn values(&self) -> &[(Vec<(&'static str, String)>, u64)] {
        &self.values
    }
}

type Read = dyn Fn() -> Vec<Metric> + Send + Sync;

/// The functions that read the metrics of the program.
#[derive(Default)]
pub(crate) struct AddedMetrics(Mutex<Vec<Arc<Read>>>);

impl AddedMetrics {
    pub(crate) fn add(&self, read: Arc<Read>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(read);
    }

    /// All metrics with their current values.
    pub(crate) fn all(&self) -> Vec<Metric> {
        let functions = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        functions.iter().flat_map(|read| read()).collect()
    }
}
