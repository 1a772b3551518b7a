//! A Bayeux client for programs, for any server that speaks Bayeux 1.0: Encke, CometD, Faye.
//!
//! A whole program: it subscribes, publishes typed data, and prints what it receives.
//!
//! ```no_run
//! use encke_client::{Client, Error};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Debug, Serialize, Deserialize)]
//! struct Price {
//!     symbol: String,
//!     cents: u64,
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Error> {
//!     let client = Client::connect("http://127.0.0.1:8080").await?;
//!     let mut prices = client.subscribe("/stock/*").await?;
//!     client.publish("/stock/GOOG", &Price { symbol: "GOOG".into(), cents: 19_900 }).await?;
//!     while let Some(item) = prices.next().await {
//!         match item {
//!             Ok(message) => println!("{} {:?}", message.channel, message.json::<Price>()),
//!             Err(gap) => eprintln!("{gap}"),
//!         }
//!     }
//!     client.closed().await
//! }
//! ```
//!
//! A [`Client`] is a handle: clones are cheap, and all of them share one session, which a task on the caller's tokio runtime keeps
//! open. `examples/terminal_chat.rs` is a longer program, `examples/many_sessions.rs` opens thousands of sessions in one thread.
//!
//! # Options
//!
//! [`Client::builder`] has all of them: transports, time-outs, limits, headers, acknowledgement, replay, extensions.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use encke_client::{Client, Error, Transport};
//! # async fn example() -> Result<Client, Error> {
//! Client::builder()
//!     .transport(Transport::WebSocket)
//!     .header("authorization", "Bearer 1234")
//!     .reply_timeout(Duration::from_secs(5))
//!     .connect("http://127.0.0.1:8080")
//!     .await
//! # }
//! ```
//!
//! By default the transport is a WebSocket. If a proxy or the server does not let it through, the client uses long-polling over two
//! connections: one for the request that the server holds, and one for everything else, which is closed after 5 s without use. The
//! client returns cookies to the server that set them. With `https://` or `wss://` it speaks TLS ([`ClientBuilder::ca_file`],
//! [`ClientBuilder::tls_identity`]).
//!
//! # Subscribing
//!
//! [`Client::read_history`] reads a page of a channel's history, without a subscription.
//! [`Client::subscribe`] returns a [`Subscription`], which has its own buffer. It is a [`Stream`](futures_core::Stream), and has
//! [`Subscription::next`] for programs without a crate for streams. Each item is a [`Message`], or a [`Gap`] at a point where messages
//! are missing. [`Client::subscribe_all`] puts several channels into one stream, in the order in which their messages come. Dropping a
//! subscription ends it.
//!
//! A buffer is bounded, in messages ([`ClientBuilder::subscription_messages_max`]) and in bytes
//! ([`ClientBuilder::unread_bytes_max`], which all subscriptions share). While it is full the client reads nothing, so that the server
//! holds further messages. After [`ClientBuilder::slow_reader_timeout`] it discards those of the slow subscription, and a gap
//! in its stream reports their number. So one slow reader delays the others for that time at most, and nothing is lost silently.
//!
//! # Publishing
//!
//! [`Client::publish`] writes data as JSON by serde, and waits for the server's reply. [`Client::publish_raw`] takes JSON text.
//! [`Client::start_publish`] does not wait, so many messages can be on their way; [`Client::batch`] sends several in one frame or
//! request; [`Client::request`] waits for the answer of a service. [`Client::publish_without_reply`] is for messages whose loss does not
//! matter, such as one of many positions of a mouse.
//!
//! ```no_run
//! # use encke_client::{Client, Error, RawJson};
//! # async fn example(client: &Client) -> Result<(), Error> {
//! client.publish_raw("/stock/raw", RawJson::trusted(r#"{"n":1e400}"#)).await?;
//! client.batch().publish("/stock/GOOG", &1)?.publish("/stock/AAPL", &2)?.send().await?;
//! let answer = client.request("/service/echo", "hello").await?;
//! assert_eq!(answer.data().as_str(), r#""hello""#);
//! # Ok(())
//! # }
//! ```
//!
//! # Breaks
//!
//! When the connection breaks, the client reconnects by itself, after pauses that grow with each failure and have some random jitter.
//! It resumes the session if the server still knows it, otherwise it opens a new one with the same subscriptions. A publication that
//! was on its way fails with [`Error::ConnectionLost`]: it may have arrived or not, and is not sent again. [`Client::state`] can be
//! watched.
//!
//! With several servers ([`ClientBuilder::connect_any`]) the client tries one after the other. A program that starts before its server lets
//! the client repeat the first connect, too ([`ClientBuilder::retry_first_connect`]). With a source of tokens
//! ([`ClientBuilder::token`]) it outlives its tokens.
//!
//! # Losing no messages
//!
//! By default a break may lose messages that were on their way. With [`ClientBuilder::ack`] the server sends all messages again that
//! were not confirmed, as long as the session lives. [`ClientBuilder::replay`] resumes after the last message, even if the server has
//! forgotten the session, as far as it retains the channel's history; each message then has its [position](Message::position), and so has
//! what a publish returns ([`Published`]). If messages are missing all the same, the stream has a [`Gap`]. A program that stores positions resumes after a restart, too:
//!
//! ```no_run
//! # use encke_client::{Client, Error, Position, ReplayFrom};
//! # async fn example(stored: Option<Position>, store: impl Fn(Position)) -> Result<(), Error> {
//! let client = Client::builder().ack(true).replay(ReplayFrom::Earliest).connect("http://127.0.0.1:8080").await?;
//! let from = stored.map_or(ReplayFrom::Earliest, ReplayFrom::from);
//! let mut prices = client.subscribe_from("/stock/GOOG", from).await?;
//! while let Some(Ok(message)) = prices.next().await {
//!     message.position.into_iter().for_each(&store);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A pattern resumes at the last position of each channel from which it has received messages, for up to 999 channels of all patterns
//! together. Other channels begin with all retained messages, if the subscription did ([`ReplayFrom::Earliest`]). If it began with new
//! messages, these channels do so again after a break, and there is a gap for the pattern, because it is unknown which messages were
//! published on them meanwhile. The same applies to channels without a known position.
//!
//! Over long-polling, without acknowledgement, some servers send messages with responses to other requests than connects. Newer
//! messages may then overtake older ones on the other connection. The client delivers the older ones when they come, but a break in
//! between loses them. Encke sends messages of sessions that replay with connect responses only.
//!
//! # Extensions
//!
//! An [`Extension`] gets all messages and writes into the `ext` of outgoing ones, a login for example. See
//! [`ClientBuilder::extension`].
//!
//! # Without I/O
//!
//! The protocol is in [`session::ClientSession`], which knows neither sockets nor clocks. A program that owns its sockets
//! may use it directly.

mod buffer;
mod builder;
mod client;
mod command;
mod connection;
mod driver;
mod endpoint;
mod error;
mod extension;
mod history;
mod message;
mod options;
mod registry;
mod replies;
mod servers;
pub mod session;
mod subscription;
mod tls;
mod token;
mod unread;

pub use bayeux::{RawJson, ServerMessage};
pub use builder::ClientBuilder;
pub use client::{Client, PendingPublish, PublishBatch};
pub use command::{Connected, State};
pub use endpoint::Endpoint;
pub use error::{Error, LostReason, NotBayeux, Refusal, UrlError};
pub use extension::{Extension, Filter, Outgoing};
pub use history::{HistoryPage, HistoryQuery};
pub use message::{Gap, GapCause, Message, Position, Published, ReplayFrom};
pub use options::Transport;
pub use session::ConnectionType;
pub use subscription::Subscription;
pub use tls::Trust;

/// Compiles the programs of the README and of the page about clients.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../docs/clients.md")]
struct Documents;

/// Random bytes for keys and masks. Predictable ones would only matter to a proxy that a hostile server tricks (RFC 6455
/// §10.3), so a kernel without randomness is no reason to stop.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let _ = getrandom::fill(&mut bytes);
    bytes
}
