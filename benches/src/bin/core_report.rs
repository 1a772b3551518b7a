//! Writes the page and the chart of `make bench-core` from its reports, and prints the table.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use benches::compare::runs::Runs;
use benches::core;
use clap::Parser;
use encke_bench::machine;
use encke_bench::problem::Problem;

/// Turns the reports of `make bench-core` into a page and a chart.
#[derive(Debug, Parser)]
struct Arguments {
    /// The folder of the reports.
    runs: PathBuf,
    /// The folder to write core.md and core.svg to; without it only the table is printed.
    #[arg(long)]
    into: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("core_report: not all figures are what is wanted");
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("core_report: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Problem> {
    let runs = Runs::read(&arguments.runs)?;
    let (table, all_hold) = core::table(&runs);
    println!("{table}");
    let Some(folder) = &arguments.into else { return Ok(all_hold) };
    fs::create_dir_all(folder)?;
    let mut image = "";
    if let Some(chart) = core::chart(&runs) {
        fs::write(folder.join("core.svg"), chart.file(IMAGE_WIDTH_PIXELS))?;
        image = "![Broadcast to 1,000 WebSockets](core.svg)\n\n";
    }
    let facts = machine::facts();
    let machine = format!("Measured on {} cores ({}), {}, over loopback.", facts.cores, facts.processor, facts.system);
    let others = core::others_cores(&runs).map(|cores| {
        format!("Other processes used {cores:.2} cores meanwhile (median); the nearer to 0, the better the figures.\n")
    });
    let others = others.unwrap_or_default();
    let page = format!("# Speed and memory of the core\n\n{image}{table}\n{EXPLANATION}\n{machine}\n{others}");
    fs::write(folder.join("core.md"), page)?;
    Ok(all_hold)
}

const EXPLANATION: &str = "\
Repeat with `make bench-core`. The server runs on core 0, the load on core 1; servers take turns, each figure is the
median of its runs. The floor (`benches/src/bin/floor.rs`) is a fan-out over epoll without any protocol above WebSocket
frames; Bun is its native publish and subscribe (`benches/rivals/bun/server.js`). Both get the same 50 bytes of data as
Encke's subscribers, who get them in a Bayeux message. The load is `encke bench broadcast`, `open` and `idle`: it publishes
at planned times and checks that every subscriber receives every message once and in order; latency is counted from the
planned time. The highest rate is the one where nothing is lost, deliveries keep up with the plan and p99 is under one
second. Sessions are opened in full: connect, upgrade, handshake, connect, subscribe, each after the answer to the one
before. Memory is the growth of the server's resident set divided by 9,000 sessions.
";
/// As wide as the text of a page is on most sites.
const IMAGE_WIDTH_PIXELS: u32 = 760;
