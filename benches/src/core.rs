//! The page of `make bench-core`: Encke beside the floor and Bun, from the reports of `encke bench`.
//!
//! A machine that does other things as well gives a different figure each time, so servers take turns, and each figure here
//! is the median of its runs. Reports are collected as for [`compare`](crate::compare): see [`Runs`].

use std::fmt::Write as _;

use encke_bench::report::chart::{Axis, Bar, Bars, Chart, Group, Scale, Unit};
use encke_bench::report::units::number;

use crate::compare::runs::{Run, Runs, median};
use crate::measured::{Measured, Wanted};
use crate::rows::{cpu_ns, deliveries_per_s, memory_per_session, named};

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// The measured quantity, with its unit.
    pub what: &'static str,
    /// The case of its reports.
    pub case: &'static str,
    /// Reads the figure from a run.
    pub figure: fn(&Run) -> Option<f64>,
    /// The demand on the figure.
    pub wanted: Wanted,
}

/// The rows of `make bench-core`.
pub const ROWS: &[Row] = &[
    Row {
        what: "Broadcast to 1,000 WebSockets, highest deliveries/s",
        case: "broadcast-max",
        figure: deliveries_per_s,
        wanted: Wanted::TimesAtLeast(0.4),
    },
    Row {
        what: "CPU per delivery at 100,000 deliveries/s, ns",
        case: "broadcast",
        figure: cpu_ns,
        wanted: Wanted::TimesAtMost(1.3),
    },
    Row {
        what: "The same, with frames of equal size",
        case: "broadcast-equal",
        figure: cpu_ns,
        wanted: Wanted::TimesAtMost(1.15),
    },
    Row {
        what: "p99 at 100,000 deliveries/s, µs",
        case: "broadcast",
        figure: |run| Some(run.trial()?.latency.as_ref()?.p99_us as f64),
        wanted: Wanted::Nothing,
    },
    Row {
        what: "1.4 kB to one of 5,000 clients, CPU per message at 20,000/s, ns",
        case: "unicast",
        figure: cpu_ns,
        wanted: Wanted::TimesAtMost(1.45),
    },
    Row {
        what: "The same, with a reply to each publisher",
        case: "unicast-replies",
        figure: cpu_ns,
        wanted: Wanted::Nothing,
    },
    Row {
        what: "Calls of a service from 1,000 clients, CPU per answer at 5,700/s, ns",
        case: "calls",
        figure: cpu_ns,
        wanted: Wanted::TimesAtMost(1.6),
    },
    Row {
        what: "Long-polling, CPU per delivery at 10,000 deliveries/s, ns",
        case: "polling",
        figure: cpu_ns,
        wanted: Wanted::TimesAtMost(1.4),
    },
    Row {
        what: "Full sessions opened per second; the floor opens bare WebSockets",
        case: "open",
        figure: opened_per_s,
        wanted: Wanted::TimesAtLeast(0.8),
    },
    Row {
        what: "The same; the floor answers each step of a full session",
        case: "open-full",
        figure: opened_per_s,
        wanted: Wanted::TimesAtLeast(0.8),
    },
    Row {
        what: "Idle WebSocket session, one common channel, bytes of RSS",
        case: "idle",
        figure: memory_per_session,
        wanted: Wanted::AtMost(2048.0),
    },
    Row {
        what: "Idle WebSocket session, a separate channel, bytes of RSS",
        case: "idle-own",
        figure: memory_per_session,
        wanted: Wanted::Nothing,
    },
    Row {
        what: "Idle long-polling session, bytes of RSS",
        case: "idle-polling",
        figure: memory_per_session,
        wanted: Wanted::AtMost(24.0 * 1024.0),
    },
];

/// The servers, in the order of the columns, by the label of their reports.
pub const SERVERS: &[(&str, &str)] = &[("encke", "Encke"), ("floor", "Floor"), ("bun", "Bun")];

/// The page of `make bench-core`.
pub fn measured(runs: &Runs) -> Measured {
    let (table, all_hold) = table(runs);
    Measured {
        name: "core",
        title: "Speed and memory of the core",
        table,
        all_hold,
        chart: chart(runs).map(|chart| (chart, "Broadcast to 1,000 WebSockets")),
        explanation: EXPLANATION,
        others_cores: others_cores(runs),
    }
}

/// Returns the table in Markdown, and true if all demanded figures were measured and hold.
fn table(runs: &Runs) -> (String, bool) {
    let names: Vec<&str> = SERVERS.iter().map(|(_, name)| *name).collect();
    let mut text = format!("| what | wanted | {} | Encke ÷ floor | holds |\n", names.join(" | "));
    text += &format!("| --- | --- |{} ---: | --- |\n", " ---: |".repeat(names.len()));
    let mut all_hold = true;
    for row in ROWS {
        let figures: Vec<Option<f64>> =
            SERVERS.iter().map(|(label, _)| runs.median(row.case, label, row.figure)).collect();
        let (reached, floor) = (figures[0], figures[1]);
        let (verdict, holds) = row.wanted.verdict(reached, floor);
        let shown = |(label, _): &(&str, &str)| runs.shown(row.case, label, row.figure, number).unwrap_or_default();
        let cells: Vec<String> = SERVERS.iter().map(shown).collect();
        // A memory ratio to a server without sessions is meaningless.
        let compared = matches!(row.wanted, Wanted::TimesAtLeast(_) | Wanted::TimesAtMost(_));
        let ratio = reached.zip(floor).filter(|_| compared).map(|(reached, floor)| format!("{:.2}", reached / floor));
        all_hold &= holds;
        let (wanted, ratio) = (row.wanted.words("floor"), ratio.unwrap_or_default());
        let _ = writeln!(text, "| {} | {wanted} | {} | {ratio} | {verdict} |", row.what, cells.join(" | "));
    }
    (text, all_hold)
}

