//! Delivery to sessions that need more than the hot loop: full outboxes, replaying sessions, and messages for a single
//! session. `fan_out` leads here, and so do [`ShardMessage::Deliver`](crate::ShardMessage::Deliver) and the
//! application's actions. A full outbox falls back on histories, drops messages by the channel's policy, or ends the
//! session.

use crate::events::SessionKey;
use crate::fanout::delivery::{Delivery, Manner};
use crate::history::Position;
use crate::outbox::arena::Frames;
use crate::outbox::{Capacity, Kind, Latest, singly};
use crate::schedule::Queue;
use crate::sessions::replay::InRings;
use crate::sessions::session::Session;
use crate::settings::SlowConsumer;
use crate::shard::Parts;

impl Parts {
    /// Delivers a message to a single session. One whose credentials have ended gets nothing more.
    pub(super) fn deliver_to(&mut self, key: SessionKey, frames: &Frames, rule: Option<usize>) {
        let Some(session) = self.sessions.get_mut(key).filter(|_| !self.clients.has_lost_its_rights(key)) else {
            return;
        };
        if session.outbox.is_full(1, frames.bytes(), self.settings.capacity()) {
            let (policy, capacity) = (self.settings.policy(rule), *self.settings.capacity());
            return self.too_slow(key, (policy, None), "", frames, &capacity);
        }
        session.outbox.push(frames, Kind::Messages);
        self.admission.spend(1, frames.bytes(), frames.bytes() as u64);
        session.make_urgent(key.index, &mut self.schedule);
    }

    /// Delivers to sessions whose outboxes have no room for all of the messages, one message at a time.
    pub(super) fn overflow(&mut self, full: &[SessionKey], delivery: &Delivery<'_>, frames: &Frames, manner: &Manner) {
        let (policy, room) = (self.settings.policy(delivery.rule), self.settings.room_of(delivery.rule));
        let frames = singly(frames);
        self.schedule.count_steps(full.len() * frames.len());
        for key in full {
            for frame in &frames {
                self.too_slow(*key, (policy, manner.lazy_due_ms), delivery.channel.as_str(), frame, &room);
            }
        }
    }

    /// Notes that a session has got a message: one to send at once, or a lazy one that is due later.
    fn has_message(&mut self, key: SessionKey, lazy_due_ms: Option<u64>) {
        if lazy_due_ms.is_some() {
            self.wait_lazily(key, lazy_due_ms);
        } else if let Some(session) = self.sessions.get_mut(key) {
            session.make_urgent(key.index, &mut self.schedule);
        }
    }

