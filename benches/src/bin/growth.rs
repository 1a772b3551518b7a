//! Measures the core alone at growing sizes, and writes the page of `make bench-growth`.

use std::path::PathBuf;
use std::process::ExitCode;

use benches::compare::runs::Runs;
use benches::growth::curves::CURVES;
use benches::growth::{self, Line};
use clap::Parser;
use encke_bench::problem::Problem;

/// Measures the core alone at growing sizes, and writes the page of `make bench-growth`.
#[derive(Debug, Parser)]
struct Arguments {
    /// The folder of the reports about a whole server.
    runs: PathBuf,
    /// Turns of Encke and the floor at each size.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Only the curves with this text in what grows.
    #[arg(long, default_value = "")]
    only: String,
    /// The folder to write the page and the charts to.
    #[arg(long)]
    into: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("growth: a cost grows faster than its work, or was not measured");
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("growth: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Problem> {
    let Arguments { runs, rounds, only, into } = arguments;
    let chosen = CURVES.iter().filter(|curve| curve.over.contains(only.as_str()));
    let measured: Vec<Option<Line>> =
        chosen.map(|curve| growth::measure(curve, *rounds, &mut |size| eprintln!("── {size}"))).collect();
    let all = measured.iter().all(Option::is_some);
    let mut lines: Vec<Line> = measured.into_iter().flatten().collect();
    lines.extend(growth::of_reports(&Runs::read(runs)?));
    println!("{}", growth::write(&lines, into)?);
    Ok(all && lines.iter().all(Line::holds))
}
