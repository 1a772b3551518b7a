//! Counts, checks and times deliveries, cheaply enough for more than ten million a second on one core.
//!
//! Every sequence number is read and must be the one that the session expects next. A Bayeux server writes every
//! delivery of a run in the same shape, so the shape is learnt from the first one (parsed as JSON) and later ones are read
//! at a fixed place; what does not fit the shape goes to the JSON parser again.

use std::ops::Range;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde_json::Value;

use crate::dialect::Dialect;
use crate::stamp::{self, DATA_BYTES};

/// What one session has received.
#[derive(Debug, Default)]
pub struct Tally {
    next: u32,
    received: u64,
    holes: Vec<Range<u32>>,
    doubled: u64,
    reordered: u64,
}

/// Deliveries that should not be, or should be and are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Never arrived.
    pub lost: u64,
    /// Arrived more than once.
    pub doubled: u64,
    /// Arrived after a later one.
    pub reordered: u64,
}

/// Where the data lies in a Bayeux delivery, and how long the delivery is, both in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    data: usize,
    message: usize,
}

/// Reads deliveries for all sessions of a run.
#[derive(Debug)]
pub struct Reader {
    dialect: Dialect,
    shape: Option<Shape>,
    start: Instant,
    now_us: u64,
    sample_mask: u32,
    measured_from: u32,
    fresh_read: bool,
    received: u64,
    latency_us: Histogram<u64>,
    latency_max_us: u64,
}

impl Tally {
    /// Starts over; the first delivery expected is `next`.
    pub fn restart(&mut self, next: u32) {
        *self = Tally { next, ..Tally::default() };
    }

    /// What is wrong if nothing more comes and `end` was to be published next.
    pub fn faults(&self, end: u32) -> Faults {
        let holes: u64 = self.holes.iter().map(|hole| u64::from(hole.end - hole.start)).sum();
        Faults {
            lost: holes + u64::from(end.saturating_sub(self.next)),
            doubled: self.doubled,
            reordered: self.reordered,
        }
    }

    /// The sequence number that is expected next.
    pub fn next(&self) -> u32 {
        self.next
    }

    #[inline]
    fn take(&mut self, sequence: u32) {
        if sequence == self.next {
            self.next += 1;
        } else {
            self.take_odd(sequence);
        }
        self.received += 1;
    }

    #[cold]
    fn take_odd(&mut self, sequence: u32) {
        if sequence > self.next {
            self.holes.push(self.next..sequence);
            self.next = sequence + 1;
            return;
        }
        let Some(index) = self.holes.iter().position(|hole| hole.contains(&sequence)) else {
            self.doubled += 1;
            return;
        };
        self.reordered += 1;
        let hole = self.holes.swap_remove(index);
        self.holes.extend([hole.start..sequence, sequence + 1..hole.end].into_iter().filter(|part| !part.is_empty()));
    }
}

impl std::ops::AddAssign for Faults {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.reordered += other.reordered;
    }
}

impl Faults {
    /// Whether everything arrived once and in order.
    pub fn none(self) -> bool {
        self == Faults::default()
    }
}

impl Reader {
    /// A reader of deliveries in `dialect`.
    pub fn new(dialect: Dialect) -> Self {
        Reader {
            dialect,
            shape: None,
            start: Instant::now(),
            now_us: 0,
            sample_mask: 0,
            measured_from: 0,
            fresh_read: false,
            received: 0,
            latency_us: new_histogram(),
            latency_max_us: 0,
        }
    }

    /// Microseconds since the load's start, the clock of planned times.
    pub fn clock_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Measures latency anew, from publication `measured_from` on, of one delivery in `sample`, a power of two.
    pub fn restart(&mut self, measured_from: u32, sample: u32) {
        self.measured_from = measured_from;
        self.sample_mask = sample.next_power_of_two() - 1;
        self.received = 0;
        self.latency_us.reset();
        self.latency_max_us = 0;
    }

    /// Deliveries since [`Reader::restart`], of all sessions.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Latency at a quantile between 0 and 1, in microseconds, of the sampled deliveries.
    pub fn latency_us(&self, quantile: f64) -> u64 {
        self.latency_us.value_at_quantile(quantile)
    }

    /// The highest latency, in microseconds: the first delivery of each read is always looked at, and no delivery of the
    /// same read has waited longer.
    pub fn latency_max_us(&self) -> u64 {
        self.latency_max_us
    }

    /// To be called after bytes were read from a session: they arrived now.
    pub fn arrived(&mut self) {
        self.now_us = self.clock_us();
        self.fresh_read = true;
    }

    /// Takes a text message if it holds nothing but deliveries of the known shape; says whether it was taken.
    #[inline]
    pub fn take(&mut self, payload: &[u8], session: u32, tally: &mut Tally) -> bool {
        match self.dialect {
            Dialect::Floor => match stamp::sequence(payload) {
                Some(sequence) if payload.len() == DATA_BYTES => {
                    self.count(sequence, payload, session, tally);
                    true
                }
                _ => false,
            },
            Dialect::Bayeux => self.shape.is_some_and(|shape| self.take_shaped(shape, payload, session, tally)),
        }
    }

