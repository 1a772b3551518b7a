//! The pauses between failures of a source.

use std::time::Duration;

/// Pauses that double with each failure up to a limit. Each is shortened at random by up to a half, so that sources that failed together
/// do not come back together.
#[derive(Debug)]
pub(crate) struct BackOff {
    pause_ms: u64,
    pause_max_ms: u64,
    failures: u32,
}

impl BackOff {
    pub(crate) fn new(pause_ms: u64, pause_max_ms: u64) -> BackOff {
        BackOff { pause_ms, pause_max_ms, failures: 0 }
    }

    /// The pause after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let doubled = self.pause_ms.saturating_mul(1u64 << self.failures.min(32));
        self.failures += 1;
        let pause_ms = doubled.min(self.pause_max_ms).max(1);
        Duration::from_millis(fastrand::u64(pause_ms.div_ceil(2)..=pause_ms))
    }

    /// Begins again with the shortest pause.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_and_begin_again() {
        let mut back_off = BackOff::new(100, 1_000);
        for longest in [100, 200, 400, 800, 1_000, 1_000] {
            let pause = back_off.next().as_millis();
            assert!((longest / 2..=longest).contains(&pause), "{pause} of {longest}");
        }
        back_off.reset();
        assert!(back_off.next().as_millis() <= 100);
        let mut many = BackOff::new(u64::MAX, u64::MAX);
        (0..100).for_each(|_| _ = many.next());
    }
}
