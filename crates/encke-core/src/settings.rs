//! All settings with their defaults: one flat list of names with their units.
//!
//! The program reads these names from its file, its environment and its flags; the library takes the struct. The whole
//! server has one list, so that each setting is declared once. The server checks it before it passes it to a shard. The
//! defaults are CometD's where CometD has the option (reference: CometD 9 "Server options").

pub(crate) mod in_force;
mod rule;

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use rule::{ChannelRule, HistoryTerms, Publishers, SlowConsumer};

/// The settings of a server. `Settings::default()` describes a server on loopback. A program writes
/// `Settings { timeout_ms: 30_000, ..Settings::default() }`: later versions have more fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    // ---- where
    /// Address and port to listen on. Port 0: any free port.
    pub listen: SocketAddr,
    /// Number of shards (threads with their own sessions). 0: one per core.
    pub shards: usize,
    /// Number of threads for futures of the application that wait. 0: one per core.
    pub application_threads: usize,
    /// A directory whose files are served beside the built-in pages, its `index.html` as the start page. Empty: none.
    pub files: String,
    /// A directory that stores histories and sessions across a restart; created if it does not exist. Empty: they are in memory only.
    pub data: String,
    /// The point at which a publication on a channel with a history is acknowledged, if `data` is set: `os` (the operating system has the
    /// message), `interval` (the same, and it is on disk soon) or `always` (it is on disk).
    pub history_commit: HistoryCommit,
    /// Longest time until a message is on disk with `history_commit = "interval"`, in milliseconds.
    pub history_commit_interval_ms: u64,

    // ---- Bayeux timing
    /// Time that a `/meta/connect` is held, in milliseconds.
    pub timeout_ms: u64,
    /// Time that a client waits between two connects, in milliseconds.
    pub interval_ms: u64,
    /// Time that a silent session lives after `interval_ms`, in milliseconds.
    pub max_interval_ms: u64,
    /// The longest hold time that a client may request, and the longest sum of its pause and grace, in milliseconds.
    pub client_interval_max_ms: u64,
    /// Longest time that a lazy message waits, in milliseconds.
    pub lazy_timeout_max_ms: u64,
    /// Longest time that a WebSocket may stay without a Bayeux handshake, in milliseconds.
    pub handshake_timeout_ms: u64,
    /// Longest time that a WebSocket may stay without any frame from its client, in milliseconds. 0: no limit.
    pub websocket_idle_timeout_ms: u64,
    /// Longest time that the headers or the body of a request take to arrive, in milliseconds.
    pub request_timeout_ms: u64,
    /// Time after which the server resets a connection whose client reads nothing of its response, in milliseconds.
    pub response_timeout_ms: u64,
    /// Time that an idle keep-alive connection stays open, in milliseconds.
    pub keep_alive_timeout_ms: u64,
    /// Time that a draining server waits for its clients to leave, in milliseconds.
    pub drain_timeout_ms: u64,
    /// Window over which a draining server spreads its clients' reconnects, in milliseconds.
    pub drain_spread_ms: u64,

    /// Time that the application may take for a decision, in milliseconds. The message is then refused.
    pub decision_timeout_ms: u64,
    /// Time that the application may take for the answer to a call, in milliseconds. The call has then failed.
    pub call_timeout_ms: u64,
    /// Time before the end of a session's credentials at which its client is notified, in milliseconds. 0: it is not.
    pub auth_expiry_notice_ms: u64,

    // ---- Bayeux behaviour
    /// The transports offered, in this order: `websocket`, `long-polling`, `callback-polling`.
    pub transports: Vec<TransportName>,
    /// The paths of the Bayeux endpoint, each with all its sub-paths.
    pub mounts: Vec<String>,
    /// A publisher that subscribes to its own channel gets its own messages.
    pub broadcast_to_publisher: bool,
    /// Messages are sent with connect replies only, also on a WebSocket.
    pub connect_deliver_only: bool,
    /// Advice includes `maxInterval`, so that clients handshake again by themselves after a longer break.
    pub handshake_reconnect: bool,
    /// The sub-protocol that a WebSocket must offer and the server selects. Empty: the server ignores offers.
    pub websocket_protocol: String,
    /// The `ext` of a published message is sent to the subscribers (the binary extension needs it).
    pub forward_ext: bool,
    /// Replies and publications carry a `timestamp` (the timestamp extension).
    pub timestamps: bool,
    /// Time without messages from its client after which a session is disconnected, in milliseconds (the activity extension). 0: off.
    pub activity_timeout_ms: u64,
    /// Messages to a session also count as its activity.
    pub activity_counts_deliveries: bool,
    /// Rules for channels. The first rule that matches applies.
    pub channels: Vec<ChannelRule>,

    // ---- browsers
    /// Origins (`https://example.com`) allowed in addition to the server's. `*` allows all, without credentials.
    pub allowed_origins: Vec<String>,
    /// Host names that requests may use for this server, in addition to addresses and `localhost`. Empty: any; on loopback none.
    pub allowed_hosts: Vec<String>,
    /// Connects held at the same time for one browser; the others are advised to poll. -1: no limit, 0: none.
    pub browser_sessions_max: i32,
    /// Pause between polls of the surplus windows of one browser, in milliseconds. 0: they are refused.
    pub browser_surplus_interval_ms: u64,
    /// A request needs no cookie, only a `clientId`.
    pub trust_client_session: bool,
    /// The name of the cookie that identifies a browser.
    pub cookie_name: String,
    /// The domain of the cookie. Empty: none.
    pub cookie_domain: String,
    /// The path of the cookie.
    pub cookie_path: String,
    /// The lifetime of the cookie in seconds. -1: until the browser closes.
    pub cookie_max_age_s: i64,
    /// Scripts cannot see the cookie.
    pub cookie_http_only: bool,
    /// Browsers send the cookie over TLS only.
    pub cookie_secure: bool,
    /// The cookie's `SameSite`: `Lax`, `Strict`, `None`, or empty for none.
    pub cookie_same_site: String,
    /// Browsers partition the cookie by top-level site.
    pub cookie_partitioned: bool,
    /// The HTTP status that ends a held connect when a newer one replaces it (400 to 599).
    pub duplicate_connect_status: u16,
    /// The query parameter that names the callback of callback-polling.
    pub callback_parameter: String,

    /// Programs on this machine may use the HTTP API without a key. All others need one: `[[api_keys]]`.
    pub api_loopback: bool,
    /// Programs on this machine may read `/metrics` without a key. A proxy on this machine that adds no header and calls the server by a
    /// loopback name looks like one: behind such a proxy, turn this off and give the scraper a key.
    pub metrics_loopback: bool,
    /// Time for which the HTTP API remembers the answer to a request with an idempotency key, in milliseconds.
    pub idempotency_ms: u64,
    /// Bytes of the answers that the HTTP API remembers; above it the oldest are forgotten.
    pub idempotency_bytes_max: usize,
    /// The path below which GET requests are held until a message comes on the channel that follows. Empty: no path.
    pub hold_path: String,
    /// The longest time for which such a request is held, in milliseconds.
    pub hold_timeout_max_ms: u64,

    // ---- limits
    /// Open connections of the whole server.
    pub connections_max: usize,
    /// Open connections of one address; one more gets status 429. 0: no limit.
    pub address_connections_max: usize,
    /// Bytes that the system may buffer for one connection (SO_SNDBUF). 0: the system's default.
    pub socket_send_buffer_bytes: usize,
    /// New connections that each shard accepts in a second; more wait in the system's backlog. 0: no limit.
    pub connections_per_second_max: usize,
    /// Sessions of the whole server, in shares: a user, or an address, leaves room for others.
    pub sessions_max: usize,
    /// Requests below `hold_path` that are held at the same time, of the whole server.
    pub held_requests_max: usize,
    /// Requests below `hold_path` that are held at the same time, of one address.
    pub held_requests_per_address_max: usize,
    /// Sessions of one connection that have not connected yet.
    pub unconnected_per_connection_max: usize,
    /// Sessions of one address that have not connected yet.
    pub unconnected_per_address_max: usize,
    /// Bytes of one WebSocket message or request body.
    pub message_bytes_max: usize,
    /// Bytes of incomplete messages and request bodies of one shard; at least two messages.
    pub incomplete_bytes_max: usize,
    /// Bytes of the `ext` of a handshake, and of the credentials of a refresh. They come from somebody who is not known yet.
    pub credentials_bytes_max: usize,
    /// Size of all headers of a request, in bytes.
    pub header_bytes_max: usize,
    /// Messages in one batch.
    pub batch_messages_max: usize,
    /// Depth of nesting in JSON; at most 128.
    pub json_depth_max: usize,
    /// Length of a channel name, in bytes.
    pub channel_bytes_max: usize,
    /// Segments of a channel name.
    pub channel_segments_max: usize,
    /// Channels and patterns with a subscriber, of one shard.
    pub channels_max: usize,
    /// Subscriptions of one session.
    pub subscriptions_max: usize,
    /// Messages that wait in the outbox of one session.
    pub outbox_messages_max: usize,
    /// Bytes of one outbox, including its queue and unacknowledged messages. A response or batch on its way may add
    /// 280 bytes for its record.
    pub outbox_bytes_max: usize,
    /// Bytes that all sessions hold in memory; above it the largest sessions are ended.
    pub sessions_bytes_max: usize,
    /// Bytes of messages in one response; the rest comes with the next connect.
    pub response_bytes_max: usize,
    /// Bytes of all responses that clients are reading; above it connects and held requests wait.
    pub responses_bytes_max: usize,
    /// Bytes of all histories together; the oldest messages are removed first.
    pub history_bytes_max: usize,
    /// Channels with a history. Those of one rule may have three quarters; above it other channels get none, and clients cannot
    /// publish on them.
    pub history_channels_max: usize,
    /// Batches of one shard that wait for decisions of the application; further messages that would wait are refused.
    pub decisions_waiting_max: usize,
    /// Bytes of these batches. One user, or one address without users, may have 3/4 of them and of their number.
    pub decisions_waiting_bytes_max: usize,
    /// Calls of one shard that wait for answers of the application; further calls are refused.
    pub calls_waiting_max: usize,
    /// Bytes of the data of these calls. One user, or one address without users, may have two thirds of them and of their
    /// number; refreshes of credentials have an eighth for themselves.
    pub calls_waiting_bytes_max: usize,
    /// Calls of one session that wait for answers of the application.
    pub calls_waiting_per_session_max: usize,
    /// Revoked tokens that have not expired, with ids of up to 255 bytes; longer ones count as several. Further ones cannot be
    /// revoked.
    pub revoked_tokens_max: usize,
    /// Length of the name of a JSONP callback, in bytes.
    pub callback_bytes_max: usize,
    /// Bytes in transit between shards, and as many again of light messages.
    pub mailbox_bytes_max: usize,
    /// Messages that may wait for one subscription of the program itself; above it the oldest are discarded.
    pub in_process_messages_max: usize,
    /// Bytes that may wait for one subscription of the program itself, and 16 times as many for all; above it messages are discarded.
    pub in_process_bytes_max: usize,
    /// Time after which a fan-out yields to other work, in microseconds.
    pub fairness_budget_us: u64,

    // ---- presence
    /// Time for which a user without a session stays a member of a channel, so that a reload is no leave, in milliseconds.
    pub presence_grace_ms: u64,
    /// Shortest time between two announcements of a channel's members, in milliseconds.
    pub presence_interval_ms: u64,
    /// Members of all channels with presence; sessions above it are not listed.
    pub presence_members_max: usize,
    /// Bytes of all members of channels with presence; sessions above it are not listed.
    pub presence_bytes_max: usize,

    // ---- rates
    /// Messages that the client of one session may send in a second. 0: no limit.
    pub session_messages_per_s_max: usize,
    /// Bytes of messages that the client of one session may send in a second. 0: no limit.
    pub session_bytes_per_s_max: usize,
    /// Refreshes of its credentials that one session may send in a second. They also count as messages. 0: no limit.
    pub session_refreshes_per_s_max: usize,
    /// Messages that all sessions of one user may send in a second. 0: no limit.
    pub user_messages_per_s_max: usize,
    /// Bytes of messages that all sessions of one user may send in a second. 0: no limit.
    pub user_bytes_per_s_max: usize,
    /// Handshakes of one user in a second. 0: no limit.
    pub user_handshakes_per_s_max: usize,
    /// Sessions of one user. 0: no limit.
    pub user_sessions_max: usize,
    /// Subscriptions of all sessions of one user. 0: no limit.
    pub user_subscriptions_max: usize,
    /// Messages that all clients of one address may send in a second. 0: no limit.
    pub address_messages_per_s_max: usize,
    /// Bytes of messages that all clients of one address may send in a second. 0: no limit.
    pub address_bytes_per_s_max: usize,
    /// Handshakes of one address in a second. 0: no limit.
    pub address_handshakes_per_s_max: usize,
    /// Messages that all clients may send in a second. 0: no limit.
    pub messages_per_s_max: usize,
    /// Bytes of messages that all clients may send in a second. 0: no limit.
    pub bytes_per_s_max: usize,
    /// Handshakes of the whole server in a second. The last quarter is for addresses that take less than that. 0: no limit.
    pub handshakes_per_s_max: usize,
    /// Subscriptions of all sessions. 0: no limit.
    pub all_subscriptions_max: usize,
    /// Users, addresses and channels whose rates are known at the same time; above it those that sent least are forgotten.
    pub rate_entries_max: usize,
}

