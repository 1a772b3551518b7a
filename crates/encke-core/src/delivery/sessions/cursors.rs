//! The channels that a session replays, and channels whose live messages it has already received from the ring.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bayeux::ChannelName;

use crate::delivery::sessions::loss::Loss;
use crate::history::RingKey;

/// A channel that a session receives from its ring, wholly or in part.
#[derive(Debug)]
pub(crate) struct ReplayCursor {
    pub(crate) ring: RingKey,
    pub(crate) epoch: Arc<str>,
    /// Live messages below this offset are delivered: they arrived through an older subscription.
    pub(crate) below: u64,
    /// The cursor: the offset of the next message to read from the ring.
    pub(crate) next: u64,
    /// True if the ring has more messages. If false, the session receives live messages from the cursor on.
    pub(crate) open: bool,
    /// The offsets, first and last, that the session lost before the cursor. Connect replies and the next message
    /// report the loss. The cursor stays open until that message is read from the ring.
    pub(crate) lost: Option<(u64, u64)>,
    /// Its position in the order of ready cursors; used by [`ReplayCursors`] only.
    pub(crate) turn: Option<u64>,
}

/// All cursors of a session. The number of cursors does not change the cost of a step.
#[derive(Debug, Default)]
pub(crate) struct ReplayCursors {
    by_name: BTreeMap<Box<str>, ReplayCursor>,
    /// The channels whose ring may have something for the session, in the order in which they became ready.
    ready: BTreeMap<u64, Box<str>>,
    turns: u64,
}

impl ReplayCursor {
    /// A cursor that begins at this offset.
    pub(crate) fn new(ring: RingKey, epoch: Arc<str>, next: u64) -> ReplayCursor {
        ReplayCursor { ring, epoch, below: 0, next, open: true, lost: None, turn: None }
    }

    /// Moves the cursor. Losses from the new offset on are found again, so a loss never begins behind the cursor.
    pub(crate) fn go_to(&mut self, next: u64) {
        self.next = next;
        self.lost = self.lost.filter(|lost| lost.0 < next).map(|(from, to)| (from, to.min(next - 1)));
    }

    /// Marks as lost every message up to this offset that the session has not received.
    pub(crate) fn lose(&mut self, to: u64) {
        let from = self.lost.map_or(self.next, |lost| lost.0);
        self.lost = Some((from, to));
        self.next = to + 1;
    }

    /// Marks as lost every message that the session has not received: the ring is gone.
    pub(crate) fn lose_all(&mut self, name: &str) -> Loss {
        self.open = false;
        let from = self.lost.take().map_or(self.next, |lost| lost.0);
        self.loss(name, from, None)
    }

    /// The loss of the messages from this offset on.
    pub(crate) fn loss(&self, name: &str, from: u64, to: Option<u64>) -> Loss {
        Loss { name: name.into(), epoch: self.epoch.clone(), from, to, reported: None }
    }
}

