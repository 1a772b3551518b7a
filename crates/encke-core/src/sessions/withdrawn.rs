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

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bayeux::ext;

use crate::events::SessionKey;

/// What is not to come to a session of all that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Withdrawn {
    channels: BTreeMap<Box<str>, OfChannel>,
}

/// The same of one channel.
#[derive(Debug)]
struct OfChannel {
    epoch: Arc<str>,
    numbers: Range<u64>,
    /// Messages without a number, too: they have come before the session used replay.
    unnumbered: bool,
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
    pub(crate) fn note(&mut self, channel: &str, epoch: &Arc<str>, numbers: Range<u64>, unnumbered: bool) {
        let Some(known) = self.channels.get_mut(channel) else {
            self.channels.insert(channel.into(), OfChannel { epoch: epoch.clone(), numbers, unnumbered });
            return;
        };
        let is_same = known.epoch == *epoch;
        let both = known.numbers.start.min(numbers.start)..known.numbers.end.max(numbers.end);
        known.numbers = if is_same { both } else { numbers };
        known.epoch = epoch.clone();
        known.unnumbered |= unnumbered;
    }

    /// Whether one search can look for these, too.
    pub(crate) fn has_room_for(&self, more: &Withdrawn) -> bool {
        let conflicts =
            |channel: &str, epoch: &Arc<str>| self.channels.get(channel).is_some_and(|known| known.epoch != *epoch);
        self.channels.len() + more.channels.len() <= CHANNELS_MAX
            && !more.channels.iter().any(|(channel, new)| conflicts(channel, &new.epoch))
    }

    pub(crate) fn merge(&mut self, more: Withdrawn) {
        for (channel, OfChannel { epoch, numbers, unnumbered }) in more.channels {
            self.note(&channel, &epoch, numbers, unnumbered);
        }
    }

    /// Whether a message may come all the same.
    pub(crate) fn keeps(&self, payload: &[u8]) -> bool {
        let of_channel = |channel: &str| self.channels.get(channel);
        match ext::position_of(payload) {
            Some((channel, at)) => of_channel(&channel)
                .is_none_or(|known| *known.epoch != *at.epoch || !known.numbers.contains(&at.offset)),
            None if self.channels.values().any(|known| known.unnumbered) => {
                let known =
                    ext::channel_of(payload).and_then(|channel| of_channel(&channel).map(|known| known.unnumbered));
                known != Some(true)
            }
            None => true,
        }
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

/// Channels that one search looks for, unless the subscribes of one batch have more. To begin with as many costs as much as a search.
pub(crate) const CHANNELS_MAX: usize = 4_096;
