//! The figures of a trial, as one worker or all workers counted them: plain data, which workers send to their master.

use serde::{Deserialize, Serialize};

/// What came of an order, in one worker or in all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Deliveries that should have come.
    pub expected: u64,
    /// What should not have happened.
    pub faults: Faults,
    /// Everything sent in the measured window.
    pub outgoing: Flow,
    /// Everything received in the measured window.
    pub incoming: Flow,
    /// Everything sent, warm-up included.
    pub sent: u64,
    /// Everything received, warm-up and stragglers included.
    pub received: u64,
    /// Latencies of deliveries in the measured window: `(microseconds, how many)`, rising.
    pub latencies_us: Vec<(u64, u64)>,
    /// The highest latency, in microseconds.
    pub latency_max_us: u64,
    /// From the first planned time to the last arrival, in milliseconds.
    pub elapsed_ms: u64,
    /// What the generator itself used of processors, in the measured window.
    pub usage: Usage,
    /// What breaks did to sessions.
    pub breaks: Breaks,
    /// Publications that could not be handed to a session any more; they are not expected.
    pub refused: u64,
    /// Publications that the server refused, whether it delivered them or not.
    #[serde(default)]
    pub denied: u64,
    /// The first thing that went wrong with a session.
    pub first_error: Option<String>,
    /// Whether it was ended before its time, and why.
    pub cut_short: Option<CutShort>,
}

/// What became of sessions whose connections broke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaks {
    /// Connections that were cut.
    pub cut: u64,
    /// Sessions that came back as they were.
    pub resumed: u64,
    /// Sessions that had to shake hands anew.
    pub renewed: u64,
    /// Gaps that the server told of.
    pub gaps: u64,
    /// Messages that came again, which clients noticed by their places or batches, and left out.
    #[serde(default)]
    pub again: u64,
}

/// Why a trial ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutShort {
    /// Somebody wanted it.
    Asked,
    /// A latency over [`Order::give_up_us`]; what was still under way does not count as lost.
    Hopeless,
}

/// Processor time of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Length of the window in seconds.
    pub window_s: f64,
    /// Processor time used in it, in seconds.
    pub cpu_s: f64,
}

/// Deliveries that should not be, or should be and are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Never arrived.
    pub lost: u64,
    /// Arrived more than once.
    pub doubled: u64,
    /// Arrived after a later one of the same sender in the same room.
    pub reordered: u64,
    /// Arrived where nobody had asked for it.
    pub misdelivered: u64,
    /// Arrived, but later than the run allows.
    pub late: u64,
    /// Sessions or connections that the server dropped, or that could not be opened.
    pub dropped_sessions: u64,
}

/// What went one way in the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Bayeux messages (publications, deliveries), answers not counted; requests for plain HTTP.
    pub messages: u64,
    /// WebSocket messages or HTTP requests (responses) that held them.
    pub batches: u64,
    /// Their bytes, without the overhead of frames and HTTP heads.
    pub bytes: u64,
    /// Length of the window in milliseconds.
    pub window_ms: u64,
}

impl Faults {
    /// Whether everything arrived once, in order, in time and at the right place.
    pub fn none(self) -> bool {
        self == Faults::default()
    }
}

impl std::ops::AddAssign for Faults {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.reordered += other.reordered;
        self.misdelivered += other.misdelivered;
        self.late += other.late;
        self.dropped_sessions += other.dropped_sessions;
    }
}

impl std::ops::AddAssign for Flow {
    /// Adds what went in another window, after or before this one.
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.batches += other.batches;
        self.bytes += other.bytes;
        self.window_ms += other.window_ms;
    }
}

impl Flow {
    /// Messages per second; 0 for an empty window.
    pub fn messages_per_s(self) -> f64 {
        per_s(self.messages, self.window_ms)
    }

    /// Carriers per second; 0 for an empty window.
    pub fn batches_per_s(self) -> f64 {
        per_s(self.batches, self.window_ms)
    }

    /// Bits per second; 0 for an empty window.
    pub fn bits_per_s(self) -> f64 {
        per_s(self.bytes * 8, self.window_ms)
    }
}

fn per_s(count: u64, window_ms: u64) -> f64 {
    if window_ms == 0 { 0.0 } else { count as f64 * 1000.0 / window_ms as f64 }
}
