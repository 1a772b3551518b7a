//! Replays messages of histories into outboxes, a step at a time: when a session has nothing urgent to write, and before
//! a response is made. If an outbox is full, its messages go back to the ring.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayeux::ext::{PositionForm, PositionStamp};
use bayeux::{ChannelName, ext};

use crate::channels::LastReceived;
use crate::delivery::encoder::write_with_position;
use crate::delivery::outbox::{InFlight, Kind, Outbox};
use crate::delivery::sessions::cursors::ReplayCursor;
use crate::delivery::sessions::loss::Loss;
use crate::delivery::sessions::replay::{InRings, Replay};
use crate::delivery::sessions::session::Session;
use crate::delivery::sessions::unacked::SOCKET_BATCH_BYTES_MAX;
use crate::delivery::{Delivery, GivenUp, Receives, Socket};
use crate::events::SessionKey;
use crate::history::{Gap, Histories, Position, Ring, RingKey};
use crate::id::Id;
use crate::limits::Capacity;

/// A channel that a session has replayed to its end, and how far that is: it gets the live messages from there on.
pub(crate) type CaughtUp = (Box<str>, LastReceived);

impl Delivery {
    /// Lets a session that is too slow for live messages read them out of the ring, from this offset on. Returns false
    /// if it already has as many cursors as it may.
    pub(crate) fn resort_to_history(
        &mut self,
        key: SessionKey,
        channel: &str,
        position: &Position,
        offset: u64,
    ) -> bool {
        let cursors_max = self.cursors_max();
        let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) else { return true };
        if let Some(cursor) = replay.cursors.get_mut(channel, position.ring.serial) {
            cursor.go_to(if cursor.open { cursor.next.min(offset) } else { offset });
            cursor.below = cursor.below.min(offset);
            cursor.open = true;
            replay.cursors.list(channel);
        } else if replay.cursors.make_room(cursors_max) {
            let cursor = ReplayCursor::new(position.ring, position.epoch.clone(), offset);
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

    /// Lets a session that follows a channel read on in its ring behind a gap. Its cursor finds the loss there.
    pub(crate) fn lose(&mut self, session: u32, gap: &Gap) -> Result<(), GivenUp> {
        let Gap { channel, position, from } = gap;
        let state = self.sessions.at(session);
        let key = state.key(session);
        let Some(replay) = state.replay.as_mut() else { return Ok(()) };
        let cursor = replay.cursors.get_mut(channel, position.ring.serial);
        let is_behind = cursor.is_none_or(|cursor| cursor.next <= *from);
        // A session that reads the channels of a pattern page by page comes to this one later.
        let follows = is_behind && !replay.withholds(ChannelName::known(channel));
        if !follows || self.resort_to_history(key, channel, position, *from) {
            return Ok(());
        }
        self.give_up(key, channel)
    }

    /// The most cursors that a session may have.
    fn cursors_max(&self) -> usize {
        self.settings.subscriptions_max + CURSORS_MAX
    }

    /// Makes room in a full outbox: removes the messages that are still in a ring, which the session replays later.
    /// With `all` it also removes messages that have left their ring meanwhile; these are reported as lost. Returns
    /// false if the session would need too many cursors.
    pub(super) fn spill(&mut self, key: SessionKey, all: bool, receives: Receives<'_>) -> bool {
        self.withdraw_now(key);
        let Some(session) = self.sessions.get_mut(key) else { return true };
        let Some(replay) = &mut session.replay else { return true };
        if replay.in_rings == InRings::None || (replay.in_rings == InRings::Gone && !all) {
            return true;
        }
        self.schedule.count_steps(session.outbox.messages());
        let histories = &self.histories;
        let mut rings: BTreeMap<String, Option<Spilled>> = BTreeMap::new();
        let mut stays = InRings::None;
        session.outbox.filter(|_, payload| {
            let Some((channel, bayeux::Position { epoch, offset })) = ext::position_of(payload) else {
                return true;
            };
            if !rings.contains_key(&*channel) {
                rings.insert(channel.to_string(), Spilled::of(histories, &channel, all));
            }
            let ring = rings.get_mut(&*channel).and_then(|ring| ring.as_mut());
            let Some(ring) = ring.filter(|ring| *ring.position.epoch == *epoch && offset >= ring.from) else {
                stays = if all { InRings::None } else { InRings::Gone };
                return true;
            };
            // A loss that the message reports is removed with it, and is found again.
            ring.first = ring.first.min(ext::lost_from(payload).unwrap_or(offset));
            false
        });
        session.outbox.note_pass();
        replay.in_rings = stays;
        let rings = rings.into_iter().filter_map(|(channel, ring)| Some((channel, ring?)));
        let mut spilled = rings.filter(|(_, ring)| ring.first < u64::MAX);
        spilled.all(|(channel, Spilled { position, first, .. })| {
            // Messages of a channel that the session no longer subscribes to do not come again: the ring also has later
            // ones.
            !receives(key, &channel) || self.resort_to_history(key, &channel, &position, first)
        })
    }

    /// Fills the outbox of a session that gets messages with responses, before a response is made. It does so even if
    /// messages wait already: otherwise a channel with a message for each response would block all other channels. It
    /// adds no more than the response takes. Returns the channels that it has replayed.
    pub(crate) fn prime(&mut self, key: SessionKey) -> Vec<CaughtUp> {
        let Some(session) = self.sessions.get(key) else { return Vec::new() };
        if !session.replay.as_ref().is_some_and(|replay| replay.is_behind()) || session.protocol.is_ending() {
            return Vec::new();
        }
        let response_bytes_max = match session.socket() {
            None => self.settings.response_bytes_max,
            Some(_) if session.is_pushed_to() => return Vec::new(),
            Some(_) => SOCKET_BATCH_BYTES_MAX,
        };
        let has_room = session.may_send(session.socket()) && session.outbox.waiting_bytes() < response_bytes_max;
        if has_room { self.refill(key) } else { Vec::new() }
    }

    /// The owner of rings of which nothing is on its way to this shard: the shard itself, which fans out what it appends. None in a
    /// cluster: its node appends to all rings, and sends the messages to the shards later.
    fn settled_owner(&self) -> Option<usize> {
        (!self.histories.is_mirrored()).then_some(self.index)
    }

    /// Moves one step of messages out of the rings to the end of an outbox.
    pub(super) fn refill(&mut self, key: SessionKey) -> Vec<CaughtUp> {
        let (mut caught_up, settled) = (Vec::new(), self.settled_owner());
        let Delivery { sessions, histories, metrics, encoder, capacity, schedule, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return caught_up };
        let mut step = Step::new(session, capacity);
        let Some(replay) = &mut session.replay else { return caught_up };
        let mut frames = Vec::new();
        while let Some((name, cursor)) = replay.cursors.first_ready() {
            let read = histories.with(cursor.ring, |ring| step.read(ring, cursor));
            let found = read.unwrap_or_else(|| Found::nothing(&name, cursor));
            metrics.positions_gone.add(usize::from(found.gap));
            found.write(&cursor.epoch, replay.form, &mut encoder.scratch, &mut frames);
            if !frames.is_empty() {
                let messages = encoder.messages_for_one(&frames, found.compresses);
                session.outbox.push_many(&messages, Kind::Messages, found.messages.len() as u32);
                frames.clear();
            }
            replay.has_news |= found.gap;
            replay.losses.extend(found.loss);
            if found.more {
                break;
            }
            caught_up.extend(replay.cursors.pass_turn(settled).map(|ReplayCursor { ring, epoch, next, .. }| {
                (name, LastReceived { serial: ring.serial, epoch, offset: next - 1 })
            }));
        }
        metrics.replayed.add(step.taken_messages);
        schedule.count_steps(1 + step.taken_messages);
        if step.taken_messages > 0 {
            replay.in_rings = InRings::Maybe;
            session.urgent = true;
        }
        caught_up
    }

    /// Schedules a session to replay more, if it has something to replay.
    pub(crate) fn replay_later(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key)
            && session.may_replay()
        {
            self.schedule.replay(key, &mut session.marks);
        }
    }

