//! Live messages of channels with a history, for the sessions that want to know where they stand: the fan-out's other loop.
//!
//! The frames with places are made once for all of them. A session that is still catching up gets from the ring what it
//! would get here: see [`super::replay`].

use bayeux::ext;
use websocket::{Opcode, frame};

use super::arena::Frames;
use super::deliver::{Delivery, Manner, make_urgent};
use super::effect::SessionKey;
use super::history::Position;
use super::hub::Heard;
use super::outbox::{Kind, payloads, singly};
use super::replay::InRings;
use super::{Dirty, Shard};

impl Shard {
    /// Delivers to the lists that hold somebody who wants places.
    pub(super) fn fan_out_placed(
        &mut self,
        lists: &[u32],
        delivery: &Delivery<'_>,
        position: &Position,
        manner: &Manner,
    ) {
        let placed = self.placed(delivery.frames, position);
        let messages = delivery.messages;
        let mut special = Vec::new();
        let Shard { hub, sessions, dirty, capacity, .. } = self;
        let (owner, burst) = (position.ring.owner(), position.burst);
        for list in lists.iter().filter(|list| hub.is_followed(**list) && !hub.is_younger(**list, owner, burst)) {
            for subscriber in hub.subscribers(*list) {
                let session = sessions.at(subscriber.session);
                if session.stamp == manner.stamp || manner.except == Some(subscriber.session) {
                    continue;
                }
                session.stamp = manner.stamp;
                let (frames, catches_up) = match &mut session.replay {
                    Some(replay) => {
                        replay.in_rings = InRings::Maybe;
                        (&placed, !replay.is_live())
                    }
                    None => (delivery.frames, false),
                };
                let full = || session.outbox.is_full(messages as usize, frames.bytes(), capacity);
                if catches_up || manner.lazy_due_ms.is_some() || full() {
                    special.push(session.key(subscriber.session));
                    continue;
                }
                session.outbox.push_many(frames, Kind::Messages, messages);
                session.active_ms = manner.active_ms.unwrap_or(session.active_ms);
                if make_urgent(session) {
                    dirty.push_back(Dirty::Session(session.key(subscriber.session)));
                }
            }
        }
        for key in special {
            self.deliver_specially(key, delivery, position, &placed, manner);
        }
        self.note_heard(lists, delivery, position);
    }

    /// Delivers to one session what of it the ring does not give it.
    fn deliver_specially(
        &mut self,
        key: SessionKey,
        delivery: &Delivery<'_>,
        position: &Position,
        placed: &Frames,
        manner: &Manner,
    ) {
        let name = delivery.channel.as_str();
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(replay) = &mut session.replay else {
            return self.push_or_overflow(key, delivery, (delivery.frames, delivery.messages), manner);
        };
        let (lead, skip) = replay.tails.share(name, position.ring.serial, position.first, delivery.messages);
        replay.in_rings = InRings::Maybe;
        if lead.max(skip) > 0 {
            self.catch_up_later(key);
        }
        for part in [0..lead, skip.max(lead)..delivery.messages] {
            let first = position.first + u64::from(part.start);
            let count = part.len() as u32;
            let Some(frames) = part_of(placed, delivery.messages, part) else { continue };
            let Some(session) = self.sessions.get_mut(key) else { return };
            let full = session.outbox.is_full(count as usize, frames.bytes(), &self.capacity);
            if full {
                // The ring has it, too: the session goes on from there when it can. No policy for slow consumers is needed.
                if !self.fall_back(key, name, position, first) {
                    self.end_slow(key, name);
                }
                return;
            }
            self.push_or_overflow(key, delivery, (&frames, count), manner);
        }
    }

    fn push_or_overflow(
        &mut self,
        key: SessionKey,
        delivery: &Delivery<'_>,
        (frames, messages): (&Frames, u32),
        manner: &Manner,
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.outbox.is_full(messages as usize, frames.bytes(), &self.capacity) {
            return self.overflow(&[key], delivery, frames, manner);
        }
        session.outbox.push_many(frames, Kind::Messages, messages);
        session.active_ms = manner.active_ms.unwrap_or(session.active_ms);
        if manner.lazy_due_ms.is_some() {
            self.wait_lazily(key, manner.lazy_due_ms);
        } else if make_urgent(session) {
            self.dirty.push_back(Dirty::Session(key));
        }
    }

    /// The same messages, each with its place told.
    fn placed(&mut self, frames: &Frames, position: &Position) -> Frames {
        let created = ext::timestamp(position.wall_ms as i64);
        let first = bayeux::Position { epoch: (*position.epoch).into(), offset: position.first };
        let mut stamp = ext::PositionStamp { position: first, created: &created, lost: None };
        let mut encoded = Vec::with_capacity(frames.bytes() * 2);
        {
            let bytes = frames.chunk.slice(frames.start, frames.end);
            for payload in payloads(&bytes) {
                write_placed(&stamp, &payload[1..payload.len() - 1], &mut self.scratch, &mut encoded);
                stamp.position.offset += 1;
            }
        }
        self.placed.encoded(&encoded)
    }

    /// Notes on the channel itself how far it has been handed out.
    fn note_heard(&mut self, lists: &[u32], delivery: &Delivery<'_>, position: &Position) {
        let Some(own) = lists.first().filter(|list| self.hub.name(**list) == delivery.channel.as_str()) else { return };
        let id = position.first + u64::from(delivery.messages) - 1;
        self.hub.set_heard(*own, Heard { serial: position.ring.serial, epoch: position.epoch.clone(), id });
    }
}

/// Appends a message with its position as a frame of its own. `scratch` is overwritten.
pub(super) fn write_placed(
    stamp: &ext::PositionStamp<'_>,
    message: &[u8],
    scratch: &mut Vec<u8>,
    frames: &mut Vec<u8>,
) {
    scratch.clear();
    scratch.push(b'[');
    stamp.write(str::from_utf8(message).unwrap_or_default(), scratch);
    scratch.push(b']');
    frame::message(Opcode::Text, scratch, frames);
}

/// Some of several frames; None of an empty range.
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
