//! HTTP/2 of clients, without sockets.
//!
//! ```text
//! Http2Requests ─ one request after another ─▶ frame, hpack ─ the bytes
//! ```

mod frame;
mod hpack;
mod requests;

pub(crate) use requests::{Http2Requests, get};
