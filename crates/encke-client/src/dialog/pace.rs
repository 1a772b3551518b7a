//! How soon a session may call again: the server's advice, back-off, and chance.

use std::time::{Duration, Instant};

use crate::message::Advice;

/// When to call again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The pause before a connect that the server advised.
    pub(super) interval: Duration,
    /// How long the server holds a connect.
    pub(super) held: Duration,
    /// Attempts since the last connect that went well.
    failures: u32,
    /// The state of a small generator: good enough to spread sessions, useless for secrets.
    random: u64,
}

impl Pace {
    pub(super) fn new(random: [u8; 8]) -> Pace {
        Pace { interval: Duration::ZERO, held: HELD_UNKNOWN, failures: 0, random: u64::from_le_bytes(random) }
    }

    /// Takes over what the newer advice says; what it leaves out stays.
    pub(super) fn advise(&mut self, advice: Advice) {
        if let Some(ms) = advice.interval {
            self.interval = Duration::from_millis(u64::try_from(ms).unwrap_or(0)).min(DELAY_MAX);
        }
        if let Some(ms) = advice.timeout {
            self.held = Duration::from_millis(ms).min(DELAY_MAX);
        }
    }

    /// All is well: the next pause is a short one.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Something went wrong: the next pauses grow.
    pub(super) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// The advised interval, one step for each failure up to the longest, and up to a step of chance, so that the clients of
    /// a server that went away do not come back in one wave.
    pub(super) fn pause(&mut self, step: Duration, longest: Duration) -> Duration {
        let chance = step.min(longest).mul_f64(self.fraction());
        (self.interval + step.saturating_mul(self.failures).min(longest) + chance).min(DELAY_MAX)
    }

    /// From 0 up to and without 1 (Steele, Lea and Flood's SplitMix64).
    fn fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        // The upper 32 bits, as a fraction of 2^32.
        f64::from((bits >> 32) as u32) / 4_294_967_296.0
    }
}

/// A moment from now, not so far away that it cannot be told.
pub(super) fn after(now: Instant, delay: Duration) -> Instant {
    now + delay.min(DELAY_MAX)
}

/// How long a server holds a connect that never said: longer than any default known.
const HELD_UNKNOWN: Duration = Duration::from_secs(120);

/// The longest that anything is waited for, whatever a server advises.
const DELAY_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(5);

    #[test]
    fn pauses_grow_with_failures_up_to_the_longest_and_begin_anew_after_success() {
        let mut pace = Pace::new([7; 8]);
        for failures in 0..20_u32 {
            let base = STEP.saturating_mul(failures).min(LONGEST);
            let pause = pace.pause(STEP, LONGEST);
            assert!(base <= pause && pause < base + STEP, "{failures}: {pause:?}");
            pace.failed();
        }
        pace.succeeded();
        assert!(pace.pause(STEP, LONGEST) < STEP);
    }

    #[test]
    fn chance_spreads_sessions_evenly() {
        let mut pace = Pace::new([1; 8]);
        let pauses: Vec<Duration> = (0..1000).map(|_| pace.pause(STEP, LONGEST)).collect();
        for quarter in 0..4 {
            let range = STEP / 4 * quarter..STEP / 4 * (quarter + 1);
            let count = pauses.iter().filter(|pause| range.contains(pause)).count();
            assert!((150..350).contains(&count), "quarter {quarter} has {count} of 1000");
        }
        assert_ne!(Pace::new([1; 8]).pause(STEP, LONGEST), Pace::new([2; 8]).pause(STEP, LONGEST));
    }

    #[test]
    fn absurd_advice_is_cut_down() {
        let mut pace = Pace::new([0; 8]);
        pace.advise(Advice { reconnect: None, interval: Some(i64::MAX), timeout: Some(u64::MAX) });
        assert_eq!((pace.interval, pace.held), (DELAY_MAX, DELAY_MAX));
        assert_eq!(pace.pause(STEP, LONGEST), DELAY_MAX);
        pace.advise(Advice { reconnect: None, interval: Some(-1), timeout: None });
        assert_eq!((pace.interval, pace.held), (Duration::ZERO, DELAY_MAX));
    }
}
