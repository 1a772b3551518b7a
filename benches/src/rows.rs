//! A table whose rows compare runs under one label with those under another.

use std::fmt::Write as _;

use encke_bench::report::units::number;

use crate::compare::runs::{Run, Runs};
use crate::measured::Wanted;

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

/// Returns the table of these rows in Markdown, and true if all demanded figures were measured and hold.
pub fn table(rows: &[Row], runs: &Runs) -> (String, bool) {
    let mut text = String::from("| what | wanted | figure | beside it | ratio | holds |\n");
    text += "| --- | --- | ---: | --- | ---: | --- |\n";
    let mut all_hold = true;
    for row in rows {
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

/// Deliveries per second.
pub fn deliveries_per_s(run: &Run) -> Option<f64> {
    Some(run.trial()?.incoming.messages_per_s())
}

/// The server's processor time for a delivery, in nanoseconds.
pub fn cpu_ns(run: &Run) -> Option<f64> {
    Some(run.trial()?.server?.ns_per_delivery)
}

/// A figure by its name.
pub fn named(run: &Run, name: &str) -> Option<f64> {
    Some(run.trial()?.figures.iter().find(|figure| figure.name == name)?.value)
}

/// The growth of the server's resident memory for each session, in bytes.
pub fn memory_per_session(run: &Run) -> Option<f64> {
    named(run, "resident memory per session")
}

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

    const ROWS: &[Row] = &[Row {
        what: "highest deliveries/s",
        case: "most",
        of: "ack",
        beside: Some(("plain", "plain")),
        figure: deliveries_per_s,
        wanted: Wanted::TimesAtLeast(0.6),
    }];

    fn first_row(runs: Vec<Run>) -> String {
        let mut all = Runs::default();
        all.runs = runs;
        table(ROWS, &all).0.lines().nth(2).expect("first row").to_owned()
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
        assert!(!table(ROWS, &Runs::default()).1);
    }
}
