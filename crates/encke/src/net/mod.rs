//! Shards on threads: sockets, mailboxes, the clock.

pub(crate) mod accept;
pub(crate) mod confirm;
pub(crate) mod driver;
pub(crate) mod ending;
mod huge_length;
pub(crate) mod incomplete;
pub(crate) mod io;
pub(crate) mod node;
pub(crate) mod published;
pub(crate) mod socket;
pub(crate) mod store_thread;
pub(crate) mod waiting;