    /// Delivers to a session whose outbox is full, or fuller than the channel's rule allows: makes room by the channel's
    /// policy. If the outbox stays full, ends the session.
    fn too_slow(
        &mut self,
        key: SessionKey,
        (policy, lazy_due_ms): (SlowConsumer, Option<u64>),
        channel: &str,
        frames: &Frames,
        room: &Capacity,
    ) {
        let Some(session) = self.sessions.get(key) else { return };
        // A session that acknowledges was promised every message. It ends rather than lose one.
        let policy = if session.unacked().is_some() { SlowConsumer::Disconnect } else { policy };
        if policy == SlowConsumer::KeepLatest {
            return self.push_latest(key, lazy_due_ms, channel, frames);
        }
        let drops = policy == SlowConsumer::DropOldest;
        let bytes = frames.bytes();
        for all in [false, true] {
            let makes_room = self.sessions.get(key).is_some_and(|Session { outbox, .. }| {
                outbox.is_full(1, bytes, self.settings.capacity()) || (drops && outbox.is_full(1, bytes, room))
            });
            if makes_room && !self.spill(key, all) {
                // A policy that dropped messages of histories would lose them silently.
                return self.end_slow(key, channel);
            }
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        let drops = drops && session.outbox.is_full(1, bytes, room);
        let dropped = if drops { session.outbox.drop_oldest(bytes, room) } else { 0 };
        self.schedule.count_steps(1 + dropped);
        self.metrics.slow_dropped.add(dropped);
        if session.outbox.is_full(1, bytes, self.settings.capacity()) {
            return self.end_slow(key, channel);
        }
        if dropped > 0 {
            tracing::debug!(session = ?session.id, channel, dropped, "slow consumer: messages dropped");
        }
        session.outbox.push(frames, Kind::Messages);
        self.has_message(key, lazy_due_ms);
    }

    /// Queues a message under `keep-latest`. Messages that it supersedes are removed by the next pass. Until then an
    /// outbox may hold twice its capacity: no more can arrive between two complete flushes, and these complete the
    /// passes. If more comes in one event, that pays for a pass.
    fn push_latest(&mut self, key: SessionKey, lazy_due_ms: Option<u64>, channel: &str, frames: &Frames) {
        self.schedule.count_steps(1);
        let Some(session) = self.sessions.get_mut(key) else { return };
        let is_short = session.outbox.is_short();
        let is_full = session.outbox.is_full(1, frames.bytes(), &self.settings.capacity().twice());
        if session.outbox.has_outgrown_its_pass() {
            self.schedule.pass_over(key, &mut session.marks);
        }
        session.outbox.push(frames, Kind::Messages);
        self.has_message(key, lazy_due_ms);
        if is_short || is_full {
            self.pass_over_now(key, channel);
        }
    }

    /// Removes all but the latest message of each channel that waits for a session.
    fn pass_over_now(&mut self, key: SessionKey, channel: &str) {
        if !self.spill(key, true) {
            return self.end_slow(key, channel);
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        let mut pass = Latest::default();
        let (steps, _) = session.outbox.keep_latest(&mut pass, usize::MAX);
        self.schedule.count_steps(steps);
        self.passed_over(key, &pass, channel);
    }

    /// Continues the passes over queues that have grown, a part at a time, until there is no more time.
    pub(super) fn go_on_with_passes(&mut self, out_of_time: &mut dyn FnMut() -> bool) {
        while let Some(key) = self.schedule.current_pass() {
            let is_new = self.fanout.pass.is_new();
            if is_new && !self.spill(key, true) {
                self.end_slow(key, "");
            }
            let Some(session) = self.sessions.get_mut(key) else {
                self.fanout.pass = Latest::default();
                self.schedule.end_pass();
                continue;
            };
            let (steps, is_over) = session.outbox.keep_latest(&mut self.fanout.pass, PASS_STEPS);
            self.schedule.count_steps(steps);
            if is_over {
                session.marks.leave(Queue::Passes);
                self.schedule.end_pass();
                let pass = std::mem::take(&mut self.fanout.pass);
                self.passed_over(key, &pass, "");
            }
            if out_of_time() {
                break;
            }
        }
    }

    /// Acts on a complete pass: ends the session if it waits for more channels than its outbox may hold messages.
    fn passed_over(&mut self, key: SessionKey, pass: &Latest, channel: &str) {
        let Some(session) = self.sessions.get(key) else { return };
        self.metrics.slow_dropped.add(pass.dropped);
        if pass.dropped > 0 {
            tracing::debug!(session = ?session.id, channel, pass.dropped, "slow consumer: messages dropped");
        }
        if session.outbox.exceeds(pass, self.settings.capacity()) {
            self.end_slow(key, channel);
        }
    }

    /// Delivers to one session the live messages that the ring does not give it.
    pub(super) fn deliver_specially(
        &mut self,
        key: SessionKey,
        delivery: &Delivery<'_>,
        position: &Position,
        with_positions: &Frames,
        manner: &Manner,
    ) {
        let (name, room) = (delivery.channel.as_str(), self.settings.room_of(delivery.rule));
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(replay) = &mut session.replay else {
            return self.push_or_overflow(key, delivery, (delivery.frames, delivery.messages), manner);
        };
        let (lead, skip) = replay.cursors.share(name, position.ring.serial, position.first, delivery.messages);
        if lead.max(skip) > 0 {
            self.replay_later(key);
        }
        for part in [0..lead, skip.max(lead)..delivery.messages] {
            let first = position.first + u64::from(part.start);
            let count = part.len() as u32;
            let Some(frames) = part_of(with_positions, delivery.messages, part) else { continue };
            let Some(session) = self.sessions.get_mut(key) else { return };
            let fits = |room| !session.outbox.is_full(count as usize, frames.bytes(), room);
            let is_full = !fits(self.settings.capacity());
            // The policy would drop older messages silently. A ring reports those that it does not retain.
            let has_room = session.unacked().is_some() || session.outbox.messages() == 0 || fits(&room);
            if is_full || !has_room {
                // The ring has the messages, too. The session continues from there later, so no policy for slow
                // consumers is needed. The messages that have arrived since the last search pay for the next one.
                let is_searched = session.outbox.is_short() || session.outbox.has_outgrown_its_pass();
                let stays = is_full || !is_searched || self.spill(key, true);
                if !stays || !self.resort_to_history(key, name, position, first) {
                    self.end_slow(key, name);
                }
                return;
            }
            if let Some(replay) = &mut session.replay {
                replay.in_rings = InRings::Maybe;
            }
            self.push_now(key, (&frames, count), manner);
        }
    }

    fn push_or_overflow(
        &mut self,
        key: SessionKey,
        delivery: &Delivery<'_>,
        (frames, messages): (&Frames, u32),
        manner: &Manner,
    ) {
        let room = self.settings.room_of(delivery.rule);
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.outbox.is_full(messages as usize, frames.bytes(), &room) {
            return self.overflow(&[key], delivery, frames, manner);
        }
        self.push_now(key, (frames, messages), manner);
    }

    /// Queues messages for which there is room.
    fn push_now(&mut self, key: SessionKey, (frames, messages): (&Frames, u32), manner: &Manner) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.outbox.push_many(frames, Kind::Messages, messages);
        session.active_ms = manner.active_ms.unwrap_or(session.active_ms);
        self.has_message(key, manner.lazy_due_ms);
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
