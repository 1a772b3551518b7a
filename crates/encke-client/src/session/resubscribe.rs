//! Repeats all subscriptions at their positions: in a new session, and over a new connection of an old one that does not
//! acknowledge, as the server cannot know which messages the broken connection took along.
//!
//! A subscribe takes a limited number of positions, so there may be several. They go together, and the session is open when all
//! have their replies. Messages that come on their channels before the reply come again after it.

use std::time::Instant;

use bayeux::channel::META_SUBSCRIBE;
use bayeux::limits::REPLAY_POSITIONS_MAX;
use bayeux::{BayeuxError, Reconnect, ServerMessage};

use crate::Refusal;

use super::life::outcome;
use super::{Change, ClientSession, RequestClass, State};

/// A subscribe that was not granted yet.
#[derive(Debug)]
pub(super) struct Resubscribe {
    /// Its id; `None` if the server did not take so many positions.
    id: Option<u64>,
    pub(super) channels: Vec<String>,
}

impl ClientSession {
    /// Subscribes to everything again.
    pub(super) fn resubscribe_all(&mut self, class: RequestClass) {
        self.resubscribes = Vec::new();
        for channels in self.parts() {
            let id = self.next_id();
            self.resubscribes.push(Resubscribe { id: Some(id), channels });
        }
        self.batch(|session| {
            let resubscribes = std::mem::take(&mut session.resubscribes);
            for Resubscribe { id, channels } in &resubscribes {
                session.send_change(class, id.unwrap_or_default(), Change::Subscribe, channels, true);
            }
            session.resubscribes = resubscribes;
        });
    }

    /// The same for an old session over its new connection, where only the positions tell the server which messages are missing.
    pub(super) fn resubscribe_after_break(&mut self) {
        let acknowledges = self.acknowledges();
        if self.replay().is_some_and(|replay| replay.is_supported) && !acknowledges {
            self.resubscribe_all(RequestClass::Connect);
        }
    }

    /// Moves the replies to these subscribes to the front: a response begins with its messages, and those that come with such a
    /// reply were sent because of the positions.
    pub(super) fn put_resubscribe_replies_first(&self, messages: &mut [ServerMessage<'_>]) {
        if !self.resubscribes.is_empty() {
            messages.sort_by_key(|message| self.resubscribe_of(message).is_none());
        }
    }

    /// The subscribe that a message is the reply to. A reply without an id answers any of them.
    pub(super) fn resubscribe_of(&self, message: &ServerMessage<'_>) -> Option<usize> {
        if message.channel != META_SUBSCRIBE {
            return None;
        }
        let id = message.number();
        self.resubscribes.iter().position(|sent| sent.id.is_some() && (id.is_none() || sent.id == id))
    }

    /// One of them has its reply. A session without all its subscriptions, or not at its positions, is not the one that the
    /// program uses: a refusal ends it.
    pub(super) fn resubscribed(&mut self, at: usize, message: &ServerMessage<'_>, now: Instant) {
        let reconnect = message.reconnect();
        match outcome(message) {
            Ok(()) => drop(self.resubscribes.remove(at)),
            Err(refusal) if has_too_many_positions(&refusal) && self.replay().is_some() => {
                self.resubscribes[at].id = None;
            }
            // The reply to the connect says the same where there is one.
            Err(_) if reconnect == Some(Reconnect::Handshake) && matches!(self.state, State::Resuming(_)) => {}
            Err(_) if reconnect == Some(Reconnect::Handshake) => return self.renew(now),
            Err(refusal) => return self.end(refusal, now),
        }
        if let Some(refused) = self.resubscribes.first()
            && self.resubscribes.iter().all(|sent| sent.id.is_none())
        {
            let channel = refused.channels.first().cloned().unwrap_or_default();
            tracing::debug!(channel, "the server does not take so many positions, trying fewer");
            if !self.replay().is_some_and(|replay| replay.reduce_positions()) {
                let refusal = Refusal::new(META_SUBSCRIBE, BayeuxError::ReplayChannelsMax.as_str());
                return self.end(refusal, now);
            }
            self.resubscribe_all(RequestClass::Connect);
        }
        if let State::Resubscribing { resumed, .. } = self.state
            && self.resubscribes.is_empty()
        {
            self.open(now, resumed);
        }
    }

    /// All subscriptions, and pending ones that messages have come for, in parts: each has no more positions than a subscribe
    /// takes, and names with the same interval.
    fn parts(&self) -> Vec<Vec<String>> {
        let replay = self.recovery.as_ref().and_then(|recovery| recovery.replay.as_ref());
        let replay = replay.filter(|replay| replay.is_supported);
        let pending = self.pending_changes.iter().filter(|pending| pending.change == Change::Subscribe);
        let received = |name: &&String| replay.is_some_and(|replay| replay.has_received(name));
        let pending = pending.flat_map(|pending| &pending.channels).filter(received);
        let (mut parts, mut room) = (Vec::<Vec<String>>::new(), 0);
        let names = self.subscriptions.iter().chain(pending.filter(|name| !self.subscriptions.contains(name)));
        let mut names: Vec<&String> = names.collect();
        let interval = |name: &String| self.interval_of(name);
        names.sort_by_key(|name| interval(name));
        for name in names {
            let positions = replay.map_or(1, |replay| replay.positions_of(name));
            match parts.last_mut().filter(|part| positions <= room && interval(&part[0]) == interval(name)) {
                Some(part) => part.push(name.clone()),
                None => {
                    parts.push(vec![name.clone()]);
                    room = REPLAY_POSITIONS_MAX;
                }
            }
            room -= positions.min(room);
        }
        parts
    }
}

fn has_too_many_positions(refusal: &Refusal) -> bool {
    refusal.code() == Some(BayeuxError::ReplayChannelsMax.code()) && refusal.error.ends_with("replay_channels_max")
}
