//! A Bayeux client for programs.
//!
//! One [`Client`] is one session over one WebSocket. It has no task of its own: its methods do the reading, the writing and
//! the heartbeat, so whoever holds it must keep calling [`Client::next`], and thousands fit into one thread.
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
//! When the connection breaks, [`Client::next`] comes back by itself, waiting longer after each failure: with the same
//! session if the server still knows it, otherwise with a new one and the same subscriptions.

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

pub use client::{Batch, Client};
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
