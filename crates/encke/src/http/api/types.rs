//! The requests and responses of the HTTP API. The OpenAPI document is made from these types.

use std::borrow::Cow;
use std::collections::BTreeMap;

use encke_core::SessionTerms;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::cluster::commands::ListedSession;
use crate::net::everywhere::ClusterNodes;

/// One publication.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Publish<'a> {
    /// The channel: no pattern, and none below `/meta/` or `/service/`.
    #[serde(borrow)]
    #[schemars(schema_with = "channel")]
    pub(super) channel: Cow<'a, str>,
    /// The data: any JSON.
    #[serde(borrow)]
    pub(super) data: &'a RawValue,
    /// True: a lazy message. Subscribers get it with their next other message, at most `lazy_timeout_ms` later.
    #[serde(default)]
    pub(super) lazy: bool,
    /// The same as the header `Idempotency-Key`.
    #[serde(default, deserialize_with = "given")]
    #[schemars(schema_with = "idempotency_key")]
    pub(super) idempotency_key: Option<String>,
}

/// Several publications.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishBatch<'a> {
    /// The messages. Each is published on each of its channels; the setting `batch_messages_max` limits the number of
    /// publications.
    #[serde(borrow)]
    #[schemars(length(min = 1))]
    pub(super) messages: Vec<BatchMessage<'a>>,
    /// The same as the header `Idempotency-Key`.
    #[serde(default, deserialize_with = "given")]
    #[schemars(schema_with = "idempotency_key")]
    pub(super) idempotency_key: Option<String>,
}

/// A message for one or more channels.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchMessage<'a> {
    /// The channels: no patterns, and none below `/meta/` or `/service/`.
    #[serde(borrow)]
    #[schemars(schema_with = "channels")]
    pub(super) channels: Vec<Name<'a>>,
    /// The data: any JSON.
    #[serde(borrow)]
    pub(super) data: &'a RawValue,
    /// True: a lazy message. Subscribers get it with their next other message, at most `lazy_timeout_ms` later.
    #[serde(default)]
    pub(super) lazy: bool,
}

/// A text that is borrowed from the body where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Name<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The outcome of a publish.
#[derive(Serialize, JsonSchema)]
pub(super) struct Published {
    /// The number of publications.
    pub(super) published: u64,
    /// For each channel with a history, the position of its last publication of this request.
    pub(super) positions: Vec<ChannelPosition>,
}

/// A position in the history of a channel.
#[derive(Serialize, JsonSchema)]
pub(super) struct ChannelPosition {
    /// The channel.
    pub(super) channel: String,
    /// The epoch of the history. Offsets of different epochs cannot be compared.
    pub(super) epoch: String,
    /// The offset of the message.
    pub(super) offset: u64,
}

/// A message for one session, or for all sessions of a user.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["session"]}, {"required": ["user"]}]))]
pub(super) struct Deliver<'a> {
    /// The session: its `id` in a list, or its `clientId`.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "String", length(min = 1))]
    pub(super) session: Option<String>,
    /// The user.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "String", length(min = 1))]
    pub(super) user: Option<String>,
    /// The channel that the message names: no pattern, and none below `/meta/`. The session need not subscribe to it.
    #[serde(borrow)]
    #[schemars(schema_with = "deliver_channel")]
    pub(super) channel: Cow<'a, str>,
    /// The data: any JSON.
    #[serde(borrow)]
    pub(super) data: &'a RawValue,
}

/// A session, or all sessions of a user.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["session"]}, {"required": ["user"]}]))]
pub(super) struct Disconnect {
    /// The session: its `id` in a list, or its `clientId`.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "String", length(min = 1))]
    pub(super) session: Option<String>,
    /// The user.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "String", length(min = 1))]
    pub(super) user: Option<String>,
}

/// A session and a channel or pattern.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Subscription {
    /// The session: its `id` in a list, or its `clientId`.
    #[schemars(with = "String", length(min = 1))]
    pub(super) session: String,
    /// The channel or pattern: none below `/meta/` or `/service/`.
    #[schemars(schema_with = "subscription")]
    pub(super) channel: String,
}

