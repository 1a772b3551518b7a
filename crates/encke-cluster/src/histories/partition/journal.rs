//! The journal of a partition: its log as the engine keeps it on disk, for the time when no node in sync is left.
//!
//! The owner adds the entries to it, and commits none that it does not have. A claim that lists [`NodeId::JOURNAL`] among the nodes in sync
//! says that the journal has all that is committed. Then another node may go on from there.
//!
//! A value goes behind the one that the owner knows as the last, if that is not of a later owner. So an owner that others took for gone adds
//! nothing behind theirs. What it has added before was not committed, and the next owner writes its own entries with the same numbers behind
//! it: the later ones hold.
//!
//! The engine may lose the last values, if its machine loses power. Nobody can know that, so offsets leap when the journal was read: those of lost
//! messages are not given again.
//!
//! ```text
//!   value: floor 8 · count of sources 2 · source 8 and sequence 8, for each · message with the entries
//! ```

use std::collections::VecDeque;

use bayeux::Limits;
use encke_core::history::first_offset;

use super::log::Log;
use crate::command::{JournalValue, KeyAnswer, KeyFailure, KeyReply};
use crate::histories::claim::Claim;
use crate::histories::context::Context;
use crate::histories::entry::{Entry, NodeId, Term};
use crate::histories::message::{Body, Message, SOURCE_BYTES};

/// The journal, as the owner of a term knows it.
pub(crate) struct Journal {
    partition: u16,
    term: Term,
    /// The number up to which it has the log for certain.
    stored: u64,
    state: State,
    /// The command that has no answer yet.
    sent: Option<Sent>,
    /// A command is sent from then on, in milliseconds.
    due_ms: u64,
}

enum State {
    /// All values are read, because this node does not have what is committed.
    Reading(Reading),
    /// The revision of the last value is not known.
    Unknown,
    /// The revision of the last value. This owner has added one if `is_open`.
    Known { last: u64, is_open: bool },
}

#[derive(Default)]
struct Reading {
    values: VecDeque<Value>,
    /// The revision of the last value that was read.
    last: u64,
    /// True if there was a value of this log.
    has_any: bool,
    /// True if a later owner has added values.
    is_overtaken: bool,
    /// An offset above all that were given in this lineage, those of values that the engine may have lost among them.
    leap: u64,
    /// The time since when the journal has not what it should have, in milliseconds.
    lost_ms: Option<u64>,
    end: End,
}

/// The end of the journal, as far as it is known.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum End {
    #[default]
    Unknown,
    /// All values were read, but others may come.
    Seen,
    /// A value of this owner, at this revision.
    Written(u64),
    /// The engine has lost the journal, or a part of it.
    Lost,
}

#[derive(Clone, Copy)]
struct Sent {
    number: u64,
    /// The number of the last entry that is added. None: values are read.
    until: Option<u64>,
}

/// A value of the journal: entries of the log.
pub(crate) struct Value {
    /// The time for which the engine has had it, in milliseconds.
    pub(crate) age_ms: u64,
    /// An offset above those of all rings.
    pub(crate) floor: u64,
    /// In the first value of an owner, which has no entries: the last committed sequence of each source.
    pub(crate) sources: Vec<(NodeId, u64)>,
    /// The number of the first entry.
    pub(crate) first: u64,
    pub(crate) entries: Vec<Entry>,
    /// The number up to which its owner had committed.
    pub(crate) committed: u64,
}

/// The next thing to do with the values.
pub(crate) enum Next {
    /// Add the entries of this value to the log.
    Value(Value),
    /// All entries of the log are committed, and there are no others. Further messages get this offset or a higher one.
    End(u64),
    /// Wait.
    Nothing,
}

