//! Encke as a library: a Bayeux server that pushes messages to web pages and programs the moment they happen.
//!
//! ```
//! use encke::{Server, Settings};
//!
//! // Port 0 takes a free port; the defaults listen on loopback.
//! let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
//! let running = Server::new(settings).start()?;
//! let handle = running.handle();
//! println!("CometD clients connect to http://{}/cometd", running.address());
//!
//! handle.publish("/stock/GOOG", r#"{"price":42}"#)?;
//!
//! handle.drain();
//! running.join();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A server consists of shards. Each shard has its own thread, sockets, sessions and subscriptions. An application
//! decides, serves or filters messages through an [`Application`].

mod asset;
mod data;
mod entropy;
mod error;
mod http;
mod net;
mod server;
mod sessions_file;
mod settings;
mod threads;

pub use asset::Asset;
pub use encke_core::{
    Action, Actions, Application, ChannelRule, Decision, HistoryCommit, HistoryTerms, NoApplication, Publishing,
    Service, Settings, SlowConsumer, TransportName, Verdict,
};
pub use error::{PublishError, StartError};
pub use server::{Handle, Running, Server};
pub use settings::{SettingsError, check_settings};

/// Compiles the program of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
