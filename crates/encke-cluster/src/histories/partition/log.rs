//! The log of a partition on one node.
//!
//! ```text
//!   1 ··· ┌──── recent ────┐┌─── staged ───┐
//!         └─ for others ───┘└─ not certain ┘
//!                  committed ┘         last ┘
//! ```
//!
//! Entries up to `committed` are the same on all nodes, for ever. A *staged* entry may still be dropped when the owner changes.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use crate::histories::entry::{Entry, NodeId};

/// The entries that a node has of a log that begins at 1.
#[derive(Default)]
pub(crate) struct Log {
    committed: u64,
    /// The last ones up to `committed`, which other nodes may ask for.
    recent: VecDeque<Entry>,
    recent_bytes: usize,
    /// Those above `committed`.
    staged: VecDeque<Entry>,
    staged_bytes: usize,
    /// The last sequence of each source among the committed ones.
    sources: HashMap<NodeId, Last, RandomState>,
    /// The same among the staged ones.
    staged_sources: HashMap<NodeId, u64, RandomState>,
}

/// The last entry of a source.
#[derive(Clone, Copy)]
struct Last {
    sequence: u64,
    /// Its number in the log.
    number: u64,
}

impl Log {
    /// A log of which the entries up to this number are in the rings.
    pub(crate) fn at(committed: u64, sources: &[(NodeId, u64)]) -> Log {
        let last = |(source, sequence): &(NodeId, u64)| (*source, Last { sequence: *sequence, number: committed });
        Log { committed, sources: sources.iter().map(last).collect(), ..Log::default() }
    }

    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// The number of the last entry.
    pub(crate) fn last(&self) -> u64 {
        self.committed + self.staged.len() as u64
    }

    pub(crate) fn staged_bytes(&self) -> usize {
        self.staged_bytes
    }

    /// Adds an entry behind the last one.
    pub(crate) fn stage(&mut self, entry: Entry) {
        self.staged_bytes += entry.submission.bytes();
        self.staged_sources.insert(entry.source, entry.sequence);
        self.staged.push_back(entry);
    }

    /// Drops all entries that are not committed.
    pub(crate) fn truncate(&mut self) {
        self.staged.clear();
        self.staged_sources.clear();
        self.staged_bytes = 0;
    }

    /// Drops those from this number on.
    pub(crate) fn truncate_from(&mut self, number: u64) {
        let retained = usize::try_from(number.saturating_sub(self.committed + 1)).unwrap_or(usize::MAX);
        if retained < self.staged.len() {
            let mut staged = std::mem::take(&mut self.staged);
            self.truncate();
            staged.truncate(retained);
            staged.into_iter().for_each(|entry| self.stage(entry));
        }
    }

    /// Takes entries of the journal from this number on. Staged ones are dropped from the first one that differs: what stands behind it is of
    /// an owner that was succeeded. Returns the number from which on all entries have come with these.
    pub(crate) fn merge(&mut self, first: u64, entries: impl Iterator<Item = Entry>) -> u64 {
        let mut new_from = None;
        for (number, entry) in (first..).zip(entries) {
            let Some(index) = number.checked_sub(self.committed + 1) else { continue };
            if self.staged.get(index as usize).is_some_and(|staged| *staged != entry) {
                self.truncate_from(number);
            }
            if number == self.last() + 1 {
                self.stage(entry);
                new_from.get_or_insert(number);
            }
        }
        new_from.unwrap_or(self.last() + 1)
    }

    /// Commits the next entry, and returns it.
    pub(crate) fn commit(&mut self) -> Option<Entry> {
        let entry = self.staged.pop_front()?;
        let bytes = entry.submission.bytes();
        self.staged_bytes -= bytes;
        self.committed += 1;
        if self.staged.is_empty() {
            self.staged_sources.clear();
        }
        self.note_source(&entry);
        self.recent.push_back(entry.clone());
        self.recent_bytes += bytes;
        while self.recent_bytes > RECENT_BYTES_MAX
            && let Some(oldest) = self.recent.pop_front()
        {
            self.recent_bytes -= oldest.submission.bytes();
        }
        Some(entry)
    }

    fn note_source(&mut self, entry: &Entry) {
        let last = Last { sequence: entry.sequence, number: self.committed };
        if self.sources.insert(entry.source, last).is_none() && self.sources.len() > SOURCES_MAX {
            let oldest = self.sources.iter().min_by_key(|(_, last)| last.number).map(|(source, _)| *source);
            oldest.and_then(|oldest| self.sources.remove(&oldest));
        }
    }

