//! Commands of this node and of others about the sessions that are here. They return when this node has done them.

use bayeux::{ChannelKind, ChannelName, Limits};
use encke_core::{AttributeChange, Attributes, Changed, Id, Owner, SessionTerms, SessionView, ShardMessage, Weight};

use super::listing::{Cursor, List};
use super::requests::Change;
use super::server_shared::ServerShared;
use crate::cluster::commands::{ListedChannel, ListedPage, ListedSession, NodeCommand, NodeReply, Target};
use crate::error::SubscriptionError;

impl ServerShared {
    /// Runs a command on this node.
    pub(crate) async fn run_here(&self, command: &NodeCommand) -> NodeReply {
        let reply = match command {
            NodeCommand::Deliver { to, message } => {
                self.reach(to, |id| ShardMessage::Deliver(id, message.clone(), None)).await
            }
            NodeCommand::Disconnect { to, names_id, .. } => self.end_here(to, *names_id).await,
            NodeCommand::Unsubscribe { user, channel } => self.unsubscribe_user_here(user, channel).await,
            NodeCommand::Change { session, channel, subscribes } => {
                self.change_here(session, channel, *subscribes).await
            }
            NodeCommand::Terms { session, terms } => self.set_terms_here(session, *terms).await,
            NodeCommand::ChangeAttribute { session, change } => self.change_attribute_here(session, change).await,
            NodeCommand::Attributes { session } => self.show_attributes(session).await,
            NodeCommand::Revoke { token_id, until_ms } => {
                self.take_revoked(token_id, *until_ms).await.map(NodeReply::Count)
            }
            NodeCommand::FollowMembers { node, stream, names, page } => {
                self.presence.follow((*node, *stream), (names.clone(), *page), self.clock.now());
                Some(NodeReply::Count(0))
            }
            NodeCommand::ReportMembers { node, stream, report } => {
                let is_taken = self.presence.take_report((*node, *stream), report.clone());
                Some(if is_taken { NodeReply::Count(0) } else { NodeReply::Unknown })
            }
            NodeCommand::ReserveKey { key, request, node } => Some(self.lend_key((*key, *request), *node)),
            NodeCommand::GiveBackKey { key, node } => {
                self.api.idempotency.give_back(key, *node);
                Some(NodeReply::Count(0))
            }
            NodeCommand::NoteAnswer { key, request, status, body } => {
                Some(self.note_answer((*key, *request), *status, body))
            }
            NodeCommand::Session { session } => self.show(session).await,
            NodeCommand::Sessions { from, limit } => {
                let listed = self.list_sessions(*from, *limit).await;
                let listed = listed.map(|listed| self.page(listed, |view| self.listed_session(view)));
                listed.map(NodeReply::Sessions)
            }
            NodeCommand::Channels { from, limit, pattern } => {
                let listed = self.list_channels(*from, *limit, pattern.as_deref()).await;
                listed.map(|listed| NodeReply::Channels(self.page(listed, ListedChannel::from)))
            }
            NodeCommand::Subscribers { names } => self.subscribers_of(names).await.map(NodeReply::Counts),
        };
        reply.unwrap_or(NodeReply::Failed)
    }

    /// Runs a command of another node. Its reply has at most so many bytes: a list gets shorter pages.
    pub(crate) async fn run_for_node(&self, mut command: NodeCommand, bytes_max: usize) -> Vec<u8> {
        leave_out_invalid(&mut command);
        if !is_valid(&command) {
            return NodeReply::Failed.write();
        }
        if matches!(command, NodeCommand::Deliver { .. }) && !self.mailboxes.account().has_room(Weight::Heavy) {
            return NodeReply::Failed.write();
        }
        loop {
            let reply = self.run_here(&command).await.write();
            match &mut command {
                NodeCommand::Sessions { limit, .. } | NodeCommand::Channels { limit, .. }
                    if reply.len() > bytes_max && *limit > 1 =>
                {
                    *limit /= 2;
                }
                _ if reply.len() > bytes_max => return NodeReply::Failed.write(),
                _ => return reply,
            }
        }
    }

    /// The name of a session with what lists show of it.
    pub(crate) fn listed_session(&self, view: SessionView) -> ListedSession {
        let name = self.api.session_names.of(&view.id);
        ListedSession::of(view, name)
    }

    /// Sends a message to the shards of these sessions. None if the server stops.
    pub(super) async fn reach(&self, to: &Target, message: impl Fn(Id) -> ShardMessage) -> Option<NodeReply> {
        let ids = match to {
            Target::User(user) => self.sessions_of(Owner::User(user.clone())).await?,
            Target::Session(session) => match self.find(session).await? {
                Ok((view, _)) => vec![view.id],
                Err(reply) => return Some(reply),
            },
        };
        let sent = ids.iter().filter(|id| self.mailboxes.send_to_shard(self.shared().shard_of(id), message(**id)));
        Some(NodeReply::Count(sent.count()))
    }

