//! One batch of messages of one client. Each message gets its reply, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use bayeux::{BayeuxError, Message, MessageError, RawJson, Reply};

use crate::decision::{Awaited, Resolved};
use crate::events::{ExchangeId, HttpTransport, Peer, SessionKey, SocketKey};
use crate::id::Id;
use crate::identity::Head;
use crate::protocol::replay_request::Begun;

/// The connection that a batch came on.
#[derive(Clone, Debug)]
pub(crate) enum Via {
    /// A WebSocket.
    Socket(SocketKey),
    /// An HTTP request.
    Http { exchange: ExchangeId, transport: HttpTransport, browser: Option<Id>, peer: Peer, head: Option<Arc<Head>> },
}

impl Via {
    /// True if the server has made the batch, for a client without Bayeux.
    pub(crate) fn is_subscription(&self) -> bool {
        matches!(self, Via::Http { transport: HttpTransport::Subscription, .. })
    }
}

/// The consequence of a batch for its response and its session. A message of the batch can only move it down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Replies only.
    Replies,
    /// Its only message is a connect, which is held: the request gets no response yet.
    Held,
    /// It answers a connect: the response may carry messages on every transport.
    Connected,
    /// It answers the last connect of the session, which ends with it.
    EndsSession,
    /// Its client has disconnected. The session is gone.
    Disconnected,
}

/// A batch while it is processed.
pub(crate) struct Batch {
    pub(crate) via: Via,
    /// The number of messages.
    pub(crate) len: usize,
    /// True if one of them is a handshake. The others are then refused (Bayeux 1.0 §4.1: "MUST ignore").
    pub(crate) handshake: bool,
    /// The session that the first `clientId` names, if this connection may use it.
    pub(crate) session: Option<SessionKey>,
    /// The replies so far, separated by commas.
    pub(crate) replies: Vec<u8>,
    /// A browser id to set as a cookie.
    pub(crate) set_browser: Option<Id>,
    outcome: Outcome,
    /// The key of the replies over HTTP that wait until publications are persisted.
    pub(crate) late: Option<LateKey>,
    /// The positions in histories at which its subscribes begin.
    pub(crate) begun: Option<Box<Begun>>,
    /// True if its session gets nothing until the decision has come: it names positions, from which messages come again.
    pub(crate) withholds: bool,
    /// The members of channels that its calls of the presence service have asked for.
    pub(crate) members_asked: usize,
    /// The decisions that came later, or for which it waits.
    pub(crate) decisions: Option<Box<Decisions>>,
}

/// The decisions on the current message of a batch that come later.
pub(crate) struct Decisions {
    /// The future for which the batch waits.
    pub(crate) awaited: Option<Awaited>,
    /// The index of the name that it is about, in a subscribe of several names.
    pub(crate) name: usize,
    /// The decisions that have come, each with the index of its name.
    pub(crate) made: Vec<(usize, Resolved)>,
    /// The messages that are not processed yet, from the current one on.
    pub(crate) rest: Rest,
    /// The bytes of the current message, each as often as it was read again for a decision about one of its names.
    pub(crate) reread_bytes: usize,
    /// True if nobody waits for the response to its request.
    pub(crate) is_abandoned: bool,
}

/// [`Decisions::reread_bytes`] above which a message is refused, so that a large one with many names does not keep the shard busy.
pub(crate) const REREAD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Messages that are not processed yet, each with its own text.
#[derive(Default)]
pub(crate) struct Rest {
    text: String,
    /// For each message the end of its text, its fault, and the bytes that it had in its batch.
    messages: VecDeque<(usize, Option<MessageError>, usize)>,
    start: usize,
}

impl Rest {
    /// Copies these messages.
    pub(crate) fn of(messages: &[Message<'_>]) -> Rest {
        let mut text = Vec::new();
        let mut ends = VecDeque::with_capacity(messages.len());
        for message in messages {
            message.write(&mut text);
            ends.push_back((text.len(), message.fault, message.batch_bytes));
        }
        Rest { text: String::from_utf8(text).unwrap_or_default(), messages: ends, start: 0 }
    }

    /// The text and the fault of the first message, and the bytes that it had in its batch.
    pub(crate) fn first(&self) -> Option<(&str, Option<MessageError>, usize)> {
        let (end, fault, bytes) = *self.messages.front()?;
        Some((self.text.get(self.start..end)?, fault, bytes))
    }

    /// Removes the first message.
    pub(crate) fn pop(&mut self) {
        if let Some((end, ..)) = self.messages.pop_front() {
            self.start = end;
        }
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.messages.len() * size_of::<(usize, Option<MessageError>, usize)>()
    }
}

impl Batch {
    /// Its replies are written into `room`.
    pub(crate) fn new(via: Via, len: usize, handshake: bool, session: Option<SessionKey>, room: Vec<u8>) -> Batch {
        Batch {
            via,
            len,
            handshake,
            session,
            replies: room,
            set_browser: None,
            outcome: Outcome::Replies,
            late: None,
            begun: None,
            withholds: false,
            members_asked: 0,
            decisions: None,
        }
    }

