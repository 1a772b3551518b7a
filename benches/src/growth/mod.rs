//! The page of `make bench-growth`: cost against work, each curve beside its floor.
//!
//! The curves of the core alone are measured here ([`curves`]), in the processor time of their thread. Those of a whole server come from
//! reports, which are collected as for [`compare`](crate::compare): the cases `clients-N` and `shards-N`, with N clients or shards.

pub mod curves;
mod floor;
mod page;

use crate::compare::runs::{Runs, median};
use crate::growth::curves::{Curve, Unit};
use crate::rows::cpu_ns;
pub use page::write;

/// A measured curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The quantity that grows.
    pub over: String,
    /// The unit of work, such as "a publication".
    pub work: String,
    /// The floor in a few words.
    pub beside: String,
    /// The points, by size.
    pub points: Vec<Point>,
}

/// The cost at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The size.
    pub size: u32,
    /// Encke's processor time for a unit of work, in nanoseconds.
    pub encke_ns: f64,
    /// The floor's; none if there is no floor.
    pub floor_ns: Option<f64>,
}

/// Measures a curve of the core, in `rounds` turns of Encke and the floor at each size. `progress` hears of each size.
/// None if the core did not do what was asked of it.
pub fn measure(curve: &Curve, rounds: u32, progress: &mut dyn FnMut(&str)) -> Option<Line> {
    let mut points = Vec::new();
    for size in curve.sizes.iter().copied() {
        progress(&format!("{}: {size}", curve.over));
        let (mut encke, mut floor) = ((curve.encke)(size)?, (curve.floor)(size));
        let (mut of_encke, mut of_floor) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            of_encke.push(cost_ns(&mut encke));
            of_floor.push(cost_ns(&mut floor));
        }
        points.push(Point { size, encke_ns: median(of_encke)?, floor_ns: median(of_floor) });
    }
    let text = str::to_owned;
    Some(Line { over: text(curve.over), work: text(curve.work), beside: text(curve.beside), points })
}

/// The curves of a whole server, from its reports; without those that were not measured.
pub fn of_reports(runs: &Runs) -> Vec<Line> {
    let line = |case: &str, over: &str, beside: &str| {
        let of = |run: &crate::compare::runs::Run| run.case.strip_prefix(case)?.strip_prefix('-')?.parse::<u32>().ok();
        let mut sizes: Vec<u32> = runs.runs.iter().filter_map(of).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let point = |size: u32| {
            let cost = |label| runs.median(&format!("{case}-{size}"), label, cpu_ns);
            Some(Point { size, encke_ns: cost("encke")?, floor_ns: cost("floor") })
        };
        let points: Vec<Point> = sizes.into_iter().filter_map(point).collect();
        let work = "a delivery over sockets".to_owned();
        (!points.is_empty()).then(|| Line { over: over.into(), work, beside: beside.into(), points })
    };
    let clients =
        line("clients", "clients of one channel, the whole server", "a fan-out over epoll without a protocol");
    let shards = line("shards", "shards", "");
    clients.into_iter().chain(shards).collect()
}

/// The processor time of one unit of work, in nanoseconds: as many units as take [`SLICE_NS`].
fn cost_ns(unit: &mut Unit) -> f64 {
    let mut count = 1_u64;
    loop {
        let began = thread_ns();
        (0..count).for_each(|_| unit());
        let took = thread_ns().saturating_sub(began);
        if took >= SLICE_NS || count >= UNITS_MAX {
            return took as f64 / count as f64;
        }
        count = (count * 2).max(count * SLICE_NS / took.max(1)).min(UNITS_MAX);
    }
}

/// The processor time of this thread, in nanoseconds.
fn thread_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The exponent with which the cost of a unit grows: 0 if it is the same at every size, 1 if it grows as the size does.
/// The slope of the straight line through the logarithms, by least squares. None with fewer than two sizes.
pub fn exponent(points: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let logs: Vec<(f64, f64)> = points.map(|(size, cost)| (size.ln(), cost.ln())).collect();
    let count = logs.len() as f64;
    let (sum_x, sum_y) = logs.iter().fold((0.0, 0.0), |(sum_x, sum_y), (x, y)| (sum_x + x, sum_y + y));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let spread: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let together: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (logs.len() > 1 && spread > 0.0).then(|| together / spread)
}

/// An exponent in words.
pub fn in_words(exponent: f64) -> &'static str {
    match exponent {
        e if e < -0.05 => "falls",
        e if e < 0.05 => "constant",
        e if e < 0.2 => "almost constant: caches",
        e if e < 0.7 => "grows slower than the size",
        e if e < 1.1 => "grows as the size does",
        _ => "grows faster than the size",
    }
}

impl Line {
    /// The exponents of Encke and of the floor.
    pub fn exponents(&self) -> (Option<f64>, Option<f64>) {
        let encke = self.points.iter().map(|point| (f64::from(point.size), point.encke_ns));
        let floor = self.points.iter().filter_map(|point| Some((f64::from(point.size), point.floor_ns?)));
        (exponent(encke), exponent(floor))
    }

    /// True if a unit of work costs the same at every size, but for what the floor pays as well.
    pub fn holds(&self) -> bool {
        let (encke, floor) = self.exponents();
        encke.is_none_or(|encke| encke <= floor.unwrap_or(0.0).max(0.0) + EXPONENT_MORE_MAX)
    }
}

/// The processor time after which a measurement ends, in nanoseconds.
const SLICE_NS: u64 = 100_000_000;
const UNITS_MAX: u64 = 10_000_000;
/// The exponent may be so much larger than the floor's: a larger working set misses caches more often.
const EXPONENT_MORE_MAX: f64 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;

    fn line(costs: [f64; 3]) -> Line {
        let points = [10, 1_000, 100_000].into_iter().zip(costs);
        let points = points.map(|(size, encke_ns)| Point { size, encke_ns, floor_ns: Some(50.0) }).collect();
        Line { over: "channels".into(), work: "a publication".into(), beside: "a map".into(), points }
    }

    #[test]
    fn a_constant_cost_has_the_exponent_zero_and_a_proportional_one_the_exponent_one() {
        let of = |costs| line(costs).exponents().0.expect("three points");
        assert!(of([70.0, 70.0, 70.0]).abs() < 1e-9);
        assert!((of([1.0, 100.0, 10_000.0]) - 1.0).abs() < 1e-9);
        assert!((of([1.0, 10.0, 100.0]) - 0.5).abs() < 1e-9);
        assert_eq!(exponent([(10.0, 5.0)].into_iter()), None);
    }

    #[test]
    fn a_cost_that_grows_with_the_size_does_not_hold() {
        assert!(line([70.0, 75.0, 80.0]).holds());
        assert!(!line([70.0, 700.0, 7_000.0]).holds());
    }

    #[test]
    fn every_curve_does_its_work_at_two_sizes() {
        for curve in curves::CURVES {
            for size in [1, 12] {
                let mut unit = (curve.encke)(size).unwrap_or_else(|| panic!("{} at {size}", curve.over));
                let mut floor = (curve.floor)(size);
                for _ in 0..30 {
                    unit();
                    floor();
                }
            }
        }
    }
}
