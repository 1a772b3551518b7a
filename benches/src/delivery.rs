//! The page of `make bench-delivery`: the cost of acknowledgement, history and replay, each beside a run without it.
//!
//! Reports are collected as for [`compare`](crate::compare); see [`Runs`]. The compared variants take turns, and each
//! figure is the median of its runs.

use std::fmt::Write as _;

use encke_bench::report::chart::{Axis, Bar, Bars, Chart, Group, Scale, Unit};
use encke_bench::report::units::number;

use crate::compare::runs::{Run, Runs, median};
use crate::measured::{Measured, Wanted};

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// The measured quantity, with its unit.
    pub what: &'static str,
    /// The case of its reports.
    pub case: &'static str,
    /// The label of the reports it is about.
    pub of: &'static str,
    /// The label and the description of the runs to compare with.
    pub beside: Option<(&'static str, &'static str)>,
    /// Reads the figure from a run.
    pub figure: fn(&Run) -> Option<f64>,
    /// The demand on the figure.
    pub wanted: Wanted,
}

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
    let (table, all_hold) = table(runs);
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

/// Returns the table in Markdown, and true if all demanded figures were measured and hold.
fn table(runs: &Runs) -> (String, bool) {
    let mut text = String::from("| what | wanted | figure | beside it | ratio | holds |\n");
    text += "| --- | --- | ---: | --- | ---: | --- |\n";
    let mut all_hold = true;
    for row in ROWS {
        let figure = runs.median(row.case, row.of, row.figure);
        let beside = row.beside.and_then(|(label, _)| runs.median(row.case, label, row.figure));
        let (verdict, holds) = row.wanted.verdict(figure, beside);
        all_hold &= holds;
        let cell = |label| runs.shown(row.case, label, row.figure, number);
        let words = row.beside.and_then(|(label, name)| Some(format!("{} {name}", cell(label)?)));
        let ratio = figure.zip(beside).map(|(figure, beside)| format!("{:.2}", figure / beside));
        let (wanted, words, ratio) = (row.wanted.words(""), words.unwrap_or_default(), ratio.unwrap_or_default());
        let cell = cell(row.of).unwrap_or_default();
        let _ = writeln!(text, "| {} | {wanted} | {} | {words} | {ratio} | {verdict} |", row.what, cell);
    }
    (text, all_hold)
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

fn deliveries_per_s(run: &Run) -> Option<f64> {
    Some(run.trial()?.incoming.messages_per_s())
}

fn cpu_ns(run: &Run) -> Option<f64> {
    Some(run.trial()?.server?.ns_per_delivery)
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

#[cfg(test)]
mod tests {
    use encke_bench::report::{Flow, Report, Trial};

    use super::*;

    fn run(label: &str, deliveries_per_s: u64, holds: bool) -> Run {
        let incoming = Flow { messages: deliveries_per_s, window_ms: 1000, ..Flow::default() };
        let trials = vec![Trial { incoming, holds, ..Trial::default() }];
        let report = Report { trials, result: Some(0), holds, ..Report::default() };
        Run { case: "most".into(), label: label.into(), round: 1, report }
    }

    fn first_row(runs: Vec<Run>) -> String {
        let mut all = Runs::default();
        all.runs = runs;
        table(&all).0.lines().nth(2).expect("first row").to_owned()
    }

    #[test]
    fn a_demand_is_relative_to_the_run_beside_it() {
        let plain = || run("plain", 10_000_000, true);
        let good = first_row(vec![plain(), run("ack", 7_000_000, true)]);
        assert!(good.contains("| 7,000,000 | 10,000,000 plain | 0.70 | yes |"), "{good}");
        let bad = first_row(vec![plain(), run("ack", 5_000_000, true)]);
        assert!(bad.contains("| 0.50 | **no** |"), "{bad}");
    }

    #[test]
    fn runs_with_losses_do_not_count() {
        let lost = first_row(vec![run("plain", 10, true), run("ack", 9, false)]);
        assert!(lost.ends_with("not measured |"), "{lost}");
        assert!(!table(&Runs::default()).1);
    }
}
