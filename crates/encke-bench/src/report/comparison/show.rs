//! Runs side by side as text and as rows for programs.

use super::super::columns::{Grid, one_line, shortened, wrapped};
use super::super::model::Table;
use super::super::text::{Paint, TEXT_COLUMNS};
use super::super::units::{date, figure, number};
use super::{Comparison, RESULT, Row, Section};

/// The comparison as the terminal shows it.
pub fn text(comparison: &Comparison, paint: Paint) -> String {
    let mut parts = vec![runs(comparison)];
    for section in in_short(comparison) {
        let heading = wrapped(&heading(&section), TEXT_COLUMNS).join("\n");
        parts.push(format!("{}\n{}", paint.bold(&heading), grid(comparison, &section).text(TEXT_COLUMNS)));
    }
    if !comparison.differences.is_empty() {
        let row = |difference: &super::Difference| {
            let values = difference.values.iter().map(|value| shortened(&one_line(value), VALUE_CHARS));
            std::iter::once(shortened(&one_line(&difference.name), NAME_CHARS)).chain(values).collect()
        };
        let rows = comparison.differences.iter().map(row).collect();
        let grid = Grid { words: true, head: head("", comparison), rows };
        parts.push(format!("{}\n{}", paint.bold("Not the same for all"), grid.text(TEXT_COLUMNS)));
    }
    parts.push(verdict(comparison, paint));
    parts.join("\n")
}

/// The comparison as rows: section, figure, unit, then each run's value, then the ratios to the first.
pub fn table(comparison: &Comparison) -> Table {
    let labels: Vec<&String> = comparison.runs.iter().map(|run| &run.label).collect();
    let mut columns = vec!["section".to_owned(), "figure".into(), "unit".into()];
    columns.extend(labels.iter().map(|label| (*label).clone()));
    columns.extend(labels.iter().skip(1).map(|label| format!("{label} / {}", labels[0])));
    let cell = |value: &Option<f64>| value.map(|value| format!("{}", (value * 1e6).round() / 1e6)).unwrap_or_default();
    let row = |section: &Section, row: &Row| {
        let names = [section.name.clone(), row.name.clone(), row.unit.clone()];
        names.into_iter().chain(row.values.iter().chain(row.ratios.iter().skip(1)).map(cell)).collect()
    };
    let of_section = |section: &Section| section.rows.iter().map(|one| row(section, one)).collect::<Vec<_>>();
    Table { columns, rows: comparison.sections.iter().flat_map(of_section).collect() }
}

/// The sections for people: all figures of the results, and a table for each main figure of the other trials.
pub(in crate::report) fn in_short(comparison: &Comparison) -> Vec<Section> {
    let (results, others): (Vec<&Section>, Vec<&Section>) =
        comparison.sections.iter().partition(|section| section.name == RESULT);
    let by_trial = |figure: &&str| {
        let row = |section: &&Section| {
            let row = section.rows.iter().find(|row| row.name == *figure)?;
            Some(Row { name: section.name.clone(), ..row.clone() })
        };
        let rows: Vec<Row> = others.iter().filter_map(row).collect();
        Section { name: format!("{figure} by trial"), trials: Vec::new(), rows }
    };
    let tables = MAIN_FIGURES.iter().map(by_trial).filter(|section| !section.rows.is_empty());
    results.into_iter().cloned().chain(tables).collect()
}

/// Formats a ratio, such as `0.25×`.
pub(in crate::report) fn ratio(ratio: Option<f64>) -> String {
    ratio.map(|ratio| format!("{}×", number(ratio))).unwrap_or_default()
}

/// A section's heading, with the trials' names if they differ.
pub(in crate::report) fn heading(section: &Section) -> String {
    let names: Vec<String> = section.trials.iter().map(|name| name.as_deref().unwrap_or("none").to_owned()).collect();
    let word = if section.name == RESULT { "Result" } else { &section.name };
    one_line(&match names.first() {
        Some(first) if names.iter().all(|name| name == first) && (first == word || first.is_empty()) => word.to_owned(),
        Some(first) if names.iter().all(|name| name == first) => format!("{word}: {first}"),
        _ if section.name != RESULT => word.to_owned(),
        _ => format!("{word}: {}", names.join(" | ")),
    })
}

fn runs(comparison: &Comparison) -> String {
    let row = |run: &super::Run| {
        vec![
            shortened(&one_line(&run.label), VALUE_CHARS),
            one_line(&run.scenario),
            shortened(&one_line(&run.target), 40),
            if run.began_unix_ms > 0 { date(run.began_unix_ms) } else { String::new() },
        ]
    };
    let head = ["run", "scenario", "target", "began"].map(Into::into).into();
    Grid { words: true, head, rows: comparison.runs.iter().map(row).collect() }.without_empty().text(TEXT_COLUMNS)
}

fn grid(comparison: &Comparison, section: &Section) -> Grid {
    let row = |row: &Row| {
        let width = row_ratio_width(section);
        let cell = |(value, over): (&Option<f64>, &Option<f64>)| {
            let value = value.map(|value| figure(value, &row.unit)).unwrap_or_default();
            format!("{value}  {:>width$}", ratio(*over))
        };
        let mut cells = vec![shortened(&one_line(&row.name), NAME_CHARS)];
        // The first has no ratios: nothing follows its figures.
        cells.extend(row.values.first().map(|value| value.map(|value| figure(value, &row.unit)).unwrap_or_default()));
        cells.extend(row.values.iter().zip(&row.ratios).skip(1).map(cell));
        cells
    };
    Grid { words: false, head: head("", comparison), rows: section.rows.iter().map(row).collect() }
}

fn row_ratio_width(section: &Section) -> usize {
    let ratios = section.rows.iter().flat_map(|row| &row.ratios);
    ratios.map(|over| ratio(*over).chars().count()).max().unwrap_or(0)
}

fn head(first: &str, comparison: &Comparison) -> Vec<String> {
    let labels = comparison.runs.iter().map(|run| shortened(&one_line(&run.label), VALUE_CHARS));
    std::iter::once(first.into()).chain(labels).collect()
}

fn verdict(comparison: &Comparison, paint: Paint) -> String {
    let failed: Vec<String> = comparison.runs.iter().filter(|run| !run.holds).map(|run| one_line(&run.label)).collect();
    let sentence = match failed.as_slice() {
        [] => "All runs hold.".into(),
        failed => format!("Does not hold: {}", failed.join(", ")),
    };
    let bound = |run: &super::Run| format!("{}: {}\n", one_line(&run.label), one_line(&run.at_least.join(" ")));
    let bounds: String = comparison.runs.iter().filter(|run| !run.at_least.is_empty()).map(bound).collect();
    format!("{bounds}{}\n", paint.verdict(failed.is_empty(), &sentence))
}

/// Figures of which all trials are shown.
const MAIN_FIGURES: [&str; 3] = ["received/s", "p99", "server CPU per delivery"];

/// The most characters of a figure's name.
const NAME_CHARS: usize = 36;

/// The most characters of a label or setting.
const VALUE_CHARS: usize = 28;
