//! Counts, checks and times deliveries: more than ten million a second on one core.
//!
//! A Bayeux server writes the deliveries of a run in a few shapes, which differ only in the characters of room and
//! data. The reader learns a shape from a delivery parsed as JSON, and reads later ones at fixed offsets. A message of
//! another shape goes to the JSON parser.

use std::borrow::Cow;
use std::ops::Range;

use encke_client::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::engine::clock::now_us;
use crate::engine::confirmations::Confirmations;
use crate::engine::members::is_channel_of;
use crate::engine::stamp::{CALL_ROOM, DATA_BYTES_MIN, Stamped};
use crate::engine::tally::Tally;
use crate::engine::timing::Timing;
use crate::latencies::Latencies;
use crate::order::Membership;

/// Reads deliveries for all sessions of a worker.
#[derive(Debug)]
pub(super) struct Reader {
    /// Compares deliveries with publications.
    pub(super) tally: Tally,
    /// Deliveries that count, see [`Tally::take`].
    pub(super) received: u64,
    /// WebSocket messages or responses with at least one delivery.
    pub(super) batches: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// The replies to publications, if recorded.
    pub(super) confirmations: Option<Confirmations>,
    /// Publications that were refused, and why the first was.
    pub(super) refused: Option<String>,
    /// The number of refused publications.
    pub(super) denied: u64,
    shapes: [Shape; SHAPES_MAX],
    /// The index that the next learnt shape replaces.
    next_shape: usize,
    now_us: u64,
    timing: Timing,
    /// The channels of the rooms, if deliveries name them.
    channels: Option<Membership>,
}

/// The offsets of the data in a delivery, in bytes; all zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shape {
    data_at: usize,
    data_bytes: usize,
    bytes: usize,
}

/// The fields read from a message of an unknown shape.
#[derive(Deserialize)]
struct Any<'a> {
    #[serde(borrow)]
    channel: Cow<'a, str>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    successful: Option<bool>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
}

impl Reader {
    /// A reader that has received nothing.
    pub(super) fn new(tally: Tally, channels: Option<Membership>) -> Reader {
        Reader {
            tally,
            channels,
            received: 0,
            batches: 0,
            bytes: 0,
            confirmations: None,
            refused: None,
            denied: 0,
            shapes: [Shape::default(); SHAPES_MAX],
            next_shape: 0,
            now_us: now_us(),
            timing: Timing::new(u64::MAX, 1, u64::MAX),
        }
    }

    /// To be called after bytes were read: they arrived now.
    pub(super) fn arrived(&mut self) {
        self.now_us = now_us();
    }

    /// See [`Clients::time_from`](crate::engine::Clients::time_from).
    pub(super) fn time_from(&mut self, from_us: u64, sample: u32, late_after_us: u64) {
        self.timing = Timing::new(from_us, sample, late_after_us);
    }

    /// See [`Clients::latencies`](crate::engine::Clients::latencies).
    pub(super) fn latencies(&self) -> &Latencies {
        &self.timing.latencies
    }

    /// The number of deliveries that took longer than [`Reader::time_from`] allows.
    pub(super) fn late(&self) -> u64 {
        self.timing.late
    }

    /// Takes a message that is only data. Returns false if it is something else.
    #[inline]
    pub(super) fn take_bare(&mut self, payload: &[u8], session: usize) -> bool {
        let Some(stamped) = Stamped::find(payload) else { return false };
        self.count(stamped, session);
        self.batches += 1;
        self.bytes += payload.len() as u64;
        true
    }