/// The point at which a message counts as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryCommit {
    /// The operating system has it: it survives the end of the process.
    Os,
    /// Like `os`, and it is on disk soon: messages of the last `history_commit_interval_ms` may be lost if the machine
    /// stops.
    #[default]
    Interval,
    /// It is on disk.
    Always,
}

/// A transport by its Bayeux name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TransportName {
    /// One WebSocket carries everything.
    Websocket,
    /// POST requests, one of them held.
    LongPolling,
    /// GET requests answered with a script (JSONP).
    CallbackPolling,
}

impl fmt::Display for TransportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Websocket => "websocket",
            Self::LongPolling => "long-polling",
            Self::CallbackPolling => "callback-polling",
        })
    }
}

/// The limits of one client message, for the parser.
impl From<&Settings> for bayeux::Limits {
    fn from(settings: &Settings) -> bayeux::Limits {
        bayeux::Limits {
            batch_messages_max: settings.batch_messages_max,
            json_depth_max: settings.json_depth_max,
            channel_bytes_max: settings.channel_bytes_max,
            channel_segments_max: settings.channel_segments_max,
            ..bayeux::Limits::default()
        }
    }
}

impl Default for Settings {
    #[expect(clippy::too_many_lines, reason = "a line for each setting")]
    fn default() -> Self {
        Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            shards: 0,
            application_threads: 0,
            files: String::new(),
            data: String::new(),
            history_commit: HistoryCommit::default(),
            history_commit_interval_ms: 1_000,
            timeout_ms: 20_000,
            interval_ms: 0,
            max_interval_ms: 10_000,
            client_interval_max_ms: 600_000,
            lazy_timeout_max_ms: 5_000,
            handshake_timeout_ms: 10_000,
            websocket_idle_timeout_ms: 300_000,
            request_timeout_ms: 10_000,
            response_timeout_ms: 30_000,
            keep_alive_timeout_ms: 60_000,
            drain_timeout_ms: 5_000,
            drain_spread_ms: 5_000,
            decision_timeout_ms: 5_000,
            call_timeout_ms: 30_000,
            auth_expiry_notice_ms: 60_000,
            transports: vec![TransportName::Websocket, TransportName::LongPolling, TransportName::CallbackPolling],
            mounts: ["/cometd", "/bayeux", "/faye"].map(String::from).to_vec(),
            broadcast_to_publisher: true,
            connect_deliver_only: false,
            handshake_reconnect: false,
            websocket_protocol: String::new(),
            forward_ext: true,
            timestamps: false,
            activity_timeout_ms: 0,
            activity_counts_deliveries: false,
            channels: Vec::new(),
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            browser_sessions_max: 1,
            browser_surplus_interval_ms: 2_000,
            trust_client_session: false,
            cookie_name: "BAYEUX_BROWSER".into(),
            cookie_domain: String::new(),
            cookie_path: "/".into(),
            cookie_max_age_s: -1,
            cookie_http_only: true,
            cookie_secure: false,
            cookie_same_site: "Lax".into(),
            cookie_partitioned: false,
            duplicate_connect_status: 409,
            callback_parameter: "jsonp".into(),
            api_loopback: false,
            metrics_loopback: true,
            idempotency_ms: 300_000,
            idempotency_bytes_max: 16 * 1024 * 1024,
            hold_path: "/hold".into(),
            hold_timeout_max_ms: 120_000,
            connections_max: 1_000_000,
            address_connections_max: 0,
            connections_per_second_max: 20_000,
            socket_send_buffer_bytes: 128 * 1024,
            sessions_max: 1_000_000,
            held_requests_max: 100_000,
            held_requests_per_address_max: 20_000,
            unconnected_per_connection_max: 1_000,
            unconnected_per_address_max: 20_000,
            message_bytes_max: 1024 * 1024,
            incomplete_bytes_max: 64 * 1024 * 1024,
            credentials_bytes_max: 32 * 1024,
            header_bytes_max: 16 * 1024,
            batch_messages_max: 1_000,
            json_depth_max: 64,
            channel_bytes_max: 256,
            channel_segments_max: 16,
            channels_max: 1_000_000,
            subscriptions_max: 1_000,
            outbox_messages_max: 100_000,
            outbox_bytes_max: 16 * 1024 * 1024,
            sessions_bytes_max: 1024 * 1024 * 1024,
            response_bytes_max: 256 * 1024,
            responses_bytes_max: 256 * 1024 * 1024,
            history_bytes_max: 256 * 1024 * 1024,
            history_channels_max: 100_000,
            decisions_waiting_max: 10_000,
            decisions_waiting_bytes_max: 64 * 1024 * 1024,
            calls_waiting_max: 10_000,
            calls_waiting_bytes_max: 64 * 1024 * 1024,
            calls_waiting_per_session_max: 100,
            revoked_tokens_max: 100_000,
            callback_bytes_max: 64,
            mailbox_bytes_max: 8 * 1024 * 1024,
            in_process_messages_max: 10_000,
            in_process_bytes_max: 16 * 1024 * 1024,
            fairness_budget_us: 2_000,
            presence_grace_ms: 5_000,
            presence_interval_ms: 500,
            presence_members_max: 1_000_000,
            presence_bytes_max: 512 * 1024 * 1024,
            session_messages_per_s_max: 0,
            session_bytes_per_s_max: 0,
            session_refreshes_per_s_max: 5,
            user_messages_per_s_max: 0,
            user_bytes_per_s_max: 0,
            user_handshakes_per_s_max: 0,
            user_sessions_max: 0,
            user_subscriptions_max: 0,
            address_messages_per_s_max: 0,
            address_bytes_per_s_max: 0,
            address_handshakes_per_s_max: 0,
            messages_per_s_max: 0,
            bytes_per_s_max: 0,
            handshakes_per_s_max: 100_000,
            all_subscriptions_max: 0,
            rate_entries_max: 262_144,
        }
    }
}

/// The maximum number of shards: the map of interest holds one bit for each, and one for the subscribers in the process.
pub const SHARDS_MAX: usize = 63;
