//! The input and output of a shard, apart from the bytes on sockets. It is plain data, so that a simulation can lose,
//! duplicate and delay it.

use std::sync::Arc;

use crate::Settings;
use crate::admission::account::{Charge, MailboxAccount};
use crate::attributes::AttributeChange;
use crate::decision::{Awaited, Resolved, WaitKey};
pub use crate::exchange::{
    ExchangeId, HttpTransport, NOT_HERE, OTHER_NODES, Peer, Request, Response, Searched, SessionKey, SocketKey,
};
use crate::history::{Gap, Position, partition_of};
use crate::id::{Id, NodeTag};
use crate::limits::sessions::SessionOwner;
use crate::node_messages::{ForNodes, FromNodes};
use crate::rights::table::Granted;
use crate::session_terms::SessionTerms;
use crate::side::Side;

/// The close code of a WebSocket and a short neutral reason (RFC 6455 §7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The close code.
    pub code: u16,
    /// The reason. Empty for none.
    pub reason: &'static str,
}

/// Work that a shard leaves to its environment.
#[derive(Debug)]
pub enum Effect {
    /// Answer an HTTP request of this shard's connections.
    Respond(ExchangeId, Response),
    /// Shut this socket down: everything for it is written.
    Close(SocketKey),
    /// End this socket with a reset, so that the kernel frees its send buffer, too. Its client does not read.
    Reset(SocketKey),
    /// Put this into another shard's mailbox.
    SendToShard(usize, ShardMessage),
    /// Run this future and return its result with [`ShardMessage::Resolved`]. A panic counts as [`Resolved::Failed`].
    Await(WaitKey, Awaited),
    /// Drop the future of this wait, if it is not done.
    Cancel(WaitKey),
    /// Read on from this WebSocket, whose last message has waited ([`Received::Waits`](crate::Received)).
    Continue(SocketKey),
    /// Let this node of the cluster serve a WebSocket whose last message has waited.
    Relay(SocketKey, NodeTag),
    /// Append this to the history log, then report the result to the token's shard with [`ShardMessage::Persisted`].
    Persist(PersistRequest),
    /// Note who is on a channel, or answer who is.
    Presence(Box<PresenceEvent>),
    /// Send these publications of this node to the other nodes of the cluster.
    SendToNodes(Arc<EncodedPublications>),
    /// Answer with [`ShardMessage::InterestKnown`] when publications of other nodes on all these channels and patterns
    /// arrive.
    AwaitInterest(Vec<Box<str>>, PublishToken),
}

/// An event of a channel with presence.
#[derive(Debug, PartialEq, Eq)]
pub enum PresenceEvent {
    /// A session has subscribed to it.
    Joined {
        /// The channel.
        channel: Box<str>,
        /// The session.
        session: Id,
        /// Its user. Empty: anonymous.
        user: Box<str>,
        /// False if it was a member before a restart, or before the channel had presence.
        is_new: bool,
    },
    /// A session has unsubscribed, or ended.
    Left {
        /// The channel.
        channel: Box<str>,
        /// The session.
        session: Id,
        /// Its user.
        user: Box<str>,
    },
    /// A session asks for the members. It gets the answer as a message of [`PRESENCE_SERVICE`].
    Asked {
        /// The channel.
        channel: Box<str>,
        /// The session.
        session: Id,
        /// The id of its message.
        id: Option<bayeux::Id<'static>>,
        /// The user after whom the answer begins.
        after: Box<str>,
        /// The most members that it wants.
        limit: usize,
        /// The one for whom the session counts.
        owner: Option<SessionOwner>,
        /// The permission to see them.
        granted: Granted,
    },
}

/// The service that answers who is on a channel.
pub const PRESENCE_SERVICE: &str = "/service/presence";

/// The service that reads a page of a channel's history.
pub const HISTORY_SERVICE: &str = "/service/history/read";
/// The channel on which changes of the members of `/chat` are announced is `/presence/chat`.
pub const PRESENCE_CHANNEL: &str = "/presence";

/// True if publications on a channel go to the other nodes of a cluster, and come from them. Those of presence do not: each
/// node announces the members that it has, and an announcement of another node would contradict its own.
pub fn crosses_nodes(channel: &str) -> bool {
    !channel.strip_prefix(PRESENCE_CHANNEL).is_some_and(|rest| rest.starts_with('/'))
}

/// A change of a history that must survive the end of the process.
#[derive(Clone, Debug)]
pub struct PersistRequest {
    /// One encoded record of the log ([`crate::history::log_record`]).
    pub record: Vec<u8>,
    /// The token of the replies that wait for this record, if any do.
    pub token: Option<PublishToken>,
}

/// Stands for the replies to consecutive publications. They leave when these publications are persisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishToken {
    /// The shard of the publisher.
    pub shard: u16,
    /// Increases with each token of the shard.
    pub number: u64,
}

