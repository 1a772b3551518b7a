//! Shared by the models of a cluster: their chance, and the check of an engine's keys.

use crate::command::Expected;

/// Random numbers that follow from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `below`.
    pub(crate) fn random(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below
    }

    /// True in so many of 1,000 cases.
    pub(crate) fn happens(&mut self, of_1000: u64) -> bool {
        of_1000 > 0 && self.random(1_000) < of_1000
    }
}

impl Expected {
    /// True if a key whose last revision is `last`, 0 without a value, may be written.
    pub(crate) fn allows(self, last: u64) -> bool {
        match self {
            Expected::Any => true,
            Expected::Absent => last == 0,
            Expected::Revision(revision) => last == revision,
        }
    }
}
