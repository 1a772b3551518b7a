//! The observed contents of the histories.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The observed contents of the histories: for each channel, the publication at each offset.
#[derive(Debug, Default)]
pub struct Records {
    pub(crate) seen_positions: BTreeMap<&'static str, BTreeMap<u64, usize>>,
    /// Offsets whose messages were lost with a process.
    pub(crate) lost: BTreeSet<(&'static str, u64)>,
    pub(crate) next: BTreeMap<&'static str, u64>,
    pub(crate) oldest: BTreeMap<&'static str, u64>,
    /// The last offset that each session has received, by channel.
    pub(crate) received: BTreeMap<(usize, String), u64>,
}

impl Records {
    /// Sets the contents of histories in the next life of the server: their first offsets, and the offsets with a
    /// message. Missing messages were lost, and are not promised to anybody.
    pub(crate) fn restart_histories(&mut self, there: &BTreeMap<&str, (u64, BTreeSet<u64>)>) -> u64 {
        let mut count = 0;
        for (channel, seen_positions) in &self.seen_positions {
            let ring = there.get(channel);
            let oldest = ring.map_or(0, |(oldest, _)| *oldest);
            let gone = seen_positions.range(oldest..).filter(|(id, _)| ring.is_none_or(|(_, ids)| !ids.contains(id)));
            let gone: Vec<u64> = gone.map(|(id, _)| *id).collect();
            count += gone.into_iter().filter(|id| self.lost.insert((*channel, *id))).count() as u64;
        }
        // All contents are inspected again.
        self.next.clear();
        count
    }

    /// The publication at an offset.
    pub(crate) fn number_at(&self, channel: &str, offset: u64) -> Option<usize> {
        self.seen_positions.get(channel)?.get(&offset).copied()
    }

    /// The offset of the next message.
    pub(crate) fn end_of(&self, channel: &str) -> u64 {
        self.next.get(channel).copied().unwrap_or(0)
    }

    /// The offsets in a range whose messages every client must get, or get reported as lost.
    pub(crate) fn required<'a>(&'a self, channel: &'a str, range: Range<u64>) -> impl Iterator<Item = u64> + 'a {
        let seen_positions = self.seen_positions.get_key_value(channel).filter(|_| !range.is_empty());
        let ids = seen_positions
            .into_iter()
            .flat_map(move |(name, seen_positions)| seen_positions.range(range.clone()).map(|(id, _)| (*name, *id)));
        ids.filter(|position| !self.lost.contains(position)).map(|(_, id)| id)
    }
}
