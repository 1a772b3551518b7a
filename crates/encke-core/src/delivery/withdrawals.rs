//! Withdraws waiting messages that a ring will give again, so that none comes twice. A large search waits for its turn,
//! and the session gets nothing until it is done.

use bayeux::ext;

use crate::delivery::outbox::{InFlight, Outbox, payloads};
use crate::delivery::schedule::Queue;
use crate::delivery::sessions::session::Session;
use crate::delivery::sessions::withdrawn::Withdrawn;
use crate::delivery::{Delivery, Socket};
use crate::events::SessionKey;
use crate::limits::Capacity;

impl Delivery {
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
        if messages <= free_max(&self.capacity) {
            self.withdraw_now(key);
        } else if self.schedule.has_time_for(messages, is_paid, self.now.ms, &self.capacity) {
            self.schedule.spend(messages, is_paid, self.now.ms);
            self.withdraw_now(key);
        } else if self.schedule.search(key, &mut session.marks, is_paid) {
            self.metrics.withdrawals_delayed.add(1);
        }
    }

    /// Searches the queues of waiting sessions, as far as one turn may.
    #[inline]
    pub(crate) fn go_on_with_withdrawals(&mut self) {
        self.schedule.begin_searches();
        while let Some((key, is_paid)) = self.schedule.next_search(self.now.ms, &self.capacity) {
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
        let Delivery { sessions, sockets, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let Some(mut withdrawn) = session.replay.as_mut().and_then(|replay| replay.withdrawn.take()) else { return };
        let mut keep = |payload: &[u8]| withdrawn.keeps(payload);
        session.withdraw(&mut keep);
        // Messages that went with a connect reply may still wait on its socket.
        if let Some(on) = session.socket_with_messages()
            && let Some(own) = sockets.get_mut(on).and_then(|socket| socket.own.as_mut())
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

    /// True if a session that replays and confirms nothing has given messages of histories to a response without an outcome.
    pub(crate) fn may_have_lost(&mut self, key: SessionKey) -> bool {
        self.withdraw_now(key);
        let session = self.sessions.get(key).filter(|session| session.replay.is_some() && session.unacked().is_none());
        let Some(session) = session else { return false };
        session.handed_out().flat_map(InFlight::ranges).any(|frames| {
            let bytes = frames.chunk.slice(frames.start, frames.end);
            payloads(&bytes).any(|payload| ext::position_of(payload).is_some())
        })
    }

    /// Lets a session get nothing until [`Delivery::release_withheld`]. Otherwise messages that come live before a decision
    /// about positions would come again from the ring. Returns false if the session does not replay.
    pub(crate) fn withhold(&mut self, key: SessionKey) -> bool {
        let replay = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut());
        replay.map(|replay| replay.undecided += 1).is_some()
    }

    /// Ends what [`Delivery::withhold`] began.
    pub(crate) fn release_withheld(&mut self, key: SessionKey) {
        if let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) {
            replay.undecided = replay.undecided.saturating_sub(1);
        }
        self.resume(key);
    }

    /// Lets a session continue that got nothing for a while.
    pub(super) fn resume(&mut self, key: SessionKey) {
        let Delivery { sessions, sockets, schedule, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        schedule.write_session(key, &mut session.marks);
        if let Some(on) = session.socket_with_messages()
            && let Some(socket) = sockets.get_mut(on)
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
