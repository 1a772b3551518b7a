//! All settings with their defaults: one flat list of names with their units.
//!
//! The program reads these names from its file, its environment and its flags; the library takes the struct. The whole
//! server has one list, in which each setting is declared once: its documentation, type, default, CometD's name, range, and
//! whether a change needs a restart. The server checks the list before it passes it to a shard. The defaults are CometD's where CometD has the option (reference: CometD 9 "Server options").

mod declare;
mod file_rule;
pub(crate) mod in_force;
mod listener;
mod proxies;
mod rule;
mod tls;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use declare::{Declared, Group, Setting};
pub use file_rule::FileRule;
pub use listener::ListenerSettings;
pub use proxies::{TrustedProxy, TrustedProxyError};
pub use rule::{ChannelRule, HistoryTerms, Publishers, SlowConsumer};
pub use tls::{CertificateName, TlsClient, TlsPair};

crate::settings! {
    /// The settings of a server. `Settings::default()` describes a server on loopback. A program writes
    /// `Settings { timeout_ms: 30_000, ..Settings::default() }`: later versions have more fields.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings;

    "The server" {
        /// Address and port to listen on. Port 0: any free port.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8080)), restart();
        /// Further addresses and Unix sockets to listen on, `[[listeners]]`, each with TLS or without.
        listeners: Vec<ListenerSettings> = Vec::new(), restart();
        /// The proxies in front of the server, as addresses, networks such as `10.0.0.0/8`, and `unix:` for those on Unix sockets. What they say
        /// about their clients is believed: `X-Forwarded-For`, `-Proto` and `-Host`, `Forwarded`, and the PROXY protocol. Nobody else is.
        trusted_proxies: Vec<TrustedProxy> = Vec::new();
        /// Number of shards (threads with their own sessions). 0: one per core.
        shards: usize = 0, at_most(SHARDS_MAX as u64, "0 (one per core) to 63"), restart();
        /// Number of threads for futures of the application that wait. 0: one per core.
        application_threads: usize = 0, restart();
        /// A directory that stores histories and sessions across a restart; created if it does not exist. Empty: they are in memory only.
        data: String = String::new(), restart();
        /// The point at which a publication on a channel with a history is acknowledged. With `data`: `os` (the operating system has it),
        /// `interval` (it is on disk soon) or `always` (it is on disk). In a cluster `replicated`: the journal of NATS has it, too, on disk
        /// with its `sync_interval: always`.
        history_commit: HistoryCommit = HistoryCommit::default(), restart();
        /// Longest time until a message is on disk with `history_commit = "interval"`, in milliseconds.
        history_commit_interval_ms: u64 = 1_000, positive(), restart();
    }
    "Files" {
        /// A directory whose files are served beside the built-in pages, its `index.html` as the start page. A client that accepts br, gzip
        /// or zstd gets `NAME.br`, `NAME.gz` or `NAME.zst`, if that lies beside the file. Empty: none.
        files: String = String::new();
        /// A folder without `index.html` shows a list of its files.
        files_listing: bool = false;
        /// Names that such a list shows.
        files_listing_names_max: usize = 1_000, positive();
        /// The `Cache-Control` of files and built-in pages, `[[files_rules]]`. The first rule that matches applies; without one it is `no-cache`.
        files_rules: Vec<FileRule> = Vec::new();
        /// A JSON file of the files that pages need, by the paths of the pages: they are named in the field `Link`, and over HTTP/2 also in
        /// Early Hints (status 103). Empty: none.
        files_preload: String = String::new();
        /// Bytes of files in memory. 0: each request reads its file.
        files_cache_bytes_max: usize = 64 * 1024 * 1024;
        /// Bytes of one file in memory. A larger file is read while it is sent.
        files_cache_file_bytes_max: usize = 1024 * 1024;
        /// Time for which a file in memory, or one that is open, counts as unchanged, in milliseconds. 0: each request looks at the directory.
        files_cache_ms: u64 = 250;
        /// Files that are open at the same time because they are too large for memory; requests for further ones get status 503.
        files_open_max: usize = 1_000, positive();
    }
    "TLS" {
        /// A PEM file with the certificate of the server and those that lead to its root. `listen` then speaks TLS. Empty: plain HTTP.
        tls_cert: String = String::new();
        /// A PEM file with the private key of `tls_cert`.
        tls_key: String = String::new();
        /// Certificates for further names, `[[tls]]`. The name that a client asks for (SNI) selects one; others get `tls_cert`.
        tls: Vec<TlsPair> = Vec::new();
        /// A PEM file with the root certificates of clients, which are then asked for a certificate in the handshake of TLS. Empty: they
        /// are not.
        tls_client_ca: String = String::new(), restart();
        /// A PEM file with lists of revoked certificates of clients (CRL), one of each issuer. Empty: none is revoked.
        tls_client_crl: String = String::new(), restart();
        /// The certificates of clients of `listen`, with `tls_client_ca`: `required`, `optional`, or `none` if they are not asked for one.
        tls_client: TlsClient = TlsClient::default(), restart();
        /// The name in the certificate of a client that is its user: the only `common-name` of the subject, or the only `dns` or `uri` of its
        /// alternative names.
        tls_client_user: CertificateName = CertificateName::default(), restart();
        /// `listen` speaks TLS with a certificate that the server signs itself and makes at each start. Its SHA-256 fingerprint is logged.
        dev_tls: bool = false, restart();
        /// Names for which the server gets a certificate by ACME, and renews it: `listen` then speaks TLS, and the authority has to reach it at
        /// port 443 of each name. The server agrees to the terms of the authority. Needs `data`.
        acme: Vec<String> = Vec::new(), restart();
        /// The URL of the authority's directory.
        acme_directory: String = "https://acme-v02.api.letsencrypt.org/directory".into(), restart();
        /// An email address for the authority. Empty: none.
        acme_email: String = String::new(), restart();
        /// A PEM file with the root certificate of the authority's own server. Empty: those of the system.
        acme_ca: String = String::new(), restart();
        /// Longest time that a TLS handshake takes, in milliseconds.
        tls_handshake_timeout_ms: u64 = 10_000, positive();
    }
    "HTTP/2" {
        /// Clients may speak HTTP/2: over TLS by ALPN, without TLS by prior knowledge.
        http2: bool = true, restart();
        /// Requests and WebSockets that one HTTP/2 connection has open at the same time; further ones are refused (REFUSED_STREAM).
        http2_streams_max: usize = 128, positive(), at_most(1 << 20, "at most 1048576");
        /// Frames of one HTTP/2 connection in a second that carry neither a request nor bytes of one: SETTINGS, PING, PRIORITY,
        /// WINDOW_UPDATE, empty DATA and unknown ones. Above it the connection ends (ENHANCE_YOUR_CALM).
        http2_control_frames_per_s_max: usize = 10_000, positive();
        /// Requests and WebSockets that the client of one HTTP/2 connection resets in a second (RST_STREAM). Above it the connection
        /// ends (ENHANCE_YOUR_CALM).
        http2_resets_per_s_max: usize = 200, positive();
    }
    "Bayeux timing" {
        /// Time that a `/meta/connect` is held, in milliseconds.
        timeout_ms: u64 = 20_000, cometd_of_each_transport("timeout"), positive();
        /// Time that a client waits between two connects, in milliseconds.
        interval_ms: u64 = 0, cometd_of_each_transport("interval");
        /// Time that a silent session lives after `interval_ms`, in milliseconds.
        max_interval_ms: u64 = 10_000, cometd_of_each_transport("maxInterval"), positive();
        /// The longest hold time that a client may request, and the longest sum of its pause and grace, in milliseconds.
        client_interval_max_ms: u64 = 600_000;
        /// Longest time that a lazy message waits, in milliseconds.
        lazy_timeout_max_ms: u64 = 5_000, cometd_of_each_transport("maxLazyTimeout");
        /// Longest time that a WebSocket may stay without a Bayeux handshake, in milliseconds.
        handshake_timeout_ms: u64 = 10_000, positive();
        /// Longest time that a WebSocket may stay without any frame from its client, in milliseconds. 0: no limit.
        websocket_idle_timeout_ms: u64 = 300_000, cometd("idleTimeout");
        /// Time between two signs of life on a stream, for proxies and for clients, in milliseconds. A stream whose client has not
        /// acknowledged any byte for twice that time ends.
        stream_heartbeat_ms: u64 = 15_000, positive();
        /// Longest time that a stream stays open; its client then opens another one. In milliseconds. 0: no limit.
        stream_max_ms: u64 = 0;
        /// Longest time that the headers or the body of a request, or a PROXY head, take to arrive, in milliseconds.
        request_timeout_ms: u64 = 10_000, positive();
        /// Time after which the server resets a connection whose client reads nothing of its response, in milliseconds.
        response_timeout_ms: u64 = 30_000, positive();
        /// Time that an idle keep-alive connection stays open, in milliseconds.
        keep_alive_timeout_ms: u64 = 60_000;
        /// Time that a draining server waits for its clients to leave, in milliseconds.
        drain_timeout_ms: u64 = 5_000;
        /// Window over which a draining server spreads its clients' reconnects, in milliseconds.
        drain_spread_ms: u64 = 5_000;
        /// Time that the application may take for a decision, in milliseconds. The message is then refused.
        decision_timeout_ms: u64 = 5_000, positive();
        /// Time that the application may take for the answer to a call, in milliseconds. The call has then failed.
        call_timeout_ms: u64 = 30_000, positive();
        /// Time before the end of a session's credentials at which its client is notified, in milliseconds. 0: it is not.
        auth_expiry_notice_ms: u64 = 60_000;
    }
    "Bayeux behaviour" {
        /// The transports offered, in this order: `websocket`, `eventsource`, `json-stream`, `long-polling`, `callback-polling`.
        transports: Vec<TransportName> = TransportName::ALL.to_vec(), cometd("allowedTransports");
        /// The paths of the Bayeux endpoint, each with all its sub-paths.
        mounts: Vec<String> = ["/cometd", "/bayeux", "/faye"].map(String::from).to_vec(), cometd("cometdURLMapping");
        /// A publisher that subscribes to its own channel gets its own messages.
        broadcast_to_publisher: bool = true, cometd("broadcastToPublisher");
        /// Messages are sent with connect replies only, also on a WebSocket.
        connect_deliver_only: bool = false, cometd_of_each_transport("metaConnectDeliverOnly");
        /// Advice includes `maxInterval`, so that clients handshake again by themselves after a longer break.
        handshake_reconnect: bool = false, cometd_of_each_transport("handshakeReconnect");
        /// The sub-protocol that a WebSocket must offer and the server selects. Empty: the server ignores offers.
        websocket_protocol: String = String::new(), cometd("protocol");
        /// Messages of fewer bytes are not compressed, on channels whose rule says `compress`.
        compress_bytes_min: usize = 256;
        /// The `ext` of a published message is sent to the subscribers (the binary extension needs it).
        forward_ext: bool = true;
        /// Replies and publications carry a `timestamp` (the timestamp extension).
        timestamps: bool = false;
        /// Time without messages from its client after which a session is disconnected, in milliseconds (the activity extension). 0: off.
        activity_timeout_ms: u64 = 0;
        /// Messages to a session also count as its activity.
        activity_counts_deliveries: bool = false;
        /// Rules for channels. The first rule that matches applies.
        channels: Vec<ChannelRule> = Vec::new();
    }
    "Browsers" {
        /// Origins (`https://example.com`) allowed in addition to the server's. `*` allows all, without credentials.
        allowed_origins: Vec<String> = Vec::new();
        /// Host names that requests may use for this server, in addition to addresses and `localhost`. Empty: any; none where all addresses are of loopback.
        allowed_hosts: Vec<String> = Vec::new();
        /// Connects held, or streams open, at the same time for one browser; the others are advised to poll. -1: no limit, 0: none.
        browser_sessions_max: i32 = 1, cometd("maxSessionsPerBrowser");
        /// Connects held, or streams open, at the same time for one browser, where its next one comes on HTTP/2: that has one connection
        /// for all of them. -1: no limit, 0: none.
        http2_browser_sessions_max: i32 = -1, cometd("http2MaxSessionsPerBrowser");
        /// Pause between polls of the surplus windows of one browser, in milliseconds. 0: they are refused.
        browser_surplus_interval_ms: u64 = 2_000, cometd("multiSessionInterval");
        /// A request needs no cookie, only a `clientId`.
        trust_client_session: bool = false, cometd("trustClientSession");
        /// The name of the cookie that identifies a browser.
        cookie_name: String = "BAYEUX_BROWSER".into(), cometd("browserCookieName");
        /// The domain of the cookie. Empty: none.
        cookie_domain: String = String::new(), cometd("browserCookieDomain");
        /// The path of the cookie.
        cookie_path: String = "/".into(), cometd("browserCookiePath");
        /// The lifetime of the cookie in seconds. -1: until the browser closes.
        cookie_max_age_s: i64 = -1, cometd("browserCookieMaxAge");
        /// Scripts cannot see the cookie.
        cookie_http_only: bool = true, cometd("browserCookieHttpOnly");
        /// Browsers send the cookie over TLS only.
        cookie_secure: bool = false, cometd("browserCookieSecure");
        /// The cookie's `SameSite`: `Lax`, `Strict`, `None`, or empty for none.
        cookie_same_site: String = "Lax".into(), cometd("browserCookieSameSite");
        /// Browsers partition the cookie by top-level site.
        cookie_partitioned: bool = false, cometd("browserCookiePartitioned");
        /// The HTTP status that ends a held connect when a newer one replaces it (400 to 599).
        duplicate_connect_status: u16 = 409, cometd("duplicateMetaConnectHttpResponseCode"),
            at_least(400, STATUS), at_most(599, STATUS);
        /// The query parameter that names the callback of callback-polling.
        callback_parameter: String = "jsonp".into(), cometd("callbackParameter");
        /// Programs on this machine may use the HTTP API without a key. All others need one: `[[api_keys]]`.
        api_loopback: bool = false;
        /// Programs on this machine may read `/metrics` without a key. A proxy on this machine that adds no header and calls the server by a
        /// loopback name looks like one: behind such a proxy, turn this off and give the scraper a key.
        metrics_loopback: bool = true;
        /// Time for which the HTTP API remembers the answer to a request with an idempotency key, in milliseconds.
        idempotency_ms: u64 = 300_000;
        /// The path below which GET requests are held until a message comes on the channel that follows. Empty: no path.
        hold_path: String = "/hold".into();
        /// The longest time for which such a request is held, in milliseconds.
        hold_timeout_max_ms: u64 = 120_000;
        /// The path below which GET requests get the messages of the channel that follows, as a stream without Bayeux. Empty: no path.
        stream_path: String = "/stream".into();
        /// The path below which GET requests read the history of the channel that follows. Empty: no path.
        history_path: String = "/history".into();
    }
    "Limits" {
        /// Open connections of the whole server.
        connections_max: usize = 1_000_000, positive();
        /// Bytes that the system may buffer for one connection (SO_SNDBUF). 0: the system's default.
        socket_send_buffer_bytes: usize = 128 * 1024;
        /// New connections that each shard accepts in a second; more wait in the system's backlog. 0: no limit.
        connections_per_second_max: usize = 20_000;
        /// Open connections of one address; one more gets status 429. 0: no limit.
        address_connections_max: usize = 0;
        /// Sessions of the whole server, in shares: a user, or an address, leaves room for others.
        sessions_max: usize = 1_000_000, positive();
        /// Attributes of one session, which the application sets.
        session_attributes_max: usize = 32;
        /// Bytes of the names and values of all attributes of one session.
        session_attributes_bytes_max: usize = 16 * 1024;
        /// Requests below `hold_path` that are held at the same time, of the whole server.
        held_requests_max: usize = 100_000;
        /// Requests below `hold_path` that are held at the same time, of one address.
        held_requests_per_address_max: usize = 20_000;
        /// Sessions of one connection that have not connected yet.
        unconnected_per_connection_max: usize = 1_000;
        /// Sessions of one address that have not connected yet.
        unconnected_per_address_max: usize = 20_000;
        /// Bytes of one WebSocket message or request body.
        message_bytes_max: usize = 1024 * 1024, cometd_of_each_transport("maxMessageSize"), at_least(64, ROOM);
        /// Bytes of incomplete messages and request bodies of one shard; at least two messages.
        incomplete_bytes_max: usize = 64 * 1024 * 1024;
        /// Bytes of the whole bodies of requests of one shard that wait for their turn, because others are served; further ones get 503. One
        /// address has at most a part of them, and bodies of up to 4 KiB have a reserve.
        waiting_requests_bytes_max: usize = 64 * 1024 * 1024;
        /// Bytes of the `ext` of a handshake, and of the credentials of a refresh. They come from somebody who is not known yet.
        credentials_bytes_max: usize = 32 * 1024, at_least(1024, ROOM);
        /// Size of all headers of a request, in bytes.
        header_bytes_max: usize = 16 * 1024, at_least(8192, ROOM);
        /// Messages in one batch.
        batch_messages_max: usize = 1_000, positive();
        /// Depth of nesting in JSON; at most 128.
        json_depth_max: usize = 64, positive(), at_most(bayeux::json::DEPTH_CAP as u64, "at most 128");
        /// Length of a channel name, in bytes.
        channel_bytes_max: usize = 256;
        /// Segments of a channel name.
        channel_segments_max: usize = 16, positive();
        /// Channels and patterns with a subscriber, of one shard.
        channels_max: usize = 1_000_000, positive();
        /// Channels of one shard, each as often as there are intervals for it, of which a message has gone within the interval
        /// (`min_interval_ms` of rules and of clients). Messages of further channels go at once.
        min_interval_channels_max: usize = 65_536, positive();
        /// Bytes of the messages of one shard that wait for their interval, with the names of their channels; further messages go at once.
        min_interval_bytes_max: usize = 64 * 1024 * 1024, positive();
        /// Subscriptions of one session.
        subscriptions_max: usize = 1_000, positive();
        /// Messages that wait in the outbox of one session.
        outbox_messages_max: usize = 100_000, cometd_of_each_transport("maxQueue"), positive();
        /// Bytes of one outbox, including its queue and unacknowledged messages. A response or batch on its way may add
        /// 280 bytes for its record.
        outbox_bytes_max: usize = 16 * 1024 * 1024, at_least(1024, ROOM);
        /// Bytes that all sessions hold in memory; above it the largest sessions are ended.
        sessions_bytes_max: usize = 1024 * 1024 * 1024, at_least(1024 * 1024, ROOM);
        /// Bytes of messages in one response; the rest comes with the next connect.
        response_bytes_max: usize = 256 * 1024;
        /// Bytes of all responses that clients are reading; above it connects and held requests wait.
        responses_bytes_max: usize = 256 * 1024 * 1024, at_least(1024, ROOM);
        /// Bytes of all histories together; the oldest messages are removed first.
        history_bytes_max: usize = 256 * 1024 * 1024, positive();
        /// Channels with a history. Those of one rule may have three quarters; above it other channels get none, and clients cannot
        /// publish on them.
        history_channels_max: usize = 100_000, positive();
        /// Batches of one shard that wait for decisions of the application; further messages that would wait are refused.
        decisions_waiting_max: usize = 10_000, positive();
        /// Bytes of these batches. One user, or one address without users, may have 3/4 of them and of their number.
        decisions_waiting_bytes_max: usize = 64 * 1024 * 1024, positive();
        /// Calls of one shard that wait for answers of the application; further calls are refused.
        calls_waiting_max: usize = 10_000, positive();
        /// Bytes of the data of these calls. One user, or one address without users, may have two thirds of them and of their
        /// number; refreshes of credentials have an eighth for themselves.
        calls_waiting_bytes_max: usize = 64 * 1024 * 1024, positive();
        /// Calls of one session that wait for answers of the application.
        calls_waiting_per_session_max: usize = 100, positive();
        /// Revoked tokens that have not expired, with ids of up to 255 bytes; longer ones count as several. Further ones cannot be
        /// revoked.
        revoked_tokens_max: usize = 100_000, positive();
        /// Length of the name of a JSONP callback, in bytes.
        callback_bytes_max: usize = 64, cometd("callbackParameterMaxLength");
        /// Bytes of the answers that the HTTP API remembers; above it the oldest are forgotten.
        idempotency_bytes_max: usize = 16 * 1024 * 1024;
        /// Bytes in transit between shards, and as many again of light messages.
        mailbox_bytes_max: usize = 8 * 1024 * 1024, positive();
        /// Messages that may wait for one subscription of the program itself; above it the oldest are discarded.
        in_process_messages_max: usize = 10_000, positive();
        /// Bytes that may wait for one subscription of the program itself, and 16 times as many for all; above it messages are discarded.
        in_process_bytes_max: usize = 16 * 1024 * 1024, positive();
        /// Time after which a fan-out yields to other work, in microseconds.
        fairness_budget_us: u64 = 2_000;
    }
    "Presence" {
        /// Time for which a user without a session stays a member of a channel, so that a reload is no leave, in milliseconds.
        presence_grace_ms: u64 = 5_000;
        /// Shortest time between two announcements of a channel's members, in milliseconds.
        presence_interval_ms: u64 = 500;
        /// Members of all channels with presence; sessions above it are not listed.
        presence_members_max: usize = 1_000_000;
        /// Bytes of all members of channels with presence; sessions above it are not listed.
        presence_bytes_max: usize = 512 * 1024 * 1024;
    }
    "Rates" {
        /// Messages that the client of one session may send in a second. 0: no limit.
        session_messages_per_s_max: usize = 0;
        /// Bytes of messages that the client of one session may send in a second. 0: no limit.
        session_bytes_per_s_max: usize = 0;
        /// Refreshes of its credentials that one session may send in a second. They also count as messages. 0: no limit.
        session_refreshes_per_s_max: usize = 5;
        /// Messages that all sessions of one user may send in a second. 0: no limit.
        user_messages_per_s_max: usize = 0;
        /// Bytes of messages that all sessions of one user may send in a second. 0: no limit.
        user_bytes_per_s_max: usize = 0;
        /// Handshakes of one user in a second. 0: no limit.
        user_handshakes_per_s_max: usize = 0;
        /// Sessions of one user. 0: no limit.
        user_sessions_max: usize = 0;
        /// Subscriptions of all sessions of one user. 0: no limit.
        user_subscriptions_max: usize = 0;
        /// Messages that all clients of one address may send in a second. 0: no limit.
        address_messages_per_s_max: usize = 0;
        /// Bytes of messages that all clients of one address may send in a second. 0: no limit.
        address_bytes_per_s_max: usize = 0;
        /// Handshakes of one address in a second. 0: no limit.
        address_handshakes_per_s_max: usize = 0;
        /// Messages that all clients may send in a second. 0: no limit.
        messages_per_s_max: usize = 0;
        /// Bytes of messages that all clients may send in a second. 0: no limit.
        bytes_per_s_max: usize = 0;
        /// Handshakes of the whole server in a second. The last quarter is for addresses that take less than that. 0: no limit.
        handshakes_per_s_max: usize = 100_000;
        /// Subscriptions of all sessions. 0: no limit.
        all_subscriptions_max: usize = 0;
        /// Users, addresses and channels whose rates are known at the same time; above it those that sent least are forgotten.
        rate_entries_max: usize = 262_144, positive(), restart();
    }
}

