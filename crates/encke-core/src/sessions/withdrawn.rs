//! What comes out of a ring anew is withdrawn from all that waits for a session, before anything more goes out to it.
//!
//! To find it, all that waits is searched, and a client can ask for that with every subscribe. So a search is paid for: by messages
//! that have come since the last one, or by time, of which all searches that nothing paid for take a part only. And a turn has
//! one large search. Until it is searched the session gets nothing at all, and further subscribes are added to the same search.
//!
//! ```text
//!   subscribe ──▶ withdrawn ──▶ few messages, paid for and a turn has room ──▶ searched now
//!                     ▲   └───▶ listed, nothing goes out ──── flush ─────────▶ searched, goes on
//!   subscribe ────────┘
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use bayeux::ext;
use foldhash::fast::RandomState;

use crate::events::SessionKey;

/// What is not to come to a session of all that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Withdrawn {
    channels: BTreeMap<Box<str>, OfChannel>,
    /// Ranges of numbers of all channels.
    ranges: usize,
    /// Whether messages without a number are among them.
    has_unnumbered: bool,
}

/// The same of one channel.
#[derive(Debug)]
struct OfChannel {
    epoch: Arc<str>,
    /// Ascending and apart: between two of them may be live messages that no ring has any more.
    numbers: Vec<Range<u64>>,
    unnumbered: Unnumbered,
}

/// Messages of a channel without a number that are not to come: they wait since before the session used replay.
#[derive(Debug, Default)]
pub(crate) enum Unnumbered {
    /// None of them.
    #[default]
    None,
    /// As many with each text as the ring gives; the key is a hash.
    Given(Given),
    All,
}

/// How often a ring gives each text.
#[derive(Debug, Default)]
pub(crate) struct Given {
    texts: HashMap<u64, u32, RandomState>,
    hasher: RandomState,
}

/// The searches of a shard.
#[derive(Debug, Default)]
pub(crate) struct Withdrawals {
    /// Sessions that wait for a search which messages have paid for.
    pub(crate) paid: VecDeque<SessionKey>,
    /// Sessions that wait for one which time pays for.
    pub(crate) unpaid: VecDeque<SessionKey>,
    /// Until then nothing is searched that is not paid for, in microseconds.
    rests_until_us: u64,
    /// Messages that were searched in this turn.
    pub(crate) searched: usize,
}

impl Withdrawn {
    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// These numbers of a channel are not to come.
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

    /// Whether one search can look for these, too.
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

    /// Whether this is known of a channel's messages without a number.
    pub(crate) fn knows_unnumbered(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|known| !matches!(known.unnumbered, Unnumbered::None))
    }

    /// Whether a message may come all the same. Each is asked for once.
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
    /// The ring gives this text once more.
    pub(crate) fn add(&mut self, text: &[u8]) {
        *self.texts.entry(self.hasher.hash_one(text)).or_default() += 1;
    }

    /// Whether the ring gives this text, once less from now on.
    fn take(&mut self, text: &[u8]) -> bool {
        let left = self.texts.get_mut(&self.hasher.hash_one(text)).filter(|left| **left > 0);
        left.map(|left| *left -= 1).is_some()
    }
}

impl OfChannel {
    /// Whether the message of this number is not to come.
    fn has(&self, id: u64) -> bool {
        let at = self.numbers.partition_point(|range| range.end <= id);
        self.numbers.get(at).is_some_and(|range| range.contains(&id))
    }
}

impl Withdrawals {
    /// How many sessions wait.
    pub(crate) fn len(&self) -> usize {
        self.paid.len() + self.unpaid.len()
    }

    /// Whether a flush has something to search.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        !self.paid.is_empty() || (!self.unpaid.is_empty() && self.has_rested(now_ms))
    }

    pub(crate) fn has_rested(&self, now_ms: u64) -> bool {
        now_ms * 1_000 >= self.rests_until_us
    }

    /// So many messages were searched.
    pub(crate) fn spend(&mut self, messages: usize, is_paid: bool, now_ms: u64) {
        self.searched += messages;
        if !is_paid {
            self.rests_until_us = self.rests_until_us.max(now_ms * 1_000) + messages as u64 * MESSAGE_US;
        }
    }
}

/// How long the shard rests for each message that it has searched and nobody has paid for, in microseconds: a search takes an eighth of that.
const MESSAGE_US: u64 = 1;

/// Ranges of numbers that one search looks for, one of a channel mostly, unless the subscribes of one batch have more. To begin with as
/// many channels costs as much as a search.
pub(crate) const RANGES_MAX: usize = 4_096;
