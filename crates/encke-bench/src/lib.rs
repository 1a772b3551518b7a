//! Load on Bayeux servers: sends messages at planned times, checks the deliveries, and measures latency.
//!
//! A [`scenario`] makes an [`order::Order`]. A [run](mod@run) executes it with the [`engine::Clients`] of one process
//! or of several. The result is a [`report::Report`], which [`report`] writes as text, JSON, CSV or a page.
//!
//! Load is *open*: every message has a planned time and is sent then, even if the server does not keep up, and latency
//! counts from the planned time. So a server that stalls is charged for everything that waited (there is no
//! "coordinated omission").
//!
//! The program `encke` offers it as `encke bench`: [`command`] is the command line, [`run()`] executes it.

pub mod engine;
pub mod flood_target;
pub mod latencies;
pub mod machine;
pub mod order;
pub mod outcome;
pub mod problem;
mod random;
pub mod report;
pub mod run;
pub mod scenario;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};

use crate::problem::Problem;
use crate::run::{Interrupt, ReportOptions};

/// The command `bench` with all scenarios, and `report`.
pub fn command() -> Command {
    let files = Arg::new("files").value_name("FILE").num_args(1..).required(true);
    let files = files.value_parser(value_parser!(PathBuf)).help("Reports; ratios are to the first");
    // Reports follow here, and must not be taken for a file to write.
    let report = ReportOptions::augment_args(Command::new("report").arg(files))
        .mut_arg("json", |arg| arg.require_equals(true))
        .mut_arg("csv", |arg| arg.require_equals(true))
        .mut_arg("label", |arg| arg.hide(true))
        .mut_arg("quiet", |arg| arg.hide(true));
    Command::new("bench")
        .about("Put load on a Bayeux server and report what arrived, and how late")
        .after_help(
            "encke bench SCENARIO -h shows the common options of a scenario, --help all.\n\
             Exit codes: 0 done and holds, 1 does not hold or failed, 2 wrong use, 3 unreachable or no Bayeux server.",
        )
        .arg_required_else_help(true)
        .subcommand_required(true)
        .subcommand_value_name("SCENARIO")
        .subcommand_help_heading("Scenarios")
        .subcommands(scenario::ALL.iter().map(|entry| entry.command()))
        .subcommand(report.about("Lay reports side by side that --json has written"))
        .subcommand(
            Command::new("worker").about("One of several processes of a run, receives its orders on stdin").hide(true),
        )
}

/// Executes the matches of [`command`]. An error is one line on stderr.
///
/// The exit code is 0 if the run holds, 1 if it does not or failed on the way, 2 for wrong usage, 3 if the target
/// cannot be reached or is no Bayeux server.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match dispatch(matches) {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("encke: {problem}");
            ExitCode::from(problem.exit_code())
        }
    }
}

fn dispatch(matches: &ArgMatches) -> Result<ExitCode, Problem> {
    let (name, matches) = matches.subcommand().ok_or_else(|| Problem::Usage("name a scenario".into()))?;
    if name == "worker" {
        return Ok(run::work().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS));
    }
    if name == "report" {
        let files: Vec<PathBuf> = matches.get_many("files").into_iter().flatten().cloned().collect();
        let options = ReportOptions::from_arg_matches(matches).map_err(|error| Problem::Usage(error.to_string()))?;
        report::compare(&files, &options.destinations())?;
        return Ok(ExitCode::SUCCESS);
    }
    let entry = scenario::ALL.iter().find(|entry| entry.name == name);
    let entry = entry.ok_or_else(|| Problem::Usage(format!("there is no scenario {name}")))?;
    let (report, common) = entry.run(matches, &Interrupt::on_signals()?)?;
    report::write(&report, &common.outputs.destinations())?;
    Ok(if report.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