    /// Lets a session use replay from now on, with positions in this form.
    pub(crate) fn start_replaying(&mut self, key: SessionKey, form: PositionForm) {
        self.set_replay(key, Replay { form, ..Replay::default() });
    }

    /// Gives a session, which does not use replay yet, its state.
    pub(super) fn set_replay(&mut self, key: SessionKey, replay: Replay) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        self.forms[replay.form as usize] += 1;
        session.replay = Some(Box::new(replay));
    }

    /// Lets a session continue at a position of a channel. Live messages that it gets already, and those below `from` of
    /// an older subscription, are left out or delivered as [`Beginning`] says.
    pub(crate) fn begin_replay(&mut self, key: SessionKey, channel: &str, at: &Beginning) -> Begun {
        let (cursors_max, settled) = (self.cursors_max(), self.settled_owner());
        let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) else {
            return Begun::Gone;
        };
        let Beginning { ring, ref epoch, from, next, continues, lost } = *at;
        replay.has_news |= lost.is_some();
        if let Some(cursor) = replay.cursors.get_mut(channel, ring.serial) {
            let from = if continues { from.min(cursor.next) } else { from };
            let below = if continues { cursor.below.min(from) } else { 0 };
            // A cursor that continues still reports its losses.
            cursor.lost = lost.or(cursor.lost.filter(|_| continues));
            cursor.go_to(from);
            (cursor.below, cursor.open) = (below, true);
            replay.cursors.list(channel);
        } else if from == next && Some(ring.owner()) == settled && lost.is_none() {
            // Nothing is on its way: all later messages are new.
            return Begun::AtEnd;
        } else if !replay.cursors.make_room(cursors_max) {
            return Begun::TooMany;
        } else {
            let below = if continues { from } else { 0 };
            let open = from < next || lost.is_some();
            let cursor = ReplayCursor { below, open, lost, ..ReplayCursor::new(ring, epoch.clone(), from) };
            replay.cursors.insert(channel, cursor);
        }
        self.replay_later(key);
        Begun::Cursor
    }

    /// The bytes of the messages that wait for a session, or may come back.
    pub(crate) fn waiting_bytes(&self, key: SessionKey) -> usize {
        let Some(session) = self.sessions.get(key) else { return 0 };
        let waiting = session.outbox.held_bytes() + session.handed_out().map(InFlight::bytes).sum::<usize>();
        let on_socket = session.socket_with_messages().and_then(|socket| self.socket(socket));
        waiting + on_socket.and_then(Socket::out).map_or(0, Outbox::held_bytes)
    }

    /// The channels with a cursor that a pattern, or a channel's own name, covers.
    pub(crate) fn replayed(&self, key: SessionKey, name: ChannelName<'_>, limits: &bayeux::Limits) -> Vec<Box<str>> {
        let replay = self.sessions.get(key).and_then(|session| session.replay.as_ref());
        replay.map(|replay| replay.cursors.covered(name, limits)).unwrap_or_default()
    }

    /// Ends the replay of a channel that a session no longer receives.
    pub(crate) fn end_replay(&mut self, key: SessionKey, channel: &str) {
        let settled = self.settled_owner();
        if let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()) {
            replay.cursors.close(channel, settled);
        }
    }

    /// True if a session that replays could leave most of its queue to the histories that contain it, or is gone.
    pub(crate) fn resorts_to_histories(&mut self, key: SessionKey, receives: Receives<'_>) -> bool {
        let Some(session) = self.sessions.get(key) else { return true };
        let before = session.share_bytes();
        let replays = session.replay.as_ref().is_some_and(|replay| replay.in_rings == InRings::Maybe);
        let spilled = replays && self.spill(key, false, receives);
        spilled && self.sessions.get(key).is_none_or(|session| session.share_bytes() < before / 4)
    }
}

