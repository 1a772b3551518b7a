//! The text of the page.

use std::fmt::Write as _;

use encke_bench::report::Machine;
use encke_bench::report::units::{bytes, figure};

use super::cases::{CASES, Case, Row};
use super::charts::Image;
use super::runs::{Run, Runs, SERVERS, median};

/// A demand and its result.
#[derive(Debug)]
pub struct Demand {
    /// The measured case.
    pub case: &'static Case,
    /// The rival's name.
    pub rival: &'static str,
    /// The least ratio demanded.
    pub wanted: f64,
    /// The measured ratio; none if no round of either server holds.
    pub ratio: Option<f64>,
    /// The ratio as the page shows it: marked if it is a bound, with the missing rounds.
    pub shown: String,
}

impl Demand {
    /// Returns true if the ratio was measured and is high enough.
    pub fn holds(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio >= self.wanted)
    }
}

/// Returns each demand with its result.
pub fn demands(runs: &Runs) -> Vec<Demand> {
    let mut demands = Vec::new();
    for case in CASES {
        for (label, wanted) in case.demanded {
            let rival = SERVERS.iter().find(|(known, _)| known == label).map_or(*label, |(_, name)| name);
            let ratio = ratio(runs, case, case.rows[0], label);
            let shown = shown_ratio(runs, case, label).unwrap_or_else(|| "–".to_owned());
            demands.push(Demand { case, rival, wanted: *wanted, ratio, shown });
        }
    }
    demands
}

/// The page in Markdown; images are expected in the folder `benchmarks` beside it. `machine` is where it was measured.
pub fn page(runs: &Runs, images: &[Image], machine: &Machine) -> String {
    let mut text = format!("# Encke beside others\n\n{INTRODUCTION}\n");
    text += &image(images, "compare-deliveries.svg");
    text += &demands_table(runs);
    for case in CASES.iter().filter(|case| runs.runs.iter().any(|run| run.case == case.name)) {
        let _ = write!(text, "\n## {}\n\n{}\n\n", case.title, case.what);
        text += &table(runs, case);
        text += &doubts(runs, case);
        for file in images_of(case) {
            text += &image(images, file);
        }
    }
    text + &integers(runs) + &settings(runs) + FAIRNESS + &repeat(runs, machine)
}

fn images_of(case: &Case) -> &'static [&'static str] {
    match case.name {
        "rooms-rate" => &["compare-latency.svg", "compare-cpu.svg"],
        "burst" => &["compare-burst.svg"],
        "idle" => &["compare-idle.svg"],
        _ => &[],
    }
}

fn image(images: &[Image], file: &str) -> String {
    let found = images.iter().find(|image| image.file == file);
    found.map_or_else(String::new, |image| format!("\n![{}](benchmarks/{file})\n", image.chart.title()))
}

fn demands_table(runs: &Runs) -> String {
    let mut text = String::from("\n| what | beside | wanted | measured | holds |\n| --- | --- | ---: | ---: | --- |\n");
    for demand in demands(runs) {
        let holds = match demand.ratio {
            None => "not measured",
            Some(_) if demand.holds() => "yes",
            Some(_) => "**no**",
        };
        let measured = &demand.shown;
        let title = demand.case.title;
        let _ = writeln!(text, "| {title} | {} | ≥ {} × | {measured} | {holds} |", demand.rival, demand.wanted);
    }
    for case in CASES.iter().filter(|case| case.demanded.iter().any(|(label, _)| *label == "cometd")) {
        if let Some(ratio) = shown_ratio(runs, case, "bun") {
            let _ = writeln!(text, "| {} | Bun | | {ratio} | |", case.title);
        }
    }
    text
}

