//! The records in the log of the histories, and their encoding.
//!
//! Integers are little-endian. The first byte is the kind of a record. The journal adds checksums and lengths.
//!
//! | byte | record | content |
//! | --- | --- | --- |
//! | 1 | [`Record::Burst`] | a part |
//! | 2 | [`Record::State`] | a part |
//! | 3 | [`Record::Floor`] | u64 |
//! | 4 | [`Record::Leap`] | u64 |
//! | 5 | [`Record::Closed`] | u64 |
//!
//! A part: u32 length and the channel, u8 length and the epoch, u64 `from`, u64 `next`, then runs of messages up to the
//! end. A run: u64 offset of its first message (the others are consecutive), u64 time of day in milliseconds, u8 of flags
//! (1: 32 bytes with the publisher's id follow; 2: the server's side has made them, while older versions wrote no such
//! flag), u32 number of messages, and for each a u32 length and its text.

use crate::history::{Entry, Position, Ring};
use crate::{Id, Side};

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Messages that were published together. The log misses no message from `from`, their first offset, up to here.
    Burst(Part<'a>),
    /// The state of a ring when this was written, or a part of it. Parts come with growing offsets. The ring held
    /// nothing below `from`.
    State(Part<'a>),
    /// No new ring may begin below this offset. Written first at a start, and in each compaction.
    Floor(u64),
    /// Like `Floor`; in addition all rings jump to this offset. Written instead of `Floor` at a start that follows an
    /// unclean end.
    Leap(u64),
    /// Like `Floor`; in addition the process ended cleanly, so the next offsets of all rings are known.
    Closed(u64),
}

/// A part of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The channel.
    pub channel: &'a str,
    /// The epoch of its ring.
    pub epoch: &'a str,
    /// See [`Record`].
    pub from: u64,
    /// The offset that follows the last message.
    pub next: u64,
    /// Messages with growing offsets, all from `from` on and below `next`.
    pub messages: Vec<LoggedMessage<'a>>,
}

/// A message of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedMessage<'a> {
    /// Its offset.
    pub offset: u64,
    /// The time when it was published, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The side that has made it.
    pub side: Side,
    /// The session that published it and must not get it back.
    pub except: Option<Id>,
    /// The message: a JSON object.
    pub text: &'a str,
}

/// The record of messages of a channel that were published together at this position.
pub fn burst<'t>(
    channel: &str,
    at: &Position,
    side: Side,
    except: Option<Id>,
    texts: impl Iterator<Item = &'t str>,
) -> Vec<u8> {
    let mut writer = Writer::new(BURST, channel, &at.epoch, at.first);
    let mut next = at.first;
    for text in texts {
        writer.message(&LoggedMessage { offset: next, wall_ms: at.wall_ms, side, except, text });
        next += 1;
    }
    writer.finish(next)
}

/// The record of a new ring without messages: an empty burst.
pub fn birth(ring: &Ring) -> Vec<u8> {
    Writer::new(BURST, ring.name(), ring.epoch(), ring.next()).finish(ring.next())
}

/// The record of a ring from which all messages were removed: a state without messages.
pub fn cleared(ring: &Ring) -> Vec<u8> {
    Writer::new(STATE, ring.name(), ring.epoch(), ring.next()).finish(ring.next())
}

/// The record of a part of a ring's state: its messages from this offset on, as many as `bytes_max` allows but at least
/// one. Leaves out messages that do not fit into `record_bytes_max`. Also returns the offset of the next part; None if
/// this one is the last.
pub fn state_from(ring: &Ring, offset: u64, bytes_max: usize, record_bytes_max: usize) -> (Vec<u8>, Option<u64>) {
    let mut writer = Writer::new(STATE, ring.name(), ring.epoch(), ring.oldest());
    let text_bytes_max = record_bytes_max.saturating_sub(writer.bytes.len() + RUN_BYTES_MAX);
    let mut next = ring.oldest();
    let mut is_empty = true;
    for Entry { offset, text, wall_ms, side, except, .. } in ring.from(offset) {
        if text.len() > text_bytes_max {
            continue;
        }
        if !is_empty && writer.bytes.len() + text.len() > bytes_max {
            return (writer.finish(next), Some(*offset));
        }
        let (offset, except) = (*offset, except.as_deref().copied());
        writer.message(&LoggedMessage { offset, wall_ms: *wall_ms, side: *side, except, text });
        next = offset + 1;
        is_empty = false;
    }
    (writer.finish(ring.next()), None)
}

