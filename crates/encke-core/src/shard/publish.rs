//! Publications: encodes each one once and gathers consecutive ones into a burst. `batch` leads here for publications
//! of clients, and the application's actions for its own. The burst goes to `record` if its channel has a history, else
//! to `fan_out`.

use std::sync::Arc;

use bayeux::{ChannelName, Publication as Message, RawJson};

use crate::application::{Action, Actions, EndReason};
use crate::events::{Effect, PublishToken, SessionKey, ShardMessage};
use crate::fanout::burst::Burst;
use crate::fanout::delivery::Delivery;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::protocol::batch::message_frame;
use crate::rights::table::{Granted, Right, ServerEntry};
use crate::sessions::id::{Entropy, Id};
use crate::settings::Settings;
use crate::shard::{Parts, Shared};

/// One shard of the server. See the documentation of the crate.
///
/// Publications may wait for their fan-out, and everything that looks at outboxes or changes subscriptions has to come
/// after it. So the parts are reached through `Shard::settle_burst`, which fans out first. Only what does not touch outboxes
/// reaches them beside a burst.
pub struct Shard {
    /// Publications that wait for their fan-out.
    burst: Burst,
    /// True while the actions that sessions left at their end are run.
    runs_deferred: bool,
    parts: Parts,
}

impl Shard {
    /// Creates an empty shard.
    pub fn new(index: usize, shared: Arc<Shared>, settings: Arc<Settings>, entropy: Entropy, now: Now) -> Shard {
        let parts = Parts::new(index, shared, settings, entropy, now);
        Shard { burst: Burst::default(), runs_deferred: false, parts }
    }

    /// Counts in `metrics`, which other threads can read.
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Shard {
        self.parts.metrics = metrics;
        self
    }

    /// The parts, for reading. Publications that wait for their fan-out are not in the outboxes yet.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Fans out what waits for it. Returns the parts, which may then look at outboxes and change subscriptions.
    pub(crate) fn settle_burst(&mut self) -> &mut Parts {
        self.fan_out_burst();
        self.run_deferred_actions();
        &mut self.parts
    }

    /// The same at this time.
    pub(crate) fn settle_burst_at(&mut self, now: Now) -> &mut Parts {
        self.parts.now = now;
        self.settle_burst()
    }

    /// The parts while publications may wait for their fan-out. Only for what no subscriber can see: reading and
    /// counting, and replies to a session without subscriptions.
    pub(super) fn beside_burst(&mut self) -> &mut Parts {
        &mut self.parts
    }

    /// The publications that wait for their fan-out.
    pub(super) fn burst(&self) -> &Burst {
        &self.burst
    }

    /// Publishes to all subscribers on all shards. Returns the token for which the reply to the publisher waits, if it
    /// has to wait.
    pub(super) fn broadcast(
        &mut self,
        channel: ChannelName<'_>,
        message: &Message<'_>,
        from: Option<SessionKey>,
        granted: Granted,
    ) -> Option<PublishToken> {
        granted.use_for(Right::Publish);
        self.parts.metrics.publications.add(1);
        let frames = self.parts.fanout.encoder.publication(message.encoded_bytes(), |bytes| message.write(bytes));
        if !self.burst.take(channel, &frames, from) {
            let token = self.settle_burst().token(channel).filter(|_| from.is_some());
            self.burst.start(channel, frames, from, token);
        }
        self.burst.token()
    }

    fn fan_out_burst(&mut self) {
        let Shard { burst, parts, .. } = self;
        let Some((frames, messages)) = burst.finish() else { return };
        let channel = ChannelName::known(burst.channel());
        let rule = parts.settings.rule_of(channel);
        let except = burst.from().filter(|_| !parts.settings.returns_to_publisher(rule));
        let (side, token) = (burst.side(), burst.token());
        let delivery = Delivery { channel, frames: &frames, messages, side, rule, position: None, token };
        match parts.settings.history(channel, rule) {
            Some(terms) => parts.record(&delivery, terms, except),
            None => parts.deliver_everywhere(&delivery, except, |parts| parts.id_of_session(except)),
        }
    }

