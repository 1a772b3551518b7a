//! The way of a publication to the outboxes: encoded once, gathered in a burst with those before it, recorded if its
//! channel has a history, routed, pushed to the subscribers of this shard, and sent to the other shards that have some.

use std::sync::Arc;

use bayeux::{ChannelName, Publication};

use crate::channels::LastReceived;
use crate::delivery::{FanOut, Frames, Manner, payloads};
use crate::events::{Effect, EncodedPublications, PublishToken, SessionKey, ShardMessage, crosses_nodes};
use crate::id::Id;
use crate::limits::sessions::SessionOwner;
use crate::rights::table::{Granted, Right};
use crate::shard::{Machines, Shard};
use crate::side::Side;

impl Shard {
    /// Publishes to all subscribers on all shards. Returns the token for which the reply to the publisher waits, if it
    /// has to wait. `from` is the session that publishes, if one does; the delivery of lazy publications may wait.
    pub(super) fn broadcast(
        &mut self,
        channel: ChannelName<'_>,
        publication: &Publication<'_>,
        (from, is_lazy): (Option<SessionKey>, bool),
        granted: Granted,
    ) -> Option<PublishToken> {
        granted.use_for(Right::Publish);
        let Machines { env, delivery, .. } = &mut self.machines;
        env.metrics.publications.add(1);
        let (bytes, compresses) = (publication.encoded_bytes(), env.settings.compresses(channel));
        let frames = delivery.encoder().publication(bytes, compresses, |bytes| publication.write(bytes));
        if !self.burst.take(channel, &frames, (from, is_lazy)) {
            let machines = self.settle_burst();
            let token = from.and_then(|from| machines.token(channel, from));
            self.burst.start(channel, frames, (from, is_lazy), token);
        }
        self.burst.token()
    }

    /// Fans out the publications that wait for it.
    pub(super) fn fan_out_burst(&mut self) {
        let Shard { burst, machines, .. } = self;
        let Some((frames, messages)) = burst.finish() else { return };
        let channel = ChannelName::known(burst.channel());
        let rule = machines.env.settings.rule_of(channel);
        let except = burst.from().filter(|from| !machines.returns_to(*from, rule));
        let (side, is_lazy, token) = (burst.side(), burst.is_lazy, burst.token());
        let fan_out = FanOut { channel, frames: &frames, messages, side, is_lazy, rule, position: None, token };
        match machines.env.settings.history(channel, rule) {
            Some(terms) => machines.record(&fan_out, terms, (burst.from(), except), burst.payer()),
            None => machines.deliver_everywhere(&fan_out, except, |machines| machines.delivery.id_of(except)),
        }
    }
}

impl Machines {
    /// True if a publisher gets its own messages on a channel with this rule.
    fn returns_to(&self, publisher: SessionKey, rule: Option<usize>) -> bool {
        let own = self.delivery.broadcasts_to(publisher);
        own.unwrap_or_else(|| self.env.settings.returns_to_publisher(rule))
    }

    /// Fans out publications of another shard. Their bytes are copied as they are.
    pub(super) fn publication_from_shard(&mut self, publications: &EncodedPublications) {
        let channel = ChannelName::known(&publications.channel);
        let compresses = self.env.settings.compresses(channel);
        let frames = self.delivery.encoder().copy(&publications.frames, compresses);
        let rule = self.env.settings.rule_of(channel);
        let except = publications.except.and_then(|id| self.delivery.find(&id));
        let EncodedPublications { messages, side, is_lazy, ref position, .. } = *publications;
        let position = position.as_ref();
        let fan_out = FanOut { channel, frames: &frames, messages, side, is_lazy, rule, position, token: None };
        self.fan_out(&fan_out, except);
    }

    /// Delivers to the subscribers of this shard, to the other shards that have some, and to the other nodes of a cluster, but not to
    /// the session `except`.
    /// `id_of` returns its id.
    pub(super) fn deliver_everywhere(
        &mut self,
        fan_out: &FanOut<'_>,
        except: Option<SessionKey>,
        id_of: impl FnOnce(&Machines) -> Option<Id>,
    ) {
        self.fan_out(fan_out, except);
        if !self.env.shared.interest.is_empty() || self.env.shared.is_clustered() {
            self.send_to_others(fan_out, id_of(self));
        }
    }

