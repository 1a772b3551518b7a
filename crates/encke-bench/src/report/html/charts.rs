//! Which charts a run's trials make.

use super::super::chart::{Axis, Chart, Plot, Point, Scale, Series, Unit};
use super::super::model::{Latency, Report, Sample, Trial};
use super::super::units::{count, figure, number, span};

/// A trial and its name among the others of a chart.
pub(super) struct Line<'a> {
    pub(super) name: String,
    pub(super) trial: &'a Trial,
}

/// Trials that a line of a chart goes through, and its name.
pub(super) struct Course<'a> {
    pub(super) name: String,
    pub(super) trials: Vec<&'a Trial>,
}

/// All charts that the report has figures for.
pub(super) fn of(report: &Report) -> Vec<Chart> {
    let mut charts = throughput(&by_clients(&report.trials));
    charts.extend(percentiles(&speaking(report, |trial| {
        trial.latency.as_ref().is_some_and(|latency| latency.curve.len() > 1)
    })));
    charts.extend(over_time(&speaking(report, |trial| trial.samples.len() > 1)));
    charts
}

/// Throughput against latency: every latency in one chart for one course, one chart per latency for several.
pub(super) fn throughput(courses: &[Course]) -> Vec<Chart> {
    let several = |course: &&Course| timed(course).count() > 1;
    let courses: Vec<&Course> = courses.iter().filter(several).collect();
    match courses.as_slice() {
        [] => Vec::new(),
        [course] => {
            let series = LATENCIES.iter().map(|(name, part)| series(name, course, *part)).collect();
            vec![throughput_chart("Latency against throughput", "latency", &courses, series)]
        }
        courses => {
            let chart = |(name, part): &(&str, fn(&Latency) -> u64)| {
                let series = courses.iter().map(|course| series(&course.name, course, *part)).collect();
                throughput_chart(&format!("{name} latency against throughput"), name, courses, series)
            };
            LATENCIES[..2].iter().map(chart).collect()
        }
    }
}

/// The percentiles of each line.
pub(super) fn percentiles(lines: &[Line]) -> Option<Chart> {
    let series = |line: &Line| {
        let latency = line.trial.latency.as_ref().filter(|latency| latency.count > 0)?;
        // The highest of n lies at 1 - 1/n at most: beyond, nothing is known.
        let last = 1.0 - 1.0 / (latency.count.max(2) as f64);
        let places = latency.curve.iter().map(|(share, us)| (share.min(last), *us as f64));
        Some(Series::line(&line.name, places)).filter(|series| !series.points.is_empty())
    };
    chart(Plot {
        title: "Latency by percentile".into(),
        note: "How many of 100 deliveries were faster; each step to the right is a tenth of what is left.".into(),
        x: Axis::new("share of deliveries", Unit::Count, Scale::Tail),
        y: Axis::new("latency", Unit::Micros, Scale::Auto),
        series: lines.iter().filter_map(series).collect(),
    })
}

/// What went on while the trials ran.
pub(super) fn over_time(lines: &[Line]) -> Vec<Chart> {
    let received = |samples: &[Sample]| rates(samples, 150.0, |sample| sample.received);
    let part = |part: fn(&Sample) -> f64| move |samples: &[Sample]| points(samples, part);
    let charts = [
        opened_per_interval(lines),
        timed_chart(lines, "Connected over time", "open connections", Unit::Count, |samples| {
            let steady = samples.iter().all(|sample| sample.connected == samples[0].connected);
            if steady { Vec::new() } else { points(samples, |sample| sample.connected as f64) }
        }),
        timed_chart(lines, "Received over time", "received/s", Unit::Count, received),
        timed_chart(lines, "99th percentile over time", "p99 of each interval", Unit::Micros, |samples| {
            points(samples, |sample| if sample.p99_us > 0 { sample.p99_us as f64 } else { f64::NAN })
        }),
        timed_chart(
            lines,
            "Server memory over time",
            "resident memory",
            Unit::Bytes,
            part(|sample| sample.server_rss_bytes.map_or(f64::NAN, |bytes| bytes as f64)),
        ),
        timed_chart(
            lines,
            "Server processor over time",
            "cores",
            Unit::Count,
            part(|sample| sample.server_cores.unwrap_or(f64::NAN)),
        ),
    ];
    charts.into_iter().flatten().collect()
}

