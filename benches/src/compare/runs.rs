//! The reports and notes of a comparison, as files in one folder.
//!
//! `CASE.LABEL.ROUND.json` is a report. `LABEL.settings` describes in lines of Markdown how a server was run.
//! `LABEL.integers` is the data that a subscriber received for the data in `integers`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use encke_bench::problem::Problem;
use encke_bench::report::{Report, Trial, json};

/// A server of the comparison, by the label of its files; the first is the one that the others are compared with.
pub const SERVERS: &[(&str, &str)] = &[("encke", "Encke"), ("cometd", "CometD"), ("faye", "Faye"), ("bun", "Bun")];

/// One run of one case against one server.
#[derive(Debug)]
pub struct Run {
    /// Name of the case.
    pub case: String,
    /// Label of the server.
    pub label: String,
    /// The number of the server's turn, from 1.
    pub round: u32,
    /// The report.
    pub report: Report,
}

impl Run {
    /// The trial that the run's figures are of: its result, or its only one. None if the run does not hold, or if a search
    /// found nothing or did not come to its end.
    pub fn trial(&self) -> Option<&Trial> {
        let report = &self.report;
        let is_search = report.settings.iter().any(|setting| setting.name == "find-max");
        let trial = match (report.result, report.trials.as_slice()) {
            (Some(index), trials) => trials.get(index),
            (None, [trial]) if !is_search => Some(trial),
            (None, _) => None,
        };
        trial.filter(|trial| trial.holds && report.holds && !report.interrupted)
    }
}

/// Everything that was collected.
#[derive(Debug, Default)]
pub struct Runs {
    /// All runs, by case, server and round.
    pub runs: Vec<Run>,
    notes: BTreeMap<String, String>,
}

impl Runs {
    /// Reads a folder.
    ///
    /// # Errors
    /// It cannot be read, or a report in it is none.
    pub fn read(folder: &Path) -> Result<Self, Problem> {
        let unreadable = |error| Problem::Usage(format!("{}: {error}", folder.display()));
        let mut found = Runs::default();
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match name.split('.').collect::<Vec<_>>()[..] {
                [case, label, round, "json"] => {
                    let (case, label, round) = (case.into(), label.into(), round.parse().unwrap_or(0));
                    found.runs.push(Run { case, label, round, report: json::read(&path)? });
                }
                [.., "settings" | "integers"] => {
                    found.notes.insert(name, fs::read_to_string(&path)?.trim().to_owned());
                }
                _ => {}
            }
        }
        found.runs.sort_by(|a, b| (&a.case, &a.label, a.round).cmp(&(&b.case, &b.label, b.round)));
        Ok(found)
    }

    /// The runs of a case against a server, in the order of their rounds.
    pub fn of<'a>(&'a self, case: &'a str, label: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.case == case && run.label == label)
    }

    /// The median of a figure of a case over the rounds of a server.
    pub fn median(&self, case: &str, label: &str, figure: fn(&Run) -> Option<f64>) -> Option<f64> {
        median(self.of(case, label).filter_map(figure).collect())
    }

    /// The median as tables show it, formatted by `words`: with `≥` if a run's result is only a lower bound, and with
    /// its number of rounds if some rounds have no such figure.
    pub fn shown(
        &self,
        case: &str,
        label: &str,
        figure: fn(&Run) -> Option<f64>,
        words: impl Fn(f64) -> String,
    ) -> Option<String> {
        let value = words(self.median(case, label, figure)?);
        let mark = if self.is_lower_bound(case, label) { "≥ " } else { "" };
        let gap = self.gap(case, label, figure).map(|gap| format!(" ({gap})")).unwrap_or_default();
        Some(format!("{mark}{value}{gap}"))
    }

    /// Returns true if a counted result is only a lower bound.
    pub fn is_lower_bound(&self, case: &str, label: &str) -> bool {
        self.of(case, label).any(|run| run.trial().is_some() && !run.report.at_least.is_empty())
    }

    /// `1 of 2 rounds`, where not all rounds of a case have the figure.
    pub fn gap(&self, case: &str, label: &str, figure: fn(&Run) -> Option<f64>) -> Option<String> {
        let (have, all) = (self.of(case, label).filter_map(figure).count(), self.rounds_of(case).len());
        (have < all).then(|| format!("{have} of {all} rounds"))
    }

    /// The rounds in which any server had a run of this case.
    pub fn rounds_of(&self, case: &str) -> BTreeSet<u32> {
        self.runs.iter().filter(|run| run.case == case).map(|run| run.round).collect()
    }

    /// The run whose figure is the median, or the lower of the two in the middle. Charts draw this run.
    pub fn middle<'a>(&'a self, case: &'a str, label: &'a str, figure: fn(&Run) -> Option<f64>) -> Option<&'a Run> {
        let mut runs: Vec<(f64, &Run)> = self.of(case, label).filter_map(|run| Some((figure(run)?, run))).collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        runs.get(runs.len().checked_sub(1)? / 2).map(|(_, run)| *run)
    }

    /// The servers that were measured at all, in the order of [`SERVERS`]: label and name.
    pub fn servers(&self) -> Vec<(&'static str, &'static str)> {
        let measured = |(label, _): &&(&str, &str)| self.runs.iter().any(|run| run.label == *label);
        SERVERS.iter().filter(measured).copied().collect()
    }

    /// The number of turns of each server.
    pub fn rounds(&self) -> u32 {
        self.runs.iter().map(|run| run.round).max().unwrap_or(0)
    }

    /// The note of this name.
    pub fn note(&self, name: &str) -> Option<&str> {
        self.notes.get(name).map(String::as_str)
    }
}

