//! What goes into a shard and what comes out of it, apart from bytes on sockets: plain data, so that a
//! simulation can lose, double and delay it.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::Settings;
use crate::connections::account::{Charge, MailboxAccount};
use crate::history::Position;
use crate::sessions::id::Id;

/// A WebSocket of this shard. The generation tells a late event of a reused index apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketKey {
    /// Index in the shard.
    pub index: u32,
    /// Counts up with each socket.
    pub generation: u32,
}

/// A session of this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// Index in the shard.
    pub index: u32,
    /// Counts up with each session.
    pub generation: u32,
}

/// An HTTP request that wants its response: unique in the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExchangeId {
    /// The shard whose connection it came on.
    pub shard: u16,
    /// Counts up with each request.
    pub number: u64,
}

/// Where a request or a WebSocket comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The address of the client, or of the proxy before it.
    pub address: Option<IpAddr>,
    /// The number of the connection, unique in the whole server. 0: not known.
    pub connection: u64,
}

/// How an HTTP request speaks Bayeux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpTransport {
    /// A POST whose response is JSON.
    LongPolling,
    /// A GET whose response is a script that calls the function of this name.
    CallbackPolling(Box<str>),
}

/// An HTTP request for the Bayeux endpoint.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which response is wanted.
    pub exchange: ExchangeId,
    /// How it is spoken.
    pub transport: HttpTransport,
    /// The browser's cookie, if it has one of ours.
    pub browser: Option<Id>,
    /// Where it comes from.
    pub peer: Peer,
    /// One batch of messages; UTF-8 has been checked.
    pub body: String,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// JSON or script; empty with some errors.
    pub body: Bytes,
    /// A new browser id to set as a cookie.
    pub set_browser: Option<Id>,
    /// Whether the shard of the session wants to know if the kernel took it: it carries messages.
    pub confirm: Option<u16>,
}

/// Why a WebSocket is being closed: its code and a short neutral reason (RFC 6455 §7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The close code.
    pub code: u16,
    /// The reason; empty for none.
    pub reason: &'static str,
}

/// What a shard wants done by others.
#[derive(Debug)]
pub enum Effect {
    /// Answer an HTTP request of this shard's connections.
    Respond(ExchangeId, Response),
    /// Everything for this socket is written: shut it down.
    Close(SocketKey),
    /// Nobody reads what this socket has to say: end it with a reset, so that the kernel, too, lets go of what it has for it.
    Reset(SocketKey),
    /// Put this into another shard's mailbox.
    SendToShard(usize, ShardMessage),
    /// Put this into the log of the histories, and tell the ticket's shard by a [`ShardMessage::Persisted`] what became of it.
    Persist(PersistRequest),
}

/// Something of a history that is to survive the end of the process.
#[derive(Clone, Debug)]
pub struct PersistRequest {
    /// One record of the log, encoded ([`crate::history::log_record`]).
    pub record: Vec<u8>,
    /// Whose reply waits for it, if anybody's does.
    pub token: Option<PublishToken>,
}

/// Stands for the replies to publications that follow each other: they leave when these are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishToken {
    /// The shard of the publisher.
    pub shard: u16,
    /// Counts up with each ticket of the shard.
    pub number: u64,
}

/// What became of the publications that a ticket stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persisted {
    /// The ticket's number.
    pub number: u64,
    /// Whether they count as kept; if not, they were delivered, and may be lost with the process.
    pub is_persisted: bool,
}

/// What one shard tells another.
#[derive(Debug)]
pub enum ShardMessage {
    /// Publications for local subscribers: the channel and the encoded frames, allocated once for all shards.
    Publication(Arc<Publication>),
    /// Publications that have no place yet: where that shard keeps the history of their channel, it gives them their places. It hands them out.
    Record(Arc<Publication>),
    /// What became of publications whose replies wait.
    Persisted(Vec<Persisted>),
    /// A request for a session that lives there.
    Request(Box<Request>),
    /// The response to a request that was sent on.
    Response(ExchangeId, Response),
    /// Nobody waits for this response any more.
    Abandoned(ExchangeId),
    /// The kernel took the response with messages, or failed to.
    Delivered(ExchangeId, bool),
    /// The client of this session waits to be heard, and is not silent.
    Alive(Id),
    /// A message for one session only.
    Deliver(Id, Arc<[u8]>),
    /// End a session (its client is told).
    Disconnect(Id),
    /// End the oldest session that has not connected yet: another shard has let one more in.
    MakeRoom,
    /// New settings.
    Settings(Arc<Settings>),
    /// Advise all clients to come back later and close.
    Drain,
}

impl Publication {
    /// A message of the server itself or of a handle, for the shard that the histories name for its channel.
    pub fn of_server(account: &Arc<MailboxAccount>, channel: &str, data: &str) -> Publication {
        let message = bayeux::Publication {
            channel,
            data: Some(bayeux::RawJson::trusted(data)),
            ..bayeux::Publication::default()
        };
        let mut payload = vec![b'['];
        message.write(&mut payload);
        payload.push(b']');
        let mut frames = Vec::new();
        websocket::frame::message(websocket::Opcode::Text, &payload, &mut frames);
        let charge = Publication::charge(account, channel, &frames);
        let (channel, frames) = (channel.into(), frames.into());
        Publication { channel, frames, messages: 1, except: None, position: None, token: None, charge }
    }
}

/// Publications of one channel on their way to other shards.
#[derive(Debug)]
pub struct Publication {
    /// Its channel.
    pub channel: Box<str>,
    /// WebSocket text frames, each with one message in an array.
    pub frames: Box<[u8]>,
    /// How many.
    pub messages: u32,
    /// The session that published it, where it must not get it back.
    pub except: Option<Id>,
    /// Where they stand in the history of their channel.
    pub position: Option<Position>,
    /// Whose replies wait until they are kept: on their way to the owner of that history.
    pub token: Option<PublishToken>,
    /// Releases the bytes when the last shard is done with them.
    pub charge: Charge,
}

/// A message on its way to a shard, with its charge.
#[derive(Debug)]
pub struct Envelope {
    /// The message.
    pub message: ShardMessage,
    /// Released when the shard has worked through it.
    pub(crate) charge: Charge,
}

impl Envelope {
    /// Charges a message and what carrying it costs. The frames of a publication are shared by several envelopes: they
    /// have a charge of their own.
    pub fn new(account: &Arc<MailboxAccount>, message: ShardMessage) -> Envelope {
        let bytes = match &message {
            ShardMessage::Publication(_) | ShardMessage::Record(_) => 0,
            ShardMessage::Persisted(kept) => size_of_val(&kept[..]),
            ShardMessage::Request(request) => request.body.len(),
            ShardMessage::Response(_, response) => response.body.len(),
            ShardMessage::Deliver(_, frame) => frame.len(),
            ShardMessage::Abandoned(_)
            | ShardMessage::Delivered(..)
            | ShardMessage::Alive(_)
            | ShardMessage::Disconnect(_)
            | ShardMessage::Settings(_)
            | ShardMessage::MakeRoom
            | ShardMessage::Drain => 0,
        };
        Envelope { charge: account.charge(ENVELOPE_BYTES + bytes), message }
    }
}

impl Publication {
    /// What its frames are charged with.
    pub fn charge(account: &Arc<MailboxAccount>, channel: &str, frames: &[u8]) -> Charge {
        account.charge(channel.len() + frames.len())
    }
}

/// The cost of an envelope beside the bytes of its message, in bytes: its place in a mailbox and in a queue, and small allocations.
pub const ENVELOPE_BYTES: usize = 256;
