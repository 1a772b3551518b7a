//! Waste: the queues of sessions and sockets that have ended. They are freed in parts, because many long ones may end in
//! one event. Until then their memory counts.

use std::collections::{HashSet, VecDeque};

use super::runs::Runs;
use super::{InFlight, Outbox};
use crate::delivery::outbox::arena::Chunk;

/// Queues that nobody reads any more.
#[derive(Debug, Default)]
pub(crate) struct Waste {
    queues: VecDeque<Runs>,
}

impl Waste {
    /// True if nothing is left to free.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The number of queues that are left to free.
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Takes a queue to free it later. Frees a short one at once. Returns the number of steps.
    pub(crate) fn add(&mut self, mut outbox: Outbox) -> usize {
        self.add_runs(std::mem::take(&mut outbox.runs))
    }

    /// Takes messages that were to come back, as [`Waste::add`] does.
    pub(crate) fn add_taken(&mut self, mut taken: InFlight) -> usize {
        self.add_runs(std::mem::take(&mut taken.runs))
    }

    fn add_runs(&mut self, runs: Runs) -> usize {
        if runs.len() <= FEW_RUNS {
            return runs.len();
        }
        self.queues.push_back(runs);
        1
    }

    /// Frees a part: about as many runs as `steps_max`. Returns the number of steps.
    pub(crate) fn free(&mut self, steps_max: usize) -> usize {
        let mut steps = 0;
        while steps < steps_max
            && let Some(queue) = self.queues.front_mut()
        {
            steps += 1;
            if queue.pop_front().is_none() {
                self.queues.pop_front();
            }
        }
        if self.queues.is_empty() {
            self.queues = VecDeque::new();
        }
        steps
    }

    /// The bytes that its queues and their chunks take, without chunks that are in `seen`.
    pub(crate) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.queues.iter().map(|runs| runs.recount(seen)).sum()
    }
}

/// A queue of at most this many runs is freed at once.
const FEW_RUNS: usize = 64;