    /// Takes the Bayeux messages of one WebSocket message or response: counts deliveries and publish replies, and adds
    /// the ranges of the other messages, which are for the session, to `rest`.
    ///
    /// # Errors
    /// The text is not Bayeux; says why.
    #[inline]
    pub(super) fn take_bayeux(
        &mut self,
        payload: &[u8],
        session: usize,
        rest: &mut Vec<Range<usize>>,
    ) -> Result<(), String> {
        let mut at = match payload.first() {
            Some(b'[') => 1,
            _ => start_of_array(payload)?,
        };
        // Now and then one is parsed, to see whether it names its room's channel.
        let mut shape = if self.is_check_due() { Shape::default() } else { self.shapes[0] };
        let mut deliveries = 0_u64;
        loop {
            match shape.find(&payload[at..]) {
                Some(stamped) => {
                    self.count(stamped, session);
                    deliveries += 1;
                    at += shape.bytes;
                }
                None => {
                    let (end, delivery) = self.take_out_of_order(payload, at, session, &mut shape, rest)?;
                    deliveries += u64::from(delivery);
                    at = end;
                }
            }
            match payload.get(at) {
                Some(b',') => at += 1,
                Some(b']') if at + 1 == payload.len() => break,
                _ => match next_element(payload, at)? {
                    Some(next) => at = next,
                    None => break,
                },
            }
        }
        if deliveries > 0 {
            self.batches += 1;
            self.bytes += payload.len() as u64;
        }
        Ok(())
    }

    /// Takes a message that its session has parsed.
    pub(super) fn take_message(&mut self, message: &Message, session: usize) {
        match Stamped::find(message.data().as_str().trim_matches('"').as_bytes()) {
            Some(stamped) if self.is_on_its_channel(stamped, &message.channel) => self.count(stamped, session),
            _ => self.tally.note_misdelivered(),
        }
    }

    /// Counts a text that a session parses itself, if it may contain deliveries.
    pub(super) fn note_batch(&mut self, text: &[u8]) {
        if text.windows(DATA_KEY.len()).any(|window| window == DATA_KEY) {
            self.batches += 1;
            self.bytes += text.len() as u64;
        }
    }

    /// Takes the message at `at`, which does not fit the shape at hand. Returns where it ends, and whether it was a delivery.
    #[inline(never)]
    fn take_out_of_order(
        &mut self,
        payload: &[u8],
        at: usize,
        session: usize,
        shape: &mut Shape,
        rest: &mut Vec<Range<usize>>,
    ) -> Result<(usize, bool), String> {
        let known = if self.is_check_due() { &[][..] } else { &self.shapes[..] };
        for &other in known {
            if let Some(stamped) = other.find(&payload[at..]) {
                *shape = other;
                self.count(stamped, session);
                return Ok((at + other.bytes, true));
            }
        }
        let mut elements = serde_json::Deserializer::from_slice(&payload[at..]).into_iter::<&RawValue>();
        let raw = match elements.next() {
            Some(Ok(raw)) => raw.get(),
            // An empty array.
            _ if payload[at..].trim_ascii() == b"]" => return Ok((at, false)),
            Some(Err(error)) => return Err(not_bayeux(payload, &error.to_string())),
            None => return Err(not_bayeux(payload, "it ends early")),
        };
        let end = at + elements.byte_offset();
        let message: Any<'_> = serde_json::from_str(raw).map_err(|error| not_bayeux(payload, &error.to_string()))?;
        Ok((end, self.take_parsed(raw, &message, end, session, shape, rest)))
    }

