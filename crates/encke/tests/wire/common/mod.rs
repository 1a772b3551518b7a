//! Shared test helpers: a server in this process, and clients on bare sockets, so that they can misbehave.

mod folder;
mod http;
pub mod http2;
mod server;
mod stream;
mod subscriber;
pub mod tls;
mod way;
mod websocket;

pub use self::folder::Folder;
pub use self::http::{Http, Poller, Response, Tcp};
pub use self::server::{TestServer, settings, wait_until};
pub use self::stream::Stream;
pub use self::subscriber::{data, is_silent, next, wait};
pub use self::way::{Way, with_way};
pub use self::websocket::{Frame, Ws, close_frame, frame, raw_frame};

use std::time::Duration;

use serde_json::Value;

/// The time after which a test gives up. It is generous: it only bounds tests that fail.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// The reply to the message with this id.
#[track_caller]
pub fn reply(messages: &[Value], id: &str) -> Value {
    let found = messages.iter().find(|message| message["id"] == id && message.get("successful").is_some());
    found.unwrap_or_else(|| panic!("no reply to {id} in {messages:?}")).clone()
}

/// The messages that are publications, in order.
pub fn publications(messages: &[Value]) -> Vec<Value> {
    messages.iter().filter(|message| message.get("successful").is_none()).cloned().collect()
}
