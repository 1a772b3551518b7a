//! A token bucket in 8 bytes.
//!
//! The bucket is stored as the time at which it will be full. It holds the tokens of one second. A bucket whose time is
//! over is full, like one that was never used, so it needs no entry in a table.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::now::Now;

/// A rate in units a second. 0: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate(pub u64);

impl Rate {
    /// True if it is a limit.
    pub fn is_on(self) -> bool {
        self.0 > 0
    }

    /// Takes units out of a bucket. False if it holds too few: then it stays as it is. More units than a second's need a
    /// full bucket, and leave a debt.
    pub fn take(self, bucket: &mut u64, now: Now, units: usize) -> bool {
        let next = self.after(*bucket, now, units);
        *bucket = next.unwrap_or(*bucket);
        next.is_some()
    }

    /// The same with a bucket of several threads.
    pub fn take_shared(self, bucket: &AtomicU64, now: Now, units: usize) -> bool {
        bucket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_ns| self.after(full_ns, now, units)).is_ok()
    }

    /// The same, but leaves this many tokens in the bucket.
    pub fn take_all_but(self, reserve: u64, bucket: &AtomicU64, now: Now) -> bool {
        let reserve_ns = reserve.saturating_mul(SECOND_NS).checked_div(self.0).unwrap_or(0);
        let empty_ns = nanoseconds(now).saturating_add(SECOND_NS.saturating_sub(reserve_ns));
        let leaves_reserve = |full_ns| self.after(full_ns, now, 1).filter(|next_ns| *next_ns <= empty_ns);
        bucket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, leaves_reserve).is_ok()
    }

    /// The time at which a bucket will be full after these units are taken, in nanoseconds. None if it holds too few.
    pub fn after(self, full_ns: u64, now: Now, units: usize) -> Option<u64> {
        if !self.is_on() {
            return Some(full_ns);
        }
        let now_ns = nanoseconds(now);
        let cost_ns = (units as u64).saturating_mul(SECOND_NS).checked_div(self.0).unwrap_or(0);
        let full_ns = full_ns.max(now_ns);
        let missing_ns = (full_ns - now_ns).saturating_add(cost_ns.min(SECOND_NS));
        (missing_ns <= SECOND_NS).then(|| full_ns.saturating_add(cost_ns))
    }
}

/// The time in nanoseconds.
pub fn nanoseconds(now: Now) -> u64 {
    now.ms.saturating_mul(1_000_000)
}

const SECOND_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Now {
        Now { ms: (1 << 42) + ms, wall_ms: 0 }
    }

    #[test]
    fn a_bucket_holds_a_second_and_fills_at_its_rate() {
        let (rate, mut bucket) = (Rate(10), 0);
        let taken = |bucket: &mut u64, ms| (0..100).filter(|_| rate.take(bucket, at(ms), 1)).count();
        assert_eq!(taken(&mut bucket, 0), 10, "a burst");
        assert_eq!((taken(&mut bucket, 99), taken(&mut bucket, 100), taken(&mut bucket, 350)), (0, 1, 2));
        assert_eq!(taken(&mut bucket, 60_000), 10, "no more than a second is saved up");
        assert!((0..1_000).all(|_| Rate(0).take(&mut bucket, at(0), 1 << 40)), "no limit");
    }

    #[test]
    fn a_message_of_many_seconds_needs_a_full_bucket_and_leaves_a_debt() {
        let (rate, mut bucket) = (Rate(1_000), 0);
        assert!(rate.take(&mut bucket, at(0), 1));
        assert!(!rate.take(&mut bucket, at(0), 5_000), "the bucket is not full");
        assert!(rate.take(&mut bucket, at(1), 5_000));
        assert!(!rate.take(&mut bucket, at(4_001), 1));
        assert!(rate.take(&mut bucket, at(4_002), 1));
        assert!(rate.take(&mut bucket, at(1 << 40), usize::MAX));
        assert!(!rate.take(&mut bucket, at((1 << 40) + 1), 1));
    }

    proptest! {
        /// No pattern of arrivals gets more than the rate and one burst.
        #[test]
        fn nobody_gets_more_than_the_rate(
            per_s in 1_u64..2_000,
            steps in prop::collection::vec((0_u64..700, 1_usize..50), 1..300),
        ) {
            let (mut bucket, mut now_ms, mut taken) = (0, 0, 0);
            for (pause_ms, wanted) in steps {
                now_ms += pause_ms;
                taken += (0..wanted).filter(|_| Rate(per_s).take(&mut bucket, at(now_ms), 1)).count() as u64;
                // Costs are rounded down to whole nanoseconds.
                prop_assert!(taken <= per_s + per_s * now_ms / 1_000 + 1, "{taken} after {now_ms} ms");
            }
        }
    }
}
