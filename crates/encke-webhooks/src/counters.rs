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
    let requests = Metric::counter("encke_webhook_requests", "Requests to backends, by webhook and result.");
    let requests = webhooks.iter().fold(requests, |metric, webhook| {
        let Counters { answered, rejected, failed, .. } = webhook.counters;
        [("answered", answered), ("rejected", rejected), ("failed", failed)]
            .iter()
            .fold(metric, |metric, (result, counter)| {
                metric.with(&[("webhook", webhook.name), ("result", result)], counter.get())
            })
    });
    let counter = |name, help, of: fn(&Counters) -> &Counter| {
        webhooks.iter().fold(Metric::counter(name, help), |metric, webhook| {
            metric.with(&[("webhook", webhook.name)], of(webhook.counters).get())
        })
    };
    let gauge = |name, help, value: fn(&Snapshot<'_>) -> usize| {
        webhooks.iter().fold(Metric::gauge(name, help), |metric, webhook| {
            metric.with(&[("webhook", webhook.name)], value(webhook) as u64)
        })
    };
    vec![
        requests,
        counter("encke_webhook_retries", "Requests that repeat an event.", |of| &of.retries),
        counter("encke_webhook_breaker_opened", "Times that the breaker has opened.", |of| &of.opened),
        gauge("encke_webhook_breaker_open", "1 while the breaker is open: requests wait or are not made.", |webhook| {
            usize::from(webhook.breaker != State::Closed)
        }),
        counter("encke_webhook_undecided", "Decisions and calls without an answer of the backend.", |of| &of.undecided),
        counter("encke_webhook_notifications_dropped", "Notifications dropped: too old, or no room.", |of| &of.dropped),
        counter("encke_webhook_actions_failed", "Actions of backends that could not be performed.", |of| {
            &of.actions_failed
        }),
        gauge("encke_webhook_queue_messages", "Events that wait for the backend or are under way.", |of| of.messages),
        gauge("encke_webhook_queue_bytes", "Bytes of these events.", |of| of.bytes),
    ]
}
