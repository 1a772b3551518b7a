//! Delivery to sessions that need more than the hot loop: full outboxes, replaying sessions, and messages for a single
//! session. A full outbox falls back on histories, or drops messages by the channel's policy. If neither makes room, the
//! session is given up.

use crate::delivery::Delivery;
use crate::delivery::fan_out::{FanOut, Manner, Positioned};
use crate::delivery::outbox::arena::Frames;
use crate::delivery::outbox::{Kind, Latest, Outbox, singly};
use crate::delivery::schedule::Queue;
use crate::delivery::sessions::replay::InRings;
use crate::delivery::sessions::session::Session;
use crate::events::{SessionKey, SocketKey};
use crate::history::Position;
use crate::settings::SlowConsumer;

/// A session or a socket that takes too little. Its owner ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum GivenUp {
    /// A session whose outbox is full.
    Session(SessionKey),
    /// A WebSocket whose client sends requests and does not read the replies.
    Socket(SocketKey),
}

/// True if a session still receives a channel.
pub(crate) type Receives<'a> = &'a dyn Fn(SessionKey, &str) -> bool;

impl Delivery {
    /// Delivers a message to a single session.
    pub(crate) fn deliver_to(
        &mut self,
        key: SessionKey,
        frames: &Frames,
        policy: SlowConsumer,
        receives: Receives<'_>,
    ) -> Result<(), GivenUp> {
        let Some(session) = self.sessions.get_mut(key) else { return Ok(()) };
        if session.outbox.is_full(1, frames.bytes(), &self.capacity) {
            let room = self.capacity;
            let manner = Manner { except: None, lazy_due_ms: None, active_ms: None, room, policy };
            return self.too_slow(key, "", frames, &manner, receives);
        }
        session.outbox.push(frames, Kind::Messages);
        session.make_urgent(key.index, &mut self.schedule);
        Ok(())
    }

    /// True if the outbox of a session has room for one more message of this many bytes.
    pub(crate) fn has_room(&self, key: SessionKey, bytes: usize) -> bool {
        self.sessions.get(key).is_some_and(|session| !session.outbox.is_full(1, bytes, &self.capacity))
    }

    /// Delivers to sessions whose outboxes have no room for all of the messages, one message at a time.
    pub(super) fn overflow(
        &mut self,
        full: &[SessionKey],
        fan_out: &FanOut<'_>,
        manner: &Manner,
        receives: Receives<'_>,
        given_up: &mut Vec<GivenUp>,
    ) {
        let (frames, channel) = (singly(fan_out.frames), fan_out.channel.as_str());
        self.schedule.count_steps(full.len() * frames.len());
        for key in full {
            let mut frames = frames.iter();
            given_up.extend(frames.find_map(|frame| self.too_slow(*key, channel, frame, manner, receives).err()));
        }
    }

    /// Gives up a session that is too slow. No loss is silent: the client finds its session unknown and starts a new one.
    pub(crate) fn give_up(&self, key: SessionKey, channel: &str) -> Result<(), GivenUp> {
        let Some(session) = self.sessions.get(key) else { return Ok(()) };
        tracing::info!(session = ?session.id, channel, messages = session.outbox.messages(),
            bytes = session.outbox.bytes(), "slow consumer: session ended");
        Err(GivenUp::Session(key))
    }

    /// Notes that a session has got a message: one to send at once, or a lazy one that is due later.
    fn has_message(&mut self, key: SessionKey, lazy_due_ms: Option<u64>) {
        if lazy_due_ms.is_some() {
            self.wait_lazily(key, lazy_due_ms);
        } else if let Some(session) = self.sessions.get_mut(key) {
            session.make_urgent(key.index, &mut self.schedule);
        }
    }

    /// Notes that a session has got a lazy message.
    pub(super) fn wait_lazily(&mut self, key: SessionKey, due_ms: Option<u64>) {
        if let Some(session) = self.sessions.get_mut(key)
            && !session.urgent
        {
            session.lazy_due_ms = session.lazy_due_ms.min(due_ms.unwrap_or(u64::MAX));
            self.arm(key);
        }
    }

