//! The reader of the sender's frames: the load, or the bare one to compare it with.

use std::time::Duration;

use crate::engine::Clients;
use crate::latencies::Latencies;
use crate::problem::Problem;
use crate::report::Flow;

/// A reader of the sender's frames.
pub(super) trait Reads {
    /// Reads the available data, or waits up to `timeout` for some.
    fn turn(&mut self, timeout: Duration) -> Result<(), Problem>;

    /// Latencies count from now on.
    fn time_from_now(&mut self);

    /// The data received since the beginning; its window is zero.
    fn received(&self) -> Flow;

    /// The latencies since then.
    fn latencies(&self) -> &Latencies;
}

impl Reads for Clients {
    fn turn(&mut self, timeout: Duration) -> Result<(), Problem> {
        Clients::turn(self, timeout)
    }

    fn time_from_now(&mut self) {
        self.time_from(Clients::clock_us(), 1, u64::MAX);
    }

    fn received(&self) -> Flow {
        let counts = self.counts();
        let (messages, batches, bytes) = (counts.received, counts.received_batches, counts.received_bytes);
        Flow { messages, batches, bytes, window_ms: 0 }
    }

    fn latencies(&self) -> &Latencies {
        Clients::latencies(self)
    }
}