/// A session and its terms.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetTerms {
    /// The session: its `id` in a list, or its `clientId`.
    #[schemars(with = "String", length(min = 1))]
    pub(super) session: String,
    /// The terms. Those that are missing are as the token of the session and the settings say.
    #[schemars(with = "Terms")]
    pub(super) terms: SessionTerms,
}

/// Terms of one session that differ from the settings.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it stands in the document for a type of the core")]
struct Terms {
    /// Time that a connect is held, in milliseconds.
    #[schemars(with = "u64", range(min = 1, max = 1_000_000_000_000_u64))]
    timeout_ms: Option<u64>,
    /// Time that its client waits between two connects, in milliseconds.
    #[schemars(with = "u64", range(max = 1_000_000_000_000_u64))]
    interval_ms: Option<u64>,
    /// Time that it lives in silence after `interval_ms`, in milliseconds.
    #[schemars(with = "u64", range(min = 1, max = 1_000_000_000_000_u64))]
    max_interval_ms: Option<u64>,
    /// True if it gets its own messages on channels to which it subscribes.
    #[schemars(with = "bool")]
    broadcast_to_publisher: Option<bool>,
    /// True if its messages come with connect replies only, even on a WebSocket.
    #[schemars(with = "bool")]
    connect_deliver_only: Option<bool>,
}

/// A token.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Revoke {
    /// The id of the token: the claim `jti` of a JSON Web Token.
    #[schemars(with = "String", length(min = 1))]
    pub(super) token_id: String,
}

/// The number of sessions that a request reached.
#[derive(Serialize, JsonSchema)]
pub(super) struct Reached {
    /// The number of sessions.
    pub(super) sessions: usize,
    #[serde(flatten)]
    pub(super) nodes: Nodes,
}

/// The number of sessions that an order has ended.
#[derive(Serialize, JsonSchema)]
pub(super) struct Ended {
    /// The number of sessions.
    pub(super) sessions: usize,
    /// In a cluster: true if no node goes on with one of them later, whatever happens to its own. False: what the order has not reached now
    /// may go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recorded: Option<bool>,
    #[serde(flatten)]
    pub(super) nodes: Nodes,
}

/// The nodes of a cluster that were asked. Without a cluster there are none, and both are missing.
#[derive(Serialize, JsonSchema)]
pub(super) struct Nodes {
    /// The nodes that were asked, with this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nodes: Option<usize>,
    /// Those of them that have answered. If there are fewer, the others may not have done it, and what they have is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answered: Option<usize>,
}

impl Nodes {
    pub(super) fn of(nodes: Option<ClusterNodes>) -> Nodes {
        Nodes { nodes: nodes.map(|it| it.nodes), answered: nodes.map(|it| it.answered) }
    }
}

/// A revoked token.
#[derive(Serialize, JsonSchema)]
pub(super) struct RevokedToken {
    /// The number of its sessions, which end.
    pub(super) sessions: usize,
    /// True if the revocation is on the disk, or in the keys of a cluster. False if the server has no data directory: then it ends with
    /// the server's process, unless another process takes over from it.
    pub(super) durable: bool,
    #[serde(flatten)]
    pub(super) nodes: Nodes,
}

