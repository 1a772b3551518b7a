//! One batch of messages of one client: each message gets its reply, in order.

use bayeux::{BayeuxError, Message, Reply};

use crate::events::{ExchangeId, HttpTransport, Peer, SessionKey, SocketKey};
use crate::protocol::replay_request::Begun;
use crate::sessions::id::Id;

/// What a batch came on.
#[derive(Clone, Debug)]
pub(crate) enum Via {
    /// A WebSocket.
    Socket(SocketKey),
    /// An HTTP request.
    Http { exchange: ExchangeId, transport: HttpTransport, browser: Option<Id>, peer: Peer },
}

/// A batch while it is worked through.
pub(crate) struct Batch {
    pub(crate) via: Via,
    /// Messages in it.
    pub(crate) len: usize,
    /// Whether one of them is a handshake: then the others are refused (Bayeux 1.0 §4.1: "MUST ignore").
    pub(crate) handshake: bool,
    /// Whose it is: the session its first `clientId` names, if it may be used from here.
    pub(crate) session: Option<SessionKey>,
    /// The replies so far, with commas between.
    pub(crate) replies: Vec<u8>,
    /// A browser id to set as a cookie.
    pub(crate) set_browser: Option<Id>,
    /// Whether a connect was answered in it: its response may carry messages on every transport.
    pub(crate) connected: bool,
    /// Whether a connect is held: its request gets no response yet.
    pub(crate) held: bool,
    /// Whether the session ends with this batch.
    pub(crate) ends_session: bool,
    /// Whether the client has said goodbye in it.
    pub(crate) disconnected: bool,
    /// Replies over HTTP that wait until something is kept.
    pub(crate) late: Option<LateKey>,
    /// Where in histories its subscribes begin.
    pub(crate) begun: Option<Box<Begun>>,
}

impl Batch {
    pub(crate) fn new(via: Via, messages: &[Message<'_>], session: Option<SessionKey>) -> Batch {
        Batch {
            via,
            len: messages.len(),
            handshake: messages.iter().any(is_handshake),
            session,
            replies: Vec::with_capacity(256),
            set_browser: None,
            connected: false,
            held: false,
            ends_session: false,
            disconnected: false,
            late: None,
            begun: None,
        }
    }

    pub(crate) fn reply(&mut self, reply: &Reply<'_>) {
        if !self.replies.is_empty() {
            self.replies.push(b',');
        }
        reply.write(&mut self.replies);
    }
}

/// The client id that decides which session a batch belongs to: its first. None where a handshake opens a new one.
pub(crate) fn client_of(messages: &[Message<'_>]) -> Option<Id> {
    if messages.iter().any(is_handshake) {
        return None;
    }
    Id::parse(messages.iter().find_map(|message| message.client_id.as_deref())?)
}

/// An `ext` of these members; none without any.
pub(crate) fn ext_of<const N: usize>(members: [Option<String>; N]) -> Option<String> {
    if members.iter().all(Option::is_none) {
        return None;
    }
    let mut ext = String::from("{");
    for member in members.iter().flatten() {
        if ext.len() > 1 {
            ext.push(',');
        }
        ext.push_str(member);
    }
    ext.push('}');
    Some(ext)
}

pub(crate) fn is_handshake(message: &Message<'_>) -> bool {
    message.fault.is_none() && message.channel.as_deref() == Some(bayeux::channel::META_HANDSHAKE)
}

/// The error reply to a message: with its channel, its id and its subscription, where it has them.
pub(crate) fn error_reply<'a>(message: &'a Message<'_>, error: &'a str) -> Reply<'a> {
    Reply {
        id: message.id.as_ref(),
        successful: Some(false),
        error: Some(error),
        subscription: message.subscription.filter(|_| message.fault.is_none()),
        ..Reply::new(message.channel.as_deref())
    }
}

/// A message for one session as a frame of its own.
pub(crate) fn message_frame(
    channel: &str,
    data: &str,
    id: Option<&bayeux::Id<'_>>,
    successful: Option<bool>,
) -> Vec<u8> {
    let mut payload = vec![b'['];
    Reply { id, data: Some(bayeux::RawJson::trusted(data)), successful, ..Reply::new(channel) }.write(&mut payload);
    payload.push(b']');
    let mut frame = Vec::with_capacity(payload.len() + 10);
    websocket::frame::message(websocket::Opcode::Text, &payload, &mut frame);
    frame
}

/// The error text for a batch that cannot be read at all.
pub(crate) fn batch_error_body(error: BayeuxError) -> Vec<u8> {
    format!("[{{\"successful\":false,\"error\":\"{error}\"}}]").into_bytes()
}

/// Which of the requests with late replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateKey(pub(crate) usize);