    /// Delivers to a session whose outbox is full, or fuller than the channel's rule allows: makes room by the channel's
    /// policy. If the outbox stays full, gives the session up.
    fn too_slow(
        &mut self,
        key: SessionKey,
        channel: &str,
        frames: &Frames,
        manner: &Manner,
        receives: Receives<'_>,
    ) -> Result<(), GivenUp> {
        let Some(session) = self.sessions.get(key) else { return Ok(()) };
        let Manner { lazy_due_ms, room, .. } = manner;
        // A session that acknowledges was promised every message. It ends rather than lose one.
        let policy = if session.unacked().is_some() { SlowConsumer::Disconnect } else { manner.policy };
        if policy == SlowConsumer::KeepLatest {
            return self.push_latest(key, *lazy_due_ms, channel, frames, receives);
        }
        let drops = policy == SlowConsumer::DropOldest;
        let bytes = frames.bytes();
        for all in [false, true] {
            let makes_room = self.sessions.get(key).is_some_and(|Session { outbox, .. }| {
                outbox.is_full(1, bytes, &self.capacity) || (drops && outbox.is_full(1, bytes, room))
            });
            if makes_room && !self.spill(key, all, receives) {
                // A policy that dropped messages of histories would lose them silently.
                return self.give_up(key, channel);
            }
        }
        let Some(session) = self.sessions.get_mut(key) else { return Ok(()) };
        let drops = drops && session.outbox.is_full(1, bytes, room);
        let dropped = if drops { session.outbox.drop_oldest(bytes, room) } else { 0 };
        self.schedule.count_steps(1 + dropped);
        self.metrics.slow_dropped.add(dropped);
        if session.outbox.is_full(1, bytes, &self.capacity) {
            return self.give_up(key, channel);
        }
        if dropped > 0 {
            tracing::debug!(session = ?session.id, channel, dropped, "slow consumer: messages dropped");
        }
        session.outbox.push(frames, Kind::Messages);
        self.has_message(key, *lazy_due_ms);
        Ok(())
    }

    /// Queues a message under `keep-latest`. Messages that it supersedes are removed by the next pass. Until then an
    /// outbox may hold twice its capacity: no more can arrive between two complete flushes, and these complete the
    /// passes. If more comes in one event, that pays for a pass.
    fn push_latest(
        &mut self,
        key: SessionKey,
        lazy_due_ms: Option<u64>,
        channel: &str,
        frames: &Frames,
        receives: Receives<'_>,
    ) -> Result<(), GivenUp> {
        self.schedule.count_steps(1);
        let Some(session) = self.sessions.get_mut(key) else { return Ok(()) };
        let is_short = session.outbox.is_short();
        let is_full = session.outbox.is_full(1, frames.bytes(), &self.capacity.twice());
        if session.outbox.has_outgrown_its_pass() {
            self.schedule.pass_over(key, &mut session.marks);
        }
        session.outbox.push(frames, Kind::Messages);
        self.has_message(key, lazy_due_ms);
        if is_short || is_full { self.pass_over_now(key, channel, receives) } else { Ok(()) }
    }

    /// Removes all but the latest message of each channel that waits for a session.
    fn pass_over_now(&mut self, key: SessionKey, channel: &str, receives: Receives<'_>) -> Result<(), GivenUp> {
        if !self.spill(key, true, receives) {
            return self.give_up(key, channel);
        }
        let Some(session) = self.sessions.get_mut(key) else { return Ok(()) };
        let mut pass = Latest::default();
        let (steps, _) = session.outbox.keep_latest(&mut pass, usize::MAX);
        self.schedule.count_steps(steps);
        self.passed_over(key, &pass, channel)
    }

    /// Passes over a part of a queue that has grown. None if no queue waits for that.
    pub(crate) fn pass_over(&mut self, receives: Receives<'_>) -> Option<Result<(), GivenUp>> {
        let key = self.schedule.current_pass()?;
        if self.pass.is_new() && !self.spill(key, true, receives) {
            return Some(self.give_up(key, ""));
        }
        let Some(session) = self.sessions.get_mut(key) else {
            self.pass = Latest::default();
            self.schedule.end_pass();
            return Some(Ok(()));
        };
        let (steps, is_over) = session.outbox.keep_latest(&mut self.pass, PASS_STEPS);
        self.schedule.count_steps(steps);
        if !is_over {
            return Some(Ok(()));
        }
        session.marks.leave(Queue::Passes);
        self.schedule.end_pass();
        let pass = std::mem::take(&mut self.pass);
        Some(self.passed_over(key, &pass, ""))
    }