/// The middle figure, or the mean of the two in the middle.
pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(figures[middle]),
        _ => Some((figures[middle - 1] + figures[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use encke_bench::report::{Flow, Setting};

    use super::*;

    fn run(round: u32, deliveries_per_s: u64, report: Report) -> Run {
        let incoming = Flow { messages: deliveries_per_s, window_ms: 1000, ..Flow::default() };
        let trials = vec![Trial { incoming, holds: true, ..Trial::default() }];
        Run { case: "most".into(), label: "encke".into(), round, report: Report { trials, ..report } }
    }

    fn held() -> Report {
        Report { holds: true, ..Report::default() }
    }

    fn search(result: Option<usize>) -> Report {
        let settings = vec![Setting { name: "find-max".into(), value: "true".into() }];
        Report { settings, result, ..held() }
    }

    fn shown(runs: Vec<Run>) -> Option<String> {
        let runs = Runs { runs, ..Runs::default() };
        runs.shown("most", "encke", |run| Some(run.trial()?.incoming.messages_per_s()), |value| format!("{value}"))
    }

    #[test]
    fn only_runs_that_hold_have_a_figure() {
        assert!(run(1, 1, held()).trial().is_some());
        assert!(run(1, 1, Report::default()).trial().is_none());
        assert!(run(1, 1, Report { interrupted: true, ..held() }).trial().is_none());
        let mut lost = run(1, 1, held());
        lost.report.trials[0].holds = false;
        assert!(lost.trial().is_none());
    }

    #[test]
    fn the_only_trial_of_a_search_is_not_its_result() {
        assert!(run(1, 1, search(Some(0))).trial().is_some());
        assert!(run(1, 1, search(None)).trial().is_none());
    }

    #[test]
    fn rounds_without_a_figure_are_noted_at_the_median() {
        let all = vec![run(1, 10, held()), run(2, 20, held())];
        assert_eq!(shown(all).as_deref(), Some("15"));
        let some = vec![run(1, 10, search(Some(0))), run(2, 20, search(None))];
        assert_eq!(shown(some).as_deref(), Some("10 (1 of 2 rounds)"));
        assert_eq!(shown(vec![run(1, 10, search(None))]), None);
    }

    #[test]
    fn a_round_that_another_server_had_is_missing_too() {
        let other = Run { label: "faye".into(), ..run(2, 1, held()) };
        assert_eq!(shown(vec![run(1, 10, held()), other]).as_deref(), Some("10 (1 of 2 rounds)"));
    }

    #[test]
    fn a_lower_bound_is_marked() {
        let bound = Report { at_least: vec!["At least 10.".into()], ..search(Some(0)) };
        assert_eq!(shown(vec![run(1, 10, bound), run(2, 10, search(Some(0)))]).as_deref(), Some("≥ 10"));
    }
}
