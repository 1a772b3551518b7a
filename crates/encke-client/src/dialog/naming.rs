//! All subscriptions once more, with their places: in a new session, and over a new carrier of an old one that does not
//! acknowledge, as the server cannot know what the broken one took along.
//!
//! A subscribe takes so many positions and no more, so it may be several. They go together and the session is open when all are
//! answered. What comes on their channels before the answer comes once more behind it.

use std::time::Instant;

use crate::message::{Incoming, Reconnect};

use super::replay::POSITIONS_MAX;
use super::{Change, Dialog, Lane, SUBSCRIBE, State};

/// A subscribe that was not granted yet.
#[derive(Debug)]
pub(super) struct Naming {
    /// Its id; `None` if the server did not take so many positions.
    id: Option<u64>,
    pub(super) channels: Vec<String>,
}

impl Dialog {
    /// Subscribes to everything once more.
    pub(super) fn name_all(&mut self, lane: Lane) {
        self.naming = Vec::new();
        for channels in self.parts() {
            let id = self.next_id();
            self.naming.push(Naming { id: Some(id), channels });
        }
        self.batch(|dialog| {
            let naming = std::mem::take(&mut dialog.naming);
            for Naming { id, channels } in &naming {
                dialog.send_change(lane, id.unwrap_or_default(), Change::Subscribe, channels, true);
            }
            dialog.naming = naming;
        });
    }

    /// The same for an old session over its new carrier, where only that tells the server what is missing.
    pub(super) fn name_places(&mut self) {
        let acknowledges = self.acknowledges();
        if self.replay().is_some_and(|replay| replay.is_spoken) && !acknowledges {
            self.name_all(Lane::Connect);
        }
    }

    /// A response begins with its messages. Those that come with answers to the places were sent because of them.
    pub(super) fn put_naming_first(&self, messages: &mut [Incoming<'_>]) {
        if !self.naming.is_empty() {
            messages.sort_by_key(|message| self.naming_of(message).is_none());
        }
    }

    /// Which of these subscribes a message answers. A reply without an id answers whatever is waited for on its channel.
    pub(super) fn naming_of(&self, message: &Incoming<'_>) -> Option<usize> {
        if message.channel != SUBSCRIBE {
            return None;
        }
        let id = message.id();
        self.naming.iter().position(|naming| naming.id.is_some() && (id.is_none() || naming.id == id))
    }

    /// One of them is answered. A session that lacks a subscription, or does not go on at its places, is not the one that was asked
    /// for: a refusal ends it.
    pub(super) fn named(&mut self, at: usize, mut message: Incoming<'_>, now: Instant) {
        let reconnect = message.reconnect();
        match message.outcome() {
            Ok(()) => drop(self.naming.remove(at)),
            Err(error) if is_too_much(&error) && self.replay().is_some() => self.naming[at].id = None,
            // The reply to the connect says the same where there is one.
            Err(_) if reconnect == Some(Reconnect::Handshake) && matches!(self.state, State::Resuming(_)) => {}
            Err(_) if reconnect == Some(Reconnect::Handshake) => return self.renew(now),
            Err(error) => return self.end(SUBSCRIBE, &error),
        }
        if let Some(refused) = self.naming.first()
            && self.naming.iter().all(|naming| naming.id.is_none())
        {
            let channel = refused.channels.first().cloned().unwrap_or_default();
            tracing::debug!(channel, "the server does not take so many positions, fewer then");
            if !self.replay().is_some_and(|replay| replay.give_way()) {
                return self.end(SUBSCRIBE, TOO_MUCH);
            }
            self.name_all(Lane::Connect);
        }
        if let State::Restoring { resumed, .. } = self.state
            && self.naming.is_empty()
        {
            self.open(now, resumed);
        }
    }

    /// What is subscribed to, or may be as messages of it came, put together so that each part has no more positions than a subscribe
    /// takes.
    fn parts(&self) -> Vec<Vec<String>> {
        let replay = self.recovery.as_ref().and_then(|recovery| recovery.replay.as_ref());
        let replay = replay.filter(|replay| replay.is_spoken);
        let asked = self.asked.iter().filter(|asked| asked.change == Change::Subscribe);
        let heard = |name: &&String| replay.is_some_and(|replay| replay.has_heard(name));
        let asked = asked.flat_map(|asked| &asked.channels).filter(heard);
        let (mut parts, mut room) = (Vec::<Vec<String>>::new(), 0);
        for name in self.subscriptions.iter().chain(asked.filter(|name| !self.subscriptions.contains(name))) {
            let positions = replay.map_or(1, |replay| replay.positions_of(name));
            match parts.last_mut().filter(|_| positions <= room) {
                Some(part) => part.push(name.clone()),
                None => {
                    parts.push(vec![name.clone()]);
                    room = POSITIONS_MAX;
                }
            }
            room -= positions.min(room);
        }
        parts
    }
}

fn is_too_much(error: &str) -> bool {
    error.starts_with("413:") && error.ends_with("replay_channels_max")
}

const TOO_MUCH: &str = "413::replay_channels_max";
