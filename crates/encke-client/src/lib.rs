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
mod endpoint;
mod error;
mod message;
mod socket;

pub use client::{Client, Options};
pub use error::Error;
pub use message::Message;
pub use serde_json::value::RawValue;
