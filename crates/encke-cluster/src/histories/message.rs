//! The messages of nodes about partitions. None waits for an answer: the engine may lose each of them, and what matters is sent again.
//!
//! ```text
//!   source ── Submit ──▶ owner ── Log ──▶ all nodes ── Ack ──▶ owner
//!             Expect ◀──           Log, Rings ◀── Fetch
//! ```

use std::sync::Arc;

use bayeux::{ChannelKind, ChannelName, Limits};
use bytes::Bytes;
use encke_core::{Id, Side};

use super::entry::{Content, Entry, NodeId, Submission, Term};
use super::rings::Cursor;
use crate::envelope::count_frames;

/// A message of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) from: NodeId,
    pub(super) partition: u16,
    /// The term that the sender knows.
    pub(super) term: Term,
    pub(super) body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Entries of the log, the first one with this number. Without entries: the log ends before this number.
    Log { first: u64, entries: Vec<Entry>, committed: u64 },
    /// The sender has all entries of this term up to `staged`, and has applied those up to `committed`.
    Ack { staged: u64, committed: u64 },
    /// Send the log from this number on, or the rings.
    Fetch(Wanted),
    /// A part of the rings.
    Rings(Part),
    /// Publications of the sender, the first one with this number; all up to `done` are committed.
    Submit { done: u64, first: u64, submissions: Vec<Arc<Submission>> },
    /// The owner waits for this number of the receiver.
    Expect(u64),
}

/// The beginning of what a node fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The entries from this number on.
    Number(u64),
    /// All rings, as they are now.
    Beginning,
    /// The rings from here on.
    Cursor(Cursor),
}

/// A part of the rings of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The cursor of the request; None for the first part.
    pub(super) at: Option<Cursor>,
    /// The cursor of the next part; None if this is the last one.
    pub(super) next: Option<Cursor>,
    /// The number of the last entry that is in these rings. A mirror's log begins behind that of the first part.
    pub(super) committed: u64,
    /// The last sequence of each source, up to that entry.
    pub(super) sources: Vec<(NodeId, u64)>,
    /// An offset above those of all rings that are gone.
    pub(super) floor: u64,
    /// Rings and parts of rings, which [`Rings`](super::Rings) writes and reads.
    pub(super) records: Vec<Bytes>,
}

