//! HTTP/2 of clients: WebSockets (RFC 8441), several sessions on one connection, each on a stream; and plain requests.
//!
//! ```text
//! Links ─ which sessions share a connection ─▶ Http2 ─ streams, windows ─▶ frame, hpack ─ the bytes
//!                                     Http2Requests ─ one after another ─▶
//! ```

mod connection;
mod frame;
mod hpack;
mod links;
mod requests;
mod windows;

pub(super) use links::{Links, Served};
pub(crate) use requests::{Http2Requests, get};
