//! Catching up: a session that asked for messages of the past gets them out of the rings, a little at a time.
//!
//! ```text
//!   ring of /a   │ gone │ 41 42 43 44 45 46 47 │ next
//!                              ▲ cursor ──▶    └─ reached: from here on live messages come by the fan-out
//! ```
//!
//! For each channel that it is behind with a session has a [`Tail`]. While its cursor has not reached the end, live messages of
//! the channel are not pushed to it: they are in the ring. Its outbox gets a step out of the ring whenever nothing urgent waits in it,
//! and before each response, behind what waits: of this channel that has lower numbers. So a replay of a million messages takes no
//! more memory than its outbox does, a busy channel does not hold it up, and everybody else's live messages go first. A session
//! that is too slow for live messages falls back to its cursor in the same way.

use std::collections::HashMap;
use std::sync::Arc;

use bayeux::ext::{self, Place};

use super::Shard;
use super::ack::SOCKET_BATCH_BYTES_MAX;
use super::effect::SessionKey;
use super::flush::Wire;
use super::follow::write_placed;
use super::history::{Histories, Position, Ring, RingKey};
use super::hub::Heard;
use super::ids::Id;
use super::outbox::{Capacity, Kind};
use super::session::{Carrier, Session};

/// What a session has to catch up with.
#[derive(Debug, Default)]
pub struct Replay {
    tails: Vec<Tail>,
    /// What it has lost with a whole ring.
    losses: Vec<Loss>,
    /// Whether it is on the shard's list of those who catch up.
    listed: bool,
    /// The subscription that the next heartbeat begins with.
    pub(super) beat: usize,
}

/// A channel that a session has not, or not only, heard live.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) name: Box<str>,
    pub(super) ring: RingKey,
    pub(super) epoch: Arc<str>,
    /// What comes live with lower numbers is for the session: it subscribed by another name before.
    pub(super) below: u64,
    /// The cursor: the number of the next message out of the ring.
    pub(super) next: u64,
    /// Whether there is more in the ring. If not, live messages from the cursor on are for the session.
    pub(super) open: bool,
    /// What the session has lost before the cursor: told with connect replies, and with the next message. Until that comes out of the
    /// ring the tail stays open.
    pub(super) lost: Option<(u64, u64)>,
    /// Whether a connect reply has told of that.
    pub(super) is_told: bool,
}

/// Messages that are gone.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) name: Box<str>,
    pub(super) epoch: Arc<str>,
    pub(super) from: u64,
    /// The last one, if anybody knows.
    pub(super) to: Option<u64>,
    /// The number of the first batch that told of it, if the session acknowledges: all do until that is confirmed.
    pub(super) told: Option<u64>,
}

/// One step of a session, and how far it is.
struct Step {
    own: Id,
    /// More than this no message may have.
    message_bytes_max: usize,
    /// What the outbox has room for.
    bytes_max: usize,
    /// What a step may have, unless a single message has more.
    fair_bytes: usize,
    messages_max: usize,
    taken_bytes: usize,
    taken_messages: usize,
}

/// A ring that a full outbox leaves its messages to.
struct Spilled {
    position: Position,
    /// From this number on.
    from: u64,
    /// The lowest that it had.
    first: u64,
}

/// What a step has found in a ring.
#[derive(Default)]
struct Found {
    messages: Vec<FoundMessage>,
    texts: Vec<u8>,
    /// Something was gone.
    gap: bool,
    /// What was lost with the whole ring.
    loss: Option<Loss>,
}

/// A message that was found.
struct FoundMessage {
    id: u64,
    wall_ms: u64,
    /// Where its text ends.
    end: usize,
    /// What was lost before it.
    lost: Option<(u64, u64)>,
}

impl Replay {
    /// Of an earlier life of the server.
    pub(super) fn restored(tails: Vec<Tail>, losses: Vec<Loss>) -> Replay {
        Replay { tails, losses, ..Replay::default() }
    }

    /// What is lost with a whole ring and has to be told still.
    pub(super) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Whether everything comes live.
    pub fn is_live(&self) -> bool {
        self.tails.is_empty()
    }

    /// Whether there is something to be had out of a ring.
    fn is_behind(&self) -> bool {
        self.tails.iter().any(|tail| tail.open)
    }

