//! Rate limits: a burst, and an amount per second.

/// The remaining allowance. It fills up over time.
#[derive(Debug)]
pub(super) struct Allowance {
    left: f64,
    /// The time of `left`, in milliseconds.
    at_ms: u64,
    pace: Pace,
}

/// The size of an allowance, and the rate at which it fills up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The maximum amount at once.
    pub(super) burst_max: u32,
    /// The amount added per second.
    pub(super) per_second: u32,
}

impl Allowance {
    pub(super) fn new(now_ms: u64, pace: Pace) -> Allowance {
        Allowance { left: f64::from(pace.burst_max), at_ms: now_ms, pace }
    }

    /// Takes `amount` if enough is left. True if it was taken.
    pub(super) fn take(&mut self, now_ms: u64, amount: usize) -> bool {
        let seconds = now_ms.saturating_sub(self.at_ms) as f64 / 1_000.0;
        let filled = self.left + seconds * f64::from(self.pace.per_second);
        (self.left, self.at_ms) = (filled.min(f64::from(self.pace.burst_max)), now_ms.max(self.at_ms));
        let enough = self.left >= amount as f64;
        if enough {
            self.left -= amount as f64;
        }
        enough
    }

    /// Takes `amount`, even if less is left: later calls wait for longer.
    pub(super) fn charge(&mut self, amount: usize) {
        self.left -= amount as f64;
    }
}