impl Message {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Writer(vec![VERSION, self.body.kind()]);
        out.number(self.from.0);
        out.0.extend_from_slice(&self.partition.to_le_bytes());
        out.number(self.term.seed);
        out.number(self.term.number);
        match &self.body {
            Body::Log { first, entries, committed } => {
                out.number(*first);
                out.number(*committed);
                entries.iter().for_each(|entry| out.entry(entry));
            }
            Body::Ack { staged, committed } => {
                out.number(*staged);
                out.number(*committed);
            }
            Body::Fetch(Wanted::Number(number)) => {
                out.0.push(0);
                out.number(*number);
            }
            Body::Fetch(Wanted::Beginning) => out.0.push(1),
            Body::Fetch(Wanted::Cursor(cursor)) => {
                out.0.push(2);
                out.cursor(*cursor);
            }
            Body::Rings(part) => out.rings(part),
            Body::Submit { done, first, submissions } => {
                out.number(*done);
                out.number(*first);
                submissions.iter().for_each(|submission| out.submission(submission));
            }
            Body::Expect(number) => out.number(*number),
        }
        out.0
    }

    /// Reads a message. None if it is none: of another version, or with something that would harm a client.
    pub(super) fn read(bytes: &[u8], names: &Limits) -> Option<Message> {
        let [VERSION, kind, rest @ ..] = bytes else { return None };
        let mut from = Reader { bytes: rest, names };
        let sender = NodeId(from.number()?);
        let partition = u16::from_le_bytes(from.take()?);
        let term = Term { seed: from.number()?, number: from.number()? };
        let body = match *kind {
            0 => {
                let (first, committed) = (from.number()?, from.number()?);
                Body::Log { first, committed, entries: from.all(Reader::entry)? }
            }
            1 => Body::Ack { staged: from.number()?, committed: from.number()? },
            2 => Body::Fetch(match from.byte()? {
                0 => Wanted::Number(from.number()?),
                1 => Wanted::Beginning,
                2 => Wanted::Cursor(from.cursor()?),
                _ => return None,
            }),
            3 => Body::Rings(from.rings()?),
            4 => {
                let (done, first) = (from.number()?, from.number()?);
                Body::Submit { done, first, submissions: from.all(Reader::submission)? }
            }
            5 => Body::Expect(from.number()?),
            _ => return None,
        };
        from.bytes.is_empty().then_some(Message { from: sender, partition, term, body })
    }
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Body::Log { .. } => 0,
            Body::Ack { .. } => 1,
            Body::Fetch(_) => 2,
            Body::Rings(_) => 3,
            Body::Submit { .. } => 4,
            Body::Expect(_) => 5,
        }
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn part(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    fn cursor(&mut self, cursor: Cursor) {
        let Cursor { owner, slot, offset } = cursor;
        [owner, slot, offset].into_iter().for_each(|number| self.number(number));
    }

    fn optional_cursor(&mut self, cursor: Option<Cursor>) {
        self.0.push(cursor.is_some().into());
        cursor.into_iter().for_each(|cursor| self.cursor(cursor));
    }

    fn submission(&mut self, submission: &Submission) {
        self.part(submission.channel.as_bytes());
        match &submission.content {
            Content::Clear => self.0.push(CLEAR),
            Content::Publications { side, except, messages, frames } => {
                self.0.push(if *side == Side::Server { OF_SERVER } else { OF_CLIENT });
                self.0.push(except.is_some().into());
                self.0.extend_from_slice(except.as_ref().map_or("", Id::as_str).as_bytes());
                self.0.extend_from_slice(&messages.to_le_bytes());
                self.part(frames);
            }
        }
    }

    fn entry(&mut self, entry: &Entry) {
        [entry.source.0, entry.sequence, entry.first, entry.wall_ms].into_iter().for_each(|number| self.number(number));
        self.submission(&entry.submission);
    }

    fn rings(&mut self, part: &Part) {
        self.optional_cursor(part.at);
        self.optional_cursor(part.next);
        self.number(part.committed);
        self.number(part.floor);
        self.number(part.sources.len() as u64);
        for (source, sequence) in &part.sources {
            self.number(source.0);
            self.number(*sequence);
        }
        part.records.iter().for_each(|record| self.part(record));
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    names: &'a Limits,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn part(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_le_bytes(self.take()?);
        self.bytes(length as usize)
    }

    /// All that follows.
    fn all<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = Vec::new();
        while !self.bytes.is_empty() {
            all.push(read(self)?);
        }
        Some(all)
    }

    fn cursor(&mut self) -> Option<Cursor> {
        Some(Cursor { owner: self.number()?, slot: self.number()?, offset: self.number()? })
    }

    fn optional_cursor(&mut self) -> Option<Option<Cursor>> {
        match self.byte()? {
            0 => Some(None),
            1 => self.cursor().map(Some),
            _ => None,
        }
    }

    fn submission(&mut self) -> Option<Arc<Submission>> {
        let channel = str::from_utf8(self.part()?).ok()?;
        let name = ChannelName::parse(channel, self.names).ok()?;
        if name.kind() != ChannelKind::Broadcast || name.is_pattern() {
            return None;
        }
        let side = match self.byte()? {
            CLEAR => return Some(Arc::new(Submission { channel: channel.into(), content: Content::Clear })),
            OF_CLIENT => Side::Client,
            OF_SERVER => Side::Server,
            _ => return None,
        };
        let except = match self.byte()? {
            0 => None,
            1 => Some(Id::parse(str::from_utf8(self.bytes(ID_BYTES)?).ok()?)?),
            _ => return None,
        };
        let messages = u32::from_le_bytes(self.take()?);
        let frames = self.part()?;
        if messages == 0 || count_frames(frames) != Some(messages) {
            return None;
        }
        // A copy, because the engine's buffer may be much larger.
        let frames = Bytes::copy_from_slice(frames);
        let content = Content::Publications { side, except, messages, frames };
        Some(Arc::new(Submission { channel: channel.into(), content }))
    }

    fn entry(&mut self) -> Option<Entry> {
        let (source, sequence) = (NodeId(self.number()?), self.number()?);
        let (first, wall_ms) = (self.number()?, self.number()?);
        let submission = self.submission()?;
        // All its offsets are numbers.
        first.checked_add(submission.messages())?;
        Some(Entry { source, sequence, first, wall_ms, submission })
    }

    fn rings(&mut self) -> Option<Part> {
        let (at, next) = (self.optional_cursor()?, self.optional_cursor()?);
        let (committed, floor) = (self.number()?, self.number()?);
        let count = self.number()?;
        let mut sources = Vec::new();
        for _ in 0..count {
            sources.push((NodeId(self.number()?), self.number()?));
        }
        let records = self.all(|from| from.part().map(Bytes::copy_from_slice))?;
        Some(Part { at, next, committed, sources, floor, records })
    }
}