    /// Lets its current message wait for a decision, in a subscribe that on the name of this index.
    pub(crate) fn wait_for(&mut self, awaited: Awaited, name: usize) {
        let decisions = self.decisions.get_or_insert_with(|| {
            let rest = Rest::default();
            let made = Vec::new();
            Box::new(Decisions { awaited: None, name: 0, made, rest, reread_bytes: 0, is_abandoned: false })
        });
        (decisions.awaited, decisions.name) = (Some(awaited), name);
    }

    /// True if its current message waits for a decision.
    pub(crate) fn waits(&self) -> bool {
        self.decisions.as_ref().is_some_and(|decisions| decisions.awaited.is_some())
    }

    /// True if its current message is processed again, because a decision on it has come.
    pub(crate) fn is_decided(&self) -> bool {
        self.decisions.as_ref().is_some_and(|decisions| !decisions.made.is_empty())
    }

    /// Takes the decision on its current message, if that has waited for it.
    pub(crate) fn decided(&mut self) -> Option<Resolved> {
        self.decisions.as_mut()?.made.pop().map(|(_, resolved)| resolved)
    }

    /// The bytes that it holds while it waits.
    pub(crate) fn held_bytes(&self) -> usize {
        let rest = self.decisions.as_ref().map_or(0, |decisions| decisions.rest.bytes());
        size_of::<Batch>() + self.replies.capacity() + rest
    }

    /// Notes that the replies so far have left. Later replies do not answer a connect any more.
    pub(crate) fn replies_have_left(&mut self) {
        if self.outcome == Outcome::Connected {
            self.outcome = Outcome::Replies;
        }
    }

    /// Notes the consequence of one of its messages.
    pub(crate) fn comes_to(&mut self, outcome: Outcome) {
        self.outcome = self.outcome.max(outcome);
    }

    pub(crate) fn is(&self, outcome: Outcome) -> bool {
        self.outcome == outcome
    }

    /// True if it answers a connect.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.outcome, Outcome::Connected | Outcome::EndsSession)
    }

    pub(crate) fn reply(&mut self, reply: &Reply<'_>) {
        if !self.replies.is_empty() {
            self.replies.push(b',');
        }
        reply.write(&mut self.replies);
    }
}

/// True if a handshake opens a new session. Otherwise the first client id decides the session of a batch.
pub(crate) fn client_of<'a>(messages: &'a [Message<'_>]) -> (bool, Option<&'a str>) {
    let handshake = messages.iter().any(is_handshake);
    let client = messages.iter().filter(|_| !handshake).find_map(|message| message.client_id.as_deref());
    (handshake, client)
}

/// An `ext` object of these members. None if there are none.
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

pub(crate) fn is_connect(message: &Message<'_>) -> bool {
    message.fault.is_none() && message.channel.as_deref() == Some(bayeux::channel::META_CONNECT)
}

/// The successful reply on a channel, to the message with this id.
pub(crate) fn success<'a>(
    channel: &'a str,
    id: Option<&'a bayeux::Id<'_>>,
    ext: &'a Option<String>,
    timestamp: &'a Option<String>,
) -> Reply<'a> {
    let (ext, timestamp) = (ext.as_deref().map(RawJson::trusted), timestamp.as_deref());
    Reply { id, successful: Some(true), ext, timestamp, ..Reply::new(channel) }
}

/// The error reply to a message. It repeats the message's channel, id and subscription, if they are present.
pub(crate) fn error_reply<'a>(message: &'a Message<'_>, error: &'a str) -> Reply<'a> {
    Reply {
        id: message.id.as_ref(),
        successful: Some(false),
        error: Some(error),
        subscription: message.subscription.filter(|_| message.fault.is_none()),
        ..Reply::new(message.channel.as_deref())
    }
}

/// Encodes a message for a single session as a frame.
pub fn message_frame(channel: &str, data: &str, id: Option<&bayeux::Id<'_>>, successful: Option<bool>) -> Vec<u8> {
    reply_frame(&Reply { id, data: Some(bayeux::RawJson::trusted(data)), successful, ..Reply::new(channel) })
}

/// The same with all fields of a message.
pub fn reply_frame(reply: &Reply<'_>) -> Vec<u8> {
    let mut payload = vec![b'['];
    reply.write(&mut payload);
    payload.push(b']');
    let mut frame = Vec::with_capacity(payload.len() + 10);
    websocket::frame::message(websocket::Opcode::Text, &payload, &mut frame);
    frame
}

/// Encodes the failed answer to a call as a frame. Its data has the form that CometD has for exceptions: clients take a
/// message without data for the reply to the call.
pub(crate) fn failed_call_frame(channel: &str, id: Option<&bayeux::Id<'_>>, error: &str) -> Vec<u8> {
    let class = error.rsplit(':').next().unwrap_or_default();
    message_frame(channel, &format!("{{\"class\":\"{class}\",\"message\":\"{error}\"}}"), id, Some(false))
}

/// The error reply to an unreadable batch.
pub(crate) fn batch_error_body(error: BayeuxError) -> Vec<u8> {
    format!("[{{\"successful\":false,\"error\":\"{error}\"}}]").into_bytes()
}

/// Names a request with late replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateKey(pub(crate) usize);
