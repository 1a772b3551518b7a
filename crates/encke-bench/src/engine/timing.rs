//! Latencies of deliveries: all are compared, some are recorded.

use hdrhistogram::Histogram;

/// Latencies from some time on.
#[derive(Debug)]
pub(crate) struct Timing {
    pub(crate) from_us: u64,
    sample_mask: u32,
    late_after_us: u64,
    pub(super) late: u64,
    pub(crate) max_us: u64,
    histogram: Histogram<u64>,
}

impl Timing {
    pub(crate) fn new(from_us: u64, sample: u32, late_after_us: u64) -> Timing {
        // Microseconds up to two minutes, three digits.
        let histogram = Histogram::new_with_bounds(1, 120_000_000, 3);
        Timing {
            from_us,
            sample_mask: sample.max(1).next_power_of_two() - 1,
            late_after_us,
            late: 0,
            max_us: 0,
            histogram: histogram.unwrap_or_else(|_| unreachable!("fixed bounds are valid")),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, latency_us: u64, turn: u32) {
        self.max_us = self.max_us.max(latency_us);
        self.late += u64::from(latency_us > self.late_after_us);
        if turn & self.sample_mask == 0 {
            self.histogram.saturating_record(latency_us);
        }
    }

    /// See [`Clients::latencies_us`](crate::engine::Clients::latencies_us).
    pub(crate) fn counted(&self) -> Vec<(u64, u64)> {
        let recorded = self.histogram.iter_recorded();
        // The histogram returns the highest value of a bucket, which may exceed the highest latency.
        let max_us = self.max_us;
        recorded.map(|step| (step.value_iterated_to().min(max_us), step.count_since_last_iteration())).collect()
    }
}