    pub(super) fn tail(&mut self, serial: u64) -> Option<&mut Tail> {
        self.tails.iter_mut().find(|tail| tail.ring.serial == serial)
    }

    pub(super) fn tails(&self) -> &[Tail] {
        &self.tails
    }

    /// Adds a tail; one of an earlier life of the channel ends.
    pub(super) fn add_tail(&mut self, tail: Tail) {
        self.tails.retain(|other| other.name != tail.name);
        self.tails.push(tail);
    }

    /// A channel is not heard any more. What the ring has given may still be on its way from its owner, and must not come again
    /// by a later subscription; where this shard is the owner nothing is.
    pub(super) fn close_tail(&mut self, name: &str, shard: usize) {
        self.tails.retain(|tail| *tail.name != *name || tail.ring.owner() != shard);
        if let Some(tail) = self.tails.iter_mut().find(|tail| *tail.name == *name) {
            (tail.below, tail.open, tail.lost) = (0, false, None);
        }
    }

    /// Lets go of the oldest tail that has nothing to give. False if there is none.
    pub(super) fn drop_closed_tail(&mut self) -> bool {
        let closed = self.tails.iter().position(|tail| !tail.open);
        closed.map(|closed| self.tails.remove(closed)).is_some()
    }

    /// What was lost and has to be told, in the batch of this number if the session acknowledges.
    pub(super) fn tell_losses(&mut self, batch: Option<u64>) -> Vec<Loss> {
        let mut told = match batch {
            None => std::mem::take(&mut self.losses),
            Some(batch) => {
                self.losses.iter_mut().for_each(|loss| loss.told = loss.told.or(Some(batch)));
                self.losses.clone()
            }
        };
        for tail in &mut self.tails {
            if let Some((from, to)) = tail.lost {
                tail.is_told = true;
                told.push(tail.loss(from, Some(to)));
            }
        }
        told
    }

    /// The client has received this batch and all before it.
    pub(super) fn confirm(&mut self, batch: i64) {
        self.losses.retain(|loss| loss.told.is_none_or(|told| i64::try_from(told).is_ok_and(|told| told > batch)));
    }

    /// Whether something is lost of which nothing was told yet.
    pub(super) fn has_news(&self) -> bool {
        let untold = |tail: &Tail| tail.lost.is_some() && !tail.is_told;
        self.tails.iter().any(untold) || self.losses.iter().any(|loss| loss.told.is_none())
    }

    /// How many of these live messages, from the first on, are for the session, and from which on they are again; what is
    /// between is the ring's to give. A tail that has nothing to say any more ends.
    pub(super) fn share(&mut self, serial: u64, first: u64, messages: u32) -> (u32, u32) {
        let Some(at) = self.tails.iter().position(|tail| tail.ring.serial == serial) else {
            return (messages, messages);
        };
        let Tail { below, next, open, .. } = self.tails[at];
        let within = |number: u64| number.saturating_sub(first).min(u64::from(messages)) as u32;
        let skip = if open { messages } else { within(next) };
        if !open && first + u64::from(messages) > next {
            self.tails.swap_remove(at);
        }
        (within(below).min(skip), skip)
    }
}

