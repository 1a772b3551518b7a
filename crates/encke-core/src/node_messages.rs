//! Messages between the shards of a node and the cluster, about sessions that other nodes have, or ask for.
//!
//! ```text
//!   shard ── Search ──▶ cluster ── FromNodes::Restore ──▶ shard ── Restored ──▶ cluster ── the request, or FromNodes::Searched ──▶ shard
//!   shard ◀─ Release ── cluster                  another node gets the session
//!   shard ── Released ─▶ cluster
//!   shard ── Changed, Ended ──▶ cluster          the record of a session, from which another node can go on
//!   shard ── Elsewhere ──▶ cluster               actions of the application for sessions of other nodes
//! ```

use std::sync::Arc;

use crate::exchange::{Request, SocketKey};
use crate::id::{Id, NodeTag};
use crate::opener::Opener;
use crate::saved::Saved;

/// A message of the cluster for a shard.
#[derive(Debug)]
pub enum FromNodes {
    /// Take this session, with this id. Its client, who has these origins, comes to this node.
    Restore(Id, Box<Restored>),
    /// All nodes have been asked for the session that this WebSocket has named.
    Searched(SocketKey),
    /// The other nodes cannot be asked: this WebSocket has to come back later.
    Unsearched(SocketKey),
    /// The session that this WebSocket has named stays on this node, which serves the WebSocket.
    Relay(SocketKey, NodeTag),
    /// Give up a session, because its client has come to another node. The answer is [`ForNodes::Released`].
    Release(Id, Release),
    /// End this session without a word to the application: another node has it.
    Leave(Id),
    /// Report this session with [`ForNodes::Changed`] again.
    Report(Id),
}

/// A session that comes from another node.
#[derive(Debug)]
pub struct Restored {
    /// The session, and the messages that it refers to.
    pub saved: Saved,
    /// True if its node has given it up. Otherwise that node is gone, and messages are lost with it.
    pub is_whole: bool,
    /// The origins of its client: see [`ForNodes::Search`].
    pub origins: [u64; 2],
}

/// The request of another node for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Names it in the answer.
    pub number: u64,
    /// The most bytes of messages that may go with it.
    pub bytes_max: usize,
    /// True if the outcome of a response that is on its way is not waited for: its messages count as delivered.
    pub is_urgent: bool,
    /// The client that has come to the other node.
    pub opener: Opener,
}

/// A message of a shard for the cluster.
#[derive(Debug)]
pub enum ForNodes {
    /// A session is not on this node.
    Search {
        /// Its id.
        session: Id,
        /// Hashes of the client's connection and address; 0 if not known.
        origins: [u64; 2],
        /// The party that waits for the outcome.
        waiting: Searcher,
    },
    /// The answer to [`FromNodes::Release`] with this number.
    Released(u64, Given),
    /// The answer to [`FromNodes::Restore`]: publications of other nodes for the session arrive, or it is not taken and has ended.
    Restored(Id),
    /// A session has connected, or what has to outlive its node has changed: this is all of it.
    Changed(Id, Box<Saved>),
    /// A session has ended. A reply of its shard may wait for
    /// [`ShardMessage::InterestKnown`](crate::ShardMessage::InterestKnown) with this number: no node goes on with it then.
    Ended(Id, Option<u64>),
    /// The application wants something of sessions that other nodes may have.
    Elsewhere(Elsewhere),
}

/// An action of the application for sessions of other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// Send this frame to a session that is not here.
    Deliver(Id, Arc<[u8]>),
    /// End a session that is not here.
    Disconnect(Id),
    /// Send this frame to the sessions of a user. Those of this node have it.
    DeliverToUser(Box<str>, Arc<[u8]>),
    /// End the sessions of a user. Those of this node end.
    DisconnectUser(Box<str>),
}

/// The party that waits for a session.
#[derive(Debug)]
pub enum Searcher {
    /// A request.
    Request {
        /// It.
        request: Box<Request>,
        /// True if all of it is one connect, which may be processed twice.
        is_connect: bool,
    },
    /// A WebSocket, which is not read until [`FromNodes::Searched`], and its client.
    Socket(SocketKey, Opener),
    /// A party that only the environment knows, by this number, and its client.
    Visitor(u64, Opener),
}

/// The result of [`FromNodes::Release`].
#[derive(Debug, PartialEq, Eq)]
pub enum Given {
    /// The session, which has left this node.
    Session(Box<Saved>),
    /// It is not here.
    Unknown,
    /// Its client is another one: it may not use this session.
    Refused,
    /// It stays: it was promised each message, and those that are published while it moves would be lost.
    Stays,
    /// A response with messages is on its way to its client.
    Busy,
    /// More bytes wait for it than may go with it.
    TooLarge,
}

impl FromNodes {
    /// The bytes that it carries.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            FromNodes::Restore(_, restored) => restored.saved.bytes(),
            _ => 0,
        }
    }
}

impl ForNodes {
    /// The bytes that it carries.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            ForNodes::Search { waiting: Searcher::Request { request, .. }, .. } => request.body.len(),
            ForNodes::Released(_, Given::Session(saved)) | ForNodes::Changed(_, saved) => saved.bytes(),
            ForNodes::Elsewhere(Elsewhere::Deliver(_, frame) | Elsewhere::DeliverToUser(_, frame)) => frame.len(),
            _ => 0,
        }
    }
}