    fn take_parsed(
        &mut self,
        raw: &str,
        message: &Any<'_>,
        end: usize,
        session: usize,
        shape: &mut Shape,
        rest: &mut Vec<Range<usize>>,
    ) -> bool {
        let data = message.data.map(|data| data.get().trim_matches('"'));
        if let Some((data, stamped)) = data.and_then(|data| Some((data, Stamped::find(data.as_bytes())?))) {
            if !self.is_on_its_channel(stamped, &message.channel) {
                self.tally.note_misdelivered();
                return true;
            }
            self.count(stamped, session);
            // The data lies in the raw text itself.
            let data_at = data.as_ptr() as usize - raw.as_ptr() as usize;
            *shape = Shape { data_at, data_bytes: data.len(), bytes: raw.len() };
            if !self.shapes.contains(shape) {
                self.shapes[self.next_shape] = *shape;
                self.next_shape = (self.next_shape + 1) % SHAPES_MAX;
            }
            return true;
        }
        match message.successful {
            _ if message.channel.starts_with("/meta/") => rest.push(end - raw.len()..end),
            Some(true) => self.note_answered(message.id, true),
            Some(false) => {
                self.note_answered(message.id, false);
                self.denied += 1;
                let error = message.error.as_deref().unwrap_or("without a reason");
                self.refused.get_or_insert_with(|| format!("{} refused: {error}", message.channel));
            }
            None => self.tally.note_misdelivered(),
        }
        false
    }

    /// Returns true if the next delivery is to be parsed, regardless of its shape.
    #[inline]
    fn is_check_due(&self) -> bool {
        self.batches.is_multiple_of(BATCHES_PER_CHECK)
    }

    /// Returns true if a delivery arrived on its room's channel.
    fn is_on_its_channel(&self, stamped: Stamped<'_>, channel: &str) -> bool {
        let (room, _) = stamped.room_and_worker();
        let channels = self.channels.as_ref().filter(|_| room != CALL_ROOM);
        channels.is_none_or(|membership| is_channel_of(membership, room, channel))
    }

    /// Ids of publications count them; see `Clients::write_batch`.
    fn note_answered(&mut self, id: Option<&RawValue>, successful: bool) {
        let Some(confirmations) = &mut self.confirmations else { return };
        let id = id.and_then(|id| id.get().trim_matches('"').strip_prefix('p')?.parse().ok());
        id.into_iter().for_each(|id| confirmations.answered(id, successful));
    }

    #[inline]
    fn count(&mut self, stamped: Stamped<'_>, session: usize) {
        if !self.tally.take(session, stamped) {
            return;
        }
        self.received += 1;
        let planned_us = stamped.planned_us(self.now_us);
        if planned_us >= self.timing.from_us {
            let turn = stamped.sequence().wrapping_add(session as u32);
            self.timing.take(self.now_us.saturating_sub(planned_us), turn);
        }
    }
}

impl Shape {
    /// The stamp of the delivery at the start of `bytes`, if it has this shape.
    #[inline]
    fn find<'a>(&self, bytes: &'a [u8]) -> Option<Stamped<'a>> {
        // Including the comma or bracket behind it.
        let bytes = bytes.get(..=self.bytes)?;
        let data_end = self.data_at + self.data_bytes;
        let fits = self.bytes > 0
            && bytes[0] == b'{'
            && bytes[self.data_at - 1] == b'"'
            && bytes[data_end] == b'"'
            && bytes[self.bytes - 1] == b'}'
            && matches!(bytes[self.bytes], b',' | b']');
        if fits { Stamped::find(&bytes[self.data_at..self.data_at + DATA_BYTES_MIN]) } else { None }
    }
}

/// The start of an array's first message, or of a single message.
#[cold]
fn start_of_array(payload: &[u8]) -> Result<usize, String> {
    let spaces = payload.len() - payload.trim_ascii_start().len();
    match payload.get(spaces) {
        Some(b'[') => Ok(spaces + 1),
        Some(b'{') => Ok(spaces),
        _ => Err(not_bayeux(payload, "it is no array")),
    }
}

/// The start of the next message, with space around commas; `None` at the end of the array or of a single message.
#[cold]
fn next_element(payload: &[u8], at: usize) -> Result<Option<usize>, String> {
    let array = payload.trim_ascii_start().starts_with(b"[");
    let rest = payload[at..].trim_ascii_start();
    match rest.split_first() {
        Some((b',', next)) if array => Ok(Some(payload.len() - next.trim_ascii_start().len())),
        Some((b']', end)) if array && end.trim_ascii().is_empty() => Ok(None),
        None if !array => Ok(None),
        None => Err(not_bayeux(payload, "it ends early")),
        Some(_) => Err(not_bayeux(payload, "no comma between messages")),
    }
}

