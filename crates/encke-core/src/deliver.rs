//! From a publication to outboxes: encoded once, then a range of bytes for each subscriber.

use std::sync::Arc;

use bayeux::{ChannelName, Publication as Message, RawJson};
use websocket::Opcode;

use super::account::MailboxAccount;
use super::admission::part_of;
use super::arena::Frames;
use super::arrivals::sent_channel;
use super::effect::{Effect, Mail, Publication, SessionKey, Ticket};
use super::history::Position;
use super::ids::Id;
use super::outbox::{Kind, singly};
use super::session::{Ended, Session};
use super::{Carrier, Dirty, Shard};
use crate::{ChannelRule, SlowConsumer};

/// Publications of one channel that are handed out together.
#[derive(Clone, Copy)]
pub(super) struct Delivery<'a> {
    pub(super) channel: ChannelName<'a>,
    pub(super) frames: &'a Frames,
    pub(super) messages: u32,
    /// The rule for the channel.
    pub(super) rule: Option<usize>,
    /// Where they stand in the history of the channel.
    pub(super) position: Option<&'a Position>,
    /// What the replies to their publisher wait for.
    pub(super) ticket: Option<Ticket>,
}

/// How one publication is delivered.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// Its number: each session gets it once.
    pub(super) stamp: u64,
    /// The index of the session that must not get it.
    pub(super) except: Option<u32>,
    /// When lazy messages have to go, in milliseconds; None for those that go at once.
    pub(super) lazy_due_ms: Option<u64>,
    /// The time now, in milliseconds, where deliveries count as activity.
    pub(super) active_ms: Option<u64>,
}

impl Shard {
    /// Broadcasts to every subscriber on every shard. Returns what the reply to the publisher waits for, if for anything.
    pub(super) fn broadcast(
        &mut self,
        channel: ChannelName<'_>,
        message: &Message<'_>,
        from: Option<SessionKey>,
    ) -> Option<Ticket> {
        self.metrics.publications.add(1);
        let frames = self.arena.frame(Opcode::Text, message.encoded_bytes() + 2, |bytes| {
            bytes.push(b'[');
            message.write(bytes);
            bytes.push(b']');
        });
        if !self.burst.take(channel, &frames, from) {
            self.spread();
            let ticket = self.ticket(channel).filter(|_| from.is_some());
            self.burst.start(channel, frames, from, ticket);
        }
        self.burst.ticket()
    }

    /// Hands the publications at hand to their subscribers. Whatever looks at outboxes or changes subscriptions does this first.
    pub(super) fn spread(&mut self) {
        self.spread_burst();
        self.execute_wills();
    }

    pub(super) fn spread_burst(&mut self) {
        let Some((frames, messages)) = self.burst.finish() else { return };
        let burst = std::mem::take(&mut self.burst);
        if let Some(channel) = sent_channel(burst.channel()) {
            let rule = self.rule_of(channel);
            let except = burst.from().filter(|_| !self.returns_to_publisher(rule));
            let delivery =
                Delivery { channel, frames: &frames, messages, rule, position: None, ticket: burst.ticket() };
            match rule.and_then(|rule| self.settings.channels[rule].history()) {
                Some(terms) if !channel.is_pattern() => self.record(&delivery, terms, except),
                _ => self.hand_out(&delivery, except, self.id_of_session(except)),
            }
        }
        self.burst = burst;
    }

    /// Broadcasts for the application. A name that is no channel is none of its subscribers' business.
    pub(super) fn publish_from_here(&mut self, channel: &str, data: &str) {
        let limits = self.limits.clone();
        if let Ok(name) = ChannelName::parse(channel, &limits) {
            let timestamp = self.raw_timestamp();
            let message = Message {
                channel,
                data: Some(RawJson::trusted(data)),
                ext: None,
                timestamp: timestamp.as_deref().map(RawJson::trusted),
                id: None,
                custom: &[],
            };
            self.broadcast(name, &message, None);
        }
    }

