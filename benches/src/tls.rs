//! The page of `make bench-tls`: the same load with TLS and without.
//!
//! Reports are collected as for [`compare`](crate::compare); see [`Runs`]. The two take turns, and each figure is the median of its runs.

use encke_bench::report::chart::{Axis, Bar, Bars, Chart, Group, Scale, Unit};

use crate::compare::runs::{Run, Runs, median};
use crate::measured::{Measured, Wanted};
use crate::rows::{self, Row, cpu_ns, deliveries_per_s, memory_per_session, named};

/// The rows of `make bench-tls`.
pub const ROWS: &[Row] = &[
    row("Gathered: highest deliveries/s to 1,000 WebSockets", "most", deliveries_per_s, Wanted::Nothing),
    row("Gathered: CPU per delivery at 10,000,000 deliveries/s, ns", "gathered", cpu_ns, Wanted::TimesAtMost(1.67)),
    row("Rooms: highest deliveries/s to 1,000 WebSockets", "rooms", deliveries_per_s, Wanted::AtLeast(133_000.0)),
    row("Nothing gathers: CPU per delivery at 100,000 deliveries/s, ns", "fanout", cpu_ns, Wanted::TimesAtMost(1.33)),
    row("Long-polling: CPU per delivery at 20,000 deliveries/s, ns", "polling", cpu_ns, Wanted::Nothing),
    row("Idle WebSocket session, bytes of RSS", "idle", memory_per_session, Wanted::MoreAtMost(4.5 * 1024.0)),
    row(
        "Full sessions opened per second, each with a full handshake of TLS",
        "open",
        |run| named(run, "sessions opened per second"),
        Wanted::Nothing,
    ),
    row(
        "The same, with the session tickets of earlier connections",
        "resume",
        |run| named(run, "sessions opened per second"),
        Wanted::TimesAtLeast(0.6),
    ),
    row("Cores of the load meanwhile, gathered", "most", load_cores, Wanted::Nothing),
];

const fn row(what: &'static str, case: &'static str, figure: fn(&Run) -> Option<f64>, wanted: Wanted) -> Row {
    Row { what, case, of: "tls", beside: Some(("plain", "plain")), figure, wanted }
}

/// The page of `make bench-tls`.
pub fn measured(runs: &Runs) -> Measured {
    let (table, all_hold) = rows::table(ROWS, runs);
    Measured {
        name: "tls",
        title: "The cost of TLS",
        table,
        all_hold,
        chart: chart(runs).map(|chart| (chart, "Processor time for a delivery")),
        explanation: EXPLANATION,
        others_cores: median(runs.runs.iter().filter_map(|run| run.trial()?.others_cores).collect()),
    }
}

/// The processor time of a delivery in each case, with TLS and without; none if nothing was measured.
fn chart(runs: &Runs) -> Option<Chart> {
    let cases = [("most", "gathered"), ("fanout", "nothing gathers"), ("polling", "long-polling")];
    let group = |(case, name): (&str, &str)| {
        let bar = |label| runs.median(case, label, cpu_ns).map(|ns| Bar::of(ns / 1000.0));
        Some(Group { name: name.into(), bars: vec![bar("plain")?, bar("tls")?] })
    };
    let groups: Vec<Group> = cases.into_iter().filter_map(group).collect();
    (!groups.is_empty()).then(|| {
        Chart::Bars(Bars {
            title: "Processor time for a delivery, without TLS and with it".into(),
            note: "The server on one core; shorter is better.".into(),
            axis: Axis::new("µs", Unit::Micros, Scale::Linear),
            series: vec!["plain".into(), "TLS".into()],
            groups,
        })
    })
}

fn load_cores(run: &Run) -> Option<f64> {
    Some(run.trial()?.load_cores)
}

const EXPLANATION: &str = "\
Repeat with `make bench-tls`. The server runs on core 0, the load on core 1, once with `--dev-tls` and `wss`, once without. The two
take turns, and each figure is the median of its runs. The load publishes at planned times and checks that every subscriber gets
every message once and in order. Runs that lose anything or do not keep up do not count; a note names the missing ones. A figure
with “≥” is a lower bound: the load had no core left, or the time of the search ended. Server and load agree on TLS 1.3 with
AES-128-GCM, X25519 and a P-256 certificate; only the row of tickets resumes sessions. These commands give the rows:

- `encke bench broadcast --find-max --p99 1s`: one publisher, 1,000 subscribers, 50 bytes of data. Each write to a subscriber
  gathers many messages into a few records. The load, which has one core to decrypt all that the server encrypts, is at its limit first:
  the rate says little of the server;
- `encke bench broadcast --rate 10000`: the same at one rate for both. 1 ÷ 0.6 = 1.67: as much time as at 0.6 of the rate;
- `encke bench rooms --find-max --p99 500ms`: 1,000 clients, each in 10 of 100 rooms;
- `encke bench broadcast --rate 100`: each delivery is a record and a write;
- `encke bench rooms --transport long-polling --rate 20000`;
- `encke bench idle`: the growth of the server's resident set, divided by its sessions;
- `encke bench open`: connect, handshake of TLS, upgrade, handshake, connect, subscribe, each step after the answer to the one before;
- `encke bench open --tls-tickets`: the same, and almost every connection resumes a session of TLS.
";
