//! Commands and questions of one node for others, and their replies, as JSON: fields and kinds that a later version adds harm nobody. What
//! they do on a node is in `net/node_commands`.

use std::sync::Arc;

use bytes::Bytes;
use encke_cluster::CallKind;
use encke_core::{AttributeChange, Attributes, ChannelView, SessionTerms, SessionView};
use encke_local::{FollowPage, MembersReport};
use serde::{Deserialize, Serialize};

use crate::idempotency::Sum;

/// A command or a question for a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeCommand {
    /// Send a message, which is a frame with one message.
    Deliver {
        to: Target,
        #[serde(with = "message")]
        message: Arc<[u8]>,
    },
    /// End sessions. `names_id`: the reply to the end of one has its id, where the node knows this field. `mark`: that of the order to end those
    /// of a user; 0 if it has none.
    Disconnect {
        to: Target,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        names_id: bool,
        #[serde(default, skip_serializing_if = "is_none")]
        mark: u64,
    },
    /// End a subscription of all sessions of a user.
    Unsubscribe { user: Box<str>, channel: Box<str> },
    /// Subscribe a session to a channel or pattern, or end its subscription.
    Change { session: String, channel: Box<str>, subscribes: bool },
    /// Give a session terms above those of its identity.
    Terms { session: String, terms: SessionTerms },
    /// Change an attribute of a session.
    ChangeAttribute { session: String, change: AttributeChange },
    /// Show the attributes of a session.
    Attributes { session: String },
    /// Revoke a token, until a time in milliseconds since 1970.
    Revoke { token_id: Box<str>, until_ms: u64 },
    /// Report the members of these channels and patterns, in this stream, to the node: a page of the list of all, or further ones.
    FollowMembers { node: u64, stream: u64, names: Vec<Box<str>>, page: Option<FollowPage> },
    /// Take a report about the members of a node, which belongs to this stream.
    ReportMembers { node: u64, stream: u64, report: MembersReport },
    /// Reserve the key of a request of the HTTP API for the node with this number. Both are digests.
    ReserveKey { key: Sum, request: Sum, node: u64 },
    /// The node with this number has published nothing for the request with this key.
    GiveBackKey { key: Sum, node: u64 },
    /// Remember the answer to the request with this key.
    NoteAnswer { key: Sum, request: Sum, status: u16, body: String },
    /// Show a session.
    Session { session: String },
    /// List sessions.
    Sessions { from: (usize, usize), limit: usize },
    /// List channels and patterns.
    Channels { from: (usize, usize), limit: usize, pattern: Option<String> },
    /// Count the subscribers of channels and patterns.
    Subscribers { names: Vec<Box<str>> },
}

/// True if this is no mark.
pub(super) fn is_none(mark: &u64) -> bool {
    *mark == 0
}

/// The sessions that a command is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// The one with this name or id.
    Session(String),
    /// Those of this user.
    User(Box<str>),
}

/// The reply of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeReply {
    /// The number of sessions that the command has reached.
    Count(usize),
    /// The session with this id has ended.
    Ended(String),
    /// The session is not here.
    Unknown,
    /// The session is not here, and has this id.
    Elsewhere(String),
    /// The session has too many subscriptions or attributes.
    Full,
    /// An attribute is changed: the version of the attributes.
    Version(u64),
    /// An attribute is not changed: the attributes have this version.
    Conflict(u64),
    /// The attributes of a session.
    Attributes(Attributes),
    /// The state of the key of a request.
    Key(KeyState),
    /// It could not be done now.
    Failed,
    /// A session with the channels and patterns that it subscribes to.
    Session(ListedSession, Vec<Box<str>>),
    /// Sessions.
    Sessions(ListedPage<ListedSession>),
    /// Channels and patterns.
    Channels(ListedPage<ListedChannel>),
    /// The numbers of subscribers.
    Counts(Vec<usize>),
}

/// The state of the key of a request, at a node that keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyState {
    /// It was new, and is reserved for the node that has asked.
    New,
    /// Its first request is being processed.
    InProgress,
    /// It belongs to another request.
    OtherRequest,
    /// Its request has got an answer with this status and this body.
    Answered(u16, String),
}

/// A page of the list of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedPage<T> {
    pub(crate) items: Vec<T>,
    /// The position of the next page on that node. None after the last one.
    pub(crate) next: Option<(usize, usize)>,
}

/// A session without its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedSession {
    /// Its name in the HTTP API.
    pub(crate) name: String,
    /// Empty: anonymous.
    pub(crate) user: Box<str>,
    pub(crate) is_connected: bool,
    pub(crate) subscriptions: usize,
    pub(crate) waiting_messages: usize,
    pub(crate) waiting_bytes: usize,
}

/// A channel or pattern with subscribers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedChannel {
    pub(crate) name: Box<str>,
    pub(crate) subscribers: usize,
}

impl NodeCommand {
    /// The kind of its call if somebody waits for the replies.
    pub(crate) fn kind(&self) -> CallKind {
        match self {
            NodeCommand::Deliver { .. }
            | NodeCommand::Disconnect { .. }
            | NodeCommand::Unsubscribe { .. }
            | NodeCommand::Change { .. }
            | NodeCommand::Terms { .. }
            | NodeCommand::ChangeAttribute { .. }
            | NodeCommand::FollowMembers { .. }
            | NodeCommand::ReportMembers { .. }
            | NodeCommand::ReserveKey { .. }
            | NodeCommand::GiveBackKey { .. }
            | NodeCommand::NoteAnswer { .. }
            | NodeCommand::Revoke { .. } => CallKind::Command,
            NodeCommand::Session { .. }
            | NodeCommand::Attributes { .. }
            | NodeCommand::Sessions { .. }
            | NodeCommand::Channels { .. }
            | NodeCommand::Subscribers { .. } => CallKind::Question,
        }
    }