const VERSION: u8 = 1;
const OF_CLIENT: u8 = 0;
const OF_SERVER: u8 = 1;
const CLEAR: u8 = 2;
const ID_BYTES: usize = 32;
/// More than the bytes of a message without its entries, submissions, records and sources.
pub(super) const HEAD_BYTES: usize = 128;
/// The bytes of a source in [`Part::sources`].
pub(super) const SOURCE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use encke_core::Entropy;
    use proptest::prelude::*;

    use super::*;
    use crate::envelope::tests::frame_of;

    fn submission(content: Content) -> Arc<Submission> {
        Arc::new(Submission { channel: "/a/b".into(), content })
    }

    fn publications(side: Side, except: Option<Id>) -> Arc<Submission> {
        let frames = [frame_of("1"), frame_of("{\"data\":\"\u{e4}\"}")].concat();
        submission(Content::Publications { side, except, messages: 2, frames: frames.into() })
    }

    fn messages() -> Vec<Message> {
        let entry = |sequence, submission| Entry { source: NodeId(7), sequence, first: 5, wall_ms: 6, submission };
        let of_client =
            publications(Side::Client, Some(Id::new(1, &mut (Box::new(|bytes: &mut [u8]| bytes.fill(7)) as Entropy))));
        let entries = vec![entry(1, of_client.clone()), entry(2, submission(Content::Clear))];
        let cursor = Cursor { owner: 1, slot: 2, offset: 3 };
        let part = Part {
            at: Some(cursor),
            next: None,
            committed: 9,
            sources: vec![(NodeId(1), 2)],
            floor: 3,
            records: vec![Bytes::from_static(b"one"), Bytes::from_static(b"")],
        };
        let bodies = [
            Body::Log { first: 3, entries, committed: 2 },
            Body::Ack { staged: 4, committed: 3 },
            Body::Fetch(Wanted::Number(4)),
            Body::Fetch(Wanted::Beginning),
            Body::Fetch(Wanted::Cursor(cursor)),
            Body::Rings(part.clone()),
            Body::Rings(Part { at: None, next: Some(cursor), ..part }),
            Body::Submit { done: 1, first: 2, submissions: vec![of_client, publications(Side::Server, None)] },
            Body::Expect(8),
        ];
        let term = Term { seed: 11, number: 12 };
        bodies.into_iter().map(|body| Message { from: NodeId(9), partition: 63, term, body }).collect()
    }

    #[test]
    fn a_message_reads_back() {
        for message in messages() {
            assert_eq!(Message::read(&message.write(), &Limits::default()), Some(message));
        }
    }

    #[test]
    fn what_would_harm_clients_is_no_message() {
        let with = |channel: &str, frames: &[u8]| {
            let frames = Bytes::copy_from_slice(frames);
            let content = Content::Publications { side: Side::Client, except: None, messages: 1, frames };
            let submissions = vec![Arc::new(Submission { channel: channel.into(), content })];
            let body = Body::Submit { done: 0, first: 1, submissions };
            let message = Message { from: NodeId(1), partition: 0, term: Term { seed: 1, number: 1 }, body };
            Message::read(&message.write(), &Limits::default()).is_some()
        };
        assert!(with("/a", &frame_of("1")));
        for channel in ["/meta/connect", "/service/a", "/a/*", "a", ""] {
            assert!(!with(channel, &frame_of("1")), "{channel}");
        }
        for frames in [&b""[..], b"\x82\x03[1]", &[frame_of("1"), frame_of("2")].concat(), b"\x81\x01x"] {
            assert!(!with("/a", frames), "{frames:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_end_in_a_panic(which in 0_usize..9, position in 0_usize..300, byte in any::<u8>(), cut in 0_usize..300) {
            let mut bytes = messages()[which].write();
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            if let Some(at) = bytes.get_mut(position) {
                *at = byte;
            }
            _ = Message::read(&bytes, &Limits::default());
        }
    }
}
