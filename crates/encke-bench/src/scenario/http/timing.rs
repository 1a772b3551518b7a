//! Latencies of a trial, and those since the last snapshot.

use hdrhistogram::Histogram;

use crate::problem::Problem;
use crate::run::latency::{Counted, since};

/// Counts latencies, to three digits.
#[derive(Debug)]
pub(crate) struct Timing {
    counts: Histogram<u64>,
    max_us: u64,
    last_snapshot: Counted,
}

impl Timing {
    /// Creates an empty histogram.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn new() -> Result<Timing, Problem> {
        let counts = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).map_err(|e| Problem::Machine(e.to_string()))?;
        Ok(Timing { counts, max_us: 0, last_snapshot: Counted::new() })
    }

    /// Counts one; none is counted as shorter than a microsecond.
    pub(crate) fn add(&mut self, us: u64) {
        let us = us.max(1);
        self.max_us = self.max_us.max(us);
        self.counts.saturating_record(us);
    }

    /// All that was counted.
    pub(crate) fn counted(&self) -> Counted {
        self.counts.iter_recorded().map(|step| (step.value_iterated_to(), step.count_since_last_iteration())).collect()
    }

    /// The highest, in microseconds.
    pub(crate) fn max_us(&self) -> u64 {
        self.max_us
    }

    /// The latencies since the previous snapshot.
    pub(crate) fn snapshot(&mut self) -> Counted {
        let now = self.counted();
        let new = since(&now, &self.last_snapshot);
        self.last_snapshot = now;
        new
    }
}

/// Longer latencies count as this, except for the highest: ten minutes.
const LATENCY_US_MAX: u64 = 600_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_snapshot_has_the_counts_since_the_previous_one() {
        let mut timing = Timing::new().expect("memory");
        timing.add(10);
        timing.add(20);
        assert_eq!(timing.snapshot(), [(10, 1), (20, 1)]);
        timing.add(20);
        timing.add(u64::MAX);
        let new = timing.snapshot();
        assert_eq!((new.len(), new[0]), (2, (20, 1)));
        assert_eq!(timing.max_us(), u64::MAX);
        assert_eq!(timing.counted().iter().map(|(_, count)| count).sum::<u64>(), 4);
    }
}
