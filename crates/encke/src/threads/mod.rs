//! Threads that run shards: accepting connections, the loop of a shard, the end of a server. They use `http` and `net`,
//! which do not know them.

pub(crate) mod accept;
pub(crate) mod application;
pub(crate) mod cluster;
pub(crate) mod commands;
pub(crate) mod driver;
pub(crate) mod ending;
mod histories;
pub(crate) mod leases;
pub(crate) mod listeners;
pub(crate) mod members;
mod reclaim;
mod relays;
pub(crate) mod store;
#[cfg(test)]
mod store_tests;
mod upkeep;
pub(crate) mod users;
