//! The page of `make bench-files`: files served by Encke and by nginx.
//!
//! Reports are collected as for [`compare`](crate::compare); see [`Runs`]. The two take turns, and each figure is the median of its runs.

use encke_bench::report::chart::{Axis, Bar, Bars, Chart, Group, Scale, Unit};

use crate::compare::runs::{Run, Runs, median};
use crate::measured::{Measured, Wanted};
use crate::rows::{self, Row, cpu_ns, named};

/// The rows of `make bench-files`.
pub const ROWS: &[Row] = &[
    row("2 kB, requests/s", "small", requests_per_s, Wanted::TimesAtLeast(0.8)),
    row("2 kB over TLS, requests/s", "small-tls", requests_per_s, Wanted::Nothing),
    row("2 kB over HTTP/2, requests/s", "small-h2", requests_per_s, Wanted::Nothing),
    row("2 kB over HTTP/2 with TLS, requests/s", "small-h2-tls", requests_per_s, Wanted::Nothing),
    row("14 kB, requests/s", "medium", requests_per_s, Wanted::TimesAtLeast(0.8)),
    row("14 kB over TLS, requests/s", "medium-tls", requests_per_s, Wanted::Nothing),
    row("14 kB over HTTP/2, requests/s", "medium-h2", requests_per_s, Wanted::Nothing),
    row("14 kB over HTTP/2 with TLS, requests/s", "medium-h2-tls", requests_per_s, Wanted::Nothing),
    row("954 kB, requests/s", "large", requests_per_s, Wanted::TimesAtLeast(0.9)),
    row("954 kB over TLS, requests/s", "large-tls", requests_per_s, Wanted::Nothing),
    row("954 kB over HTTP/2, requests/s", "large-h2", requests_per_s, Wanted::Nothing),
    row("954 kB over HTTP/2 with TLS, requests/s", "large-h2-tls", requests_per_s, Wanted::Nothing),
    row("A page of 2 kB to 2,000 connections, requests/s", "faban", requests_per_s, Wanted::Nothing),
    row("The same over HTTP/2 with TLS, requests/s", "faban-h2-tls", requests_per_s, Wanted::Nothing),
    row("10,000 users who think 8 s: 90 % of answers within, ms", "users", p90_ms, Wanted::Nothing),
    row("10,000 users who think 8 s: processor time of a request, µs", "users", cpu_us, Wanted::Nothing),
    row("10,000 users who think 8 s over TLS: 90 % of answers within, ms", "users-tls", p90_ms, Wanted::Nothing),
    row("10,000 users who think 8 s over TLS: processor time of a request, µs", "users-tls", cpu_us, Wanted::Nothing),
    row("10,000 users who think 8 s over HTTP/2: 90 % of answers within, ms", "users-h2", p90_ms, Wanted::Nothing),
    row("10,000 users who think 8 s over HTTP/2: processor time of a request, µs", "users-h2", cpu_us, Wanted::Nothing),
    row(
        "10,000 users who think 8 s over HTTP/2 with TLS: 90 % of answers within, ms",
        "users-h2-tls",
        p90_ms,
        Wanted::Nothing,
    ),
    row(
        "10,000 users who think 8 s over HTTP/2 with TLS: processor time of a request, µs",
        "users-h2-tls",
        cpu_us,
        Wanted::Nothing,
    ),
];

const fn row(what: &'static str, case: &'static str, figure: fn(&Run) -> Option<f64>, wanted: Wanted) -> Row {
    Row { what, case, of: "encke", beside: Some(("nginx", "nginx")), figure, wanted }
}

/// The page of `make bench-files`.
pub fn measured(runs: &Runs) -> Measured {
    let (table, all_hold) = rows::table(ROWS, runs);
    Measured {
        name: "files",
        title: "Files beside nginx",
        table,
        all_hold,
        chart: chart(runs).map(|chart| (chart, "Requests per second of files")),
        explanation: EXPLANATION,
        others_cores: median(runs.runs.iter().filter_map(|run| run.trial()?.others_cores).collect()),
    }
}

/// The requests per second of each file as multiples of nginx's; none if nothing was measured.
fn chart(runs: &Runs) -> Option<Chart> {
    let cases = [("small", "2 kB"), ("medium", "14 kB"), ("large", "954 kB"), ("small-h2-tls", "2 kB, HTTP/2, TLS")];
    let group = |(case, name): (&str, &str)| {
        let of = |label| runs.median(case, label, requests_per_s);
        let (encke, nginx) = (of("encke")?, of("nginx")?);
        Some(Group { name: name.into(), bars: vec![Bar::of(1.0), Bar::of(encke / nginx)] })
    };
    let groups: Vec<Group> = cases.into_iter().filter_map(group).collect();
    (!groups.is_empty()).then(|| {
        Chart::Bars(Bars {
            title: "Requests per second from one core, as multiples of nginx's".into(),
            note: "300 connections with keep-alive; longer is better.".into(),
            axis: Axis::new("×", Unit::Count, Scale::Linear),
            series: vec!["nginx".into(), "Encke".into()],
            groups,
        })
    })
}

fn requests_per_s(run: &Run) -> Option<f64> {
    named(run, "requests per second")
}

fn p90_ms(run: &Run) -> Option<f64> {
    Some(run.trial()?.latency.as_ref()?.p90_us as f64 / 1_000.0)
}

fn cpu_us(run: &Run) -> Option<f64> {
    cpu_ns(run).map(|ns| ns / 1_000.0)
}

const EXPLANATION: &str = "\
Repeat with `make bench-files`. The server runs on core 0, the load on core 1: `encke serve --files DIR --shards 1`, and Debian's nginx
with one process, `sendfile`, `tcp_nopush`, no access log and no end of keep-alive. Both serve the same files and use the same
certificate. The two take turns, and each figure is the median of its runs; runs with a wrong or missing answer do not count. These
commands give the rows:

- `encke bench http --connections 300` for each file, as `ab -c300 -k` in \"Can a Grizzly run faster than a Coyote?\" (2006): each
  connection asks again when it is answered;
- `encke bench http --connections 2000 --path /index.html`, as Faban's 2,000 clients without think time in 2008;
- `encke bench http --users --users-start 10000 --users-max 10000`: users who ask for one of the three files and think 8 s on average,
  of whose answers 90 % have to come within 2 s, as in 2006.

Over HTTP/2 (`--http2`) each connection has one request at a time, too.
";