/// The position in a channel's history at which a session begins.
pub(crate) struct Beginning {
    pub(crate) ring: RingKey,
    pub(crate) epoch: Arc<str>,
    /// The offset of the first message to replay.
    pub(crate) from: u64,
    /// The offset of the next message that the ring gets.
    pub(crate) next: u64,
    /// True if the session gets the channel by another subscription already, and has named no position.
    pub(crate) continues: bool,
    /// Messages before it that the session has lost and that no reply reports, as the first and the last offset.
    pub(crate) lost: Option<(u64, u64)>,
}

/// The result of [`Delivery::begin_replay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// The session is gone, or does not replay.
    Gone,
    /// Nothing is to be replayed: the session gets live messages from here on.
    AtEnd,
    /// It has a cursor.
    Cursor,
    /// It has as many cursors as it may.
    TooMany,
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
    /// True if the channel compresses.
    compresses: bool,
}

/// A message that was read.
struct FoundMessage {
    offset: u64,
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
        let mut found = Found { compresses: ring.compresses(), ..Found::default() };
        if ring.oldest() > cursor.next {
            found.gap = true;
            cursor.lose(ring.oldest() - 1);
        }
        let mut is_done = true;
        for entry in ring.from(cursor.next) {
            let bytes = entry.text.len() + POSITION_BYTES_MAX;
            if bytes > self.message_bytes_max {
                found.gap = true;
                cursor.lose(entry.offset);
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
                found.messages.push(FoundMessage { offset: entry.offset, wall_ms: entry.wall_ms, end, lost });
            }
            cursor.next = entry.offset + 1;
        }
        if is_done {
            // The offsets after the last message may have a gap.
            cursor.next = cursor.next.max(ring.next());
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
    fn write(&self, epoch: &str, form: PositionForm, scratch: &mut Vec<u8>, frames: &mut Vec<u8>) {
        let mut start = 0;
        for FoundMessage { offset, wall_ms, end, lost } in &self.messages {
            let created = ext::timestamp(*wall_ms as i64);
            let position = bayeux::Position { epoch: epoch.into(), offset: *offset };
            let stamp = PositionStamp { position, created: &created, lost: *lost };
            write_with_position(&stamp, &self.texts[start..*end], form, scratch, frames);
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
