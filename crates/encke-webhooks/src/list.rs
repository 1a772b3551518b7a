//! The operation of the HTTP API that lists the webhooks.

use std::sync::Arc;

use encke::{ApiOperation, Scope};
use schemars::JsonSchema;
use serde::Serialize;

use crate::backend::Backend;
use crate::breaker::State;
use crate::settings::EventKind;

/// The webhooks of the server.
#[derive(Serialize, JsonSchema)]
struct WebhookList {
    /// They are in the order of the configuration.
    webhooks: Vec<WebhookItem>,
}

/// A webhook.
#[derive(Serialize, JsonSchema)]
struct WebhookItem {
    /// Its name in logs and metrics.
    name: String,
    /// Its URL; `***` stands for name, password and query.
    url: String,
    /// The events that it gets.
    events: Vec<EventKind>,
    /// The channels and patterns whose events it gets.
    channels: Vec<String>,
    /// The state of its circuit breaker.
    breaker: Breaker,
    /// Events that wait or are under way.
    queue_messages: usize,
    /// Bytes of these events.
    queue_bytes: usize,
    /// Requests that the backend has answered.
    answered: u64,
    /// Requests with a status that is not tried again.
    rejected: u64,
    /// Requests without an answer, or with a status that is tried again.
    failed: u64,
}

/// The state of a circuit breaker.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Breaker {
    /// Requests are sent.
    Closed,
    /// The backend has failed: no request is sent for a while.
    Open,
    /// One request is under way, which decides.
    HalfOpen,
}

/// The operation, for the webhooks with these backends.
pub(crate) fn operation(backends: Vec<Arc<Backend>>) -> ApiOperation {
    let list = move || WebhookList { webhooks: backends.iter().map(|backend| item(backend)).collect() };
    ApiOperation::get("listWebhooks", "/webhooks", Scope::Read, list).summary("List the webhooks").description(
        "Each with the state of its circuit breaker and its queue. A server without webhooks has an empty list.",
    )
}

fn item(backend: &Backend) -> WebhookItem {
    let (settings, now) = (backend.settings(), backend.snapshot());
    WebhookItem {
        name: now.name.into(),
        url: settings.url.to_string(),
        events: settings.events.clone(),
        channels: settings.channels.clone(),
        breaker: match now.breaker {
            State::Closed => Breaker::Closed,
            State::Open { .. } => Breaker::Open,
            State::HalfOpen => Breaker::HalfOpen,
        },
        queue_messages: now.messages,
        queue_bytes: now.bytes,
        answered: now.counters.answered.get(),
        rejected: now.counters.rejected.get(),
        failed: now.counters.failed.get(),
    }
}
