use std::collections::BTreeMap;

use bayeux::ext;
use bayeux::ext::PositionStamp;

use crate::channels::hub::LastReceived;
use crate::events::SessionKey;
use crate::fanout::delivery::write_with_position;
use crate::history::{Histories, Position, Ring};
use crate::outbox::{Capacity, Kind};
use crate::sessions::cursors::ReplayCursor;
use crate::sessions::id::Id;
use crate::sessions::loss::Loss;
use crate::sessions::replay::InRings;
use crate::sessions::session::{Attachment, Session};
use crate::sessions::unacked::SOCKET_BATCH_BYTES_MAX;
use crate::shard::Shard;

impl Shard {
    /// A session is too slow for live messages from this number on: it gets them out of the ring. False if it has as many channels to
    /// catch up with as it may.
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
                // A ring of an earlier life of the channel, with something for the session: that is gone.
                replay.losses.push(earlier.lose_all(channel));
                replay.has_news = true;
            }
        } else {
            return false;
        }
        self.replay_later(key);
        true
    }

    /// Channels that a session may have to catch up with.
    pub(super) fn cursors_max(&self) -> usize {
        self.settings.subscriptions_max + CURSORS_MAX
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
            !self.hears(key, &channel, None) || self.resort_to_history(key, &channel, &position, first)
        })
    }

    /// Fills the outbox of a session that gets messages with responses, before one is made. Whatever waits already: else a channel that
    /// has something for each response would keep all others waiting. Not more than goes out with that response.
    pub(super) fn prime(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else { return };
        if !session.replay.as_ref().is_some_and(|replay| replay.cursors.is_behind()) || session.protocol.is_ending() {
            return;
        }
        let response_bytes_max = match session.attachment {
            Attachment::Requests => self.settings.response_bytes_max,
            Attachment::Socket(_) if !session.is_pushed_to() => SOCKET_BATCH_BYTES_MAX,
            Attachment::Socket(_) => return,
        };
        if session.is_given() && session.outbox.waiting_bytes() < response_bytes_max {
            self.refill(key);
        }
    }

    /// Puts as much out of the rings into an outbox, behind what waits there, as a step may have.
    pub(super) fn refill(&mut self, key: SessionKey) {
        let Shard { sessions, hub, index, shared, metrics, scratch, own, capacity, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let mut step = Step::new(session, capacity);
        let Some(replay) = &mut session.replay else { return };
        let mut frames = Vec::new();
        while let Some((name, cursor)) = replay.cursors.first_ready() {
            let read = shared.histories.with(cursor.ring, |ring| step.read(ring, cursor));
            let found = read.unwrap_or_else(|| Found::nothing(&name, cursor));
            metrics.positions_gone.add(usize::from(found.gap));
            found.write(&cursor.epoch, scratch, &mut frames);
            replay.has_news |= found.gap;
            replay.losses.extend(found.loss);
            if found.more {
                break;
            }
            if let Some(cursor) = replay.cursors.pass_turn(*index)
                && let Some(channel) = hub.find(&name)
            {
                hub.set_last_received(
                    channel,
                    LastReceived { serial: cursor.ring.serial, epoch: cursor.epoch, id: cursor.next - 1 },
                );
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
    fn read(&mut self, ring: &Ring, cursor: &mut ReplayCursor) -> Found {
        let mut found = Found::default();
        if ring.oldest() > cursor.next {
            found.gap = true;
            cursor.lose(ring.oldest() - 1);
        }
        let mut is_done = true;
        for entry in ring.from(cursor.next) {
            let bytes = entry.text.len() + PLACE_BYTES_MAX;
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
            // The numbers behind the last message may have jumped.
            cursor.next = ring.next();
        }
        found.more = !is_done;
        cursor.open = !is_done || cursor.lost.is_some();
        found
    }
}

impl Found {
    /// The ring is gone with all that was in it.
    fn nothing(name: &str, cursor: &mut ReplayCursor) -> Found {
        Found { gap: true, loss: Some(cursor.lose_all(name)), ..Found::default() }
    }

    /// Appends the messages, each with its place, as a frame.
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

/// What a replay puts into an outbox at once, in bytes: half a millisecond of a fast network, and on a WebSocket with
/// acknowledgements one batch.
const STEP_BYTES: usize = 48 * 1024;

/// What telling the place of a message adds to it at most, in bytes, with its frame and a word about what was lost.
const PLACE_BYTES_MAX: usize = 320;

/// Channels that a session may have to catch up with, beside one for each subscription that it may have. One takes some 500 bytes.
const CURSORS_MAX: usize = 4_096;
