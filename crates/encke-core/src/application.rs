//! The hooks of an application: authentication, permissions, services, filters.
//!
//! A hook answers at once, or with a future ([`Answer::Later`]). The core passes the future on and continues with the
//! message when its result comes; it runs no future itself.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use strum::IntoStaticStr;

use crate::attributes::Attributes;
use crate::handshake_reply::HandshakeReply;
use crate::identity::{Head, Identity, add_to_reply};
use crate::limits::sessions::SessionOwner;
use crate::rights::policy::Policy;
use crate::settings::TransportName;

pub use crate::actions::{Action, Actions};

/// The part of a program that decides what clients may do, and serves their remote calls. The default of each method
/// allows everything and does nothing.
///
/// The methods run on the shards' own threads, several at once, between reading and writing: they must be short and never
/// block. A decision that has to wait is returned as a future. They request work through [`Actions`]; the shard performs
/// it after they have returned.
pub trait Application: Send + Sync {
    /// Decides if a client may open a session (Bayeux 1.0 §4.1), and to whom the session belongs.
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        let _ = handshake;
        Answer::Now(Ok(None))
    }

    /// Checks new credentials of a session that lives: the `data` of a call to `/service/auth/refresh`, or the member
    /// `auth` of the `ext` of a connect, as raw JSON.
    fn refresh(&self, caller: &Caller<'_>, credentials: &str) -> Answer<Result<Identity, Refusal>> {
        let _ = (caller, credentials);
        Answer::Now(Err(Refusal::new(403, "no_refresh")))
    }

    /// Decides if a session may subscribe to a channel or pattern (Bayeux 1.0 §4.5), read its history, or see who is on it. A
    /// right to channels does not include a pattern that matches them: each is decided about by its own name. Whoever wants
    /// the announcements on `/presence/chat` needs the right to `/chat`, too. The patterns of the session's identity are
    /// checked before.
    ///
    /// Subscriptions of a session that has a new identity, or that a restart restores, are decided about again
    /// ([`Subscribing::is_held`]): a denial at once ends the former and does not restore the session of the latter. A decision
    /// that comes later is not waited for. The earlier one holds then, after a restart only with the same
    /// [`Application::policy`].
    fn subscribe(&self, subscribing: &Subscribing<'_>) -> Answer<Decision> {
        let _ = subscribing;
        Answer::Now(Decision::Allow)
    }

    /// Decides about a client's publication (Bayeux 1.0 "Publish") before it is delivered. It may change its `data`.
    /// Publications of the program itself do not come here. The patterns of the session's identity are checked before.
    fn publish(&self, publishing: &Publishing<'_>) -> Answer<Verdict> {
        let _ = publishing;
        Answer::Now(Verdict::Forward)
    }

    /// Decides if a session may call a service, before [`Application::service`] gets the message. The patterns of the
    /// session's identity are checked before.
    fn call(&self, message: &Publishing<'_>) -> Answer<Decision> {
        let _ = message;
        Answer::Now(Decision::Allow)
    }

    /// True if [`Application::service`] handles messages on this channel. The callers of other channels get
    /// `404::service_unknown`.
    fn serves(&self, channel: &str) -> bool {
        let _ = channel;
        true
    }

    /// Handles a message on a channel below `/service/` (Bayeux 1.0 "Service Channels"). Such a message is for the
    /// application only and is never broadcast. The client's reply says that it was received, whatever this does.
    /// Returns the actions that come later, if any do.
    fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
        let _ = (message, actions);
        None
    }

    /// Called when a session has been opened. Sessions that a restart restores are not opened again.
    fn opened(&self, caller: &Caller<'_>, actions: &mut Actions) {
        let _ = (caller, actions);
    }

    /// Called when a session has ended: by a disconnect, by expiry, by the server, or because it was too slow; not when
    /// the server stops. The actions run after the publication in progress.
    fn ended(&self, caller: &Caller<'_>, reason: EndReason, actions: &mut Actions) {
        let _ = (caller, reason, actions);
    }

    /// Called when a session has subscribed to a channel or pattern, also after a restart.
    fn subscribed(&self, caller: &Caller<'_>, channel: &str) {
        let _ = (caller, channel);
    }

    /// Called when a subscription has ended, also by the end of its session.
    fn unsubscribed(&self, caller: &Caller<'_>, channel: &str) {
        let _ = (caller, channel);
    }

    /// Called when a channel or pattern has its first subscriber on this shard, also after a restart.
    fn first_subscribed(&self, channel: &str, shard: usize) {
        let _ = (channel, shard);
    }

    /// Called when a channel or pattern has lost its last subscriber on this shard.
    fn last_unsubscribed(&self, channel: &str, shard: usize) {
        let _ = (channel, shard);
    }

    /// Called for each channel or pattern with subscribers on this shard after the application has changed
    /// ([`ShardMessage::Application`](crate::ShardMessage::Application)).
    fn has_subscribers(&self, channel: &str, shard: usize) {
        let _ = (channel, shard);
    }

    /// The fingerprint of its policy: of that which authenticates, and of that which decides about subscriptions. Sessions
    /// that were saved under another authentication are not restored. Shards ask at the start, and at each change of
    /// the settings or of the application.
    fn policy(&self) -> Policy {
        Policy::default()
    }

    /// True if handshakes need the head of the HTTP request. The server then keeps that of each WebSocket.
    fn reads_heads(&self) -> bool {
        false
    }
}

