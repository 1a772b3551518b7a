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
    /// One sentence: what was measured.
    pub title: String,
    /// What the scenario stands for, as its `--help` says.
    pub stands_for: String,
    /// What the run is called beside others: `--label`, otherwise the target's address.
    pub label: String,
    /// The target's URL.
    pub target: String,
    /// When it began, in milliseconds since 1970.
    pub began_unix_ms: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// Ended by Ctrl-C: the report so far.
    pub interrupted: bool,
    /// Where it ran.
    pub machine: Machine,
    /// With what, in the order of `--help`.
    pub settings: Vec<Setting>,
    /// What was measured, in order; a list of rates or a search has several.
    pub trials: Vec<Trial>,
    /// The trial that is the result of a search or the only one: an index into `trials`.
    pub result: Option<usize>,
    /// The scenario's own rows (its CSV), such as the framework comparison's columns.
    pub table: Option<Table>,
    /// What the scenario prints in its own words, such as CometD's load client does; may be empty.
    pub transcript: Vec<String>,
    /// Whether everything asked for holds.
    pub holds: bool,
    /// Why not, one sentence each.
    pub reasons: Vec<String>,
    /// Why a search's result is a lower bound only, one sentence each; empty where it is the highest that there is.
    #[serde(default)]
    pub at_least: Vec<String>,
}

/// Where a run was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system and kernel, such as `Linux 6.1.0 x86_64`.
    pub system: String,
    /// The processor's name.
    pub processor: String,
    /// How many cores this process may use.
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

/// One measurement: one crowd, one rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// What sets it apart from the others, such as `5,000 clients, 20,000 messages/s`.
    pub name: String,
    /// Sessions or connections.
    pub clients: u64,
    /// Messages planned to be sent per second; none where all are sent at once.
    pub planned_per_s: Option<f64>,
    /// Deliveries that should have come.
    pub expected: u64,
    /// What should not have happened.
    pub faults: Faults,
    /// What was sent in the measured window.
    pub outgoing: Flow,
    /// What was received in the measured window.
    pub incoming: Flow,
    /// From planned time to arrival; none if nothing was timed.
    pub latency: Option<Latency>,
    /// What the server used, where its process could be watched.
    pub server: Option<Server>,
    /// Cores that the load used in the measured window.
    #[serde(deserialize_with = "null_as_nan")]
    pub load_cores: f64,
    /// The load used all of its cores, or stayed behind its plan: the server may be able to do more than was seen.
    #[serde(default)]
    pub load_is_limit: bool,
    /// Cores that others used meanwhile, where known; the nearer to 0, the better the figures.
    pub others_cores: Option<f64>,
    /// What went on over time, about one per second.
    pub samples: Vec<Sample>,
    /// Figures of this scenario only.
    pub figures: Vec<Figure>,
    /// Whether it holds: nothing lost, kept up, latency within bounds.
    pub holds: bool,
    /// Why not, one sentence each.
    pub reasons: Vec<String>,
}

/// Latency in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many were timed.
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

/// What the server used in the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Cores, on average.
    #[serde(deserialize_with = "null_as_nan")]
    pub cores: f64,
    /// Processor time per delivery in nanoseconds.
    #[serde(deserialize_with = "null_as_nan")]
    pub ns_per_delivery: f64,
    /// Resident memory before the crowd came, in bytes, if known.
    pub rss_before_bytes: u64,
    /// Highest resident memory, in bytes.
    pub rss_peak_bytes: u64,
    /// Resident memory at the end, in bytes.
    pub rss_after_bytes: u64,
}

/// One look while it ran. Counts are since the trial's begin.
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
    /// 99 % of what arrived since the sample before was faster, in microseconds; 0 if nothing did.
    pub p99_us: u64,
    /// Cores that the server used since the sample before, if watched.
    pub server_cores: Option<f64>,
    /// The server's resident memory in bytes, if watched.
    pub server_rss_bytes: Option<u64>,
}

/// A figure with a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is, such as `sessions opened per second`.
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
    /// Cells, as many a row as there are columns.
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
