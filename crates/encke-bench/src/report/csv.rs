//! Comma-separated values (RFC 4180): the scenario's own table, otherwise one row per trial.

use super::model::{Latency, Report, Table, Trial};

/// The report's rows: the scenario's table if it has one, otherwise its trials.
pub fn of(report: &Report) -> String {
    match &report.table {
        Some(table) => of_table(table),
        None => of_table(&trials(report)),
    }
}

/// A table with its head.
pub fn of_table(table: &Table) -> String {
    let mut text = String::new();
    for row in std::iter::once(&table.columns).chain(&table.rows) {
        let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
        text += &cells.join(",");
        text.push('\n');
    }
    text
}

/// One row per trial. The columns are always the same; unknown cells are empty.
pub fn trials(report: &Report) -> Table {
    Table {
        columns: COLUMNS.iter().map(|(name, _)| (*name).into()).collect(),
        rows: report.trials.iter().map(|trial| COLUMNS.iter().map(|(_, cell)| cell(report, trial)).collect()).collect(),
    }
}

/// Quotes a cell for RFC 4180. A cell that a spreadsheet would run as a formula gets an apostrophe.
fn quoted(cell: &str) -> String {
    let formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err();
    let cell = if formula { format!("'{cell}") } else { cell.into() };
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

fn latency(trial: &Trial, part: impl Fn(&Latency) -> String) -> String {
    trial.latency.as_ref().map(part).unwrap_or_default()
}

fn rounded(value: f64) -> String {
    if value.is_finite() { format!("{}", (value * 1000.0).round() / 1000.0) } else { String::new() }
}

fn rounded_if(value: Option<f64>) -> String {
    value.map(rounded).unwrap_or_default()
}

type Cell = fn(&Report, &Trial) -> String;

/// Columns of the trials' rows.
const COLUMNS: [(&str, Cell); 33] = [
    ("scenario", |report, _| report.scenario.clone()),
    ("label", |report, _| report.label.clone()),
    ("target", |report, _| report.target.clone()),
    ("trial", |_, trial| trial.name.clone()),
    ("clients", |_, trial| trial.clients.to_string()),
    ("planned_per_s", |_, trial| rounded_if(trial.planned_per_s)),
    ("sent_per_s", |_, trial| rounded(trial.outgoing.messages_per_s())),
    ("received_per_s", |_, trial| rounded(trial.incoming.messages_per_s())),
    ("sent", |_, trial| trial.outgoing.messages.to_string()),
    ("received", |_, trial| trial.incoming.messages.to_string()),
    ("expected", |_, trial| trial.expected.to_string()),
    ("lost", |_, trial| trial.faults.lost.to_string()),
    ("doubled", |_, trial| trial.faults.doubled.to_string()),
    ("reordered", |_, trial| trial.faults.reordered.to_string()),
    ("misdelivered", |_, trial| trial.faults.misdelivered.to_string()),
    ("late", |_, trial| trial.faults.late.to_string()),
    ("dropped_sessions", |_, trial| trial.faults.dropped_sessions.to_string()),
    ("latency_min_us", |_, trial| latency(trial, |latency| latency.min_us.to_string())),
    ("latency_mean_us", |_, trial| latency(trial, |latency| rounded(latency.mean_us))),
    ("latency_p50_us", |_, trial| latency(trial, |latency| latency.p50_us.to_string())),
    ("latency_p90_us", |_, trial| latency(trial, |latency| latency.p90_us.to_string())),
    ("latency_p99_us", |_, trial| latency(trial, |latency| latency.p99_us.to_string())),
    ("latency_p999_us", |_, trial| latency(trial, |latency| latency.p999_us.to_string())),
    ("latency_max_us", |_, trial| latency(trial, |latency| latency.max_us.to_string())),
    ("server_cores", |_, trial| rounded_if(trial.server.map(|server| server.cores))),
    ("server_ns_per_delivery", |_, trial| rounded_if(trial.server.map(|server| server.ns_per_delivery))),
    ("server_rss_before_bytes", |_, trial| rounded_if(trial.server.map(|server| server.rss_before_bytes as f64))),
    ("server_rss_peak_bytes", |_, trial| rounded_if(trial.server.map(|server| server.rss_peak_bytes as f64))),
    ("server_rss_after_bytes", |_, trial| rounded_if(trial.server.map(|server| server.rss_after_bytes as f64))),
    ("load_cores", |_, trial| rounded(trial.load_cores)),
    ("others_cores", |_, trial| rounded_if(trial.others_cores)),
    ("holds", |_, trial| trial.holds.to_string()),
    ("reasons", |_, trial| trial.reasons.join(" ")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_quotes_and_line_breaks_are_quoted() {
        assert_eq!(quoted("1,000 \"rooms\"\n"), "\"1,000 \"\"rooms\"\"\n\"");
        assert_eq!(quoted("plain text"), "plain text");
    }

    #[test]
    fn no_cell_becomes_a_formula() {
        for cell in ["=1+1", "+cmd|'/C calc'!A0", "-2+3", "@SUM(A1)", "\t=1"] {
            assert!(quoted(cell).trim_start_matches('"').starts_with('\''), "{cell}");
        }
        assert_eq!(quoted("-2.5"), "-2.5", "a negative number is a number");
    }

    #[test]
    fn every_trial_has_every_column() {
        let report = Report { trials: vec![Trial::default(), Trial::default()], ..Report::default() };
        let text = of(&report);
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.split(',').count() == COLUMNS.len()), "{text}");
    }

    #[test]
    fn the_scenarios_own_table_goes_first() {
        let table = Table { columns: vec!["a".into(), "b".into()], rows: vec![vec!["1".into(), "x,y".into()]] };
        assert_eq!(of(&Report { table: Some(table), ..Report::default() }), "a,b\n1,\"x,y\"\n");
    }
}
