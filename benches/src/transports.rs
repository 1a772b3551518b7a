//! The pages of `make bench-streams` and `make bench-http2`: a broadcast over plain WebSockets and over other transports.
//!
//! Reports are collected as for [`compare`](crate::compare); see [`Runs`]. The transports take turns, and each figure is the median of its
//! runs.

use encke_bench::report::chart::{Axis, Bar, Bars, Chart, Group, Scale, Unit};

use crate::compare::runs::{Run, Runs, median};
use crate::measured::{Measured, Wanted};
use crate::rows::{self, Row, cpu_ns, deliveries_per_s};

/// The rows of `make bench-streams`.
pub const STREAMS: &[Row] = &[
    row(GATHERED, "most", "eventsource", deliveries_per_s, Wanted::TimesAtLeast(0.6)),
    row(ALONE, "fanout", "eventsource", deliveries_per_core, Wanted::Nothing),
    row(CPU, "fanout", "eventsource", cpu_ns, Wanted::Nothing),
];

/// The rows of `make bench-http2`.
pub const HTTP2: &[Row] = &[
    row(GATHERED_ONE, "most", "http2-1", deliveries_per_s, Wanted::Nothing),
    row(GATHERED_TEN, "most", "http2-10", deliveries_per_s, Wanted::Nothing),
    row(ALONE_ONE, "fanout", "http2-1", deliveries_per_core, Wanted::TimesAtLeast(0.7)),
    row(ALONE_TEN, "fanout", "http2-10", deliveries_per_core, Wanted::TimesAtLeast(2.0)),
    row(CPU_ONE, "fanout", "http2-1", cpu_ns, Wanted::Nothing),
    row(CPU_TEN, "fanout", "http2-10", cpu_ns, Wanted::Nothing),
];

/// The page of `make bench-streams`.
pub fn streams(runs: &Runs) -> Measured {
    page("streams", "Streams of events beside WebSockets", STREAMS, &["websocket", "eventsource"], runs)
}

/// The page of `make bench-http2`.
pub fn http2(runs: &Runs) -> Measured {
    page("http2", "WebSockets over HTTP/2 beside plain ones", HTTP2, &["websocket", "http2-1", "http2-10"], runs)
}

const fn row(
    what: &'static str,
    case: &'static str,
    of: &'static str,
    figure: fn(&Run) -> Option<f64>,
    wanted: Wanted,
) -> Row {
    Row { what, case, of, beside: Some(("websocket", "WebSocket")), figure, wanted }
}

fn page(name: &'static str, title: &'static str, rows: &[Row], transports: &[&str], runs: &Runs) -> Measured {
    let (table, all_hold) = rows::table(rows, runs);
    let chart = chart(transports, runs).map(|chart| (chart, "Processor time for a delivery"));
    let others_cores = median(runs.runs.iter().filter_map(|run| run.trial()?.others_cores).collect());
    Measured { name, title, table, all_hold, chart, explanation: EXPLANATION, others_cores }
}

/// The processor time of a delivery over each transport; none if one was not measured.
fn chart(transports: &[&str], runs: &Runs) -> Option<Chart> {
    let bars = |case: &str| {
        let bar = |label: &&str| runs.median(case, label, cpu_ns).map(|ns| Bar::of(ns / 1000.0));
        transports.iter().map(bar).collect::<Option<Vec<_>>>()
    };
    let group = |(case, name): (&str, &str)| Some(Group { name: name.into(), bars: bars(case)? });
    let groups: Vec<Group> =
        [("most", "gathered"), ("fanout", "nothing gathers")].into_iter().filter_map(group).collect();
    (!groups.is_empty()).then(|| {
        Chart::Bars(Bars {
            title: "Processor time for a delivery".into(),
            note: "The server on one core; shorter is better.".into(),
            axis: Axis::new("µs", Unit::Micros, Scale::Linear),
            series: transports.iter().map(|label| (*label).to_owned()).collect(),
            groups,
        })
    })
}

/// The deliveries that one core could make in a second, if each took the time that it took in this run.
fn deliveries_per_core(run: &Run) -> Option<f64> {
    cpu_ns(run).filter(|ns| *ns > 0.0).map(|ns| 1e9 / ns)
}

const GATHERED: &str = "Gathered: highest deliveries/s to 1,000 clients";
const GATHERED_ONE: &str = "Gathered, a stream on each connection: highest deliveries/s to 1,000 clients";
const GATHERED_TEN: &str = "Gathered, ten streams on each connection: highest deliveries/s to 1,000 clients";
const ALONE: &str = "Nothing gathers: deliveries/s that a core has the time for";
const ALONE_ONE: &str = "Nothing gathers, a stream on each connection: deliveries/s that a core has the time for";
const ALONE_TEN: &str = "Nothing gathers, ten streams on each connection: deliveries/s that a core has the time for";
const CPU: &str = "Nothing gathers: CPU per delivery at 100,000 deliveries/s, ns";
const CPU_ONE: &str = "Nothing gathers, a stream on each connection: CPU per delivery at 100,000 deliveries/s, ns";
const CPU_TEN: &str = "Nothing gathers, ten streams on each connection: CPU per delivery at 100,000 deliveries/s, ns";

const EXPLANATION: &str = "\
Repeat with `make bench-streams` or `make bench-http2`. The server runs on core 0, the load on core 1, without TLS. The transports take
turns, and each figure is the median of its runs. One publisher publishes 50 bytes of data at planned times to 1,000 subscribers; the load
checks that each of them gets every message once and in order. Runs that lose anything or do not keep up do not count; a note names the
missing ones. A figure with “≥” is a lower bound: the load had no core left, or the time of the search ended. These commands give the rows:

- `encke bench broadcast --find-max --p99 1s`: each write to a subscriber gathers many messages;
- `encke bench broadcast --rate 100`: each delivery is a write; over HTTP/2 with ten streams on a connection, ten deliveries are one.

`--transport eventsource` is for streams of events, whose publisher has a WebSocket; `--http2 --streams-per-connection N` for
WebSockets over HTTP/2 (RFC 8441).
";