impl Journal {
    /// The journal of a new term. `is_read`: the log is what the journal has.
    pub(crate) fn new(partition: u16, claim: &Claim, log: &Log, is_read: bool) -> Journal {
        let leap = after(claim.lineage.first, 2 * APART_MS);
        let reading = Reading { leap, ..Reading::default() };
        let state = if is_read { State::Reading(reading) } else { State::Unknown };
        Journal { partition, term: claim.term(), stored: log.committed(), state, sent: None, due_ms: 0 }
    }

    /// The number up to which it has the log for certain.
    pub(crate) fn stored(&self) -> u64 {
        self.stored
    }

    /// True if it is read.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.state, State::Reading(_))
    }

    /// True if the journal does not have what the claim says.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(&self.state, State::Reading(reading) if reading.end == End::Lost)
    }

    /// True if it has a value of this owner: whoever reads it knows where the log goes on.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Known { is_open: true, .. })
    }

    /// True if there is nothing to be added.
    pub(crate) fn rests(&self, log: &Log) -> bool {
        self.is_open() && self.sent.is_none() && self.stored >= log.last()
    }

    /// The next step of reading.
    pub(crate) fn next(&mut self, log: &Log) -> Next {
        let State::Reading(reading) = &mut self.state else { return Next::Nothing };
        if let Some(value) = reading.values.pop_front() {
            return Next::Value(value);
        }
        let (End::Written(last), leap) = (reading.end, reading.leap) else { return Next::Nothing };
        self.stored = log.last();
        self.state = State::Known { last, is_open: true };
        Next::End(leap)
    }

    /// Sends the next command, if it is time. `is_certain`: no other node can own the partition, as far as this one knows.
    pub(crate) fn turn(&mut self, cx: &mut Context<'_>, log: &Log, is_certain: bool) {
        if self.sent.is_some() || cx.now.ms < self.due_ms || !cx.wire.is_connected {
            return;
        }
        match &self.state {
            State::Reading(reading) if !reading.values.is_empty() => {}
            State::Reading(Reading { end: End::Unknown, last, .. }) => self.read(cx, last + 1),
            // The engine may have lost what a later owner has added.
            State::Reading(Reading { end: End::Seen, .. }) | State::Known { is_open: false, .. } if !is_certain => {}
            State::Reading(Reading { end: End::Seen, last, .. }) => {
                let last = *last;
                self.stored = log.last();
                self.leap(first_offset(cx.now.wall_ms + APART_MS));
                self.append(cx, log, last);
            }
            State::Reading(_) => {}
            State::Unknown => self.read(cx, u64::MAX),
            State::Known { last, is_open } => {
                let (last, is_open) = (*last, *is_open);
                if !is_open {
                    // It may have lost what it had.
                    self.stored = log.committed();
                }
                if is_open && log.from(self.stored + 1).is_none() {
                    // The engine has lost what this node has not any more: whoever reads it begins behind that.
                    self.stored = log.committed();
                }
                if !is_open || log.last() > self.stored {
                    self.append(cx, log, last);
                }
            }
        }
    }

    /// Further messages get this offset or a higher one, when the journal is read.
    fn leap(&mut self, next: u64) {
        if let State::Reading(reading) = &mut self.state {
            reading.leap = reading.leap.max(next);
        }
    }

    fn read(&mut self, cx: &mut Context<'_>, from: u64) {
        let number = cx.wire.read_journal(self.partition, from);
        self.sent = Some(Sent { number, until: None });
    }

    /// Adds a value behind this one: the sources at first, and then the entries that the journal does not have.
    fn append(&mut self, cx: &mut Context<'_>, log: &Log, after: u64) {
        let is_open = self.is_open();
        let sources = if is_open { Vec::new() } else { log.sources() };
        let (room, mut bytes) = (cx.wire.room(), 0);
        let fits = |entry: &&Entry| {
            bytes += entry.submission.bytes();
            is_open && (bytes <= room || bytes == entry.submission.bytes())
        };
        let first = self.stored + 1;
        let entries: Vec<Entry> = log.from(first).into_iter().flatten().take_while(fits).cloned().collect();
        let until = Some(self.stored + entries.len() as u64);
        let body = Body::Log { first, entries, committed: log.committed() };
        let message = Message { from: cx.own(), partition: self.partition, term: self.term, body };
        let leap = if let State::Reading(reading) = &self.state { reading.leap } else { 0 };
        // Whoever reads the first value of an owner knows its clock.
        let first = if is_open { 0 } else { first_offset(cx.now.wall_ms) };
        let floor = cx.rings.floor(self.partition.into()).max(leap).max(first);
        let value = [head(floor, &sources), message.write()].concat();
        let number = cx.wire.append(self.partition, value.into(), after);
        self.sent = Some(Sent { number, until });
    }

    /// The journal does not continue what this node has.
    pub(crate) fn lose(&mut self) {
        if let State::Reading(reading) = &mut self.state {
            (reading.end, reading.values) = (End::Lost, VecDeque::new());
        }
    }

    /// A command has its result. Returns the number of values that are none.
    pub(crate) fn answered(&mut self, now_ms: u64, number: u64, answer: &KeyReply, names: &Limits) -> u64 {
        let Some(Sent { until, .. }) = self.sent.take_if(|sent| sent.number == number) else { return 0 };
        let mut rejected = 0;
        match (answer, until, &mut self.state) {
            (Ok(KeyAnswer::Written(revision)), Some(_), State::Reading(reading)) => {
                reading.end = End::Written(*revision);
            }
            (Ok(KeyAnswer::Written(revision)), Some(until), state) => {
                self.stored = until;
                *state = State::Known { last: *revision, is_open: true };
            }
            (Ok(KeyAnswer::Values { values, last }), None, State::Reading(reading)) => {
                rejected = reading.take(values, (self.partition, self.term), names);
                reading.ends(now_ms, last.as_ref().map_or(0, |(revision, _)| *revision));
                if reading.lost_ms.is_some() || reading.is_overtaken {
                    self.due_ms = now_ms + RETRY_MS;
                }
            }
            (Ok(KeyAnswer::Values { last, .. }), None, state) => {
                let message = last.as_ref().and_then(|(_, value)| message_of(value, names));
                if message.as_ref().is_some_and(|message| message.term.is_later_than(self.term)) {
                    // The claim of its owner comes.
                    self.due_ms = now_ms + RETRY_MS;
                } else {
                    // It has the values of this owner in their order, whatever became of the answers.
                    let until =
                        message.filter(|message| message.term == self.term).and_then(|message| until_of(&message));
                    self.stored = until.unwrap_or(self.stored);
                    let last = last.as_ref().map_or(0, |(last, _)| *last);
                    *state = State::Known { last, is_open: until.is_some() };
                }
            }
            (failed, _, state) => {
                // It may have been added, or another owner has added something.
                match state {
                    State::Reading(reading) => reading.end = End::Unknown,
                    state => *state = State::Unknown,
                }
                let is_conflict = matches!(failed, Err(KeyFailure::Conflict));
                self.due_ms = now_ms + if is_conflict { CONFLICT_MS } else { RETRY_MS };
            }
        }
        rejected
    }
}

