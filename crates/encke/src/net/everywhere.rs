//! Commands and lists over all nodes of a cluster: this node first, then the others. Without a cluster it is this node alone.

use encke_cluster::Callee;
use encke_core::Id;

use super::listing::Cursor;
use super::server_shared::ServerShared;
use crate::cluster::commands::{ListedChannel, ListedPage, ListedSession, NodeCommand, NodeReply};
use crate::cluster::link::{Link, Replies};
use crate::session_names::SessionNames;

/// The nodes of a cluster that something was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterNodes {
    /// The nodes that are there, with this one.
    pub nodes: usize,
    /// Those of them that have answered, with this one.
    pub answered: usize,
}

/// The outcome of a command.
#[derive(Debug)]
pub(crate) struct Everywhere {
    /// The replies. Of a command about one session it is one.
    pub(crate) replies: Vec<NodeReply>,
    /// None without a cluster.
    pub(crate) nodes: Option<ClusterNodes>,
    /// The id of a session that all nodes were asked for.
    pub(crate) id: Option<Id>,
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct WidePage<T> {
    pub(crate) items: Vec<T>,
    /// The cursor of the next page.
    pub(crate) next: Option<String>,
    pub(crate) nodes: Option<ClusterNodes>,
}

/// A position in a list over all nodes: a node, and a position there. None for a node: the first one.
pub(crate) type WideCursor = (Option<u64>, Cursor);

impl Everywhere {
    /// The number of sessions that it has reached.
    pub(crate) fn sessions(&self) -> usize {
        self.replies.iter().map(NodeReply::count).sum()
    }

    /// The reply of the node with the session. None if no node has it: then true says that all have answered.
    pub(crate) fn of_session(self) -> Result<NodeReply, bool> {
        let are_all_there = self.nodes.is_none_or(|nodes| nodes.answered >= nodes.nodes);
        let is_found = |reply: &NodeReply| !matches!(reply, NodeReply::Unknown | NodeReply::Elsewhere(_));
        self.replies.into_iter().find(is_found).ok_or(are_all_there)
    }
}

impl ServerShared {
    /// Runs a command on all nodes. None if the server stops.
    pub(crate) async fn everywhere(&self, command: &NodeCommand) -> Option<Everywhere> {
        let own = self.run_here(command).await;
        if own == NodeReply::Failed {
            return None;
        }
        let mut replies = vec![own];
        let Some(cluster) = &self.cluster else { return Some(Everywhere { replies, nodes: None, id: None }) };
        let others = cluster.command(Callee::All, command).await?;
        let nodes = Some(ClusterNodes::of(&others));
        replies.extend(others.replies.into_iter().map(|(_, reply)| reply));
        Some(Everywhere { replies, nodes, id: None })
    }

    /// Runs a command about one session, which `command` makes for its name or id, on the node that has it. None if the server stops.
    pub(crate) async fn at_session(
        &self,
        session: &str,
        command: impl Fn(String) -> NodeCommand,
    ) -> Option<Everywhere> {
        let own = self.run_here(&command(session.into())).await;
        let Some(cluster) = self.cluster.as_deref() else {
            return (own != NodeReply::Failed).then(|| Everywhere { replies: vec![own], nodes: None, id: None });
        };
        let id = match own {
            NodeReply::Failed => return None,
            NodeReply::Elsewhere(id) => id,
            NodeReply::Unknown => match SessionNames::node_of(session) {
                None => session.to_owned(),
                Some(tag) => match ask(cluster, Callee::Tagged(tag), &command(session.into())).await? {
                    // It has moved since, and may have come here.
                    Found::Elsewhere(id) => {
                        let own = self.run_here(&command(id.clone())).await;
                        if !matches!(own, NodeReply::Unknown | NodeReply::Failed) {
                            return Some(one(own, 2, 2));
                        }
                        id
                    }
                    Found::At(found) => return Some(found),
                },
            },
            reply => return Some(one(reply, 1, 1)),
        };
        let Some(parsed) = Id::parse(&id) else { return Some(one(NodeReply::Unknown, 1, 1)) };
        let command = command(id);
        // Mostly it is on the node that has opened it.
        if Some(parsed.node()) != self.shared().node
            && let Found::At(found) = ask(cluster, Callee::Tagged(parsed.node()), &command).await?
            && found.replies.iter().any(|reply| *reply != NodeReply::Unknown)
        {
            return Some(found);
        }
        let others = cluster.command(Callee::All, &command).await?;
        let nodes = Some(ClusterNodes::of(&others));
        let replies = others.replies.into_iter().map(|(_, reply)| reply).collect();
        Some(Everywhere { replies, nodes, id: Some(parsed) })
    }

    /// The position with this text in a list over all nodes. None if it is the text of none.
    pub(crate) fn wide_cursor(&self, text: Option<&str>) -> Option<WideCursor> {
        let (Some(text), Some(_)) = (text, &self.cluster) else { return Some((None, self.cursor(text)?)) };
        let (node, rest) = text.split_once('-')?;
        let is_number = node.len() == 16 && node.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let node = u64::from_str_radix(node, 16).ok().filter(|_| is_number)?;
        // Another node may have more shards.
        let (shard, slot) = rest.split_once('.')?;
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        Some((Some(node), (number(shard)?, number(slot)?)))
    }

    /// A page of the sessions of all nodes, one node after the other. None if the server stops.
    pub(crate) async fn list_sessions_everywhere(
        &self,
        from: WideCursor,
        limit: usize,
    ) -> Option<WidePage<ListedSession>> {
        let command = |from, limit| NodeCommand::Sessions { from, limit };
        let read = |reply| if let NodeReply::Sessions(page) = reply { Some(page) } else { None };
        self.list_everywhere(from, limit, command, read).await.map(|(page, _)| page)
    }

