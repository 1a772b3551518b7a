//! The metrics that a program adds to those of its server.

use encke_core::Meaning;

/// A metric of a program around the server, with its values. See [`Handle::add_metrics`].
///
/// [`Handle::add_metrics`]: crate::Handle::add_metrics
#[derive(Clone, Debug)]
pub struct Metric {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Meaning,
    pub(crate) values: Vec<(Vec<(&'static str, String)>, u64)>,
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

    /// A counter with one value.
    pub(crate) fn counter_of(name: &'static str, help: &'static str, value: u64) -> Metric {
        Metric::counter(name, help).with(&[], value)
    }

    /// A gauge with one value.
    pub(crate) fn gauge_of(name: &'static str, help: &'static str, value: usize) -> Metric {
        Metric::gauge(name, help).with(&[], value as u64)
    }

    /// Adds a value, with names and values of labels. Each value of a metric has other labels; a value without labels is the only one.
    pub fn with(mut self, labels: &[(&'static str, &str)], value: u64) -> Metric {
        let labels = labels.iter().map(|(name, value)| (*name, value.to_string())).collect();
        self.values.push((labels, value));
        self
    }
}