/// A result that comes later.
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A decision: made at once, or later.
pub enum Answer<T> {
    /// It is made.
    Now(T),
    /// The future makes it.
    Later(Pending<T>),
}

impl<T: fmt::Debug> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Now(answer) => f.debug_tuple("Now").field(answer).finish(),
            Answer::Later(_) => f.write_str("Later(…)"),
        }
    }
}

impl<T> From<T> for Answer<T> {
    fn from(answer: T) -> Answer<T> {
        Answer::Now(answer)
    }
}

/// A handshake to decide about.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Handshake<'a> {
    /// The `ext` of the message, as raw JSON. It may contain credentials.
    pub ext: Option<&'a str>,
    /// The fields of the message that Bayeux does not define, as a raw JSON object; `None` if it has none.
    pub fields: Option<&'a str>,
    /// The head of the request, or of the request that opened the WebSocket. Only if [`Application::reads_heads`].
    pub head: Option<&'a Arc<Head>>,
    /// The address of the client, or of the proxy in front of it. On a WebSocket only if [`Application::reads_heads`].
    pub peer: Option<IpAddr>,
    /// The transport of the handshake.
    pub transport: TransportName,
}

impl<'a> Handshake<'a> {
    /// A handshake with this `ext` (valid JSON) by a WebSocket, for tests of an application; without a head.
    pub fn new(ext: Option<&'a str>) -> Handshake<'a> {
        Handshake { ext, fields: None, head: None, peer: None, transport: TransportName::Websocket }
    }
}

/// A handshake or a refresh that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The code of the Bayeux error: 401, 403, 429 or 503.
    pub code: u16,
    /// The argument of the Bayeux error (`401:token_expired:handshake_denied`), as in [`Decision::Deny`].
    pub reason: Cow<'static, str>,
    /// The time after which the client may try again, in milliseconds. `None`: it is advised not to.
    pub retry_ms: Option<u64>,
    /// Additions to the reply to the handshake.
    pub reply: Option<Box<HandshakeReply>>,
}

impl Refusal {
    /// A refusal after which the client does not try again.
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal { code, reason: reason.into(), retry_ms: None, reply: None }
    }

    /// Adds a member to the `ext` of the reply to the handshake, as [`Identity::reply_ext`] does.
    pub fn reply_ext(mut self, name: &str, value: &str) -> Refusal {
        add_to_reply(&mut self.reply, name, |reply| reply.add_ext(name, value));
        self
    }

    /// Adds a field to the reply to the handshake, as [`Identity::reply_field`] does.
    pub fn reply_field(mut self, name: &str, value: &str) -> Refusal {
        add_to_reply(&mut self.reply, name, |reply| reply.add_field(name, value));
        self
    }

    /// Advises the client to try again after this time, in milliseconds.
    pub fn retry_after_ms(mut self, retry_ms: u64) -> Refusal {
        self.retry_ms = Some(retry_ms);
        self
    }
}

/// The session that asks, or that an event is about.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Caller<'a> {
    /// Its client id.
    pub id: &'a str,
    /// Its owner, if its handshake was authenticated.
    pub identity: Option<&'a Arc<Identity>>,
    /// Its attributes, as they are now. None if none was ever set.
    pub attributes: Option<&'a Arc<Attributes>>,
    /// Whose share of a budget its work takes: that of its user, or of its address. None if it is not known.
    pub counted_for: Option<SessionOwner>,
}

impl<'a> Caller<'a> {
    /// A session with this client id and owner.
    pub fn new(id: &'a str, identity: Option<&'a Arc<Identity>>) -> Caller<'a> {
        Caller { id, identity, attributes: None, counted_for: None }
    }

    /// The same with these attributes.
    #[must_use]
    pub fn with_attributes(self, attributes: Option<&'a Arc<Attributes>>) -> Caller<'a> {
        Caller { attributes, ..self }
    }

    /// The same with the owner of the shares that its work takes.
    #[must_use]
    pub fn with_owner(self, counted_for: Option<SessionOwner>) -> Caller<'a> {
        Caller { counted_for, ..self }
    }

    /// An attribute of the session, as raw JSON.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes?.get(name)
    }

    /// The name of its user. Empty: anonymous.
    pub fn user(&self) -> &'a str {
        self.identity.map_or("", |identity| &identity.user)
    }
}

/// The decision on a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// It is allowed.
    Allow,
    /// It is denied. The reason is the argument of the Bayeux error (`403:reason:subscribe_denied`): letters, digits,
    /// space, `_`, `-` and `.`. Any other character becomes `_`.
    Deny(Cow<'static, str>),
}

