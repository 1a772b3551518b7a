//! The clock of a server.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use encke_core::Now;

/// Runs since the start of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    /// The current time.
    pub(crate) fn now(self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { ms: CLOCK_START_MS + self.uptime().as_millis() as u64, wall_ms: wall.as_millis() as u64 }
    }

    /// The time since the start.
    pub(crate) fn uptime(self) -> Duration {
        self.0.elapsed()
    }
}

/// The reading of the clock at its start, in milliseconds: high enough to give messages of an earlier life of the
/// process a time on it.
const CLOCK_START_MS: u64 = 1 << 42;
