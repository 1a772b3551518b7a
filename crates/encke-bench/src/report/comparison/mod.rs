//! Several runs side by side, each figure with its ratio to the first run's.

mod rows;
mod show;

use serde::Serialize;

use super::model::{Report, Trial};
use super::units::{bytes, date};

pub(super) use show::{heading, in_short, ratio};
pub use show::{table, text};

/// Version of the format of `encke bench report --json`, in the field `comparison`.
pub const COMPARISON_VERSION: u32 = 1;

/// Runs side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// [`COMPARISON_VERSION`].
    pub comparison: u32,
    /// The runs, in the order in which they were named.
    pub runs: Vec<Run>,
    /// The properties that differ between runs.
    pub differences: Vec<Difference>,
    /// The figures: the runs' results, then trials of the same name.
    pub sections: Vec<Section>,
}

/// A run among others.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// Its label; made different from the others' where it was not.
    pub label: String,
    /// The scenario's name.
    pub scenario: String,
    /// The target's URL.
    pub target: String,
    /// The start time, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// True if everything demanded holds.
    pub holds: bool,
    /// The reasons that it does not hold.
    pub reasons: Vec<String>,
    /// The reasons that its result is only a lower bound.
    pub at_least: Vec<String>,
}

/// A setting, or a property of the machine, that is not the same for all runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// Its name.
    pub name: String,
    /// Its value for each run; empty where it has none.
    pub values: Vec<String>,
}

/// Figures of one trial of each run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Section {
    /// The subject: `result`, or the trials' name.
    pub name: String,
    /// The trials' names; none if a run has no such trial.
    pub trials: Vec<Option<String>>,
    /// The figures.
    pub rows: Vec<Row>,
}

/// A figure of each run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The figure's name.
    pub name: String,
    /// The unit, such as `µs`; may be empty.
    pub unit: String,
    /// The figures.
    pub values: Vec<Option<f64>>,
    /// Each run's figure over the first run's; none for the first.
    pub ratios: Vec<Option<f64>>,
}

/// Lays reports side by side.
pub fn of(reports: &[Report]) -> Comparison {
    let runs = labels(reports).into_iter().zip(reports).map(|(label, report)| Run {
        label,
        scenario: report.scenario.clone(),
        target: report.target.clone(),
        began_unix_ms: report.began_unix_ms,
        holds: report.holds,
        reasons: report.reasons.clone(),
        at_least: report.at_least.clone(),
    });
    let runs = runs.collect();
    Comparison { comparison: COMPARISON_VERSION, runs, differences: differences(reports), sections: sections(reports) }
}

/// The runs' labels, numbered where two are the same.
fn labels(reports: &[Report]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for report in reports {
        let given = if report.label.is_empty() { &report.target } else { &report.label };
        let numbered = (2..).map(|number| format!("{given} ({number})"));
        let mut names = std::iter::once(given.clone()).chain(numbered);
        labels.extend(names.find(|name| !labels.contains(name)));
    }
    labels
}

fn differences(reports: &[Report]) -> Vec<Difference> {
    let machine = |part: fn(&Report) -> String| reports.iter().map(part).collect::<Vec<_>>();
    let mut all = vec![
        ("scenario".to_owned(), machine(|report| report.scenario.clone())),
        ("system".into(), machine(|report| report.machine.system.clone())),
        ("processor".into(), machine(|report| report.machine.processor.clone())),
        ("cores".into(), machine(|report| report.machine.cores.to_string())),
        ("memory".into(), machine(|report| bytes(report.machine.memory_bytes as f64))),
        ("version of the load".into(), machine(|report| report.machine.version.clone())),
        ("day".into(), machine(|report| date(report.began_unix_ms).split(' ').next().unwrap_or_default().into())),
    ];
    let mut names: Vec<&String> = Vec::new();
    for setting in reports.iter().flat_map(|report| &report.settings) {
        if !names.contains(&&setting.name) {
            names.push(&setting.name);
        }
    }
    // Target and label differ anyway.
    for name in names.into_iter().filter(|name| !["target", "label"].contains(&name.as_str())) {
        let value = |report: &Report| {
            let found = report.settings.iter().find(|setting| setting.name == *name);
            found.map(|setting| setting.value.clone()).unwrap_or_default()
        };
        all.push((format!("--{name}"), reports.iter().map(value).collect()));
    }
    let differ = |values: &[String]| values.iter().any(|value| *value != values[0]);
    all.retain(|(_, values)| differ(values));
    all.into_iter().map(|(name, values)| Difference { name, values }).collect()
}

