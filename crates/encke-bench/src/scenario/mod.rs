//! The scenarios, one file each.
//!
//! A scenario is its command line options and a run with a [`Bench`]. [`ALL`] has them in the order of the help.

mod avalanche;
mod broadcast;
mod chat;
mod flood;
mod http;
mod idle;
mod jitter;
mod open;
mod parts;
mod random_channel;
mod reconnect;
mod replay;
mod request_reply;
mod rooms;
mod rooms_transcript;
mod self_test;
mod soak;
mod throughput;

use clap::{ArgAction, ArgMatches, Args as _, Command, FromArgMatches as _};

use crate::engine::Clients;
use crate::order::{ClientsSpec, Transport};
use crate::problem::Problem;
use crate::report::units::count;
use crate::report::{Report, Setting, wrapped};
pub use crate::run::Scenario;
use crate::run::{Bench, Common, Generator, Interrupt};

/// A scenario as the command line sees it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    command: fn() -> Command,
    run: Run,
}

/// Runs a scenario with the given options. Returns the report and the common options.
type Run = fn(&ArgMatches, &Interrupt) -> Result<(Report, Common), Problem>;

impl Entry {
    /// Its subcommand.
    pub fn command(&self) -> Command {
        (self.command)()
    }

    /// Runs it with the options in `matches`.
    ///
    /// # Errors
    /// As [`Scenario::run`].
    pub fn run(&self, matches: &ArgMatches, interrupt: &Interrupt) -> Result<(Report, Common), Problem> {
        (self.run)(matches, interrupt)
    }
}

/// The scenarios, in the order of the help.
pub const ALL: &[Entry] = &[
    entry::<chat::Chat>(),
    entry::<rooms::Rooms>(),
    entry::<throughput::Throughput>(),
    entry::<random_channel::RandomChannel>(),
    entry::<request_reply::RequestReply>(),
    entry::<flood::Flood>(),
    entry::<http::Http>(),
    entry::<reconnect::Reconnect>(),
    entry::<replay::Replay>(),
    entry::<jitter::Jitter>(),
    entry::<avalanche::Avalanche>(),
    entry::<soak::Soak>(),
    entry::<broadcast::Broadcast>(),
    entry::<idle::Idle>(),
    entry::<open::Open>(),
    entry::<self_test::SelfTest>(),
];

/// The entry of a scenario.
const fn entry<S: Scenario>() -> Entry {
    Entry { name: S::NAME, command: command_of::<S>, run: run_of::<S> }
}

fn command_of<S: Scenario>() -> Command {
    let own = S::augment_args(Command::new(S::NAME).next_help_heading("Scenario"));
    let command = Common::augment_args(own.next_help_heading("Run"));
    command
        .about(S::TITLE)
        .after_help(wrapped(S::STANDS_FOR, LINE_LETTERS_MAX).join("\n"))
        .mut_arg("target", |arg| arg.display_order(0))
}

fn run_of<S: Scenario>(matches: &ArgMatches, interrupt: &Interrupt) -> Result<(Report, Common), Problem> {
    let usage = |error: clap::Error| Problem::Usage(error.to_string());
    let common = Common::from_arg_matches(matches).map_err(usage)?;
    let scenario = S::from_arg_matches(matches).map_err(usage)?;
    common.outputs.destinations().check()?;
    check_together(&common, matches)?;
    let settings = settings(&command_of::<S>(), matches);
    let mut bench = Bench::new(common.clone(), settings, interrupt.clone())?;
    let report = scenario.run(&mut bench)?;
    Ok((bench.finish(report), common))
}

/// Checks that every given option has an effect, beyond the checks of clap.
fn check_together(common: &Common, matches: &ArgMatches) -> Result<(), Problem> {
    let shares = matches.try_get_one::<u32>("workers").ok().flatten().copied();
    let workers = shares.unwrap_or(1);
    let cores = common.core.len();
    if cores > workers as usize {
        let text = format!("--core names {cores} cores for {workers} process{}", if workers == 1 { "" } else { "es" });
        let hint = if shares.is_some() { "; give as many --workers" } else { "" };
        return Err(Problem::Usage(text + hint));
    }
    let transport = matches.try_get_one::<Transport>("transport").ok().flatten();
    if matches.try_get_one::<bool>("http2").ok().flatten().is_some_and(|given| *given)
        && transport.is_some_and(|transport| transport.is_http())
    {
        return Err(Problem::Usage("--http2 is for WebSockets: it goes with --transport websocket or raw".into()));
    }
    let is_search = matches.try_get_one::<bool>("find_max").ok().flatten().is_some_and(|given| *given);
    let rates = matches.try_get_many::<f64>("rate").ok().flatten().map_or(0, Iterator::count);
    if is_search && rates > 1 {
        return Err(Problem::Usage("--find-max begins its search at one --rate, not at several".into()));
    }
    Ok(())
}

/// Opens clients in this process; none if the run is to end.
fn opened(bench: &mut Bench, spec: &ClientsSpec) -> Result<Option<Generator>, Problem> {
    let (progress, interrupt) = (&mut bench.progress, &bench.interrupt);
    let opened = Generator::open(spec, 1, &[], &mut |open| {
        progress.tick(|| format!("opening  {} of {}", count(open), count(spec.clients.into())));
        !interrupt.is_set()
    });
    if interrupt.is_set() { Ok(None) } else { opened.map(Some) }
}

/// The clients of a generator in this process.
fn local_clients(generator: &mut Generator) -> Option<&mut Clients> {
    match generator {
        Generator::Local(local) => Some(&mut local.clients),
        Generator::Workers(_) => None,
    }
}

/// The given options, in the order of the help, without those about the report.
fn settings(command: &Command, matches: &ArgMatches) -> Vec<Setting> {
    let mut settings = Vec::new();
    for arg in command.get_arguments() {
        let (id, Some(name)) = (arg.get_id().as_str(), arg.get_long()) else { continue };
        let is_off_switch = matches!(arg.get_action(), ArgAction::SetTrue) && !matches.get_flag(id);
        if NOT_SETTINGS.contains(&id) || is_off_switch {
            continue;
        }
        let Ok(Some(values)) = matches.try_get_raw(id) else { continue };
        let values: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
        settings.push(Setting { name: name.into(), value: values.join(",") });
    }
    settings
}

const LINE_LETTERS_MAX: usize = 100;
const NOT_SETTINGS: &[&str] = &["help", "target", "label", "json", "csv", "html", "quiet", "pid"];
