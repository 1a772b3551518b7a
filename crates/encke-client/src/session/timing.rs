//! The pauses of a session: the server's advice, back-off after failures, and jitter.

use std::time::{Duration, Instant};

use bayeux::Advice;

/// The pauses of a session.
#[derive(Clone, Debug)]
pub(crate) struct ReconnectTiming {
    /// The pause before a connect that the server advised.
    pub(super) interval: Duration,
    /// The time for which the server holds a connect.
    pub(super) hold: Duration,
    /// Attempts since the last connect that went well.
    failures: u32,
    /// The source of the jitter: good enough to spread sessions, useless for secrets.
    random: fastrand::Rng,
}

impl ReconnectTiming {
    pub(super) fn new(random: [u8; 8]) -> ReconnectTiming {
        ReconnectTiming {
            interval: Duration::ZERO,
            hold: HOLD_UNKNOWN,
            failures: 0,
            random: fastrand::Rng::with_seed(u64::from_le_bytes(random)),
        }
    }

    /// Takes over the fields of newer advice; a field that it lacks stays as it is.
    pub(super) fn advise(&mut self, advice: Advice) {
        if let Some(ms) = advice.interval_ms {
            self.interval = Duration::from_millis(ms).min(DELAY_MAX);
        }
        if let Some(ms) = advice.timeout_ms {
            self.hold = Duration::from_millis(ms).min(DELAY_MAX);
        }
    }

    /// A connect went well: the next pause is short.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// An attempt failed: the next pauses grow.
    pub(super) fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// The advised interval, one step for each failure up to the longest, and up to one step of random jitter, so that the
    /// clients of a server that went away do not reconnect all at once.
    pub(super) fn pause(&mut self, step: Duration, longest: Duration) -> Duration {
        let jitter = step.min(longest).mul_f64(self.random.f64());
        (self.interval + step.saturating_mul(self.failures).min(longest) + jitter).min(DELAY_MAX)
    }
}

/// A moment from now, not so far away that an `Instant` cannot hold it.
pub(super) fn after(now: Instant, delay: Duration) -> Instant {
    now + delay.min(DELAY_MAX)
}

/// The time for which a server without advice holds a connect: longer than any default known.
const HOLD_UNKNOWN: Duration = Duration::from_secs(120);

/// The longest pause, whatever a server advises.
const DELAY_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(5);

    #[test]
    fn pauses_grow_with_failures_up_to_the_longest_and_are_short_after_success() {
        let mut timing = ReconnectTiming::new([7; 8]);
        for failures in 0..20_u32 {
            let base = STEP.saturating_mul(failures).min(LONGEST);
            let pause = timing.pause(STEP, LONGEST);
            assert!(base <= pause && pause < base + STEP, "{failures}: {pause:?}");
            timing.failed();
        }
        timing.succeeded();
        assert!(timing.pause(STEP, LONGEST) < STEP);
    }

    #[test]
    fn jitter_spreads_sessions_evenly() {
        let mut timing = ReconnectTiming::new([1; 8]);
        let pauses: Vec<Duration> = (0..1000).map(|_| timing.pause(STEP, LONGEST)).collect();
        for quarter in 0..4 {
            let range = STEP / 4 * quarter..STEP / 4 * (quarter + 1);
            let count = pauses.iter().filter(|pause| range.contains(pause)).count();
            assert!((150..350).contains(&count), "quarter {quarter} has {count} of 1000");
        }
        assert_ne!(
            ReconnectTiming::new([1; 8]).pause(STEP, LONGEST),
            ReconnectTiming::new([2; 8]).pause(STEP, LONGEST)
        );
    }

    #[test]
    fn absurd_advice_is_capped() {
        let mut timing = ReconnectTiming::new([0; 8]);
        timing.advise(Advice { interval_ms: Some(u64::MAX), timeout_ms: Some(u64::MAX), ..Advice::default() });
        assert_eq!((timing.interval, timing.hold), (DELAY_MAX, DELAY_MAX));
        assert_eq!(timing.pause(STEP, LONGEST), DELAY_MAX);
        timing.advise(Advice { interval_ms: Some(0), ..Advice::default() });
        assert_eq!((timing.interval, timing.hold), (Duration::ZERO, DELAY_MAX));
    }
}