fn sections(reports: &[Report]) -> Vec<Section> {
    let results: Vec<Option<&Trial>> = reports.iter().map(Report::headline).collect();
    let mut sections = vec![section(RESULT, &results)];
    let mut names: Vec<&str> = Vec::new();
    for trial in reports.iter().flat_map(|report| &report.trials) {
        if !names.contains(&trial.name.as_str()) {
            names.push(&trial.name);
        }
    }
    for name in names {
        let find = |report: &'_ Report| report.trials.iter().position(|trial| trial.name == name);
        let found: Vec<Option<&Trial>> =
            reports.iter().map(|report| find(report).and_then(|at| report.trials.get(at))).collect();
        let same = |(a, b): (&Option<&Trial>, &Option<&Trial>)| match (a, b) {
            (Some(a), Some(b)) => std::ptr::eq(*a, *b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let is_result = found.iter().zip(&results).all(same);
        if !is_result && found.iter().flatten().count() > 1 {
            sections.push(section(name, &found));
        }
    }
    sections.retain(|section| !section.rows.is_empty());
    sections
}

fn section(name: &str, trials: &[Option<&Trial>]) -> Section {
    let names = trials.iter().map(|trial| trial.map(|trial| trial.name.clone())).collect();
    Section { name: name.into(), trials: names, rows: rows::of(trials) }
}

/// Name of the section of the trials that speak for the runs.
pub const RESULT: &str = "result";

#[cfg(test)]
mod tests {
    use super::super::model::Setting;
    use super::*;
    use crate::outcome::Flow;

    fn run(label: &str, rate: u64, clients: &str) -> Report {
        let incoming = Flow { messages: rate, window_ms: 1000, ..Flow::default() };
        let trial = Trial { name: "all".into(), incoming, holds: true, ..Trial::default() };
        let settings = vec![Setting { name: "clients".into(), value: clients.into() }];
        Report { label: label.into(), trials: vec![trial], settings, ..Report::default() }
    }

    #[test]
    fn ratios_are_to_the_first() {
        let comparison = of(&[run("a", 200, "1"), run("b", 50, "1")]);
        let row = &comparison.sections[0].rows.iter().find(|row| row.name == "received/s").expect("a rate");
        assert_eq!(row.values, [Some(200.0), Some(50.0)]);
        assert_eq!(row.ratios, [None, Some(0.25)]);
    }

    #[test]
    fn nothing_is_a_ratio_to_nothing() {
        let comparison = of(&[run("a", 0, "1"), run("b", 50, "1")]);
        assert!(
            comparison
                .sections
                .iter()
                .flat_map(|section| &section.rows)
                .flat_map(|row| &row.ratios)
                .flatten()
                .all(|ratio| ratio.is_finite())
        );
    }

    #[test]
    fn differences_are_listed() {
        let comparison = of(&[run("a", 1, "1000"), run("b", 1, "5000")]);
        let names: Vec<&str> = comparison.differences.iter().map(|difference| difference.name.as_str()).collect();
        assert_eq!(names, ["--clients"]);
    }

    #[test]
    fn runs_of_the_same_label_are_numbered() {
        let labels = labels(&[run("a", 1, ""), run("a", 1, ""), run("a", 1, "")]);
        assert_eq!(labels, ["a", "a (2)", "a (3)"]);
    }
}
