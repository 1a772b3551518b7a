//! The keeper: histories on disk. It owns the log, appends what shards hand over, says what counts as kept, and keeps the log short.
//!
//! ```text
//!   Keep ──▶ take ──▶ journal ── commit ──▶ Answer: kept, or not
//!                        ▲          │
//!      histories ─ pass ─┘          └─ old segments go, when a pass is on the disk
//! ```
//!
//! It is plain: no thread, no clock, any [`Disk`]. Who runs it calls [`HistoryStore::take`] for what has come, then [`HistoryStore::commit`], and hands
//! out [`HistoryStore::answers`]; again when [`HistoryStore::due_ms`] comes. In a server that is a thread (`net/keeper.rs`), in the simulator the world.
//!
//! When the disk refuses, what waits is answered as not kept, and the log tries again by itself. What was refused is still in its ring,
//! and the next pass makes up for it.

mod compaction;
mod recover;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::PathBuf;

use journal::{Committer, Disk, Error, Journal, Opened, Options, Policy, Position, RECORD_BYTES_MAX};

use compaction::Compaction;
use encke_core::history::Histories;
use encke_core::history::log_record::Record;
use encke_core::{HistoryCommit, Settings};
use encke_core::{PersistRequest, PublishToken};
pub use recover::{Recovered, Recovery};

/// The log of a server's histories. See the module.
pub struct HistoryStore<D: Disk> {
    journal: Journal<D>,
    committer: Committer,
    policy: Policy,
    terms: StoreOptions,
    /// What was appended and has no answer yet, oldest first.
    waiting: VecDeque<(Position, Waiting)>,
    answers: Vec<Answer>,
    compaction: Compaction,
    /// Bytes of the last pass.
    compaction_bytes: u64,
    /// The last record before something was refused that no pass has made up for.
    refused_at: Option<Position>,
    /// Whether that was something that a pass can make up for.
    has_missed: bool,
    /// The disk has refused, and has not taken anything since.
    is_failing: bool,
    figures: Figures,
}

/// The limits of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// When a record counts as kept.
    pub policy: Policy,
    /// The longest record, in bytes; the journal allows 16 MiB at most. A message that is longer is delivered, and not kept.
    pub record_bytes: usize,
    /// Records that the disk has not taken yet, in bytes; at least two of the longest.
    pub memory_bytes: usize,
    /// When a segment is long enough, in bytes.
    pub segment_bytes: u64,
    /// What a pass appends between two commits, in bytes.
    pub step_bytes: usize,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whose reply waits for it.
    pub token: Option<PublishToken>,
    /// Its bytes.
    pub bytes: usize,
    /// Whether it counts as kept.
    pub is_persisted: bool,
}

/// What a keeper counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Records that were kept.
    pub persisted: u64,
    /// Records that were not, or not in time.
    pub refused: u64,
    /// Groups of records that were handed to the disk.
    pub commits: u64,
    /// Times that the disk refused.
    pub failures: u64,
    /// Passes over all histories that came to an end.
    pub compactions: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Segments.
    pub segments: usize,
    /// Segments whose sync failed, since the start.
    pub given_up: u64,
}

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk, or what is on it.
    #[error(transparent)]
    Journal(#[from] Error),
    /// The log is whole, but another version wrote it.
    #[error("record {at} in {} is of a kind that this version does not know", file.display())]
    Unknown {
        /// The record.
        at: Position,
        /// The segment it stands in.
        file: PathBuf,
    },
}

/// A record that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    token: Option<PublishToken>,
    bytes: usize,
}

impl StoreOptions {
    /// As these settings say.
    pub fn new(settings: &Settings) -> StoreOptions {
        StoreOptions {
            policy: match settings.history_commit {
                HistoryCommit::Os => Policy::Os,
                HistoryCommit::Interval => Policy::Interval { ms: settings.history_commit_interval_ms },
                HistoryCommit::Always => Policy::Always,
            },
            record_bytes: RECORD_BYTES_MAX,
            memory_bytes: MEMORY_BYTES_MAX,
            segment_bytes: SEGMENT_BYTES,
            step_bytes: STEP_BYTES,
        }
    }
}

impl<D: Disk> HistoryStore<D> {
    /// Opens the log, or begins one, and tells `recovery` what stands in it. `salt` is random.
    ///
    /// The first thing written says that this life of the process has begun: if it ends without [`HistoryStore::close`], the next one knows. A
    /// full disk does not keep it from opening: nothing counts as kept until there is room.
    ///
    /// # Errors
    /// When the disk refuses, the log is held by another process or damaged, or has records that are not known.
    pub fn open(
        disk: D,
        terms: StoreOptions,
        salt: u64,
        recovery: &mut Recovery<'_>,
    ) -> Result<(HistoryStore<D>, Opened), StoreError> {
        let StoreOptions { record_bytes, memory_bytes, segment_bytes, .. } = terms;
        let options = Options { record_bytes, memory_bytes, segment_bytes, ..Options::new(salt) };
        let (journal, opened) = Journal::open(disk, options, &mut |at, record| recovery.read(at, record))?;
        if let Some(at) = recovery.unreadable() {
            return Err(StoreError::Unknown { at, file: journal.file_of(at) });
        }
        let mut history_store = HistoryStore {
            journal,
            committer: Committer::new(terms.policy),
            policy: terms.policy,
            terms,
            waiting: VecDeque::new(),
            answers: Vec::new(),
            compaction: Compaction::Idle,
            compaction_bytes: 0,
            refused_at: None,
            has_missed: false,
            is_failing: false,
            figures: Figures::default(),
        };
        opened.notes.iter().for_each(|number| recovery.begun_unwritten(*number));
        history_store.journal.append(&recovery.first_record().encode())?;
        match history_store.journal.sync() {
            Err(error) if error.is_full() => {
                // It is written when there is room, and so is this. Until then a note takes its place.
                let (record, number) = recovery.first_unwritten();
                history_store.journal.append(&record.encode())?;
                history_store.journal.note(number)?;
                history_store.refused(&error);
            }
            synced => {
                synced?;
                opened.notes.iter().try_for_each(|number| history_store.journal.remove_note(*number))?;
            }
        }
        history_store.measure();
        Ok((history_store, opened))
    }