    /// A session with its channels, or the reply that it is not here. None if the server stops.
    pub(super) async fn find(&self, session: &str) -> Option<Result<(SessionView, Vec<Box<str>>), NodeReply>> {
        let names = &self.api.session_names;
        let Some(id) = names.id(session) else { return Some(Err(NodeReply::Unknown)) };
        let home = self.shared().shard_of(&id);
        if home >= self.mailboxes.shards() {
            return Some(Err(NodeReply::Unknown));
        }
        let found = self.inspect(home, move |shard| shard.session(&id)).await?;
        Some(found.ok_or_else(|| match session == id.as_str() {
            true => NodeReply::Unknown,
            false => NodeReply::Elsewhere(id.as_str().into()),
        }))
    }

    async fn show(&self, session: &str) -> Option<NodeReply> {
        Some(match self.find(session).await? {
            Ok((view, channels)) => NodeReply::Session(self.listed_session(view), channels),
            Err(reply) => reply,
        })
    }

    async fn change_here(&self, session: &str, channel: &str, subscribes: bool) -> Option<NodeReply> {
        let id = match self.find(session).await? {
            Ok((view, _)) => view.id,
            Err(reply) => return Some(reply),
        };
        let change = if subscribes { Change::Subscribe } else { Change::Unsubscribe };
        match self.change_subscription(change, id, channel).await {
            Ok(()) => Some(NodeReply::Count(1)),
            Err(SubscriptionError::Full) => Some(NodeReply::Full),
            Err(SubscriptionError::Stopped) => None,
            Err(_) => Some(NodeReply::Unknown),
        }
    }

    async fn set_terms_here(&self, session: &str, terms: SessionTerms) -> Option<NodeReply> {
        let id = match self.find(session).await? {
            Ok((view, _)) => view.id,
            Err(reply) => return Some(reply),
        };
        Some(match self.set_terms(id, terms).await? {
            Changed::Done => NodeReply::Count(1),
            _ => NodeReply::Unknown,
        })
    }

    async fn change_attribute_here(&self, session: &str, change: &AttributeChange) -> Option<NodeReply> {
        let id = match self.find(session).await? {
            Ok((view, _)) => view.id,
            Err(reply) => return Some(reply),
        };
        Some(match self.change_attribute(id, change.clone()).await? {
            Changed::Version(version) => NodeReply::Version(version),
            Changed::Conflict(version) => NodeReply::Conflict(version),
            Changed::Full => NodeReply::Full,
            _ => NodeReply::Unknown,
        })
    }

    async fn show_attributes(&self, session: &str) -> Option<NodeReply> {
        let id = match self.find(session).await? {
            Ok((view, _)) => view.id,
            Err(reply) => return Some(reply),
        };
        let attributes = self.inspect(self.shared().shard_of(&id), move |shard| shard.attributes(&id)).await?;
        // It may have ended meanwhile.
        Some(attributes.map_or(NodeReply::Unknown, |attributes| NodeReply::Attributes(Attributes::clone(&attributes))))
    }

    async fn unsubscribe_user_here(&self, user: &str, channel: &str) -> Option<NodeReply> {
        let mut sessions = 0;
        for id in self.sessions_of(Owner::User(user.into())).await? {
            // One that has just ended has no subscription, either.
            let changed = self.change_subscription(Change::Unsubscribe, id, channel).await;
            sessions += usize::from(changed.is_ok());
        }
        Some(NodeReply::Count(sessions))
    }

    /// The numbers of subscribers of channels and patterns on all shards.
    async fn subscribers_of(&self, names: &[Box<str>]) -> Option<Vec<usize>> {
        let mut counts = vec![0; names.len()];
        for shard in 0..self.mailboxes.shards() {
            let names = names.to_vec();
            let count = move |shard: &encke_core::Shard| {
                names.iter().map(|name| shard.subscribers_of(name)).collect::<Vec<_>>()
            };
            let here = self.inspect(shard, count).await?;
            counts.iter_mut().zip(here).for_each(|(sum, count)| *sum += count);
        }
        Some(counts)
    }

    fn page<T, U>(&self, listed: List<T>, item: impl FnMut(T) -> U) -> ListedPage<U> {
        let next: Option<Cursor> = listed.next.and_then(|next| self.cursor(Some(&next)));
        ListedPage { items: listed.items.into_iter().map(item).collect(), next }
    }
}

/// The kind of a channel or pattern in a command of another node. None if it is no name. The other node may have a higher
/// `channel_segments_max`.
fn kind(name: &str) -> Option<ChannelKind> {
    let (channel_bytes_max, channel_segments_max) = (encke_cluster::channel_bytes_max(), usize::MAX);
    let limits = Limits { channel_bytes_max, channel_segments_max, ..Limits::default() };
    ChannelName::parse(name, &limits).ok().map(|name| name.kind())
}

