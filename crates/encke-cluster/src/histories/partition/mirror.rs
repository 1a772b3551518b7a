//! A node that follows the log of another one. It reads the rings first if it has none, or has missed too much.

use super::log::Log;
use crate::histories::context::Context;
use crate::histories::entry::{Entry, NodeId, Term};
use crate::histories::message::{Body, Part, Wanted};
use crate::histories::rings::Cursor;

/// The work of a node that is not the owner, in one term.
pub(crate) struct Mirror {
    partition: u16,
    term: Term,
    owner: NodeId,
    /// The number up to which the owner has committed.
    committed: u64,
    /// True if the owner has sent something since the last acknowledgement.
    must_acknowledge: bool,
    reading: Reading,
    /// The time of the next request, in milliseconds, if one is needed.
    fetch_ms: u64,
    /// True if the log has a gap behind its end, or may have one.
    has_gap: bool,
}

/// The state of the rings of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// They are as the log says.
    Complete,
    /// They are read from the beginning.
    First,
    /// They are read from here on.
    Next(Cursor),
}

/// The outcome of a part of the rings.
pub(crate) enum Read {
    /// It is none that was asked for.
    Other,
    /// The log begins again at the number of the part.
    Begins,
    /// The rings go on.
    Continues,
}

impl Mirror {
    /// A node that follows the owner of this term. `is_complete`: its rings are as its log says.
    pub(crate) fn new(partition: u16, term: Term, owner: NodeId, is_complete: bool) -> Mirror {
        let reading = if is_complete { Reading::Complete } else { Reading::First };
        // It asks at once, so the owner knows of it.
        Mirror { partition, term, owner, committed: 0, must_acknowledge: false, reading, fetch_ms: 0, has_gap: true }
    }

    pub(crate) fn term(&self) -> Term {
        self.term
    }

    pub(crate) fn owner(&self) -> NodeId {
        self.owner
    }

    /// True if the rings are as the log says.
    pub(crate) fn is_complete(&self) -> bool {
        self.reading == Reading::Complete
    }

    /// True if the log has all that the owner has sent.
    pub(crate) fn is_level(&self) -> bool {
        self.is_complete() && !self.has_gap
    }

    /// The number up to which the log may be committed.
    pub(crate) fn committable(&self) -> u64 {
        if self.is_complete() { self.committed } else { 0 }
    }

    /// The owner has sent entries.
    pub(crate) fn received(&mut self, log: &mut Log, first: u64, entries: Vec<Entry>, committed: u64) {
        if self.reading == Reading::First {
            return;
        }
        self.must_acknowledge = true;
        self.committed = self.committed.max(committed);
        let end = first + entries.len() as u64;
        let before = log.last();
        for (number, entry) in (first..).zip(entries) {
            if number == log.last() + 1 && log.staged_bytes() < STAGED_BYTES_MAX {
                log.stage(entry);
            }
        }
        self.has_gap = log.last() + 1 < end;
        if self.has_gap && log.last() > before {
            // It goes on at once.
            self.fetch_ms = 0;
        }
    }

    /// The owner has sent a part of the rings, which the caller adds to those of this node.
    pub(crate) fn read(&mut self, log: &Log, part: &Part) -> Read {
        let read = match (self.reading, part.at) {
            (Reading::First, None) => Read::Begins,
            // The owner does not have the entries any more that this node has asked for. An old answer must not take from this node what
            // it has acknowledged.
            (Reading::Complete, None) if part.committed > log.last() => Read::Begins,
            (Reading::Next(cursor), Some(at)) if cursor == at => Read::Continues,
            _ => return Read::Other,
        };
        if matches!(read, Read::Begins) {
            self.committed = self.committed.max(part.committed);
        }
        self.fetch_ms = 0;
        self.reading = part.next.map_or(Reading::Complete, Reading::Next);
        self.has_gap = true;
        read
    }

    /// Acknowledges, and asks for what is missing. `is_in_sync`: the claim has this node.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, log: &Log, is_in_sync: bool) {
        let from = match self.reading {
            Reading::First => Wanted::Beginning,
            Reading::Next(cursor) => Wanted::Cursor(cursor),
            Reading::Complete => Wanted::Number(log.last() + 1),
        };
        // One that is not in sync shows that it is there.
        let is_needed = self.has_gap || !self.is_complete() || !is_in_sync;
        let has_room = log.staged_bytes() < STAGED_BYTES_MAX;
        if is_needed && has_room && cx.now.ms >= self.fetch_ms && cx.wire.is_connected {
            self.fetch_ms = cx.now.ms + FETCH_MS;
            cx.wire.send(self.owner, self.partition, self.term, Body::Fetch(from));
        }
        if std::mem::take(&mut self.must_acknowledge) && self.is_complete() {
            let (staged, committed) = (log.last(), log.committed());
            cx.wire.send(self.owner, self.partition, self.term, Body::Ack { staged, committed });
        }
    }
}

/// The time before a request is sent again, in milliseconds.
const FETCH_MS: u64 = 300;
/// Bytes of entries that are not committed, or for which there is no room; above it a node takes no further ones, and is in sync no more.
const STAGED_BYTES_MAX: usize = 16 * 1024 * 1024;
