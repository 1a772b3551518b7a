//! Writes the page and the chart of `make bench-delivery` from its reports, and prints the table.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use benches::compare::runs::Runs;
use benches::delivery;
use clap::Parser;
use encke_bench::machine;
use encke_bench::problem::Problem;

/// Turns the reports of `make bench-delivery` into a page and a chart.
#[derive(Debug, Parser)]
struct Arguments {
    /// The folder of the reports.
    runs: PathBuf,
    /// The folder to write delivery.md and delivery.svg to; without it only the table is printed.
    #[arg(long)]
    into: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("delivery_report: not all figures are what is wanted");
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("delivery_report: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Problem> {
    let runs = Runs::read(&arguments.runs)?;
    let (table, all_hold) = delivery::table(&runs);
    println!("{table}");
    let Some(folder) = &arguments.into else { return Ok(all_hold) };
    fs::create_dir_all(folder)?;
    let mut image = "";
    if let Some(chart) = delivery::chart(&runs) {
        fs::write(folder.join("delivery.svg"), chart.file(IMAGE_WIDTH_PIXELS))?;
        image = "![Processor time for a delivery](delivery.svg)\n\n";
    }
    let facts = machine::facts();
    let machine = format!("Measured on {} cores ({}), {}, over loopback.", facts.cores, facts.processor, facts.system);
    let others = delivery::others_cores(&runs).map(|cores| {
        format!("Other processes used {cores:.2} cores meanwhile (median); the nearer to 0, the better the figures.\n")
    });
    let others = others.unwrap_or_default();
    let page = format!("# What sure delivery costs\n\n{image}{table}\n{EXPLANATION}\n{machine}\n{others}");
    fs::write(folder.join("delivery.md"), page)?;
    Ok(all_hold)
}

const EXPLANATION: &str = "\
Repeat with `make bench-delivery`. The server runs on core 0, the load on core 1; what is compared takes turns, each figure is
the median of its runs. The load publishes at planned times and checks that every subscriber gets every message once and in
order; runs that lose anything or do not keep up do not count. The rows come from

- `encke bench broadcast --find-max --p99 1s`, with and without `--ack`: 1,000 subscribers, 50 bytes of data. Clients that
  acknowledge do as CometD's do: messages come with connect replies, and each is followed by a connect;
- `encke bench broadcast --rate 100`, plain, with `--ack`, on a channel with `history_messages = 10000`, and there with `--replay`;
- `encke bench broadcast --find-max --clients 1 --message-size 200`, one publisher and one subscriber: the server once with
  `--data DIR` and `history_commit = \"interval\"` (1 s), once without; then the history is in memory;
- `encke bench broadcast --rate 100`, with and without `encke bench replay` beside it: 100 clients open a session, replay
  10,000 messages each, leave, and begin again. Both loads share core 1, the replaying one with a lower priority (`nice`).
";
/// As wide as the text of a page is on most sites.
const IMAGE_WIDTH_PIXELS: u32 = 760;
