//! The charts of a run's trials.

use super::super::chart::{Axis, Chart, Plot, Point, Scale, Series, Unit};
use super::super::model::{Latency, Report, Trial};
use super::super::units::count;
use super::line::{Line, chart};
use super::time::{connections, over_time};

/// Trials that a line of a chart goes through, and its name.
pub(super) struct TrialLine<'a> {
    pub(super) name: String,
    pub(super) trials: Vec<&'a Trial>,
}

/// All charts that the report has figures for.
pub(super) fn of(report: &Report) -> Vec<Chart> {
    let trial_lines = by_clients(&report.trials);
    let mut charts = throughput(&trial_lines);
    if charts.is_empty() && trial_lines.len() > 1 {
        charts.extend(latency_by_clients(&report.trials));
    }
    let watched = representative(report, |trial| trial.samples.len() > 1);
    charts.extend(connections(&watched));
    charts.extend(percentiles(&representative(report, |trial| {
        trial.latency.as_ref().is_some_and(|latency| latency.curve.len() > 1)
    })));
    charts.extend(over_time(&watched));
    charts
}

/// Throughput against latency. A single line gets all its latencies in one chart; several lines get one chart per
/// latency.
pub(super) fn throughput(trial_lines: &[TrialLine]) -> Vec<Chart> {
    let several = |trial_line: &&TrialLine| timed(trial_line).count() > 1;
    let trial_lines: Vec<&TrialLine> = trial_lines.iter().filter(several).collect();
    match trial_lines.as_slice() {
        [] => Vec::new(),
        [trial_line] => {
            let series = LATENCIES.iter().map(|(name, part)| series(name, trial_line, *part)).collect();
            vec![throughput_chart("Latency against throughput", "latency", &trial_lines, series)]
        }
        trial_lines => LATENCIES[..2].iter().map(|latency| compared(*latency, trial_lines, "")).collect(),
    }
}

/// Latency against the number of clients, where each number was measured once.
fn latency_by_clients(trials: &[Trial]) -> Option<Chart> {
    let trial_line = TrialLine { name: String::new(), trials: trials.iter().collect() };
    let series = |(name, part): &(&str, Part)| {
        let points = timed(&trial_line).map(|(trial, latency)| point(trial, trial.clients as f64, part(latency)));
        Series { name: (*name).into(), points: points.collect() }
    };
    chart(Plot {
        title: "Latency against clients".into(),
        note: hollow(trials.iter().all(|trial| trial.holds)),
        x: Axis::new("clients", Unit::Count, Scale::Linear),
        y: Axis::new("latency", Unit::Micros, Scale::Auto),
        series: LATENCIES.iter().map(series).collect(),
    })
}

/// Throughput against latency of several runs, a line each; a chart for each number of clients.
pub(super) fn throughput_of_runs<'a>(runs: &[(String, &'a Report)]) -> Vec<Chart> {
    let mut clients: Vec<u64> = runs.iter().flat_map(|(_, run)| &run.trials).map(|trial| trial.clients).collect();
    clients.sort_unstable();
    clients.dedup();
    let trial_lines = |clients: u64| {
        let of_run = |(label, run): &(String, &'a Report)| {
            let trials = run.trials.iter().filter(|trial| trial.clients == clients).collect();
            TrialLine { name: label.clone(), trials }
        };
        runs.iter().map(of_run).collect::<Vec<_>>()
    };
    let several = |trial_lines: &Vec<TrialLine>| trial_lines.iter().any(|trial_line| timed(trial_line).count() > 1);
    let clients: Vec<(u64, Vec<TrialLine>)> = clients
        .into_iter()
        .map(|clients| (clients, trial_lines(clients)))
        .filter(|(_, trial_lines)| several(trial_lines))
        .collect();
    let one = clients.len() == 1;
    let charts = |(clients, trial_lines): (u64, Vec<TrialLine>)| {
        let trial_lines: Vec<&TrialLine> = trial_lines.iter().collect();
        let which = if one { String::new() } else { format!(", {} clients", count(clients)) };
        // With several charts of the same kind, p99 alone is enough.
        let latencies = if one { &LATENCIES[..2] } else { &LATENCIES[1..2] };
        latencies.iter().map(|latency| compared(*latency, &trial_lines, &which)).collect::<Vec<_>>()
    };
    clients.into_iter().take(CLIENT_COUNTS_MAX).flat_map(charts).collect()
}

/// One latency of several lines.
fn compared((name, part): (&str, Part), trial_lines: &[&TrialLine], which: &str) -> Chart {
    let series = trial_lines.iter().map(|trial_line| series(&trial_line.name, trial_line, part)).collect();
    throughput_chart(&format!("{name} latency against throughput{which}"), name, trial_lines, series)
}

/// The percentiles of each line.
pub(super) fn percentiles(lines: &[Line]) -> Option<Chart> {
    let series = |line: &Line| {
        let latency = line.trial.latency.as_ref().filter(|latency| latency.count > 0)?;
        // The highest of n lies at 1 - 1/n at most: beyond, nothing is known.
        let last = 1.0 - 1.0 / (latency.count.max(2) as f64);
        let points = latency.curve.iter().map(|(share, us)| (share.min(last), *us as f64));
        Some(Series::line(&line.name, points)).filter(|series| !series.points.is_empty())
    };
    chart(Plot {
        title: "Latency by percentile".into(),
        note: "The share of deliveries that were faster; each step to the right is a tenth of the rest.".into(),
        x: Axis::new("share of deliveries", Unit::Count, Scale::Nines),
        y: Axis::new("latency", Unit::Micros, Scale::Auto),
        series: lines.iter().filter_map(series).collect(),
    })
}