/// Connections opened in each interval, the chart of the flood.
fn opened_per_interval(lines: &[Line]) -> Option<Chart> {
    let longest = lines.iter().filter_map(|line| line.trial.samples.last()).map(|sample| sample.at_ms).max()?;
    let step_ms = interval(longest as f64 / INTERVALS);
    let series = |line: &Line| {
        let samples = &line.trial.samples;
        let mut opened = 0;
        let mut before = samples.first()?.connected;
        let courses: Vec<(f64, f64)> = samples
            .iter()
            .map(|sample| {
                opened += sample.connected.saturating_sub(before);
                before = sample.connected;
                (sample.at_ms as f64, opened as f64)
            })
            .collect();
        let grown = opened as f64 > 0.01 * samples.iter().map(|sample| sample.connected).max()? as f64;
        let points = steps(&courses, step_ms).into_iter().map(|(at, grown)| (at / 1e3, grown));
        grown.then(|| Series::line(&line.name, points))
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

fn timed_chart(
    lines: &[Line],
    title: &str,
    label: &str,
    unit: Unit,
    course: impl Fn(&[Sample]) -> Vec<(f64, f64)>,
) -> Option<Chart> {
    let worth = |points: &Vec<(f64, f64)>| points.iter().filter(|point| point.1.is_finite()).count() > 1;
    let series = |line: &Line| {
        let points = Some(line.trial.samples.as_slice()).filter(|samples| samples.len() > 1).map(&course)?;
        Some(points).filter(worth).map(|points| Series::line(&line.name, points))
    };
    let scale = if unit == Unit::Micros { Scale::Auto } else { Scale::Linear };
    let series: Vec<Series> = lines.iter().filter_map(series).collect();
    let moves = series.iter().flat_map(|series| &series.points).any(|point| point.y > 0.0);
    let note = match lines {
        [line] if !line.name.is_empty() => format!("Trial: {}", line.name),
        _ => String::new(),
    };
    let x = Axis::new("time", Unit::Seconds, Scale::Linear);
    let y = Axis::new(label, unit, scale);
    chart(Plot { title: title.into(), note, x, y, series }).filter(|_| moves)
}

fn chart(plot: Plot) -> Option<Chart> {
    (!plot.is_empty()).then_some(Chart::Plot(plot))
}

fn throughput_chart(title: &str, label: &str, courses: &[&Course], series: Vec<Series>) -> Chart {
    let failed = courses.iter().flat_map(|course| &course.trials).any(|trial| !trial.holds);
    let note = if failed { "Hollow marks: what was asked for did not hold there." } else { "" };
    Chart::Plot(Plot {
        title: title.into(),
        note: note.into(),
        x: Axis::new("received/s", Unit::Count, Scale::Linear),
        y: Axis::new(label, Unit::Micros, Scale::Auto),
        series,
    })
}

fn timed<'a>(course: &'a Course) -> impl Iterator<Item = (&'a Trial, &'a Latency)> {
    let latency = |trial: &&'a Trial| {
        let latency = trial.latency.as_ref().filter(|latency| latency.count > 0)?;
        Some((*trial, latency)).filter(|_| trial.incoming.messages > 0)
    };
    course.trials.iter().filter_map(latency)
}

/// A line through a course's trials in the order of what was planned: where a server collapses, it turns back.
fn series(name: &str, course: &Course, part: fn(&Latency) -> u64) -> Series {
    let mut trials: Vec<_> = timed(course).collect();
    let planned = |trial: &Trial| trial.planned_per_s.unwrap_or_else(|| trial.outgoing.messages_per_s());
    trials.sort_by(|a, b| planned(a.0).total_cmp(&planned(b.0)));
    let point = |(trial, latency): (&Trial, &Latency)| Point {
        x: trial.incoming.messages_per_s(),
        y: part(latency) as f64,
        note: format!(
            "{}: {} received/s, {name} {}",
            trial.name,
            number(trial.incoming.messages_per_s()),
            figure(part(latency) as f64, "µs")
        ),
        hollow: !trial.holds,
        ..Point::default()
    };
    Series { points: trials.into_iter().map(point).collect(), ..Series::line(name, []) }
}

/// Trials of as many clients make a course.
pub(super) fn by_clients(trials: &[Trial]) -> Vec<Course<'_>> {
    let mut courses: Vec<Course> = Vec::new();
    for trial in trials {
        let name = format!("{} clients", count(trial.clients));
        match courses.iter_mut().find(|course| course.name == name) {
            Some(course) => course.trials.push(trial),
            None => courses.push(Course { name, trials: vec![trial] }),
        }
    }
    courses
}