    /// True if it runs before later ones of the same node.
    pub(crate) fn has_order(&self) -> bool {
        matches!(self, NodeCommand::Deliver { .. } | NodeCommand::Disconnect { .. })
    }

    /// Writes it.
    pub(crate) fn write(&self) -> Bytes {
        // Texts, numbers and valid JSON have a JSON form.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Reads one. None if it is none that this version knows.
    pub(crate) fn read(bytes: &[u8]) -> Option<NodeCommand> {
        serde_json::from_slice(bytes).ok()
    }
}

impl NodeReply {
    /// Writes it.
    pub(crate) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads one. [`NodeReply::Failed`] if it is none that this version knows.
    pub(crate) fn read(bytes: &[u8]) -> NodeReply {
        serde_json::from_slice(bytes).unwrap_or(NodeReply::Failed)
    }

    /// The number of sessions that it counts.
    pub(crate) fn count(&self) -> usize {
        match self {
            NodeReply::Count(count) => *count,
            NodeReply::Ended(_) => 1,
            _ => 0,
        }
    }
}

impl ListedSession {
    /// A session under this name.
    pub(crate) fn of(view: SessionView, name: String) -> ListedSession {
        let SessionView { user, is_connected, subscriptions, waiting_messages, waiting_bytes, .. } = view;
        ListedSession { name, user, is_connected, subscriptions, waiting_messages, waiting_bytes }
    }
}

impl From<ChannelView> for ListedChannel {
    fn from(ChannelView { name, subscribers }: ChannelView) -> ListedChannel {
        ListedChannel { name, subscribers }
    }
}

/// A frame with one message, between nodes as this message.
mod message {
    use std::sync::Arc;

    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use serde_json::value::RawValue;
    use websocket::{Opcode, frame};

    pub(super) fn serialize<S: Serializer>(whole: &Arc<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
        let text = frame::split(whole).and_then(|(head, _)| str::from_utf8(&whole[head..]).ok());
        let message = text.and_then(|text| text.strip_prefix('[')?.strip_suffix(']'));
        let message = message.ok_or_else(|| S::Error::custom("no message"))?;
        let message: &RawValue = serde_json::from_str(message).map_err(S::Error::custom)?;
        message.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
        let message = Box::<RawValue>::deserialize(deserializer)?;
        if !message.get().starts_with('{') {
            return Err(D::Error::custom("a message is an object"));
        }
        let mut whole = Vec::with_capacity(message.get().len() + 16);
        frame::message(Opcode::Text, format!("[{}]", message.get()).as_bytes(), &mut whole);
        Ok(whole.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_are_read_as_they_were_written() {
        let message: Arc<[u8]> = encke_core::message_frame("/a", r#"{"b": [1, "é"]}"#, None, None).into();
        let (to, user) = (Target::User("ann".into()), Target::Session("s-1".into()));
        let commands = [
            NodeCommand::Deliver { to, message },
            NodeCommand::Disconnect { to: user.clone(), names_id: false, mark: 7 },
            NodeCommand::Disconnect { to: user, names_id: true, mark: 0 },
            NodeCommand::Change { session: "a".into(), channel: "/b".into(), subscribes: true },
            NodeCommand::Terms {
                session: "a".into(),
                terms: SessionTerms { timeout_ms: Some(1), ..SessionTerms::default() },
            },
            NodeCommand::ChangeAttribute {
                session: "a".into(),
                change: AttributeChange::set("b", "[1, \"é\"]").if_version(7),
            },
            NodeCommand::Attributes { session: "a".into() },
            NodeCommand::Revoke { token_id: "t".into(), until_ms: u64::MAX },
            NodeCommand::FollowMembers {
                node: 1,
                stream: 2,
                names: vec!["/a/*".into()],
                page: Some(FollowPage { is_first: true, is_last: false }),
            },
            NodeCommand::ReportMembers { node: 1, stream: 2, report: MembersReport::default() },
            NodeCommand::ReserveKey { key: [255; 32], request: [0; 32], node: 1 },
            NodeCommand::NoteAnswer { key: [1; 32], request: [2; 32], status: 200, body: r#"{"a":"é"}"#.into() },
            NodeCommand::Sessions { from: (1, 2), limit: 3 },
            NodeCommand::Channels { from: (1, 2), limit: 3, pattern: None },
            NodeCommand::Subscribers { names: vec!["/a".into()] },
        ];
        for command in commands {
            assert_eq!(NodeCommand::read(&command.write()), Some(command));
        }
        let attributes = NodeReply::Attributes(Attributes::of([("a", "[1]")]));
        let key = NodeReply::Key(KeyState::Answered(200, "{}".into()));
        for reply in [
            key,
            NodeReply::Ended("a".into()),
            NodeReply::Count(3),
            NodeReply::Unknown,
            NodeReply::Elsewhere("a".into()),
            attributes,
        ] {
            assert_eq!(NodeReply::read(&reply.write()), reply);
        }
    }

    #[test]
    fn what_is_no_command_is_refused_and_further_fields_are_not() {
        let refused =
            ["", "{}", r#"{"other":{}}"#, r#"{"deliver":{"to":{"user":"a"},"message":[1]}}"#, "\"disconnect\""];
        assert!(refused.iter().all(|text| NodeCommand::read(text.as_bytes()).is_none()));
        let later = r#"{"disconnect":{"to":{"user":"a"},"reason":"later"}}"#;
        assert!(NodeCommand::read(later.as_bytes()).is_some());
        assert_eq!(NodeReply::read(b"{\"other\":1}"), NodeReply::Failed);
    }
}
