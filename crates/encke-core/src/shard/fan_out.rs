//! Fan-out: pushes the frames of a publication to the outbox of each subscriber, and sends them to other shards with
//! subscribers. `publish` and `record` lead here for publications of this shard, [`ShardMessage::Publication`] for
//! those of others.

use std::sync::Arc;

use bayeux::{ChannelName, ext};

use crate::connections::admission::part_of;
use crate::events::{Effect, Publication, SessionKey, ShardMessage};
use crate::fanout::delivery::{Delivery, Manner, write_with_position};
use crate::history::Position;
use crate::outbox::arena::Frames;
use crate::outbox::{Kind, payloads};
use crate::sessions::id::Id;
use crate::sessions::replay::InRings;
use crate::shard::Shard;

impl Shard {
    /// Fans out a publication of another shard. Its bytes are copied as they are.
    pub(super) fn publication_from_shard(&mut self, publication: &Publication) {
        let channel = ChannelName::known(&publication.channel);
        let frames = self.arena.encoded(&publication.frames);
        let rule = self.rule_of(channel);
        let except = publication.except.and_then(|id| self.sessions.find(&id));
        let (messages, position) = (publication.messages, publication.position.as_ref());
        let delivery = Delivery { channel, frames: &frames, messages, rule, position, token: None };
        self.fan_out(&delivery, except.map(|key| key.index));
    }

    /// Delivers to the subscribers of this shard, and to the other shards that have some.
    pub(super) fn deliver_everywhere(
        &mut self,
        delivery: &Delivery<'_>,
        except: Option<SessionKey>,
        except_id: Option<Id>,
    ) {
        self.fan_out(delivery, except.map(|key| key.index));
        if self.shared.shards > 1 {
            self.send_to_others(delivery, except_id);
        }
    }

    fn send_to_others(&mut self, delivery: &Delivery<'_>, except: Option<Id>) {
        let mut others = self.shared.interest.of(delivery.channel, &mut self.spelling) & !(1 << self.index);
        if others == 0 {
            return;
        }
        let publication = Arc::new(delivery.to_publication(except, &self.shared.mailbox));
        self.work += publication.frames.len() as u64;
        while others != 0 {
            let shard = others.trailing_zeros() as usize;
            others &= others - 1;
            self.effects.push(Effect::SendToShard(shard, ShardMessage::Publication(publication.clone())));
        }
    }

    /// The hot loop: one push for each subscriber.
    fn fan_out(&mut self, delivery: &Delivery<'_>, except: Option<u32>) {
        let Delivery { channel, frames, messages, rule, position, .. } = *delivery;
        self.publications += 1;
        let manner = Manner {
            stamp: self.publications,
            except,
            lazy_due_ms: rule.and_then(|rule| self.lazy_due_ms(&self.settings.channels[rule])),
            active_ms: self.settings.activity_counts_deliveries.then_some(self.now.ms),
        };
        let mut lists = std::mem::take(&mut self.lists);
        self.hub.route(channel, &mut lists);
        let mut full = Vec::new();
        let mut lazy = Vec::new();
        let mut followed = None;
        let subscribers: usize = lists.iter().map(|list| self.hub.subscribers(*list).len()).sum();
        let write_bytes = (frames.bytes() * subscribers) as u64;
        self.budget.spend(messages as usize, frames.bytes(), write_bytes);
        self.work += write_bytes;
        let part = part_of(&self.capacity);
        let Shard { hub, sessions, schedule, capacity, backpressure, now, .. } = self;
        for list in &lists {
            if position.is_some() && hub.is_followed(*list) {
                followed = position;
                continue;
            }
            for subscriber in hub.subscribers(*list) {
                let session = sessions.at(subscriber.session);
                if session.stamp == manner.stamp || manner.except == Some(subscriber.session) {
                    continue;
                }
                session.stamp = manner.stamp;
                if session.outbox.is_full(messages as usize, frames.bytes(), &part) {
                    if session.outbox.is_full(messages as usize, frames.bytes(), capacity) {
                        full.push(session.key(subscriber.session));
                        continue;
                    }
                    backpressure.is_behind(session, subscriber.session, *now);
                }
                session.outbox.push_many(frames, Kind::Messages, messages);
                session.active_ms = manner.active_ms.unwrap_or(session.active_ms);
                if manner.lazy_due_ms.is_some() {
                    lazy.push(session.key(subscriber.session));
                } else {
                    session.make_urgent(subscriber.session, schedule);
                }
            }
        }
        for key in lazy {
            self.wait_lazily(key, manner.lazy_due_ms);
        }
        if let Some(position) = followed {
            self.fan_out_with_positions(&lists, delivery, position, &manner);
        }
        self.lists = lists;
        if !full.is_empty() {
            self.overflow(&full, delivery, frames, &manner);
        }
        if self.account.bytes() > self.relief.look_from {
            self.check_memory();
        }
    }

    /// Delivers to the lists with a subscriber that uses replay.
    fn fan_out_with_positions(&mut self, lists: &[u32], delivery: &Delivery<'_>, position: &Position, manner: &Manner) {
        let with_positions = self.with_positions(delivery.frames, position);
        let messages = delivery.messages;
        let mut special = Vec::new();
        let Shard { hub, sessions, schedule, capacity, .. } = self;
        let (owner, burst) = (position.ring.owner(), position.burst);
        for list in lists.iter().filter(|list| hub.is_followed(**list) && !hub.is_younger(**list, owner, burst)) {
            for subscriber in hub.subscribers(*list) {
                let session = sessions.at(subscriber.session);
                if session.stamp == manner.stamp || manner.except == Some(subscriber.session) {
                    continue;
                }
                session.stamp = manner.stamp;
                let (frames, is_replaying) = match &mut session.replay {
                    Some(replay) => {
                        replay.in_rings = InRings::Maybe;
                        (&with_positions, !replay.is_live())
                    }
                    None => (delivery.frames, false),
                };
                let full = || session.outbox.is_full(messages as usize, frames.bytes(), capacity);
                if is_replaying || manner.lazy_due_ms.is_some() || full() {
                    special.push(session.key(subscriber.session));
                    continue;
                }
                session.outbox.push_many(frames, Kind::Messages, messages);
                session.active_ms = manner.active_ms.unwrap_or(session.active_ms);
                session.make_urgent(subscriber.session, schedule);
            }
        }
        for key in special {
            self.deliver_specially(key, delivery, position, &with_positions, manner);
        }
        self.note_last_received(lists, delivery, position);
    }

    /// Encodes the same messages, each with its position.
    fn with_positions(&mut self, frames: &Frames, position: &Position) -> Frames {
        let created = ext::timestamp(position.wall_ms as i64);
        let first = bayeux::Position { epoch: (*position.epoch).into(), offset: position.first };
        let mut stamp = ext::PositionStamp { position: first, created: &created, lost: None };
        let mut encoded = Vec::with_capacity(frames.bytes() * 2);
        {
            let bytes = frames.chunk.slice(frames.start, frames.end);
            for payload in payloads(&bytes) {
                write_with_position(&stamp, &payload[1..payload.len() - 1], &mut self.scratch, &mut encoded);
                stamp.position.offset += 1;
            }
        }
        self.with_positions.encoded(&encoded)
    }
}
