//! A crowd of sessions.

use std::ops::Range;
use std::time::Duration;

use crate::problem::Problem;
use crate::report::Faults;
use crate::run::CrowdSpec;

/// Sessions of one process: its share of the subscribers, and of those that only publish.
#[derive(Debug)]
pub struct Crowd {}

/// One publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The room's number.
    pub room: u32,
    /// When it should leave, in microseconds of the crowd's clock.
    pub planned_us: u64,
}

/// Counters since the crowd began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sessions that are open now.
    pub connected: u64,
    /// Sessions that were lost for good.
    pub dropped: u64,
    /// Publications handed to sockets.
    pub sent: u64,
    /// WebSocket messages or requests that held them.
    pub sent_carriers: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Deliveries received.
    pub received: u64,
    /// WebSocket messages or responses that held them.
    pub received_carriers: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

/// How many publications each room has had of one worker: `next[room]` is the sequence number that comes next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// By room.
    pub next: Vec<u32>,
}

impl Crowd {
    /// Opens this worker's share of the crowd: worker `worker` of `workers` has the clients whose number modulo `workers` is
    /// `worker`, likewise publishers. `progress` is told from time to time how many are open; `false` stops the opening.
    ///
    /// # Errors
    /// Nobody answers at the target, what answers is no Bayeux server, it refuses, or the machine has too few files.
    pub fn open(
        _spec: &CrowdSpec,
        _worker: u32,
        _workers: u32,
        _progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Crowd, Problem> {
        Ok(Crowd {})
    }

    /// The crowd's clock in microseconds: the machine's monotonic clock, the same in all processes.
    pub fn clock_us() -> u64 {
        0
    }

    /// Numbers of this worker's subscribers: `0..n` locally.
    pub fn clients(&self) -> Range<usize> {
        0..0
    }

    /// Numbers of this worker's publishing sessions: they follow the subscribers.
    pub fn publishers(&self) -> Range<usize> {
        0..0
    }

    /// Publishes in one carrier; numbers the publications of each room. Never waits.
    ///
    /// # Errors
    /// The session is gone, or takes nothing any more.
    pub fn publish(&mut self, _session: usize, _batch: &[Publication], _data_bytes: usize) -> Result<(), Problem> {
        Ok(())
    }

    /// Sends to a service channel, whose answer with the same data is awaited by this session.
    ///
    /// # Errors
    /// As [`Crowd::publish`].
    pub fn call(&mut self, _session: usize, _channel: &str, _planned_us: u64, _data_bytes: usize) -> Result<(), Problem> {
        Ok(())
    }

    /// Waits for sockets for at most `patience` and serves those that are ready; timers of sessions run here, too.
    ///
    /// # Errors
    /// The machine's, never a single session's.
    pub fn turn(&mut self, _patience: Duration) -> Result<(), Problem> {
        Ok(())
    }

    /// Counters so far.
    pub fn counts(&self) -> Counts {
        Counts::default()
    }

    /// From now on, deliveries planned at or after `from_us` are timed, one in `sample` (a power of two), and those that took
    /// longer than `late_after_us` are counted as late. Clears what was timed before.
    pub fn time_from(&mut self, _from_us: u64, _sample: u32, _late_after_us: u64) {}

    /// What was timed: `(microseconds, how many)`, rising, and the highest.
    pub fn latencies_us(&self) -> (Vec<(u64, u64)>, u64) {
        (Vec::new(), 0)
    }

    /// The highest latency seen since [`Crowd::time_from`].
    pub fn latency_max_us(&self) -> u64 {
        0
    }

    /// What this worker has published so far.
    pub fn published(&self) -> &Published {
        unreachable!("skeleton")
    }

    /// How many deliveries this worker's sessions should have had since the crowd or [`Crowd::begin`] began, by what all
    /// workers have published, this one's own included, in the order of workers; and the answers of its own calls.
    pub fn expected(&self, _all: &[Published]) -> u64 {
        0
    }

    /// What is wrong if nothing more comes.
    pub fn faults(&self, _all: &[Published]) -> Faults {
        Faults::default()
    }

    /// Begins a new trial: what was published before neither counts nor is expected any more.
    pub fn begin(&mut self, _all: &[Published]) {}

    /// Why the first lost session was lost.
    pub fn first_loss(&self) -> Option<&str> {
        None
    }

    /// Breaks every connection at once, without a goodbye; with [`CrowdSpec::reconnect`] the sessions come back.
    pub fn cut(&mut self) {}

    /// Says goodbye on all sessions, as far as that goes without waiting long, and closes the sockets.
    pub fn leave(&mut self) {}
}