fn not_bayeux(payload: &[u8], why: &str) -> String {
    let text = String::from_utf8_lossy(&payload[..payload.len().min(SHOWN_BYTES_MAX)]);
    format!("sent no Bayeux messages: {text:?}: {why}")
}

/// A room's name may have one digit more than another's, an answer to a call another channel than a broadcast.
const SHAPES_MAX: usize = 4;
/// Parsing one delivery in this many batches has no measurable cost.
const BATCHES_PER_CHECK: u64 = 1024;
const SHOWN_BYTES_MAX: usize = 60;
const DATA_KEY: &[u8] = b"\"data\":";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stamp::Stamp;

    fn reader() -> Reader {
        let membership = Membership { channel: "/bench/a".into(), rooms: 200_000, per_client: 3, seed: 0, first: 0 };
        Reader::new(Tally::new(0, 1, 200_000, [vec![0, 7, 100_000]].into_iter()), Some(membership))
    }

    fn delivery(room: u32, sequence: u32) -> String {
        delivery_of(Stamp { sequence, room, worker: 0, publisher: 0, planned_us: 0 })
    }

    fn delivery_of(stamp: Stamp) -> String {
        let mut data = Vec::new();
        stamp.write(50, &mut data);
        let data = String::from_utf8(data).expect("text");
        format!(r#"{{"channel":"/bench/a/{:05}","data":"{data}"}}"#, stamp.room)
    }

    fn take(reader: &mut Reader, payload: &str) -> Vec<String> {
        let mut rest = Vec::new();
        reader.take_bayeux(payload.as_bytes(), 0, &mut rest).expect("Bayeux");
        rest.into_iter().map(|range| payload[range].to_owned()).collect()
    }

    #[test]
    fn deliveries_of_several_shapes_are_counted_however_they_are_gathered() {
        let mut reader = reader();
        let (mut next, mut sent) = ([0; 3], 0);
        for (round, sizes) in [[1, 0, 2], [3, 1, 0], [2, 2, 2], [0, 1, 1]].into_iter().enumerate() {
            let mut messages = Vec::new();
            for (room_and_worker, room) in [0, 7, 100_000].into_iter().enumerate() {
                for _ in 0..sizes[room_and_worker] {
                    messages.push(delivery(room, next[room_and_worker]));
                    next[room_and_worker] += 1;
                }
            }
            sent += messages.len() as u64;
            let between = if round == 2 { " ,\n " } else { "," };
            assert!(take(&mut reader, &format!("[{}]", messages.join(between))).is_empty());
        }
        assert_eq!((reader.received, reader.batches), (sent, 4));
        assert_eq!(reader.shapes.iter().filter(|shape| shape.bytes > 0).count(), 2);
        assert!(reader.tally.faults(&[]).none());
    }

    #[test]
    fn replies_among_deliveries_are_left_to_the_session() {
        let mut reader = reader();
        take(&mut reader, &format!("[{}]", delivery(7, 0)));
        let reply = r#"{"channel":"/meta/connect","data":{"x":["}]",1]},"successful":true}"#;
        let payload = format!(
            r#"[{},{reply},{},{{"channel":"/bench/a/00007","id":"5","successful":true}},{}]"#,
            delivery(7, 1),
            delivery(7, 2),
            delivery(7, 3)
        );
        assert_eq!(take(&mut reader, &payload), [reply]);
        assert_eq!(take(&mut reader, reply), [reply], "a message alone");
        assert_eq!(reader.received, 4);
        assert_eq!(reader.refused, None);
        assert!(take(&mut reader, "[]").is_empty() && take(&mut reader, " [ ] ").is_empty());
    }

    #[test]
    fn deliveries_with_positions_are_read_without_parsing_too() {
        let mut reader = reader();
        for sequence in 0..3 {
            let delivery = delivery(7, sequence);
            let data = delivery.split("\"data\":").nth(1).expect("data").trim_end_matches('}');
            let text = format!(
                r#"{{"channel":"/bench/a/00007","data":{data},"ext":{{"replay":{{"epoch":"e","id":{}}}}}}}"#,
                sequence + 10
            );
            assert!(take(&mut reader, &format!("[{text}]")).is_empty());
        }
        assert_eq!(reader.received, 3);
        assert_eq!(reader.shapes.iter().filter(|shape| shape.bytes > 0).count(), 1);
    }

    #[test]
    fn a_delivery_under_the_name_of_another_channel_is_noticed_soon() {
        let mut reader = reader();
        let misnamed = |sequence| delivery(7, sequence).replace("/00007", "/00000");
        let until = (0..BATCHES_PER_CHECK as u32 + 1).find(|&sequence| {
            let text = if sequence == 0 { delivery(7, 0) } else { misnamed(sequence) };
            take(&mut reader, &format!("[{text}]"));
            reader.tally.faults(&[]).misdelivered > 0
        });
        assert_eq!(until, Some(BATCHES_PER_CHECK as u32));
    }

    #[test]
    fn a_refused_publication_and_foreign_data_are_counted() {
        let mut reader = reader();
        take(&mut reader, r#"[{"channel":"/bench/a/00007","successful":false,"error":"403::no"}]"#);
        assert_eq!(reader.refused.as_deref(), Some("/bench/a/00007 refused: 403::no"));
        assert_eq!(reader.denied, 1);
        take(&mut reader, r#"[{"channel":"/bench/a/00007","data":{"user":"somebody"}}]"#);
        assert_eq!(reader.tally.faults(&[]).misdelivered, 1);
    }

    #[test]
    fn invalid_bayeux_is_quoted_in_the_error() {
        for payload in ["hello", "", "[1]", "[{}]", r#"[{"channel":"/a"}"#, r#"[{"channel":"/a"} {"channel":"/a"}]"#] {
            let mut reader = reader();
            let taken = reader.take_bayeux(payload.as_bytes(), 0, &mut Vec::new());
            assert!(taken.expect_err(payload).starts_with("sent no Bayeux messages"), "{payload}");
        }
    }

    #[test]
    fn latency_is_counted_from_the_planned_time() {
        let mut reader = reader();
        reader.now_us = 10_000_000_000;
        reader.time_from(9_999_000_000, 1, 500_000);
        for (sequence, ago_us) in [(0, 2_000_000), (1, 900_000), (2, 100), (3, 0)] {
            let planned_us = reader.now_us - ago_us;
            let stamp = Stamp { sequence, room: 7, worker: 0, publisher: 0, planned_us };
            take(&mut reader, &format!("[{}]", delivery_of(stamp)));
        }
        assert_eq!((reader.late(), reader.latencies().max_us()), (1, 900_000));
        let counts: Vec<_> = reader.latencies().counts().into_iter().map(|(us, count)| (us / 1000, count)).collect();
        assert_eq!(counts, [(0, 1), (0, 1), (900, 1)]);
    }

    #[test]
    fn one_of_so_many_is_recorded_but_all_are_looked_at() {
        let mut reader = reader();
        reader.time_from(0, 8, 0);
        for sequence in 0..80 {
            let planned_us = reader.now_us - u64::from(sequence % 40) - 1;
            let mut data = Vec::new();
            Stamp { sequence, room: 7, worker: 0, publisher: 0, planned_us }.write(32, &mut data);
            assert!(reader.take_bare(&data, 0));
        }
        let latencies = reader.latencies();
        assert_eq!((latencies.count(), latencies.max_us(), reader.late(), reader.received), (10, 40, 80, 80));
    }
}
