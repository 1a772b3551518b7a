//! The figures of a trial, as one worker or all workers counted them: plain data, which workers send to their master.

use serde::{Deserialize, Serialize};

use crate::latencies::Latencies;

/// The result of an order, of one worker or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Deliveries that should have come.
    pub expected: u64,
    /// Its faults.
    pub faults: Faults,
    /// Everything sent in the measured window.
    pub outgoing: Flow,
    /// Everything received in the measured window.
    pub incoming: Flow,
    /// Everything sent, warm-up included.
    pub sent: u64,
    /// Everything received, warm-up and stragglers included.
    pub received: u64,
    /// Latencies of deliveries in the measured window.
    pub latencies: Latencies,
    /// Time from the first planned time to the last arrival, in milliseconds.
    pub elapsed_ms: u64,
    /// The generator's own processor time in the measured window.
    pub usage: Usage,
    /// The effects of breaks on sessions.
    pub breaks: Breaks,
    /// Publications that could not be handed to a session any more; they are not expected.
    pub refused: u64,
    /// Publications that the server refused, whether it delivered them or not.
    #[serde(default)]
    pub denied: u64,
    /// The first thing that went wrong with a session.
    pub first_error: Option<String>,
    /// The reason that it ended early, if it did.
    pub cut_short: Option<CutShort>,
}

/// The effects of broken connections on sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaks {
    /// Connections that were cut.
    pub cut: u64,
    /// Sessions that came back as they were.
    pub resumed: u64,
    /// Sessions that needed a new handshake.
    pub renewed: u64,
    /// Gaps that the server reported.
    pub gaps: u64,
    /// Repeated messages that clients recognised, by position or batch, and dropped.
    #[serde(default)]
    pub again: u64,
}

/// The reason that a trial ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutShort {
    /// The user or the scenario stopped it.
    Asked,
    /// A latency exceeded [`Order::give_up_us`](crate::order::Order::give_up_us). Messages still under way do not count as lost.
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
    /// Arrived at a session that had not subscribed to it.
    pub misdelivered: u64,
    /// Arrived, but later than the run allows.
    pub late: u64,
    /// Sessions or connections that the server dropped, or that could not be opened.
    pub dropped_sessions: u64,
}

/// The messages sent or received in the measured window.
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
    /// Returns true if everything arrived once, in order, in time and at its subscribers.
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
    /// Adds the messages of another window, before or after this one.
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

    /// Batches per second; 0 for an empty window.
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
