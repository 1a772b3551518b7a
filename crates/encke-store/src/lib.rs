//! The store of histories on disk. It owns the log, appends the records that shards send, reports which ones are
//! persisted, and keeps the log short.
//!
//! ```text
//!   PersistRequest ──▶ take ──▶ journal ── commit ──▶ Answer: persisted, or not
//!                                  ▲          │
//!      histories ── compaction ────┘          └─ old segments are removed when a compaction is on disk
//! ```
//!
//! It has no thread and no clock, and works on any [`Disk`]. Its caller passes new requests to [`HistoryStore::take`],
//! then calls [`HistoryStore::commit`] and fetches [`HistoryStore::answers`]; and again when [`HistoryStore::due_ms`]
//! is reached. In a server the caller is a thread (`net/store_thread.rs`), in the simulator the simulated world.
//!
//! When the disk refuses a write, pending records are answered as not persisted, and the log retries by itself. Refused
//! messages are still in their rings, and the next compaction writes them.

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
    /// Appended records that have no answer yet, oldest first.
    waiting: VecDeque<(Position, Uncommitted)>,
    answers: Vec<Answer>,
    compaction: Compaction,
    /// The size of the last compaction in bytes.
    compaction_bytes: u64,
    /// The last record before a refusal that no compaction has repaired yet.
    refused_at: Option<Position>,
    /// True if a compaction can repair that refusal.
    has_missed: bool,
    /// True if the disk has refused a write, and has not accepted one since.
    is_failing: bool,
    figures: Figures,
}

/// The options of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The policy that decides when a record counts as persisted.
    pub policy: Policy,
    /// The longest record, in bytes; the journal allows 16 MiB at most. A longer message is delivered but not
    /// persisted.
    pub record_bytes: usize,
    /// The limit for records that the disk has not taken yet, in bytes; at least two of the longest.
    pub memory_bytes: usize,
    /// The size at which a segment ends, in bytes.
    pub segment_bytes: u64,
    /// The amount that a compaction appends between two commits, in bytes.
    pub step_bytes: usize,
}

/// The outcome of a persist request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The token of the reply that waits for it.
    pub token: Option<PublishToken>,
    /// The size of its record in bytes.
    pub bytes: usize,
    /// True if it counts as persisted.
    pub is_persisted: bool,
}

/// The counters of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Records persisted.
    pub persisted: u64,
    /// Records not persisted, or not in time.
    pub refused: u64,
    /// Groups of records passed to the disk.
    pub commits: u64,
    /// Refusals by the disk.
    pub failures: u64,
    /// Compactions completed.
    pub compactions: u64,
    /// Size of all segments in bytes.
    pub bytes: u64,
    /// The number of segments.
    pub segments: usize,
    /// Segments whose sync failed, since the start.
    pub given_up: u64,
}

/// The reason why a log cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// An error of the disk, or of its contents.
    #[error(transparent)]
    Journal(#[from] Error),
    /// The log is intact, but another version wrote it.
    #[error("record {at} in {} is of a kind that this version does not know", file.display())]
    Unknown {
        /// The record.
        at: Position,
        /// Its segment.
        file: PathBuf,
    },
}

/// A record that has no answer yet.
#[derive(Clone, Copy, Debug)]
struct Uncommitted {
    token: Option<PublishToken>,
    bytes: usize,
}

impl StoreOptions {
    /// The options for these settings.
    pub fn new(settings: &Settings) -> StoreOptions {
        StoreOptions {
            policy: match settings.history_commit {
                HistoryCommit::Os => Policy::Os,
                HistoryCommit::Interval => Policy::Interval { ms: settings.history_commit_interval_ms },
                // No server starts with a directory and `replicated`.
                HistoryCommit::Always | HistoryCommit::Replicated => Policy::Always,
            },
            record_bytes: RECORD_BYTES_MAX,
            memory_bytes: MEMORY_BYTES_MAX,
            segment_bytes: SEGMENT_BYTES,
            step_bytes: STEP_BYTES,
        }
    }
}

