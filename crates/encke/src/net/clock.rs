//! The clock of a server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use encke_core::Now;

/// Runs since the start of the server. It is read several times for each message, so the time of day is read with each tick only, and
/// goes on with the other clock between them.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// The time of day at the start, in milliseconds since 1970, as far as the last tick knows.
    start_wall_ms: AtomicU64,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Clock {
        let clock = Clock { start: Instant::now(), start_wall_ms: AtomicU64::new(0) };
        clock.tick();
        clock
    }

    /// Reads the time of day, which may have been set.
    pub(crate) fn tick(&self) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_wall = wall.saturating_sub(self.uptime());
        self.start_wall_ms.store(start_wall.as_millis() as u64, Ordering::Relaxed);
    }

    /// The current time.
    #[inline]
    pub(crate) fn now(&self) -> Now {
        let uptime_ms = self.uptime().as_millis() as u64;
        Now { ms: CLOCK_START_MS + uptime_ms, wall_ms: self.start_wall_ms.load(Ordering::Relaxed) + uptime_ms }
    }

    /// The time since the start.
    pub(crate) fn uptime(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The reading of the clock at its start, in milliseconds: high enough to give messages of an earlier life of the
/// process a time on it.
const CLOCK_START_MS: u64 = 1 << 42;