impl PublishToken {
    /// In [`PublishToken::shard`]: a handle of the server waits, and no shard. The environment delivers messages for
    /// this shard to it.
    pub const HANDLES: u16 = u16::MAX;

    /// True if a handle waits for it.
    pub fn is_of_handle(&self) -> bool {
        self.shard == PublishToken::HANDLES
    }
}

/// The outcome of a request of a handle, or of publications of a shard, known before it is persisted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Publications have their positions: the number of their token, the epoch, and the offset of the first one.
    Recorded(u64, Arc<str>, u64),
    /// Messages were removed from a history: the number of the token, and of the messages. None if the channel has no
    /// history.
    Cleared(u64, Option<usize>),
    /// A session was changed, or why not: the number of the token.
    Changed(u64, Changed),
}

/// The outcome of a change of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is as requested.
    Done,
    /// The session is gone, or ends.
    SessionUnknown,
    /// The session has as many subscriptions or attributes as it may have, or the shard as many channels.
    Full,
    /// An attribute is as requested. This is the version of the attributes now.
    Version(u64),
    /// The attributes have this version, and not the expected one.
    Conflict(u64),
}

/// The result for the publications that a token stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persisted {
    /// The number of the token.
    pub number: u64,
    /// True if they count as persisted. If not, they were delivered, but may be lost with the process.
    pub is_persisted: bool,
}

/// The asker for a change of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedBy {
    /// A handle. The token is settled with the outcome.
    Handle(PublishToken),
    /// A hook. The owner has caused it; None: the program.
    Hook(Option<SessionOwner>),
}

/// A message from one shard to another.
#[derive(Debug)]
pub enum ShardMessage {
    /// Publications for local subscribers: the channel and the encoded frames, allocated once for all shards.
    Publication(Arc<EncodedPublications>),
    /// Messages of a channel that this node of a cluster has missed: sessions that follow it have lost them.
    Gap(Arc<Gap>),
    /// Publications without a position. The receiving shard owns the history of their channel: it assigns positions and
    /// fans them out.
    Record(Arc<EncodedPublications>),
    /// The results of publications whose replies wait.
    Persisted(Vec<Persisted>),
    /// Publications of other nodes arrive on the channels of the subscribes whose replies wait for these tokens, or nobody
    /// can say when they will.
    InterestKnown(Vec<u64>),
    /// Remove all messages from the history of a channel, which the receiving shard owns. The token is settled when the
    /// removal is persisted.
    ClearHistory(Box<str>, PublishToken),
    /// Subscribe a session for a handle, without a decision about it. The token is settled with the outcome.
    Subscribe(Id, Box<str>, PublishToken),
    /// Unsubscribe a session for a handle. The token is settled with the outcome.
    Unsubscribe(Id, Box<str>, PublishToken),
    /// Give a session terms above those of its identity, for a handle. The token is settled with the outcome.
    SetTerms(Id, Box<SessionTerms>, PublishToken),
    /// Change an attribute of a session.
    ChangeAttribute(Id, Box<AttributeChange>, AskedBy),
    /// The outcome of a request of a handle.
    Report(Report),
    /// A request for a session of the receiving shard.
    Request(Box<Request>),
    /// The response to a forwarded request.
    Response(ExchangeId, Response),
    /// The client no longer waits for this response.
    Abandoned(ExchangeId),
    /// The kernel took a response with messages (true), or failed to (false).
    Delivered(ExchangeId, bool),
    /// A request of this session waits to be read, so its client is not silent.
    Alive(Id),
    /// A message for a single session. The owner has caused it; None: the program.
    Deliver(Id, Arc<[u8]>, Option<SessionOwner>),
    /// End a session. Its client gets a disconnect message. The owner has caused it; None: the program.
    Disconnect(Id, Option<SessionOwner>),
    /// A message for all sessions of a user.
    DeliverToUser(Box<str>, Arc<[u8]>),
    /// End all sessions of a user.
    DisconnectUser(Box<str>),
    /// End all sessions of a token, which is among the revoked ones already.
    Revoke(Box<str>),
    /// End the oldest session that has not connected yet, because another shard has admitted one more.
    MakeRoom,
    /// The result of a future.
    Resolved(WaitKey, Resolved),
    /// New settings.
    Settings(Arc<Settings>),
    /// The application decides in another way from now on, or wants to hear of other channels.
    Application,
    /// Advise all clients to come back later, and close their WebSockets.
    Drain,
    /// Something about a session that moves between nodes, from the cluster.
    FromNodes(FromNodes),
    /// Something about a session that moves between nodes, for [`OTHER_NODES`].
    ForNodes(ForNodes),
}