fn table(runs: &Runs, case: &Case) -> String {
    let servers = runs.servers();
    let rivals = servers.iter().skip(1);
    let names: Vec<String> =
        servers.iter().map(|(_, name)| (*name).to_owned()).chain(rivals.map(|(_, name)| format!("÷ {name}"))).collect();
    let mut text = format!("| | {} |\n| --- |{}\n", names.join(" | "), " ---: |".repeat(names.len()));
    for (index, row) in case.rows.iter().enumerate() {
        let words = |value| figure(value, row.unit);
        let figures = servers.iter().map(|(label, _)| {
            // Notes about a case stand at its main figure.
            let shown = match index {
                0 => runs.shown(case.name, label, row.figure, words),
                _ => runs.median(case.name, label, row.figure).map(words),
            };
            shown.unwrap_or_else(|| "–".to_owned())
        });
        let ratios = servers.iter().skip(1).map(|(label, _)| match ratio(runs, case, *row, label) {
            Some(ratio) if row.compared => {
                format!("{}{}", if index == 0 { bound(runs, case, label) } else { "" }, times(ratio))
            }
            _ => String::new(),
        });
        let cells: Vec<String> = figures.chain(ratios).collect();
        let _ = writeln!(text, "| {} | {} |", row.what, cells.join(" | "));
    }
    text
}

/// Encke's figure over a rival's.
fn ratio(runs: &Runs, case: &Case, row: Row, rival: &str) -> Option<f64> {
    let figure = |label| runs.median(case.name, label, row.figure);
    Some(figure(SERVERS[0].0)? / figure(rival)?).filter(|ratio| ratio.is_finite())
}

/// The ratio of a case's main figures, with the notes about it.
fn shown_ratio(runs: &Runs, case: &Case, rival: &str) -> Option<String> {
    let mut shown = format!("{}{}", bound(runs, case, rival), times(ratio(runs, case, case.rows[0], rival)?));
    for (label, name) in SERVERS.iter().filter(|(label, _)| [SERVERS[0].0, rival].contains(label)) {
        if let Some(gap) = runs.gap(case.name, label, case.rows[0].figure) {
            let _ = write!(shown, ", {name} {gap}");
        }
    }
    Some(shown)
}

/// The sign before a ratio if one of its figures is a lower bound.
fn bound(runs: &Runs, case: &Case, rival: &str) -> &'static str {
    match [SERVERS[0].0, rival].map(|label| runs.is_lower_bound(case.name, label)) {
        [true, false] => "≥ ",
        [false, true] => "≤ ",
        [true, true] => "≈ ",
        [false, false] => "",
    }
}

fn times(ratio: f64) -> String {
    match ratio {
        0.0 => "0 ×".to_owned(),
        ratio if ratio >= 10.0 => format!("{ratio:.0} ×"),
        ratio if ratio >= 1.0 => format!("{ratio:.1} ×"),
        ratio if ratio >= 0.1 => format!("{ratio:.2} ×"),
        ratio => format!("{ratio:.3} ×"),
    }
}