impl Reading {
    /// Takes values. Returns the number of those that are none.
    fn take(&mut self, values: &[JournalValue], of: (u16, Term), names: &Limits) -> u64 {
        let mut rejected = 0;
        for JournalValue { revision, age_ms, value } in values {
            self.last = *revision;
            self.is_overtaken |= message_of(value, names).is_some_and(|message| message.term.is_later_than(of.1));
            match Value::read(value, of, names) {
                Some(Some(value)) => {
                    let value = Value { age_ms: *age_ms, ..value };
                    (self.has_any, self.leap) = (true, self.leap.max(value.leap()));
                    self.values.push_back(value);
                }
                Some(None) => {}
                None => rejected += 1,
            }
        }
        rejected
    }

    /// The journal has this last value.
    fn ends(&mut self, now_ms: u64, last: u64) {
        let is_lost = last < self.last || (last == self.last && !self.has_any);
        if !is_lost {
            self.lost_ms = None;
            self.end = if last == self.last && !self.is_overtaken { End::Seen } else { End::Unknown };
        } else if now_ms >= *self.lost_ms.get_or_insert(now_ms) + LOST_MS {
            self.end = End::Lost;
        }
    }
}

impl Value {
    /// An offset above all that were given up to now, if this was the last value before others that are lost.
    fn leap(&self) -> u64 {
        let above = |entry: &Entry| first_offset(entry.wall_ms).max(entry.first + entry.submission.messages());
        let known = self.entries.iter().map(above).max().unwrap_or(0).max(self.floor);
        after(known, self.age_ms + 2 * APART_MS)
    }