/// Trials to draw as lines: all that have something, unless they are too many; then the run's own, and for each number of
/// clients the best that holds.
fn speaking<'a>(report: &'a Report, has: impl Fn(&Trial) -> bool) -> Vec<Line<'a>> {
    let line = |trial: &'a Trial| Line { name: trial.name.clone(), trial };
    let all: Vec<&Trial> = report.trials.iter().filter(|trial| has(trial)).collect();
    if all.len() <= LINES_MAX {
        return all.into_iter().map(line).collect();
    }
    let rate = |trial: &&&Trial| trial.incoming.messages_per_s();
    let best = |course: &Course<'a>| {
        let fit = course.trials.iter().copied().filter(|trial| has(trial) && trial.holds).collect::<Vec<_>>();
        fit.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))).copied()
    };
    let mut chosen: Vec<&Trial> = by_clients(&report.trials).iter().filter_map(best).take(LINES_MAX).collect();
    if let Some(own) =
        report.headline().filter(|own| has(own) && !chosen.iter().any(|trial| std::ptr::eq(*trial, *own)))
    {
        chosen.truncate(LINES_MAX - 1);
        chosen.insert(0, own);
    }
    chosen.into_iter().map(line).collect()
}

/// Seconds and figures of each sample.
fn points(samples: &[Sample], part: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    samples.iter().map(|sample| (sample.at_ms as f64 / 1e3, part(sample))).collect()
}

/// What a count grew by per second, in about as many intervals as there are samples, and not many more than wanted.
fn rates(samples: &[Sample], wanted: f64, part: impl Fn(&Sample) -> u64) -> Vec<(f64, f64)> {
    let mut courses: Vec<(f64, f64)> =
        samples.iter().map(|sample| (sample.at_ms as f64, part(sample) as f64)).collect();
    if courses.first().is_some_and(|first| first.0 > 0.0) {
        courses.insert(0, (0.0, 0.0));
    }
    let longest = courses.last().map_or(0.0, |last| last.0);
    let step_ms = interval((longest / wanted).max(longest / courses.len().max(1) as f64));
    steps(&courses, step_ms).into_iter().map(|(at, grown)| (at / 1e3, grown * 1e3 / step_ms)).collect()
}

/// By how much a course of `(milliseconds, count)` grew in each whole interval, with its middle; between samples it grows
/// evenly.
fn steps(courses: &[(f64, f64)], step_ms: f64) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (courses.first(), courses.last()) else { return Vec::new() };
    let mut at = 0;
    let mut count_at = |ms: f64| {
        while at + 2 < courses.len() && courses[at + 1].0 < ms {
            at += 1;
        }
        match courses.get(at + 1) {
            Some(next) if next.0 > courses[at].0 => {
                let share = ((ms - courses[at].0) / (next.0 - courses[at].0)).clamp(0.0, 1.0);
                courses[at].1 + share * (next.1 - courses[at].1)
            }
            _ => courses[at].1,
        }
    };
    let whole = ((last.0 - first.0) / step_ms + 0.05).floor() as usize;
    let edges: Vec<f64> = (0..=whole).map(|step| first.0 + step as f64 * step_ms).collect();
    let counts: Vec<f64> = edges.iter().map(|edge| count_at(*edge)).collect();
    let pairs = edges.windows(2).zip(counts.windows(2));
    pairs.map(|(edge, count)| ((edge[0] + edge[1]) / 2.0, (count[1] - count[0]).max(0.0))).collect()
}

/// The next length of time, in milliseconds, that people count in.
fn interval(at_least_ms: f64) -> f64 {
    let lengths = INTERVALS_S.iter().map(|seconds| seconds * 1e3);
    lengths.into_iter().find(|length| *length >= at_least_ms * 0.95).unwrap_or(at_least_ms)
}

/// Latencies drawn against throughput.
const LATENCIES: [(&str, fn(&Latency) -> u64); 3] =
    [("p50", |latency| latency.p50_us), ("p99", |latency| latency.p99_us), ("max", |latency| latency.max_us)];

/// More lines than this hide each other.
const LINES_MAX: usize = 5;

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
        let rates = rates(&samples, 150.0, |sample| sample.received);
        assert!(rates.len() >= 5 && rates.iter().all(|(_, rate)| (rate - 7_000.0).abs() < 1.0), "{rates:?}");
    }

    #[test]
    fn intervals_are_those_that_people_count_in() {
        assert_eq!([1_000.0, 1_010.0, 1_700.0, 83_000.0, 1e9].map(interval), [1e3, 1e3, 2e3, 1e5, 1e9]);
    }

    #[test]
    fn a_course_turns_back_where_the_server_collapses() {
        let trial = |planned: f64, received: u64| Trial {
            clients: 10,
            planned_per_s: Some(planned),
            incoming: super::super::super::model::Flow { messages: received, window_ms: 1000, ..Default::default() },
            latency: Some(Latency { count: 1, p99_us: 5, ..Latency::default() }),
            ..Trial::default()
        };
        let trials = [trial(3.0, 100), trial(1.0, 50), trial(2.0, 120)];
        let course = by_clients(&trials);
        let xs: Vec<f64> =
            series("p99", &course[0], |latency| latency.p99_us).points.iter().map(|point| point.x).collect();
        assert_eq!(xs, [50.0, 120.0, 100.0]);
    }
}
