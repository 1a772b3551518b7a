//! Replays messages of histories into outboxes, a step at a time. `flush` leads here when a session has nothing urgent
//! to write, and `connect` before a response is made. Fan-outs lead here when an outbox is full: its messages then go
//! back to the ring.

use std::collections::BTreeMap;

use bayeux::ext;
use bayeux::ext::PositionStamp;

use crate::channels::LastReceived;
use crate::events::SessionKey;
use crate::fanout::delivery::write_with_position;
use crate::history::{Histories, Position, Ring};
use crate::outbox::{Capacity, Kind};
use crate::sessions::cursors::ReplayCursor;
use crate::sessions::id::Id;
use crate::sessions::loss::Loss;
use crate::sessions::replay::InRings;
use crate::sessions::session::Session;
use crate::sessions::unacked::SOCKET_BATCH_BYTES_MAX;
use crate::shard::Parts;

impl Parts {
    /// Lets a session that is too slow for live messages read them out of the ring, from this offset on. Returns false
    /// if it already has as many cursors as it may.
    pub(crate) fn resort_to_history(
        &mut self,
        key: SessionKey,
        channel: &str,
        position: &Position,
        number: u64,
    ) -> bool {
        let cursors_max = self.cursors_max();
        let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) else { return true };
        if let Some(cursor) = replay.cursors.get_mut(channel, position.ring.serial) {
            cursor.go_to(if cursor.open { cursor.next.min(number) } else { number });
            cursor.below = cursor.below.min(number);
            cursor.open = true;
            replay.cursors.list(channel);
        } else if replay.cursors.make_room(cursors_max) {
            let cursor = ReplayCursor::new(position.ring, position.epoch.clone(), number);
            if let Some(mut earlier) = replay.cursors.insert(channel, cursor).filter(|earlier| earlier.open) {
                // This cursor belongs to an earlier ring of the channel, with messages for the session. They are gone.
                replay.losses.push(earlier.lose_all(channel));
                replay.has_news = true;
            }
        } else {
            return false;
        }
        self.replay_later(key);
        true
    }

    /// The most cursors that a session may have.
    pub(super) fn cursors_max(&self) -> usize {
        self.settings.given().subscriptions_max + CURSORS_MAX
    }

    /// Makes room in a full outbox: removes the messages that are still in a ring, which the session replays later.
    /// With `all` it also removes messages that have left their ring meanwhile; these are reported as lost. Returns
    /// false if the session would need too many cursors.
    pub(super) fn spill(&mut self, key: SessionKey, all: bool) -> bool {
        self.withdraw_now(key);
        let Some(session) = self.sessions.get_mut(key) else { return true };
        let Some(replay) = &mut session.replay else { return true };
        if replay.in_rings == InRings::None || (replay.in_rings == InRings::Gone && !all) {
            return true;
        }
        self.schedule.count_steps(session.outbox.messages());
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
            // A loss that the message reports is removed with it, and is found again.
            ring.first = ring.first.min(ext::lost_from(payload).unwrap_or(id));
            false
        });
        session.outbox.note_pass();
        replay.in_rings = stays;
        let rings = rings.into_iter().filter_map(|(channel, ring)| Some((channel, ring?)));
        let mut spilled = rings.filter(|(_, ring)| ring.first < u64::MAX);
        spilled.all(|(channel, Spilled { position, first, .. })| {
            // Messages of a channel that the session no longer subscribes to do not come again: the ring also has later
            // ones.
            !self.receives(key, &channel, None) || self.resort_to_history(key, &channel, &position, first)
        })
    }

    /// Fills the outbox of a session that gets messages with responses, before a response is made. It does so even if
    /// messages wait already: otherwise a channel with a message for each response would block all other channels. It
    /// adds no more than the response takes.
    pub(super) fn prime(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else { return };
        if !session.replay.as_ref().is_some_and(|replay| replay.cursors.is_behind()) || session.protocol.is_ending() {
            return;
        }
        let response_bytes_max = match session.socket() {
            None => self.settings.given().response_bytes_max,
            Some(_) if session.is_pushed_to() => return,
            Some(_) => SOCKET_BATCH_BYTES_MAX,
        };
        if session.may_send(session.socket()) && session.outbox.waiting_bytes() < response_bytes_max {
            self.refill(key);
        }
    }

    /// Moves one step of messages out of the rings to the end of an outbox.
    pub(super) fn refill(&mut self, key: SessionKey) {
        let Parts { sessions, channels, index, shared, metrics, fanout, settings, schedule, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let mut step = Step::new(session, settings.capacity());
        let Some(replay) = &mut session.replay else { return };
        let mut frames = Vec::new();
        while let Some((name, cursor)) = replay.cursors.first_ready() {
            let read = shared.histories.with(cursor.ring, |ring| step.read(ring, cursor));
            let found = read.unwrap_or_else(|| Found::nothing(&name, cursor));
            metrics.positions_gone.add(usize::from(found.gap));
            found.write(&cursor.epoch, &mut fanout.encoder.scratch, &mut frames);
            replay.has_news |= found.gap;
            replay.losses.extend(found.loss);
            if found.more {
                break;
            }
            if let Some(cursor) = replay.cursors.pass_turn(*index) {
                let received = LastReceived { serial: cursor.ring.serial, epoch: cursor.epoch, id: cursor.next - 1 };
                channels.note_received(&name, received);
            }
        }
        metrics.replayed.add(step.taken_messages);
        schedule.count_steps(1 + step.taken_messages);
        if step.taken_messages > 0 {
            replay.in_rings = InRings::Maybe;
            let frames = fanout.encoder.copy_single(&frames);
            session.outbox.push_many(&frames, Kind::Messages, step.taken_messages as u32);
            session.urgent = true;
        }
    }
}

