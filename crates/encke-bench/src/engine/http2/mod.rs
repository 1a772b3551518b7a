//! WebSockets over HTTP/2 (RFC 8441): several sessions on one connection, each on a stream.
//!
//! ```text
//! Links ─ which sessions share a connection ─▶ Http2 ─ streams, windows ─▶ frame, hpack ─ the bytes
//! ```

mod connection;
mod frame;
mod hpack;
mod links;
mod windows;

pub(super) use links::{Links, Served};
