//! The reports and notes of a comparison, as files in one folder.
//!
//! `CASE.LANE.ROUND.json` is a report; `LANE.settings` says in lines of Markdown how a server was run; `LANE.integers` is
//! what a subscriber got of the data in `integers`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use encke_bench::problem::Problem;
use encke_bench::report::{Report, Trial, json};

/// A server of the comparison, by the label of its files; the first is the one that the others are compared with.
pub const LANES: &[(&str, &str)] = &[("encke", "Encke"), ("cometd", "CometD"), ("faye", "Faye"), ("bun", "Bun")];

/// One run of one case against one server.
#[derive(Debug)]
pub struct Run {
    /// Name of the case.
    pub case: String,
    /// Label of the server.
    pub lane: String,
    /// Which of its turns it was, from 1.
    pub round: u32,
    /// What came of it.
    pub report: Report,
}

impl Run {
    /// The trial that is the run's result; none if a search found nothing that holds.
    pub fn trial(&self) -> Option<&Trial> {
        match (self.report.result, self.report.trials.as_slice()) {
            (Some(index), trials) => trials.get(index),
            (None, [trial]) => Some(trial),
            (None, _) => None,
        }
    }
}

/// Everything that was collected.
#[derive(Debug, Default)]
pub struct Runs {
    /// All runs, by case, lane and round.
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
                [case, lane, round, "json"] => {
                    let (case, lane, round) = (case.into(), lane.into(), round.parse().unwrap_or(0));
                    found.runs.push(Run { case, lane, round, report: json::read(&path)? });
                }
                [.., "settings" | "integers"] => {
                    found.notes.insert(name, fs::read_to_string(&path)?.trim().to_owned());
                }
                _ => {}
            }
        }
        found.runs.sort_by(|a, b| (&a.case, &a.lane, a.round).cmp(&(&b.case, &b.lane, b.round)));
        Ok(found)
    }

    /// The runs of a case against a server, in the order of their rounds.
    pub fn of<'a>(&'a self, case: &'a str, lane: &'a str) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(move |run| run.case == case && run.lane == lane)
    }

    /// The median of a figure of a case over the rounds of a server.
    pub fn median(&self, case: &str, lane: &str, figure: fn(&Run) -> Option<f64>) -> Option<f64> {
        median(self.of(case, lane).filter_map(figure).collect())
    }

    /// The run of a case whose figure is the median, or the lower of the two in the middle, to draw its course.
    pub fn middle<'a>(&'a self, case: &'a str, lane: &'a str, figure: fn(&Run) -> Option<f64>) -> Option<&'a Run> {
        let mut runs: Vec<(f64, &Run)> = self.of(case, lane).filter_map(|run| Some((figure(run)?, run))).collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        runs.get(runs.len().checked_sub(1)? / 2).map(|(_, run)| *run)
    }

    /// The servers that were measured at all, in the order of [`LANES`]: label and name.
    pub fn lanes(&self) -> Vec<(&'static str, &'static str)> {
        let measured = |(label, _): &&(&str, &str)| self.runs.iter().any(|run| run.lane == *label);
        LANES.iter().filter(measured).copied().collect()
    }

    /// How often the servers took turns.
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
