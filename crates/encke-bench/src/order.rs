//! What the load's clients are and what they send, as plain data: orders travel to worker processes and back.

use serde::{Deserialize, Serialize};

/// How clients are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Bayeux over WebSocket.
    #[value(alias = "jakarta_websocket", alias = "jetty_websocket")]
    Websocket,
    /// Bayeux over HTTP: each client has one connection for its held connect, publications share a few others.
    #[value(alias = "long_polling")]
    LongPolling,
    /// No Bayeux: lines over WebSocket, for bare servers to compare with.
    ///
    /// A client's text message holds lines: `+ROOM` joins a room and is answered with the same line; `=ROOM DATA`
    /// sends DATA to all in the room, one text message each; `?DATA` is answered with DATA.
    Raw,
}

/// What clients do against loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Whether they acknowledge what they get (extension `ack`).
    pub ack: bool,
    /// What they want of the histories of their channels (extension `replay`).
    pub replay: Replay,
}

/// What clients want of histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replay {
    /// Nothing.
    #[default]
    No,
    /// To know where messages stand that come from now on.
    Live,
    /// All that is kept, first.
    Stored,
}

/// Connections that break, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cuts {
    /// How long a connection lives on average, in microseconds; between a half of it and one and a half.
    pub every_us: u64,
    /// How long its client then stays away, in microseconds; likewise.
    pub offline_us: u64,
    /// Makes choices repeatable.
    pub seed: u64,
}

/// Who is in which room. A room is a channel; its number is written with five digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Membership {
    /// Where rooms are: room 7 of `/bench/a` is `/bench/a/00007`.
    pub channel: String,
    /// How many rooms there are.
    pub rooms: u32,
    /// In how many of them each client is. With 1 and as many rooms as clients or more, client n is in room n; with fewer
    /// rooms, in room n modulo rooms. Otherwise each client is in so many different rooms, chosen by `seed`.
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
    /// The server's URL, `http://` or `ws://`, `/cometd` where it has no path.
    pub target: String,
    /// How clients are carried.
    pub transport: Transport,
    /// What they do against loss.
    pub recovery: Recovery,
    /// How many subscribers there are, in all workers together.
    pub clients: u32,
    /// What they subscribe to.
    pub membership: Membership,
    /// Sessions besides the subscribers that only publish, in all workers together.
    pub publishers: u32,
    /// How many may be on their way to being open at a time, per worker.
    pub opening_at_once: u32,
    /// The most sessions that begin per second, all workers together; none for as fast as it goes.
    pub opens_per_s: Option<f64>,
    /// Whether clients whose connection breaks come back by themselves. Otherwise a break is a fault.
    pub reconnect: bool,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum From {
    /// The sessions that only publish, in turn.
    Publishers,
    /// Any subscriber by chance.
    AnyClient,
    /// Each subscriber by itself, again and again after a random time between the two, in microseconds.
    EachClient([u64; 2]),
}

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum To {
    /// Each message to any room by chance.
    AnyRoom,
    /// A service channel, whose answer comes to the sender alone; counted as one delivery each.
    Service(String),
}

/// How much in all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Size {
    /// So many batches, of all workers together; the measured window ends with the last that is sent, and the last that arrives.
    Batches(u64),
    /// So long, in milliseconds, after the warm-up.
    Ms(u64),
}

/// What is sent, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Planned batches per second, of all workers together; none for as fast as they can be sent, where what is sent counts
    /// as planned for that moment. Has no meaning for [`From::EachClient`].
    pub batches_per_s: Option<f64>,
    /// Publications in a batch.
    pub batch_size: u32,
    /// Who sends.
    pub from: From,
    /// Where to.
    pub to: To,
    /// Length of each publication's data, in bytes: at least [`crate::engine::stamp::DATA_BYTES_MIN`].
    pub data_bytes: u32,
    /// Makes choices repeatable.
    pub seed: u64,
}

/// One measurement with an open crowd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// What is sent.
    pub traffic: Traffic,
    /// What is sent in this time counts for loss, doubling and order, but not for rates and latency.
    pub warm_up_ms: u64,
    /// How much.
    pub size: Size,
    /// How long deliveries may stay away before what is missing counts as lost.
    pub drain_timeout_ms: u64,
    /// A delivery that takes longer than this is counted as late.
    pub late_after_us: u64,
    /// When a latency over this is seen, a search gives up the trial early.
    pub give_up_us: Option<u64>,
    /// Subscribers' connections break while it is sent.
    pub cuts: Option<Cuts>,
}

#[cfg(test)]
impl Order {
    /// Single messages to any room, as unit tests need them.
    pub(crate) fn sample(from: From, batches_per_s: Option<f64>, size: Size) -> Order {
        let traffic = Traffic { batches_per_s, batch_size: 1, from, to: To::AnyRoom, data_bytes: 50, seed: 1 };
        Order { traffic, warm_up_ms: 0, size, drain_timeout_ms: 1, late_after_us: 1000, give_up_us: None, cuts: None }
    }
}