    /// A publication from another shard: its bytes are taken over as they are.
    pub(super) fn publication_from_afar(&mut self, publication: &Publication) {
        if let Some(channel) = sent_channel(&publication.channel) {
            let frames = self.arena.encoded(&publication.frames);
            let rule = self.rule_of(channel);
            let except = publication.except.and_then(|id| self.sessions.find(&id));
            let (messages, position) = (publication.messages, publication.position.as_ref());
            let delivery = Delivery { channel, frames: &frames, messages, rule, position, ticket: None };
            self.fan_out(&delivery, except.map(|key| key.index));
        }
    }

    /// To the subscribers of this shard, and to the others that have some.
    pub(super) fn hand_out(&mut self, delivery: &Delivery<'_>, except: Option<SessionKey>, except_id: Option<Id>) {
        self.fan_out(delivery, except.map(|key| key.index));
        if self.shared.shards > 1 {
            self.send_to_others(delivery, except_id);
        }
    }

    pub(super) fn id_of_session(&self, key: Option<SessionKey>) -> Option<Id> {
        key.and_then(|key| self.sessions.get(key)).map(|session| session.id)
    }

    /// The first rule that matches a channel.
    pub(super) fn rule_of(&mut self, channel: ChannelName<'_>) -> Option<usize> {
        self.rules.first(&self.settings.channels, channel, &mut self.spelling)
    }

