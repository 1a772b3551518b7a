//! One batch of messages of one client: each message gets its reply, in order.

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message, Publication, RawJson, Reply, ext};

use super::effect::{ExchangeId, HttpTransport, Peer, SessionKey, SocketKey};
use super::ids::Id;
use super::positions::Begun;
use super::unkept::LateKey;
use super::{Actions, Shard};
use crate::{Publishing, Service, Verdict};

/// What a batch came on.
#[derive(Clone, Debug)]
pub(super) enum Via {
    /// A WebSocket.
    Socket(SocketKey),
    /// An HTTP request.
    Http { exchange: ExchangeId, transport: HttpTransport, browser: Option<Id>, peer: Peer },
}

/// A batch while it is worked through.
pub(super) struct Batch {
    pub(super) via: Via,
    /// Messages in it.
    pub(super) len: usize,
    /// Whether one of them is a handshake: then the others are refused (Bayeux 1.0 §4.1: "MUST ignore").
    pub(super) handshake: bool,
    /// Whose it is: the session its first `clientId` names, if it may be used from here.
    pub(super) session: Option<SessionKey>,
    /// The replies so far, with commas between.
    pub(super) replies: Vec<u8>,
    /// A browser id to set as a cookie.
    pub(super) set_browser: Option<Id>,
    /// Whether a connect was answered in it: its response may carry messages on every transport.
    pub(super) connected: bool,
    /// Whether a connect is held: its request gets no response yet.
    pub(super) held: bool,
    /// Whether the session ends with this batch.
    pub(super) farewell: bool,
    /// Whether the client has said goodbye in it.
    pub(super) parted: bool,
    /// Replies over HTTP that wait until something is kept.
    pub(super) late: Option<LateKey>,
    /// Where in histories its subscribes begin.
    pub(super) begun: Option<Box<Begun>>,
}

impl Batch {
    pub(super) fn new(via: Via, messages: &[Message<'_>], session: Option<SessionKey>) -> Batch {
        Batch {
            via,
            len: messages.len(),
            handshake: messages.iter().any(is_handshake),
            session,
            replies: Vec::with_capacity(256),
            set_browser: None,
            connected: false,
            held: false,
            farewell: false,
            parted: false,
            late: None,
            begun: None,
        }
    }

    pub(super) fn reply(&mut self, reply: &Reply<'_>) {
        if !self.replies.is_empty() {
            self.replies.push(b',');
        }
        reply.write(&mut self.replies);
    }
}

/// The client id that decides which session a batch belongs to: its first. None where a handshake opens a new one.
pub(super) fn client_of(messages: &[Message<'_>]) -> Option<Id> {
    if messages.iter().any(is_handshake) {
        return None;
    }
    Id::parse(messages.iter().find_map(|message| message.client_id.as_deref())?)
}

/// An `ext` of these members; none without any.
pub(super) fn ext_of<const N: usize>(members: [Option<String>; N]) -> Option<String> {
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

pub(super) fn is_handshake(message: &Message<'_>) -> bool {
    message.fault.is_none() && message.channel.as_deref() == Some(bayeux::channel::META_HANDSHAKE)
}

/// The error reply to a message: with its channel, its id and its subscription, where it has them.
pub(super) fn error_reply<'a>(message: &'a Message<'_>, error: &'a str) -> Reply<'a> {
    Reply {
        id: message.id.as_ref(),
        successful: Some(false),
        error: Some(error),
        subscription: message.subscription.filter(|_| message.fault.is_none()),
        ..Reply::new(message.channel.as_deref())
    }
}

impl Shard {
    /// Works through all messages. What they cause beyond replies is queued.
    pub(super) fn process(&mut self, batch: &mut Batch, messages: &[Message<'_>]) {
        self.metrics.batches.add(1);
        self.metrics.messages.add(messages.len());
        let is_short = matches!(batch.via, Via::Http { .. }) && self.is_short_of_responses();
        let replies_max = if is_short { 0 } else { self.capacity.bytes_max / 2 }.max(REPLIES_BYTES_LEAST);
        for message in messages {
            if batch.replies.len() <= replies_max {
                self.process_one(batch, message);
            } else {
                self.refuse(batch, message, BayeuxError::RepliesTooLong.as_str());
            }
        }
        self.unqueue(batch);
        self.update_gauges();
    }

    fn process_one(&mut self, batch: &mut Batch, message: &Message<'_>) {
        if let Some(fault) = message.fault {
            return self.refuse(batch, message, fault.error());
        }
        let name = message.channel.as_deref().unwrap_or_default();
        let channel = match ChannelName::parse(name, &self.limits) {
            Ok(channel) => channel,
            Err(error) => return self.refuse(batch, message, error.error()),
        };
        if channel.kind() != ChannelKind::Broadcast {
            self.spread();
        }
        if channel.kind() == ChannelKind::Handshake {
            return self.handshake(batch, message);
        }
        let Some(key) = self.sender(batch, message) else {
            return self.refuse_unknown(batch, message, channel.kind());
        };
        match channel.kind() {
            ChannelKind::Connect => self.connect(batch, message, key),
            ChannelKind::Disconnect => self.disconnect(batch, message, key),
            ChannelKind::Subscribe => self.subscribe(batch, message, key),
            ChannelKind::Unsubscribe => self.unsubscribe(batch, message, key),
            ChannelKind::Service => self.serve(batch, message, channel, key),
            ChannelKind::Broadcast => self.publish(batch, message, channel, key),
            _ => self.refuse(batch, message, BayeuxError::ChannelCreateDenied.as_str()),
        }
        self.heard(key);
    }

    /// The session of a message: the batch's, if the message names it, too.
    fn sender(&self, batch: &Batch, message: &Message<'_>) -> Option<SessionKey> {
        let key = batch.session.filter(|_| !batch.handshake)?;
        let session = self.sessions.get(key)?;
        (message.client_id.as_deref() == Some(session.id.as_str())).then_some(key)
    }

    /// Answers a message of a session that is not known, or not to whoever sent it.
    pub(super) fn refuse_unknown(&mut self, batch: &mut Batch, message: &Message<'_>, kind: ChannelKind) {
        self.metrics.sessions_unknown.add(1);
        // Clients recover by this very pair of error and advice (CometD 9).
        let advice = (kind == ChannelKind::Connect).then(|| bayeux::advice::Advice::handshake().to_json());
        let error = BayeuxError::SessionUnknown.as_str();
        batch.reply(&Reply { advice: advice.as_deref().map(RawJson::trusted), ..error_reply(message, error) });
    }

    /// Answers a message with an error.
    pub(super) fn refuse(&mut self, batch: &mut Batch, message: &Message<'_>, error: &str) {
        self.metrics.errors.add(1);
        tracing::debug!(session = ?self.id_of(batch), channel = ?message.channel, error, "message refused");
        batch.reply(&error_reply(message, error));
    }

    /// The session's id, for the log.
    pub(super) fn id_of(&self, batch: &Batch) -> Option<Id> {
        batch.session.and_then(|key| self.sessions.get(key)).map(|session| session.id)
    }

    pub(super) fn heard(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.now.ms, self.terms);
        if let Some(session) = self.sessions.get_mut(key) {
            session.protocol.heard(now_ms, &terms);
        }
    }