/// A bar for each server's highest rate; none if nothing was measured.
fn chart(runs: &Runs) -> Option<Chart> {
    let row = &ROWS[0];
    let bar = |&(label, name): &(&str, &str)| {
        let figure = runs.median(row.case, label, row.figure)?;
        Some(Group { name: name.into(), bars: vec![Bar::of(figure)] })
    };
    let groups: Vec<Group> = SERVERS.iter().filter_map(bar).collect();
    (!groups.is_empty()).then(|| {
        Chart::Bars(Bars {
            title: "Broadcast to 1,000 WebSockets from one core".into(),
            note: "Nothing lost, p99 under one second; longer is better.".into(),
            axis: Axis::new("deliveries/s", Unit::Count, Scale::Linear),
            series: vec!["deliveries/s".into()],
            groups,
        })
    })
}

fn opened_per_s(run: &Run) -> Option<f64> {
    named(run, "sessions opened per second")
}

/// The median number of cores that other processes used, over the runs that recorded it.
fn others_cores(runs: &Runs) -> Option<f64> {
    median(runs.runs.iter().filter_map(|run| run.trial()?.others_cores).collect())
}

const EXPLANATION: &str = "\
Repeat with `make bench-core`. The server runs on core 0, the load on core 1; servers take turns, each figure is the
median of its runs. The floor (`benches/src/bin/floor.rs`) is a fan-out over epoll without any protocol above WebSocket
frames; Bun is its native publish and subscribe (`benches/rivals/bun/server.js`). Their subscribers get the same 50 bytes of
data as Encke's, whose subscribers get them in a Bayeux message, in frames of 95 bytes instead of 52. The kernel takes longer
for the longer frame, so one row has frames of equal size: there the floor sends 93 bytes of data. The load is `encke bench broadcast`, `open` and `idle`: it publishes
at planned times and checks that every subscriber receives every message once and in order; latency is counted from the
planned time. The highest rate is the one at which nothing is lost, deliveries keep up with the plan and p99 is under one
second. Sessions are opened in full: connect, upgrade, handshake, connect, subscribe, each step after the answer to the one
before. Long-polling is `encke bench rooms --transport long-polling --rate 10000`; its floor (`benches/src/bin/polling_floor.rs`) answers
the same requests with the same bytes and checks nothing. A message to one client is one of
`encke bench rooms --clients 5000 --rooms 5000 --rooms-per-client 1 --batch-size 1 --message-size 1400 --no-reply`: its publisher declines the
reply, as the floor and Bun send none; wanted is also that it costs no more than 1.05 times Bun's. Calls are those of `encke bench request-reply`:
Encke answers with a reply and the answer of the service, the others with the answer. Memory is the growth of the server's resident set, divided by 9,000 sessions.
Runs that lose anything or do not keep up do not count; a note names the missing ones. A figure with “≥” is a lower
bound: the load had no core left, or the search's time ended.
";

#[cfg(test)]
mod tests {
    use encke_bench::report::{Figure, Flow, Report, Trial};

    use super::*;

    fn run(case: &str, label: &str, deliveries_per_s: u64, bytes: f64) -> Run {
        let incoming = Flow { messages: deliveries_per_s, window_ms: 1000, ..Flow::default() };
        let figures = vec![Figure { name: "resident memory per session".into(), value: bytes, unit: "bytes".into() }];
        let report = Report {
            trials: vec![Trial { incoming, figures, holds: true, ..Trial::default() }],
            result: Some(0),
            holds: true,
            ..Report::default()
        };
        Run { case: case.into(), label: label.into(), round: 1, report }
    }

    fn runs() -> Runs {
        let mut runs = Runs::default();
        for (label, deliveries) in
            [("floor", 10_000_000), ("floor", 12_000_000), ("floor", 2_000_000), ("encke", 5_000_000)]
        {
            runs.runs.push(run("broadcast-max", label, deliveries, 0.0));
        }
        runs.runs.push(run("idle", "encke", 0, 3000.0));
        runs
    }

    #[test]
    fn figures_are_medians_and_judged() {
        let (table, all_hold) = table(&runs());
        let line = table.lines().nth(2).expect("first row");
        assert!(line.contains("| 5,000,000 | 10,000,000 |") && line.contains("| 0.50 | yes |"), "{line}");
        assert!(table.contains("| ≤ 2,048 | 3,000 |") && table.contains("**no**"), "{table}");
        assert!(!all_hold);
    }

    #[test]
    fn runs_that_do_not_hold_do_not_count() {
        let mut runs = runs();
        runs.runs.push(run("broadcast-max", "encke", 50_000_000, 0.0));
        runs.runs[5].report.trials[0].holds = false;
        let (table, _) = table(&runs);
        assert!(table.contains("| 5,000,000 | 10,000,000 |"), "{table}");
    }

    #[test]
    fn missing_figures_are_reported() {
        let (table, all_hold) = table(&Runs::default());
        assert!(!all_hold && table.contains("not measured"));
        assert!(chart(&Runs::default()).is_none());
    }
}
