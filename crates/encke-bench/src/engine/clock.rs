//! The clock that plans and latencies are in.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The machine's monotonic clock in microseconds: the same in all its processes.
#[inline]
pub fn now_us() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}

/// The time until `at_us`; zero if it has passed.
pub fn until(at_us: u64) -> Duration {
    Duration::from_micros(at_us.saturating_sub(now_us()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_and_past_times_need_no_waiting() {
        let before = now_us();
        assert!(now_us() >= before);
        assert_eq!(until(before), Duration::ZERO);
        assert!(until(before + 3_600_000_000) > Duration::from_secs(3000));
    }
}
