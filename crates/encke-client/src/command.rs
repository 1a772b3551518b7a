//! The state that the handles of a client share with its task, and their orders to it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::buffer::Buffer;
use crate::options::ClientOptions;
use crate::session::ConnectionType;
use crate::unread::Unread;
use crate::{Error, LostReason, Message, Position, Published, ReplayFrom};

/// The state of a client's connection; see [`Client::state`](crate::Client::state).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum State {
    /// The first connection is being opened.
    Connecting,
    /// The session can be used.
    Connected(Connected),
    /// The connection broke; another one is being opened. Publishing and subscribing wait for it.
    Reconnecting(LostReason),
    /// The session has ended: with an error, or because the program disconnected.
    Closed(Option<Error>),
}

/// An open session.
#[derive(Clone)]
#[non_exhaustive]
pub struct Connected {
    /// True if the session from before a break continues. In a new session, messages that came meanwhile are missing, unless the
    /// client replays.
    pub resumed: bool,
    /// The transport in use.
    pub connection_type: ConnectionType,
    /// The session's id. It is a secret: anybody who knows it can act for the session.
    pub client_id: Box<str>,
}

/// The state that all handles of a client share with its task.
#[derive(Debug)]
pub(crate) struct ClientShared {
    pub(crate) options: ClientOptions,
    pub(crate) state: watch::Sender<State>,
    /// Wakes the task.
    pub(crate) wake: Arc<Notify>,
    /// The room for publications that the task has not taken yet, in bytes.
    pub(crate) unsent: Arc<Semaphore>,
    /// The memory that the buffers of subscriptions share.
    pub(crate) unread: Arc<Unread>,
    /// True after the program has requested to disconnect.
    pub(crate) is_disconnecting: AtomicBool,
    /// The names of dropped subscriptions; never more than there were subscriptions.
    pub(crate) dropped: Mutex<Vec<Arc<Buffer>>>,
}

/// A message to publish.
#[derive(Debug)]
pub(crate) struct ClientPublication {
    pub(crate) channel: Box<str>,
    pub(crate) data: Box<str>,
}

/// An order to the task of a client, with the channel for its outcome.
#[derive(Debug)]
pub(crate) enum ClientCommand {
    Publish {
        publication: ClientPublication,
        reply: oneshot::Sender<Result<Published, Error>>,
        _room: Room,
    },
    /// Without a reply.
    Send {
        publication: ClientPublication,
        _room: Room,
    },
    Batch {
        publications: Vec<ClientPublication>,
        reply: oneshot::Sender<Result<Vec<Published>, Error>>,
        _room: Room,
    },
    /// The positions in the histories of the channels of a subscription.
    Positions(Arc<Buffer>, oneshot::Sender<Vec<(String, Position)>>),
    Request {
        publication: ClientPublication,
        /// The longest time until the answer.
        timeout: Duration,
        reply: oneshot::Sender<Result<Message, Error>>,
        _room: Room,
    },
    /// To one of the buffer's names.
    Subscribe {
        name: Box<str>,
        buffer: Arc<Buffer>,
        kind: Kind,
        reply: oneshot::Sender<Result<(), Error>>,
    },
    Unsubscribe(Arc<Buffer>, oneshot::Sender<Result<(), Error>>),
}

/// The room of a command among those that wait for the task, given back with it.
pub(crate) type Room = OwnedSemaphorePermit;

/// The kind of a subscription.
#[derive(Debug)]
pub(crate) enum Kind {
    /// From where all others begin.
    Default,
    /// From another point.
    From(ReplayFrom),
    /// Each channel from its position, the others from this point.
    FromPositions(Vec<(String, Position)>, ReplayFrom),
    /// With at most one message of a channel in so many milliseconds.
    Interval(u32),
    /// Without a subscribe to the server.
    Listen,
}

impl ClientPublication {
    pub(crate) fn new<T: Serialize + ?Sized>(channel: &str, data: &T) -> Result<ClientPublication, Error> {
        Ok(ClientPublication { channel: channel.into(), data: serde_json::to_string(data)?.into() })
    }

    /// The room that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.channel.len() + self.data.len()
    }
}

impl ClientCommand {
    /// True if the program does not wait for its outcome any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            ClientCommand::Publish { reply, .. } => reply.is_closed(),
            ClientCommand::Batch { reply, .. } => reply.is_closed(),
            ClientCommand::Request { reply, .. } => reply.is_closed(),
            ClientCommand::Send { .. } => true,
            ClientCommand::Positions(_, reply) => reply.is_closed(),
            ClientCommand::Unsubscribe(_, reply) | ClientCommand::Subscribe { reply, .. } => reply.is_closed(),
        }
    }
}

impl fmt::Debug for Connected {
    /// Without the id, which is a secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connected { resumed, connection_type, .. } = self;
        let mut fields = formatter.debug_struct("Connected");
        fields.field("resumed", resumed).field("connection_type", connection_type).finish_non_exhaustive()
    }
}