/// One step of a session's replay, and its progress.
struct Step {
    own: Id,
    /// The most bytes that a single message may have.
    message_bytes_max: usize,
    /// The room in the outbox.
    bytes_max: usize,
    /// The most bytes of a step, unless a single message has more.
    fair_bytes: usize,
    messages_max: usize,
    taken_bytes: usize,
    taken_messages: usize,
}

/// A ring that takes over messages of a full outbox.
struct Spilled {
    position: Position,
    /// The offset from which on the ring takes messages over.
    from: u64,
    /// The lowest offset of the removed messages.
    first: u64,
}

/// The result of reading a ring for a step.
#[derive(Default)]
struct Found {
    messages: Vec<FoundMessage>,
    texts: Vec<u8>,
    /// True if messages were missing.
    gap: bool,
    /// The loss, if the whole ring was gone.
    loss: Option<Loss>,
    /// True if the ring has more messages than the step may take.
    more: bool,
}

/// A message that was read.
struct FoundMessage {
    id: u64,
    wall_ms: u64,
    /// The end of its text in [`Found::texts`].
    end: usize,
    /// The offsets lost before it.
    lost: Option<(u64, u64)>,
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

    /// True if a message of this many bytes fits into the step. The first message always does, if the outbox has room.
    fn takes(&self, bytes: usize) -> bool {
        let fair = self.taken_messages == 0 || self.taken_bytes + bytes <= self.fair_bytes;
        fair && self.taken_bytes + bytes <= self.bytes_max && self.taken_messages < self.messages_max
    }

    /// Reads on from a cursor. Texts are only copied, because the ring's lock is held meanwhile.
    fn read(&mut self, ring: &Ring, cursor: &mut ReplayCursor) -> Found {
        let mut found = Found::default();
        if ring.oldest() > cursor.next {
            found.gap = true;
            cursor.lose(ring.oldest() - 1);
        }
        let mut is_done = true;
        for entry in ring.from(cursor.next) {
            let bytes = entry.text.len() + POSITION_BYTES_MAX;
            if bytes > self.message_bytes_max {
                found.gap = true;
                cursor.lose(entry.number);
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
                let (end, lost) = (found.texts.len(), cursor.lost.take());
                found.messages.push(FoundMessage { id: entry.number, wall_ms: entry.wall_ms, end, lost });
            }
            cursor.next = entry.number + 1;
        }
        if is_done {
            // The offsets after the last message may have a gap.
            cursor.next = ring.next();
        }
        found.more = !is_done;
        cursor.open = !is_done || cursor.lost.is_some();
        found
    }
}

impl Found {
    /// The result if the ring is gone with all its messages.
    fn nothing(name: &str, cursor: &mut ReplayCursor) -> Found {
        Found { gap: true, loss: Some(cursor.lose_all(name)), ..Found::default() }
    }

    /// Appends the messages, each with its position, as frames.
    fn write(&self, epoch: &str, scratch: &mut Vec<u8>, frames: &mut Vec<u8>) {
        let mut start = 0;
        for FoundMessage { id, wall_ms, end, lost } in &self.messages {
            let created = ext::timestamp(*wall_ms as i64);
            let position = bayeux::Position { epoch: epoch.into(), offset: *id };
            let stamp = PositionStamp { position, created: &created, lost: *lost };
            write_with_position(&stamp, &self.texts[start..*end], scratch, frames);
            start = *end;
        }
    }
}

/// The most bytes that a step puts into an outbox: half a millisecond of a fast network, and one batch on a WebSocket
/// with acknowledgements.
const STEP_BYTES: usize = 48 * 1024;

/// The most bytes that a position adds to a message, with the frame header and a loss.
const POSITION_BYTES_MAX: usize = 320;

/// The number of cursors that a session may have beside one for each subscription. A cursor takes some 500 bytes.
const CURSORS_MAX: usize = 4_096;