impl Shard {
    /// A session is too slow for live messages from this number on: it gets them out of the ring.
    pub(super) fn fall_back(&mut self, key: SessionKey, channel: &str, position: &Position, number: u64) {
        let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) else { return };
        match replay.tail(position.ring.serial) {
            Some(tail) => {
                tail.next = if tail.open { tail.next.min(number) } else { number };
                tail.below = tail.below.min(number);
                tail.open = true;
            }
            None => replay.add_tail(Tail {
                name: channel.into(),
                ring: position.ring,
                epoch: position.epoch.clone(),
                below: 0,
                next: number,
                open: true,
                lost: None,
                is_told: false,
            }),
        }
        self.catch_up_later(key);
    }

    /// The outbox of a session is full: what of it stands in a ring goes, and comes again from there. With `all` what has left its ring
    /// meanwhile goes, too: the session is told that it is lost.
    pub(super) fn spill(&mut self, key: SessionKey, all: bool) {
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.replay.is_some()) else { return };
        let mut outbox = std::mem::take(&mut session.outbox);
        let histories = &self.shared.histories;
        let mut rings: HashMap<String, Option<Spilled>> = HashMap::new();
        outbox.filter(|_, payload| {
            let Some((channel, epoch, id)) = ext::place_of(payload) else { return true };
            if !rings.contains_key(&*channel) {
                rings.insert(channel.to_string(), Spilled::of(histories, &channel, all));
            }
            let ring = rings.get_mut(&*channel).and_then(|ring| ring.as_mut());
            let Some(ring) = ring.filter(|ring| *ring.position.epoch == *epoch && id >= ring.from) else { return true };
            ring.first = ring.first.min(id);
            false
        });
        if let Some(session) = self.sessions.get_mut(key) {
            session.outbox = outbox;
        }
        for (channel, ring) in rings {
            if let Some(Spilled { position, first, .. }) = ring.filter(|ring| ring.first < u64::MAX) {
                self.fall_back(key, &channel, &position, first);
            }
        }
    }

    /// Puts a session on the list of those who may go on to catch up, if it has to.
    pub(super) fn catch_up_later(&mut self, key: SessionKey) {
        if let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut())
            && (replay.is_behind() || replay.has_news())
            && !std::mem::replace(&mut replay.listed, true)
        {
            self.catching_up.push_back(key);
        }
    }

    /// One step of a session from the list. Who cannot take it now is listed again by what changes that.
    pub(super) fn catch_up(&mut self, key: SessionKey, wire: &mut dyn Wire) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        // What is urgent is on its way already; what is lazy waits for company.
        let idle = session.outbox.is_empty() || !session.urgent;
        let (ready, holds) = (session.is_reachable() && idle, session.held.is_some());
        let Some(replay) = &mut session.replay else { return };
        replay.listed = false;
        if !ready {
            return;
        }
        self.refill(key);
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.urgent && !session.outbox.is_empty() {
            self.flush_session(key, wire);
        } else if holds && session.replay.as_ref().is_some_and(|replay| replay.has_news()) {
            self.answer_held(key, None);
        }
    }

    /// Fills the outbox of a session that gets messages with responses, before one is made. Whatever waits already: else a channel that
    /// has something for each response would keep all others waiting. Not more than goes out with that response.
    pub(super) fn prime(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else { return };
        if !session.replay.as_ref().is_some_and(|replay| replay.is_behind()) || session.protocol.is_ending() {
            return;
        }
        let response_bytes_max = match session.carrier {
            Carrier::Requests => usize::MAX,
            Carrier::Socket(_) if session.ledger.is_some() => SOCKET_BATCH_BYTES_MAX,
            Carrier::Socket(_) => return,
        };
        if session.in_flight.is_none() && session.outbox.waiting_bytes() < response_bytes_max {
            self.refill(key);
        }
    }

    /// Puts as much out of the rings into an outbox, behind what waits there, as a step may have.
    fn refill(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(mut replay) = session.replay.take() else { return };
        let mut step = Step::new(session, &self.capacity);
        let mut frames = Vec::new();
        for tail in replay.tails.iter_mut().filter(|tail| tail.open) {
            let read = self.shared.histories.with(tail.ring, |ring| step.read(ring, tail));
            let found = read.unwrap_or_else(|| tail.vanish());
            self.metrics.positions_gone.add(usize::from(found.gap));
            replay.losses.extend(found.loss.clone());
            found.write(&tail.epoch, &mut self.scratch, &mut frames);
        }
        self.metrics.replayed.add(step.taken_messages);
        if step.taken_messages > 0 {
            let frames = self.own.encoded(&frames);
            session.outbox.push_many(&frames, Kind::Messages, step.taken_messages as u32);
            session.urgent = true;
        }
        session.replay = Some(replay);
        self.end_tails(key);
    }

    /// Lets go of tails that have reached the end, where no live message is on its way that the ring has given already.
    fn end_tails(&mut self, key: SessionKey) {
        let Shard { sessions, hub, index, .. } = self;
        let Some(replay) = sessions.get_mut(key).and_then(|session| session.replay.as_mut()) else { return };
        replay.tails.retain(|tail| {
            let ends = !tail.open && tail.ring.owner() == *index;
            if ends && let Some(channel) = hub.find(&tail.name) {
                let heard = Heard { serial: tail.ring.serial, epoch: tail.epoch.clone(), id: tail.next - 1 };
                hub.set_heard(channel, heard);
            }
            !ends
        });
    }
}