    /// Notes that the client did something beside connecting (the activity extension).
    pub(super) fn active(&mut self, key: SessionKey) {
        let now_ms = self.now.ms;
        if let Some(session) = self.sessions.get_mut(key) {
            session.active_ms = now_ms;
        }
    }

    /// The `ext` of a meta reply: the answer of the timesync extension.
    pub(super) fn reply_ext(&self, message: &Message<'_>) -> Option<String> {
        ext_of([self.timesync(message)])
    }

    /// The member `timesync` of a reply's `ext`.
    pub(super) fn timesync(&self, message: &Message<'_>) -> Option<String> {
        let wall_ms = self.now.wall_ms as i64;
        let timesync = ext::Timesync::read(message.ext?)?.reply(wall_ms, wall_ms)?;
        Some(format!("\"timesync\":{timesync}"))
    }

    /// The time of day, where settings want timestamps.
    pub(super) fn timestamp(&self) -> Option<String> {
        self.settings.timestamps.then(|| ext::timestamp(self.now.wall_ms as i64))
    }

    /// The same as raw JSON, for publications.
    pub(super) fn raw_timestamp(&self) -> Option<String> {
        self.timestamp().map(|timestamp| format!("\"{timestamp}\""))
    }

    /// A message to a service of the application.
    fn serve(&mut self, batch: &mut Batch, message: &Message<'_>, channel: ChannelName<'_>, key: SessionKey) {
        self.active(key);
        let Some(session) = self.sessions.get(key) else { return };
        let session = session.id;
        let mut actions = Actions::default();
        let service = Service {
            session: session.as_str(),
            channel: channel.as_str(),
            id: message.id.as_ref().map(bayeux::Id::as_str),
            data: message.data.map(RawJson::as_str),
        };
        self.shared.application.service(&service, &mut actions);
        self.act(actions, Some((key, channel.as_str(), message.id.as_ref())));
        self.accept(batch, message);
    }

    /// A broadcast.
    fn publish(&mut self, batch: &mut Batch, message: &Message<'_>, channel: ChannelName<'_>, key: SessionKey) {
        self.active(key);
        let Some(session) = self.sessions.get(key) else { return };
        let publishing = Publishing {
            session: session.id.as_str(),
            channel: channel.as_str(),
            data: message.data.map(RawJson::as_str),
            ext: message.ext.map(RawJson::as_str),
        };
        let replacement = match self.shared.application.publish(&publishing) {
            Verdict::Forward => None,
            Verdict::Replace(data) => Some(data),
            Verdict::Delete => return self.refuse(batch, message, BayeuxError::MessageDeleted.as_str()),
            Verdict::Deny(reason) => return self.refuse(batch, message, &BayeuxError::PublishDenied.because(reason)),
        };
        let stamp = self.raw_timestamp();
        let mut publication = Publication::from_message(channel, message, self.settings.forward_ext);
        if replacement.is_some() {
            publication.data = replacement.as_deref().map(RawJson::trusted);
        }
        let forwarded = publication.ext.and_then(ext::without_replay);
        publication.ext = forwarded.as_deref().map(RawJson::trusted);
        publication.timestamp = stamp.as_deref().map(RawJson::trusted).or(publication.timestamp);
        match self.broadcast(channel, &publication, Some(key)) {
            None => self.accept(batch, message),
            Some(ticket) => self.accept_later(batch, message, key, ticket),
        }
    }

    /// The reply to a publish: the channel, the id, and success.
    fn accept(&mut self, batch: &mut Batch, message: &Message<'_>) {
        let channel = message.channel.as_deref().unwrap_or_default();
        let timestamp = self.timestamp();
        batch.reply(&Reply {
            id: message.id.as_ref(),
            successful: Some(true),
            timestamp: timestamp.as_deref(),
            ..Reply::new(channel)
        });
    }
}

/// The replies to one batch may have half of what an outbox may have, and at least so many bytes: then no more of its messages is
/// worked through. Over HTTP they may have no more than these where responses have little room.
const REPLIES_BYTES_LEAST: usize = 64 * 1024;