    /// A page of the channels and patterns of all nodes. One with subscribers on several nodes belongs to the list of the first of them; the
    /// others only count their subscribers. None if the server stops.
    pub(crate) async fn list_channels_everywhere(
        &self,
        from: WideCursor,
        limit: usize,
        pattern: Option<&str>,
    ) -> Option<WidePage<ListedChannel>> {
        let command = |from, limit| NodeCommand::Channels { from, limit, pattern: pattern.map(String::from) };
        let read = |reply| if let NodeReply::Channels(page) = reply { Some(page) } else { None };
        let (mut page, nodes_of_items) = self.list_everywhere(from, limit, command, read).await?;
        let Some(cluster) = self.cluster.as_deref().filter(|_| !page.items.is_empty()) else { return Some(page) };
        let names: Vec<Box<str>> = page.items.iter().map(|channel| channel.name.clone()).collect();
        let command = NodeCommand::Subscribers { names };
        let (own_node, _) = cluster.nodes();
        let own = (own_node, self.run_here(&command).await);
        let others = cluster.command(Callee::All, &command).await?;
        page.nodes = page
            .nodes
            .map(|nodes| ClusterNodes { answered: nodes.answered.min(ClusterNodes::of(&others).answered), ..nodes });
        let mut belongs = vec![true; page.items.len()];
        for (node, reply) in std::iter::once(own).chain(others.replies) {
            let NodeReply::Counts(counts) = reply else { continue };
            for (index, count) in counts.into_iter().enumerate().take(page.items.len()) {
                let listed_by = nodes_of_items[index];
                if node != listed_by {
                    page.items[index].subscribers += count;
                    belongs[index] &= count == 0 || node > listed_by;
                }
            }
        }
        let mut belongs = belongs.into_iter();
        page.items.retain(|_| belongs.next().unwrap_or(true));
        Some(page)
    }

    /// Reads nodes until there are `limit` items, or one of them has searched for long. Returns with them the nodes that have listed them.
    async fn list_everywhere<T>(
        &self,
        (from_node, from): WideCursor,
        limit: usize,
        command: impl Fn(Cursor, usize) -> NodeCommand,
        read: impl Fn(NodeReply) -> Option<ListedPage<T>>,
    ) -> Option<(WidePage<T>, Vec<u64>)> {
        let Some(cluster) = self.cluster.as_deref() else {
            let ListedPage { items, next } = read(self.run_here(&command(from, limit)).await)?;
            let next = next.map(|(shard, slot)| format!("{shard}.{slot}"));
            return Some((WidePage { items, next, nodes: None }, Vec::new()));
        };
        let (own, nodes) = cluster.nodes();
        let first = from_node.or_else(|| nodes.first().copied())?;
        // The node of the cursor may be gone: the list goes on with the one after it.
        let mut at = nodes.iter().copied().find(|node| *node >= first);
        let mut from = if at == from_node { from } else { (0, 0) };
        let (mut items, mut listed_by, mut silent) = (Vec::new(), Vec::new(), 0);
        while let Some(node) = at
            && items.len() < limit
        {
            let command = command(from, limit - items.len());
            let reply =
                if node == own { Some(self.run_here(&command).await) } else { cluster.one(node, &command).await? };
            let page = reply.and_then(&read);
            silent += usize::from(page.is_none());
            let page = page.unwrap_or(ListedPage { items: Vec::new(), next: None });
            listed_by.resize(listed_by.len() + page.items.len(), node);
            items.extend(page.items);
            if let Some(next) = page.next {
                // It has searched for long, or the page is full.
                from = next;
                break;
            }
            (at, from) = (nodes.iter().copied().find(|other| *other > node), (0, 0));
            if silent > 0 {
                break;
            }
        }
        let next = at.map(|node| format!("{node:016x}-{}.{}", from.0, from.1));
        let nodes = Some(ClusterNodes { nodes: nodes.len(), answered: nodes.len().saturating_sub(silent) });
        Some((WidePage { items, next, nodes }, listed_by))
    }
}

impl Link {
    /// The reply of one node. None inside if it has not answered.
    async fn one(&self, node: u64, command: &NodeCommand) -> Option<Option<NodeReply>> {
        let replies = self.command(Callee::Node(node), command).await?.replies;
        Some(replies.into_iter().next().map(|(_, reply)| reply))
    }
}

/// The answer of the node that may have a session.
enum Found {
    /// It is not there, and has this id.
    Elsewhere(String),
    At(Everywhere),
}

/// Asks a node for a session. None if the server stops.
async fn ask(cluster: &Link, callee: Callee, command: &NodeCommand) -> Option<Found> {
    let Replies { nodes, replies } = cluster.command(callee, command).await?;
    let reply = replies.into_iter().next().map(|(_, reply)| reply);
    Some(match reply {
        Some(NodeReply::Elsewhere(id)) => Found::Elsewhere(id),
        Some(reply) => Found::At(one(reply, 1 + nodes, 1 + nodes)),
        None => Found::At(one(NodeReply::Unknown, 1 + nodes, 1)),
    })
}

/// The reply of one node, after so many have been asked.
fn one(reply: NodeReply, nodes: usize, answered: usize) -> Everywhere {
    Everywhere { replies: vec![reply], nodes: Some(ClusterNodes { nodes, answered }), id: None }
}

impl ClusterNodes {
    /// This node and others.
    pub(crate) fn of(others: &Replies) -> ClusterNodes {
        ClusterNodes { nodes: 1 + others.nodes, answered: 1 + others.replies.len() }
    }
}
