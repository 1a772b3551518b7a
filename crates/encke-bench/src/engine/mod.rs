//! The sockets of a load, driven by one thread over epoll. It opens sessions, publishes at planned times, and checks and
//! times each delivery. It knows the order and its outcome as data, but neither the trial nor the report they belong to.
//!
//! - [`Clients`]: sessions that speak Bayeux over WebSocket (HTTP/1.1 or HTTP/2), HTTP or server-sent events, or bare lines.
//! - [`connections`]: connections that speak another protocol.
//! - [`Target`]: the server's address. [`allow_sockets`]: the limit of open files. [`clock`]: the time.

mod begun;
mod breaker;
mod clients;
pub mod clock;
mod confirmations;
mod confirmed;
pub mod connections;
mod cuts;
mod error;
mod events;
mod events_link;
mod files;
mod flow;
pub(crate) mod http;
pub(crate) mod http2;
mod http_link;
mod members;
mod opening;
pub mod poll;
mod pool;
mod protocol;
mod published;
mod publishing;
mod raw;
mod reader;
mod session;
mod shared;
pub mod socket;
pub mod stamp;
mod stream_link;
mod streams;
mod tally;
mod target;

mod timers;
pub(crate) mod timing;
mod tls;
mod tls_tickets;
mod websocket;
mod websocket_link;

pub use clients::{Clients, Counts, PlannedMessage};
pub use files::allow_sockets;
pub use published::Published;
pub use target::Target;
