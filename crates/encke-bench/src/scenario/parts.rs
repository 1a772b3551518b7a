//! Parts that several scenarios use.

use std::time::Duration;

use crate::order::{ClientsSpec, Membership, Order, Recipients, Senders, Size, Traffic};
use crate::problem::Problem;
use crate::run::{Bench, Carriage, Limits, Measure, Sending, parse};

/// `clients` subscribers and `publishers` publishing sessions.
pub(super) fn clients_spec(
    bench: &Bench,
    carriage: &Carriage,
    clients: u32,
    publishers: u32,
    membership: Membership,
) -> ClientsSpec {
    ClientsSpec {
        target: bench.common.target.clone(),
        publish_to: carriage.publish_to.clone(),
        trust: bench.common.trust.clone(),
        transport: carriage.transport,
        recovery: carriage.recovery(),
        compress: carriage.compress,
        streams_per_connection: carriage.streams_per_connection(),
        clients,
        membership,
        publishers,
        opening_at_once: carriage.opening,
        opens_per_s: None,
        reconnect: false,
        no_reply: false,
    }
}

/// Rooms below `channel`, each client in `per_client` of them.
pub(super) fn membership(channel: &str, rooms: u32, per_client: u32) -> Membership {
    Membership { channel: channel.trim_end_matches('/').into(), rooms, per_client, seed: SEED, first: 0 }
}

/// Deliveries that a message to a room leads to, on average.
pub(super) fn fan_out(spec: &ClientsSpec) -> f64 {
    let members = f64::from(spec.clients) * f64::from(spec.membership.per_client);
    members / f64::from(spec.membership.rooms.max(1))
}

/// Single messages of `data_bytes` to rooms.
pub(super) fn traffic(senders: Senders, batches_per_s: Option<f64>, data_bytes: u32) -> Traffic {
    Traffic { batches_per_s, batch_size: 1, senders, recipients: Recipients::AnyRoom, data_bytes, seed: SEED }
}

/// An order for this traffic; a [`RateSeries`](crate::run::RateSeries) replaces its length.
pub(super) fn order(bench: &Bench, sending: &Sending, traffic: Traffic, size: Size) -> Order {
    Order {
        traffic,
        warm_up_ms: bench.common.warm_up.as_millis() as u64,
        size,
        // Late messages may still arrive; then they count as late and not as lost.
        drain_timeout_ms: (sending.late_after + TIMEOUT_AFTER_LATE).as_millis() as u64,
        late_after_us: sending.late_after.as_micros() as u64,
        give_up_us: None,
        cuts: None,
    }
}

/// `--duration`.
pub(super) fn duration(bench: &Bench) -> Size {
    Size::Ms(bench.common.duration.as_millis() as u64)
}

/// Runs `order` for the warm-up time and discards the outcome. Returns false if the run is to end.
pub(super) fn warm_up(measure: &mut Measure<'_>, order: &Order) -> Result<bool, Problem> {
    let warm_up_ms = measure.bench.common.warm_up.as_millis() as u64;
    if warm_up_ms == 0 {
        return measure.open();
    }
    let order = Order { warm_up_ms, size: Size::Ms(0), ..order.clone() };
    let warmed = measure.trial("warm-up", &order, Limits::default())?;
    Ok(warmed.is_some() && !measure.bench.interrupt.is_set())
}

/// A size of data that a stamp fits into.
pub(super) fn data_size(text: &str) -> Result<u32, String> {
    let least = crate::engine::stamp::DATA_BYTES_MIN;
    match parse::size(text)? {
        size if (size as usize) < least => Err(format!("a message has at least {least} bytes, to be known again")),
        size => Ok(size),
    }
}

/// The name of a channel that rooms are below.
pub(super) fn channel(text: &str) -> Result<String, String> {
    if !text.starts_with('/')
        || text.starts_with("/meta/")
        || text.contains(['*', ' ', '"', '\\'])
        || text.contains("//")
    {
        return Err("a channel such as /bench/a, without wildcards".into());
    }
    Ok(text.into())
}

/// The number that makes choices repeatable: the same rooms and senders in each run.
const SEED: u64 = 2010;
const TIMEOUT_AFTER_LATE: Duration = Duration::from_secs(2);
