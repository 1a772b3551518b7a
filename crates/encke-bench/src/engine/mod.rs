//! The sockets of a load, driven by one thread over epoll: opens sessions, publishes at given times, checks and times
//! what arrives.
//!
//! - [`Crowd`] is what scenarios with sessions use: Bayeux over WebSocket or HTTP, or bare lines.
//! - [`clients`] drives connections on which something else is spoken; [`Target`] says where to, [`allow_sockets`] whether
//!   the machine allows them, [`clock`] what time it is.

pub mod clients;
pub mod clock;
mod confirmed;
mod course;
mod crowd;
mod cuts;
mod files;
mod flow;
mod http;
mod http_link;
mod members;
mod opening;
pub mod poll;
mod pool;
mod publishing;
mod raw;
mod reader;
mod session;
mod shared;
pub mod socket;
pub mod stamp;
mod talk;
mod tally;
mod target;
pub(crate) mod timing;
mod trouble;
mod wakes;
mod websocket_link;

pub use crowd::{Counts, Crowd, Publication, Published};
pub use files::allow_sockets;
pub use target::Target;