    fn send_to_others(&mut self, fan_out: &FanOut<'_>, except: Option<Id>) {
        let Machines { env, channels, .. } = self;
        let mut others = channels.shards_that_want(&env.shared.interest, fan_out.channel) & !(1 << env.index);
        let leaves_node = env.shared.is_clustered() && crosses_nodes(fan_out.channel.as_str());
        if others == 0 && !leaves_node {
            return;
        }
        let publications = Arc::new(fan_out.to_publications(except, &env.shared.mailbox));
        self.admission.add_work(publications.frames.len() as u64);
        if leaves_node {
            self.emit(Effect::SendToNodes(publications.clone()));
        }
        while others != 0 {
            let shard = others.trailing_zeros() as usize;
            others &= others - 1;
            self.emit(Effect::SendToShard(shard, ShardMessage::Publication(publications.clone())));
        }
    }

    /// Pushes to the outbox of each subscriber of this shard, or lets the messages wait for their interval.
    fn fan_out(&mut self, fan_out: &FanOut<'_>, except: Option<SessionKey>) {
        let has_no_intervals = self.channels.has_no_groups() && !self.env.settings.rules_have_intervals();
        if has_no_intervals && self.conflation.len() == 0 {
            self.fan_out_to_all(fan_out, except);
        } else {
            self.conflate(fan_out, except);
        }
    }

    /// Pushes to the outbox of each subscriber of this shard that has no interval.
    #[inline]
    pub(super) fn fan_out_to_all(&mut self, fan_out: &FanOut<'_>, except: Option<SessionKey>) {
        let lists = self.channels.route(fan_out.channel);
        self.fan_out_to(&lists, fan_out, except);
        self.channels.reuse(lists);
    }

    /// Pushes to the outbox of each subscriber in these lists.
    #[inline]
    pub(super) fn fan_out_to(&mut self, lists: &[u32], fan_out: &FanOut<'_>, except: Option<SessionKey>) {
        let bytes = fan_out.frames.bytes();
        let subscribers: usize = lists.iter().map(|list| self.channels.subscribers(*list).len()).sum();
        self.env.count_steps(subscribers);
        self.admission.spend(fan_out.messages as usize, bytes, (bytes * subscribers) as u64);
        if !lists.is_empty() {
            self.push_to(lists, fan_out, except.map(|key| key.index));
        }
        if self.delivery.bytes() > self.relief.check_from() {
            self.check_memory();
        }
    }

    /// Pushes to the outbox of each subscriber in these lists. Ends the sessions that are too slow.
    fn push_to(&mut self, lists: &[u32], fan_out: &FanOut<'_>, except: Option<u32>) {
        if self.may_have_got(fan_out) {
            self.have_got(fan_out).into_iter().for_each(|session| self.delivery.pass_by(session));
        }
        let Machines { env, delivery, channels, .. } = self;
        let (settings, rule) = (&env.settings, fan_out.rule);
        let manner = Manner {
            except,
            lazy_due_ms: settings.lazy_due_ms(rule, fan_out.is_lazy, env.now.ms),
            active_ms: settings.given().activity_counts_deliveries.then_some(env.now.ms),
            room: settings.room_of(rule),
            policy: settings.policy(rule),
        };
        let position = fan_out.position.filter(|_| lists.iter().any(|list| channels.wants_positions(*list)));
        let receivers = lists.iter().filter_map(|list| {
            let wanted = position.filter(|_| channels.wants_positions(*list));
            // Its subscribers came after the publications.
            let is_late = wanted.is_some_and(|at| channels.began_after(*list, at.ring.owner(), at.burst));
            (!is_late).then(|| (channels.subscribers(*list), wanted.is_some()))
        });
        let receives = |key: SessionKey, name: &str| channels.receives(key.index, name);
        let given_up = delivery.fan_out(fan_out, &manner, receivers, position.is_some(), &receives);
        if let Some(position) = position {
            channels.note_fanned_out(lists, fan_out.channel.as_str(), || LastReceived {
                serial: position.ring.serial,
                epoch: position.epoch.clone(),
                offset: position.first + u64::from(fan_out.messages) - 1,
            });
        }
        given_up.into_iter().for_each(|given_up| self.end_given_up(Err(given_up)));
    }