    /// Acts on a complete pass: gives the session up if it waits for more channels than its outbox may hold messages.
    fn passed_over(&mut self, key: SessionKey, pass: &Latest, channel: &str) -> Result<(), GivenUp> {
        let Some(session) = self.sessions.get(key) else { return Ok(()) };
        self.metrics.slow_dropped.add(pass.dropped);
        if pass.dropped > 0 {
            tracing::debug!(session = ?session.id, channel, pass.dropped, "slow consumer: messages dropped");
        }
        if session.outbox.exceeds(pass, &self.capacity) { self.give_up(key, channel) } else { Ok(()) }
    }

    /// Delivers to one session the live messages that the ring does not give it.
    pub(super) fn deliver_specially(
        &mut self,
        key: SessionKey,
        fan_out: &FanOut<'_>,
        position: &Position,
        positioned: &Positioned,
        manner: &Manner,
        receives: Receives<'_>,
    ) -> Result<(), GivenUp> {
        let (name, messages) = (fan_out.channel.as_str(), fan_out.messages);
        let Some(session) = self.sessions.get_mut(key) else { return Ok(()) };
        let Some(replay) = &mut session.replay else {
            if session.outbox.is_full(messages as usize, fan_out.frames.bytes(), &manner.room) {
                let mut given_up = Vec::new();
                self.overflow(&[key], fan_out, manner, receives, &mut given_up);
                return given_up.pop().map_or(Ok(()), Err);
            }
            self.push_now(key, (fan_out.frames, messages), manner);
            return Ok(());
        };
        if replay.withholds(fan_out.channel) {
            return Ok(());
        }
        let with_positions = positioned.for_replay(replay);
        let (lead, skip) = replay.cursors.share(name, position.ring.serial, position.first, messages);
        if lead.max(skip) > 0 {
            self.replay_later(key);
        }
        for part in [0..lead, skip.max(lead)..messages] {
            let first = position.first + u64::from(part.start);
            let count = part.len() as u32;
            let Some(frames) = part_of(with_positions, messages, part) else { continue };
            let Some(session) = self.sessions.get_mut(key) else { return Ok(()) };
            let fits = |room| !session.outbox.is_full(count as usize, frames.bytes(), room);
            let is_full = !fits(&self.capacity);
            // The policy would drop older messages silently. A ring reports those that it does not retain.
            let has_room = session.unacked().is_some() || session.outbox.messages() == 0 || fits(&manner.room);
            if is_full || !has_room {
                // The ring has the messages, too. The session continues from there later, so no policy for slow
                // consumers is needed. The messages that have arrived since the last search pay for the next one.
                let is_searched = session.outbox.is_short() || session.outbox.has_outgrown_its_pass();
                let stays = is_full || !is_searched || self.spill(key, true, receives);
                let goes_on = stays && self.resort_to_history(key, name, position, first);
                return if goes_on { Ok(()) } else { self.give_up(key, name) };
            }
            if let Some(replay) = &mut session.replay {
                replay.in_rings = InRings::Maybe;
            }
            self.push_now(key, (&frames, count), manner);
        }
        Ok(())
    }

    /// Queues messages for which there is room.
    fn push_now(&mut self, key: SessionKey, (frames, messages): (&Frames, u32), manner: &Manner) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.outbox.push_many(frames, Kind::Messages, messages);
        session.active_ms = manner.active_ms.unwrap_or(session.active_ms);
        self.has_message(key, manner.lazy_due_ms);
    }

    /// Notes who is behind. Returns true if some readers are.
    pub(crate) fn has_readers_behind(&mut self) -> bool {
        self.backpressure.has_readers(&mut self.sessions, &self.capacity, self.now)
    }

    /// Forgets the readers that have caught up, before everybody gets more.
    pub(crate) fn forget_who_caught_up(&mut self) {
        self.backpressure.forget_who_caught_up(&mut self.sessions, &self.capacity, self.now);
    }

    /// Frees a queue: now if it is short, else in parts.
    pub(super) fn discard(&mut self, queue: Outbox) {
        let steps = self.waste.add(queue);
        self.schedule.count_steps(steps);
    }
}

/// The number of steps of a pass between two looks at the time: half a millisecond of work.
const PASS_STEPS: usize = 4_096;

/// A part of several frames. None if the range is empty.
fn part_of(frames: &Frames, messages: u32, part: std::ops::Range<u32>) -> Option<Frames> {
    if part.is_empty() {
        return None;
    }
    if part.len() as u32 == messages {
        return Some(frames.clone());
    }
    let singly = singly(frames);
    let (first, last) = (singly.get(part.start as usize)?, singly.get(part.end as usize - 1)?);
    Some(Frames { chunk: frames.chunk.clone(), start: first.start, end: last.end })
}
