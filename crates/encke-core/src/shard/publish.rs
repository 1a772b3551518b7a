//! Publications: encodes each one once and gathers consecutive ones into a burst. `batch` leads here for publications
//! of clients, and the application's actions for its own. The burst goes to `record` if its channel has a history, else
//! to `fan_out`.

use bayeux::{ChannelName, Publication as Message, RawJson};
use websocket::Opcode;

use crate::application::{Action, Actions};
use crate::events::{Effect, PublishToken, SessionKey, ShardMessage};
use crate::fanout::delivery::Delivery;
use crate::protocol::batch::message_frame;
use crate::sessions::id::Id;
use crate::sessions::session::Ended;
use crate::shard::Shard;

impl Shard {
    /// Publishes to all subscribers on all shards. Returns the token for which the reply to the publisher waits, if it
    /// has to wait.
    pub(super) fn broadcast(
        &mut self,
        channel: ChannelName<'_>,
        message: &Message<'_>,
        from: Option<SessionKey>,
    ) -> Option<PublishToken> {
        self.metrics.publications.add(1);
        let frames = self.arena.frame(Opcode::Text, message.encoded_bytes() + 2, |bytes| {
            bytes.push(b'[');
            message.write(bytes);
            bytes.push(b']');
        });
        if !self.burst.take(channel, &frames, from) {
            self.fan_out_pending();
            let token = self.token(channel).filter(|_| from.is_some());
            self.burst.start(channel, frames, from, token);
        }
        self.burst.token()
    }

    /// Fans out the pending burst. Everything that looks at outboxes or changes subscriptions calls this first.
    pub(crate) fn fan_out_pending(&mut self) {
        self.fan_out_burst();
        self.run_deferred_actions();
    }

    fn fan_out_burst(&mut self) {
        let Some((frames, messages)) = self.burst.finish() else { return };
        let burst = std::mem::take(&mut self.burst);
        let channel = ChannelName::known(burst.channel());
        let rule = self.rule_of(channel);
        let except = burst.from().filter(|_| !self.returns_to_publisher(rule));
        let delivery = Delivery { channel, frames: &frames, messages, rule, position: None, token: burst.token() };
        match rule.and_then(|rule| self.settings.channels[rule].history()) {
            Some(terms) if !channel.is_pattern() => self.record(&delivery, terms, except),
            _ => self.deliver_everywhere(&delivery, except, self.id_of_session(except)),
        }
        self.burst = burst;
    }

    /// Publishes for the application. An invalid channel name is ignored.
    pub(crate) fn publish_from_here(&mut self, channel: &str, data: &str) {
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

    /// Runs the application's actions after sessions have ended. Deferred, not recursive: one end can cause others, and
    /// nesting them could overflow the stack.
    fn run_deferred_actions(&mut self) {
        if self.deferred_actions.is_empty() || std::mem::replace(&mut self.is_running_deferred, true) {
            return;
        }
        while !self.deferred_actions.is_empty() {
            while let Some(actions) = self.deferred_actions.pop_front() {
                self.act(actions, None);
            }
            self.fan_out_burst();
        }
        self.is_running_deferred = false;
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
                        self.deliver_by_id(session, frame);
                    }
                }
                Action::Reply { data, successful } => {
                    if let Some((key, channel, id)) = call {
                        let frames = self.own.encoded(&message_frame(channel, &data, id, Some(successful)));
                        self.deliver_to(key, &frames, None);
                    }
                }
                Action::Disconnect { session } => {
                    if let Some(session) = Id::parse(&session) {
                        self.kick_by_id(session);
                    }
                }
            }
        }
    }

    /// Delivers a frame to a session on any shard.
    fn deliver_by_id(&mut self, session: Id, frame: Vec<u8>) {
        if session.shard() != self.index {
            return self.send_to_shard(session.shard(), ShardMessage::Deliver(session, frame.into()));
        }
        // Earlier publications come first.
        self.fan_out_pending();
        self.deliver_here(&session, &frame);
    }

    /// Delivers a frame to a session of this shard, if it is still there.
    pub(super) fn deliver_here(&mut self, session: &Id, frame: &[u8]) {
        if let Some(key) = self.sessions.find(session) {
            let frames = self.own.encoded(frame);
            self.deliver_to(key, &frames, None);
        }
    }

    /// Ends a session on any shard.
    fn kick_by_id(&mut self, session: Id) {
        if session.shard() != self.index {
            return self.send_to_shard(session.shard(), ShardMessage::Disconnect(session));
        }
        self.fan_out_pending();
        self.kick_here(&session);
    }

    /// Ends a session of this shard, if it is still there.
    pub(super) fn kick_here(&mut self, session: &Id) {
        if let Some(key) = self.sessions.find(session) {
            self.kick(key, Ended::Kicked);
        }
    }

    fn send_to_shard(&mut self, shard: usize, message: ShardMessage) {
        if shard < self.shared.shards {
            self.effects.push(Effect::SendToShard(shard, message));
        }
    }
}
