//! What a crowd is, what it is to send, and what came of it: plain data, so that it can go to worker processes and back.

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
    Kept,
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
pub struct CrowdSpec {
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
    pub patience_ms: u64,
    /// A delivery that takes longer than this is counted as late.
    pub late_after_us: u64,
    /// When a latency over this is seen, a search gives up the trial early.
    pub give_up_us: Option<u64>,
    /// Subscribers' connections break while it is sent.
    pub cuts: Option<Cuts>,
}

/// What came of an order, in one worker or in all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Deliveries that should have come.
    pub expected: u64,
    /// What should not have happened.
    pub faults: crate::report::Faults,
    /// Everything sent in the measured window.
    pub outgoing: crate::report::Flow,
    /// Everything received in the measured window.
    pub incoming: crate::report::Flow,
    /// Everything sent, warm-up included.
    pub sent: u64,
    /// Everything received, warm-up and stragglers included.
    pub received: u64,
    /// Latencies of deliveries in the measured window: `(microseconds, how many)`, rising.
    pub latencies_us: Vec<(u64, u64)>,
    /// The highest latency, in microseconds.
    pub latency_max_us: u64,
    /// From the first planned time to the last arrival, in milliseconds.
    pub elapsed_ms: u64,
    /// What the generator itself used of processors, in the measured window.
    pub usage: Usage,
    /// What breaks did to sessions.
    pub breaks: Breaks,
    /// Publications that could not be handed to a session any more; they are not expected.
    pub refused: u64,
    /// Publications that the server refused, whether it delivered them or not.
    #[serde(default)]
    pub denied: u64,
    /// The first thing that went wrong with a session.
    pub first_trouble: Option<String>,
    /// Whether it was ended before its time, and why.
    pub cut_short: Option<CutShort>,
}

/// What became of sessions whose connections broke.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaks {
    /// Connections that were cut.
    pub cut: u64,
    /// Sessions that came back as they were.
    pub resumed: u64,
    /// Sessions that had to shake hands anew.
    pub renewed: u64,
    /// Gaps that the server told of.
    pub gaps: u64,
    /// Messages that came again, which clients noticed by their places or batches, and left out.
    #[serde(default)]
    pub again: u64,
}

/// Why a trial ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CutShort {
    /// Somebody wanted it.
    Asked,
    /// A latency over [`Order::give_up_us`]; what was still under way does not count as lost.
    Hopeless,
}

/// Processor time of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Length of the window in seconds.
    pub window_s: f64,
    /// Processor time used in it, in seconds.
    pub cpu_s: f64,
}

#[cfg(test)]
impl Order {
    /// Single messages to any room, as unit tests need them.
    pub(super) fn sample(from: From, batches_per_s: Option<f64>, size: Size) -> Order {
        let traffic = Traffic { batches_per_s, batch_size: 1, from, to: To::AnyRoom, data_bytes: 50, seed: 1 };
        Order { traffic, warm_up_ms: 0, size, patience_ms: 1, late_after_us: 1000, give_up_us: None, cuts: None }
    }
}