impl<D: Disk> HistoryStore<D> {
    /// Opens the log, or creates one, and passes its records to `recovery`. `salt` is random.
    ///
    /// The first record written marks the start of this process: if the process ends without [`HistoryStore::close`],
    /// the next start detects that. A full disk does not prevent opening: no record counts as persisted until there is
    /// room.
    ///
    /// # Errors
    /// Fails if the disk refuses, if another process holds the log, or if the log is damaged or has unknown records.
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
                // The record is written when there is room. Until then a note replaces it.
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

    /// Takes a request. It is answered when its record is committed, or at once if it is refused.
    pub fn take(&mut self, keep: PersistRequest) {
        let waiting = Uncommitted { token: keep.token, bytes: keep.record.len() };
        // Queued first, so that it is answered even if the log does not survive the append.
        self.waiting.push_back((self.journal.appended().next(), waiting));
        self.note_message(keep.record.len());
        if let Err(error) = self.journal.append(&keep.record) {
            self.waiting.pop_back();
            self.refused(&error);
            self.refused_at = Some(self.journal.appended());
            self.has_missed |= matches!(error, Error::Full { .. });
            self.answer(waiting, false);
        }
    }

    /// Answers a request as not persisted without touching the log.
    pub fn refuse(&mut self, keep: &PersistRequest) {
        self.answer(Uncommitted { token: keep.token, bytes: keep.record.len() }, false);
    }

    /// Answers all pending requests as not persisted without touching the log.
    pub fn give_up(&mut self) {
        while let Some((_, waiting)) = self.waiting.pop_front() {
            self.answer(waiting, false);
        }
    }

    /// Notes that a record was refused before it reached the store, so that a compaction repairs it.
    pub fn missed(&mut self) {
        self.refused_at = Some(self.journal.appended());
        self.has_missed = true;
    }

    /// Writes and syncs the taken records according to the policy. Continues a compaction, and starts one when the log
    /// is too long. `now_ms` is a monotonic time with any origin.
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

    /// Returns the answers since the last call.
    pub fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    /// The time when [`HistoryStore::commit`] should be called even without new requests; 0: at once. None: never.
    pub fn due_ms(&self) -> Option<u64> {
        if self.has_to_go_on() { Some(0) } else { self.committer.due_ms() }
    }

    /// The counters.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// Ends the log cleanly: writes and syncs pending records, and a mark. Without that mark the next start skips
    /// offsets that clients may have seen. Returns true if the mark is written.
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

    /// The last record that counts as persisted.
    fn persisted(&self) -> Position {
        if self.policy == Policy::Always { self.journal.synced() } else { self.journal.written() }
    }

    fn answer(&mut self, Uncommitted { token, bytes }: Uncommitted, is_persisted: bool) {
        let count = if is_persisted { &mut self.figures.persisted } else { &mut self.figures.refused };
        *count += 1;
        self.answers.push(Answer { token, bytes, is_persisted });
    }

    /// Notes that the disk has refused something, or that a record was too long. Logs the first refusal only, until the
    /// disk accepts something again.
    fn refused(&mut self, error: &Error) {
        if matches!(error, Error::TooLong { .. }) {
            return tracing::warn!(%error, "messages are delivered but not stored");
        }
        self.figures.failures += 1;
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(%error, "histories are not stored on disk at the moment; delivery continues");
        }
    }

    fn measure(&mut self) {
        let given_up = self.journal.given_up_segments();
        if given_up > self.figures.given_up {
            tracing::warn!(given_up, "the disk could not sync histories; they were written again: check the disk");
        }
        self.figures.given_up = given_up;
        let segments = self.journal.segments();
        self.figures.segments = segments.len();
        self.figures.bytes = segments.map(|segment| segment.bytes).sum();
    }
}

/// The limit for records that the disk has not taken yet, in bytes. When half of it is used they are synced; the other
/// half has room for a group and the longest record.
const MEMORY_BYTES_MAX: usize = 48 << 20;
/// The size at which a segment ends, in bytes.
const SEGMENT_BYTES: u64 = 64 << 20;
/// The amount that a compaction appends between two commits, in bytes: some milliseconds of disk time.
const STEP_BYTES: usize = 1 << 20;