    /// Publishes for the application. An invalid channel name is ignored.
    pub(crate) fn publish_from_here(&mut self, channel: &str, data: &str) {
        let limits = self.parts.settings.limits().clone();
        if let Ok(name) = ChannelName::parse(channel, &limits) {
            let timestamp = self.parts.raw_timestamp();
            let message = Message {
                channel,
                data: Some(RawJson::trusted(data)),
                ext: None,
                timestamp: timestamp.as_deref().map(RawJson::trusted),
                id: None,
                custom: &[],
            };
            self.broadcast(name, &message, None, ServerEntry::Action.may());
        }
    }

    /// Runs the application's actions after sessions have ended. Deferred, not recursive: one end can cause others, and
    /// nesting them could overflow the stack.
    fn run_deferred_actions(&mut self) {
        if self.parts.deferred_actions.is_empty() || std::mem::replace(&mut self.runs_deferred, true) {
            return;
        }
        while !self.parts.deferred_actions.is_empty() {
            while let Some(actions) = self.parts.deferred_actions.pop_front() {
                self.act(actions, None);
            }
            self.fan_out_burst();
        }
        self.runs_deferred = false;
    }

    /// Runs the actions of an application. `call` is the session, the channel and the id of the current message, for
    /// replies.
    pub(super) fn act(&mut self, actions: Actions, call: Option<(SessionKey, &str, Option<&bayeux::Id<'_>>)>) {
        for action in actions.0 {
            match action {
                Action::Publish { channel, data } => {
                    self.publish_from_here(&channel, &data);
                }
                Action::Deliver { session, channel, data, id } => {
                    let id = id.map(bayeux::Id::new);
                    let frame = message_frame(&channel, &data, id.as_ref(), None);
                    if let Some(session) = Id::parse(&session) {
                        self.settle_burst().deliver_by_id(session, frame);
                    }
                }
                Action::Reply { data, successful } => {
                    if let Some((key, channel, id)) = call {
                        let parts = self.settle_burst();
                        let frames =
                            parts.fanout.encoder.copy_single(&message_frame(channel, &data, id, Some(successful)));
                        parts.deliver_to(key, &frames, None);
                    }
                }
                Action::DeliverToUser { user, channel, data } => {
                    let frame: Arc<[u8]> = message_frame(&channel, &data, None, None).into();
                    let parts = self.settle_burst();
                    parts.send_to_all_others(|| ShardMessage::DeliverToUser((*user).into(), frame.clone()));
                    parts.deliver_to_user(&user, &frame);
                }
                Action::DisconnectUser { user } => {
                    let parts = self.settle_burst();
                    parts.send_to_all_others(|| ShardMessage::DisconnectUser((*user).into()));
                    parts.disconnect_user(&user);
                }
                Action::Disconnect { session } => {
                    if let Some(session) = Id::parse(&session) {
                        self.settle_burst().kick_by_id(session);
                    }
                }
            }
        }
    }
}

impl Parts {
    /// Delivers a frame to a session on any shard.
    fn deliver_by_id(&mut self, session: Id, frame: Vec<u8>) {
        if session.shard() != self.index {
            return self.send_to_shard(session.shard(), ShardMessage::Deliver(session, frame.into()));
        }
        self.deliver_here(&session, &frame);
    }

    /// Delivers a frame to a session of this shard, if it is still there.
    pub(super) fn deliver_here(&mut self, session: &Id, frame: &[u8]) {
        if let Some(key) = self.sessions.find(session) {
            let frames = self.fanout.encoder.copy_single(frame);
            self.deliver_to(key, &frames, None);
        }
    }

    /// Ends a session on any shard.
    fn kick_by_id(&mut self, session: Id) {
        if session.shard() != self.index {
            return self.send_to_shard(session.shard(), ShardMessage::Disconnect(session));
        }
        self.kick_here(&session);
    }

    /// Ends a session of this shard, if it is still there.
    pub(super) fn kick_here(&mut self, session: &Id) {
        if let Some(key) = self.sessions.find(session) {
            self.kick(key, EndReason::Kicked);
        }
    }

    fn send_to_all_others(&mut self, message: impl Fn() -> ShardMessage) {
        for shard in (0..self.shared.shards).filter(|shard| *shard != self.index) {
            self.effects.push(Effect::SendToShard(shard, message()));
        }
    }

    fn send_to_shard(&mut self, shard: usize, message: ShardMessage) {
        if shard < self.shared.shards {
            self.effects.push(Effect::SendToShard(shard, message));
        }
    }
}