impl Record<'_> {
    /// Its encoding.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, offset) = match self {
            Record::Burst(part) => return part.encode(BURST),
            Record::State(part) => return part.encode(STATE),
            Record::Floor(offset) => (FLOOR, offset),
            Record::Leap(offset) => (LEAP, offset),
            Record::Closed(offset) => (CLOSED, offset),
        };
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes
    }
}

/// Decodes a record. None if the bytes are not a valid one.
pub fn decode(bytes: &[u8]) -> Option<Record<'_>> {
    let (kind, rest) = bytes.split_first()?;
    match *kind {
        BURST => Some(Record::Burst(Part::decode(rest)?)),
        STATE => Some(Record::State(Part::decode(rest)?)),
        FLOOR => Some(Record::Floor(u64::from_le_bytes(rest.try_into().ok()?))),
        LEAP => Some(Record::Leap(u64::from_le_bytes(rest.try_into().ok()?))),
        CLOSED => Some(Record::Closed(u64::from_le_bytes(rest.try_into().ok()?))),
        _ => None,
    }
}

impl<'a> Part<'a> {
    fn encode(&self, kind: u8) -> Vec<u8> {
        let mut writer = Writer::new(kind, self.channel, self.epoch, self.from);
        self.messages.iter().for_each(|message| writer.message(message));
        writer.finish(self.next)
    }

    fn decode(bytes: &'a [u8]) -> Option<Part<'a>> {
        let mut bytes = Bytes(bytes);
        let length = u32::from_le_bytes(bytes.array()?);
        let channel = bytes.text(usize::try_from(length).ok()?)?;
        let [length] = bytes.array()?;
        let epoch = bytes.text(usize::from(length))?;
        let (from, next) = (bytes.number()?, bytes.number()?);
        let mut messages = Vec::new();
        let mut least = from;
        while !bytes.0.is_empty() {
            let (first, wall_ms) = (bytes.number()?, bytes.number()?);
            let [flags] = bytes.array()?;
            if flags & !(HAS_ID | OF_SERVER) != 0 {
                return None;
            }
            let side = if flags & OF_SERVER == 0 { Side::Client } else { Side::Server };
            let except = match flags & HAS_ID {
                0 => None,
                _ => Some(Id::parse(bytes.text(ID_BYTES)?)?),
            };
            let count = u64::from(u32::from_le_bytes(bytes.array()?));
            if count == 0 || first < least {
                return None;
            }
            least = first.checked_add(count)?;
            for offset in first..least {
                let length = u32::from_le_bytes(bytes.array()?);
                let text = bytes.text(usize::try_from(length).ok()?)?;
                messages.push(LoggedMessage { offset, wall_ms, side, except, text });
            }
        }
        (least <= next).then_some(Part { channel, epoch, from, next, messages })
    }
}

/// The rest of the bytes to decode.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self, count: usize) -> Option<&'a str> {
        str::from_utf8(self.take(count)?).ok()
    }
}

/// A part that is being written.
struct Writer {
    bytes: Vec<u8>,
    /// The index of `next` in the bytes.
    next_at: usize,
    run: Option<Run>,
}

/// The run that is being written.
struct Run {
    next: u64,
    wall_ms: u64,
    side: Side,
    except: Option<Id>,
    count: u32,
    /// The index of the count in the bytes.
    count_at: usize,
}

impl Writer {
    fn new(kind: u8, channel: &str, epoch: &str, from: u64) -> Writer {
        let mut bytes = Vec::with_capacity(channel.len() + epoch.len() + 256);
        bytes.push(kind);
        bytes.extend_from_slice(&(channel.len() as u32).to_le_bytes());
        bytes.extend_from_slice(channel.as_bytes());
        bytes.push(epoch.len() as u8);
        bytes.extend_from_slice(epoch.as_bytes());
        bytes.extend_from_slice(&from.to_le_bytes());
        let next_at = bytes.len();
        bytes.extend_from_slice(&[0; 8]);
        Writer { bytes, next_at, run: None }
    }

    fn message(&mut self, message: &LoggedMessage<'_>) {
        let LoggedMessage { offset, wall_ms, side, except, text } = *message;
        match &mut self.run {
            Some(run) if (run.next, run.wall_ms, run.side, run.except) == (offset, wall_ms, side, except) => {
                run.next += 1;
                run.count += 1;
            }
            _ => {
                self.end_run();
                self.bytes.extend_from_slice(&offset.to_le_bytes());
                self.bytes.extend_from_slice(&wall_ms.to_le_bytes());
                let has_id = if except.is_some() { HAS_ID } else { 0 };
                let of_server = if side == Side::Server { OF_SERVER } else { 0 };
                self.bytes.push(has_id | of_server);
                self.bytes.extend_from_slice(except.as_ref().map_or("", Id::as_str).as_bytes());
                let count_at = self.bytes.len();
                self.bytes.extend_from_slice(&[0; 4]);
                self.run = Some(Run { next: offset + 1, wall_ms, side, except, count: 1, count_at });
            }
        }
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn end_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.bytes[run.count_at..run.count_at + 4].copy_from_slice(&run.count.to_le_bytes());
        }
    }

    fn finish(mut self, next: u64) -> Vec<u8> {
        self.end_run();
        self.bytes[self.next_at..self.next_at + 8].copy_from_slice(&next.to_le_bytes());
        self.bytes
    }
}

