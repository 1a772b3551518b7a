//! Latencies as counted values: merging, differences over time, and the summary for a report.

use crate::report::Latency;

/// `(microseconds, how many)`, rising.
pub type Counted = Vec<(u64, u64)>;

/// Adds the counts of another worker.
pub fn merge(into: &mut Counted, other: &[(u64, u64)]) {
    let mut merged = Counted::with_capacity(into.len().max(other.len()));
    let (mut left, mut right) = (into.iter().copied().peekable(), other.iter().copied().peekable());
    loop {
        merged.push(match (left.peek().copied(), right.peek().copied()) {
            (Some(a), Some(b)) if a.0 == b.0 => {
                left.next();
                right.next();
                (a.0, a.1 + b.1)
            }
            (Some(a), Some(b)) if a.0 < b.0 => left.next().unwrap_or(a),
            (Some(a), None) => left.next().unwrap_or(a),
            (_, Some(b)) => right.next().unwrap_or(b),
            (None, None) => break,
        });
    }
    *into = merged;
}

/// The counts since `before`, an earlier state of the same counts.
pub fn since(now: &[(u64, u64)], before: &[(u64, u64)]) -> Counted {
    let mut old = before.iter().copied().peekable();
    let new = now.iter().filter_map(|&(us, count)| {
        while old.next_if(|(old_us, _)| *old_us < us).is_some() {}
        let had = old.next_if(|(old_us, _)| *old_us == us).map_or(0, |(_, count)| count);
        (count > had).then_some((us, count - had))
    });
    new.collect()
}

/// The value at a quantile between 0 and 1; 0 if there is none.
pub fn at_share(counted: &[(u64, u64)], share: f64) -> u64 {
    let total: u64 = counted.iter().map(|(_, count)| count).sum();
    let wanted = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
    let mut sum = 0;
    for (us, count) in counted {
        sum += count;
        if sum >= wanted {
            return *us;
        }
    }
    0
}

/// The summary for a report; none if nothing was timed. `max_us` is the highest latency, sampled or not.
pub fn summary(counted: &[(u64, u64)], max_us: u64) -> Option<Latency> {
    let count: u64 = counted.iter().map(|(_, count)| count).sum();
    let (first, last) = (counted.first()?, counted.last()?);
    let sum: f64 = counted.iter().map(|(us, count)| *us as f64 * *count as f64).sum();
    let at = |share| at_share(counted, share);
    let shares = CURVE_SHARES.iter().copied().chain((1..=4).map(|nines| 1.0 - 10f64.powi(-nines - 2)));
    let mut curve: Vec<(f64, u64)> = shares.map(|share| (share, at(share))).collect();
    curve.push((1.0, max_us.max(last.0)));
    Some(Latency {
        count,
        min_us: first.0,
        mean_us: sum / count as f64,
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: max_us.max(last.0),
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
    fn merging_adds_equal_values_and_keeps_the_order() {
        let mut counted = vec![(1, 1), (5, 2), (9, 1)];
        merge(&mut counted, &[(0, 3), (5, 5), (10, 1)]);
        assert_eq!(counted, [(0, 3), (1, 1), (5, 7), (9, 1), (10, 1)]);
        merge(&mut counted, &[]);
        assert_eq!(counted.len(), 5);
    }

    #[test]
    fn the_counts_since_a_snapshot_are_computed() {
        let before = [(1, 1), (5, 2)];
        let now = [(1, 1), (3, 4), (5, 3), (8, 1)];
        assert_eq!(since(&now, &before), [(3, 4), (5, 1), (8, 1)]);
        assert_eq!(since(&now, &now), []);
    }

    #[test]
    fn shares_are_of_all_that_was_counted() {
        let counted: Counted = (1..=1000).map(|us| (us, 1)).collect();
        let summary = summary(&counted, 1500).expect("timed");
        assert_eq!((summary.p50_us, summary.p90_us, summary.p99_us, summary.p999_us), (500, 900, 990, 999));
        assert_eq!((summary.min_us, summary.max_us, summary.count), (1, 1500, 1000));
        assert!((summary.mean_us - 500.5).abs() < 1e-9);
        assert!(summary.curve.len() <= 100 && summary.curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
    }

    #[test]
    fn nothing_timed_is_no_latency() {
        assert_eq!(summary(&[], 0), None);
        assert_eq!(at_share(&[], 0.5), 0);
    }
}
