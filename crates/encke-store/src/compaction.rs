//! Compaction keeps the log short: it writes the current state of every ring again; then older segments are removed.
//!
//! ```text
//!   segments  │ 7 │ 8 │ 9 … states of all rings, and bursts between them │
//!               ▲       ▲ start                                          ▲ end
//!               └ removed when everything up to `end` is on disk
//! ```
//!
//! It runs in small steps between the commits. Messages that are published meanwhile are appended behind `start` as
//! usual. So from `start` on the log has each ring as it was at some moment of the compaction, and every burst since.
//! Each step is [`STEP_RATIO`] times as long as these messages, so a compaction ends however fast they come.
//!
//! The longest log, with rings of R bytes and up to G bytes of messages for each commit: it is too long above 16/7 R, or
//! two segments if that is more, and one group made it so; the compaction has up to 8/7 R, because a ring may grow
//! while it is written; messages meanwhile have an eighth of that, and one group. Together that is 25/7 R + 2 G. A kill
//! during a compaction adds as much as it had written.

use journal::{Disk, Error, Position};

use super::HistoryStore;
use encke_core::history::Histories;
use encke_core::history::log_record::{self, PART_BYTES, Record};

/// The progress of a compaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compaction {
    /// No compaction is running.
    Idle,
    /// The rings before the cursor are written.
    Going {
        /// Its first record.
        start: Position,
        /// The position of its next step.
        cursor: Cursor,
        /// The number of bytes written so far.
        bytes: u64,
        /// The number of bytes that it has to write because messages came meanwhile.
        due: u64,
    },
}

/// A position among the rings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    owner: usize,
    position: usize,
    /// The offset of the next message of that ring; 0 for the first.
    number: u64,
}

impl<D: Disk> HistoryStore<D> {
    /// True if a step is due now.
    pub(super) fn has_to_go_on(&self) -> bool {
        !self.is_failing && (matches!(self.compaction, Compaction::Going { .. }) || self.has_missed)
    }

    /// Does a step of a compaction. Starts one if needed.
    pub(super) fn go_on(&mut self, histories: &Histories) {
        if let Compaction::Idle = self.compaction {
            if !self.has_missed && !self.is_too_long(histories) {
                return;
            }
            self.has_missed = false;
            // It begins a segment, so that all before it can be removed. The floor comes first, so that the log retains one
            // that only removed rings account for.
            let floor = Record::Floor(histories.floor()).encode();
            match self.journal.end_segment().and_then(|()| self.journal.append(&floor)) {
                Ok(start) => self.compaction = Compaction::Going { start, cursor: Cursor::default(), bytes: 0, due: 0 },
                Err(error) => return self.refused(&error),
            }
        }
        let Compaction::Going { start, mut cursor, mut bytes, due } = self.compaction else { return };
        match self.steps(histories, &mut cursor, &mut bytes, due) {
            Ok(false) => self.compaction = Compaction::Going { start, cursor, bytes, due },
            Ok(true) => self.end(start, bytes),
            Err(error) => {
                self.compaction = Compaction::Idle;
                self.has_missed = self.refused_at.is_some();
                self.refused(&error);
            }
        }
    }

    /// A message of so many bytes has come while a compaction runs.
    pub(super) fn note_message(&mut self, message_bytes: usize) {
        if let Compaction::Going { due, .. } = &mut self.compaction {
            *due += STEP_RATIO * message_bytes as u64;
        }
    }

    /// Does steps until all that is due is written, and one at least. True if the compaction is complete.
    fn steps(&mut self, histories: &Histories, cursor: &mut Cursor, bytes: &mut u64, due: u64) -> Result<bool, Error> {
        loop {
            if self.step(histories, cursor, bytes)? {
                return Ok(true);
            }
            if *bytes >= due {
                return Ok(false);
            }
            // Room for the next step.
            self.journal.write()?;
        }
    }

    /// True if the log has more than twice the bytes of the rings, and more than twice the bytes of the last
    /// compaction. A log of up to two segments is never too long.
    fn is_too_long(&self, histories: &Histories) -> bool {
        let bytes = self.figures.bytes;
        bytes > 2 * self.terms.segment_bytes
            && bytes > 2 * self.compaction_bytes
            && bytes > 2 * histories.bytes() as u64
    }

    /// Appends states of rings. True if there are no more.
    fn step(&mut self, histories: &Histories, cursor: &mut Cursor, bytes: &mut u64) -> Result<bool, Error> {
        let mut left = self.terms.step_bytes;
        while cursor.owner < histories.owners() {
            let part_bytes_max = left.min(PART_BYTES_MAX);
            let Cursor { owner, position, number } = *cursor;
            let part = histories.visit_from(owner, position, |found, ring| {
                // If the ring at the cursor has been removed, starts with the next one.
                let number = if found == position { number } else { 0 };
                let (part, next) = log_record::state_from(ring, number, part_bytes_max, self.terms.record_bytes);
                (part, found, next)
            });
            let Some((part, found, next)) = part else {
                *cursor = Cursor { owner: owner + 1, ..Cursor::default() };
                continue;
            };
            self.journal.append(&part)?;
            *bytes += part.len() as u64;
            *cursor = match next {
                Some(number) => Cursor { owner, position: found, number },
                None => Cursor { owner, position: found + 1, number: 0 },
            };
            left = left.saturating_sub(part.len() + PART_BYTES);
            if left == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends a compaction after all rings are written: syncs the log, then removes older segments.
    fn end(&mut self, start: Position, bytes: u64) {
        self.compaction = Compaction::Idle;
        let ended = self.journal.sync().and_then(|_| self.journal.remove_before(start));
        match ended {
            Ok(removed) => {
                tracing::debug!(bytes, removed, "all histories were rewritten");
                self.figures.compactions += 1;
                self.compaction_bytes = bytes;
                self.refused_at = self.refused_at.filter(|refused| *refused >= start);
            }
            Err(error) => {
                self.has_missed = self.refused_at.is_some();
                self.refused(&error);
            }
        }
    }
}

/// The bytes that a compaction writes for each byte of messages that come meanwhile.
const STEP_RATIO: u64 = 8;

/// The maximum size of one record of a compaction in bytes, unless it is a single message. The lock of the rings is
/// held while one record is copied.
const PART_BYTES_MAX: usize = 64 << 10;