/// The way from a page to the next one.
#[derive(Serialize, JsonSchema)]
pub(super) struct Page {
    /// The `cursor` of the next page. Missing on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

/// Sessions, a page of them.
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionList {
    /// The sessions. A page may have fewer than the limit, or none, and still have a next page.
    pub(super) sessions: Vec<SessionItem>,
    #[serde(flatten)]
    pub(super) page: Page,
    #[serde(flatten)]
    pub(super) nodes: Nodes,
}

/// A session in a list.
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionItem {
    /// Its name in this API, for as long as the session and the server's process last. It is not its `clientId`, which would
    /// let a reader act as its client.
    pub(super) id: String,
    /// Its user. Missing: anonymous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    /// True if it has a connection now: a WebSocket, or a request with a held connect.
    pub(super) connected: bool,
    /// The number of its subscriptions.
    pub(super) subscriptions: usize,
    /// Messages that wait for it.
    pub(super) waiting_messages: usize,
    /// Bytes that wait for it.
    pub(super) waiting_bytes: usize,
}

impl From<ListedSession> for SessionItem {
    fn from(session: ListedSession) -> SessionItem {
        let ListedSession { name, user, is_connected, subscriptions, waiting_messages, waiting_bytes } = session;
        let user = Some(String::from(user)).filter(|user| !user.is_empty());
        SessionItem { id: name, user, connected: is_connected, subscriptions, waiting_messages, waiting_bytes }
    }
}

/// One session.
#[derive(Serialize, JsonSchema)]
pub(super) struct OneSession {
    #[serde(flatten)]
    pub(super) session: SessionItem,
    /// The channels and patterns that it subscribes to.
    pub(super) channels: Vec<String>,
}

/// The attributes of a session.
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionAttributes {
    /// The number of their changes so far. A change may name the version that it expects.
    pub(super) version: u64,
    /// The values by their names: any JSON.
    pub(super) attributes: BTreeMap<String, Box<RawValue>>,
}

/// A new value of an attribute.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SetAttribute<'a> {
    /// The name of the attribute: no control characters.
    #[serde(borrow)]
    #[schemars(length(min = 1, max = 255))]
    pub(super) name: Cow<'a, str>,
    /// The value: any JSON.
    #[serde(borrow)]
    pub(super) value: &'a RawValue,
    /// The version that the attributes must have. Missing: any.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "u64")]
    pub(super) version: Option<u64>,
}

/// The version of the attributes of a session.
#[derive(Serialize, JsonSchema)]
pub(super) struct AttributesVersion {
    /// The version after the change.
    pub(super) version: u64,
}

/// Channels with subscribers, a page of them.
#[derive(Serialize, JsonSchema)]
pub(super) struct ChannelList {
    /// The channels and patterns. A page may have fewer than the limit, or none, and still have a next page.
    pub(super) channels: Vec<ChannelItem>,
    #[serde(flatten)]
    pub(super) page: Page,
    #[serde(flatten)]
    pub(super) nodes: Nodes,
}

/// A channel or a pattern with subscribers.
#[derive(Serialize, JsonSchema)]
pub(super) struct ChannelItem {
    /// Its name.
    pub(super) channel: String,
    /// The number of its subscribers.
    pub(super) subscribers: usize,
}

/// The members of a channel with presence, a page of them.
#[derive(Serialize, JsonSchema)]
pub(super) struct PresenceList {
    /// The channel.
    pub(super) channel: String,
    /// Users with a session, and those whose last one has left within the grace time.
    pub(super) users: usize,
    /// Sessions without a user, and those that have left within the grace time.
    pub(super) anonymous: usize,
    /// Sessions that subscribe now, with and without a user.
    pub(super) sessions: usize,
    /// The users of this page, in the order of their names.
    pub(super) members: Vec<PresenceItem>,
    #[serde(flatten)]
    pub(super) page: Page,
    #[serde(flatten)]
    pub(super) nodes: Nodes,
}

/// A user on a channel.
#[derive(Serialize, JsonSchema)]
pub(super) struct PresenceItem {
    /// The name of the user.
    pub(super) user: String,
    /// The number of the user's sessions on the channel. 0 within the grace time.
    pub(super) sessions: usize,
    /// The names of these sessions in this API, up to 100; in a cluster those of the node that answers.
    pub(super) session_ids: Vec<String>,
}

