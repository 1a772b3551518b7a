//! The Bayeux 1.0 protocol without I/O.
//!
//! Clients send batches of messages as JSON text; the server answers each message with a reply and delivers publications
//! to subscribers. This crate reads and writes both directions, for servers, clients and load generators alike. It opens no
//! socket, reads no clock, and builds no tree of JSON values: [`parse_batch`] checks the whole text and returns slices of it
//! ([`RawJson`]), and [`Publication`] and [`Reply`] splice such slices into the output. So `data` stays exact to the last byte, at
//! little cost.
//!
//! The modules, in the order in which a message passes them:
//!
//! - [`json`]: the scanner that checks and slices, raw JSON as a type, escapes;
//! - [`batch`]: a text as a batch of messages, in either direction;
//! - [`message`]: the messages of a client, their faults, ids;
//! - [`channel`]: channel names, patterns, and matching;
//! - [`session`], [`advice`]: the moment at which a connect is answered, and the client's next step;
//! - [`encode`]: publications and replies, as a server writes them;
//! - [`server_message`]: the same, as a client reads them;
//! - [`ext`]: the wire formats of extensions;
//! - [`error`]: every error of the server; [`limits`]: every bound on its input.
//!
//! A whole example: a client publishes, the publisher gets a reply, the subscribers get the publication.
//!
//! ```
//! use bayeux::{BayeuxError, ChannelKind, ChannelName, Limits, Publication, Reply, parse_batch};
//!
//! let limits = Limits::default();
//! let text = r#"[{"channel":"/news","clientId":"c1","id":1,"data":{"big":12345678901234567890}},
//!                {"channel":"no slash","id":"2"}]"#;
//! let mut replies = Vec::new();
//! let mut delivered = Vec::new();
//!
//! for message in parse_batch(text, &limits)? {
//!     let junk = message.channel.as_deref().unwrap_or_default();
//!     let mut reply = Reply { id: message.id.as_ref(), successful: Some(true), ..Reply::new(junk) };
//!     match ChannelName::parse(junk, &limits) {
//!         _ if message.fault.is_some() => reply.error = message.fault.map(|fault| fault.error()),
//!         Err(error) => reply.error = Some(error.error()),
//!         Ok(channel) if channel.kind() == ChannelKind::Broadcast => {
//!             Publication::from_message(channel, &message, true).write(&mut delivered);
//!         }
//!         Ok(_) => reply.error = Some(BayeuxError::SessionUnknown.as_str()),
//!     }
//!     reply.successful = Some(reply.error.is_none());
//!     reply.write(&mut replies);
//! }
//!
//! assert_eq!(delivered, br#"{"channel":"/news","data":{"big":12345678901234567890}}"#);
//! assert_eq!(
//!     String::from_utf8_lossy(&replies),
//!     concat!(
//!         r#"{"channel":"/news","id":"1","successful":true}"#,
//!         r#"{"channel":"no slash","id":"2","successful":false,"error":"405::channel_invalid"}"#,
//!     )
//! );
//! # Ok::<(), bayeux::BatchError>(())
//! ```

pub mod advice;
pub mod batch;
pub mod channel;
pub mod encode;
pub mod error;
pub mod ext;
pub mod json;
pub mod limits;
pub mod message;
pub mod server_message;
pub mod session;

pub use advice::{Advice, ClientAdvice, Reconnect};
pub use batch::BatchError;
pub use channel::{ChannelError, ChannelKind, ChannelName, SubscriptionError, subscription_names};
pub use encode::{Publication, Reply};
pub use error::{BayeuxError, ErrorField};
pub use ext::Position;
pub use json::{RawJson, escape_into};
pub use limits::Limits;
pub use message::{Id, Message, MessageError, parse_batch};
pub use server_message::{ServerMessage, parse_server_batch};
pub use session::{Session, Terms};

/// The program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
