//! Sources that publish by themselves, as the sections `[[source]]` of a configuration describe them.
//!
//! Each source is also an example of the API: it uses nothing of the server but [`encke::Handle`].
//!
//! ```
//! use encke::{Server, Settings};
//! use encke_sources::{Sources, SourcesSettings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let running = Server::builder().settings(Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() }).start()?;
//! let file = r#"
//!     [[source]]
//!     kind = "command"
//!     command = ["echo", "42"]
//!     channel = "/answers"
//! "#;
//! let sources = encke_sources::parse(&toml::from_str::<toml::Table>(file)?["source"])?;
//! let sources = Sources::start(SourcesSettings { sources, data: None }, running.handle())?;
//!
//! sources.stop();
//! sources.join();
//! running.handle().drain();
//! running.join();
//! # Ok(())
//! # }
//! ```
//!
//! A source runs as a task on one thread that all sources share. One that fails is started again after a pause, which doubles with each
//! failure. `docs/sources.md` in the repository describes each kind.

mod back_off;
mod check;
mod command;
mod file;
mod latest;
mod lines;
mod mail;
mod metrics;
mod program;
mod publisher;
mod quotes;
mod run;
mod settings;
mod sources;
mod store;

pub use command::{CommandSettings, Restart};
pub use file::{FileSettings, FileStart};
pub use mail::{MailSettings, Protocol, Tls};
pub use quotes::QuotesSettings;
pub use settings::{Kind, SettingsError, SourceSettings, parse};
pub use sources::{Changes, Sources, SourcesSettings};

/// Compiles the program of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
