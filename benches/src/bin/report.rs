//! Writes the page and the chart of `make bench-core` from its result lines, and prints the table.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use benches::problem::Problem;
use benches::report::{self, Results};
use clap::Parser;

/// Turns result lines into a page and a chart.
#[derive(Debug, Parser)]
struct Arguments {
    /// The result lines.
    results: PathBuf,
    /// The folder to write core.md and core.svg to; without it only the table is printed.
    #[arg(long)]
    into: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("report: not all figures are what is wanted");
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("report: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Problem> {
    let results = Results::read(&fs::read_to_string(&arguments.results)?);
    let (table, all_hold) = report::table(&results);
    println!("{table}");
    if let Some(folder) = &arguments.into {
        fs::create_dir_all(folder)?;
        let chart = report::chart(&results);
        if let Some(chart) = &chart {
            fs::write(folder.join("core.svg"), chart)?;
        }
        let image = if chart.is_some() { "![Broadcast to 1,000 WebSockets](core.svg)\n\n" } else { "" };
        let others = results.others_busy().map(|cores| {
            format!(
                "Other processes used {cores:.2} cores meanwhile (median); the nearer to 0, the better the figures.\n"
            )
        });
        let machine = machine();
        let page = format!(
            "# Speed and memory of the core\n\n{image}{table}\n{EXPLANATION}\n{machine}\n{}",
            others.unwrap_or_default()
        );
        fs::write(folder.join("core.md"), page)?;
    }
    Ok(all_hold)
}

/// Cores, their model and the kernel's version.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown cores", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release: Vec<&str> = release.trim().split(['.', '-']).take(2).collect();
    format!("Measured on {cores} cores ({model}), Linux {}, over loopback.", release.join("."))
}

const EXPLANATION: &str = "\
Repeat with `make bench-core`. The server runs on core 0, the load on core 1; servers take turns, each figure is the
median of its runs. The floor (`benches/src/bin/floor.rs`) is a fan-out over epoll without any protocol above WebSocket
frames; Bun is its native publish and subscribe (`benches/rivals/bun/server.js`). Both get the same 50 bytes of data as
Encke's subscribers, who get them in a Bayeux message. The load (`benches/src/bin/load.rs`) publishes at planned times
and checks that every subscriber receives every message once and in order; latency is counted from the planned time.
The highest rate is the one where nothing is lost, deliveries keep up with the plan and p99 is under one second.
Sessions are opened in full: connect, upgrade, handshake, connect, subscribe, each after the answer to the one before.
Memory is the growth of the server's resident set divided by 9,000 sessions.
";