    /// Takes a record. It is answered when it is committed, or at once if it is refused.
    pub fn take(&mut self, keep: PersistRequest) {
        let waiting = Waiting { token: keep.token, bytes: keep.record.len() };
        // First of all: it is answered even if the log does not survive it.
        self.waiting.push_back((self.journal.appended().next(), waiting));
        if let Err(error) = self.journal.append(&keep.record) {
            self.waiting.pop_back();
            self.refused(&error);
            self.refused_at = Some(self.journal.appended());
            self.has_missed |= matches!(error, Error::Full { .. });
            self.answer(waiting, false);
        }
    }

    /// Answers a record as not kept, and leaves the log alone.
    pub fn refuse(&mut self, keep: &PersistRequest) {
        self.answer(Waiting { token: keep.token, bytes: keep.record.len() }, false);
    }

    /// Answers all that waits as not kept, and leaves the log alone.
    pub fn give_up(&mut self) {
        while let Some((_, waiting)) = self.waiting.pop_front() {
            self.answer(waiting, false);
        }
    }

    /// Something was refused before it came here: a pass has to make up for it.
    pub fn missed(&mut self) {
        self.refused_at = Some(self.journal.appended());
        self.has_missed = true;
    }

    /// Writes what was taken, and syncs it, as the policy says; goes on with a pass, and begins one when the log has grown too long.
    /// `now_ms` is the time since anything.
    pub fn commit(&mut self, now_ms: u64, histories: &Histories) {
        if !self.is_failing {
            self.go_on(histories);
        }
        let is_more = self.persisted() < self.journal.appended();
        match self.committer.commit(&mut self.journal, now_ms) {
            Ok(_) if self.is_failing && self.persisted() == self.journal.appended() => {
                tracing::info!("the disk takes histories again");
                self.is_failing = false;
            }
            Ok(_) => {}
            Err(error) => self.refused(&error),
        }
        self.figures.commits += u64::from(is_more);
        let persisted = self.persisted();
        while let Some((_, waiting)) = self.waiting.pop_front_if(|(position, _)| *position <= persisted) {
            self.answer(waiting, true);
        }
        if self.is_failing {
            self.give_up();
        }
        self.measure();
    }

    /// Hands over what has become known since the last call.
    pub fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    /// When [`HistoryStore::commit`] should be called though nothing has come; 0: at once. None: never.
    pub fn due_ms(&self) -> Option<u64> {
        if self.has_to_go_on() { Some(0) } else { self.committer.due_ms() }
    }

    /// What it has counted.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// The process ends as it should: what waits is written and synced, and a mark says so. Without that mark the next life leaves out
    /// numbers that may have been seen. Returns whether it stands there.
    pub fn close(&mut self, histories: &Histories) -> bool {
        let is_marked = self.refused_at.is_none() && self.mark(histories);
        let persisted = self.journal.synced();
        while let Some((position, waiting)) = self.waiting.pop_front() {
            self.answer(waiting, position <= persisted);
        }
        is_marked
    }

    fn mark(&mut self, histories: &Histories) -> bool {
        let mark = Record::Closed(histories.floor()).encode();
        let marked = self.journal.append(&mark).and_then(|_| self.journal.sync());
        marked.inspect_err(|error| self.refused(error)).is_ok()
    }

    /// The last record that counts as kept.
    fn persisted(&self) -> Position {
        if self.policy == Policy::Always { self.journal.synced() } else { self.journal.written() }
    }

    fn answer(&mut self, Waiting { token, bytes }: Waiting, is_persisted: bool) {
        let count = if is_persisted { &mut self.figures.persisted } else { &mut self.figures.refused };
        *count += 1;
        self.answers.push(Answer { token, bytes, is_persisted });
    }

    /// The disk has refused something, or a record was too long. Told once, until the disk takes something again.
    fn refused(&mut self, error: &Error) {
        if matches!(error, Error::TooLong { .. }) {
            return tracing::warn!(%error, "messages are delivered and not kept");
        }
        self.figures.failures += 1;
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(%error, "histories are not kept on disk at the moment; delivery goes on");
        }
    }

    fn measure(&mut self) {
        let given_up = self.journal.given_up_segments();
        if given_up > self.figures.given_up {
            tracing::warn!(
                given_up,
                "the disk could not sync histories; they were written once more: look at the disk"
            );
        }
        self.figures.given_up = given_up;
        let segments = self.journal.segments();
        self.figures.segments = segments.len();
        self.figures.bytes = segments.map(|segment| segment.bytes).sum();
    }
}

/// Records that the disk has not taken yet, in bytes: when half of it is full they are synced, and a group and the longest record fit on top.
const MEMORY_BYTES_MAX: usize = 48 << 20;
/// When a segment is long enough, in bytes.
const SEGMENT_BYTES: u64 = 64 << 20;
/// What a pass appends between two commits, in bytes: some milliseconds of a disk.
const STEP_BYTES: usize = 1 << 20;
