//! Messages between the shards of a node and the cluster, about sessions that other nodes have, or ask for.
//!
//! ```text
//!   shard ── Search ──▶ cluster ── FromNodes::Restore ──▶ shard ── Restored ──▶ cluster ── the request, or FromNodes::Searched ──▶ shard
//!   shard ◀─ Release ── cluster                  another node gets the session
//!   shard ── Released ─▶ cluster
//!   shard ── Changed, Ended ──▶ cluster          the record of a session, from which another node can go on
//!   shard ◀─ Tick ── cluster, shard ── Confirmed ──▶ cluster     the messages that clients have confirmed
//!   shard ── Resumes ──▶ cluster ── FromNodes::Missed ──▶ shard ── Restored ──▶ cluster     a session gets those that it has missed
//!   shard ── Elsewhere ──▶ cluster               actions of the application for sessions of other nodes
//! ```

use std::sync::Arc;

use crate::attributes::AttributeChange;
use crate::exchange::{Request, SocketKey};
use crate::history::MissedRange;
use crate::id::{Id, NodeTag};
use crate::limits::sessions::SessionOwner;
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
    /// All that was committed before this tick was sent to the shard before. The answer is [`ForNodes::Confirmed`].
    Tick(u64),
    /// The answer to [`ForNodes::Resumes`]: the messages of histories that a session has missed. All that was committed after them is sent
    /// to the shard later. None: they cannot be known, and the session ends.
    Missed(Id, Option<Vec<MissedRange>>),
    /// Nobody knows if a response of this session has reached its client, because the node that was to pass it on is gone. It counts as
    /// taken next.
    Unsettled(Id),
}

/// A session that comes from another node.
#[derive(Debug)]
pub struct Restored {
    /// The session, and the messages that it refers to.
    pub saved: Saved,
    /// True if its node has given it up. Otherwise that node is gone, and messages are lost with it.
    pub is_whole: bool,
    /// True if it is known which messages of histories its client has confirmed.
    pub has_mark: bool,
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
    /// A session has connected, or what has to outlive its node has changed.
    Changed {
        /// Its id.
        session: Id,
        /// Its user or address.
        owner: SessionOwner,
        /// All of it that has to outlive its node.
        saved: Box<Saved>,
        /// The point before which its client has confirmed all messages of histories.
        since: Since,
        /// True if a subscription has changed since the last report: if the record of another node lacks that, the session ends there.
        has_subscribed: bool,
    },
    /// Sessions have come back with what the last process of this node has saved. They may have ended or moved meanwhile: their records tell.
    Loaded(Vec<Id>),
    /// A session has ended, or its client has only to fetch the rest.
    Ended {
        /// Its id.
        session: Id,
        /// True: it ends on all nodes, also where another one has a copy of it. See [`EndReason::binds`](crate::EndReason::binds).
        binds: bool,
        /// A reply of its shard may wait for [`ShardMessage::InterestKnown`](crate::ShardMessage::InterestKnown) with this number: no
        /// node goes on with the session then.
        reply: Option<u64>,
    },
    /// A session that acknowledges receives its channels here, and waits for [`FromNodes::Missed`].
    Resumes {
        /// Its id.
        session: Id,
        /// Its user or address.
        owner: SessionOwner,
        /// Its channels and patterns.
        names: Vec<Box<str>>,
        /// The most messages, and their bytes, for which it has room.
        room: (usize, usize),
    },
    /// All sessions of a shard have confirmed what was committed before this tick, but for those whose [`Since`] says otherwise.
    Confirmed {
        /// The shard.
        shard: usize,
        /// The tick.
        tick: u64,
        /// True if some [`Since`] says otherwise.
        has_late: bool,
    },
    /// The application wants something of sessions that other nodes may have. The owner is the caller of its hook or service; None: the
    /// program.
    Elsewhere(Elsewhere, Option<SessionOwner>),
}

/// The point before which the client of a session has confirmed all messages of histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Since {
    /// Each tick that [`ForNodes::Confirmed`] has named.
    #[default]
    Common,
    /// This tick.
    Tick(u64),
    /// The point in the record from which this node has taken the session.
    Taken,
}

/// An action of the application for sessions of other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// Send this frame to a session that is not here.
    Deliver(Id, Arc<[u8]>),
    /// End a session that is not here.
    Disconnect(Id),
    /// Change an attribute of a session that is not here.
    ChangeAttribute(Id, Box<AttributeChange>),
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
    /// It stays: it was promised each message, and those that are published while it moves would be lost. Or it has just moved, or the
    /// server has ended it.
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
            FromNodes::Missed(_, Some(ranges)) => size_of_val(&**ranges),
            _ => 0,
        }
    }
}

impl ForNodes {
    /// The bytes that it carries.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            ForNodes::Search { waiting: Searcher::Request { request, .. }, .. } => request.body.len(),
            ForNodes::Released(_, Given::Session(saved)) | ForNodes::Changed { saved, .. } => saved.bytes(),
            ForNodes::Resumes { names, .. } => names.iter().map(|name| name.len()).sum(),
            ForNodes::Elsewhere(Elsewhere::ChangeAttribute(_, change), _) => change.bytes(),
            ForNodes::Elsewhere(Elsewhere::Deliver(_, frame) | Elsewhere::DeliverToUser(_, frame), _) => frame.len(),
            _ => 0,
        }
    }
}