/// Leaves out what cannot have members from a command about members: one such name must not hide those of all others.
fn leave_out_invalid(command: &mut NodeCommand) {
    let has_members = |name: &str| kind(name) == Some(ChannelKind::Broadcast);
    match command {
        NodeCommand::FollowMembers { names, .. } => names.retain(|name| has_members(name)),
        NodeCommand::ReportMembers { report, .. } => report.parts.retain(|part| has_members(&part.channel)),
        _ => {}
    }
}

/// True if the names and numbers in a command of another node harm nobody here.
fn is_valid(command: &NodeCommand) -> bool {
    match command {
        NodeCommand::Unsubscribe { channel, .. } | NodeCommand::Change { channel, .. } => {
            kind(channel) == Some(ChannelKind::Broadcast)
        }
        NodeCommand::Terms { terms, .. } => terms.check().is_ok(),
        // The other node may have a higher `json_depth_max`.
        NodeCommand::ChangeAttribute { change, .. } => change.check(usize::MAX).is_ok(),
        NodeCommand::Sessions { limit, .. } => (1..=LIMIT_MAX).contains(limit),
        NodeCommand::Channels { limit, pattern, .. } => {
            (1..=LIMIT_MAX).contains(limit) && pattern.as_deref().is_none_or(|pattern| kind(pattern).is_some())
        }
        NodeCommand::Subscribers { names } => names.len() <= LIMIT_MAX && names.iter().all(|name| kind(name).is_some()),
        _ => true,
    }
}

/// The most items that another node gets.
const LIMIT_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_other_nodes_with_names_and_numbers_out_of_range_are_refused() {
        let change =
            |channel: &str| NodeCommand::Change { session: "a".into(), channel: channel.into(), subscribes: true };
        assert!(["/a", "/a/**"].into_iter().all(|channel| is_valid(&change(channel))));
        assert!(
            !["", "a", "/meta/connect", "/service/a", "/a\n"].into_iter().any(|channel| is_valid(&change(channel)))
        );
        let sessions = |limit| NodeCommand::Sessions { from: (0, 0), limit };
        assert_eq!([0, 1, 1_000, 1_001].map(|limit| is_valid(&sessions(limit))), [false, true, true, false]);
        let terms = |timeout_ms| {
            let terms = SessionTerms { timeout_ms, ..SessionTerms::default() };
            NodeCommand::Terms { session: "a".into(), terms }
        };
        assert_eq!([None, Some(1), Some(0)].map(|ms| is_valid(&terms(ms))), [true, true, false]);
        let set = |name: &str, value: &str| {
            let change = AttributeChange::set(name, value);
            NodeCommand::ChangeAttribute { session: "a".into(), change }
        };
        assert_eq!(
            [("a", "[1]"), ("", "1"), ("a", "[")].map(|(name, value)| is_valid(&set(name, value))),
            [true, false, false]
        );
        let deep = "/a".repeat(20);
        assert!(is_valid(&change(&deep)), "the other node may allow more segments");
        let names = |count| NodeCommand::Subscribers { names: vec!["/a".into(); count] };
        assert_eq!([1_000, 1_001].map(|count| is_valid(&names(count))), [true, false]);
    }

    #[test]
    fn one_name_that_has_no_members_does_not_hide_others() {
        let deep = "/a".repeat(20);
        let names = ["/a", "/service/x", "/meta/*", "a", &deep, "/**"].map(Box::<str>::from).to_vec();
        let mut follow = NodeCommand::FollowMembers { node: 1, stream: 1, names, page: None };
        leave_out_invalid(&mut follow);
        let NodeCommand::FollowMembers { names, .. } = &follow else { panic!("{follow:?}") };
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["/a", &deep, "/**"]);
        let part = |channel: &str| {
            format!(
                "{{\"channel\":\"{channel}\",\"is_first\":false,\"is_last\":false,\"users\":[],\"anonymous\":0,\"sessions\":0}}"
            )
        };
        let report =
            format!("{{\"begun\":[],\"parts\":[{},{},{}],\"done\":[]}}", part("/a"), part("/service/x"), part(&deep));
        let report = serde_json::from_str(&report).expect("a report");
        let mut report = NodeCommand::ReportMembers { node: 1, stream: 1, report };
        leave_out_invalid(&mut report);
        let NodeCommand::ReportMembers { report, .. } = &report else { panic!("{report:?}") };
        assert_eq!(report.parts.iter().map(|part| &*part.channel).collect::<Vec<_>>(), ["/a", &deep]);
        assert!(is_valid(&follow));
    }
}
