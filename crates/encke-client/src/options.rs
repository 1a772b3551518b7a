//! How a client behaves.

use std::time::Duration;

use crate::dialog::{ConnectionType, DialogOptions, Start};

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// What carries the messages.
    pub transport: Transport,
    /// How long the server may take to answer, beyond the time it holds a connect.
    pub network_delay_max: Duration,
    /// Whether a broken connection is opened again.
    pub reconnect: bool,
    /// Each failed attempt to come back lengthens the pause before the next by this; and each pause has up to this much of
    /// chance, so that the clients of a server that restarts do not come back in one wave.
    pub backoff_step: Duration,
    /// The longest that failures make the pause between two attempts.
    pub backoff_max: Duration,
    /// Whether the session acknowledges what it gets (CometD's extension `ack`): as long as the server knows it, breaks lose
    /// nothing and double nothing. Messages then come with connect replies only.
    pub acknowledge: bool,
    /// Whether the session remembers its places in the histories of its channels and goes on there after a break (extension
    /// `replay`), also in a new session; and where its subscriptions begin.
    pub replay: Option<Start>,
    /// The longest text that the server may send, in bytes. Over long-polling a response may hold a whole outbox, which is 16 MiB
    /// with Encke's defaults.
    pub message_bytes_max: usize,
    /// How many messages may wait for [`Client::next`](crate::Client::next) while another method runs, or for the reply that confirms
    /// them in a session that acknowledges. More end the session: a server's outbox should not hold more.
    pub inbox_messages_max: usize,
    /// How many bytes of [`Client::publish_soon`](crate::Client::publish_soon) may wait to be sent.
    pub unsent_bytes_max: usize,
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A WebSocket; where the first attempt shows that something on the way does not let it through, long-polling.
    Auto,
    /// A WebSocket or nothing.
    WebSocket,
    /// HTTP requests, one of them held by the server.
    LongPolling,
}

impl Default for Options {
    /// CometD's defaults where its clients have the option.
    fn default() -> Options {
        Options {
            transport: Transport::Auto,
            network_delay_max: Duration::from_secs(10),
            reconnect: true,
            backoff_step: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            acknowledge: false,
            replay: None,
            message_bytes_max: 32 * 1024 * 1024,
            inbox_messages_max: 100_000,
            unsent_bytes_max: 256 * 1024,
        }
    }
}

impl Options {
    /// What to try first.
    pub(crate) fn connection_type(&self) -> ConnectionType {
        match self.transport {
            Transport::Auto | Transport::WebSocket => ConnectionType::WebSocket,
            Transport::LongPolling => ConnectionType::LongPolling,
        }
    }

    pub(crate) fn dialog(&self) -> DialogOptions {
        DialogOptions {
            connection_type: self.connection_type(),
            network_delay_max: self.network_delay_max,
            backoff_step: self.backoff_step,
            backoff_max: self.backoff_max,
            acknowledge: self.acknowledge,
            replay: self.replay.clone(),
            batch_messages_max: self.inbox_messages_max,
            random: None,
        }
    }
}
