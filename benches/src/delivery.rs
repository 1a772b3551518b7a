//! The page of `make bench-delivery`: the cost of acknowledgement, history and replay, each beside a run without it.
//!
//! Reports are collected as for [`compare`](crate::compare); see [`Runs`]. The compared variants take turns, and each
//! figure is the median of its runs.

use encke_bench::report::chart::{Axis, Bar, Bars, Chart, Group, Scale, Unit};

use crate::compare::runs::{Runs, median};
use crate::measured::{Measured, Wanted};
use crate::rows::{self, Row, cpu_ns, deliveries_per_s};

/// The rows of `make bench-delivery`.
pub const ROWS: &[Row] = &[
    Row {
        what: "With acknowledgement: highest deliveries/s to 1,000 WebSockets",
        case: "most",
        of: "ack",
        beside: Some(("plain", "plain")),
        figure: deliveries_per_s,
        wanted: Wanted::TimesAtLeast(0.6),
    },
    Row {
        what: "With acknowledgement: CPU per delivery at 100,000 deliveries/s, ns",
        case: "fanout",
        of: "ack",
        beside: Some(("plain", "plain")),
        figure: cpu_ns,
        wanted: Wanted::Nothing,
    },
    Row {
        what: "With a history: CPU per delivery at 100,000 deliveries/s, ns",
        case: "fanout",
        of: "history",
        beside: Some(("plain", "plain")),
        figure: cpu_ns,
        wanted: Wanted::TimesAtMost(1.15),
    },
    Row {
        what: "With a history, subscribers replay: CPU per delivery at 100,000 deliveries/s, ns",
        case: "fanout",
        of: "replay",
        beside: Some(("plain", "plain")),
        figure: cpu_ns,
        wanted: Wanted::TimesAtMost(1.15),
    },
    Row {
        what: "History on disk, `interval` commits: highest publications/s of 200 bytes",
        case: "log",
        of: "durable",
        beside: Some(("memory", "in memory")),
        figure: deliveries_per_s,
        wanted: Wanted::AtLeast(300_000.0),
    },
    Row {
        what: "While 100 sessions replay 10,000 messages each, again and again: p99 of 100,000 deliveries/s to others, ms",
        case: "others",
        of: "busy",
        beside: Some(("quiet", "no replay")),
        figure: |run| Some(run.trial()?.latency.as_ref()?.p99_us as f64 / 1000.0),
        wanted: Wanted::AtMost(50.0),
    },
    Row {
        what: "Messages replayed per second meanwhile",
        case: "replay",
        of: "busy",
        beside: None,
        figure: deliveries_per_s,
        wanted: Wanted::Nothing,
    },
];

/// The page of `make bench-delivery`.
pub fn measured(runs: &Runs) -> Measured {
    let (table, all_hold) = rows::table(ROWS, runs);
    Measured {
        name: "delivery",
        title: "The cost of reliable delivery",
        table,
        all_hold,
        chart: chart(runs).map(|chart| (chart, "Processor time for a delivery")),
        explanation: EXPLANATION,
        others_cores: others_cores(runs),
    }
}

/// A chart with a bar for each variant's processor time; none if nothing was measured.
fn chart(runs: &Runs) -> Option<Chart> {
    let ways = [("plain", "plain"), ("ack", "acknowledged"), ("history", "with a history"), ("replay", "and replay")];
    let bar = |(label, name): (&str, &str)| {
        let figure = runs.median("fanout", label, cpu_ns)?;
        Some(Group { name: name.into(), bars: vec![Bar::of(figure / 1000.0)] })
    };
    let groups: Vec<Group> = ways.into_iter().filter_map(bar).collect();
    (!groups.is_empty()).then(|| {
        Chart::Bars(Bars {
            title: "Processor time for a delivery, 100 publications/s to 1,000 WebSockets".into(),
            note: "One write for each delivery; shorter is better.".into(),
            axis: Axis::new("µs", Unit::Micros, Scale::Linear),
            series: vec!["processor time".into()],
            groups,
        })
    })
}

/// The median number of cores that other processes used during the runs where nothing else was to run.
fn others_cores(runs: &Runs) -> Option<f64> {
    let alone = runs.runs.iter().filter(|run| run.label != "busy");
    median(alone.filter_map(|run| run.trial()?.others_cores).collect())
}

const EXPLANATION: &str = "\
Repeat with `make bench-delivery`. The server runs on core 0, the load on core 1. The compared runs take turns, and each figure is
the median of its runs. The load publishes at planned times and checks that every subscriber gets every message once and in
order. Runs that lose anything or do not keep up do not count; a note names the missing ones. A figure with “≥” is a lower
bound: the load had no core left, or the time of the search ended. These commands give the rows:

- `encke bench broadcast --find-max --p99 1s`, with and without `--ack`: 1,000 subscribers, 50 bytes of data. Clients that
  acknowledge behave as CometD's: messages come with connect replies, and after each reply the client sends a connect;
- `encke bench broadcast --rate 100`, plain, with `--ack`, on a channel with `history_messages = 10000`, and there with `--replay`;
- `encke bench broadcast --find-max --clients 1 --message-size 200`, one publisher and one subscriber: the server once with
  `--data DIR` and `history_commit = \"interval\"` (1 s), once without; then the history is in memory;
- `encke bench broadcast --rate 100`, with and without `encke bench replay` beside it: 100 clients open a session, replay
  10,000 messages each, leave, and begin again. Both loads share core 1, the replaying one with a lower priority (`nice`).
";
