//! The commit policy: the time of each sync.

use crate::disk::Disk;
use crate::error::Error;
use crate::journal::{Journal, Position};

/// The condition under which a record counts as persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The system has the record. It survives the end of the process, not of the machine. It reaches the disk when
    /// the system decides, or when half of the journal's memory is full.
    Os,
    /// The system has the record, and it is synced within this time. A machine that stops loses at most the records
    /// of that time.
    Interval {
        /// The time, in milliseconds.
        ms: u64,
    },
    /// The record is on the disk. Slow for single records in turn; fast if many wait for one sync.
    Always,
}

/// Writes and syncs a journal according to a [`Policy`]. It has no clock: each call gets the time, in milliseconds
/// since any fixed moment.
#[derive(Debug)]
pub struct Committer {
    policy: Policy,
    /// The time at which the oldest unsynced record was written.
    waits_since_ms: Option<u64>,
    /// The time at which the disk last failed.
    failed_at_ms: Option<u64>,
    /// The last record that counts as persisted.
    persisted: Position,
}

impl Committer {
    /// Creates a committer with nothing written.
    pub fn new(policy: Policy) -> Committer {
        Committer { policy, waits_since_ms: None, failed_at_ms: None, persisted: Position::default() }
    }

    /// Writes the appended records, syncs if it is due, and returns the last record that counts as persisted.
    ///
    /// Call it after a group of appends, and at [`Committer::due_ms`]. When the disk fails, the error is returned
    /// once; calls in the [`RETRY_MS`] after that do not touch the disk.
    pub fn commit<D: Disk>(&mut self, journal: &mut Journal<D>, now_ms: u64) -> Result<Position, Error> {
        if let Some(failed) = self.failed_at_ms
            && (failed..failed.saturating_add(RETRY_MS)).contains(&now_ms)
        {
            return Ok(self.persisted);
        }
        let done = self.try_commit(journal, now_ms);
        self.failed_at_ms = done.is_err().then_some(now_ms);
        done?;
        Ok(self.persisted)
    }

    /// The time at which [`Committer::commit`] should be called even if nothing is appended; `None`: never.
    pub fn due_ms(&self) -> Option<u64> {
        match (self.failed_at_ms, self.policy) {
            (Some(failed), _) => Some(failed.saturating_add(RETRY_MS)),
            (None, Policy::Interval { ms }) => Some(self.waits_since_ms?.saturating_add(ms)),
            (None, Policy::Os | Policy::Always) => None,
        }
    }

    fn try_commit<D: Disk>(&mut self, journal: &mut Journal<D>, now_ms: u64) -> Result<(), Error> {
        journal.write()?;
        let due = match self.policy {
            Policy::Os => false,
            Policy::Always => true,
            Policy::Interval { ms } => {
                // A clock that jumped back restarts the wait.
                let since = self.waits_since_ms.map_or(now_ms, |since| since.min(now_ms));
                self.waits_since_ms = Some(since);
                now_ms - since >= ms
            }
        };
        if due {
            journal.sync()?;
        }
        if journal.synced() == journal.appended() {
            self.waits_since_ms = None;
        }
        self.persisted = if self.policy == Policy::Always { journal.synced() } else { journal.written() };
        Ok(())
    }
}

/// The time for which a failed disk is not used, in milliseconds.
pub const RETRY_MS: u64 = 1000;
