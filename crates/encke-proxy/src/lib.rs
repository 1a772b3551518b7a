//! Encke as a reverse proxy: requests that are not Encke's go to a backend, and its answers may be held.
//!
//! ```text
//!   client ── GET /orders/wait ──▶ proxy ── GET ──▶ backend
//!                                    │ ◀── 200, Grip-Hold: response, Grip-Channel: orders
//!                                    │ holds the response; the backend is done with the request
//!   client ◀── the message ──────── proxy ◀── a publication on /orders, or the time is over
//! ```

mod body;
mod headers;
mod instruct;
mod item;
mod path;
mod proxy;
mod room;
mod settings;

pub use body::ProxyBody;
pub use proxy::Proxy;
pub use settings::{ProxyError, ProxySettings};
