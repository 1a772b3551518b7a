//! Writes the page and the images of `make compare`; see `scripts/compare.sh`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use benches::compare::{charts, page, runs::Runs};
use benches::measured::IMAGE_WIDTH_PIXELS;
use clap::Parser;
use encke_bench::machine;
use encke_bench::problem::Problem;

/// Turns the reports of a comparison into a page.
#[derive(Debug, Parser)]
struct Arguments {
    /// The folder of the reports.
    runs: PathBuf,
    /// The folder to write benchmarks.md and benchmarks/*.svg to.
    #[arg(long)]
    into: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("compare_report: not all that is demanded holds");
            ExitCode::FAILURE
        }
        Err(problem) => {
            eprintln!("compare_report: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Problem> {
    let runs = Runs::read(&arguments.runs)?;
    let images = charts::all(&runs);
    let folder = arguments.into.join("benchmarks");
    fs::create_dir_all(&folder)?;
    for image in &images {
        fs::write(folder.join(image.file), image.chart.file(IMAGE_WIDTH_PIXELS))?;
    }
    let path = arguments.into.join("benchmarks.md");
    fs::write(&path, page::page(&runs, &images, &machine::facts()))?;
    println!("written: {}", path.display());
    Ok(page::demands(&runs).iter().all(page::Demand::holds))
}
