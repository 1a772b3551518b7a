//! Presence over all nodes of a cluster: a task that lets the other nodes know what this one follows, and reports to those that follow
//! it; and the lists of all members.

use std::sync::Arc;
use std::time::Duration;

use encke_cluster::Callee;
use encke_core::{Granted, Id, PresenceEvent, SessionOwner, Settings, ShardMessage};
use encke_local::{Members, ToFollow};
use tokio::time::{Instant, timeout, timeout_at};

use super::commands::{NodeCommand, NodeReply};
use crate::handle::Handle;
use crate::net::everywhere::ClusterNodes;
use crate::net::server_shared::ServerShared;
use crate::presence::{ForNodes, Presence};

/// Runs until the server has stopped.
pub(crate) async fn run(handle: Handle) {
    let server = handle.server();
    while let Some(pause) = turn(server, &handle.settings()) {
        _ = timeout(pause, server.presence.to_nodes.notified()).await;
    }
}

/// Does what has to be done now. Returns the time until the next turn; None if the server has stopped.
fn turn(server: &Arc<ServerShared>, settings: &Settings) -> Option<Duration> {
    let link = server.cluster.as_ref()?;
    if server.presence.is_stopped() {
        return None;
    }
    let (own, now) = (link.nodes().0, server.clock.now());
    let ForNodes { follows, reports, next_ms } = server.presence.for_nodes(link.others().as_deref(), now, settings);
    for ToFollow { node, stream, names, is_whole } in follows {
        let command = NodeCommand::FollowMembers { node: own, stream, names, is_whole };
        let server = server.clone();
        server.application.clone().spawn(async move {
            let is_taken = server.is_taken(node, &command).await;
            server.presence.followed(node, stream, is_taken, server.clock.now());
        });
    }
    for (node, stream, report) in reports {
        let command = NodeCommand::ReportMembers { node: own, stream, report };
        let server = server.clone();
        server.application.clone().spawn(async move {
            let is_taken = server.is_taken(node, &command).await;
            server.presence.reported(node, stream, is_taken);
        });
    }
    let pause_ms = next_ms.map_or(LOOK_MS, |next_ms| next_ms.saturating_sub(now.ms).clamp(1, LOOK_MS));
    Some(Duration::from_millis(pause_ms))
}

impl ServerShared {
    /// Sends a command to a node. True: it has done it.
    async fn is_taken(&self, node: u64, command: &NodeCommand) -> bool {
        let Some(link) = &self.cluster else { return false };
        let replies = link.command(Callee::Node(node), command).await.unwrap_or_default().replies;
        replies.iter().any(|(_, reply)| matches!(reply, NodeReply::Count(_)))
    }

    /// The members of a channel on all nodes of a cluster, and the nodes; without a cluster on this node. `owner`: the client that asks; one
    /// that has asked for very many channels gets what this node knows.
    pub(crate) async fn members_everywhere(
        &self,
        channel: &str,
        (after, max): (&str, usize),
        owner: Option<SessionOwner>,
        granted: Granted,
    ) -> (Members, Option<ClusterNodes>) {
        let Some(link) = &self.cluster else { return (self.presence.members(channel, after, max, granted), None) };
        let nodes = link.nodes().1.len().max(1);
        let missing = if self.presence.ask(channel, owner, link.others().as_deref(), self.clock.now()) {
            self.until_gathered(channel).await
        } else {
            nodes - 1
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
        self.deliver_presence(session, Presence::answer(&channel, id.as_ref(), &members));
    }

    /// The same, of all nodes of a cluster.
    pub(crate) async fn answer_presence_everywhere(&self, event: PresenceEvent) {
        let PresenceEvent::Asked { channel, session, id, after, limit, owner, granted } = event else { return };
        let (members, _) = self.members_everywhere(&channel, (&after, limit), owner, granted).await;
        self.deliver_presence(session, Presence::answer(&channel, id.as_ref(), &members));
    }

    fn deliver_presence(&self, session: Id, frame: Vec<u8>) {
        let home = self.shared().shard_of(&session);
        // A shard that has ended has no sessions.
        _ = self.mailboxes.send_to_shard(home, ShardMessage::Deliver(session, frame.into(), None));
    }
}

/// The longest pause between two looks at the nodes that are there, in milliseconds.
const LOOK_MS: u64 = 1_000;
/// The longest wait for the members of a channel: a little longer than their nodes have to report them.
const GATHERED_MAX: Duration = Duration::from_millis(2_500);
