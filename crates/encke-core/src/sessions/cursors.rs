//! The channels that a session has to catch up with, or whose live messages it has had out of the ring already.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bayeux::ChannelName;

use crate::history::RingKey;
use crate::sessions::loss::Loss;

/// A channel that a session has not, or not only, heard live.
#[derive(Debug)]
pub(crate) struct ReplayCursor {
    pub(crate) ring: RingKey,
    pub(crate) epoch: Arc<str>,
    /// What comes live with lower numbers is for the session: it subscribed by another name before.
    pub(crate) below: u64,
    /// The cursor: the number of the next message out of the ring.
    pub(crate) next: u64,
    /// Whether there is more in the ring. If not, live messages from the cursor on are for the session.
    pub(crate) open: bool,
    /// What the session has lost before the cursor: told with connect replies, and with the next message. Until that comes out of the
    /// ring the tail stays open.
    pub(crate) lost: Option<(u64, u64)>,
    /// Its place among those that are ready: for [`ReplayCursors`] only.
    pub(crate) turn: Option<u64>,
}

/// All tails of a session. No step costs more for there being many.
#[derive(Debug, Default)]
pub(crate) struct ReplayCursors {
    by_name: BTreeMap<Box<str>, ReplayCursor>,
    /// Those whose ring may have something for the session, in the order in which they came to be so.
    ready: BTreeMap<u64, Box<str>>,
    turns: u64,
}

impl ReplayCursor {
    /// One that begins at this number.
    pub(crate) fn new(ring: RingKey, epoch: Arc<str>, next: u64) -> ReplayCursor {
        ReplayCursor { ring, epoch, below: 0, next, open: true, lost: None, turn: None }
    }

    /// Moves the cursor. What is lost from there on is found again, so a loss never begins behind the cursor.
    pub(crate) fn go_to(&mut self, next: u64) {
        self.next = next;
        self.lost = self.lost.filter(|lost| lost.0 < next).map(|(from, to)| (from, to.min(next - 1)));
    }

    /// Everything up to this message that the session has not got is gone.
    pub(crate) fn lose(&mut self, to: u64) {
        let from = self.lost.map_or(self.next, |lost| lost.0);
        self.lost = Some((from, to));
        self.next = to + 1;
    }

    /// The ring is gone, and with it everything that the session has not got.
    pub(crate) fn lose_all(&mut self, name: &str) -> Loss {
        self.open = false;
        let from = self.lost.take().map_or(self.next, |lost| lost.0);
        self.loss(name, from, None)
    }

    /// What is gone from this message on.
    pub(crate) fn loss(&self, name: &str, from: u64, to: Option<u64>) -> Loss {
        Loss { name: name.into(), epoch: self.epoch.clone(), from, to, told: None }
    }
}

impl ReplayCursors {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there may be something to be had out of a ring.
    pub(crate) fn is_behind(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The tail of a channel.
    pub(crate) fn of(&self, name: &str) -> Option<&ReplayCursor> {
        self.by_name.get(name)
    }

    /// The tail of a channel in this life of it. Who opens it lists it, too: [`ReplayCursors::list`].
    pub(crate) fn get_mut(&mut self, name: &str, serial: u64) -> Option<&mut ReplayCursor> {
        self.by_name.get_mut(name).filter(|cursor| cursor.ring.serial == serial)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &ReplayCursor)> {
        self.by_name.iter().map(|(name, cursor)| (&**name, cursor))
    }

    /// The names of those that a pattern, or a channel's own name, covers.
    pub(crate) fn covered(&self, name: ChannelName<'_>, limits: &bayeux::Limits) -> Vec<Box<str>> {
        let parent = name.as_str().trim_end_matches('*');
        let from_there =
            self.by_name.range::<str, _>((Bound::Included(parent), Bound::Unbounded)).map(|(cursor, _)| cursor);
        let covers = |cursor: &str| ChannelName::parse(cursor, limits).is_ok_and(|cursor| name.matches(cursor));
        from_there.take_while(|cursor| cursor.starts_with(parent)).filter(|cursor| covers(cursor)).cloned().collect()
    }

    /// Adds a tail; one of an earlier life of the channel ends, and is returned.
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

    /// There may be something for the session in the ring of a tail: it is read in its turn.
    pub(crate) fn list(&mut self, name: &str) {
        if let Some(cursor) = self.by_name.get_mut(name).filter(|cursor| cursor.open && cursor.turn.is_none()) {
            self.turns += 1;
            cursor.turn = Some(self.turns);
            self.ready.insert(self.turns, name.into());
        }
    }

    /// The one whose turn it is.
    pub(crate) fn first_ready(&mut self) -> Option<(Box<str>, &mut ReplayCursor)> {
        let name = self.ready.first_key_value()?.1.clone();
        let cursor = self.by_name.get_mut(&name)?;
        Some((name, cursor))
    }

    /// The ring of the one whose turn it is has been read. It ends, if nothing is on its way that the ring has given already: so it
    /// is where this shard owns the channel. Returns it then.
    pub(crate) fn pass_turn(&mut self, shard: usize) -> Option<ReplayCursor> {
        let (_, name) = self.ready.pop_first()?;
        let cursor = self.by_name.get_mut(&name)?;
        cursor.turn = None;
        if cursor.open || cursor.ring.owner() != shard { None } else { self.by_name.remove(&name) }
    }

    /// A channel is not heard any more. What the ring has given may still be on its way from its owner, and must not come again
    /// by a later subscription; where this shard is the owner nothing is.
    pub(crate) fn close(&mut self, name: &str, shard: usize) {
        let Some(cursor) = self.by_name.get_mut(name) else { return };
        (cursor.below, cursor.open, cursor.lost) = (0, false, None);
        if let Some(turn) = cursor.turn.take() {
            self.ready.remove(&turn);
        }
        if cursor.ring.owner() == shard {
            self.by_name.remove(name);
        }
    }

    /// Makes room for one more where there are so many: lets go of one that has nothing to give. False if there is none.
    pub(crate) fn make_room(&mut self, max: usize) -> bool {
        if self.len() < max {
            return true;
        }
        let closed = self.iter().find(|(_, cursor)| !cursor.open).map(|(name, _)| Box::from(name));
        closed.map(|closed: Box<str>| self.remove(&closed)).is_some()
    }

    /// How many of these live messages, from the first on, are for the session, and from which on they are again; what is
    /// between is the ring's to give. A tail that has nothing to say any more ends.
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