impl EncodedPublications {
    /// A message of the server itself or of a handle, for the shard that owns the history of its channel.
    pub fn of_server(account: &Arc<MailboxAccount>, channel: &str, data: &str) -> EncodedPublications {
        let publication = bayeux::Publication {
            channel,
            data: Some(bayeux::RawJson::trusted(data)),
            ..bayeux::Publication::default()
        };
        let mut payload = vec![b'['];
        publication.write(&mut payload);
        payload.push(b']');
        let mut frames = Vec::new();
        websocket::frame::message(websocket::Opcode::Text, &payload, &mut frames);
        let charge = EncodedPublications::charge(account, channel, &frames);
        let (channel, frames) = (channel.into(), frames.into());
        EncodedPublications {
            channel,
            frames,
            messages: 1,
            side: Side::Server,
            is_lazy: false,
            except: None,
            position: None,
            token: None,
            publisher: None,
            charge,
        }
    }
}

/// Publications of one channel on their way to other shards.
#[derive(Debug)]
pub struct EncodedPublications {
    /// The channel.
    pub channel: Box<str>,
    /// WebSocket text frames, each with one message in an array.
    pub frames: Box<[u8]>,
    /// The number of messages.
    pub messages: u32,
    /// The side that has made them.
    pub side: Side,
    /// True if their delivery may wait, whatever the rule of the channel says.
    pub is_lazy: bool,
    /// The session that published them, if it must not get them back.
    pub except: Option<Id>,
    /// Their position in the history of the channel.
    pub position: Option<Position>,
    /// The token of the replies that wait until they are persisted. Set only on the way to the owner of the history.
    pub token: Option<PublishToken>,
    /// The user or the address that has made them. None: the program, or not known. Set only on the way to the cluster.
    pub publisher: Option<SessionOwner>,
    /// Releases the bytes when the last shard is done with them.
    pub charge: Charge,
}

/// A message on its way to a shard, with its charge.
#[derive(Debug)]
pub struct Envelope {
    /// The message.
    pub message: ShardMessage,
    /// Released when the shard has processed the message.
    pub(crate) charge: Charge,
}

impl Envelope {
    /// Charges the account with the message and its envelope. The frames of a publication have a separate charge,
    /// because several envelopes share them.
    pub fn new(account: &Arc<MailboxAccount>, message: ShardMessage) -> Envelope {
        let bytes = match &message {
            ShardMessage::Publication(_) | ShardMessage::Record(_) => 0,
            ShardMessage::Gap(gap) => gap.channel.len(),
            ShardMessage::Persisted(stored) => size_of_val(&stored[..]),
            ShardMessage::InterestKnown(numbers) => size_of_val(&numbers[..]),
            ShardMessage::Request(request) => request.body.len() + request.head.as_ref().map_or(0, |head| head.bytes()),
            ShardMessage::Response(_, response) => response.body.len(),
            ShardMessage::Deliver(_, frame, _) => frame.len(),
            ShardMessage::DeliverToUser(user, frame) => user.len() + frame.len(),
            ShardMessage::DisconnectUser(name) | ShardMessage::Revoke(name) => name.len(),
            ShardMessage::ClearHistory(channel, _)
            | ShardMessage::Subscribe(_, channel, _)
            | ShardMessage::Unsubscribe(_, channel, _) => channel.len(),
            ShardMessage::ChangeAttribute(_, change, _) => change.bytes(),
            ShardMessage::Resolved(_, resolved) => resolved.bytes(),
            ShardMessage::Abandoned(_)
            | ShardMessage::Delivered(..)
            | ShardMessage::Alive(_)
            | ShardMessage::Disconnect(..)
            | ShardMessage::Settings(_)
            | ShardMessage::SetTerms(..)
            | ShardMessage::Application
            | ShardMessage::MakeRoom
            | ShardMessage::Report(_)
            | ShardMessage::Drain => 0,
            ShardMessage::FromNodes(message) => message.bytes(),
            ShardMessage::ForNodes(message) => message.bytes(),
        };
        Envelope { charge: account.charge(ENVELOPE_BYTES + bytes), message }
    }
}

impl EncodedPublications {
    /// The charge for the frames of a publication.
    pub fn charge(account: &Arc<MailboxAccount>, channel: &str, frames: &[u8]) -> Charge {
        account.charge(channel.len() + frames.len())
    }

    /// The same for a publication that comes from the cluster: see [`MailboxAccount::charge_part`].
    pub fn charge_of_nodes(account: &Arc<MailboxAccount>, channel: &str, frames: &[u8]) -> Charge {
        account.charge_part(partition_of(channel), channel.len() + frames.len())
    }
}

/// The cost of an envelope beside the bytes of its message, in bytes: its slots in a mailbox and in a queue, and small
/// allocations.
pub const ENVELOPE_BYTES: usize = 256;
