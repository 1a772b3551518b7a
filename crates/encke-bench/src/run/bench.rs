//! A scenario, and one run of it: its options, its target, and the beginning of its report.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

use super::interrupt::Interrupt;
use super::options::Common;
use super::progress::Progress;
use crate::engine::Target;
use crate::machine::{self, Process};
use crate::problem::Problem;
use crate::report::{FORMAT_VERSION, Report, Setting};

/// Something that can be measured. Its fields are its options on the command line.
pub trait Scenario: Args {
    /// Its name on the command line.
    const NAME: &'static str;
    /// The measured subject, in one sentence.
    const TITLE: &'static str;
    /// The benchmark that it represents, by title and year, in a sentence or two.
    const STANDS_FOR: &'static str;

    /// Measures.
    ///
    /// # Errors
    /// The options contradict each other, there is no server, or something failed before anything was measured. A
    /// measurement that does not hold is not an error but a report that says so.
    fn run(&self, bench: &mut Bench) -> Result<Report, Problem>;
}

/// The environment of a scenario.
#[derive(Debug)]
pub struct Bench {
    /// The options that all scenarios share.
    pub common: Common,
    /// The server's address.
    pub target: Target,
    /// Set by Ctrl-C; checked several times a second.
    pub interrupt: Interrupt,
    /// Prints the progress.
    pub progress: Progress,
    /// The server's process, where it can be watched.
    pub server: Option<Process>,
    settings: Vec<Setting>,
    began: Instant,
    began_unix_ms: u64,
}

impl Bench {
    /// Begins a run: checks the target's URL, pins this process, finds the server's process.
    ///
    /// # Errors
    /// The URL is invalid, its host has no address, or the process or core does not exist.
    pub fn new(common: Common, settings: Vec<Setting>, interrupt: Interrupt) -> Result<Self, Problem> {
        let target = Target::resolve(&common.target, BAYEUX_PATH, &common.trust)?;
        let server = match common.pid {
            Some(pid) => Some(Process::watch(pid)?),
            None if target.address.ip().is_loopback() => Process::listening_on(target.address.port()),
            None => None,
        };
        if let [core] = common.core[..] {
            machine::pin(core)?;
        }
        let began_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let progress = Progress::new(common.outputs.quiet);
        Ok(Bench { common, target, interrupt, progress, server, settings, began: Instant::now(), began_unix_ms })
    }

    /// The server's process.
    ///
    /// # Errors
    /// It is not known.
    pub fn watched(&self) -> Result<Process, Problem> {
        let text = "the server's memory is measured here: give its process with --pid";
        self.server.ok_or_else(|| Problem::Usage(text.into()))
    }

    /// The report of scenario `S` without results, for [`Bench::finish`] to complete.
    pub fn report<S: Scenario>(&self) -> Report {
        Report {
            format: FORMAT_VERSION,
            scenario: S::NAME.into(),
            title: S::TITLE.into(),
            stands_for: S::STANDS_FOR.into(),
            label: self.common.outputs.label.clone().unwrap_or_else(|| self.common.target.clone()),
            target: self.common.target.clone(),
            began_unix_ms: self.began_unix_ms,
            machine: machine::facts(),
            settings: self.settings.clone(),
            holds: true,
            ..Report::default()
        }
    }

    /// Completes a report: how long it took, whether it was interrupted, and whether it holds, which it does when
    /// nothing spoke against it so far and its result does, or all its trials where it has no single result.
    pub fn finish(&self, mut report: Report) -> Report {
        report.took_ms = self.began.elapsed().as_millis() as u64;
        report.interrupted = self.interrupt.is_set();
        if report.interrupted && report.trials.is_empty() {
            report.holds = false;
            report.reasons.push("It was interrupted before anything was measured.".into());
        }
        let judged: Vec<usize> = match report.result {
            Some(result) => vec![result],
            None => (0..report.trials.len()).collect(),
        };
        let names_needed = judged.len() > 1;
        for trial in judged.into_iter().filter_map(|index| report.trials.get(index)).filter(|trial| !trial.holds) {
            report.holds = false;
            let name = if names_needed { format!("{}: ", trial.name) } else { String::new() };
            report.reasons.extend(trial.reasons.iter().map(|reason| format!("{name}{reason}")));
        }
        report
    }
}

/// The default path of Bayeux servers.
const BAYEUX_PATH: &str = "/cometd";
