//! The program `encke`: the server, its configuration, two small clients, tokens, and the load that measures servers.
//!
//! Exit codes: 0 all is well, 1 refused or failed, 2 used or configured wrongly, 3 no server answers, 130 interrupted.

mod allocator;
mod args;
mod assets;
mod cluster;
mod config;
mod config_command;
mod demo;
mod effects;
mod handover;
mod layers;
mod logs;
mod mongodb;
mod options;
mod rules;
mod sections;
mod serve;
mod tables;
mod talk;
mod template;
mod token;
mod units;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches};

fn main() -> ExitCode {
    allocator::give_memory_back();
    let matches = match args::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return args::complain(&error),
    };
    match matches.subcommand() {
        Some(("serve", matches)) => serve::run(args::sources(matches), false),
        Some(("demo", matches)) => {
            serve::run(config::Sources { demo: true, ..args::sources(matches) }, matches.get_flag("open"))
        }
        Some(("config", matches)) => config(matches),
        Some(("publish", matches)) => with_options(matches, talk::publish),
        Some(("subscribe", matches)) => with_options(matches, talk::subscribe),
        Some(("request", matches)) => with_options(matches, talk::request),
        Some(("history", matches)) => with_options(matches, talk::history),
        Some(("presence", matches)) => with_options(matches, talk::presence),
        Some(("sessions", matches)) => with_options(matches, talk::sessions),
        Some(("disconnect", matches)) => with_options(matches, talk::disconnect),
        Some(("context", matches)) => with_options(matches, talk::context),
        Some(("completion", matches)) => args::complete(matches),
        Some(("token", matches)) => with_options(matches, token::run),
        Some(("bench", matches)) => encke_bench::run(matches),
        Some(("flood-target", matches)) => encke_bench::flood_target::run(matches),
        _ => ExitCode::from(USAGE),
    }
}

fn with_options<T: FromArgMatches>(matches: &ArgMatches, run: fn(T) -> ExitCode) -> ExitCode {
    T::from_arg_matches(matches).map_or_else(|error| args::complain(&error), run)
}

fn config(matches: &ArgMatches) -> ExitCode {
    let path = |matches: &ArgMatches, name| matches.get_one::<PathBuf>(name).cloned();
    let file = |matches: &ArgMatches| path(matches, "file").or_else(|| path(matches, "config"));
    match matches.subcommand() {
        Some(("init", matches)) => config_command::init(&file(matches).unwrap_or_else(|| config::FILE.into())),
        Some(("check", matches)) => config_command::check(&config::Sources::of_file(file(matches))),
        Some(("show", matches)) => {
            let sources = args::sources(matches);
            let file = file(matches).or(sources.file);
            config_command::show(&config::Sources { file, ..sources })
        }
        Some(("docs", _)) => config_command::docs(),
        _ => ExitCode::from(USAGE),
    }
}

/// Reports an error in one line.
fn complain(text: &dyn std::fmt::Display) {
    eprintln!("encke: {}", logs::Escaped(text));
}

/// Refused, or failed on the way.
const FAILED: u8 = 1;

/// Used or configured wrongly.
const USAGE: u8 = 2;

/// No server answers.
const UNREACHABLE: u8 = 3;

/// Interrupted by a signal, as shells report it.
const INTERRUPTED: u8 = 130;