fn throughput_chart(title: &str, label: &str, trial_lines: &[&TrialLine], series: Vec<Series>) -> Chart {
    let all_hold = trial_lines.iter().flat_map(|trial_line| &trial_line.trials).all(|trial| trial.holds);
    Chart::Plot(Plot {
        title: title.into(),
        note: hollow(all_hold),
        x: Axis::new("received/s", Unit::Count, Scale::Auto),
        y: Axis::new(label, Unit::Micros, Scale::Auto),
        series,
    })
}

fn hollow(all_hold: bool) -> String {
    if all_hold { String::new() } else { "Hollow marks: trials that did not hold.".into() }
}

fn timed<'a>(trial_line: &'a TrialLine) -> impl Iterator<Item = (&'a Trial, &'a Latency)> {
    let latency = |trial: &&'a Trial| {
        let latency = trial.latency.as_ref().filter(|latency| latency.count > 0)?;
        Some((*trial, latency)).filter(|_| trial.incoming.messages > 0)
    };
    trial_line.trials.iter().filter_map(latency)
}

/// A line through trials in the order of their planned rate. Where a server collapses, the line turns back.
fn series(name: &str, trial_line: &TrialLine, part: Part) -> Series {
    let mut trials: Vec<_> = timed(trial_line).collect();
    let planned = |trial: &Trial| trial.planned_per_s.unwrap_or_else(|| trial.outgoing.messages_per_s());
    trials.sort_by(|a, b| planned(a.0).total_cmp(&planned(b.0)));
    let point = |(trial, latency)| point(trial, trial.incoming.messages_per_s(), part(latency));
    Series { name: name.into(), points: trials.into_iter().map(point).collect() }
}

fn point(trial: &Trial, x: f64, latency_us: u64) -> Point {
    Point { x, y: latency_us as f64, name: trial.name.clone(), hollow: !trial.holds }
}

/// Groups trials with equal numbers of clients into lines.
pub(super) fn by_clients(trials: &[Trial]) -> Vec<TrialLine<'_>> {
    let mut trial_lines: Vec<TrialLine> = Vec::new();
    for trial in trials {
        let name = format!("{} clients", count(trial.clients));
        match trial_lines.iter_mut().find(|trial_line| trial_line.name == name) {
            Some(trial_line) => trial_line.trials.push(trial),
            None => trial_lines.push(TrialLine { name, trials: vec![trial] }),
        }
    }
    trial_lines
}

/// Trials to draw as lines: all that have something, unless they are too many; then the run's own, and for some numbers of
/// clients the best that holds.
fn representative<'a>(report: &'a Report, has: impl Fn(&Trial) -> bool) -> Vec<Line<'a>> {
    let all: Vec<&Trial> = report.trials.iter().filter(|trial| has(trial)).collect();
    let chosen = if all.len() > LINES_MAX { chosen(report, &all) } else { all };
    chosen.into_iter().map(|trial| Line { name: trial.name.clone(), trial }).collect()
}

fn chosen<'a>(report: &'a Report, all: &[&'a Trial]) -> Vec<&'a Trial> {
    let own = report.headline();
    let is_own = |trial: &Trial| own.is_some_and(|own| std::ptr::eq(own, trial));
    let rate = |trial: &&&Trial| trial.incoming.messages_per_s();
    let mut clients: Vec<u64> = all.iter().map(|trial| trial.clients).collect();
    clients.dedup();
    let best = |clients: &u64| {
        let fit = || all.iter().filter(|trial| trial.clients == *clients && trial.holds);
        let own = fit().find(|trial| is_own(trial));
        own.or_else(|| fit().max_by(|a, b| rate(a).total_cmp(&rate(b)))).copied()
    };
    let best: Vec<&Trial> = clients.iter().filter_map(best).collect();
    // Evenly spread, the last among them.
    let last = best.len().saturating_sub(1);
    let spread = |line: usize| best.get(line * last / (LINES_MAX - 1)).copied();
    let mut chosen: Vec<&Trial> =
        if best.len() > LINES_MAX { (0..LINES_MAX).filter_map(spread).collect() } else { best.clone() };
    if !chosen.iter().any(|trial| is_own(trial)) {
        chosen.truncate(LINES_MAX - 1);
        chosen.extend(all.iter().filter(|trial| is_own(trial)));
    }
    chosen
}

/// One of the latencies, in microseconds.
type Part = fn(&Latency) -> u64;

/// Latencies drawn against throughput.
const LATENCIES: [(&str, Part); 3] =
    [("p50", |latency| latency.p50_us), ("p99", |latency| latency.p99_us), ("max", |latency| latency.max_us)];

/// The limit of client counts that get separate charts.
const CLIENT_COUNTS_MAX: usize = 4;

/// More lines than this hide each other.
const LINES_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_turns_back_where_the_server_collapses() {
        let trial = |planned: f64, received: u64| Trial {
            clients: 10,
            planned_per_s: Some(planned),
            incoming: crate::outcome::Flow { messages: received, window_ms: 1000, ..Default::default() },
            latency: Some(Latency { count: 1, p99_us: 5, ..Latency::default() }),
            ..Trial::default()
        };
        let trials = [trial(3.0, 100), trial(1.0, 50), trial(2.0, 120)];
        let trial_line = by_clients(&trials);
        let xs: Vec<f64> =
            series("p99", &trial_line[0], |latency| latency.p99_us).points.iter().map(|point| point.x).collect();
        assert_eq!(xs, [50.0, 120.0, 100.0]);
    }
}
