//! `/metrics` in the Prometheus text format.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::connection::Connection;
use super::{Body, api, text, whole};
use crate::net::server_shared::ServerShared;
use encke_core::Meaning;

/// Answers a scrape from this machine, or one with an API key that has the scope `metrics`.
pub(crate) fn answer<B>(connection: &Connection, request: &Request<B>) -> Response<Body> {
    let server_shared = &connection.node.server_shared;
    let is_local = connection.node.shard.borrow().settings().metrics_loopback && api::is_from_here(connection, request);
    if !is_local && !api::may_read_metrics(&server_shared.api.keys(), request.headers()) {
        return text(StatusCode::FORBIDDEN, "metrics are for this machine, or an API key with the scope metrics\n");
    }
    let (bytes, evicted) = server_shared.api.idempotency().figures();
    let metrics = server_shared.metrics.of_server();
    metrics.idempotency_bytes.set(bytes);
    metrics.idempotency_evicted.set(evicted);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Sums(connection.node.server_shared.clone())));
    let mut page = String::new();
    if encode(&mut page, &registry).is_err() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "the metrics could not be written\n");
    }
    let mut response = Response::new(whole(page));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// The type as the format names it.
fn type_of(meaning: Meaning) -> MetricType {
    if meaning == Meaning::Counter { MetricType::Counter } else { MetricType::Gauge }
}

/// Each metric, summed over the shards; then those of the program.
struct Sums(std::sync::Arc<ServerShared>);

impl std::fmt::Debug for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sums")
    }
}

impl Collector for Sums {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let shards: Vec<_> = self.0.metrics.all().iter().map(|metrics| metrics.all()).collect();
        let Some(first) = shards.first() else { return Ok(()) };
        for (index, (name, help, meaning, _)) in first.iter().enumerate() {
            let mut sum: u64 = shards.iter().map(|metrics| metrics[index].3).sum();
            if *name == "encke_connections" {
                sum = self.0.connections.open() as u64;
            }
            if *name == "encke_mailbox_bytes" {
                sum = self.0.mailboxes.account().bytes() as u64;
            }
            let metric = encoder.encode_descriptor(name, help.trim_end_matches('.'), None, type_of(*meaning))?;
            match meaning {
                Meaning::Counter => ConstCounter::new(sum).encode(metric)?,
                Meaning::Gauge => ConstGauge::new(sum as i64).encode(metric)?,
            }
        }
        for added in self.0.metrics.added() {
            let (name, help) = (added.name(), added.help().trim_end_matches('.'));
            let mut metric = encoder.encode_descriptor(name, help, None, type_of(added.kind()))?;
            let encode = |metric: MetricEncoder<'_>, value: u64| match added.kind() {
                Meaning::Counter => ConstCounter::new(value).encode(metric),
                Meaning::Gauge => ConstGauge::new(value as i64).encode(metric),
            };
            match added.values() {
                [(labels, value)] if labels.is_empty() => encode(metric, *value)?,
                values => {
                    for (labels, value) in values {
                        encode(metric.encode_family(labels)?, *value)?;
                    }
                }
            }
        }
        Ok(())
    }
}