impl Decision {
    /// A denial for this reason.
    pub fn deny(reason: impl Into<Cow<'static, str>>) -> Decision {
        Decision::Deny(reason.into())
    }
}

/// The verdict on a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is broadcast unchanged.
    Forward,
    /// It is broadcast with this as its `data`, which must be valid JSON.
    Replace(String),
    /// It is broadcast with other `data`, another `ext`, or both.
    ReplaceMessage(Box<Replacement>),
    /// It is dropped. The publisher gets `404::message_deleted`.
    Delete,
    /// It is refused. The publisher gets `403:reason:publish_denied`, with the reason as in [`Decision::Deny`].
    Deny(Cow<'static, str>),
}

/// The parts of a publication that an application replaces. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replacement {
    /// Valid JSON.
    pub data: Option<String>,
    /// A JSON object of at most [`EXT_BYTES_MAX`] bytes. Subscribers get it also where the settings do not forward the `ext` of
    /// publishers.
    pub ext: Option<String>,
}

/// The longest `ext` that an application gives to a message, in bytes.
pub const EXT_BYTES_MAX: usize = 64 * 1024;

impl Verdict {
    /// The message is broadcast with another `ext`, a JSON object.
    pub fn replace_ext(ext: impl Into<String>) -> Verdict {
        Verdict::ReplaceMessage(Box::new(Replacement { ext: Some(ext.into()), data: None }))
    }

    /// A denial for this reason.
    pub fn deny(reason: impl Into<Cow<'static, str>>) -> Verdict {
        Verdict::Deny(reason.into())
    }
}

/// The reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum EndReason {
    /// Its client disconnected.
    Disconnected,
    /// Its client was silent for too long.
    Expired,
    /// The server ended it.
    Kicked,
    /// It had not connected yet, and its room was needed.
    Unused,
    /// Its outbox was full.
    Slow,
    /// Its credentials have expired.
    TokenExpired,
    /// Its credentials were revoked.
    Revoked,
}

impl EndReason {
    /// True if a session ends for this reason on all nodes of a cluster, also where another node has a copy of it: its client or the
    /// program has decided that about the session. All other reasons follow from the state of one copy, such as its silence, its room, or
    /// the token that it was given last. That of another copy may be a better one, so each decides by itself. Revoked tokens are known to
    /// all nodes in another way.
    pub fn binds(self) -> bool {
        matches!(self, EndReason::Disconnected | EndReason::Kicked)
    }

    /// The reason as one word, for logs and for other programs.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A channel or pattern about to be subscribed to.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Subscribing<'a> {
    /// The subscriber.
    pub caller: Caller<'a>,
    /// The channel or pattern.
    pub channel: &'a str,
    /// The `ext` of the message, as raw JSON.
    pub ext: Option<&'a str>,
    /// True if the session has the subscription, and it is decided about again. Nobody waits for a decision that comes later.
    pub is_held: bool,
}

/// A message about to be broadcast, or a call about to be made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Publishing<'a> {
    /// The publisher.
    pub caller: Caller<'a>,
    /// The channel of the message.
    pub channel: &'a str,
    /// The `data` of the message, as raw JSON.
    pub data: Option<&'a str>,
    /// The `ext` of the message, as raw JSON.
    pub ext: Option<&'a str>,
}

/// A message to a service.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Service<'a> {
    /// The caller.
    pub caller: Caller<'a>,
    /// The channel of the service, below `/service/`.
    pub channel: &'a str,
    /// The id of the message. A reply carries it.
    pub id: Option<&'a str>,
    /// The `data` of the message, as raw JSON.
    pub data: Option<&'a str>,
    /// The `ext` of the message, as raw JSON.
    pub ext: Option<&'a str>,
}

impl<'a> Subscribing<'a> {
    /// A subscription of the session with this client id, for tests of an application.
    pub fn new(session: &'a str, channel: &'a str) -> Subscribing<'a> {
        Subscribing { caller: Caller::new(session, None), channel, ext: None, is_held: false }
    }
}

impl<'a> Publishing<'a> {
    /// A message with this `data` (valid JSON), for tests of an application; without `ext`.
    pub fn new(session: &'a str, channel: &'a str, data: &'a str) -> Publishing<'a> {
        Publishing { caller: Caller::new(session, None), channel, data: Some(data), ext: None }
    }
}

impl<'a> Service<'a> {
    /// A message with this `data` (valid JSON), for tests of an application; without an id.
    pub fn new(session: &'a str, channel: &'a str, data: &'a str) -> Service<'a> {
        Service { caller: Caller::new(session, None), channel, id: None, data: Some(data), ext: None }
    }
}

/// The application of a server that has none: everything is allowed, and there are no services.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoApplication;

impl Application for NoApplication {
    fn serves(&self, _: &str) -> bool {
        false
    }
}
