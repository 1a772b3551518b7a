//! A server as a node of a cluster: its settings, the engine that carries publications between nodes, and the mailbox of the
//! cluster's thread. The thread itself is in `threads`; `encke-cluster` decides what it does.

pub(crate) mod command_metrics;
pub(crate) mod commands;
pub(crate) mod engine;
pub(crate) mod history_metrics;
pub(crate) mod link;
pub(crate) mod relay;
pub(crate) mod session_metrics;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod store_numbers;
