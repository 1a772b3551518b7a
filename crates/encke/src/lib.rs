//! A Bayeux server as a library: a program starts it, publishes messages to its clients, and decides what they may do.
//!
//! A whole program, which pushes a price to every client that subscribes to `/stock/GOOG`:
//!
//! ```
//! use encke::{Server, Settings};
//!
//! // Port 0 takes a free port; the defaults listen on loopback.
//! let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
//! let running = Server::builder().settings(settings).start()?;
//! let handle = running.handle();
//! println!("clients connect to http://{}/cometd", running.address());
//!
//! handle.publish("/stock/GOOG", r#"{"price":42}"#)?;
//!
//! handle.drain();
//! running.join();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Builder`] is a server before its start, a [`Running`] is a running server, and a [`Handle`] controls it from any thread. The
//! clients of CometD and Faye connect unchanged, and so does the crate `encke-client`. `examples/price_feed.rs` is a longer program: it
//! requires a token from clients, refuses their publications, and answers a service.
//!
//! A server consists of *shards*, one for each core unless [`Settings::shards`] sets another number. A shard is a thread with its own
//! connections, sessions and subscriptions. The threads are the server's own: the program needs no async runtime.
//!
//! # Settings
//!
//! [`Settings`] is one flat list. Each name ends in its unit: `_ms`, `_bytes`, `_max`. A program names the settings that it changes;
//! all others come from [`Settings::default`], so new settings in later versions change nothing for it.
//!
//! ```
//! use encke::{ChannelRule, Settings, SlowConsumer};
//!
//! let prices = ChannelRule {
//!     pattern: "/stock/**".into(),
//!     // Later subscribers may request the last 100 messages.
//!     history_messages: 100,
//!     // A slow client misses prices, but never the latest one of a channel.
//!     slow_consumer: SlowConsumer::KeepLatest,
//!     ..ChannelRule::default()
//! };
//! let settings = Settings { timeout_ms: 30_000, channels: vec![prices], ..Settings::default() };
//! assert!(encke::check_settings(&settings).is_ok());
//! ```
//!
//! [`Builder::start`] checks them first and returns [`StartError::Settings`] for one that cannot work. [`Handle::reload`] changes most of
//! them while the server runs. `docs/configuration.md` in the repository lists all of them with their defaults.
//!
//! # Publishing
//!
//! [`Handle::publish`] broadcasts raw JSON on a channel, from any thread, and returns at once. Messages of one thread on one channel
//! arrive in order. [`PublishError::Busy`] means that the server takes no more at the moment: the message was not published, and the
//! program may try again, discard it, or wait.
//!
//! ```
//! use encke::{Handle, PublishError};
//!
//! fn publish_in_time(handle: &Handle, channel: &str, json: &str) -> Result<(), PublishError> {
//!     while let Err(error) = handle.publish(channel, json) {
//!         match error {
//!             PublishError::Busy => std::thread::yield_now(),
//!             mistake => return Err(mistake),
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Subscribing
//!
//! [`Handle::subscribe`] returns a stream of the messages of a channel or a pattern, whoever publishes them. It needs no session, and any
//! async runtime can read it. Its queue is bounded: a reader that is too slow gets a [`Gap`]. Where the channel has a history, a later
//! subscription can begin at the position of the last message ([`Handle::subscribe_from`]) and misses nothing.
//!
//! ```
//! use encke::{Handle, SubscribeError};
//!
//! async fn log_orders(handle: Handle) -> Result<(), SubscribeError> {
//!     let mut orders = handle.subscribe("/orders/**")?;
//!     while let Some(item) = orders.next().await {
//!         match item {
//!             Ok(message) => println!("{}: {}", message.channel(), message.data()),
//!             Err(gap) => println!("{gap}"),
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Hooks
//!
//! A program takes part in the server through hooks, which it gives to the builder. Without any, everything is allowed. [`Builder`] has
//! a table of all hooks, and says where they run and what happens if they take too long or panic.
//!
//! ```
//! use encke::{Access, Grant, Handshake, Identity, Operation, Publishing, Refusal, Server, Verdict};
//!
//! let server = Server::builder()
//!     // Who may open a session, and as whom.
//!     .authenticate(async |handshake: Handshake| match handshake.ext() {
//!         Some(ext) if ext.contains("sesame") => Ok(Identity::of_user("ali")),
//!         _ => Err(Refusal::new(401, "say_the_word")),
//!     })
//!     // Who may create, subscribe to and publish to a channel.
//!     .authorize("/cave/**", |access: &Access| match access.operation() {
//!         Operation::Publish if access.user() != "ali" => Grant::deny("read_only"),
//!         _ => Grant::Grant,
//!     })
//!     // What is published.
//!     .filter("/cave/**", |message: &Publishing| match message.data() {
//!         Some(data) if data.contains('!') => Verdict::Replace(data.replace('!', ".")),
//!         _ => Verdict::Forward,
//!     });
//! # drop(server);
//! ```
//!
//! The reason of a refusal goes to the client, inside the Bayeux error: `403:read_only:publish_denied`. An [`Identity`] belongs to its
//! session until the end, also over restarts; every later hook sees it. It may limit the channels of its session by itself.
//!
//! # Services
//!
//! A service is a channel below `/service/` (Bayeux 1.0 "Service Channels"): its messages go to the application only. An async function
//! answers them, one call at a time or many, as CometD's remote calls: the caller gets a message with the channel and the id of its
//! call, the reply as `data`, and `"successful":true` or `false`.
//!
//! ```
//! use encke::{AppState, Call, Data, Failure, Server};
//! use std::sync::{Arc, Mutex};
//!
//! #[derive(serde::Deserialize)]
//! struct Bid {
//!     cents: u64,
//! }
//!
//! async fn bid(call: Call, AppState(highest): AppState<Arc<Mutex<u64>>>, Data(bid): Data<Bid>) -> Result<Data<u64>, Failure> {
//!     let mut highest = highest.lock().expect("no panic");
//!     if bid.cents <= *highest {
//!         return Err(Failure::new("too_low", "somebody offers more"));
//!     }
//!     *highest = bid.cents;
//!     // Everybody else gets to know.
//!     if let Some(handle) = call.handle() {
//!         _ = handle.publish("/auction/highest", &highest.to_string());
//!     }
//!     Ok(Data(*highest))
//! }
//!
//! let server = Server::builder().state(Arc::new(Mutex::new(0_u64))).service("/service/bid", bid);
//! # drop(server);
//! ```
//!
//! A function takes at most four values that implement [`FromCall`], and returns anything that implements [`IntoReply`]. [`Actions`] are
//! such a value: a list of messages for the caller, for other sessions and for channels, which are sent in their order. Calls of one
//! session run at the same time; each answer comes when it is ready. [`with_timeout`] limits one service,
//! [`Settings::call_timeout_ms`] all of them.
//!
//! # Channels with parameters, and hooks of a running server
//!
//! A hook may have a template instead of a channel: `{room}` stands for one segment, and the hook takes it as [`Params`]. [`Builder`] says
//! in which order the hooks of a channel come. [`Running::hooks`] adds hooks to a server that runs, and removes them.
//!
//! ```
//! use encke::{Access, ChannelHook, Data, Grant, Params, Server, Settings};
//!
//! let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
//! let running = Server::builder()
//!     .settings(settings)
//!     .service("/service/room/{room}/seats", async |Params(room): Params<u32>| Data(10 * room))
//!     .start()?;
//!
//! let closed = |_: &Access, Params(room): Params<u32>| match room {
//!     13 => Grant::deny("closed"),
//!     _ => Grant::Grant,
//! };
//! let closed = running.hooks().add("/room/{room}", ChannelHook::authorize(closed))?;
//! assert!(running.hooks().remove(closed));
//!
//! running.handle().drain();
//! running.join();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Sessions and subscribers
//!
//! [`Builder::on_session`] reports when a session begins, and when and why it ends; [`Builder::on_channel`] when a channel gets its first
//! subscriber and when the last one is gone, on whatever shard.
//!
//! # Other HTTP requests
//!
//! [`Builder::route`] adds async functions that answer HTTP requests, and may hold them until something happens ([`Hold`]). No other HTTP
//! library is needed.
//!
//! [`Builder::fallback`] passes requests that are not the server's to any tower service, such as an axum router, on the threads of the
//! application. [`service`] is the other way round: the Bayeux endpoint of a running server as a service inside a router, and [`all_paths`] the whole
//! server, as the fallback of a router. The clients'
//! sockets move to the threads of the shards when they become WebSockets. `examples/axum_beside.rs` shows both.
//!
//! # Examples
//!
//! The directory `examples` has whole programs, which tests run against real clients: CometD's chat (`chat`), an echo (`echo_service`),
//! remote calls that wait and time out (`remote_call`), an auction with users (`auction`), an order service (`order_service`), a quote
//! server (`quote_server`), members of rooms (`presence`), limits by settings, rules and identities (`limits`), and the price feed.
//!
//! # The data directory
//!
//! Without [`Settings::data`], histories and sessions are in memory only. With it, histories are in files of that directory and survive
//! every end of the process; sessions survive a clean stop. [`Settings::history_commit`] decides when a publication counts as stored:
//! when the system has it, or when it is on disk. Only one server at a time can use the directory. [`Builder::check`] checks before a
//! start if a server could use it.
//!
//! # Stopping
//!
//! [`Handle::drain`] ends a server in order: clients learn when to come back, connections close, sessions are saved to the data
//! directory. It takes [`Settings::drain_timeout_ms`] at most. [`Running::join`] waits for the end. Dropping a [`Running`] stops nothing:
//! the threads go on without it. A program that replaces itself passes its listening socket on: [`Handle::stop_accepting`],
//! [`Running::listener`], [`Builder::listener`].
//!
//! # Metrics and logs
//!
//! `/metrics` answers in the OpenMetrics text format, to clients on the same machine and to those with an [`ApiKey`] that has the scope
//! [`Scope::Metrics`]. Each name begins with `encke_`, and each metric has a line of help. `/healthz` answers while the process lives, `/readyz` while it takes
//! new clients. [`Handle::add_metrics`] adds those of the program, [`Handle::add_operation`] an operation to the HTTP API. Logs are events of the crate `tracing`; the library prints nothing.