    /// Reads a value; `Some(None)` if it is one of another log of this partition. None if it is none.
    fn read(value: &[u8], (number, term): (u16, Term), names: &Limits) -> Option<Option<Value>> {
        let (floor, sources, message) = split(value)?;
        let Message { partition, term: of, body, .. } = Message::read(message, names)?;
        let Body::Log { first, entries, committed } = body else { return None };
        let sources = sources
            .iter()
            .map(|[source, sequence]| (NodeId(u64::from_le_bytes(*source)), u64::from_le_bytes(*sequence)));
        let value = Value { age_ms: 0, floor, sources: sources.collect(), first, entries, committed };
        (partition == number && first > 0).then(|| (of.seed == term.seed).then_some(value))
    }
}

/// An offset that is not reached so many milliseconds after this one: offsets grow no faster than the time from which new rings take theirs.
fn after(offset: u64, ms: u64) -> u64 {
    offset.saturating_add(first_offset(ms)).min(first_offset(u64::MAX))
}

/// The message of a value.
fn message_of(value: &[u8], names: &Limits) -> Option<Message> {
    let (_, _, message) = split(value)?;
    Message::read(message, names)
}

/// The number of the last entry that the journal has with a value of this message.
fn until_of(message: &Message) -> Option<u64> {
    let Body::Log { first, entries, .. } = &message.body else { return None };
    (first + entries.len() as u64).checked_sub(1)
}

/// The bytes before the message of a value.
fn head(floor: u64, sources: &[(NodeId, u64)]) -> Vec<u8> {
    let mut head = floor.to_le_bytes().to_vec();
    head.extend_from_slice(&(sources.len() as u16).to_le_bytes());
    for (NodeId(source), sequence) in sources {
        [source, sequence].into_iter().for_each(|number| head.extend_from_slice(&number.to_le_bytes()));
    }
    head
}

/// A source, and a sequence.
type Source = [[u8; 8]; 2];

/// The floor, the sources and the message of a value.
fn split(value: &[u8]) -> Option<(u64, &[Source], &[u8])> {
    let (floor, rest) = value.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let (sources, message) = rest.split_at_checked(usize::from(u16::from_le_bytes(*count)) * SOURCE_BYTES)?;
    let (numbers, _) = sources.as_chunks();
    let (sources, _) = numbers.as_chunks();
    Some((u64::from_le_bytes(*floor), sources, message))
}

/// The most by which the clocks of nodes and of the engine differ, in milliseconds. A leap by the clock of a node is lower than one by what any
/// value tells, so it is not repeated when that node's values are lost, too.
const APART_MS: u64 = 2 * 3_600_000;
/// The time before a failed command is sent again, in milliseconds.
const RETRY_MS: u64 = 300;
/// The same where another value was the last one.
const CONFLICT_MS: u64 = 20;
/// The time after which a journal that does not have what the claim says counts as lost, in milliseconds: a server of the engine may be
/// behind others.
const LOST_MS: u64 = 5_000;
