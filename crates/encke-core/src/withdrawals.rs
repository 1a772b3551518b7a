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

use super::effect::SessionKey;
use super::outbox::Capacity;
use super::session::{Carrier, Session};
use super::{Dirty, Shard};

/// What is not to come to a session of all that waits for it.
#[derive(Debug, Default)]
pub(super) struct Withdrawn {
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
pub(super) struct Withdrawals {
    /// Sessions that wait for a search which messages have paid for.
    paid: VecDeque<SessionKey>,
    /// Sessions that wait for one which time pays for.
    unpaid: VecDeque<SessionKey>,
    /// Until then nothing is searched that is not paid for, in microseconds.
    rests_until_us: u64,
    /// Messages that were searched in this turn.
    searched: usize,
}

impl Withdrawn {
    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// These numbers of a channel are not to come.
    pub(super) fn note(&mut self, channel: &str, epoch: &Arc<str>, numbers: Range<u64>, unnumbered: bool) {
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
    fn has_room_for(&self, more: &Withdrawn) -> bool {
        let conflicts =
            |channel: &str, epoch: &Arc<str>| self.channels.get(channel).is_some_and(|known| known.epoch != *epoch);
        self.channels.len() + more.channels.len() <= CHANNELS_MAX
            && !more.channels.iter().any(|(channel, new)| conflicts(channel, &new.epoch))
    }

    fn merge(&mut self, more: Withdrawn) {
        for (channel, OfChannel { epoch, numbers, unnumbered }) in more.channels {
            self.note(&channel, &epoch, numbers, unnumbered);
        }
    }

    /// Whether a message may come all the same.
    fn keeps(&self, payload: &[u8]) -> bool {
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
    pub(super) fn len(&self) -> usize {
        self.paid.len() + self.unpaid.len()
    }

    /// Whether a flush has something to search.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        !self.paid.is_empty() || (!self.unpaid.is_empty() && self.has_rested(now_ms))
    }

    fn has_rested(&self, now_ms: u64) -> bool {
        now_ms * 1_000 >= self.rests_until_us
    }

    /// So many messages were searched.
    fn spend(&mut self, messages: usize, is_paid: bool, now_ms: u64) {
        self.searched += messages;
        if !is_paid {
            self.rests_until_us = self.rests_until_us.max(now_ms * 1_000) + messages as u64 * MESSAGE_US;
        }
    }
}

impl Shard {
    /// These are not to come to a session.
    pub(super) fn withdraw(&mut self, key: SessionKey, more: Withdrawn) {
        let waiting = self.sessions.get(key).and_then(|session| session.replay.as_ref()?.withdrawn.as_deref());
        if waiting.is_some_and(|waiting| !waiting.has_room_for(&more)) {
            // As many channels were begun with as are worth a search.
            self.withdraw_now(key);
        }
        let messages = self.messages_of(key);
        let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) else { return };
        replay.withdrawn.get_or_insert_default().merge(more);
        let is_paid = messages >= 2 * replay.searched;
        let Withdrawals { unpaid, searched, .. } = &self.withdrawals;
        let fits_turn = *searched == 0 || searched + messages <= turn_max(&self.capacity);
        let has_time = is_paid || (unpaid.is_empty() && self.withdrawals.has_rested(self.now.ms));
        if messages <= free_max(&self.capacity) {
            self.withdraw_now(key);
        } else if fits_turn && has_time {
            self.withdrawals.spend(messages, is_paid, self.now.ms);
            self.withdraw_now(key);
        } else if !std::mem::replace(&mut replay.awaits_search, true) {
            let list = if is_paid { &mut self.withdrawals.paid } else { &mut self.withdrawals.unpaid };
            list.push_back(key);
            self.metrics.withdrawals_delayed.add(1);
        }
    }

    /// Searches for sessions that wait for it, as far as a turn may.
    pub(super) fn go_on_with_withdrawals(&mut self) {
        self.withdrawals.searched = 0;
        while self.withdrawals.is_due(self.now.ms) && self.withdrawals.searched < turn_max(&self.capacity).max(1) {
            let paid = self.withdrawals.paid.pop_front();
            let is_paid = paid.is_some();
            let Some(key) = paid.or_else(|| self.withdrawals.unpaid.pop_front()) else { break };
            let messages = self.messages_of(key);
            let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) else { continue };
            replay.awaits_search = false;
            if replay.withdrawn.is_some() {
                self.withdrawals.spend(messages, is_paid, self.now.ms);
                self.withdraw_now(key);
                self.resume(key);
            }
        }
    }

    /// Messages that a search of a session has to look at.
    fn messages_of(&self, key: SessionKey) -> usize {
        let Some(session) = self.sessions.get(key) else { return 0 };
        let on_socket = session.socket_with_messages().and_then(|socket| self.socket(socket));
        session.outbox.messages() + on_socket.map_or(0, |socket| socket.out.messages())
    }

    /// What is not to come goes. Whatever looks at messages that wait, or hands them on, does this first.
    pub(super) fn withdraw_now(&mut self, key: SessionKey) {
        if !self.sessions.get(key).is_some_and(Session::awaits_withdrawal) {
            return;
        }
        let before = self.messages_of(key);
        let Shard { sessions, sockets, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let Some(withdrawn) = session.replay.as_mut().and_then(|replay| replay.withdrawn.take()) else { return };
        let keep = |payload: &[u8]| withdrawn.keeps(payload);
        session.withdraw(keep);
        // What went with a connect reply may still wait on its socket.
        if let Some(on) = session.socket_with_messages()
            && let Some(socket) = sockets.get_mut(on.index as usize).filter(|socket| socket.is(on))
        {
            socket.out.filter(|_, payload| keep(payload));
        }
        self.metrics.withdrawals_searched.add(before);
        let left = self.messages_of(key);
        let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) else { return };
        replay.searched = left;
        if replay.awaits_search {
            self.resume(key);
        }
    }

    /// A session that was given nothing while it waited for a search is given what waits.
    fn resume(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.dirty = true;
        let socket = session.socket_with_messages();
        self.dirty.push_back(Dirty::Session(key));
        if let Some(socket) = socket {
            self.dirty.push_back(Dirty::Socket(socket));
        }
        self.catch_up_later(key);
    }
}

impl Session {
    /// Whether it gets nothing, as what waits for it has to be searched first.
    pub(super) fn awaits_withdrawal(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.withdrawn.is_some())
    }

    /// The WebSocket whose own outbox has messages of it: they went there with a connect reply. Of one that acknowledges the socket has
    /// parts of frames, and the messages are in the ledger.
    pub(super) fn socket_with_messages(&self) -> Option<super::SocketKey> {
        match self.carrier {
            Carrier::Socket(socket) if self.with_connects && self.ledger.is_none() => Some(socket),
            _ => None,
        }
    }
}

/// Messages that one turn searches, unless a single session has more.
fn turn_max(capacity: &Capacity) -> usize {
    TURN_MAX.min(capacity.messages_max / 16)
}

/// Messages that are searched whenever somebody wants it: it costs as much as the subscribe does.
fn free_max(capacity: &Capacity) -> usize {
    FREE_MAX.min(capacity.messages_max / 1_024)
}

const TURN_MAX: usize = 4_096;
const FREE_MAX: usize = 64;
/// How long the shard rests for each message that it has searched and nobody has paid for, in microseconds: a search takes an eighth of that.
const MESSAGE_US: u64 = 1;
/// Channels that one search looks for, unless the subscribes of one batch have more. To begin with as many costs as much as a search.
const CHANNELS_MAX: usize = 4_096;

#[cfg(test)]
mod tests;
