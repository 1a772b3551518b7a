//! MongoDB as the store of the sessions of a cluster of Encke nodes: a document a session.
//!
//! ```no_run
//! # #[cfg(feature = "driver")] {
//! use encke::{ClusterSettings, Server, SessionStoreSettings};
//! use encke_mongodb::{MongoSettings, MongoStore};
//! use encke_nats::{Nats, NatsSettings};
//!
//! let cluster = ClusterSettings::default();
//! let nats = NatsSettings { servers: vec!["nats://127.0.0.1:4222".into()], ..NatsSettings::default() };
//! let mongo = MongoSettings { url: Some("mongodb://127.0.0.1:27017".into()), ..MongoSettings::default() };
//! let store = MongoStore::new(mongo, &cluster.name)?;
//! let engine = Nats::new(nats, &cluster.name)?;
//! let server = Server::builder().cluster(cluster, engine).session_store(SessionStoreSettings::default(), store);
//! server.start()?.join();
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The feature `driver`, which is on by default, has the driver of MongoDB. Without it the crate has the settings only.

#[cfg(feature = "driver")]
mod document;
mod settings;
#[cfg(feature = "driver")]
mod store;

pub use settings::{MongoSettings, MongoSettingsError};
#[cfg(feature = "driver")]
pub use store::MongoStore;
