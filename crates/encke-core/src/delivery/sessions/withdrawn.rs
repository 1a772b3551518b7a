//! Withdrawal: messages that a replay reads from a ring again are removed from a session's queues before anything more
//! goes out to the session.
//!
//! Finding them takes a search of all queued messages, and a client can cause one with every subscribe. So each search
//! is paid for: by messages queued since the last search, or by time; unpaid searches take a limited part of the
//! shard's time. One turn of the shard does at most one large search. Until its queues are searched the session gets
//! nothing, and further subscribes are added to the same search.
//!
//! ```text
//!   subscribe ──▶ withdrawn ──▶ few messages, paid for, and the turn has room ──▶ searched now
//!                     ▲   └───▶ listed, nothing goes out ──── flush ────────────▶ searched, resumes
//!   subscribe ────────┘
//! ```

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use bayeux::ext;
use foldhash::fast::RandomState;

/// Queued messages that must not be delivered to a session.
#[derive(Debug, Default)]
pub(crate) struct Withdrawn {
    channels: BTreeMap<Box<str>, OfChannel>,
    /// The number of offset ranges of all channels.
    ranges: usize,
    /// True if messages without an offset are among them.
    has_unnumbered: bool,
}

/// The withdrawn messages of one channel.
#[derive(Debug)]
struct OfChannel {
    epoch: Arc<str>,
    /// Ascending and disjoint. Two ranges may have live messages between them that no ring holds any more.
    numbers: Vec<Range<u64>>,
    unnumbered: Unnumbered,
}

/// Messages without an offset that must not be delivered. They were queued before the session used replay.
#[derive(Debug, Default)]
pub(crate) enum Unnumbered {
    /// None of them.
    #[default]
    None,
    /// For each text as many as the ring gives; the key is a hash.
    Given(Given),
    All,
}

/// The number of times that the ring gives each text.
#[derive(Debug, Default)]
pub(crate) struct Given {
    texts: HashMap<u64, u32, RandomState>,
    hasher: RandomState,
}

impl Withdrawn {
    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// Withdraws these offsets of a channel.
    pub(crate) fn note(&mut self, channel: &str, epoch: &Arc<str>, numbers: Range<u64>, unnumbered: Unnumbered) {
        if !self.channels.contains_key(channel) {
            let new = OfChannel { epoch: epoch.clone(), numbers: Vec::new(), unnumbered: Unnumbered::None };
            self.channels.insert(channel.into(), new);
        }
        let Some(known) = self.channels.get_mut(channel) else { return };
        self.ranges -= known.numbers.len();
        if known.epoch != *epoch {
            known.epoch = epoch.clone();
            known.numbers.clear();
        }
        let first = known.numbers.partition_point(|range| range.end < numbers.start);
        let behind = known.numbers.partition_point(|range| range.start <= numbers.end);
        let touched = known.numbers[first..behind].iter();
        let all = touched.fold(numbers, |all, range| all.start.min(range.start)..all.end.max(range.end));
        known.numbers.splice(first..behind, [all]);
        match (&known.unnumbered, &unnumbered) {
            (Unnumbered::All, _) | (_, Unnumbered::None) => {}
            _ => known.unnumbered = unnumbered,
        }
        self.has_unnumbered |= !matches!(known.unnumbered, Unnumbered::None);
        self.ranges += known.numbers.len();
    }

    /// True if one search can include these, too.
    pub(crate) fn has_room_for(&self, more: &Withdrawn) -> bool {
        let conflicts =
            |channel: &str, epoch: &Arc<str>| self.channels.get(channel).is_some_and(|known| known.epoch != *epoch);
        self.ranges + more.ranges <= RANGES_MAX
            && !more.channels.iter().any(|(channel, new)| conflicts(channel, &new.epoch))
    }

    pub(crate) fn merge(&mut self, more: Withdrawn) {
        for (channel, OfChannel { epoch, numbers, mut unnumbered }) in more.channels {
            for range in numbers {
                self.note(&channel, &epoch, range, std::mem::take(&mut unnumbered));
            }
        }
    }

    /// True if messages of a channel without an offset are withdrawn.
    pub(crate) fn knows_unnumbered(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|known| !matches!(known.unnumbered, Unnumbered::None))
    }

    /// True if a message may still be delivered. Must be called once for each message.
    pub(crate) fn keeps(&mut self, payload: &[u8]) -> bool {
        match ext::position_of(payload) {
            Some((channel, at)) => {
                let known = self.channels.get(&*channel);
                known.is_none_or(|known| *known.epoch != *at.epoch || !known.has(at.offset))
            }
            None if self.has_unnumbered => {
                let known = ext::channel_of(payload).and_then(|channel| self.channels.get_mut(&*channel));
                match known.map(|known| &mut known.unnumbered) {
                    Some(Unnumbered::All) => false,
                    Some(Unnumbered::Given(given)) => !given.take(&payload[1..payload.len() - 1]),
                    Some(Unnumbered::None) | None => true,
                }
            }
            None => true,
        }
    }
}

impl Given {
    /// Notes that the ring replays this text once more.
    pub(crate) fn add(&mut self, text: &[u8]) {
        *self.texts.entry(self.hasher.hash_one(text)).or_default() += 1;
    }

    /// True if the ring gives this text; counts it down by one.
    fn take(&mut self, text: &[u8]) -> bool {
        let left = self.texts.get_mut(&self.hasher.hash_one(text)).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    }
}

impl OfChannel {
    /// True if the message with this offset is withdrawn.
    fn has(&self, id: u64) -> bool {
        let at = self.numbers.partition_point(|range| range.end <= id);
        self.numbers.get(at).is_some_and(|range| range.contains(&id))
    }
}

/// The maximum number of offset ranges in one search; mostly one per channel, unless the subscribes of one batch have
/// more. Replaying that many channels costs as much as a search.
pub(crate) const RANGES_MAX: usize = 4_096;
