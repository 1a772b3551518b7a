//! The figures of trials, a row each.

use super::super::model::{Latency, Trial};
use super::super::text::FAULTS;
use super::Row;

/// A row for each figure that at least one of the trials has.
pub(super) fn of(trials: &[Option<&Trial>]) -> Vec<Row> {
    let mut rows: Vec<Row> = FIXED.iter().map(|(name, unit, part)| row(name, unit, trials, *part)).collect();
    rows.extend(FAULTS.iter().map(|(name, part)| row(name, "", trials, |trial| Some(part(&trial.faults) as f64))));
    rows.retain(|row| row.values.iter().flatten().any(|value| *value != 0.0));
    let mut names: Vec<(&str, &str)> = Vec::new();
    for figure in trials.iter().flatten().flat_map(|trial| &trial.figures) {
        if !names.iter().any(|(name, _)| *name == figure.name) {
            names.push((&figure.name, &figure.unit));
        }
    }
    rows.extend(names.into_iter().map(|(name, unit)| {
        row(name, unit, trials, |trial| {
            // A figure of the same name in another unit is another figure.
            let found = trial.figures.iter().find(|figure| figure.name == name && figure.unit == unit);
            found.map(|figure| figure.value)
        })
    }));
    rows
}

fn row(name: &str, unit: &str, trials: &[Option<&Trial>], part: impl Fn(&Trial) -> Option<f64>) -> Row {
    let values: Vec<Option<f64>> =
        trials.iter().map(|trial| trial.and_then(&part).filter(|value| value.is_finite())).collect();
    let first = values.first().copied().flatten();
    let ratio =
        |value: &Option<f64>| value.zip(first).map(|(value, first)| value / first).filter(|ratio| ratio.is_finite());
    let ratios = std::iter::once(None).chain(values.iter().skip(1).map(ratio)).take(values.len()).collect();
    Row { name: name.into(), unit: unit.into(), values, ratios }
}

fn latency(trial: &Trial, part: fn(&Latency) -> u64) -> Option<f64> {
    trial.latency.as_ref().filter(|latency| latency.count > 0).map(|latency| part(latency) as f64)
}

type Part = fn(&Trial) -> Option<f64>;

const FIXED: [(&str, &str, Part); 13] = [
    ("clients", "", |trial| Some(trial.clients as f64)),
    ("planned/s", "", |trial| trial.planned_per_s),
    ("sent/s", "", |trial| Some(trial.outgoing.messages_per_s())),
    ("received/s", "", |trial| Some(trial.incoming.messages_per_s())),
    ("p50", "µs", |trial| latency(trial, |latency| latency.p50_us)),
    ("p90", "µs", |trial| latency(trial, |latency| latency.p90_us)),
    ("p99", "µs", |trial| latency(trial, |latency| latency.p99_us)),
    ("p99.9", "µs", |trial| latency(trial, |latency| latency.p999_us)),
    ("max", "µs", |trial| latency(trial, |latency| latency.max_us)),
    ("server cores", "", |trial| trial.server.map(|server| server.cores)),
    ("server CPU per delivery", "ns", |trial| trial.server.map(|server| server.ns_per_delivery)),
    ("server memory, peak", "B", |trial| trial.server.map(|server| server.rss_peak_bytes as f64)),
    ("load cores", "", |trial| Some(trial.load_cores)),
];
