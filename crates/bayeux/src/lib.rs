//! The Bayeux 1.0 protocol without I/O.
//!
//! Clients send batches of messages as JSON text; the server answers each message with a reply and delivers publications
//! to subscribers. This crate reads the one and writes the other. It opens no socket, asks no clock, and builds no tree of
//! JSON values: [`parse_batch`] checks the whole text and hands out slices of it, and [`Publication`] and [`Reply`] splice
//! such slices into what is sent. So `data` passes through exact to the last byte, and cheaply.
//!
//! The modules, in the way a message goes:
//!
//! - [`json`]: the scanner that checks and slices;
//! - [`message`]: batches and messages, their faults, ids, a client's advice;
//! - [`channel`]: channel names, patterns, and which matches which;
//! - [`session`], [`advice`]: when a connect is answered or held, and what the client is told to do next;
//! - [`encode`]: publications and replies;
//! - [`ext`]: the wire formats of extensions;
//! - [`error`]: every error the server utters; [`limits`]: every bound on what it takes.
//!
//! What it is about, whole: a client publishes, the publisher gets a reply, the subscribers get the publication.
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
pub mod channel;
pub mod encode;
pub mod error;
pub mod ext;
pub mod json;
pub mod limits;
pub mod message;
pub mod session;

pub use channel::{ChannelError, ChannelKind, ChannelName, SubscriptionError, subscription_names};
pub use encode::{Publication, Reply, escape_into};
pub use error::BayeuxError;
pub use limits::Limits;
pub use message::{BatchError, ClientAdvice, Id, Message, MessageError, parse_batch};
pub use session::{Session, Terms};

/// The program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
