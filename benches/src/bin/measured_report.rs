//! Writes the page and the chart of `make bench-core`, `bench-delivery`, `bench-tls`, `bench-streams`, `bench-files` or `bench-http2` from its reports, and
//! prints the table.

use std::path::PathBuf;
use std::process::ExitCode;

use benches::compare::runs::Runs;
use benches::{core, delivery, files, tls, transports};
use clap::{Parser, ValueEnum};
use encke_bench::problem::Problem;

/// Turns the reports of `make bench-core`, `bench-delivery`, `bench-tls`, `bench-streams`, `bench-files` or `bench-http2` into a page and a chart.
#[derive(Debug, Parser)]
struct Arguments {
    /// The measured subject.
    subject: Subject,
    /// The folder of the reports.
    runs: PathBuf,
    /// The folder to write the page and the chart to, such as core.md and core.svg. Without it only the table is
    /// printed.
    #[arg(long)]
    into: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Subject {
    Core,
    Delivery,
    Tls,
    Streams,
    Http2,
    Files,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("measured_report: not all figures are what is wanted");
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("measured_report: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Problem> {
    let runs = Runs::read(&arguments.runs)?;
    let measured = match arguments.subject {
        Subject::Core => core::measured(&runs),
        Subject::Delivery => delivery::measured(&runs),
        Subject::Tls => tls::measured(&runs),
        Subject::Streams => transports::streams(&runs),
        Subject::Http2 => transports::http2(&runs),
        Subject::Files => files::measured(&runs),
    };
    println!("{}", measured.table);
    if let Some(folder) = &arguments.into {
        measured.write(folder)?;
    }
    Ok(measured.all_hold)
}
