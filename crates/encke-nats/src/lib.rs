//! NATS as the engine of a cluster of Encke nodes.
//!
//! ```no_run
//! use encke::{ClusterSettings, Server};
//! use encke_nats::{Nats, NatsSettings};
//!
//! let cluster = ClusterSettings::default();
//! let nats = NatsSettings { servers: vec!["nats://127.0.0.1:4222".into()], ..NatsSettings::default() };
//! let engine = Nats::new(nats, &cluster.name)?;
//! let running = Server::builder().cluster(cluster, engine).start()?;
//! running.join();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arrivals;
mod engine;
mod journals;
mod key_commands;
mod keys;
mod requests;
mod settings;
mod watches;

pub use engine::Nats;
pub use settings::{NatsSettings, NatsSettingsError};
