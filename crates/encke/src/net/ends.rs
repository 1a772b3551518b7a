//! Ends of sessions that a program or the HTTP API orders: on all nodes of a cluster, and for those who would go on with a session later.

use encke_cluster::Ordered;
use encke_core::{Id, ShardMessage};

use super::everywhere::ClusterNodes;
use super::server_shared::ServerShared;
use crate::cluster::commands::{NodeCommand, NodeReply, Target};
use crate::cluster::settings::random_mark;

/// The outcome of an order.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The sessions that have ended.
    pub(crate) sessions: usize,
    /// True if no node goes on with one of them later. None without a cluster.
    pub(crate) is_recorded: Option<bool>,
    /// The nodes that were asked. None without a cluster.
    pub(crate) nodes: Option<ClusterNodes>,
}

impl ServerShared {
    /// Ends the session with this name or id on the node that has it, and in its record. Inside an error: no node has it, and true if all have
    /// answered. None if the server stops.
    pub(crate) async fn end_session(&self, session: &str) -> Option<Result<Ends, bool>> {
        let command = |session| NodeCommand::Disconnect { to: Target::Session(session), names_id: true, mark: 0 };
        let reached = self.at_session(session, command).await?;
        let (nodes, id) = (reached.nodes, reached.id);
        let found = reached.of_session();
        let id = match &found {
            Ok(NodeReply::Ended(id)) => Id::parse(id),
            _ => id.or_else(|| Id::parse(session)),
        };
        let ordered = match (&self.cluster, id) {
            (None, _) => return Some(found.map(|reply| Ends { sessions: reply.count(), is_recorded: None, nodes })),
            (Some(link), Some(id)) => link.order_end(id, found.is_ok()).await?,
            // Its node has an earlier version, which does not tell the id.
            (Some(_), None) if found.is_ok() => Ordered::Unrecorded,
            (Some(_), None) => Ordered::Unknown,
        };
        let is_recorded = Some(ordered == Ordered::Recorded);
        Some(match (found, ordered) {
            (Ok(reply), _) => Ok(Ends { sessions: reply.count(), is_recorded, nodes }),
            // Its node is gone, and nobody takes it over any more.
            (Err(_), Ordered::Recorded) => Ok(Ends { sessions: 1, is_recorded, nodes }),
            (Err(have_all_answered), Ordered::Unknown) => Err(have_all_answered),
            (Err(_), Ordered::Unrecorded) => Err(false),
        })
    }

    /// Ends all sessions of a user on all nodes, and those that somebody would take over later. None if the server stops.
    pub(crate) async fn end_user(&self, user: &str) -> Option<Ends> {
        let mark = if self.cluster.is_some() { random_mark() } else { 0 };
        let command = NodeCommand::Disconnect { to: Target::User(user.into()), names_id: false, mark };
        let recorded = async {
            match &self.cluster {
                Some(link) => link.end_user(user, mark).await,
                None => None,
            }
        };
        // First its mark: who takes a session over meanwhile asks for it.
        let (is_recorded, reached) = tokio::join!(recorded, self.everywhere(&command));
        let reached = reached?;
        Some(Ends { sessions: reached.sessions(), is_recorded, nodes: reached.nodes })
    }

    /// Ends sessions of this node. `names_id`: the reply has the id of one that was named. None if the server stops.
    pub(super) async fn end_here(&self, to: &Target, names_id: bool) -> Option<NodeReply> {
        let Target::Session(session) = to else { return self.reach(to, |id| ShardMessage::Disconnect(id, None)).await };
        let id = match self.find(session).await? {
            Ok((view, _)) => view.id,
            Err(reply) => return Some(reply),
        };
        let is_sent = self.mailboxes.send_to_shard(self.shared().shard_of(&id), ShardMessage::Disconnect(id, None));
        Some(match is_sent && names_id {
            true => NodeReply::Ended(id.as_str().into()),
            false => NodeReply::Count(is_sent.into()),
        })
    }
}
