//! Opens sessions against a server, publishes at planned times, and reports what arrived and what it cost.

use std::net::SocketAddr;
use std::process::ExitCode;

use benches::dialect::Dialect;
use benches::machine::{Process, pin};
use benches::problem::Problem;
use benches::{ceiling, fanout, idle, open};
use clap::{Parser, Subcommand};
use serde_json::Value;

/// A load for WebSocket and Bayeux servers, on one thread.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the server listens.
    #[arg(long, global = true, default_value = "127.0.0.1:8080")]
    target: SocketAddr,
    /// What the server speaks.
    #[arg(long, global = true, value_enum, default_value = "bayeux")]
    dialect: Dialect,
    /// The server's process, to read its time and memory.
    #[arg(long, global = true)]
    pid: Option<u32>,
    /// The core to stay on.
    #[arg(long, global = true)]
    core: Option<usize>,
    /// A name for the result line, such as the server's.
    #[arg(long, global = true)]
    label: Option<String>,
    /// Print the result as one line of JSON instead of words.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// One publisher, many subscribers.
    Fanout(fanout::Options),
    /// How many full sessions are opened per second.
    Open(open::Options),
    /// What idle sessions cost in memory; needs --pid.
    Idle(idle::Options),
    /// How much the load itself can receive; needs no server.
    Ceiling(ceiling::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("load: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Problem> {
    if let Some(core) = arguments.core {
        pin(core)?;
    }
    let process = arguments.pid.map(Process::watch).transpose()?;
    let (server, dialect) = (arguments.target, arguments.dialect);
    let (text, mut report) = match &arguments.mode {
        Mode::Fanout(options) => {
            let (trial, report) = fanout::run(server, dialect, process, options)?;
            (trial.to_string(), report)
        }
        Mode::Open(options) => open::run(server, dialect, process, options)?,
        Mode::Idle(options) => {
            let process = process.ok_or_else(|| Problem::Usage("idle needs --pid, the server's process".into()))?;
            idle::run(server, dialect, process, options)?
        }
        Mode::Ceiling(options) => ceiling::run(dialect, options)?,
    };
    if let Some(label) = &arguments.label {
        report["label"] = Value::from(label.as_str());
    }
    if arguments.json {
        println!("{report}");
    } else {
        println!("{text}");
    }
    match report["holds"].as_bool() {
        Some(false) => Err(Problem::Server("did not hold the rate".into())),
        _ => Ok(()),
    }
}