    /// Delivers a frame to a single session. One whose credentials have ended gets nothing more.
    pub(super) fn deliver_to(&mut self, key: SessionKey, frame: &[u8]) {
        let frames = self.frames_for_one(frame);
        self.deliver_frames_to(key, &frames);
    }

    /// The frame of a message for single sessions.
    pub(super) fn frames_for_one(&mut self, frame: &[u8]) -> Frames {
        let compresses = payloads(frame).any(|message| self.env.settings.compresses_message(message));
        self.delivery.encoder().messages_for_one(frame, compresses)
    }

    /// The same with frames that are encoded already.
    pub(super) fn deliver_frames_to(&mut self, key: SessionKey, frames: &Frames) {
        let Machines { env, delivery, channels, clients, admission, .. } = self;
        if clients.has_lost_its_rights(key) {
            return;
        }
        admission.spend(1, frames.bytes(), frames.bytes() as u64);
        let receives = |key: SessionKey, name: &str| channels.receives(key.index, name);
        let delivered = delivery.deliver_to(key, frames, env.settings.policy(None), &receives);
        self.end_given_up(delivered);
    }
}

/// Consecutive publications on one channel that are fanned out together: they cost each subscriber one push, however many
/// messages they are. Usually there are none.
///
/// A burst grows while one read of a socket is processed, as long as its messages are adjacent in the arena. The shard
/// fans it out before anything that could observe the difference.
#[derive(Debug, Default)]
pub(super) struct Burst {
    channel: String,
    frames: Option<Frames>,
    messages: u32,
    from: Option<SessionKey>,
    is_lazy: bool,
    token: Option<PublishToken>,
    /// The owner of publications that no session has made, if they have one: those of a hook belong to its caller.
    payer: Option<SessionOwner>,
}

impl Burst {
    /// True if no publication waits for its fan-out.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_none()
    }

    /// The number of pending bytes.
    pub(super) fn bytes(&self) -> usize {
        self.frames.as_ref().map_or(0, Frames::bytes)
    }

    /// The number of pending messages.
    pub(super) fn messages(&self) -> usize {
        if self.is_empty() { 0 } else { self.messages as usize }
    }

    /// Adds a publication if it continues the burst: same channel, same publisher, as lazy, adjacent bytes. Returns true
    /// if it did.
    pub(super) fn take(
        &mut self,
        channel: ChannelName<'_>,
        frames: &Frames,
        (from, is_lazy): (Option<SessionKey>, bool),
    ) -> bool {
        let continued = self.frames.as_mut().filter(|last| last.is_followed_by(frames));
        match continued {
            Some(last) if self.from == from && self.is_lazy == is_lazy && self.channel == channel.as_str() => {
                last.end = frames.end;
                self.messages += 1;
                true
            }
            _ => false,
        }
    }

    /// Starts a burst with this publication. The replies to all publications of the burst wait for `token`.
    #[inline(always)]
    pub(super) fn start(
        &mut self,
        channel: ChannelName<'_>,
        frames: Frames,
        (from, is_lazy): (Option<SessionKey>, bool),
        token: Option<PublishToken>,
    ) {
        self.channel.clear();
        self.channel.push_str(channel.as_str());
        self.frames = Some(frames);
        self.messages = 1;
        self.from = from;
        self.is_lazy = is_lazy;
        self.token = token;
        self.payer = None;
    }

    /// Notes whose the publications are.
    pub(super) fn belongs_to(&mut self, payer: Option<SessionOwner>) {
        self.payer = payer;
    }

    /// The owner of publications that no session has made.
    pub(super) fn payer(&self) -> Option<SessionOwner> {
        self.payer
    }

    /// Takes the frames and the number of messages. The channel and the publisher stay readable.
    pub(super) fn finish(&mut self) -> Option<(Frames, u32)> {
        Some((self.frames.take()?, self.messages))
    }

    /// The pending frames.
    pub(super) fn frames(&self) -> Option<&Frames> {
        self.frames.as_ref()
    }

    /// The channel of the burst.
    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// The token for which the replies wait.
    pub(super) fn token(&self) -> Option<PublishToken> {
        self.token
    }

    /// The side that has made the burst.
    pub(super) fn side(&self) -> Side {
        if self.from.is_some() { Side::Client } else { Side::Server }
    }

    /// The session that published the burst, if a session did.
    pub(super) fn from(&self) -> Option<SessionKey> {
        self.from
    }
}
