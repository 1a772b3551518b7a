//! The metrics of all sources, by name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use encke::Metric;
use parking_lot::Mutex;

/// A number that increases, or a gauge.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The metrics of one source.
#[derive(Debug, Default)]
pub(crate) struct SourceMetrics {
    /// The kind of the source.
    pub(crate) kind: &'static str,
    /// 1 while it runs.
    pub(crate) running: Count,
    pub(crate) runs: Count,
    pub(crate) restarts: Count,
    pub(crate) messages: Count,
    pub(crate) errors: Count,
    pub(crate) busy: Count,
    pub(crate) superseded: Count,
}

/// The metrics of the sources that are configured now.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllMetrics(Arc<Mutex<BTreeMap<String, Arc<SourceMetrics>>>>);

impl AllMetrics {
    /// The metrics of a source, which continue those of a source of this name and kind.
    pub(crate) fn of(&self, name: &str, kind: &'static str) -> Arc<SourceMetrics> {
        let mut all = self.0.lock();
        let metrics = all.entry(name.into()).or_default();
        if metrics.kind != kind {
            *metrics = Arc::new(SourceMetrics { kind, ..SourceMetrics::default() });
        }
        metrics.clone()
    }

    pub(crate) fn remove(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// All metrics for a scrape.
    pub(crate) fn read(&self) -> Vec<Metric> {
        let all = self.0.lock();
        if all.is_empty() {
            return Vec::new();
        }
        type Field = fn(&SourceMetrics) -> &Count;
        let (gauge, counter) = (Metric::gauge, Metric::counter);
        let running = gauge("encke_source_running", "1 while the source runs, 0 while it waits for its next start.");
        let metrics: [(Metric, Field); 7] = [
            (running, |of| &of.running),
            (counter("encke_source_runs", "Starts of the source."), |of| &of.runs),
            (counter("encke_source_restarts", "Starts after a failure."), |of| &of.restarts),
            (counter("encke_source_messages", "Messages published."), |of| &of.messages),
            (counter("encke_source_errors", "Failures, and inputs that were not published."), |of| &of.errors),
            (counter("encke_source_busy", "Publications that the busy server refused; they were tried again."), |of| {
                &of.busy
            }),
            (counter("encke_source_superseded", SUPERSEDED), |of| &of.superseded),
        ];
        metrics
            .map(|(metric, field)| {
                all.iter().fold(metric, |metric, (name, of)| {
                    metric.with(&[("source", name), ("kind", of.kind)], field(of).get())
                })
            })
            .into()
    }
}

const SUPERSEDED: &str = "Messages that a newer one of their channel replaced while the server was busy.";
