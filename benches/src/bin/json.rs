//! Times JSON engines at the work a server does with publications, and writes a page with the results; see
//! `scripts/bench-json.sh`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use benches::json::{check, engines, measure, page, shapes};
use clap::{Parser, Subcommand};
use encke_bench::machine;

/// Times JSON engines with Bayeux messages.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: JsonCommand,
}

#[derive(Debug, Subcommand)]
enum JsonCommand {
    /// Times all engines and prints their iterations.
    Measure {
        /// A description of this build, for the page.
        #[arg(long, default_value = "as shipped")]
        build: String,
        /// Iterations after the first, which is not counted.
        #[arg(long, default_value_t = 5)]
        iterations: u32,
        /// Scales the work of an iteration.
        #[arg(long, default_value_t = 1.0)]
        effort: f64,
        /// A file that the figures are appended to.
        #[arg(long)]
        results: Option<PathBuf>,
    },
    /// Writes the page from figures.
    Page {
        /// A results file written by `measure --results`.
        results: PathBuf,
        /// The page.
        #[arg(long)]
        into: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match &Arguments::parse().command {
        JsonCommand::Measure { build, iterations, effort, results } => {
            measure(build, *iterations, *effort, results.as_deref())
        }
        JsonCommand::Page { results, into } => write_page(results, into),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("json: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn measure(build: &str, iterations: u32, effort: f64, results: Option<&Path>) -> Result<(), String> {
    let found = measure::all(build, iterations, effort, &mut io::stdout())?;
    let Some(path) = results else { return Ok(()) };
    let in_words = |error: io::Error| format!("{}: {error}", path.display());
    let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(in_words)?;
    for iteration in found {
        let line = serde_json::to_string(&iteration).map_err(|error| error.to_string())?;
        writeln!(file, "{line}").map_err(in_words)?;
    }
    Ok(())
}

fn write_page(results: &Path, into: &Path) -> Result<(), String> {
    let text = fs::read_to_string(results).map_err(|error| format!("{}: {error}", results.display()))?;
    let iterations: Result<Vec<_>, _> = text.lines().map(serde_json::from_str).collect();
    let iterations = iterations.map_err(|error| format!("{}: {error}", results.display()))?;
    let probed: Vec<_> = engines::all().iter_mut().map(|engine| check::probe(engine.as_mut())).collect();
    let facts = machine::facts();
    let machine = format!("Measured on one core of {}, {}.", facts.processor, facts.system);
    let page = page::page(&iterations, &shapes::all(), &probed, &machine);
    fs::write(into, page).map_err(|error| format!("{}: {error}", into.display()))
}
