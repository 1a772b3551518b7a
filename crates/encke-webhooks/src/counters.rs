//! The metrics of a webhook.

use std::sync::atomic::{AtomicU64, Ordering};

use encke::Metric;

use crate::breaker::State;

/// The counters of a webhook.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) answered: Counter,
    pub(crate) rejected: Counter,
    pub(crate) failed: Counter,
    pub(crate) retries: Counter,
    pub(crate) opened: Counter,
    pub(crate) undecided: Counter,
    pub(crate) dropped: Counter,
    pub(crate) actions_failed: Counter,
}

/// A number that several threads increase.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Returns the number before.
    pub(crate) fn increment(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The values of a webhook at one time.
pub(crate) struct Snapshot<'a> {
    pub(crate) name: &'a str,
    pub(crate) counters: &'a Counters,
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    pub(crate) breaker: State,
}

/// The metrics of all webhooks, with the name of each as a label.
pub(crate) fn metrics(webhooks: &[Snapshot<'_>]) -> Vec<Metric> {
    let by = |metric: Metric, value: fn(&Snapshot<'_>) -> u64| {
        webhooks.iter().fold(metric, |metric, webhook| metric.with(&[("webhook", webhook.name)], value(webhook)))
    };
    let requests = Metric::counter("encke_webhook_requests", "Requests to backends, by webhook and result.");
    let requests = webhooks.iter().fold(requests, |metric, webhook| {
        let Counters { answered, rejected, failed, .. } = webhook.counters;
        [("answered", answered), ("rejected", rejected), ("failed", failed)]
            .iter()
            .fold(metric, |metric, (result, counter)| {
                metric.with(&[("webhook", webhook.name), ("result", result)], counter.get())
            })
    });
    let counter = |name, help, value| by(Metric::counter(name, help), value);
    let gauge = |name, help, value| by(Metric::gauge(name, help), value);
    vec![
        requests,
        counter("encke_webhook_retries", "Requests that repeat an event.", |webhook| webhook.counters.retries.get()),
        counter("encke_webhook_breaker_opened", "Times that the breaker has opened.", |webhook| {
            webhook.counters.opened.get()
        }),
        gauge("encke_webhook_breaker_open", "1 while the breaker is open: requests wait or are not made.", |webhook| {
            u64::from(webhook.breaker != State::Closed)
        }),
        counter("encke_webhook_undecided", "Decisions and calls without an answer of the backend.", |webhook| {
            webhook.counters.undecided.get()
        }),
        counter("encke_webhook_notifications_dropped", "Notifications dropped: too old, or no room.", |webhook| {
            webhook.counters.dropped.get()
        }),
        counter("encke_webhook_actions_failed", "Actions of backends that could not be performed.", |webhook| {
            webhook.counters.actions_failed.get()
        }),
        gauge("encke_webhook_queue_messages", "Events that wait for the backend or are under way.", |webhook| {
            webhook.messages as u64
        }),
        gauge("encke_webhook_queue_bytes", "Bytes of these events.", |webhook| webhook.bytes as u64),
    ]
}