/// Messages of a channel's history.
#[derive(Serialize, JsonSchema)]
pub(super) struct History {
    /// The channel.
    pub(super) channel: String,
    /// The epoch of the history. After a change of the epoch earlier offsets mean nothing.
    pub(super) epoch: String,
    /// The oldest offset from which on no message is missing.
    pub(super) oldest: u64,
    /// The offset that the next publication gets, at least.
    pub(super) next: u64,
    /// False if messages after the requested offset are no longer retained.
    pub(super) complete: bool,
    /// The messages, oldest first. Fewer than the limit: these are all, or they fill the response.
    pub(super) messages: Vec<HistoryMessage>,
}

/// A message of a history.
#[derive(Serialize, JsonSchema)]
pub(super) struct HistoryMessage {
    /// Its offset.
    pub(super) offset: u64,
    /// The time when it was published, in milliseconds since 1970.
    pub(super) time_ms: u64,
    /// The message as subscribers got it: an object with `channel` and mostly `data`.
    pub(super) message: Box<RawValue>,
}

/// The outcome of removing a history.
#[derive(Serialize, JsonSchema)]
pub(super) struct Removed {
    /// The number of messages that were removed.
    pub(super) removed: usize,
}

/// The server.
#[derive(Serialize, JsonSchema)]
pub(super) struct Info {
    /// Its name: `encke`.
    pub(super) name: &'static str,
    /// Its version.
    pub(super) version: &'static str,
    /// The time since its start, in milliseconds.
    pub(super) uptime_ms: u64,
    /// The number of shards: threads with their own sessions.
    pub(super) shards: usize,
    /// The number of sessions.
    pub(super) sessions: usize,
    /// The number of open connections.
    pub(super) connections: usize,
    /// True if the server stops soon and admits no sessions.
    pub(super) draining: bool,
    /// True if histories and sessions survive a restart.
    pub(super) durable: bool,
}

/// Reads an optional field that, if it is there, has a value: `null` is refused.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A channel to publish on.
pub(super) fn channel(_: &mut SchemaGenerator) -> Schema {
    name(&format!("^{NOT_META_OR_SERVICE}({SEGMENT}){{1,16}}$"), "/stock/GOOG")
}

/// A channel of a message for a session.
fn deliver_channel(_: &mut SchemaGenerator) -> Schema {
    name(&format!("^{NOT_META}({SEGMENT}){{1,16}}$"), "/letters")
}

/// A channel or pattern to subscribe to.
fn subscription(_: &mut SchemaGenerator) -> Schema {
    name(&format!("^{NOT_META_OR_SERVICE}{}$", up_to_wildcard()), "/stock/**")
}

/// Any channel or pattern.
pub(super) fn channel_or_pattern(_: &mut SchemaGenerator) -> Schema {
    name(&format!("^{}$", up_to_wildcard()), "/stock/**")
}

/// Up to 16 segments, the last of which may be `*` or `**`.
fn up_to_wildcard() -> String {
    format!("({SEGMENT}){{0,15}}({SEGMENT}|/[*]{{1,2}})")
}

/// The name of a channel, within the default values of `channel_bytes_max` and `channel_segments_max`.
fn name(pattern: &str, example: &str) -> Schema {
    json_schema!({ "type": "string", "pattern": pattern, "maxLength": 256, "examples": [example] })
}

fn channels(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "minItems": 1, "items": channel(generator) })
}

fn idempotency_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": IDEMPOTENCY_KEY_PATTERN })
}

/// Items of one answer.
pub(super) const LIMIT_MAX: u64 = 1_000;
/// Items of one answer if the request does not say.
pub(super) const LIMIT_DEFAULT: u64 = 100;
/// The largest offset: the largest integer that JavaScript can represent exactly.
pub(super) const OFFSET_MAX: u64 = (1 << 53) - 1;

/// A segment of a channel.
const SEGMENT: &str = "/[A-Za-z0-9 !#$()+.@_{~}-]+";
const NOT_META: &str = "(?!/meta/)";
const NOT_META_OR_SERVICE: &str = "(?!/(meta|service)/)";
/// Visible ASCII.
const IDEMPOTENCY_KEY_PATTERN: &str = "^[!-~]{1,255}$";
