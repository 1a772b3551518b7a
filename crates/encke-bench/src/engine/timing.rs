//! Latencies of deliveries: all are compared, some are recorded.

use crate::latencies::Latencies;

/// Latencies from some time on.
#[derive(Debug)]
pub(crate) struct Timing {
    pub(crate) from_us: u64,
    sample_mask: u32,
    late_after_us: u64,
    pub(super) late: u64,
    pub(crate) latencies: Latencies,
}

impl Timing {
    pub(crate) fn new(from_us: u64, sample: u32, late_after_us: u64) -> Timing {
        let sample_mask = sample.max(1).next_power_of_two() - 1;
        Timing { from_us, sample_mask, late_after_us, late: 0, latencies: Latencies::default() }
    }

    #[inline]
    pub(crate) fn take(&mut self, latency_us: u64, turn: u32) {
        self.late += u64::from(latency_us > self.late_after_us);
        if turn & self.sample_mask == 0 {
            self.latencies.record(latency_us);
        } else {
            self.latencies.note(latency_us);
        }
    }
}
