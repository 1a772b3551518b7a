//! The options that concern the task of a client.

use std::time::Duration;

/// The options that concern the task of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientOptions {
    pub(crate) transport: Transport,
    pub(crate) reconnect: bool,
    pub(crate) retry_first_connect: bool,
    pub(crate) reply_timeout: Duration,
    pub(crate) subscription_messages_max: usize,
    pub(crate) slow_reader_timeout: Duration,
    pub(crate) pending_replies_max: usize,
    pub(crate) unsent_bytes_max: usize,
    pub(crate) unread_bytes_max: usize,
}

/// The transports that a client may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// A WebSocket, or long-polling if the first attempt shows that WebSockets do not get through.
    Auto,
    /// Only a WebSocket.
    WebSocket,
    /// Only HTTP requests, one of them held by the server.
    LongPolling,
}