    /// Takes a parsed Bayeux message if it is a delivery; says whether it was. `raw` is learnt from when it is the whole
    /// payload that the message stood in, alone.
    pub fn take_parsed(&mut self, message: &Value, raw: Option<&[u8]>, session: u32, tally: &mut Tally) -> bool {
        let Some(data) = message.get("data").and_then(Value::as_str) else { return false };
        let Some(sequence) = stamp::sequence(data.as_bytes()) else { return false };
        self.count(sequence, data.as_bytes(), session, tally);
        if let Some(shape) = raw.and_then(|raw| learn(raw, data.as_bytes())) {
            self.shape = Some(shape);
        }
        true
    }

    #[inline]
    fn take_shaped(&mut self, shape: Shape, payload: &[u8], session: u32, tally: &mut Tally) -> bool {
        // `[` and then each message with a comma or `]` behind it.
        let step = shape.message + 1;
        if payload.len() < 1 + step || !(payload.len() - 1).is_multiple_of(step) {
            return false;
        }
        let fits = |message: &[u8]| {
            let data = &message[shape.data..shape.data + DATA_BYTES];
            message[0] == b'{' && message[shape.data - 1] == b'"' && stamp::sequence(data).is_some()
        };
        let messages = payload[1..].chunks_exact(step);
        // Looked at before counted: a foreign message among them sends the whole payload to the parser.
        if payload.len() > 1 + step && !messages.clone().all(fits) {
            return false;
        }
        for message in messages {
            let data = &message[shape.data..shape.data + DATA_BYTES];
            let Some(sequence) = stamp::sequence(data) else { return false };
            self.count(sequence, data, session, tally);
        }
        true
    }

    #[inline]
    fn count(&mut self, sequence: u32, data: &[u8], session: u32, tally: &mut Tally) {
        tally.take(sequence);
        self.received += 1;
        let sampled = sequence.wrapping_add(session) & self.sample_mask == 0;
        if sampled || self.fresh_read {
            self.time(sequence, data, sampled);
        }
    }

    fn time(&mut self, sequence: u32, data: &[u8], sampled: bool) {
        self.fresh_read = false;
        if sequence < self.measured_from {
            return;
        }
        let latency_us = self.now_us.saturating_sub(stamp::planned_us(data));
        self.latency_max_us = self.latency_max_us.max(latency_us);
        if sampled {
            self.latency_us.saturating_record(latency_us);
        }
    }
}

/// The shape of a delivery that stands alone in `raw`, `[{…}]`.
fn learn(raw: &[u8], data: &[u8]) -> Option<Shape> {
    let message = raw.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let at = message.windows(data.len()).position(|window| window == data)?;
    (data.len() == DATA_BYTES && at > 0 && message.starts_with(b"{"))
        .then_some(Shape { data: at, message: message.len() })
}

/// Microseconds up to two minutes, three digits.
fn new_histogram() -> Histogram<u64> {
    let bounds = Histogram::new_with_bounds(1, 120_000_000, 3);
    bounds.unwrap_or_else(|_| unreachable!("fixed bounds are valid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(sequence: u32) -> String {
        let mut data = Vec::new();
        stamp::write(sequence, 7, &mut data);
        format!(r#"{{"channel":"/bench/a","data":"{}"}}"#, String::from_utf8_lossy(&data))
    }

    #[test]
    fn what_is_lost_doubled_and_reordered_is_told_apart() {
        let mut tally = Tally::default();
        for sequence in [0, 1, 4, 2, 5, 5, 1, 7] {
            tally.take(sequence);
        }
        // 3 and 6 are missing, 8 and 9 never came; 5 and 1 came twice; 2 came late.
        assert_eq!(tally.faults(10), Faults { lost: 4, doubled: 2, reordered: 1 });
    }

    #[test]
    fn a_learnt_shape_reads_single_and_gathered_deliveries() {
        let mut reader = Reader::new(Dialect::Bayeux);
        let mut tally = Tally::default();
        let first = format!("[{}]", delivery(0));
        assert!(!reader.take(first.as_bytes(), 0, &mut tally), "no shape yet");
        let parsed: Value = serde_json::from_str(&first).expect("JSON");
        assert!(reader.take_parsed(&parsed[0], Some(first.as_bytes()), 0, &mut tally));
        assert!(reader.take(format!("[{}]", delivery(1)).as_bytes(), 0, &mut tally));
        assert!(reader.take(format!("[{},{}]", delivery(2), delivery(3)).as_bytes(), 0, &mut tally));
        assert_eq!((tally.next(), reader.received()), (4, 4));
        assert!(tally.faults(4).none());
    }

    #[test]
    fn a_reply_among_deliveries_is_left_to_the_parser() {
        let mut reader = Reader::new(Dialect::Bayeux);
        let mut tally = Tally::default();
        let first = format!("[{}]", delivery(0));
        let parsed: Value = serde_json::from_str(&first).expect("JSON");
        reader.take_parsed(&parsed[0], Some(first.as_bytes()), 0, &mut tally);
        let reply = r#"{"channel":"/meta/connect","successful":true}"#;
        let padded = format!("{reply}{}", " ".repeat(delivery(0).len() - reply.len()));
        assert!(!reader.take(format!("[{},{padded}]", delivery(1)).as_bytes(), 0, &mut tally));
        assert_eq!(reader.received(), 1, "nothing of a mixed payload is counted before it is parsed");
    }
}