    fn returns_to_publisher(&self, rule: Option<usize>) -> bool {
        let own = rule.and_then(|rule| self.settings.channels[rule].broadcast_to_publisher);
        own.unwrap_or(self.settings.broadcast_to_publisher)
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
            self.effects.push(Effect::Mail(shard, Mail::Publication(publication.clone())));
        }
    }

    /// The hot loop: a push for each subscriber.
    pub(super) fn fan_out(&mut self, delivery: &Delivery<'_>, except: Option<u32>) {
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
        let Shard { hub, sessions, dirty, capacity, backpressure, now, .. } = self;
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
                } else if make_urgent(session) {
                    dirty.push_back(Dirty::Session(session.key(subscriber.session)));
                }
            }
        }
        for key in lazy {
            self.wait_lazily(key, manner.lazy_due_ms);
        }
        if let Some(position) = followed {
            self.fan_out_placed(&lists, delivery, position, &manner);
        }
        self.lists = lists;
        if !full.is_empty() {
            self.overflow(&full, delivery, frames, &manner);
        }
        if self.account.bytes() > self.relief.look_from {
            self.mind_memory();
        }
    }

    /// A message for one session only.
    pub(super) fn deliver_to(&mut self, key: SessionKey, frames: &Frames, rule: Option<usize>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.outbox.is_full(1, frames.bytes(), &self.capacity) {
            return self.too_slow(key, self.policy(rule), "", frames);
        }
        session.outbox.push(frames, Kind::Messages);
        self.budget.spend(1, frames.bytes(), frames.bytes() as u64);
        self.work += frames.bytes() as u64;
        if make_urgent(session) {
            self.dirty.push_back(Dirty::Session(key));
        }
    }

    fn lazy_due_ms(&self, rule: &ChannelRule) -> Option<u64> {
        let most = self.settings.lazy_timeout_max_ms;
        let wait_ms = if rule.lazy_timeout_ms == 0 { most } else { rule.lazy_timeout_ms.min(most) };
        rule.lazy.then_some(self.now.ms + wait_ms)
    }

    pub(super) fn wait_lazily(&mut self, key: SessionKey, due_ms: Option<u64>) {
        if let Some(session) = self.sessions.get_mut(key)
            && !session.urgent
        {
            session.lazy_due_ms = session.lazy_due_ms.min(due_ms.unwrap_or(u64::MAX));
            self.arm(key);
        }
    }

    /// These sessions have no room for all of the messages: each message is looked at alone.
    pub(super) fn overflow(&mut self, full: &[SessionKey], delivery: &Delivery<'_>, frames: &Frames, manner: &Manner) {
        let policy = self.policy(delivery.rule);
        let frames = singly(frames);
        for key in full {
            for frame in &frames {
                self.too_slow(*key, policy, delivery.channel.as_str(), frame);
            }
            self.wait_lazily(*key, manner.lazy_due_ms);
        }
    }

    /// What becomes of those who are too slow for a channel with this rule.
    pub(super) fn policy(&self, rule: Option<usize>) -> SlowConsumer {
        rule.map(|rule| self.settings.channels[rule].slow_consumer).unwrap_or_default()
    }

    fn has_no_room(&self, key: SessionKey, frames: &Frames) -> bool {
        self.sessions.get(key).is_some_and(|session| session.outbox.is_full(1, frames.bytes(), &self.capacity))
    }

    /// The outbox of a session is full: makes room as the channel's policy says, or ends the session.
    fn too_slow(&mut self, key: SessionKey, policy: SlowConsumer, channel: &str, frames: &Frames) {
        for all in [false, true] {
            if self.has_no_room(key, frames) && !self.spill(key, all) {
                // Messages of histories that a policy dropped would be lost in silence.
                return self.end_slow(key, channel);
            }
        }
        let Some(session) = self.sessions.get_mut(key) else { return };
        let before = session.outbox.messages();
        let dropped = match policy {
            _ if !session.outbox.is_full(1, frames.bytes(), &self.capacity) => 0,
            // Who acknowledges was promised every message, or to be told.
            _ if session.ledger.is_some() => 0,
            SlowConsumer::Disconnect => 0,
            SlowConsumer::DropOldest => session.outbox.drop_oldest(frames.bytes(), &self.capacity),
            SlowConsumer::KeepLatest => session.outbox.keep_latest(channel),
        };
        self.metrics.slow_dropped.add(dropped);
        // A search through all that waits is paid for by what it drops. Who waits for the latest of more channels is too slow for them.
        if policy == SlowConsumer::KeepLatest
            && before > SEARCHED_FREE
            && dropped > 0
            && dropped * SEARCHED_EACH < before
        {
            return self.end_slow(key, channel);
        }
        if !session.outbox.is_full(1, frames.bytes(), &self.capacity) {
            if dropped > 0 {
                tracing::debug!(session = ?session.id, channel, dropped, "slow consumer: messages dropped");
            }
            session.outbox.push(frames, Kind::Messages);
            if make_urgent(session) {
                self.dirty.push_back(Dirty::Session(key));
            }
            return;
        }
        self.end_slow(key, channel);
    }

    /// Ends a session that is too slow. Nothing is lost in silence: the client finds its session unknown and starts anew.
    pub(super) fn end_slow(&mut self, key: SessionKey, channel: &str) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        tracing::info!(session = ?session.id, channel, messages = session.outbox.messages(),
            bytes = session.outbox.bytes(), "slow consumer: session ended");
        let carrier = session.carrier;
        session.outbox = Default::default();
        self.remove_session(key, Ended::Slow);
        if let Carrier::Socket(socket) = carrier {
            self.reset_socket(socket);
        }
    }
}

/// Messages that `keep-latest` may search for each one that it drops.
const SEARCHED_EACH: usize = 64;
/// Messages that it may search for any.
const SEARCHED_FREE: usize = 1_024;

impl Delivery<'_> {
    /// The same for another shard.
    pub(super) fn to_publication(self, except: Option<Id>, account: &Arc<MailboxAccount>) -> Publication {
        let frames: Box<[u8]> = self.frames.chunk.slice(self.frames.start, self.frames.end)[..].into();
        Publication {
            charge: Publication::charge(account, self.channel.as_str(), &frames),
            channel: self.channel.as_str().into(),
            frames,
            messages: self.messages,
            except,
            position: self.position.cloned(),
            ticket: self.ticket,
        }
    }
}

/// Notes that something waits that should go at once. True if the session has to be put on the list of the dirty.
pub(super) fn make_urgent(session: &mut Session) -> bool {
    session.urgent = true;
    let wanted = !session.dirty && session.is_reachable();
    session.dirty |= wanted;
    wanted
}
