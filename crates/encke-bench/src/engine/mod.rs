//! The sockets of a load, driven by one thread over epoll: opens sessions, publishes at given times, checks and times
//! what arrives.
//!
//! - [`Crowd`] is what scenarios with sessions use: Bayeux over WebSocket or HTTP, or bare lines.
//! - [`clients`] drives connections on which something else is spoken; [`Target`] says where to, [`allow_sockets`] whether
//!   the machine allows them, [`clock`] what time it is.

pub mod clients;
pub mod clock;
mod crowd;
mod files;
mod flow;
mod members;
pub mod poll;
pub mod socket;
pub mod stamp;
mod reader;
mod tally;
mod target;

pub use crowd::{Counts, Crowd, Publication, Published};
pub use files::allow_sockets;
pub use target::Target;
