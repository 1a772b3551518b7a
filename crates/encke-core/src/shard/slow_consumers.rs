//! Delivery to sessions that need more than the hot loop: full outboxes, replaying sessions, and messages for a single
//! session. `fan_out` leads here, and so do [`ShardMessage::Deliver`](crate::ShardMessage::Deliver) and the
//! application's actions. A full outbox falls back on histories, drops messages by the channel's policy, or ends the
//! session.

use crate::events::SessionKey;
use crate::fanout::delivery::{Delivery, Manner};
use crate::history::Position;
use crate::outbox::arena::Frames;
use crate::outbox::{Capacity, Kind, singly};
use crate::sessions::replay::InRings;
use crate::sessions::session::Session;
use crate::settings::SlowConsumer;
use crate::shard::Parts;

impl Parts {
    /// Delivers a message to a single session. One whose credentials have ended gets nothing more.
    pub(super) fn deliver_to(&mut self, key: SessionKey, frames: &Frames, rule: Option<usize>) {
        let Some(session) = self.sessions.get_mut(key).filter(|session| !session.has_lost_its_rights()) else { return };
        if session.outbox.is_full(1, frames.bytes(), &self.settings.capacity) {
            return self.too_slow(key, (self.settings.policy(rule), None), "", frames, &self.settings.capacity.clone());
        }
        session.outbox.push(frames, Kind::Messages);
        self.schedule.budget.spend(1, frames.bytes(), frames.bytes() as u64);
        session.make_urgent(key.index, &mut self.schedule);
    }

    /// Delivers to sessions whose outboxes have no room for all of the messages, one message at a time.
    pub(super) fn overflow(&mut self, full: &[SessionKey], delivery: &Delivery<'_>, frames: &Frames, manner: &Manner) {
        let (policy, room) = (self.settings.policy(delivery.rule), self.settings.room_of(delivery.rule));
        let frames = singly(frames);
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

    /// True if a message makes room in an outbox: the outbox is full, or fuller than the channel's rule allows, and the
    /// policy drops messages.
    fn makes_room(&self, key: SessionKey, policy: SlowConsumer, frames: &Frames, room: &Capacity) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        session.outbox.is_full(1, frames.bytes(), &self.settings.capacity)
            || (session.outbox.is_full(1, frames.bytes(), room) && self.drops(session, policy, false))
    }

    /// True if the policy drops messages of a session whose outbox has no room.
    fn drops(&self, session: &Session, policy: SlowConsumer, is_full: bool) -> bool {
        // A session that acknowledges was promised every message. It ends rather than lose one.
        session.unacked().is_none()
            && match policy {
                SlowConsumer::Disconnect => false,
                SlowConsumer::DropOldest => true,
                SlowConsumer::KeepLatest => {
                    is_full || is_searched(session.outbox.messages(), self.fanout.publications())
                }
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
        for all in [false, true] {
            if self.makes_room(key, policy, frames, room) && !self.spill(key, all) {
                // A policy that dropped messages of histories would lose them silently.
                return self.end_slow(key, channel);
            }
        }
        let Some(session) = self.sessions.get(key) else { return };
        let before = session.outbox.messages();
        let is_full = session.outbox.is_full(1, frames.bytes(), &self.settings.capacity);
        let drops = session.outbox.is_full(1, frames.bytes(), room) && self.drops(session, policy, is_full);
        let Some(session) = self.sessions.get_mut(key) else { return };
        let dropped = match policy {
            _ if !drops => 0,
            SlowConsumer::KeepLatest => session.outbox.keep_latest(channel),
            _ => session.outbox.drop_oldest(frames.bytes(), room),
        };
        self.metrics.slow_dropped.add(dropped);
        // The dropped messages must pay for the search through the whole queue. A session that waits for the latest
        // message of more channels is too slow for them.
        if policy == SlowConsumer::KeepLatest
            && is_full
            && before > SEARCHED_FREE
            && dropped > 0
            && dropped * SEARCHED_EACH < before
        {
            return self.end_slow(key, channel);
        }
        if !session.outbox.is_full(1, frames.bytes(), &self.settings.capacity) {
            if dropped > 0 {
                tracing::debug!(session = ?session.id, channel, dropped, "slow consumer: messages dropped");
            }
            session.outbox.push(frames, Kind::Messages);
            return self.has_message(key, lazy_due_ms);
        }
        self.end_slow(key, channel);
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
        replay.in_rings = InRings::Maybe;
        if lead.max(skip) > 0 {
            self.replay_later(key);
        }
        for part in [0..lead, skip.max(lead)..delivery.messages] {
            let first = position.first + u64::from(part.start);
            let count = part.len() as u32;
            let Some(frames) = part_of(with_positions, delivery.messages, part) else { continue };
            let Some(session) = self.sessions.get_mut(key) else { return };
            let fits = |room| !session.outbox.is_full(count as usize, frames.bytes(), room);
            let is_full = !fits(&self.settings.capacity);
            // The policy would drop older messages silently. A ring reports those that it does not retain.
            let has_room = session.unacked().is_some() || session.outbox.messages() == 0 || fits(&room);
            if is_full || !has_room {
                // The ring has the messages, too. The session continues from there later, so no policy for slow
                // consumers is needed.
                let resorts = (is_full || self.spill(key, true)) && self.resort_to_history(key, name, position, first);
                if !resorts {
                    self.end_slow(key, name);
                }
                return;
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

/// The number of messages that `keep-latest` may search for each one that it drops.
const SEARCHED_EACH: usize = 64;

/// The number of messages that it may search in any case.
const SEARCHED_FREE: usize = 1_024;

/// True if `keep-latest` searches an outbox with this many messages, which is not full, at this publication of the shard.
/// A long queue is searched once for many messages that come, so that each pays for as much as [`SEARCHED_EACH`].
fn is_searched(messages: usize, publication: u64) -> bool {
    let stride = SEARCHED_EACH.max((messages / SEARCHED_EACH).next_power_of_two());
    // Spread out: channels that take turns must not always miss the search.
    let spread = publication.wrapping_mul(GOLDEN) >> (u64::BITS - stride.trailing_zeros());
    messages <= SEARCHED_EACH || spread == 0
}

/// 2^64 divided by the golden ratio: the multiples of any step are spread evenly.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_pays_for_a_bounded_search_in_a_queue_of_any_length() {
        for (distinct, step) in [(10, 1), (65, 8), (500, 3_000), (5_000, 64), (6_400, 1), (60_000, 1)] {
            // All messages but those since the last search are the latest of their channels.
            let (mut queue, mut longest, mut searched, sent) = (distinct, 0, 0, 1_000_000);
            for number in 0..sent as u64 {
                if is_searched(queue, number.wrapping_mul(step)) {
                    searched += queue;
                    queue = distinct;
                }
                queue += 1;
                longest = longest.max(queue);
            }
            assert!(searched / sent <= 3 * SEARCHED_EACH, "{distinct} channels: {} for each message", searched / sent);
            assert!(longest <= 2 * distinct + 4 * SEARCHED_EACH, "{longest} messages of {distinct} channels");
        }
    }
}
