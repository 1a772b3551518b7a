//! The actions of the application: publications, messages to sessions and users, ends of sessions.

use std::sync::Arc;

use bayeux::{ChannelName, Publication, RawJson, Reply};

use crate::application::{Action, Actions, EndReason};
use crate::events::{Effect, OTHER_NODES, SessionKey, ShardMessage};
use crate::id::Id;
use crate::limits::sessions::SessionOwner;
use crate::node_messages::{Elsewhere, ForNodes};
use crate::protocol::batch::{message_frame, reply_frame};
use crate::rights::table::ServerEntry;
use crate::shard::{Machines, Shard};

impl Shard {
    /// Publishes for the application, on behalf of this owner. An invalid channel name is ignored.
    pub(super) fn publish_from_here(
        &mut self,
        channel: &str,
        data: &str,
        ext: Option<&str>,
        payer: Option<SessionOwner>,
        is_lazy: bool,
    ) {
        if self.burst.payer() != payer {
            self.fan_out_burst();
        }
        let limits = self.machines.env.settings.limits().clone();
        if let Ok(name) = ChannelName::parse(channel, &limits) {
            let timestamp = self.machines.env.raw_timestamp();
            let publication = Publication {
                channel,
                data: Some(RawJson::trusted(data)),
                ext: ext.map(RawJson::trusted),
                timestamp: timestamp.as_deref().map(RawJson::trusted),
                id: None,
                custom: &[],
            };
            self.broadcast(name, &publication, (None, is_lazy), ServerEntry::Action.may());
            self.burst.belongs_to(payer);
        }
    }

    /// Runs the application's actions after sessions have ended. Deferred, not recursive: one end can cause others, and
    /// nesting them could overflow the stack.
    pub(super) fn run_deferred_actions(&mut self) {
        if self.machines.env.deferred_actions.is_empty() || std::mem::replace(&mut self.runs_deferred, true) {
            return;
        }
        while !self.machines.env.deferred_actions.is_empty() {
            while let Some((actions, owner)) = self.machines.env.deferred_actions.pop_front() {
                self.act_for(owner, actions, None);
            }
            self.fan_out_burst();
        }
        self.runs_deferred = false;
    }

    /// Runs the actions of an application. `call` is the session, the channel and the id of the current message, for
    /// replies.
    pub(super) fn act(&mut self, actions: Actions, call: Option<Called<'_>>) {
        let owner = call.and_then(|(caller, ..)| self.machines.clients.counted_for(caller));
        self.act_for(owner, actions, call);
    }

    /// The same for the owner who has caused them.
    fn act_for(&mut self, owner: Option<SessionOwner>, actions: Actions, call: Option<Called<'_>>) {
        for action in actions.0 {
            match action {
                Action::Publish { channel, data, ext, is_lazy } => {
                    self.publish_from_here(&channel, &data, ext.as_deref(), owner, is_lazy);
                }
                Action::Deliver { session, channel, data, id, ext } => {
                    let (id, ext) = (id.map(bayeux::Id::new), ext.as_deref().map(RawJson::trusted));
                    let data = Some(RawJson::trusted(&data));
                    let frame = reply_frame(&Reply { id: id.as_ref(), data, ext, ..Reply::new(&*channel) });
                    if let Some(session) = Id::parse(&session) {
                        self.settle_burst().deliver_by_id(session, frame, owner);
                    }
                }
                Action::Reply { data, successful } => {
                    if let Some((key, channel, id)) = call {
                        let frame = message_frame(channel, &data, id, Some(successful));
                        self.settle_burst().deliver_to(key, &frame);
                    }
                }
                Action::DeliverToUser { user, channel, data } => {
                    let frame: Arc<[u8]> = message_frame(&channel, &data, None, None).into();
                    let machines = self.settle_burst();
                    machines.send_to_all_others(|| ShardMessage::DeliverToUser((*user).into(), frame.clone()));
                    machines.act_elsewhere(owner, || Elsewhere::DeliverToUser((*user).into(), frame.clone()));
                    machines.deliver_to_user(&user, &frame);
                }
                Action::DisconnectUser { user } => {
                    let machines = self.settle_burst();
                    machines.send_to_all_others(|| ShardMessage::DisconnectUser((*user).into()));
                    machines.act_elsewhere(owner, || Elsewhere::DisconnectUser((*user).into()));
                    machines.disconnect_user(&user);
                }
                Action::ChangeAttribute { session, change } => {
                    if let Some(session) = Id::parse(&session) {
                        self.settle_burst().change_attribute_by_id(session, change, owner);
                    }
                }
                Action::Disconnect { session } => {
                    if let Some(session) = Id::parse(&session) {
                        self.settle_burst().kick_by_id(session, owner);
                    }
                }
            }
        }
    }
}

/// The session, the channel and the id of a message that gets a reply.
type Called<'a> = (SessionKey, &'a str, Option<&'a bayeux::Id<'a>>);

impl Machines {
    /// Delivers a frame to a session on any shard.
    fn deliver_by_id(&mut self, session: Id, frame: Vec<u8>, owner: Option<SessionOwner>) {
        let home = self.env.shared.shard_of(&session);
        if home != self.env.index {
            return self.send_to_shard(home, ShardMessage::Deliver(session, frame.into(), owner));
        }
        self.deliver_here(&session, &frame, owner);
    }

    /// Delivers a frame to a session of this shard, if it is still there. Another node may have it. `owner`: the one who has caused it.
    pub(super) fn deliver_here(&mut self, session: &Id, frame: &[u8], owner: Option<SessionOwner>) {
        match self.delivery.find(session) {
            Some(key) => self.deliver_to(key, frame),
            None => self.act_elsewhere(owner, || Elsewhere::Deliver(*session, frame.into())),
        }
    }

    /// Ends a session on any shard.
    fn kick_by_id(&mut self, session: Id, owner: Option<SessionOwner>) {
        let home = self.env.shared.shard_of(&session);
        if home != self.env.index {
            return self.send_to_shard(home, ShardMessage::Disconnect(session, owner));
        }
        self.kick_here(&session, owner);
    }

    /// Ends a session of this shard, if it is still there. Another node may have it. `owner`: the one who has caused it.
    pub(super) fn kick_here(&mut self, session: &Id, owner: Option<SessionOwner>) {
        match self.delivery.find(session) {
            Some(key) => self.kick(key, EndReason::Kicked),
            None => self.act_elsewhere(owner, || Elsewhere::Disconnect(*session)),
        }
    }

    /// Passes an action to the other nodes, if the server is a node of a cluster.
    #[inline(never)]
    pub(super) fn act_elsewhere(&mut self, owner: Option<SessionOwner>, action: impl FnOnce() -> Elsewhere) {
        if self.env.shared.is_clustered() {
            let message = ShardMessage::ForNodes(ForNodes::Elsewhere(action(), owner));
            self.emit(Effect::SendToShard(OTHER_NODES.into(), message));
        }
    }

    fn send_to_all_others(&mut self, message: impl Fn() -> ShardMessage) {
        let (shards, own) = (self.env.shared.shards, self.env.index);
        for shard in (0..shards).filter(|shard| *shard != own) {
            self.emit(Effect::SendToShard(shard, message()));
        }
    }

    pub(super) fn send_to_shard(&mut self, shard: usize, message: ShardMessage) {
        if shard < self.env.shared.shards {
            self.emit(Effect::SendToShard(shard, message));
        }
    }
}