impl ReplayCursors {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// True if a ring may have something for the session.
    pub(crate) fn is_behind(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The number of channels whose rings wait to be read.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The cursor of a channel.
    pub(crate) fn of(&self, name: &str) -> Option<&ReplayCursor> {
        self.by_name.get(name)
    }

    /// The cursor of a channel, if it belongs to the ring with this serial. A caller that opens the cursor also calls
    /// [`ReplayCursors::list`].
    pub(crate) fn get_mut(&mut self, name: &str, serial: u64) -> Option<&mut ReplayCursor> {
        self.by_name.get_mut(name).filter(|cursor| cursor.ring.serial == serial)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &ReplayCursor)> {
        self.by_name.iter().map(|(name, cursor)| (&**name, cursor))
    }

    /// The channels with a cursor that a pattern, or a channel's own name, covers.
    pub(crate) fn covered(&self, name: ChannelName<'_>, limits: &bayeux::Limits) -> Vec<Box<str>> {
        let parent = name.as_str().trim_end_matches('*');
        let from_there =
            self.by_name.range::<str, _>((Bound::Included(parent), Bound::Unbounded)).map(|(cursor, _)| cursor);
        let covers = |cursor: &str| ChannelName::parse(cursor, limits).is_ok_and(|cursor| name.matches(cursor));
        from_there.take_while(|cursor| cursor.starts_with(parent)).filter(|cursor| covers(cursor)).cloned().collect()
    }

    /// Adds a cursor. It replaces and returns the channel's cursor of an earlier ring.
    pub(crate) fn insert(&mut self, name: &str, cursor: ReplayCursor) -> Option<ReplayCursor> {
        let earlier = self.remove(name);
        self.by_name.insert(name.into(), cursor);
        self.list(name);
        earlier
    }

    fn remove(&mut self, name: &str) -> Option<ReplayCursor> {
        let cursor = self.by_name.remove(name)?;
        if let Some(turn) = cursor.turn {
            self.ready.remove(&turn);
        }
        Some(cursor)
    }

    /// Marks a channel as ready: its ring may have something for the session, and is read in its turn.
    pub(crate) fn list(&mut self, name: &str) {
        if let Some(cursor) = self.by_name.get_mut(name).filter(|cursor| cursor.open && cursor.turn.is_none()) {
            self.turns += 1;
            cursor.turn = Some(self.turns);
            self.ready.insert(self.turns, name.into());
        }
    }

    /// The first ready cursor.
    pub(crate) fn first_ready(&mut self) -> Option<(Box<str>, &mut ReplayCursor)> {
        let name = self.ready.first_key_value()?.1.clone();
        let cursor = self.by_name.get_mut(&name)?;
        Some((name, cursor))
    }

    /// Ends the turn of the first ready cursor, after its ring was read. Removes and returns the cursor if it is closed
    /// and its owner is the `settled` one: then no message that the ring has already given can still arrive.
    pub(crate) fn pass_turn(&mut self, settled: Option<usize>) -> Option<ReplayCursor> {
        let (_, name) = self.ready.pop_first()?;
        let cursor = self.by_name.get_mut(&name)?;
        cursor.turn = None;
        if cursor.open || Some(cursor.ring.owner()) != settled { None } else { self.by_name.remove(&name) }
    }

    /// Ends a channel's replay after an unsubscribe. Messages that the ring has given may still arrive from the
    /// channel's owner, and a later subscription must not deliver them again, so the cursor stays. It is removed if
    /// its owner is the `settled` one: then nothing can arrive.
    pub(crate) fn close(&mut self, name: &str, settled: Option<usize>) {
        let Some(cursor) = self.by_name.get_mut(name) else { return };
        (cursor.below, cursor.open, cursor.lost) = (0, false, None);
        if let Some(turn) = cursor.turn.take() {
            self.ready.remove(&turn);
        }
        if Some(cursor.ring.owner()) == settled {
            self.by_name.remove(name);
        }
    }

    /// Makes room for one more cursor below `max` by removing a closed one. False if all are open.
    pub(crate) fn make_room(&mut self, max: usize) -> bool {
        if self.len() < max {
            return true;
        }
        let closed = self.iter().find(|(_, cursor)| !cursor.open).map(|(name, _)| Box::from(name));
        closed.map(|closed: Box<str>| self.remove(&closed)).is_some()
    }

    /// Splits a run of live messages that begins at offset `first`. The session gets the messages before the first
    /// returned index and those from the second one on; the ring provides the messages between. Removes a closed cursor
    /// that the run passes.
    pub(crate) fn share(&mut self, name: &str, serial: u64, first: u64, messages: u32) -> (u32, u32) {
        let Some(cursor) = self.get_mut(name, serial) else { return (messages, messages) };
        let ReplayCursor { below, next, open, .. } = *cursor;
        let within = |number: u64| number.saturating_sub(first).min(u64::from(messages)) as u32;
        let skip = if open { messages } else { within(next) };
        if open {
            self.list(name);
        } else if first + u64::from(messages) > next {
            self.remove(name);
        }
        (within(below).min(skip), skip)
    }
}
