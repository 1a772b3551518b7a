//! Time as an input: a shard reads no clock.

/// A moment: the monotonic time for deadlines, and the time of day for extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since an arbitrary start. It never goes back.
    pub ms: u64,
    /// Milliseconds since 1970, by the system clock.
    pub wall_ms: u64,
}
