//! When to sync.

use crate::disk::Disk;
use crate::error::Error;
use crate::journal::{Journal, Position};

/// What must have happened to a record before it counts as kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The system has it. It survives the end of the process, not of the machine; the system decides when it reaches the disk, or the
    /// journal, when half of its memory is full.
    Os,
    /// The system has it, and it is synced within this time. A machine that stops loses at most what came in that time.
    Interval {
        /// The time, in milliseconds.
        ms: u64,
    },
    /// It is on the disk. Slow for one record after the other; fast if many wait for one sync.
    Always,
}

/// Writes and syncs a journal as a [`Policy`] says. It has no clock: each call is told the time, in milliseconds since anything.
#[derive(Debug)]
pub struct Committer {
    policy: Policy,
    /// When the oldest record that is written and not synced was written.
    waits_since_ms: Option<u64>,
    /// When the disk refused.
    failed_at_ms: Option<u64>,
    kept: Position,
}

impl Committer {
    /// Begins with nothing written.
    pub fn new(policy: Policy) -> Committer {
        Committer { policy, waits_since_ms: None, failed_at_ms: None, kept: Position::default() }
    }

    /// Writes what was appended, syncs if it is time, and returns the last record that counts as kept.
    ///
    /// Call it after a group of appends, and when [`Committer::due_ms`] comes. When the disk refuses, the error is returned once; calls in
    /// the [`RETRY_MS`] after that leave the disk alone.
    pub fn commit<D: Disk>(&mut self, journal: &mut Journal<D>, now_ms: u64) -> Result<Position, Error> {
        if let Some(failed) = self.failed_at_ms
            && (failed..failed.saturating_add(RETRY_MS)).contains(&now_ms)
        {
            return Ok(self.kept);
        }
        let done = self.try_commit(journal, now_ms);
        self.failed_at_ms = done.is_err().then_some(now_ms);
        done?;
        Ok(self.kept)
    }

    /// When [`Committer::commit`] should be called though nothing is appended; `None`: never.
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
                // A clock that jumped back begins the time anew.
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
        self.kept = if self.policy == Policy::Always { journal.synced() } else { journal.written() };
        Ok(())
    }
}

/// How long a disk that refused is left alone, in milliseconds.
pub const RETRY_MS: u64 = 1000;