impl Spilled {
    fn of(histories: &Histories, channel: &str, all: bool) -> Option<Spilled> {
        let position = histories.find(channel, 0)?;
        let from = if all { 0 } else { histories.with(position.ring, |ring| ring.oldest())? };
        Some(Spilled { position, from, first: u64::MAX })
    }
}

impl Step {
    fn new(session: &Session, capacity: &Capacity) -> Step {
        // Live messages of other channels need room, too.
        let (messages, bytes) = (session.outbox.messages(), session.outbox.bytes());
        let left = |max: usize, used: usize| (max - if messages > 0 { max / 4 } else { 0 }).saturating_sub(used);
        let bytes_max = left(capacity.bytes_max, bytes);
        let messages_left = left(capacity.messages_max, messages);
        Step {
            own: session.id,
            message_bytes_max: capacity.bytes_max,
            bytes_max,
            fair_bytes: STEP_BYTES.min(capacity.bytes_max / 4),
            messages_max: messages_left.min((capacity.messages_max / 4).max(1)),
            taken_bytes: 0,
            taken_messages: 0,
        }
    }

    /// Whether a message of so many bytes may come along: the first one always, if there is room at all.
    fn takes(&self, bytes: usize) -> bool {
        let fair = self.taken_messages == 0 || self.taken_bytes + bytes <= self.fair_bytes;
        fair && self.taken_bytes + bytes <= self.bytes_max && self.taken_messages < self.messages_max
    }

    /// Reads on from the cursor of a tail. Texts are copied and no more, as the ring's lock is held meanwhile.
    fn read(&mut self, ring: &Ring, tail: &mut Tail) -> Found {
        let mut found = Found::default();
        if ring.oldest() > tail.next {
            found.gap = true;
            tail.lose(ring.oldest() - 1);
        }
        let mut is_done = true;
        for entry in ring.from(tail.next) {
            let bytes = entry.text.len() + PLACE_BYTES_MAX;
            if bytes > self.message_bytes_max {
                found.gap = true;
                tail.lose(entry.number);
                continue;
            }
            if entry.except.as_deref() != Some(&self.own) {
                if !self.takes(bytes) {
                    is_done = false;
                    break;
                }
                self.taken_bytes += bytes;
                self.taken_messages += 1;
                found.texts.extend_from_slice(entry.text.as_bytes());
                let (end, lost) = (found.texts.len(), tail.lost.take());
                found.messages.push(FoundMessage { id: entry.number, wall_ms: entry.wall_ms, end, lost });
            }
            tail.next = entry.number + 1;
        }
        if is_done {
            // The numbers behind the last message may have jumped.
            tail.next = ring.next();
        }
        tail.open = tail.next < ring.next() || tail.lost.is_some();
        found
    }
}

impl Tail {
    /// Everything up to this message that the session has not got is gone.
    fn lose(&mut self, to: u64) {
        let from = self.lost.map_or(self.next, |lost| lost.0);
        self.lost = Some((from, to));
        self.is_told = false;
        self.next = to + 1;
    }

    /// The ring is gone with all that was in it.
    fn vanish(&mut self) -> Found {
        self.open = false;
        let from = self.lost.take().map_or(self.next, |lost| lost.0);
        Found { gap: true, loss: Some(self.loss(from, None)), ..Found::default() }
    }

    fn loss(&self, from: u64, to: Option<u64>) -> Loss {
        Loss { name: self.name.clone(), epoch: self.epoch.clone(), from, to, told: None }
    }
}

impl Found {
    /// Appends the messages, each with its place, as a frame.
    fn write(&self, epoch: &str, scratch: &mut Vec<u8>, frames: &mut Vec<u8>) {
        let mut start = 0;
        for FoundMessage { id, wall_ms, end, lost } in &self.messages {
            let created = ext::timestamp(*wall_ms as i64);
            let place = Place { epoch, id: *id, created: &created, lost: *lost };
            write_placed(&place, &self.texts[start..*end], scratch, frames);
            start = *end;
        }
    }
}

/// What a replay puts into an outbox at once, in bytes: half a millisecond of a fast network, and on a WebSocket with
/// acknowledgements one batch.
const STEP_BYTES: usize = 48 * 1024;
/// What telling the place of a message adds to it at most, in bytes, with its frame and a word about what was lost.
const PLACE_BYTES_MAX: usize = 320;

#[cfg(test)]
mod tests;
