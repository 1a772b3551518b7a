//! How many full sessions a server opens per second.

use std::net::SocketAddr;
use std::time::Instant;

use serde_json::{Value, json};

use crate::dialect::{Dialect, FANOUT_CHANNEL};
use crate::load::Load;
use crate::machine::{Process, own_cpu};
use crate::problem::Problem;
use crate::session::{Plan, Purpose, Session};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Sessions to open, all kept until the end.
    #[arg(long, default_value_t = 8000)]
    pub sessions: usize,
    /// Sessions that are being opened at the same time.
    #[arg(long, default_value_t = 128)]
    pub in_flight: usize,
    /// Each session subscribes to a channel of its own instead of a common one.
    #[arg(long)]
    pub own_channels: bool,
}

/// Opens the sessions, each step (connect, upgrade, handshake, connect, subscribe) after the answer to the one before.
pub fn run(
    server: SocketAddr,
    dialect: Dialect,
    watched: Option<Process>,
    options: &Options,
) -> Result<(String, Value), Problem> {
    let purpose =
        if options.own_channels { Purpose::SubscribeAlone(format!("{FANOUT_CHANNEL}/")) } else { Purpose::Subscribe };
    let plan = Plan { dialect, path: dialect.subscriber_path().into(), purpose };
    let mut load = Load::<Session>::new(dialect)?;
    // The first sessions pay for what is made once.
    load.open(server, &plan, WARM_SESSIONS, WARM_SESSIONS)?;
    let (begin, own, used) = (Instant::now(), own_cpu(), watched.map(|process| process.cpu()).transpose()?);
    load.open(server, &plan, options.sessions, options.in_flight)?;
    let seconds = begin.elapsed().as_secs_f64();
    let per_s = options.sessions as f64 / seconds;
    let load_busy = (own_cpu() - own).as_secs_f64() / seconds;
    let cpu = watched.map(|process| process.cpu()).transpose()?;
    let server_busy = cpu.zip(used).map(|(cpu, used)| cpu.saturating_sub(used).as_secs_f64() / seconds);
    let report = json!({
        "mode": "open",
        "dialect": format!("{dialect:?}").to_lowercase(),
        "sessions": options.sessions,
        "in_flight": options.in_flight,
        "own_channels": options.own_channels,
        "sessions_per_s": per_s.round(),
        "server_busy": server_busy,
        "load_busy": load_busy,
    });
    let busy = server_busy.map(|busy| format!(", server {:.0} %", busy * 100.0)).unwrap_or_default();
    let text = format!(
        "{} sessions in {seconds:.2} s: {per_s:.0} sessions/s, load {:.0} %{busy}",
        options.sessions,
        load_busy * 100.0
    );
    Ok((text, report))
}

const WARM_SESSIONS: usize = 16;
