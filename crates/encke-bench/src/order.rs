//! The load's clients and the messages they send, as plain data: orders travel to worker processes and back.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The transport of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Bayeux over WebSocket.
    #[value(alias = "jakarta_websocket", alias = "jetty_websocket")]
    Websocket,
    /// Bayeux over HTTP: each client has one connection for its held connect, publications share a few others.
    #[value(alias = "long_polling")]
    LongPolling,
    /// Bayeux over server-sent events: each client has one connection for its stream, requests share a few others. Who only publishes has a
    /// WebSocket.
    Eventsource,
    /// No Bayeux: lines over WebSocket, to compare with bare servers.
    ///
    /// A client's text message holds lines. `+ROOM` joins a room and is answered by the same line. `=ROOM DATA` sends
    /// DATA to all in the room, in one text message each. `?DATA` is answered by DATA.
    Raw,
}

impl Transport {
    /// True if clients send requests.
    pub fn is_http(self) -> bool {
        matches!(self, Transport::LongPolling | Transport::Eventsource)
    }
}

/// TLS of the clients: the certificates that they accept, besides those with a root of the system, and their handshakes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct Trust {
    /// A file of PEM certificates whose certificates are accepted, too
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub ca: Option<PathBuf>,
    /// Accept every certificate, as without --ca on loopback
    #[arg(long, hide_short_help = true)]
    pub insecure: bool,
    /// TLS connections resume sessions by the tickets of earlier ones, instead of a full handshake each
    #[arg(long, hide_short_help = true)]
    pub tls_tickets: bool,
}

/// The recovery that clients use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// True if they acknowledge messages (extension `ack`).
    pub ack: bool,
    /// Their use of channel histories (extension `replay`).
    pub replay: Replay,
}

/// The use of channel histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replay {
    /// No replay.
    #[default]
    No,
    /// Live messages with their positions.
    Live,
    /// All stored messages first, then live ones.
    Stored,
}

/// Connections that break, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cuts {
    /// The average lifetime of a connection in microseconds; it varies between a half and one and a half of this.
    pub every_us: u64,
    /// The average time a client then stays offline, in microseconds; it varies likewise.
    pub offline_us: u64,
    /// Makes choices repeatable.
    pub seed: u64,
}

/// The rooms of each client. A room is a channel; its number has five digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Membership {
    /// The parent of the rooms' channels: room 7 of `/bench/a` is `/bench/a/00007`.
    pub channel: String,
    /// The number of rooms.
    pub rooms: u32,
    /// The number of rooms of each client. With 1, client n is in room n modulo `rooms`. Otherwise each client is in
    /// this many different rooms, chosen by `seed`.
    pub per_client: u32,
    /// Makes choices repeatable.
    pub seed: u64,
    /// The number in the name of the first room.
    #[serde(default)]
    pub first: u32,
}

/// All clients of a run; each worker opens its share of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientsSpec {
    /// The server's URL, `http://`, `https://`, `ws://` or `wss://`, `/cometd` where it has no path.
    pub target: String,
    /// The URL of the server that the publishers use, if it is another node of a cluster. Their transport is WebSocket over HTTP/1.1.
    #[serde(default)]
    pub publish_to: Option<String>,
    /// The certificates that they accept.
    pub trust: Trust,
    /// Their transport.
    pub transport: Transport,
    /// Their recovery.
    pub recovery: Recovery,
    /// True if their WebSockets are compressed.
    #[serde(default)]
    pub compress: bool,
    /// The most WebSockets on an HTTP/2 connection; none for WebSockets over HTTP/1.1, each on its own connection.
    #[serde(default)]
    pub streams_per_connection: Option<u32>,
    /// The number of subscribers in all workers together.
    pub clients: u32,
    /// Their subscriptions.
    pub membership: Membership,
    /// Sessions besides the subscribers that only publish, in all workers together.
    pub publishers: u32,
    /// The most sessions of a worker that open at the same time.
    pub opening_at_once: u32,
    /// The most sessions that begin per second, all workers together; none for as fast as it goes.
    pub opens_per_s: Option<f64>,
    /// True if clients reconnect after a break. Otherwise a break is a fault.
    pub reconnect: bool,
    /// True if they decline the replies to publications.
    #[serde(default)]
    pub no_reply: bool,
}

/// The senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Senders {
    /// The sessions that only publish, in turn.
    Publishers,
    /// A random subscriber for each batch.
    AnyClient,
    /// Each subscriber by itself, again and again after a random time between the two, in microseconds.
    EachClient([u64; 2]),
}

/// The recipients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipients {
    /// A random room for each message.
    AnyRoom,
    /// A service channel, which answers the sender alone. An answer counts as one delivery.
    Service(String),
}

/// The amount of messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Size {
    /// A number of batches of all workers together. The measured window ends with the last one sent, and with the last
    /// arrival.
    Batches(u64),
    /// A duration in milliseconds, after the warm-up.
    Ms(u64),
}

/// The messages to send, and their times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Planned batches per second of all workers together. None sends as fast as possible; each batch then counts as
    /// planned for the moment it is sent. Unused for [`Senders::EachClient`].
    pub batches_per_s: Option<f64>,
    /// Publications in a batch.
    pub batch_size: u32,
    /// The senders.
    pub senders: Senders,
    /// The recipients.
    pub recipients: Recipients,
    /// Length of each publication's data, in bytes: at least [`crate::engine::stamp::DATA_BYTES_MIN`].
    pub data_bytes: u32,
    /// Makes choices repeatable.
    pub seed: u64,
}

/// One measurement with open clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The messages to send.
    pub traffic: Traffic,
    /// Messages of this time count for loss, doubling and order, but not for rates and latency.
    pub warm_up_ms: u64,
    /// The amount of messages.
    pub size: Size,
    /// Time without a delivery after which the missing ones count as lost.
    pub drain_timeout_ms: u64,
    /// A delivery that takes longer than this is counted as late.
    pub late_after_us: u64,
    /// A search ends a trial early once a latency exceeds this.
    pub give_up_us: Option<u64>,
    /// Subscribers' connections break while it is sent.
    pub cuts: Option<Cuts>,
}

#[cfg(test)]
impl Order {
    /// Single messages to any room, as unit tests need them.
    pub(crate) fn sample(senders: Senders, batches_per_s: Option<f64>, size: Size) -> Order {
        let traffic =
            Traffic { batches_per_s, batch_size: 1, senders, recipients: Recipients::AnyRoom, data_bytes: 50, seed: 1 };
        Order { traffic, warm_up_ms: 0, size, drain_timeout_ms: 1, late_after_us: 1000, give_up_us: None, cuts: None }
    }
}
