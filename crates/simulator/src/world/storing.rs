//! The work of the store thread, done step by step.

use std::collections::VecDeque;

use encke_core::history::Room;
use encke_core::{HistoryCommit, Persisted, ShardMessage, Shared};
use encke_store::{HistoryStore, Recovery, StoreOptions};
use simulated_disk::SimDisk;

use crate::checker::Invariant;
use crate::log::Log;
use crate::sabotage::Sabotage;
use crate::world::World;

impl World {
    /// Opens the log and recovers its contents. A disk without faults must not refuse.
    pub(super) fn open_log(&mut self, disk: SimDisk, shared: &mut Shared) {
        let settings = &self.scenario.settings[0];
        let mut recovery = Recovery::new(settings, self.now);
        let terms = StoreOptions {
            record_bytes: RECORD_BYTES,
            memory_bytes: 4 * RECORD_BYTES,
            segment_bytes: self.scenario.segment_bytes,
            step_bytes: STEP_BYTES,
            ..StoreOptions::new(settings)
        };
        match HistoryStore::open(disk.clone(), terms, self.rng.bits(), &mut recovery) {
            Ok((history_store, _)) => {
                recovery.restore(&shared.histories, Room::of(settings, self.scenario.shards));
                shared.is_durable = true;
                let inboxes = (0..self.scenario.shards).map(|_| VecDeque::new()).collect();
                self.log = Some(Log { disk, history_store, inboxes });
            }
            Err(error) => self.checker.fail(Invariant::LogOpens, error.to_string()),
        }
    }

    /// Runs the store: it accepts at most `most` records, commits and answers. False if there was nothing to do.
    pub(super) fn run_store(&mut self, most: usize) -> bool {
        let lies = self.sabotage == Sabotage::FalsePersisted && self.rng.chance(500);
        let Some(log) = &mut self.log else { return false };
        let due = log.history_store.due_ms().is_some_and(|due_ms| due_ms <= self.now.ms);
        if log.is_idle() && !due {
            return false;
        }
        let mut answers = Vec::new();
        for _ in 0..most {
            let busy: Vec<usize> = (0..log.inboxes.len()).filter(|shard| !log.inboxes[*shard].is_empty()).collect();
            if busy.is_empty() {
                break;
            }
            let Some(request) = log.inboxes[self.rng.pick(&busy)].pop_front() else { break };
            if lies {
                answers.extend(request.token.map(|token| (token, true)));
                continue;
            }
            log.history_store.take(request);
        }
        log.history_store.commit(self.now.ms, &self.shared.histories);
        answers.extend(
            log.history_store.answers().into_iter().filter_map(|answer| Some((answer.token?, answer.is_persisted))),
        );
        self.note(|_| format!("the store answers {answers:?}"));
        let outside = self.shards.len();
        // Handles wait for the others.
        for (token, is_persisted) in answers.into_iter().filter(|(token, _)| !token.is_of_handle()) {
            self.checker.tally.pending_replies += u64::from(!is_persisted);
            let stored = vec![Persisted { number: token.number, is_persisted }];
            self.send_to_shard(usize::from(token.shard), outside, ShardMessage::Persisted(stored));
        }
        true
    }

    /// Closes the store cleanly: everything is on the disk, with a mark of the clean end.
    pub(super) fn close_log(&mut self) {
        while self.log.as_ref().is_some_and(|log| !log.is_idle()) {
            self.run_store(usize::MAX);
        }
        if let Some(log) = &mut self.log {
            log.history_store.close(&self.shared.histories);
        }
    }

    /// Makes the disk fail for a while.
    pub(super) fn break_disk(&mut self) {
        let kind = self.rng.below(5);
        let Some(log) = &self.log else { return };
        self.checker.tally.disk_faults += 1;
        log.disk.faults(|faults| match kind {
            0 => faults.failing_syncs = 1,
            1 => faults.failing_writes = 1,
            2 => faults.space_bytes = Some(0),
            3 => faults.read_only = true,
            _ => faults.stutter = true,
        });
    }

    /// Ends the faults of the disk.
    pub(super) fn mend_disk(&mut self) {
        if let Some(log) = &self.log {
            log.disk.faults(|faults| *faults = Default::default());
        }
    }

    /// True if confirmed messages survive the end of the process, or that of the machine.
    pub(super) fn outlives(&self, power_is_lost: bool) -> bool {
        !power_is_lost || self.scenario.settings[0].history_commit == HistoryCommit::Always
    }
}

/// The longest record, in bytes: a batch of the longest publications.
const RECORD_BYTES: usize = 1 << 20;
/// The bytes that a compaction appends between two commits.
const STEP_BYTES: usize = 1 << 12;
