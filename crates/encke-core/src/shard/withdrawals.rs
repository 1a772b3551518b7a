//! Withdraws waiting messages that a ring will give again, so that none comes twice. `resume_at` leads here after a
//! subscribe with a position. A large search waits for `flush` or `tick`, and the session gets nothing until it is
//! done.

use crate::connections::socket::Socket;
use crate::events::SessionKey;
use crate::outbox::{Capacity, Outbox};
use crate::protocol::batch::Batch;
use crate::schedule::Queue;
use crate::sessions::session::Session;
use crate::sessions::withdrawn::Withdrawn;
use crate::shard::Parts;

impl Parts {
    /// Withdraws these messages from everything that waits for a session: now, or when there is time for a search.
    pub(crate) fn withdraw(&mut self, key: SessionKey, more: Withdrawn) {
        let waiting = self.sessions.get(key).and_then(|session| session.replay.as_ref()?.withdrawn.as_deref());
        if waiting.is_some_and(|waiting| !waiting.has_room_for(&more)) {
            // The collected ranges are worth a search.
            self.withdraw_now(key);
        }
        let messages = self.messages_of(key);
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(replay) = &mut session.replay else { return };
        replay.withdrawn.get_or_insert_default().merge(more);
        let is_paid = messages >= 2 * replay.searched;
        if messages <= free_max(self.settings.capacity()) {
            self.withdraw_now(key);
        } else if self.schedule.has_time_for(messages, is_paid, self.now.ms, self.settings.capacity()) {
            self.schedule.spend(messages, is_paid, self.now.ms);
            self.withdraw_now(key);
        } else if self.schedule.search(key, &mut session.marks, is_paid) {
            self.metrics.withdrawals_delayed.add(1);
        }
    }

    /// Searches the queues of waiting sessions, as far as one turn may.
    pub(super) fn go_on_with_withdrawals(&mut self) {
        self.schedule.begin_searches();
        while let Some((key, is_paid)) = self.schedule.next_search(self.now.ms, self.settings.capacity()) {
            let messages = self.messages_of(key);
            let Some(session) = self.sessions.get_mut(key) else { continue };
            session.marks.leave(Queue::Searches);
            if session.awaits_withdrawal() {
                self.schedule.spend(messages, is_paid, self.now.ms);
                self.withdraw_now(key);
                self.resume(key);
            }
        }
    }

    /// The number of messages that a search of a session looks at.
    fn messages_of(&self, key: SessionKey) -> usize {
        let Some(session) = self.sessions.get(key) else { return 0 };
        let on_socket = session.socket_with_messages().and_then(|socket| self.socket(socket));
        session.outbox.messages() + on_socket.and_then(Socket::out).map_or(0, Outbox::messages)
    }

    /// Removes the withdrawn messages. Everything that reads or sends waiting messages calls this first.
    pub(super) fn withdraw_now(&mut self, key: SessionKey) {
        if !self.sessions.get(key).is_some_and(Session::awaits_withdrawal) {
            return;
        }
        let before = self.messages_of(key);
        let Parts { sessions, connections, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let Some(mut withdrawn) = session.replay.as_mut().and_then(|replay| replay.withdrawn.take()) else { return };
        let mut keep = |payload: &[u8]| withdrawn.keeps(payload);
        session.withdraw(&mut keep);
        // Messages that went with a connect reply may still wait on its socket.
        if let Some(on) = session.socket_with_messages()
            && let Some(own) = connections.sockets.get_mut(on).and_then(|socket| socket.own.as_mut())
        {
            own.out.filter(|_, payload| keep(payload));
        }
        self.metrics.withdrawals_searched.add(before);
        self.schedule.count_steps(before);
        let left = self.messages_of(key);
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.replay.iter_mut().for_each(|replay| replay.searched = left);
        if session.marks.is_in(Queue::Searches) {
            self.resume(key);
        }
    }

    /// Lets a session get nothing until a batch with positions is decided about. Otherwise messages that come live
    /// meanwhile would come again from the ring.
    pub(super) fn withhold(&mut self, batch: &mut Batch, key: SessionKey) {
        if let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) {
            replay.undecided += 1;
            batch.withholds = true;
        }
    }

    /// Ends what [`Parts::withhold`] began, when the decision has come.
    pub(super) fn release_withheld(&mut self, batch: &mut Batch) {
        if !std::mem::take(&mut batch.withholds) {
            return;
        }
        let Some(key) = batch.session else { return };
        if let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) {
            replay.undecided = replay.undecided.saturating_sub(1);
        }
        self.resume(key);
    }

    /// Lets a session continue that got nothing for a while.
    pub(super) fn resume(&mut self, key: SessionKey) {
        let Parts { sessions, connections, schedule, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        schedule.write_session(key, &mut session.marks);
        if let Some(on) = session.socket_with_messages()
            && let Some(socket) = connections.sockets.get_mut(on)
        {
            schedule.write_socket(on, &mut socket.marks);
        }
        self.replay_later(key);
    }
}

/// The number of messages that may be searched at any time: it costs no more than the subscribe.
fn free_max(capacity: &Capacity) -> usize {
    FREE_MAX.min(capacity.messages_max / 1_024)
}

const FREE_MAX: usize = 64;
