//! The time, as it comes in from outside: a shard reads no clock.

/// A moment: the monotonic time that deadlines count in, and the time of day that extensions tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since some start, never going back.
    pub ms: u64,
    /// Milliseconds since 1970, as the clock on the wall says.
    pub wall_ms: u64,
}
