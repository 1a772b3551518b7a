//! The summary of latencies for a report.

use crate::latencies::Latencies;
use crate::report::Latency;

/// The summary; none if nothing was recorded.
pub fn summary(latencies: &Latencies) -> Option<Latency> {
    let at = |share| latencies.at_share(share);
    let shares = CURVE_SHARES.iter().copied().chain((1..=4).map(|nines| 1.0 - 10f64.powi(-nines - 2)));
    let mut curve: Vec<(f64, u64)> = shares.map(|share| (share, at(share))).collect();
    curve.push((1.0, latencies.max_us()));
    (latencies.count() > 0).then(|| Latency {
        count: latencies.count(),
        min_us: at(0.0),
        mean_us: latencies.mean_us(),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: latencies.max_us(),
        curve,
    })
}

/// The points of the curve besides 99.9 % and so on.
const CURVE_SHARES: &[f64] = &[
    0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.91, 0.92,
    0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.992, 0.994, 0.996, 0.998,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_all_that_was_counted() {
        let mut latencies: Latencies = (1..=1000).map(|us| (us, 1)).collect();
        latencies.note(1500);
        let summary = summary(&latencies).expect("timed");
        assert_eq!((summary.p50_us, summary.p90_us, summary.p99_us, summary.p999_us), (500, 900, 990, 999));
        assert_eq!((summary.min_us, summary.max_us, summary.count), (1, 1500, 1000));
        assert!((summary.mean_us - 500.5).abs() < 1e-9);
        assert!(summary.curve.len() <= 100 && summary.curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    }

    #[test]
    fn nothing_timed_is_no_latency() {
        assert_eq!(summary(&Latencies::default()), None);
    }
}
