//! Charts of trials over time.

use super::super::chart::{Axis, Chart, Plot, Scale, Series, Unit};
use super::super::model::Sample;
use super::super::units::span;
use super::line::{Line, chart};

/// The number of connections over time, if it changes.
pub(super) fn connections(lines: &[Line]) -> Vec<Chart> {
    let charts = [opened_per_interval(lines), over_time_of(&CONNECTED, lines, step(lines))];
    charts.into_iter().flatten().collect()
}

/// All other charts that the samples have figures for.
pub(super) fn over_time(lines: &[Line]) -> Vec<Chart> {
    OVER_TIME.iter().filter_map(|quantity| over_time_of(quantity, lines, step(lines))).collect()
}

/// A quantity over time.
struct OverTime {
    title: &'static str,
    label: &'static str,
    unit: Unit,
    figure: Figure,
}

/// The source of a sample's figure, and its reduction if there are too many samples.
#[derive(Clone, Copy)]
enum Figure {
    /// Growth of a count, per second.
    PerSecond(fn(&Sample) -> u64),
    /// The highest.
    Highest(fn(&Sample) -> f64),
    /// The mean.
    Mean(fn(&Sample) -> f64),
    /// The last; not drawn where it is always the same.
    Moving(fn(&Sample) -> f64),
}

fn over_time_of(quantity: &OverTime, lines: &[Line], step_ms: f64) -> Option<Chart> {
    let series = |line: &Line| {
        let points = points(&line.trial.samples, quantity.figure, step_ms);
        let known = points.iter().filter(|point| point.1.is_finite()).count();
        (known > 1).then(|| Series::line(&line.name, points))
    };
    let series: Vec<Series> = lines.iter().filter_map(series).collect();
    let moves = series.iter().flat_map(|series| &series.points).any(|point| point.y > 0.0);
    // A last sample directly after the one before adds nothing.
    let thinned = |line: &Line| line.trial.samples.len() > 2 * groups(&line.trial.samples, step_ms).count();
    let thinned = lines.iter().any(thinned);
    let every = span(step_ms as u64);
    let note = match quantity.figure {
        Figure::Highest(_) if thinned => format!("Each point is the highest of {every}."),
        Figure::Mean(_) if thinned => format!("Each point is the mean of {every}."),
        _ => String::new(),
    };
    let scale = if quantity.unit == Unit::Micros { Scale::Auto } else { Scale::Linear };
    let x = Axis::new("time", Unit::Seconds, Scale::Linear);
    let y = Axis::new(quantity.label, quantity.unit, scale);
    chart(Plot { title: quantity.title.into(), note, x, y, series }).filter(|_| moves)
}

/// The interval, in milliseconds, at which lines do not have too many points.
fn step(lines: &[Line]) -> f64 {
    let longest = lines.iter().filter_map(|line| line.trial.samples.last()).map(|sample| sample.at_ms).max();
    interval(longest.unwrap_or(0) as f64 / POINTS)
}

/// Connections opened in each interval, the chart of the flood.
fn opened_per_interval(lines: &[Line]) -> Option<Chart> {
    let longest = lines.iter().filter_map(|line| line.trial.samples.last()).map(|sample| sample.at_ms).max()?;
    let step_ms = interval(longest as f64 / INTERVALS);
    let series = |line: &Line| {
        let samples = &line.trial.samples;
        let mut opened = 0;
        let mut before = samples.first()?.connected;
        let mut counts_at = Vec::with_capacity(samples.len());
        for sample in samples {
            opened += sample.connected.saturating_sub(before);
            before = sample.connected;
            counts_at.push((sample.at_ms as f64, opened as f64));
        }
        let most = samples.iter().map(|sample| sample.connected).max()?;
        // A session or two that came back are no flood.
        (opened as f64 > 0.01 * most as f64).then(|| Series::line(&line.name, growth(&counts_at, step_ms)))
    };
    let every = span(step_ms as u64);
    chart(Plot {
        title: "Connection rate".into(),
        note: format!("Connections opened in each interval of {every}."),
        x: Axis::new("time", Unit::Seconds, Scale::Linear),
        y: Axis::new(&format!("connections per {every}"), Unit::Count, Scale::Linear),
        series: lines.iter().filter_map(series).collect(),
    })
}

/// Seconds and figures, one for each interval or for each sample, whichever are fewer.
fn points(samples: &[Sample], figure: Figure, step_ms: f64) -> Vec<(f64, f64)> {
    let reduced = |part: fn(&Sample) -> f64, reduce: fn(&[f64]) -> f64| {
        let group = |group: &[Sample]| {
            let middle = (group[0].at_ms + group[group.len() - 1].at_ms) as f64 / 2e3;
            let known: Vec<f64> = group.iter().map(part).filter(|value| value.is_finite()).collect();
            (middle, if known.is_empty() { f64::NAN } else { reduce(&known) })
        };
        groups(samples, step_ms).map(group).collect::<Vec<_>>()
    };
    match figure {
        Figure::PerSecond(part) => rates(samples, part, step_ms),
        Figure::Highest(part) => reduced(part, |known| known.iter().copied().fold(f64::MIN, f64::max)),
        Figure::Mean(part) => reduced(part, |known| known.iter().sum::<f64>() / known.len() as f64),
        Figure::Moving(part) => {
            let moving = samples.windows(2).any(|pair| part(&pair[0]) != part(&pair[1]));
            if moving { reduced(part, |known| known[known.len() - 1]) } else { Vec::new() }
        }
    }
}

