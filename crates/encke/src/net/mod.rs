//! The I/O of one shard: its sockets, its mailbox, its clock, and the thread that stores histories.

pub(crate) mod api_state;
pub(crate) mod arrival;
pub(crate) mod clock;
pub(crate) mod confirm;
pub(crate) mod connections;
pub(crate) mod exchanges;
pub(crate) mod handshake;
pub(crate) mod health;
mod incomplete;
pub(crate) mod io;
pub(crate) mod listing;
pub(crate) mod mailboxes;
pub(crate) mod node;
mod open_sockets;
pub(crate) mod outcomes;
pub(crate) mod published;
mod queues;
pub(crate) mod requests;
pub(crate) mod server_metrics;
pub(crate) mod server_shared;
pub(crate) mod socket;
pub(crate) mod store_thread;
pub(crate) mod thread_message;
mod two_lengths;
mod waiting;
pub(crate) mod watched;
mod young;
