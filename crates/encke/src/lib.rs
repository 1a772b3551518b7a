//! A Bayeux server as a library: a program starts it, publishes messages to its clients, and decides what they may do.
//!
//! A whole program, which pushes a price to every client that subscribes to `/stock/GOOG`:
//!
//! ```
//! use encke::{Server, Settings};
//!
//! // Port 0 takes a free port; the defaults listen on loopback.
//! let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
//! let running = Server::new(settings).start()?;
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
//! A [`Server`] is a server before its start, a [`Running`] is a running server, and a [`Handle`] controls it from any thread. The
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
//! [`Server::start`] checks them first and returns [`StartError::Settings`] for one that cannot work. [`Handle::reload`] changes most of
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
//! # Decisions
//!
//! An [`Application`] decides what clients may do: open a session ([`Application::handshake`]), subscribe
//! ([`Application::subscribe`]), publish ([`Application::publish`]). Without one, everything is allowed. Its methods run on the thread of
//! a shard, so they must be short and never block. What the program itself publishes is not decided about.
//!
//! ```
//! use encke::{Answer, Application, Decision, Publishing, Server, Settings, Subscribing, Verdict};
//!
//! /// Allows subscriptions below `/public` only, and replaces exclamation marks.
//! struct Quiet;
//!
//! impl Application for Quiet {
//!     fn subscribe(&self, subscribing: &Subscribing<'_>) -> Answer<Decision> {
//!         let is_public = subscribing.channel.starts_with("/public/");
//!         Answer::Now(if is_public { Decision::Allow } else { Decision::deny("members_only") })
//!     }
//!
//!     fn publish(&self, publishing: &Publishing<'_>) -> Answer<Verdict> {
//!         Answer::Now(match publishing.data {
//!             Some(data) if data.contains('!') => Verdict::Replace(data.replace('!', ".")),
//!             _ => Verdict::Forward,
//!         })
//!     }
//! }
//!
//! let server = Server::new(Settings::default()).application(Quiet);
//! # drop(server);
//! ```
//!
//! The reason of a refusal goes to the client, inside the Bayeux error: `403:members_only:subscribe_denied`.
//!
//! # Services
//!
//! A service is a channel below `/service/` (Bayeux 1.0 "Service Channels"): its messages go to the application only, as remote calls do.
//! [`Application::service`] receives them. With its [`Actions`] it replies to the caller, sends a message to one session, publishes, or
//! ends a session. [`Application::ended`] reports the end of each session, so that the application can forget it.
//!
//! ```
//! use encke::{Actions, Application, Pending, Service};
//!
//! /// Doubles numbers on `/service/double`.
//! struct Doubler;
//!
//! impl Application for Doubler {
//!     fn service(&self, message: &Service<'_>, actions: &mut Actions) -> Option<Pending<Actions>> {
//!         if message.channel == "/service/double" {
//!             match message.data.and_then(|data| data.parse::<i32>().ok()) {
//!                 Some(number) => actions.reply(&(i64::from(number) * 2).to_string()),
//!                 None => actions.fail(r#""not a number""#),
//!             }
//!         }
//!         None
//!     }
//! }
//!
//! // A test needs no server.
//! let mut actions = Actions::default();
//! Doubler.service(&Service::new("a session", "/service/double", "21"), &mut actions);
//! assert_eq!(actions.as_slice().len(), 1);
//! ```
//!
//! # The data directory
//!
//! Without [`Settings::data`], histories and sessions are in memory only. With it, histories are in files of that directory and survive
//! every end of the process; sessions survive a clean stop. [`Settings::history_commit`] decides when a publication counts as stored:
//! when the system has it, or when it is on disk. Only one server at a time can use the directory. [`Server::check`] checks before a
//! start if a server could use it.
//!
//! # Stopping
//!
//! [`Handle::drain`] ends a server in order: clients learn when to come back, connections close, sessions are saved to the data
//! directory. It takes [`Settings::drain_timeout_ms`] at most. [`Running::join`] waits for the end. Dropping a [`Running`] stops nothing:
//! the threads go on without it. A program that replaces itself passes its listening socket on: [`Handle::stop_accepting`],
//! [`Running::listener`], [`Server::listener`].
//!
//! # Metrics and logs
//!
//! `/metrics` answers in the OpenMetrics text format, to clients on the same machine and to those with an [`ApiKey`] that has the scope
//! [`Scope::Metrics`]. Each name begins with `encke_`, and each metric has a line of help. `/healthz` answers while the process lives, `/readyz` while it takes
//! new clients. [`Handle::add_metrics`] adds those of the program. Logs are events of the crate `tracing`; the library prints nothing.

mod api_keys;
mod asset;
mod data;
mod entropy;
mod error;
mod handle;
mod http;
mod idempotency;
mod local;
mod metric;
mod net;
mod server;
mod sessions_file;
mod settings;
mod threads;

pub use api_keys::{ApiKey, ApiKeys, ApiKeysError, Scope};
pub use asset::Asset;
pub use encke_core::{
    Action, Actions, Answer, Application, Caller, ChannelRule, Decision, EndReason, Handshake, Head, HistoryCommit,
    HistoryTerms, Identity, NoApplication, PatternError, Patterns, Pending, Publishing, Refusal, Service,
    SessionLimits, Settings, SlowConsumer, Subscribing, TransportName, Verdict,
};
pub use error::{PublishError, StartError};
pub use handle::Handle;
pub use local::{Gap, Message, Position, PositionError, Positions, Start, SubscribeError, Subscription};
pub use metric::Metric;
pub use server::{Running, Server};
pub use settings::{SettingsError, check_settings};

/// Compiles the program of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