impl Settings {
    /// True if the rules of some channels compress.
    pub fn compresses(&self) -> bool {
        self.channels.iter().any(|rule| rule.compress)
    }
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
    /// The engine of the cluster has it in its journal. Not for a server that is no node of a cluster.
    Replicated,
}

/// A transport by its Bayeux name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum TransportName {
    /// One WebSocket carries everything.
    Websocket,
    /// POST requests; messages come as server-sent events in one response that stays open.
    Eventsource,
    /// POST requests; messages come as JSON lines in one response that stays open.
    JsonStream,
    /// POST requests, one of them held.
    LongPolling,
    /// GET requests answered with a script (JSONP).
    CallbackPolling,
}

impl TransportName {
    /// All of them.
    pub const ALL: [TransportName; 5] =
        [Self::Websocket, Self::Eventsource, Self::JsonStream, Self::LongPolling, Self::CallbackPolling];
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

/// The maximum number of shards: the map of interest holds one bit for each, and one for the subscribers in the process.
pub const SHARDS_MAX: usize = 63;

/// The least of bytes that hold anything useful, in one text for all settings that have such a limit.
const ROOM: &str = "at least 1024 bytes (headers: 8192, messages: 64, all sessions: 1048576)";
/// The range of a status.
const STATUS: &str = "an HTTP status from 400 to 599";
