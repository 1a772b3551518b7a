//! A Bayeux client for programs, for any server that speaks Bayeux 1.0: Encke, CometD, Faye.
//!
//! ```no_run
//! use encke_client::{Client, Error, RawValue};
//!
//! # async fn example() -> Result<(), Error> {
//! let mut client = Client::connect("http://127.0.0.1:8080").await?;
//! client.subscribe("/chat/demo").await?;
//! let greeting = RawValue::from_string(r#"{"user":"bot","chat":"hello"}"#.into()).expect("valid JSON");
//! client.publish("/chat/demo", &greeting).await?;
//! let message = client.next().await?;
//! println!("{} {}", message.channel, message.data);
//! client.disconnect().await
//! # }
//! ```
//!
//! # Who drives it
//!
//! One [`Client`] is one session. It has no task of its own: its methods do the reading, the writing and the heartbeat, so
//! whoever holds it must keep calling [`Client::next`], and thousands fit into one thread (`examples/crowd.rs`: 15,000, at
//! some 3 KiB each). All of them may be dropped half-way, so two things at once are a `select!`:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use encke_client::{Client, Error, RawValue};
//! # async fn example(mut client: Client, beat: &RawValue) -> Result<(), Error> {
//! let mut every_second = tokio::time::interval(Duration::from_secs(1));
//! loop {
//!     tokio::select! {
//!         message = client.next() => println!("{}", message?.data),
//!         _ = every_second.tick() => client.publish_soon("/beat", beat).await?,
//!     }
//! }
//! # }
//! ```
//!
//! # Publishing much
//!
//! [`Client::publish`] waits for the server's word each time. [`Client::publish_soon`] does not, and tells later what was
//! refused; [`Client::batch`] sends several messages in one frame or request:
//!
//! ```no_run
//! # use encke_client::{Client, Error, RawValue};
//! # async fn example(mut client: Client, price: &RawValue) -> Result<(), Error> {
//! client.batch(|batch| {
//!     batch.subscribe("/stock/*");
//!     batch.publish("/stock/GOOG", price);
//! }).await?;
//! for _ in 0..1000 {
//!     client.publish_soon("/stock/GOOG", price).await?;
//! }
//! client.flush().await
//! # }
//! ```
//!
//! # Transports
//!
//! By default a WebSocket, and where something on the way does not let it through, long-polling ([`Options::transport`]): two
//! connections then, one for the request that the server holds, one for everything else, which is closed after 5 s
//! without use. Cookies go back to the server that set them. There is no TLS yet.
//!
//! # Breaks
//!
//! When the connection breaks, the client comes back by itself, waiting longer after each failure and a little by chance: with
//! the same session if the server still knows it, otherwise with a new one and the same subscriptions. A publication that
//! was on its way is told as [`Error::Lost`]: it may have arrived or not, and is not sent again. A subscription is asked for again
//! until the server has answered.
//!
//! # Losing nothing
//!
//! By default a break may lose what was on its way. [`Options::acknowledge`] keeps a session whole: the server sends again what
//! was not confirmed. [`Options::replay`] goes on where the last message stood, even when the server has forgotten the session,
//! as far as the channel has a history; each message then tells its [place](Message::place). What is gone in spite of both comes as
//! a [`Heard::Gap`]:
//!
//! ```no_run
//! use encke_client::dialog::Start;
//! use encke_client::{Client, Error, Heard, Options};
//!
//! # async fn example() -> Result<(), Error> {
//! let options = Options { acknowledge: true, replay: Some(Start::Kept), ..Options::default() };
//! let mut client = Client::connect_with("http://127.0.0.1:8080", options).await?;
//! client.subscribe("/stock/GOOG").await?;
//! loop {
//!     match client.listen().await? {
//!         Heard::Message(message) => println!("{} at {:?}", message.data, message.place),
//!         Heard::Gap(gap) => println!("gone: {:?} of {}", gap.lost, gap.channel),
//!     }
//! }
//! # }
//! ```
//!
//! Of a pattern, channels that the session has heard before go on at their places, up to 999 of all patterns together. All others
//! begin with what the server keeps, if the subscription did ([`Start::Kept`](dialog::Start::Kept)). If it began with what is new, they
//! do so again after a break, and the pattern is told as a gap, for nobody knows what came on them meanwhile; and so it is where channels
//! were heard that have no place here.
//!
//! Over long-polling, without acknowledgement, a server that sends messages with responses to other requests than connects may have
//! newer ones overtake older ones on the other connection. Those are shown when they come, but a break in between loses them. Encke does
//! not do so with sessions that replay.
//!
//! # Extensions
//!
//! An [`Extension`] sees all messages and writes into the `ext` of those that go out: logins and the like.
//!
//! ```no_run
//! use encke_client::{Client, Error, Extension, Options, Outgoing, Value};
//!
//! struct Login(String);
//!
//! impl Extension for Login {
//!     fn outgoing(&mut self, message: &mut Outgoing<'_>) {
//!         if message.channel == "/meta/handshake" {
//!             message.ext.insert("token".into(), Value::from(self.0.as_str()));
//!         }
//!     }
//! }
//!
//! # async fn example() -> Result<Client, Error> {
//! let login = Box::new(Login("secret".into()));
//! Client::connect_extended("http://127.0.0.1:8080", Options::default(), vec![login]).await
//! # }
//! ```
//!
//! # Without I/O
//!
//! What a client says and hears is decided by a [`dialog::Dialog`], which knows neither sockets nor clocks. Programs with
//! sockets of their own may use it directly.

mod carrier;
mod client;
mod cookies;
pub mod dialog;
mod drive;
mod endpoint;
mod error;
mod extension;
mod http;
mod message;
mod options;
mod polling;
mod socket;

pub use client::{Batch, Client, Heard};
pub use endpoint::Endpoint;
pub use error::Error;
pub use extension::{Extension, Outgoing, Verdict};
pub use message::{Incoming, Message};
pub use options::{Options, Transport};
pub use serde_json::Value;
pub use serde_json::value::RawValue;

/// Random bytes for keys and masks. Predictable ones would only matter to a proxy that a hostile server tricks (RFC 6455
/// §10.3), so a kernel without randomness is no reason to stop.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let _ = getrandom::fill(&mut bytes);
    bytes
}
