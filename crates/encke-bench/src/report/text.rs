//! The report as the terminal shows it at the end of a run.

use super::columns::{Grid, one_line, shortened, wrapped};
use super::model::{Report, Trial};
use super::units::{bytes, count, figure, micros, number, span};
use crate::outcome::Faults;

/// The markup of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// None, for files and pipes.
    Plain,
    /// Bold, green and red by the escape sequences of terminals.
    Ansi,
}

impl Paint {
    pub(super) fn bold(self, text: &str) -> String {
        self.escaped("1", text)
    }

    pub(super) fn verdict(self, holds: bool, text: &str) -> String {
        self.escaped(if holds { "1;32" } else { "1;31" }, text)
    }

    fn escaped(self, code: &str, text: &str) -> String {
        match self {
            Paint::Plain => text.into(),
            Paint::Ansi => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

/// The whole report: the scenario's own output, the figures, and the verdict.
pub fn of(report: &Report, paint: Paint) -> String {
    let mut parts = Vec::new();
    if !report.transcript.is_empty() {
        let lines =
            report.transcript.iter().map(|line| line.replace(|char: char| char != '\t' && char.is_control(), " "));
        parts.push(lines.map(|line| line + "\n").collect());
    }
    parts.push(paint.bold(&heading(report)) + "\n");
    if !report.trials.is_empty() {
        parts.push(trials(&report.trials));
    }
    parts.push(figures(&report.trials));
    parts.push(verdict(report, paint));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// Scenario, target and duration.
fn heading(report: &Report) -> String {
    let label = if report.label.is_empty() || report.label == report.target {
        String::new()
    } else {
        format!("{} at ", report.label)
    };
    let took = span(report.took_ms);
    one_line(&format!("{} on {label}{}, {took}", report.scenario, report.target))
}

fn trials(trials: &[Trial]) -> String {
    let flawless = trials.iter().all(|trial| trial.faults.none());
    // A table with names alone is omitted.
    let tables = [speeds(trials), costs(trials)].into_iter().filter(|table| table.head.len() > 1);
    let mut text = tables.map(|table| table.text(TEXT_COLUMNS)).collect::<Vec<_>>().join("\n");
    if flawless && trials.iter().any(|trial| trial.expected > 0) {
        text += "\nNothing lost, doubled, out of order, misdelivered or late; no session dropped.\n";
    }
    text
}

/// Rates and latencies, a row per trial.
fn speeds(trials: &[Trial]) -> Grid {
    let per_s = |rate: f64| if rate > 0.0 { number(rate) } else { String::new() };
    let row = |trial: &Trial| {
        let us = |part: fn(&super::model::Latency) -> u64| match &trial.latency {
            Some(latency) if latency.count > 0 => micros(part(latency) as f64),
            _ => String::new(),
        };
        vec![
            name(trial),
            trial.planned_per_s.map(per_s).unwrap_or_default(),
            per_s(trial.outgoing.messages_per_s()),
            per_s(trial.incoming.messages_per_s()),
            us(|latency| latency.p50_us),
            us(|latency| latency.p90_us),
            us(|latency| latency.p99_us),
            us(|latency| latency.max_us),
        ]
    };
    let head = ["trial", "planned/s", "sent/s", "received/s", "p50", "p90", "p99", "max"];
    Grid { words: false, head: head.map(Into::into).into(), rows: trials.iter().map(row).collect() }.without_empty()
}

/// Faults and costs, a row per trial; columns that are zero everywhere are omitted.
fn costs(trials: &[Trial]) -> Grid {
    let several = trials.len() > 1;
    let holds = |trial: &Trial| if trial.holds { "yes".into() } else { "no".into() };
    let some = |faults: u64| if faults > 0 { count(faults) } else { String::new() };
    let row = |trial: &Trial| {
        let server = |part: fn(&super::model::Server) -> String| trial.server.as_ref().map(part).unwrap_or_default();
        let mut row = vec![name(trial), if several { holds(trial) } else { String::new() }];
        row.extend(FAULTS.iter().map(|(_, part)| some(part(&trial.faults))));
        row.extend([
            server(|server| number(server.cores)),
            server(|server| if server.ns_per_delivery > 0.0 { number(server.ns_per_delivery) } else { String::new() }),
            server(
                |server| if server.rss_peak_bytes > 0 { bytes(server.rss_peak_bytes as f64) } else { String::new() },
            ),
            if trial.load_cores > 0.0 { number(trial.load_cores) } else { String::new() },
            trial.others_cores.map(number).unwrap_or_default(),
        ]);
        row
    };
    let mut head = vec!["trial".into(), "holds".into()];
    head.extend(FAULTS.iter().map(|(name, _)| (*name).into()));
    let costs = ["server cores", "ns/delivery", "peak RSS", "load cores", "others"];
    head.extend(costs.map(Into::into));
    Grid { words: false, head, rows: trials.iter().map(row).collect() }.without_empty()
}

/// The figures that only this scenario has: a list for one trial, a table for several.
fn figures(trials: &[Trial]) -> String {
    if let [trial] = trials {
        let names: Vec<String> = trial.figures.iter().map(|figure| one_line(&figure.name)).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let line = |(name, found): (&String, &super::model::Figure)| {
            format!("{name:width$}  {}\n", one_line(&figure(found.value, &found.unit)))
        };
        return names.iter().zip(&trial.figures).map(line).collect();
    }
    let names = figure_names(trials);
    if names.is_empty() {
        return String::new();
    }
    let row = |trial: &Trial| {
        let value = |wanted: &&str| {
            let found = trial.figures.iter().find(|figure| figure.name == *wanted);
            found.map(|found| one_line(&figure(found.value, &found.unit))).unwrap_or_default()
        };
        std::iter::once(name(trial)).chain(names.iter().map(value)).collect()
    };
    let head = std::iter::once("trial".into()).chain(names.iter().map(|name| one_line(name))).collect();
    Grid { words: false, head, rows: trials.iter().map(row).collect() }.text(TEXT_COLUMNS)
}

/// All names of figures, in the order in which they first appear.
pub(super) fn figure_names(trials: &[Trial]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in trials.iter().flat_map(|trial| &trial.figures) {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    names
}

fn verdict(report: &Report, paint: Paint) -> String {
    let mut sentence = match (report.holds, report.reasons.as_slice()) {
        (true, _) => "Everything asked for holds.".into(),
        (false, []) => "Does not hold.".into(),
        (false, reasons) => format!("Does not hold: {}", one_line(&reasons.join(" "))),
    };
    for bound in &report.at_least {
        sentence += &format!(" {}", one_line(bound));
    }
    if report.interrupted {
        sentence += " Interrupted: this is the report so far.";
    }
    paint.verdict(report.holds, &wrapped(&sentence, TEXT_COLUMNS).join("\n")) + "\n"
}

fn name(trial: &Trial) -> String {
    shortened(&one_line(&trial.name), NAME_CHARS)
}

pub(super) type Fault = fn(&Faults) -> u64;

/// The faults, by the names of their columns.
pub(super) const FAULTS: [(&str, Fault); 6] = [
    ("lost", |faults| faults.lost),
    ("doubled", |faults| faults.doubled),
    ("reordered", |faults| faults.reordered),
    ("misdelivered", |faults| faults.misdelivered),
    ("late", |faults| faults.late),
    ("dropped", |faults| faults.dropped_sessions),
];

/// Width of the text: common terminals have it, and so have code blocks on the web.
pub(super) const TEXT_COLUMNS: usize = 100;

/// The most characters of a trial's name, so that rates and latencies fit beside it.
const NAME_CHARS: usize = 36;
