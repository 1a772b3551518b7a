//! `/metrics` in the Prometheus text format.

use http::{Request, Response, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::connection::Connection;
use super::{Body, api, text, typed};
use crate::metric::Metric;
use encke_core::Meaning;

/// Answers a scrape from this machine, or one with an API key that has the scope `metrics`.
pub(crate) fn answer<B>(connection: &Connection, request: &Request<B>) -> Response<Body> {
    let server = connection.node.server();
    let is_local = connection.node.shard().settings().metrics_loopback && api::is_from_here(connection, request);
    if !is_local && !api::may_read_metrics(&server.api.keys.read(), request.headers()) {
        return text(StatusCode::FORBIDDEN, "metrics are for this machine, or an API key with the scope metrics\n");
    }
    let (bytes, evicted) = server.api.idempotency.figures();
    let metrics = server.metrics.of_server();
    metrics.idempotency_bytes.set(bytes);
    metrics.idempotency_evicted.set(evicted);
    metrics.connections.set(server.connections.open());
    metrics.mailbox_bytes.set(server.mailboxes.account().bytes());
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Sums(server.metrics.read())));
    let mut page = String::new();
    if encode(&mut page, &registry).is_err() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "the metrics could not be written\n");
    }
    typed(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", page)
}

/// The metrics of a scrape.
#[derive(Debug)]
struct Sums(Vec<Metric>);

impl Collector for Sums {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for Metric { name, help, kind, values } in &self.0 {
            let shown = if *kind == Meaning::Counter { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = encoder.encode_descriptor(name, help.trim_end_matches('.'), None, shown)?;
            let encode = |metric: MetricEncoder<'_>, value: u64| match kind {
                Meaning::Counter => ConstCounter::new(value).encode(metric),
                Meaning::Gauge => ConstGauge::new(value as i64).encode(metric),
            };
            match &values[..] {
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