/// The reservations of the runs of a case: the first reason of each, since the others mostly follow from it; why a
/// result is only a lower bound; and the runs without a report.
fn doubts(runs: &Runs, case: &Case) -> String {
    let mut text = String::new();
    for (label, name) in runs.servers() {
        let of_server: Vec<&Run> = runs.of(case.name, label).collect();
        for Run { round, report, .. } in &of_server {
            if !report.holds {
                let reason = report.reasons.first().map_or("", String::as_str);
                let _ = writeln!(text, "- {name}, round {round}, does not hold: {reason}");
            }
            for reason in &report.at_least {
                let _ = writeln!(text, "- {name}, round {round}: {reason}");
            }
        }
        // Some servers lack some cases.
        let is_missing = |round: &u32| !of_server.is_empty() && !of_server.iter().any(|run| run.round == *round);
        for round in runs.rounds_of(case.name).iter().filter(|round| is_missing(round)) {
            let _ = writeln!(text, "- {name}, round {round}, gave no report.");
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

fn integers(runs: &Runs) -> String {
    let Some(sent) = runs.note("sent.integers") else { return String::new() };
    let mut text = format!(
        "\n## Large integers\n\nPublished as data: `{sent}`.\n\n| | a subscriber got | |\n| --- | --- | --- |\n"
    );
    for (label, name) in SERVERS {
        if let Some(came) = runs.note(&format!("{label}.integers")) {
            let verdict = if came == sent { "unchanged" } else { "**changed**" };
            let _ = writeln!(text, "| {name} | `{came}` | {verdict} |");
        }
    }
    text
}

fn settings(runs: &Runs) -> String {
    let mut text = String::from("\n## Settings\n");
    for (label, name) in runs.servers() {
        let note = runs.note(&format!("{label}.settings")).unwrap_or("not noted");
        let _ = write!(text, "\n**{name}**\n\n{note}\n");
    }
    text
}

fn repeat(runs: &Runs, machine: &Machine) -> String {
    let mut text = format!("\n{HOW_TO_REPEAT}\n");
    let _ = write!(
        text,
        "Measured on {}, {}, {} cores, {} of memory, over loopback; rounds: {}.",
        machine.system,
        machine.processor,
        machine.cores,
        bytes(machine.memory_bytes as f64),
        runs.rounds()
    );
    let others = runs.runs.iter().filter_map(|run| run.trial()?.others_cores).collect();
    if let Some(cores) = median(others) {
        let _ = write!(text, " Other processes used {cores:.2} cores meanwhile (median); the nearer to 0, the better.");
    }
    text + "\n"
}

const INTRODUCTION: &str = "\
This page compares Encke with CometD and Faye, which speak the same protocol, and with Bun's native publish and subscribe. Bun is
no Bayeux server, but the fastest fan-out that is available ready-made. All get the same load. Each server has one core, the load
another. Figures are medians over the rounds; in each round the servers take turns. A ratio is Encke's figure divided by the
other's: above 1 is good for deliveries, below 1 for time and memory. Only runs that hold have figures; if rounds are missing, a
note names them. “≥” marks a lower bound: the time of a search ended before the limit was found, or the load was at its own
limit. Notes on a run are below its table.
";

const FAIRNESS: &str = "
## Fairness

- One core each: the server, with all its threads, is pinned to core 0, the load to core 1. A JVM compiles and collects
  garbage on that core, too; Encke runs with one shard.
- Latency counts from the planned time of a message, not from the time at which it left. So a server that stalls is charged for
  all messages that waited.
- Every delivery is counted and checked for loss, doubling and order. A rate that loses anything does not count. Bun silently
  drops messages beyond its backlog limit unless it is configured to close the connection, as it is here.
- CometD and Faye buffer messages for slow clients without a limit. So a burst does not fail on them, but takes memory, which the
  tables show. Encke has limits and slows the publisher down.
- CometD is the newest complete set of packages, with Jackson for JSON, its WebSocket through Jetty's own transport, HTTP
  through the servlet. Before each measurement it is warmed up with the same kind of load, until its compiler has finished.
  Before idle sessions are measured, as many are opened and closed on every server. Of the collectors Serial, Parallel and G1 it
  uses the one with which it delivered most on one core.
- CometD ties a session over HTTP to a cookie. The load returns cookies to every server.
- No server compresses. Limits on message size and idle connections are far above the values used.
- Bun gets the same 50 bytes of data in lines instead of Bayeux messages: it has less to parse and to send.
- Encke's deliveries are whole Bayeux messages, one WebSocket message each, as the others' are.
";

const HOW_TO_REPEAT: &str = "\
## How to repeat

`make compare` installs what is missing (Node, a JDK, Maven; root on Debian), builds all, measures and writes this page;
`COMPARE_QUICK=yes make compare` does the same with small numbers, as a test. `ROUNDS`, `COMPARE_ONLY` and `COMPARE_CASES` select
rounds, servers and cases; see `scripts/compare.sh`.
";

#[cfg(test)]
mod tests {
    use super::*;
    use encke_bench::report::{Flow, Report, Server, Trial};

    fn run(case: &str, label: &str, round: u32, deliveries_per_s: u64) -> Run {
        let incoming = Flow { messages: deliveries_per_s, window_ms: 1000, ..Flow::default() };
        let trial = Trial { incoming, server: Some(Server::default()), holds: true, ..Trial::default() };
        let report = Report { trials: vec![trial], result: Some(0), holds: true, ..Report::default() };
        Run { case: case.into(), label: label.into(), round, report }
    }

    fn runs(encke: [u64; 3], cometd: u64) -> Runs {
        let mut runs = Runs::default();
        for (round, rate) in encke.into_iter().enumerate() {
            runs.runs.push(run("chat-max", "encke", round as u32 + 1, rate));
        }
        runs.runs.extend((1..=3).map(|round| run("chat-max", "cometd", round, cometd)));
        runs
    }

    #[test]
    fn ratios_are_of_medians_and_judged() {
        let held = runs([9_000_000, 4_000_000, 1_000_000], 200_000);
        assert!(
            page(&held, &[], &Machine::default())
                .contains("| One room: most deliveries per second | CometD | ≥ 20 × | 20 × | yes |")
        );
        assert!(page(&held, &[], &Machine::default()).contains("| deliveries/s | 4,000,000 | 200,000 | 20 × |"));
        let missed = runs([9_000_000, 3_980_000, 1_000_000], 200_000);
        assert!(!demands(&missed)[0].holds());
        assert!(
            page(&missed, &[], &Machine::default()).contains("| 20 × | **no** |"),
            "rounding does not make it hold"
        );
    }

    #[test]
    fn cases_that_were_not_measured_do_not_hold() {
        let page = page(&Runs::default(), &[], &Machine::default());
        assert!(page.contains("| Faye | ≥ 30 × | – | not measured |"), "{page}");
        assert!(!demands(&Runs::default()).iter().any(Demand::holds));
    }

    #[test]
    fn a_run_that_does_not_hold_is_listed_with_its_reasons() {
        let mut runs = runs([1, 1, 1], 1);
        runs.runs[3].report.holds = false;
        runs.runs[3].report.reasons = vec!["3 deliveries lost".into()];
        assert!(page(&runs, &[], &Machine::default()).contains("- CometD, round 1, does not hold: 3 deliveries lost"));
    }

    #[test]
    fn a_search_without_a_result_has_no_figure() {
        let mut runs = runs([1, 1, 1], 1);
        for run in &mut runs.runs[3..] {
            run.report.result = None;
            run.report.trials.push(Trial::default());
        }
        assert!(demands(&runs)[0].ratio.is_none());
    }

    #[test]
    fn rounds_that_do_not_hold_are_noted_at_the_figure_and_the_demand() {
        let mut runs = runs([4_000_000, 4_000_000, 1], 200_000);
        runs.runs[2].report.holds = false;
        runs.runs.truncate(4);
        let page = page(&runs, &[], &Machine::default());
        assert!(page.contains("| ≥ 20 × | 20 ×, Encke 2 of 3 rounds, CometD 1 of 3 rounds | yes |"), "{page}");
        assert!(
            page.contains("| deliveries/s | 4,000,000 (2 of 3 rounds) | 200,000 (1 of 3 rounds) | 20 × |"),
            "{page}"
        );
        assert!(page.contains("- CometD, round 3, gave no report."), "{page}");
    }

    #[test]
    fn lower_bounds_are_marked_and_explained() {
        let mut runs = runs([4_000_000; 3], 200_000);
        runs.runs[0].report.at_least = vec!["At least that: the load was at its own limit.".into()];
        let page_text = page(&runs, &[], &Machine::default());
        assert!(
            page_text.contains("| deliveries/s | ≥ 4,000,000 |") && page_text.contains("| ≥ 20 × |"),
            "{page_text}"
        );
        assert!(page_text.contains("- Encke, round 1: At least that: the load was at its own limit."), "{page_text}");
        runs.runs[0].report.at_least.clear();
        runs.runs[3].report.at_least = vec!["At least that.".into()];
        let page_text = page(&runs, &[], &Machine::default());
        assert!(page_text.contains("≥ 200,000") && page_text.contains("≤ 20 ×"), "{page_text}");
    }
}