    /// The last sequence of a source in the log; 0 if it has none.
    pub(crate) fn last_of(&self, source: NodeId) -> u64 {
        let committed = self.sources.get(&source).map_or(0, |last| last.sequence);
        self.staged_sources.get(&source).copied().unwrap_or(committed)
    }

    /// The last sequence of a source among the committed entries; 0 if it has none.
    pub(crate) fn committed_of(&self, source: NodeId) -> u64 {
        self.sources.get(&source).map_or(0, |last| last.sequence)
    }

    /// The last committed sequence of each source.
    pub(crate) fn sources(&self) -> Vec<(NodeId, u64)> {
        self.sources.iter().map(|(source, last)| (*source, last.sequence)).collect()
    }

    /// The entries from this number on. None if the log does not have all of them any more.
    pub(crate) fn from(&self, number: u64) -> Option<impl Iterator<Item = &Entry>> {
        let oldest = self.committed + 1 - self.recent.len() as u64;
        let skipped = usize::try_from(number.checked_sub(oldest)?).ok()?;
        (number <= self.last() + 1).then(|| self.recent.iter().chain(&self.staged).skip(skipped))
    }
}

/// The bytes of committed entries that a node retains of each partition for those that have missed some.
const RECENT_BYTES_MAX: usize = 256 * 1024;
/// The sources whose last sequence is remembered, in each partition. The one that has published nothing for the longest time is forgotten.
const SOURCES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use encke_core::Side;

    use super::*;
    use crate::histories::entry::{Content, Submission};

    fn entry(source: u64, sequence: u64, first: u64, bytes: usize) -> Entry {
        let frames = vec![0; bytes].into();
        let content = Content::Publications { side: Side::Client, except: None, messages: 2, frames };
        let submission = Arc::new(Submission { channel: "/a".into(), content });
        Entry { source: NodeId(source), sequence, first, wall_ms: 0, submission }
    }

    #[test]
    fn entries_of_the_journal_replace_staged_ones_from_the_first_that_differs() {
        let mut log = Log::at(7, &[]);
        let of = |numbers: [u64; 3]| numbers.map(|number| entry(1, number, 10 * number, 1)).into_iter();
        assert_eq!((log.merge(8, of([1, 2, 3])), log.last()), (8, 10));
        assert_eq!((log.merge(11, [].into_iter()), log.last()), (11, 10));
        assert_eq!((log.merge(9, [].into_iter()), log.last()), (11, 10), "the first value of an owner drops nothing");
        assert_eq!((log.merge(9, of([2, 3, 4])), log.last()), (11, 11), "two of them were there");
        log.commit();
        assert_eq!((log.merge(8, of([1, 2, 9])), log.last()), (10, 10), "an owner that was succeeded has added two");
        let staged: Vec<u64> = std::iter::from_fn(|| log.commit()).map(|entry| entry.sequence).collect();
        assert_eq!(staged, [2, 9]);
    }

    #[test]
    fn entries_are_committed_in_order_and_others_are_dropped() {
        let mut log = Log::at(7, &[(NodeId(1), 4)]);
        log.stage(entry(1, 5, 10, 1));
        log.stage(entry(2, 1, 12, 1));
        assert_eq!((log.last(), log.committed()), (9, 7));
        assert_eq!((log.last_of(NodeId(1)), log.committed_of(NodeId(1)), log.last_of(NodeId(2))), (5, 4, 1));
        assert_eq!(log.commit().map(|entry| entry.first), Some(10));
        log.truncate();
        assert_eq!((log.last(), log.committed(), log.staged_bytes()), (8, 8, 0));
        assert_eq!((log.last_of(NodeId(1)), log.last_of(NodeId(2)), log.commit()), (5, 0, None));
        let firsts = |number| log.from(number).map(|entries| entries.map(|entry| entry.first).collect::<Vec<_>>());
        assert_eq!((firsts(7), firsts(8), firsts(9), firsts(10)), (None, Some(vec![10]), Some(vec![]), None));
    }

    #[test]
    fn what_others_may_ask_for_and_the_sources_have_bounds() {
        let mut log = Log::default();
        for number in 1..=SOURCES_MAX as u64 + 10 {
            log.stage(entry(number, 1, number, 10_000));
            log.commit();
        }
        assert!(log.recent_bytes <= RECENT_BYTES_MAX && log.recent.len() > 20);
        assert_eq!(log.sources().len(), SOURCES_MAX);
        assert_eq!((log.last_of(NodeId(10)), log.last_of(NodeId(11))), (0, 1));
        assert!(log.from(log.committed()).is_some() && log.from(1).is_none());
    }
}