const BURST: u8 = 1;
const STATE: u8 = 2;
const FLOOR: u8 = 3;
const LEAP: u8 = 4;
const CLOSED: u8 = 5;
/// Flags of a run.
const HAS_ID: u8 = 1;
const OF_SERVER: u8 = 2;
/// Bytes of a publisher's id.
const ID_BYTES: usize = 32;
/// The maximum size of a run with one message, without its text, in bytes.
const RUN_BYTES_MAX: usize = 8 + 8 + 1 + ID_BYTES + 4 + 4;
/// The size of a part without its channel, epoch and messages, in bytes.
pub const PART_BYTES: usize = 22;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::kernel_entropy;

    /// The contents of a part: channel, epoch, `from`; for each message the gap before it, its time, true if its
    /// publisher is named, true if the server's side has made it, its text; and the gap at the end.
    type Made = (String, String, u64, Vec<(u64, u64, (bool, bool), String)>, u64);

    fn part<'a>(made: &'a Made, publisher: Id) -> Part<'a> {
        let (channel, epoch, from, messages, gap) = made;
        let mut next = *from;
        let messages = messages.iter().map(|(gap, wall_ms, (is_named, is_of_server), text)| {
            let offset = next + gap;
            next = offset + 1;
            let side = if *is_of_server { Side::Server } else { Side::Client };
            LoggedMessage { offset, wall_ms: *wall_ms, side, except: is_named.then_some(publisher), text }
        });
        let messages = messages.collect();
        Part { channel, epoch, from: *from, next: next + gap, messages }
    }

    fn parts() -> impl Strategy<Value = Made> {
        let message = (prop_oneof![Just(0), 0..1000_u64], 0..3_u64, any::<(bool, bool)>(), ".{0,20}");
        ("/[a-z/]{1,20}", "[a-v0-9]{8}", 0..u64::MAX / 2, vec(message, 0..20), 0..1000_u64)
    }

    #[test]
    fn a_record_of_an_older_version_has_messages_of_clients_and_an_unknown_flag_is_refused() {
        let message = LoggedMessage { offset: 7, wall_ms: 1, side: Side::Server, except: None, text: "{}" };
        let part = Part { channel: "/a", epoch: "e", from: 7, next: 8, messages: vec![message] };
        let mut bytes = Record::Burst(part.clone()).encode();
        let flags_at = bytes.len() - (1 + 4 + 4 + 2);
        assert_eq!(bytes[flags_at], OF_SERVER);
        bytes[flags_at] = 0;
        let of_client = LoggedMessage { side: Side::Client, ..message };
        assert_eq!(decode(&bytes), Some(Record::Burst(Part { messages: vec![of_client], ..part })));
        bytes[flags_at] = 4;
        assert_eq!(decode(&bytes), None);
    }

    proptest! {
        #[test]
        fn a_record_reads_back(made in parts(), offset: u64) {
            let part = part(&made, Id::new(3, &mut kernel_entropy()));
            let marks = [Record::Floor(offset), Record::Leap(offset), Record::Closed(offset)];
            for record in [Record::Burst(part.clone()), Record::State(part)].into_iter().chain(marks) {
                let bytes = record.encode();
                prop_assert_eq!(decode(&bytes), Some(record));
            }
        }

        #[test]
        fn other_bytes_are_refused_as_a_record_without_a_panic(mut bytes in vec(any::<u8>(), 0..200), kind in 0..7_u8) {
            decode(&bytes);
            bytes.insert(0, kind);
            if let Some(record) = decode(&bytes) {
                // A record that can be decoded can be encoded.
                prop_assert!(decode(&record.encode()).is_some());
            }
        }

        #[test]
        fn a_cut_or_changed_record_is_refused_or_reads_differently(made in parts(), cut: prop::sample::Index, flip: u8) {
            let bytes = Record::State(part(&made, Id::new(3, &mut kernel_entropy()))).encode();
            decode(&bytes[..cut.index(bytes.len())]);
            let mut changed = bytes.clone();
            changed[cut.index(bytes.len())] ^= flip;
            decode(&changed);
        }
    }
}
