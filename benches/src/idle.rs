//! What a session costs in memory while nothing happens.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::dialect::{Dialect, FANOUT_CHANNEL};
use crate::load::{Client, Load};
use crate::machine::{Memory, Process};
use crate::polling::{self, Poll};
use crate::problem::Problem;
use crate::session::{self, Purpose, Session};

/// How the idle sessions are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// A WebSocket each.
    Websocket,
    /// A keep-alive connection with a held connect each.
    LongPolling,
}

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Sessions to open, one subscription each.
    #[arg(long, default_value_t = 9000)]
    pub sessions: usize,
    /// How they are connected.
    #[arg(long, value_enum, default_value = "websocket")]
    pub transport: Transport,
    /// Each session subscribes to a channel of its own instead of a common one.
    #[arg(long)]
    pub own_channels: bool,
}

/// Resident and proportional memory per session, and resident memory when all have left.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Sessions that were open.
    pub sessions: usize,
    /// Before the first, with all of them, and after the last has left.
    pub memory: [Memory; 3],
}

/// Opens the sessions, waits until the server's memory has settled, and closes them.
pub fn run(
    server: SocketAddr,
    dialect: Dialect,
    process: Process,
    options: &Options,
) -> Result<(String, Value), Problem> {
    let cost = measure(server, dialect, process, options)?;
    let [before, with_all, after] = cost.memory;
    let report = json!({
        "mode": "idle",
        "dialect": format!("{dialect:?}").to_lowercase(),
        "transport": format!("{:?}", options.transport).to_lowercase(),
        "sessions": options.sessions,
        "own_channels": options.own_channels,
        "rss_before": before.rss_bytes,
        "rss_open": with_all.rss_bytes,
        "rss_after": after.rss_bytes,
        "rss_bytes_per_session": cost.rss_bytes_per_session().round(),
        "pss_bytes_per_session": cost.pss_bytes_per_session().round(),
    });
    let kib = |bytes: u64| bytes / 1024;
    let text = format!(
        "{} idle sessions: {:.0} bytes RSS each ({:.0} PSS); RSS {} KiB before, {} KiB open, {} KiB after all left",
        options.sessions,
        cost.rss_bytes_per_session(),
        cost.pss_bytes_per_session(),
        kib(before.rss_bytes),
        kib(with_all.rss_bytes),
        kib(after.rss_bytes),
    );
    Ok((text, report))
}

/// As [`run`], without words.
pub fn measure(server: SocketAddr, dialect: Dialect, process: Process, options: &Options) -> Result<Cost, Problem> {
    let channel = if options.own_channels { format!("{FANOUT_CHANNEL}/") } else { FANOUT_CHANNEL.to_owned() };
    match options.transport {
        Transport::Websocket => {
            let purpose = if options.own_channels { Purpose::SubscribeAlone(channel) } else { Purpose::Subscribe };
            let plan = session::Plan { dialect, path: dialect.subscriber_path().into(), purpose };
            hold::<Session>(server, dialect, process, &plan, options.sessions)
        }
        Transport::LongPolling => {
            let plan = polling::Plan { path: dialect.subscriber_path().into(), channel };
            hold::<Poll>(server, dialect, process, &plan, options.sessions)
        }
    }
}

impl Cost {
    /// Growth of the resident set for each session, in bytes.
    pub fn rss_bytes_per_session(&self) -> f64 {
        self.per_session(|memory| memory.rss_bytes)
    }

    /// Growth of the proportional set for each session, in bytes.
    pub fn pss_bytes_per_session(&self) -> f64 {
        self.per_session(|memory| memory.pss_bytes)
    }

    /// The share of the growth of the resident set that is still there after the last session has left.
    pub fn kept_share(&self) -> f64 {
        let [before, with_all, after] = self.memory.map(|memory| memory.rss_bytes as f64);
        (after - before).max(0.0) / (with_all - before).max(1.0)
    }

    fn per_session(&self, kind: impl Fn(&Memory) -> u64) -> f64 {
        (kind(&self.memory[1]) as f64 - kind(&self.memory[0]) as f64) / self.sessions as f64
    }
}

fn hold<C: Client>(
    server: SocketAddr,
    dialect: Dialect,
    process: Process,
    plan: &C::Plan,
    sessions: usize,
) -> Result<Cost, Problem> {
    // A few sessions first: what is made once is not a session's cost.
    let mut warm = Load::<C>::new(dialect)?;
    warm.open(server, plan, WARM_SESSIONS, WARM_SESSIONS)?;
    let before = settled(&mut warm, process)?;
    let mut load = Load::<C>::new(dialect)?;
    load.open(server, plan, sessions, IN_FLIGHT)?;
    let with_all = settled(&mut load, process)?;
    if let (1.., Some(reason)) = load.gone() {
        return Err(Problem::Server(format!("dropped idle sessions: {reason}")));
    }
    load.clients().for_each(C::leave);
    load.idle_until(Instant::now() + LEAVE)?;
    drop(load);
    let after = settled(&mut warm, process)?;
    Ok(Cost { sessions, memory: [before, with_all, after] })
}

/// Memory when it has not moved by more than 1 % for two seconds, or after 15 seconds.
fn settled<C: Client>(load: &mut Load<C>, process: Process) -> Result<Memory, Problem> {
    let end = Instant::now() + SETTLE_MAX;
    let (mut reference, mut still_since) = (process.memory()?, Instant::now());
    while Instant::now() < end && still_since.elapsed() < SETTLE {
        load.idle_until(Instant::now() + Duration::from_millis(200))?;
        let memory = process.memory()?;
        if memory.rss_bytes.abs_diff(reference.rss_bytes) > reference.rss_bytes / 100 {
            (reference, still_since) = (memory, Instant::now());
        }
    }
    process.memory()
}

const WARM_SESSIONS: usize = 16;
const IN_FLIGHT: usize = 128;
const LEAVE: Duration = Duration::from_millis(500);
const SETTLE: Duration = Duration::from_secs(2);
const SETTLE_MAX: Duration = Duration::from_secs(15);
