//! Encke as a library: a Bayeux server that pushes messages to web pages and programs the moment they happen.

pub mod application;
pub mod settings;
pub mod shard;

pub use application::{Actions, Application, Decision, NoApplication, Publishing, Service, Verdict};
pub use settings::{ChannelRule, Settings, SettingsError, SlowConsumer, TransportName};
