//! The page of several runs side by side.

use super::super::chart::{Axis, Bar, Bars, Chart, Group, Scale, Unit};
use super::super::columns::Grid;
use super::super::comparison::{Comparison, RESULT, Row, Section, heading, in_short, ratio};
use super::super::model::Report;
use super::super::units::{date, figure};
use super::charts;
use super::line::Line;
use super::parts::{Table, definitions, machine, table};
use super::time::{connections, over_time};
use super::{escape, figures_of, header, section};

pub(super) fn body(comparison: &Comparison, reports: &[Report]) -> String {
    let labels: Vec<&str> = comparison.runs.iter().map(|run| run.label.as_str()).collect();
    let mut scenarios: Vec<&str> = comparison.runs.iter().map(|run| run.scenario.as_str()).collect();
    scenarios.dedup();
    let lede = "Runs side by side; each figure has its ratio to the first run’s.";
    let mut body = header(&scenarios.join(", "), &labels.join(" · "), lede);
    body += &section("Runs", &runs(comparison));
    body += &figures_of(&all_charts(comparison, reports));
    for one in in_short(comparison) {
        body += &section(&heading(&one), &figures(comparison, &one));
    }
    body += &section("Not the same for all", &differences(comparison));
    body += &section("The same for all", &shared(comparison, reports));
    body
}

/// Settings and properties of the machine that are the same for all runs.
fn shared(comparison: &Comparison, reports: &[Report]) -> String {
    let Some(first) = reports.first() else { return String::new() };
    let differs = |name: &str| comparison.differences.iter().any(|difference| difference.name == name);
    let settings = first.settings.iter().map(|setting| (format!("--{}", setting.name), setting.value.clone()));
    let settings = settings.filter(|(name, _)| !["--target", "--label"].contains(&name.as_str()));
    let machine = machine(&first.machine).into_iter().map(|(name, value)| (name.to_owned(), value));
    let same: Vec<(String, String)> =
        settings.chain(machine).filter(|(name, _)| !differs(name) && !differs(&name.to_lowercase())).collect();
    let same: Vec<(&str, &str)> = same.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    definitions("list", &same)
}

fn runs(comparison: &Comparison) -> String {
    let row = |run: &super::super::comparison::Run| {
        let word = if run.holds { "yes" } else { "no." };
        let sentences = run.reasons.iter().filter(|_| !run.holds).chain(&run.at_least);
        let holds = std::iter::once(word).chain(sentences.map(String::as_str)).collect::<Vec<_>>().join(" ");
        let began = if run.began_unix_ms > 0 { date(run.began_unix_ms) } else { String::new() };
        vec![run.label.clone(), run.scenario.clone(), run.target.clone(), began, holds]
    };
    let head = ["Run", "Scenario", "Target", "Began", "Holds"].map(Into::into).into();
    let grid = Grid { words: false, head, rows: comparison.runs.iter().map(row).collect() };
    table(&Table::guessed(grid.without_empty()))
}

fn all_charts(comparison: &Comparison, reports: &[Report]) -> Vec<Chart> {
    let mut charts = bars(comparison);
    let named = || comparison.runs.iter().map(|run| run.label.clone()).zip(reports);
    charts.extend(charts::throughput_of_runs(&named().collect::<Vec<_>>()));
    let lines: Vec<Line> =
        named().filter_map(|(name, report)| Some(Line { name, trial: report.headline()? })).collect();
    charts.extend(connections(&lines));
    charts.extend(charts::percentiles(&lines));
    charts.extend(over_time(&lines));
    charts
}

/// The results' main figures, a bar per run.
fn bars(comparison: &Comparison) -> Vec<Chart> {
    let Some(result) = comparison.sections.iter().find(|section| section.name == RESULT) else { return Vec::new() };
    let differ = result.trials.iter().any(|name| *name != result.trials[0]);
    let note = if differ { "Each run at its own result; the table tells which trial that is." } else { "" };
    let chart = |(name, title, unit): &(&str, &str, Unit)| {
        let row = result.rows.iter().find(|row| row.name == *name)?;
        let scale = if *unit == Unit::Micros || *name == "received/s" { Scale::Auto } else { Scale::Linear };
        let group = |(run, (value, over)): (&super::super::comparison::Run, (&Option<f64>, &Option<f64>))| Group {
            name: run.label.clone(),
            bars: vec![Bar { value: *value, text: label(*value, row, *over) }],
        };
        let groups = comparison.runs.iter().zip(row.values.iter().zip(&row.ratios)).map(group).collect();
        let axis = Axis::new(title, *unit, scale);
        Some(Chart::Bars(Bars { title: (*title).into(), note: note.into(), axis, series: Vec::new(), groups }))
    };
    BARS.iter().filter_map(chart).collect()
}

fn label(value: Option<f64>, row: &Row, over: Option<f64>) -> String {
    match (value, over) {
        (None, _) => String::new(),
        (Some(value), None) => figure(value, &row.unit),
        (Some(value), over) => format!("{} ({})", figure(value, &row.unit), ratio(over)),
    }
}

fn figures(comparison: &Comparison, section: &Section) -> String {
    let mut head = String::from("<th scope=\"col\">Figure</th>");
    for (at, run) in comparison.runs.iter().enumerate() {
        let span = if at == 0 { "" } else { " colspan=\"2\"" };
        head += &format!("<th scope=\"col\" class=\"n\"{span}>{}</th>", escape(&run.label));
    }
    let row = |row: &Row| {
        let mut cells = format!("<th scope=\"row\">{}</th>", escape(&row.name));
        for (at, (value, over)) in row.values.iter().zip(&row.ratios).enumerate() {
            let value = value.map(|value| figure(value, &row.unit)).unwrap_or_default();
            cells += &format!("<td class=\"n\">{}</td>", escape(&value));
            if at > 0 {
                cells += &format!("<td class=\"n ratio\">{}</td>", escape(&ratio(*over)));
            }
        }
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = section.rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>"
    )
}

fn differences(comparison: &Comparison) -> String {
    if comparison.differences.is_empty() {
        return String::new();
    }
    let labels = comparison.runs.iter().map(|run| run.label.clone());
    let head = std::iter::once("Figure".to_owned()).chain(labels).collect();
    let row = |difference: &super::super::comparison::Difference| {
        std::iter::once(difference.name.clone()).chain(difference.values.iter().cloned()).collect()
    };
    table(&Table::guessed(Grid { words: false, head, rows: comparison.differences.iter().map(row).collect() }))
}

/// Figures that get bars: the row's name, the chart's title, the unit.
const BARS: [(&str, &str, Unit); 4] = [
    ("received/s", "Received per second", Unit::Count),
    ("p99", "99 % of deliveries were faster than", Unit::Micros),
    ("server CPU per delivery", "Server processor time per delivery", Unit::Count),
    ("server memory, peak", "Server memory, peak", Unit::Bytes),
];
