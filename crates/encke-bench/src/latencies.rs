//! Latencies: recorded, added up, and subtracted.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies in microseconds, to three digits, and the highest one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Counts", into = "Counts")]
pub struct Latencies {
    recorded: Histogram<u64>,
    max_us: u64,
}

/// The same as workers send it to their master.
#[derive(Serialize, Deserialize)]
struct Counts {
    counts: Vec<(u64, u64)>,
    max_us: u64,
}

impl Default for Latencies {
    /// No latencies yet.
    fn default() -> Latencies {
        let recorded = Histogram::new(3).unwrap_or_else(|_| unreachable!("a histogram may have three digits"));
        Latencies { recorded, max_us: 0 }
    }
}

impl Latencies {
    /// Records a latency.
    #[inline]
    pub fn record(&mut self, us: u64) {
        self.note(us);
        self.recorded += us.min(RECORDED_US_MAX);
    }

    /// Notes a latency that is not recorded: it may be the highest.
    #[inline]
    pub fn note(&mut self, us: u64) {
        self.max_us = self.max_us.max(us);
    }

    /// The latencies since `earlier`, a copy of an earlier state, which becomes a copy of this one.
    pub fn since(&self, earlier: &mut Latencies) -> Latencies {
        let earlier = std::mem::replace(earlier, self.clone());
        let mut new = self.clone();
        new.recorded -= earlier.recorded;
        new
    }

    /// The number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.recorded.len()
    }

    /// The latency at a quantile between 0 and 1; 0 if there is none.
    pub fn at_share(&self, share: f64) -> u64 {
        // The histogram returns the highest value of a bucket, which may exceed the highest latency.
        self.recorded.value_at_quantile(share).min(self.max_us)
    }

    /// The mean of the recorded latencies.
    pub fn mean_us(&self) -> f64 {
        self.recorded.mean()
    }

    /// The highest latency, recorded or noted.
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// The recorded latencies, rising, and the number of each.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let steps = self.recorded.iter_recorded();
        steps.map(|step| (step.value_iterated_to().min(self.max_us), step.count_since_last_iteration())).collect()
    }
}

impl std::ops::AddAssign<&Latencies> for Latencies {
    fn add_assign(&mut self, other: &Latencies) {
        self.recorded += &other.recorded;
        self.note(other.max_us);
    }
}

impl FromIterator<(u64, u64)> for Latencies {
    /// Latencies in microseconds, each with its number.
    fn from_iter<T: IntoIterator<Item = (u64, u64)>>(counts: T) -> Latencies {
        let mut latencies = Latencies::default();
        for (us, count) in counts {
            latencies.note(us);
            // Only fixed bounds refuse a value; these grow.
            let _ = latencies.recorded.record_n(us.min(RECORDED_US_MAX), count);
        }
        latencies
    }
}

impl From<Counts> for Latencies {
    fn from(Counts { counts, max_us }: Counts) -> Latencies {
        Latencies { max_us, ..counts.into_iter().collect() }
    }
}

impl From<Latencies> for Counts {
    fn from(latencies: Latencies) -> Counts {
        Counts { counts: latencies.counts(), max_us: latencies.max_us }
    }
}

/// Longer latencies are recorded as this, but for the highest: ten minutes.
const RECORDED_US_MAX: u64 = 600_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies<const N: usize>(counts: [(u64, u64); N]) -> Latencies {
        counts.into_iter().collect()
    }

    #[test]
    fn those_of_workers_add_up() {
        let mut all = latencies([(1, 1), (5, 2), (9, 1)]);
        all += &latencies([(0, 3), (5, 5), (10, 1)]);
        assert_eq!((all.counts(), all.max_us()), (vec![(0, 3), (1, 1), (5, 7), (9, 1), (10, 1)], 10));
        all += &Latencies::default();
        assert_eq!(all.count(), 13);
    }

    #[test]
    fn those_since_an_earlier_state_are_the_new_ones() {
        let mut all = latencies([(10, 1), (20, 1)]);
        let mut earlier = Latencies::default();
        assert_eq!(all.since(&mut earlier), all);
        all.record(20);
        all.record(u64::MAX);
        let new = all.since(&mut earlier).counts();
        assert_eq!((new.len(), new[0]), (2, (20, 1)));
        assert_eq!((all.max_us(), all.count()), (u64::MAX, 4));
        assert_eq!(all.since(&mut earlier).count(), 0);
    }

    #[test]
    fn a_master_reads_what_its_worker_has_written() {
        let mut sent = latencies([(0, 1), (7, 2), (1_234_567, 3)]);
        sent.note(9_999_999);
        let text = serde_json::to_string(&sent).expect("JSON");
        assert_eq!(serde_json::from_str::<Latencies>(&text).expect("latencies"), sent);
    }

    #[test]
    fn no_share_of_them_is_above_the_highest() {
        let one = latencies([(900_001, 1)]);
        assert_eq!((one.at_share(0.5), one.counts()), (900_001, vec![(900_001, 1)]));
        assert_eq!(Latencies::default().at_share(0.5), 0);
    }
}
