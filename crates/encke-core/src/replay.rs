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

use std::collections::BTreeMap;
use std::sync::Arc;

use bayeux::ext::{self, PositionStamp};

use super::Shard;
use super::ack::SOCKET_BATCH_BYTES_MAX;
use super::effect::SessionKey;
use super::flush::Wire;
use super::follow::write_placed;
use super::history::{Histories, Position, Ring};
use super::hub::Heard;
use super::ids::Id;
use super::outbox::{Capacity, Kind};
use super::session::{Carrier, Session};
use super::tails::{Tail, Tails};
use super::withdrawals::Withdrawn;

/// What a session has to catch up with.
#[derive(Debug, Default)]
pub struct Replay {
    pub(super) tails: Tails,
    /// What it has lost with a whole ring.
    losses: Vec<Loss>,
    /// Whether something may be lost of which nothing was told yet.
    has_news: bool,
    pub(super) in_rings: InRings,
    /// Whether it is on the shard's list of those who catch up.
    listed: bool,
    /// What waits and must not come any more, until all that waits has been searched for it.
    pub(super) withdrawn: Option<Box<Withdrawn>>,
    /// Messages that the last search left.
    pub(super) searched: usize,
    /// Whether it is on one of the shard's lists of those who wait for a search.
    pub(super) awaits_search: bool,
    /// The subscription that the next heartbeat begins with.
    pub(super) beat: usize,
}

/// What is known of the messages in an outbox that were in rings once: so that a full one is not searched for them in vain, again and
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InRings {
    /// There are none.
    #[default]
    None,
    /// They have left their rings.
    Gone,
    /// They may be there still.
    Maybe,
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
    /// The ring has more than the step may have.
    more: bool,
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
    pub(super) fn restored(tails: Tails, losses: Vec<Loss>) -> Replay {
        let has_news = !losses.is_empty() || tails.iter().any(|(_, tail)| tail.lost.is_some());
        Replay { tails, losses, has_news, in_rings: InRings::Maybe, ..Replay::default() }
    }

    /// What is lost with a whole ring and has to be told still.
    pub(super) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Whether everything comes live.
    pub fn is_live(&self) -> bool {
        self.tails.is_empty()
    }

    /// The losses that go with a connect reply, in the batch of this number if the session acknowledges. A loss names a position, so one
    /// `waits` while earlier messages of its channel do: a later reply has it.
    pub(super) fn tell_losses(&mut self, batch: Option<u64>, waits: impl Fn(&str) -> bool) -> Vec<Loss> {
        let (held_back, mut told): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.losses).into_iter().partition(|loss| waits(&loss.name));
        self.has_news = !held_back.is_empty();
        self.losses = held_back;
        if let Some(batch) = batch {
            told.iter_mut().for_each(|loss| loss.told = loss.told.or(Some(batch)));
            self.losses.extend(told.iter().cloned());
        }
        let lost = self.tails.iter().filter_map(|(name, tail)| Some((name, tail, tail.lost?)));
        for (name, tail, (from, to)) in lost {
            if waits(name) {
                self.has_news = true;
            } else {
                told.push(tail.loss(name, from, Some(to)));
            }
        }
        told
    }

    /// Whether there are losses to tell.
    pub(super) fn has_losses(&self) -> bool {
        !self.losses.is_empty() || self.tails.iter().any(|(_, tail)| tail.lost.is_some())
    }

    /// The client has received this batch and all before it.
    pub(super) fn confirm(&mut self, batch: i64) {
        self.losses.retain(|loss| loss.told.is_none_or(|told| i64::try_from(told).is_ok_and(|told| told > batch)));
    }

    /// Whether something may be lost of which nothing was told yet.
    pub(super) fn has_news(&self) -> bool {
        self.has_news
    }
}