/// The samples of each interval.
fn groups(samples: &[Sample], step_ms: f64) -> impl Iterator<Item = &[Sample]> {
    let interval = move |sample: &Sample| (sample.at_ms as f64 / step_ms) as u64;
    samples.chunk_by(move |a, b| interval(a) == interval(b))
}

/// The growth of a count per second, in intervals no shorter than those between samples.
fn rates(samples: &[Sample], part: fn(&Sample) -> u64, step_ms: f64) -> Vec<(f64, f64)> {
    let mut counts_at: Vec<(f64, f64)> = Vec::with_capacity(samples.len() + 1);
    if samples.first().is_some_and(|first| first.at_ms > 0) {
        counts_at.push((0.0, 0.0));
    }
    counts_at.extend(samples.iter().map(|sample| (sample.at_ms as f64, part(sample) as f64)));
    let longest = counts_at.last().map_or(0.0, |last| last.0);
    let step_ms = step_ms.max(interval(longest / counts_at.len().max(1) as f64));
    growth(&counts_at, step_ms).into_iter().map(|(at, grown)| (at, grown * 1e3 / step_ms)).collect()
}

/// The growth of `(milliseconds, count)` in each whole interval, with the interval's middle in seconds. Growth is
/// interpolated between samples, so that late samples make no waves.
fn growth(counts_at: &[(f64, f64)], step_ms: f64) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (counts_at.first(), counts_at.last()) else { return Vec::new() };
    let mut at = 0;
    let mut count_at = |ms: f64| {
        while at + 2 < counts_at.len() && counts_at[at + 1].0 < ms {
            at += 1;
        }
        match counts_at.get(at + 1) {
            Some(next) if next.0 > counts_at[at].0 => {
                let share = ((ms - counts_at[at].0) / (next.0 - counts_at[at].0)).clamp(0.0, 1.0);
                counts_at[at].1 + share * (next.1 - counts_at[at].1)
            }
            _ => counts_at[at].1,
        }
    };
    // The last interval may end a little after the last sample.
    let whole = ((last.0 - first.0) / step_ms + 0.05).floor() as usize;
    let edges: Vec<f64> = (0..=whole).map(|step| first.0 + step as f64 * step_ms).collect();
    let counts: Vec<f64> = edges.iter().map(|edge| count_at(*edge)).collect();
    let pairs = edges.windows(2).zip(counts.windows(2));
    pairs.map(|(edge, count)| ((edge[0] + edge[1]) / 2e3, (count[1] - count[0]).max(0.0))).collect()
}

/// The next length of time, in milliseconds, that people count in.
fn interval(at_least_ms: f64) -> f64 {
    let lengths = INTERVALS_S.iter().map(|seconds| seconds * 1e3);
    lengths.into_iter().find(|length| *length >= at_least_ms * 0.95).unwrap_or(at_least_ms)
}

const CONNECTED: OverTime = OverTime {
    title: "Connected over time",
    label: "open connections",
    unit: Unit::Count,
    figure: Figure::Moving(|sample| sample.connected as f64),
};

/// Charts over time, in their order.
const OVER_TIME: [OverTime; 4] = [
    OverTime {
        title: "Received over time",
        label: "received/s",
        unit: Unit::Count,
        figure: Figure::PerSecond(|sample| sample.received),
    },
    OverTime {
        title: "99th percentile over time",
        label: "p99",
        unit: Unit::Micros,
        figure: Figure::Highest(|sample| if sample.p99_us > 0 { sample.p99_us as f64 } else { f64::NAN }),
    },
    OverTime {
        title: "Server memory over time",
        label: "resident memory",
        unit: Unit::Bytes,
        figure: Figure::Highest(|sample| sample.server_rss_bytes.map_or(f64::NAN, |bytes| bytes as f64)),
    },
    OverTime {
        title: "Server processor over time",
        label: "cores",
        unit: Unit::Count,
        figure: Figure::Mean(|sample| sample.server_cores.unwrap_or(f64::NAN)),
    },
];

/// More points cannot be distinguished on a phone.
const POINTS: f64 = 160.0;

/// Into how many intervals the connection rate is divided, at most.
const INTERVALS: f64 = 60.0;

/// Lengths of intervals in seconds.
const INTERVALS_S: [f64; 17] =
    [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 100.0, 200.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_count_has_a_steady_rate_however_uneven_the_samples_come() {
        let at = [1003, 1998, 3011, 4000, 5020, 6001];
        let samples: Vec<Sample> =
            at.iter().map(|at| Sample { at_ms: *at, received: at * 7, ..Sample::default() }).collect();
        let rates = rates(&samples, |sample| sample.received, 100.0);
        assert!(rates.len() >= 5 && rates.iter().all(|(_, rate)| (rate - 7_000.0).abs() < 1.0), "{rates:?}");
    }

    #[test]
    fn intervals_are_those_that_people_count_in() {
        assert_eq!([1_000.0, 1_010.0, 1_700.0, 83_000.0, 1e9].map(interval), [1e3, 1e3, 2e3, 1e5, 1e9]);
    }

    #[test]
    fn a_spike_among_many_samples_is_still_seen() {
        let p99 = |at: u64| if at == 5_000 { 90_000 } else { 2_000 };
        let samples: Vec<Sample> =
            (0..10_000).map(|at| Sample { at_ms: at * 1000, p99_us: p99(at), ..Sample::default() }).collect();
        let points = points(&samples, OVER_TIME[1].figure, interval(9_999e3 / POINTS));
        assert!(points.len() <= 200, "{}", points.len());
        assert_eq!(points.iter().map(|point| point.1).fold(0.0, f64::max), 90_000.0);
    }
}
