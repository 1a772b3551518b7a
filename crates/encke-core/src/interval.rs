//! The least time between two messages of a channel for a subscriber, in few steps, so that subscriptions with about the same interval
//! share one group.

/// The interval of a subscription: one of the steps, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Interval(u8);

impl Interval {
    /// Every message is delivered.
    pub(crate) const NONE: Interval = Interval(0);

    /// The shortest interval that is not shorter than this time, in milliseconds. None if there is none.
    pub(crate) fn at_least(ms: u32) -> Option<Interval> {
        if ms == 0 {
            return Some(Interval::NONE);
        }
        let step = STEPS_MS.iter().position(|step_ms| *step_ms >= ms)?;
        Some(Interval(step as u8 + 1))
    }

    /// True if every message is delivered.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The interval in milliseconds; 0 for none.
    pub(crate) fn ms(self) -> u32 {
        usize::from(self.0).checked_sub(1).and_then(|step| STEPS_MS.get(step)).copied().unwrap_or_default()
    }
}

/// The steps in milliseconds.
const STEPS_MS: [u32; 11] =
    [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, bayeux::limits::INTERVAL_MS_MAX];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_the_next_step_and_never_shorter_than_was_asked_for() {
        let step = |ms| Interval::at_least(ms).map(Interval::ms);
        assert_eq!(
            [0, 1, 50, 51, 500, 501, 59_999, 60_000].map(step),
            [Some(0), Some(50), Some(50), Some(100), Some(500), Some(1_000), Some(60_000), Some(60_000)]
        );
        assert_eq!(step(60_001), None);
        assert!(Interval::NONE < Interval::at_least(50).expect("a step"));
    }
}
