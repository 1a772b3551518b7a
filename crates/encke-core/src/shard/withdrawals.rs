//! Withdraws waiting messages that a ring will give again, so that none comes twice. `resume_at` leads here after a
//! subscribe with a position. A large search waits for `flush` or `tick`, and the session gets nothing until it is
//! done.

use crate::events::SessionKey;
use crate::outbox::Capacity;
use crate::sessions::session::Session;
use crate::sessions::withdrawn::{Withdrawals, Withdrawn};
use crate::shard::{Dirty, Shard};

impl Shard {
    /// Withdraws these messages from everything that waits for a session: now, or when there is time for a search.
    pub(crate) fn withdraw(&mut self, key: SessionKey, more: Withdrawn) {
        let waiting = self.sessions.get(key).and_then(|session| session.replay.as_ref()?.withdrawn.as_deref());
        if waiting.is_some_and(|waiting| !waiting.has_room_for(&more)) {
            // The collected ranges are worth a search.
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

    /// Searches the queues of waiting sessions, as far as one turn may.
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

    /// The number of messages that a search of a session looks at.
    fn messages_of(&self, key: SessionKey) -> usize {
        let Some(session) = self.sessions.get(key) else { return 0 };
        let on_socket = session.socket_with_messages().and_then(|socket| self.socket(socket));
        session.outbox.messages() + on_socket.map_or(0, |socket| socket.out.messages())
    }

    /// Removes the withdrawn messages. Everything that reads or sends waiting messages calls this first.
    pub(super) fn withdraw_now(&mut self, key: SessionKey) {
        if !self.sessions.get(key).is_some_and(Session::awaits_withdrawal) {
            return;
        }
        let before = self.messages_of(key);
        let Shard { sessions, sockets, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let Some(mut withdrawn) = session.replay.as_mut().and_then(|replay| replay.withdrawn.take()) else { return };
        let mut keep = |payload: &[u8]| withdrawn.keeps(payload);
        session.withdraw(&mut keep);
        // Messages that went with a connect reply may still wait on its socket.
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

    /// Lets a session continue that got nothing while it waited for a search.
    pub(super) fn resume(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.dirty = true;
        let socket = session.socket_with_messages();
        self.dirty.push_back(Dirty::Session(key));
        if let Some(socket) = socket {
            self.dirty.push_back(Dirty::Socket(socket));
        }
        self.replay_later(key);
    }
}

/// The most messages that one turn searches, unless a single session has more.
fn turn_max(capacity: &Capacity) -> usize {
    TURN_MAX.min(capacity.messages_max / 16)
}

/// The number of messages that may be searched at any time: it costs no more than the subscribe.
fn free_max(capacity: &Capacity) -> usize {
    FREE_MAX.min(capacity.messages_max / 1_024)
}

const TURN_MAX: usize = 4_096;

const FREE_MAX: usize = 64;
