//! The I/O of one shard: its sockets, its mailbox, its clock, and the thread that stores histories.

pub(crate) mod confirm;
pub(crate) mod counted;
mod futures;
pub(crate) mod holds;
mod huge_length;
pub(crate) mod incomplete;
pub(crate) mod io;
pub(crate) mod listing;
pub(crate) mod node;
pub(crate) mod outcomes;
pub(crate) mod published;
pub(crate) mod requests;
pub(crate) mod socket;
pub(crate) mod store_thread;
mod two_lengths;
pub(crate) mod waiting;
