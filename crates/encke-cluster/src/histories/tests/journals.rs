//! The journals of the engine, and clusters whose nodes are killed all at once.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::command::{JournalValue, KeyAnswer, KeyFailure, KeyReply};

/// The revision of a value, the time at which it came, and the value.
type Stored = (u64, u64, Bytes);

/// The journals of an engine.
#[derive(Default)]
pub(super) struct Journals {
    /// True if nodes have them.
    pub(super) are_used: bool,
    /// The most values of one; the oldest ones go. 0: all stay.
    values_max: usize,
    values: BTreeMap<String, Vec<Stored>>,
    revision: u64,
    were_lost: bool,
    /// True if the last values are lost when all nodes are killed.
    pub(super) lose_ends: bool,
    /// The time until which each takes one value at most, in milliseconds, and those that have.
    full: (u64, BTreeSet<String>),
}

impl Journals {
    /// Those of nodes that have them, each with at most so many values.
    pub(super) fn used(values_max: usize) -> Journals {
        Journals { are_used: true, values_max, ..Journals::default() }
    }

    /// The engine loses them.
    pub(super) fn lose(&mut self) {
        self.values.clear();
        self.were_lost = true;
    }

    /// Each loses this value.
    pub(super) fn lose_one(&mut self, index: usize) {
        for values in self.values.values_mut().filter(|values| index < values.len()) {
            values.remove(index);
        }
    }

    /// Each loses its last value, but for the only ones.
    pub(super) fn lose_last(&mut self) {
        let with_others = self.values.values_mut().filter(|values| values.len() > 1);
        with_others.for_each(|values| _ = values.pop());
    }

    /// Each takes one more value until then, in milliseconds: the engine is nearly full.
    pub(super) fn fill(&mut self, until_ms: u64) {
        self.full = (until_ms, BTreeSet::new());
    }

    /// True if the oldest values may be gone.
    pub(super) fn have_gaps(&self) -> bool {
        self.values_max > 0 || self.were_lost || self.lose_ends
    }

    pub(super) fn append(&mut self, now_ms: u64, journal: &str, value: Bytes, after: u64) -> KeyReply {
        let values = self.values.entry(journal.into()).or_default();
        if values.last().map_or(0, |(revision, ..)| *revision) != after {
            return Err(KeyFailure::Conflict);
        }
        if now_ms < self.full.0 && !self.full.1.insert(journal.into()) {
            return Err(KeyFailure::Failed("full".into()));
        }
        self.revision += 1;
        values.push((self.revision, now_ms, value));
        if self.values_max > 0 && values.len() > self.values_max {
            values.remove(0);
        }
        Ok(KeyAnswer::Written(self.revision))
    }

    /// Few at a time, so that reading takes several.
    pub(super) fn read(&self, now_ms: u64, journal: &str, from: u64) -> KeyReply {
        let values = self.values.get(journal).map_or(&[][..], Vec::as_slice);
        let of = |(revision, came_ms, value): &Stored| JournalValue {
            revision: *revision,
            age_ms: now_ms - came_ms,
            value: value.clone(),
        };
        let from_there = values.iter().filter(|(revision, ..)| *revision >= from).take(VALUES).map(of).collect();
        let last = values.last().map(|(revision, _, value)| (*revision, value.clone()));
        Ok(KeyAnswer::Values { values: from_there, last })
    }
}

/// The values of one answer.
const VALUES: usize = 3;
