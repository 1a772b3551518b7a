//! The report as data; `--json` writes exactly this, and `encke bench report` reads it.
//!
//! JSON knows no NaN and no infinity: both are written as `null` and read back as NaN, or as none.

use serde::{Deserialize, Deserializer, Serialize};

use crate::outcome::{Faults, Flow};

/// Version of the format, in the field `format`.
pub const FORMAT_VERSION: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT_VERSION`].
    pub format: u32,
    /// The scenario's name, such as `rooms`.
    pub scenario: String,
    /// The measured subject, in one sentence.
    pub title: String,
    /// The benchmark that the scenario represents, as in its `--help`.
    pub stands_for: String,
    /// The run's name beside others: `--label`, otherwise the target's address.
    pub label: String,
    /// The target's URL.
    pub target: String,
    /// The start time, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// The duration in milliseconds.
    pub took_ms: u64,
    /// Ended by Ctrl-C: the report so far.
    pub interrupted: bool,
    /// The machine it ran on.
    pub machine: Machine,
    /// The options, in the order of `--help`.
    pub settings: Vec<Setting>,
    /// The measurements, in order. A list of rates or a search has several.
    pub trials: Vec<Trial>,
    /// The trial that is the result of a search or the only one: an index into `trials`.
    pub result: Option<usize>,
    /// The scenario's own table (its CSV), such as the columns of the framework comparison.
    pub table: Option<Table>,
    /// The scenario's own output, such as that of CometD's load client; may be empty.
    pub transcript: Vec<String>,
    /// True if everything demanded holds.
    pub holds: bool,
    /// The reasons that it does not hold, one sentence each.
    pub reasons: Vec<String>,
    /// The reasons that a search's result is only a lower bound, one sentence each; empty if it is exact.
    #[serde(default)]
    pub at_least: Vec<String>,
}

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system and kernel, such as `Linux 6.1.0 x86_64`.
    pub system: String,
    /// The processor's name.
    pub processor: String,
    /// The number of cores this process may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The version of encke that made the load.
    pub version: String,
}

/// A setting of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The flag without dashes.
    pub name: String,
    /// Its value as it would be given.
    pub value: String,
}

/// One measurement: one set of clients, one rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Its name, such as `5,000 clients, 20,000 messages/s`.
    pub name: String,
    /// Sessions or connections.
    pub clients: u64,
    /// Messages planned to be sent per second; none where all are sent at once.
    pub planned_per_s: Option<f64>,
    /// Deliveries that should have come.
    pub expected: u64,
    /// Its faults.
    pub faults: Faults,
    /// The messages sent in the measured window.
    pub outgoing: Flow,
    /// The messages received in the measured window.
    pub incoming: Flow,
    /// Latency from planned time to arrival; none if nothing was timed.
    pub latency: Option<Latency>,
    /// The server's resources, if its process could be watched.
    pub server: Option<Server>,
    /// Cores that the load used in the measured window.
    #[serde(deserialize_with = "null_as_nan")]
    pub load_cores: f64,
    /// The load used all of its cores, or stayed behind its plan: the server may be able to do more than was seen.
    #[serde(default)]
    pub load_is_limit: bool,
    /// Cores that other processes used, if known; the nearer to 0, the better the figures.
    pub others_cores: Option<f64>,
    /// Samples over time, about one per second.
    pub samples: Vec<Sample>,
    /// Figures of this scenario only.
    pub figures: Vec<Figure>,
    /// True if it holds: nothing lost, no backlog, latency within bounds.
    pub holds: bool,
    /// The reasons that it does not hold, one sentence each.
    pub reasons: Vec<String>,
}

/// Latency in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The number of timed messages.
    pub count: u64,
    /// Lowest.
    pub min_us: u64,
    /// Mean.
    #[serde(deserialize_with = "null_as_nan")]
    pub mean_us: f64,
    /// Half were faster.
    pub p50_us: u64,
    /// 90 % were faster.
    pub p90_us: u64,
    /// 99 % were faster.
    pub p99_us: u64,
    /// 99.9 % were faster.
    pub p999_us: u64,
    /// Highest.
    pub max_us: u64,
    /// The whole curve, rising, at most a hundred points.
    #[serde(deserialize_with = "known_shares")]
    pub curve: Curve,
}

/// Points `(share of all between 0 and 1, microseconds)`.
pub type Curve = Vec<(f64, u64)>;

/// The server's resources in the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Cores, on average.
    #[serde(deserialize_with = "null_as_nan")]
    pub cores: f64,
    /// Processor time per delivery in nanoseconds.
    #[serde(deserialize_with = "null_as_nan")]
    pub ns_per_delivery: f64,
    /// Resident memory before the clients connected, in bytes, if known.
    pub rss_before_bytes: u64,
    /// Highest resident memory, in bytes.
    pub rss_peak_bytes: u64,
    /// Resident memory at the end, in bytes.
    pub rss_after_bytes: u64,
}

/// A sample during a trial. Counts are since the trial's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Milliseconds since the trial's begin.
    pub at_ms: u64,
    /// Sessions or connections that are open.
    pub connected: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// p99 of the messages since the previous sample, in microseconds; 0 if there were none.
    pub p99_us: u64,
    /// Cores that the server used since the sample before, if watched.
    pub server_cores: Option<f64>,
    /// The server's resident memory in bytes, if watched.
    pub server_rss_bytes: Option<u64>,
}

/// A figure with a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its name, such as `sessions opened per second`.
    pub name: String,
    /// The figure.
    #[serde(deserialize_with = "null_as_nan")]
    pub value: f64,
    /// Its unit, such as `ms`; may be empty.
    pub unit: String,
}

/// Rows of the scenario's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Cells, one for each column.
    pub rows: Vec<Vec<String>>,
}

impl Report {
    /// The trial that speaks for the run: its result, otherwise the one that holds and received the most per second,
    /// otherwise the last.
    pub fn headline(&self) -> Option<&Trial> {
        let rate = |trial: &&Trial| trial.incoming.messages_per_s();
        let best = || self.trials.iter().filter(|trial| trial.holds).max_by(|a, b| rate(a).total_cmp(&rate(b)));
        self.result.and_then(|at| self.trials.get(at)).or_else(best).or(self.trials.last())
    }
}

fn null_as_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

fn known_shares<'de, D: Deserializer<'de>>(from: D) -> Result<Curve, D::Error> {
    let points: Vec<(Option<f64>, u64)> = Deserialize::deserialize(from)?;
    Ok(points.into_iter().filter_map(|(share, us)| Some((share?, us))).collect())
}