impl Shard {
    /// A session is too slow for live messages from this number on: it gets them out of the ring. False if it has as many channels to
    /// catch up with as it may.
    pub(super) fn fall_back(&mut self, key: SessionKey, channel: &str, position: &Position, number: u64) -> bool {
        let tails_max = self.tails_max();
        let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) else { return true };
        if let Some(tail) = replay.tails.get_mut(channel, position.ring.serial) {
            tail.go_to(if tail.open { tail.next.min(number) } else { number });
            tail.below = tail.below.min(number);
            tail.open = true;
            replay.tails.list(channel);
        } else if replay.tails.make_room(tails_max) {
            let tail = Tail::new(position.ring, position.epoch.clone(), number);
            if let Some(mut earlier) = replay.tails.insert(channel, tail).filter(|earlier| earlier.open) {
                // A ring of an earlier life of the channel, with something for the session: that is gone.
                replay.losses.push(earlier.lose_all(channel));
                replay.has_news = true;
            }
        } else {
            return false;
        }
        self.catch_up_later(key);
        true
    }

    /// Channels that a session may have to catch up with.
    pub(super) fn tails_max(&self) -> usize {
        self.settings.subscriptions_max + TAILS_MAX
    }

    /// The outbox of a session is full: what of it stands in a ring goes, and comes again from there. With `all` what has left its ring
    /// meanwhile goes, too: the session is told that it is lost. False if that is of too many channels.
    pub(super) fn spill(&mut self, key: SessionKey, all: bool) -> bool {
        self.withdraw_now(key);
        let Some(session) = self.sessions.get_mut(key) else { return true };
        let Some(replay) = &mut session.replay else { return true };
        if replay.in_rings == InRings::None || (replay.in_rings == InRings::Gone && !all) {
            return true;
        }
        let histories = &self.shared.histories;
        let mut rings: BTreeMap<String, Option<Spilled>> = BTreeMap::new();
        let mut stays = InRings::None;
        session.outbox.filter(|_, payload| {
            let Some((channel, bayeux::Position { epoch, offset: id })) = ext::position_of(payload) else {
                return true;
            };
            if !rings.contains_key(&*channel) {
                rings.insert(channel.to_string(), Spilled::of(histories, &channel, all));
            }
            let ring = rings.get_mut(&*channel).and_then(|ring| ring.as_mut());
            let Some(ring) = ring.filter(|ring| *ring.position.epoch == *epoch && id >= ring.from) else {
                stays = if all { InRings::None } else { InRings::Gone };
                return true;
            };
            // The loss that it reports goes with it, and is found again.
            ring.first = ring.first.min(ext::lost_from(payload).unwrap_or(id));
            false
        });
        replay.in_rings = stays;
        let rings = rings.into_iter().filter_map(|(channel, ring)| Some((channel, ring?)));
        let mut spilled = rings.filter(|(_, ring)| ring.first < u64::MAX);
        spilled.all(|(channel, Spilled { position, first, .. })| {
            // Of a channel that it has given up nothing comes again: the ring has also what came after.
            !self.hears(key, &channel, None) || self.fall_back(key, &channel, &position, first)
        })
    }

    /// Puts a session on the list of those who may go on to catch up, if it has to.
    pub(super) fn catch_up_later(&mut self, key: SessionKey) {
        if let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut())
            && (replay.tails.is_behind() || replay.has_news)
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
        if !session.replay.as_ref().is_some_and(|replay| replay.tails.is_behind()) || session.protocol.is_ending() {
            return;
        }
        let response_bytes_max = match session.carrier {
            Carrier::Requests => self.settings.response_bytes_max,
            Carrier::Socket(_) if !session.is_pushed_to() => SOCKET_BATCH_BYTES_MAX,
            Carrier::Socket(_) => return,
        };
        if session.is_given() && session.outbox.waiting_bytes() < response_bytes_max {
            self.refill(key);
        }
    }

    /// Puts as much out of the rings into an outbox, behind what waits there, as a step may have.
    fn refill(&mut self, key: SessionKey) {
        let Shard { sessions, hub, index, shared, metrics, scratch, own, capacity, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let mut step = Step::new(session, capacity);
        let Some(replay) = &mut session.replay else { return };
        let mut frames = Vec::new();
        while let Some((name, tail)) = replay.tails.first_ready() {
            let read = shared.histories.with(tail.ring, |ring| step.read(ring, tail));
            let found = read.unwrap_or_else(|| Found::nothing(&name, tail));
            metrics.positions_gone.add(usize::from(found.gap));
            found.write(&tail.epoch, scratch, &mut frames);
            replay.has_news |= found.gap;
            replay.losses.extend(found.loss);
            if found.more {
                break;
            }
            if let Some(tail) = replay.tails.pass_turn(*index)
                && let Some(channel) = hub.find(&name)
            {
                hub.set_heard(channel, Heard { serial: tail.ring.serial, epoch: tail.epoch, id: tail.next - 1 });
            }
        }
        metrics.replayed.add(step.taken_messages);
        if step.taken_messages > 0 {
            replay.in_rings = InRings::Maybe;
            let frames = own.encoded(&frames);
            session.outbox.push_many(&frames, Kind::Messages, step.taken_messages as u32);
            session.urgent = true;
        }
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
        let (messages, bytes) = (session.outbox.messages(), session.outbox.held_bytes());
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
        found.more = !is_done;
        tail.open = !is_done || tail.lost.is_some();
        found
    }
}

impl Found {
    /// The ring is gone with all that was in it.
    fn nothing(name: &str, tail: &mut Tail) -> Found {
        Found { gap: true, loss: Some(tail.lose_all(name)), ..Found::default() }
    }

    /// Appends the messages, each with its place, as a frame.
    fn write(&self, epoch: &str, scratch: &mut Vec<u8>, frames: &mut Vec<u8>) {
        let mut start = 0;
        for FoundMessage { id, wall_ms, end, lost } in &self.messages {
            let created = ext::timestamp(*wall_ms as i64);
            let position = bayeux::Position { epoch: epoch.into(), offset: *id };
            let stamp = PositionStamp { position, created: &created, lost: *lost };
            write_placed(&stamp, &self.texts[start..*end], scratch, frames);
            start = *end;
        }
    }
}

/// What a replay puts into an outbox at once, in bytes: half a millisecond of a fast network, and on a WebSocket with
/// acknowledgements one batch.
const STEP_BYTES: usize = 48 * 1024;
/// What telling the place of a message adds to it at most, in bytes, with its frame and a word about what was lost.
const PLACE_BYTES_MAX: usize = 320;
/// Channels that a session may have to catch up with, beside one for each subscription that it may have. One takes some 500 bytes.
const TAILS_MAX: usize = 4_096;

#[cfg(test)]
mod tests;
