//! Fan-out: pushes the frames of a publication to the outbox of each subscriber, and sends them to other shards with
//! subscribers. `publish` and `record` lead here for publications of this shard, [`ShardMessage::Publication`] for
//! those of others.

use std::sync::Arc;

use bayeux::ChannelName;

use crate::events::{Effect, Publication, SessionKey, ShardMessage};
use crate::fanout::delivery::{Delivery, Manner};
use crate::fanout::push::Push;
use crate::sessions::id::Id;
use crate::sessions::replay::InRings;
use crate::shard::Parts;

impl Parts {
    /// Fans out a publication of another shard. Its bytes are copied as they are.
    pub(super) fn publication_from_shard(&mut self, publication: &Publication) {
        let channel = ChannelName::known(&publication.channel);
        let frames = self.fanout.encoder.copy(&publication.frames);
        let rule = self.settings.rule_of(channel);
        let except = publication.except.and_then(|id| self.sessions.find(&id));
        let (messages, side, position) = (publication.messages, publication.side, publication.position.as_ref());
        let delivery = Delivery { channel, frames: &frames, messages, side, rule, position, token: None };
        self.fan_out(&delivery, except.map(|key| key.index));
    }

    /// Delivers to the subscribers of this shard, and to the other shards that have some, but not to the session `except`.
    /// `id_of` returns its id.
    pub(super) fn deliver_everywhere(
        &mut self,
        delivery: &Delivery<'_>,
        except: Option<SessionKey>,
        id_of: impl FnOnce(&Parts) -> Option<Id>,
    ) {
        self.fan_out(delivery, except.map(|key| key.index));
        if !self.shared.interest.is_empty() {
            self.send_to_others(delivery, id_of(self));
        }
    }

    fn send_to_others(&mut self, delivery: &Delivery<'_>, except: Option<Id>) {
        let mut others = self.channels.shards_that_want(&self.shared.interest, delivery.channel) & !(1 << self.index);
        if others == 0 {
            return;
        }
        let publication = Arc::new(delivery.to_publication(except, &self.shared.mailbox));
        self.admission.add_work(publication.frames.len() as u64);
        while others != 0 {
            let shard = others.trailing_zeros() as usize;
            others &= others - 1;
            self.effects.push(Effect::SendToShard(shard, ShardMessage::Publication(publication.clone())));
        }
    }

    /// Pushes to the outbox of each subscriber of this shard. Sessions that use replay get the frames with positions.
    fn fan_out(&mut self, delivery: &Delivery<'_>, except: Option<u32>) {
        let frames = delivery.frames;
        let lists = self.channels.route(delivery.channel);
        let subscribers: usize = lists.iter().map(|list| self.channels.subscribers(*list).len()).sum();
        let write_bytes = (frames.bytes() * subscribers) as u64;
        self.schedule.count_steps(subscribers);
        self.admission.spend(delivery.messages as usize, frames.bytes(), write_bytes);
        if !lists.is_empty() {
            self.push_to(&lists, delivery, except);
        }
        self.channels.reuse(lists);
        if self.fanout.encoder.bytes() > self.fanout.relief.check_from {
            self.check_memory();
        }
    }

    /// Pushes to the outbox of each subscriber in these lists.
    fn push_to(&mut self, lists: &[u32], delivery: &Delivery<'_>, except: Option<u32>) {
        let Delivery { frames, rule, .. } = *delivery;
        let manner = Manner {
            stamp: self.fanout.next_publication(),
            except,
            lazy_due_ms: self.settings.lazy_due_ms(rule, self.now.ms),
            active_ms: self.settings.given().activity_counts_deliveries.then_some(self.now.ms),
        };
        let positioned = delivery.position.filter(|_| lists.iter().any(|list| self.channels.wants_positions(*list)));
        let positioned = positioned.map(|position| (position, self.fanout.encoder.with_positions(frames, position)));
        let (mut full, mut special) = (Vec::new(), Vec::new());
        let room = self.settings.room_of(rule);
        let Parts { channels, sessions, schedule, settings, fanout, now, .. } = self;
        let backpressure = &mut fanout.backpressure;
        let (capacity, manner, lazy) = (settings.capacity(), &manner, Vec::new());
        let mut push = Push { delivery, manner, capacity, room, now: *now, sessions, schedule, backpressure, lazy };
        for list in lists {
            let subscribers = channels.subscribers(*list);
            match positioned.as_ref().filter(|_| channels.wants_positions(*list)) {
                None => push.each(subscribers, &mut full, |_| Some(frames), |_| {}),
                Some((position, _)) if channels.began_after(*list, position.ring.owner(), position.burst) => {}
                Some((_, with_positions)) => push.each(
                    subscribers,
                    &mut special,
                    |session| match &session.replay {
                        None => Some(frames),
                        Some(replay) => replay.is_live().then_some(with_positions),
                    },
                    |session| session.replay.iter_mut().for_each(|replay| replay.in_rings = InRings::Maybe),
                ),
            }
        }
        for key in push.lazy {
            self.wait_lazily(key, manner.lazy_due_ms);
        }
        if let Some((position, with_positions)) = &positioned {
            for key in special {
                self.deliver_specially(key, delivery, position, with_positions, manner);
            }
            self.note_last_received(lists, delivery, position);
        }
        if !full.is_empty() {
            self.overflow(&full, delivery, frames, manner);
        }
    }
}
