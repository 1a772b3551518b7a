//! The command line options of every run.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::parse;
use crate::order::{Recovery, Replay, Transport, Trust};
use crate::report::{Destination, Outputs};

/// The options that all scenarios share.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The server, http://, https://, ws:// or wss://; /cometd where the URL has no path
    #[arg(long, env = "ENCKE_URL", hide_env = true, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub target: String,
    /// The certificates that clients accept.
    #[command(flatten)]
    pub trust: Trust,
    /// Time to measure, such as 500ms, 10s, 2m or 1h
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::length)]
    pub duration: Duration,
    /// Time to run before measuring
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse::length_or_none)]
    pub warm_up: Duration,
    /// The server's process, to read its processor time and memory [default: the local process that listens at the
    /// target]
    #[arg(long, value_name = "PID", hide_short_help = true)]
    pub pid: Option<u32>,
    /// The core to stay on; with --workers one each, such as 1,2
    #[arg(long, value_name = "N", value_delimiter = ',', hide_short_help = true)]
    pub core: Vec<usize>,
    /// The destinations of the report.
    #[command(flatten)]
    pub outputs: ReportOptions,
}

/// The destinations of the report.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Report")]
pub struct ReportOptions {
    /// Name of the run in reports [default: the target]
    #[arg(long, value_name = "NAME")]
    pub label: Option<String>,
    /// Write the report as JSON, to stdout instead of the text if no file is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Write the figures as CSV, to stdout instead of the text if no file is named
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub csv: Option<PathBuf>,
    /// Write the report as a page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print no progress on stderr
    #[arg(long)]
    pub quiet: bool,
}

/// The transport and recovery of Bayeux clients.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Clients")]
pub struct Carriage {
    /// Transport of the clients
    #[arg(long, value_enum, default_value = "websocket", ignore_case = true)]
    pub transport: Transport,
    /// Clients that are being opened at the same time, per process
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse::count, hide_short_help = true)]
    pub opening: u32,
    /// Clients acknowledge messages (extension `ack`)
    #[arg(long)]
    pub ack: bool,
    /// Clients request the positions of messages in their channel's history (extension `replay`)
    #[arg(long)]
    pub replay: bool,
    /// WebSockets offer compression (permessage-deflate); the server must accept it
    #[arg(long)]
    pub compress: bool,
    /// WebSockets over HTTP/2 (RFC 8441): over TLS, or without it by prior knowledge
    #[arg(long, conflicts_with = "compress")]
    pub http2: bool,
    /// The node of a cluster that the sessions that only publish connect to, by WebSocket over HTTP/1.1 [default: the target]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub publish_to: Option<String>,
    /// WebSockets on each HTTP/2 connection [default: 1]
    #[arg(long, value_name = "N", value_parser = streams, requires = "http2")]
    pub streams_per_connection: Option<u32>,
}

/// At which rates to measure.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Rate")]
pub struct Rates {
    /// Messages per second, or several rates, one after another; where a search begins
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = parse::rate)]
    pub rate: Vec<f64>,
    /// Search the highest rate that loses nothing and stays under --p99, in trials of 3 s (or --duration, if that is shorter)
    #[arg(long)]
    pub find_max: bool,
    /// The highest p99 latency that --find-max lets pass
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse::some_duration, requires = "find_max")]
    pub p99: Duration,
    /// Time for the whole search
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse::some_duration, requires = "find_max",
          hide_short_help = true)]
    pub search_time: Duration,
}

/// Sending and judging messages.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Clients")]
pub struct Sending {
    /// Processes that share the clients
    #[arg(long, value_name = "N", default_value = "1", value_parser = workers, hide_short_help = true)]
    pub workers: u32,
    /// Count messages that take longer as late, which no run may have
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::some_duration, hide_short_help = true)]
    pub late_after: Duration,
    /// Publishers decline replies ("ext":{"reply":false}), which Encke then does not send
    #[arg(long)]
    pub no_reply: bool,
}

impl Carriage {
    /// The recovery that clients use.
    pub fn recovery(&self) -> Recovery {
        let replay = if self.replay { Replay::Live } else { Replay::No };
        Recovery { ack: self.ack, replay }
    }

    /// The most WebSockets on an HTTP/2 connection; none over HTTP/1.1.
    pub fn streams_per_connection(&self) -> Option<u32> {
        self.http2.then(|| self.streams_per_connection.unwrap_or(1))
    }
}

impl ReportOptions {
    /// The destinations of the report's forms.
    pub fn destinations(&self) -> Outputs {
        let to = |path: &Option<PathBuf>| path.clone().map(Destination::from);
        Outputs { json: to(&self.json), csv: to(&self.csv), html: to(&self.html) }
    }
}

/// As `count`, up to a sensible number of processes.
fn workers(text: &str) -> Result<u32, String> {
    count_to(WORKERS_MAX, text)
}

/// As `count`, up to a sensible number of streams.
fn streams(text: &str) -> Result<u32, String> {
    count_to(STREAMS_PER_CONNECTION_MAX, text)
}

fn count_to(max: u32, text: &str) -> Result<u32, String> {
    parse::count(text).ok().filter(|count| *count <= max).ok_or(format!("a whole number from 1 to {max}"))
}

/// More processes than this share no load better.
const WORKERS_MAX: u32 = 256;
/// No server accepts more by default: Encke 128 (`http2_streams_max`), others 100 to 250.
const STREAMS_PER_CONNECTION_MAX: u32 = 1_000;