/// Shows a type by its name, and by those of its fields that are listed.
macro_rules! opaque {
    ($Type:ident $(, $field:ident)*) => {
        impl std::fmt::Debug for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($Type))$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    };
}

mod accept_encoding;
mod added_operation;
mod api_keys;
mod app;
mod asset;
mod authority;
mod beside;
mod builder;
mod byte_stream;
mod caught;
mod cluster;
mod data;
mod embedded;
mod entropy;
mod error;
mod fallback;
mod files;
mod gzip;
mod handle;
mod history_page;
mod hold;
mod http;
mod idempotency;
mod lease;
mod local;
mod metric;
mod net;
mod outgoing;
mod presence;
mod request_client;
mod revocations;
mod server;
mod session_names;
mod sessions_file;
mod settings;
mod stream_body;
mod threads;
mod tls;

pub use added_operation::ApiOperation;
pub use api_keys::{ApiKey, ApiKeys, ApiKeysError, Scope};
pub use app::access::{Access, Grant, Operation};
pub use app::authenticate::{Authenticate, Handshake};
pub use app::call::{AppState, Call, Calling, FromCall, Need, User};
pub use app::caller::Caller;
pub use app::channel_hooks::{ChannelHook, HookId};
pub use app::events::{ChannelEvent, SessionEvent, SubscriptionEvent};
pub use app::filter::Publishing;
pub use app::handlers::{
    AuthenticateHandler, AuthorizeAsyncHandler, AuthorizeHandler, ChannelListener, FilterAsyncHandler, FilterHandler,
    SessionListener, SubscriptionListener,
};
pub use app::params::Params;
pub use app::reply::{Data, Failure, IntoReply, Raw};
pub use app::route::{RouteHandler, RouteReply, RouteRequest};
pub use app::running::Hooks;
pub use app::service::{ServiceHandler, WithTimeout, with_timeout};
pub use asset::{Asset, Encoded};
pub use builder::Builder;
pub use byte_stream::ByteStream;
pub use cluster::engine::{
    ClusterEngine, EngineCommand, EngineCommands, EngineEvent, EngineEvents, EngineRun, Expected, JournalValue,
    KEY_BYTES_MAX, KeyAnswer, KeyFailure, KeyReply, RequestFailure, VALUE_BYTES_MAX,
};
pub use cluster::settings::ClusterSettings;
pub use cluster::store::{MemoryStore, SessionStore, SessionStoreSettings, SessionWrite, StoreFuture, StoredSession};
pub use embedded::{EnckeService, all_paths, service};
pub use encke_core::{
    Action, Actions, Amount, AttributeChange, AttributeError, Attributes, Budget, CertificateName, ChannelRule,
    ChannelView, Declared, EXT_BYTES_MAX, EndReason, FileRule, Group as SettingGroup, HANDSHAKE_REPLY_BYTES_MAX,
    HandshakeReply, HandshakeReplyError, Head, HistoryCommit, HistoryTerms, Id, Identity, ListenerSettings, Over,
    PatternError, Patterns, Pending, Publishers, Refusal, Replacement, Secret, SessionLimits, SessionTerms,
    SessionTermsError, SessionView, Setting, Settings, Share, Shares, Side, SlowConsumer, TlsClient, TlsPair,
    TransportName, TrustedProxy, TrustedProxyError, Urgency, Verdict, network, settings,
};
pub use encke_local::{
    Gap, Member, Members, Message, Position, PositionError, Positions, PresenceCounts, Start, SubscribeError,
    Subscription,
};
pub use error::{
    AttributeChangeError, HookError, PublishError, PublishManyError, RemovalError, RevocationError,
    SessionTermsChangeError, SettingsError, StartError, StoreMessageError, SubscriptionError,
};
pub use fallback::{Fallback, FallbackResponse, OtherBody, RequestBody, ResponseBody, TakeOver};
pub use handle::Handle;
pub use history_page::{HistoryPage, StoredMessage};
pub use hold::{ConditionPanicked, Hold, Release};
pub use http::embedded::ServiceBody;
pub use lease::Lease;
pub use metric::Metric;
pub use net::everywhere::ClusterNodes;
pub use net::listing::List;
pub use net::requests::Revocation;
pub use outgoing::Outgoing;
pub use request_client::RequestClient;
pub use server::{Running, Server};
pub use settings::{check_settings, hidden_rules, wrong_settings};
pub use tls::TicketKey;

/// Compiles the program of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the programs of the pages about embedding as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from-cometd.md")]
#[doc = include_str!("../../../docs/chat-in-rust.md")]
#[doc = include_str!("../../../docs/held-requests.md")]
struct Pages;
