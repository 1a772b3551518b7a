//! A session of this node, as far as its record is concerned.

use std::hash::BuildHasher;

use bytes::Bytes;
use encke_core::{Id, NodeTag, SessionOwner};
use foldhash::fast::FixedState;

use super::Decode;
use super::lines::Line;
use super::marks::Past;
use super::record::{Content, Key, Record};
use crate::command::Expected;

/// A command about a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyCommand {
    Read(Key),
    Write(Key, Record, Expected),
}

/// Something that the owner has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Another node has the session, or it has ended there: the copy here ends.
    Lost(Id, Option<NodeTag>),
    /// The record has this state. The session has come back with its node, and has to be reported again.
    Past(Id, Bytes),
    /// The state has to be reported again: the engine has lost the record.
    Report(Id),
    /// The session has ended with this revision of its record: this node, which has it, too, has to learn of that.
    Tell(NodeTag, u64),
}

/// A session of this node.
pub(super) struct Own {
    pub(super) id: Id,
    /// Its user or address, as far as it is known.
    pub(super) owner: SessionOwner,
    /// The revision of its record. 0: none is known.
    pub(super) revision: u64,
    /// A revision that another node has reported. A record that is read has this one or a later one; else it is old.
    pub(super) later_revision: u64,
    pub(super) past: Past,
    /// True if it has come back with its node: its record tells its past.
    pub(super) is_loaded: bool,
    /// The node that has given it, until this one has written its record.
    pub(super) given_by: Option<NodeTag>,
    /// The hash of the state in the record.
    pub(super) written: u64,
    /// The state that has to be written.
    pub(super) pending: Option<Content>,
    /// The mark in its record, if this node has taken it from there.
    pub(super) mark: Option<Bytes>,
    pub(super) phase: Phase,
    /// The line in which it waits for a write, if it does.
    pub(super) line: Option<Line>,
    pub(super) is_ended: bool,
    /// True if its client relies on something that its record does not have yet: subscriptions that have changed, or its end.
    pub(super) is_binding: bool,
    /// The node that has it, too, and has to learn of the end.
    pub(super) also_on: Option<NodeTag>,
    /// True if its record has a mark, or is empty: that holds until a write of another one begins.
    pub(super) has_mark: bool,
    /// True if a write has failed that may have been done.
    pub(super) is_unsure: bool,
    /// Reads in a row whose revision was too low.
    pub(super) old_reads: u8,
}

/// The state of a session's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is to be done.
    Rests,
    /// It waits among the writes, the looks or the later ones.
    Waits,
    /// A write is on its way, of the state with this hash.
    Writes(u64),
    /// A read is on its way.
    Looks,
}

impl Own {
    /// A session whose record has this revision, 0 if it has none, and this mark.
    pub(super) fn of(id: Id, revision: u64, mark: Option<Bytes>) -> Own {
        Own {
            id,
            owner: SessionOwner::default(),
            revision,
            past: Past::default(),
            is_loaded: false,
            given_by: None,
            has_mark: mark.is_some(),
            mark,
            later_revision: 0,
            written: 0,
            pending: None,
            phase: Phase::Rests,
            line: None,
            is_ended: false,
            is_binding: false,
            also_on: None,
            is_unsure: false,
            old_reads: 0,
        }
    }

    /// True if it waits in this line.
    pub(super) fn waits_in(&self, line: Line) -> bool {
        self.phase == Phase::Waits && self.line == Some(line)
    }

    /// The writes as which its write counts in a line. 0 if it does not wait there.
    pub(super) fn weight_in(&self, line: Line) -> u64 {
        match line {
            _ if !self.waits_in(line) => 0,
            Line::End | Line::Mark => 1,
            Line::Change => self.pending.as_ref().map_or(0, weight_of_content) as u64,
        }
    }

    /// True if another node has taken the session from this one, by this record. It is no old one then, whatever its revision: if the engine
    /// has lost its keys, revisions have begun again.
    pub(super) fn is_taken(&self, record: &Bytes, decode: Decode) -> bool {
        let Some(Record::Live { content, .. }) = Record::read(record) else { return false };
        decode(&content.state).is_some_and(|(_, past)| past.take_overs > self.past.take_overs)
    }

    /// The record of this node has this revision and this content. `loaded`: reads the past of a session that has come back with its node,
    /// which has to go on with it.
    pub(super) fn is_recorded(&mut self, revision: u64, content: Content, loaded: Option<Decode>) -> Option<Outcome> {
        (self.revision, self.written, self.has_mark) = (revision, hash_of(&content), content.has_mark());
        self.pending.take_if(|pending| *pending == content);
        if let Some(decode) = loaded.filter(|_| !self.is_ended) {
            self.past = decode(&content.state).map(|(_, past)| past).unwrap_or_default();
            self.pending = None;
            return Some(Outcome::Past(self.id, content.state));
        }
        self.is_binding &= self.is_ended || self.pending.is_some();
        None
    }
}

impl Content {
    /// True if the mark of the node need not wait for it: it has one, or nobody goes on from it.
    pub(super) fn has_mark(&self) -> bool {
        self.mark.is_some() || self.state.is_empty()
    }

    /// The content that is written in a line. A heavy one with a first mark would hold the mark of the node back: it is empty until the turn of
    /// its owner among the changes, so that nobody goes on with the session.
    pub(super) fn in_line(self, line: Line) -> Content {
        let is_heavy = line == Line::Mark && weight_of_content(&self) > 1;
        if is_heavy { Content::empty() } else { self }
    }
}

/// The hash of a state, which is not 0.
pub(super) fn hash_of(state: &Content) -> u64 {
    FixedState::default().hash_one(state).max(1)
}

/// The writes as which one of this record counts.
pub(super) fn weight_of(record: &Record) -> usize {
    match record {
        Record::Ended => 1,
        Record::Live { content, .. } => weight_of_content(content),
    }
}

fn weight_of_content(content: &Content) -> usize {
    1 + content.record_bytes() / BYTES_OF_A_WRITE
}

/// The bytes of a record that count as a further write.
const BYTES_OF_A_WRITE: usize = 4 * 1_024;
