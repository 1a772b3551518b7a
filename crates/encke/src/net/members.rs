//! The lists of the members of channels, of all nodes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use encke_core::{Granted, Id, PresenceEvent, SessionOwner, ShardMessage};
use encke_local::Members;
use tokio::time::{Instant, timeout_at};

use super::everywhere::ClusterNodes;
use super::server_shared::ServerShared;
use crate::presence::{Presence, Waiter};

impl ServerShared {
    /// The members of a channel on all nodes of a cluster, and the nodes; without a cluster on this node. `owner`: the client that asks; one
    /// that has asked for very many channels, or very often at once, gets what this node knows.
    pub(crate) async fn members_everywhere(
        &self,
        channel: &str,
        (after, max): (&str, usize),
        owner: Option<SessionOwner>,
        granted: Granted,
    ) -> (Members, Option<ClusterNodes>) {
        let waiter = self.presence.waiter(owner, channel.len() + after.len());
        self.members_for(channel, (after, max), (owner, waiter), granted).await
    }

    /// The same for one who may wait. None: it may not.
    async fn members_for(
        &self,
        channel: &str,
        (after, max): (&str, usize),
        (owner, waiter): (Option<SessionOwner>, Option<Waiter>),
        granted: Granted,
    ) -> (Members, Option<ClusterNodes>) {
        let Some(link) = &self.cluster else { return (self.presence.members(channel, after, max, granted), None) };
        let nodes = link.nodes().1.len().max(1);
        let is_asked =
            waiter.is_some() && self.presence.ask(channel, owner, link.others().as_deref(), self.clock.now());
        let missing = match is_asked {
            true => self.until_gathered(channel).await,
            false if self.presence.is_gathered(channel).0 => 0,
            false => nodes - 1,
        };
        let members = self.presence.members(channel, after, max, granted);
        (members, Some(ClusterNodes { nodes, answered: nodes.saturating_sub(missing) }))
    }

    /// Waits until the members of a channel are gathered, for a while. Returns the number of nodes that have not reported.
    async fn until_gathered(&self, channel: &str) -> usize {
        let until = Instant::now() + GATHERED_MAX;
        loop {
            let woken = self.presence.gathered.notified();
            let (is_gathered, missing) = self.presence.is_gathered(channel);
            if is_gathered || self.presence.is_stopped() || timeout_at(until, woken).await.is_err() {
                return missing;
            }
        }
    }

    /// Answers a client that has asked for the members of a channel, of this node.
    pub(crate) fn answer_presence(&self, event: PresenceEvent) {
        let PresenceEvent::Asked { channel, session, id, after, limit, granted, .. } = event else { return };
        let members = self.presence.members(&channel, &after, limit, granted);
        self.deliver_members(session, (&channel, id.as_ref()), &members);
    }

    /// The same, of all nodes of a cluster. One that may not wait gets what this node knows.
    pub(crate) fn answer_presence_everywhere(self: &Arc<Self>, event: PresenceEvent) {
        let PresenceEvent::Asked { channel, owner, after, .. } = &event else { return };
        let Some(waiter) = self.presence.waiter(*owner, channel.len() + after.len()) else {
            return self.answer_presence(event);
        };
        let server = self.clone();
        self.application.spawn(async move {
            let PresenceEvent::Asked { channel, session, id, after, limit, owner, granted } = event else { return };
            let asker = (owner, Some(waiter));
            let (members, _) = server.members_for(&channel, (&after, limit), asker, granted).await;
            server.deliver_members(session, (&channel, id.as_ref()), &members);
        });
    }

    fn deliver_members(&self, session: Id, (channel, id): (&str, Option<&bayeux::Id<'_>>), members: &Members) {
        let frame = Presence::answer(channel, id, members);
        let home = self.shared().shard_of(&session);
        // A shard that has ended has no sessions.
        _ = self.mailboxes.send_to_shard(home, ShardMessage::Deliver(session, frame.into(), None));
    }
}

/// The longest wait for the members of a channel: a little longer than their nodes have to report them.
const GATHERED_MAX: Duration = Duration::from_millis(2_500);
