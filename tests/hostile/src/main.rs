//! `hostile`: attackers against the program `encke`, each attack beside witnesses that must not notice it.
//!
//! Every scenario runs against a server with two shards and one with a single shard, at default limits. Witnesses are
//! healthy sessions of all kinds. Each run must satisfy:
//!
//! - witnesses lose nothing: no gap, no duplicate, no session that ends;
//! - 99 of 100 of their messages take less than a second, not counting the delay of the machine itself, or at most three times
//!   as long as at a server beside that nobody attacks;
//! - the same holds for the requests of others, who compete with a greedy owner for a shared limit, with 250 ms;
//! - the server's resident memory stays under the scenario's bound, and returns to its earlier size.
//!
//! A run that fails, or whose latency exceeds the limit, is repeated once. If it then passes, it counts as flaky. A failure that
//! says that a message was lost, doubled or out of order is final. A run in which the attackers did nothing has failed; its
//! repetition takes longer.

mod attack;
mod control;
mod program;
mod report;
mod run;
mod scenario;
mod unattacked;
mod witness;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Instant;

use clap::Parser;
use report::{Report, Verdict};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scenario::Scenario;
use tokio::signal::unix::{SignalKind, signal};

/// Attacks the program encke, scenario by scenario, beside witnesses that must not notice.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program under attack
    #[arg(long, value_name = "PATH", default_value = "target/release/encke")]
    encke: PathBuf,
    /// Only these scenarios, by the beginning of their names
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only the runs with so many shards, 2 or 1
    #[arg(long, value_name = "N")]
    shards: Option<usize>,
    /// List the scenarios
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let options = Arguments::parse();
    let is_chosen = |scenario: &&Scenario| {
        options.only.is_empty() || options.only.iter().any(|name| scenario.name.starts_with(name))
    };
    let chosen: Vec<Scenario> = scenario::ALL.iter().filter(is_chosen).copied().collect();
    if options.list {
        for scenario in &chosen {
            println!("{:22} {}", scenario.name, scenario.title);
        }
        return ExitCode::SUCCESS;
    }
    if chosen.is_empty() {
        eprintln!("hostile: no scenario begins like that; --list names them");
        return ExitCode::from(2);
    }
    let encke = match options.encke.canonicalize() {
        Ok(path) => path,
        Err(error) => {
            eprintln!("hostile: {}: {error}; build it first, or give --encke", options.encke.display());
            return ExitCode::from(2);
        }
    };
    allow_files();
    if let Err(error) = end_on_signals() {
        eprintln!("hostile: cannot listen to signals: {error}");
        return ExitCode::FAILURE;
    }
    let runs = chosen.iter().flat_map(|scenario| scenario.shards.iter().map(move |shards| (*scenario, *shards)));
    let runs = runs.filter(|(_, shards)| options.shards.is_none_or(|only| only == *shards));
    let mut series = Series { encke, began: Instant::now(), settling: Vec::new(), reports: Vec::new() };
    for (scenario, shards) in runs {
        series.run(scenario, shards);
    }
    series.finish();
    let code = series.conclude();
    program::kill_all();
    code
}

/// Runs scenarios one after another. Servers settle while the next one is attacked.
struct Series {
    encke: PathBuf,
    began: Instant,
    settling: Vec<(Scenario, JoinHandle<Report>)>,
    reports: Vec<Report>,
}

impl Series {
    fn run(&mut self, scenario: Scenario, shards: usize) {
        match run::start(&self.encke, scenario, shards) {
            Ok(attacked) => self.settling.push((scenario, std::thread::spawn(|| attacked.settle()))),
            Err(error) => self.note(failed(scenario, shards, error.to_string())),
        }
        for (scenario, thread) in std::mem::take(&mut self.settling) {
            if thread.is_finished() {
                self.join(scenario, thread);
            } else {
                self.settling.push((scenario, thread));
            }
        }
    }

    /// Waits for all servers that settle, and repeats the runs that failed or were late.
    fn finish(&mut self) {
        for (scenario, thread) in std::mem::take(&mut self.settling) {
            self.join(scenario, thread);
        }
        for at in 0..self.reports.len() {
            let (first, shards) = (self.reports[at].verdict(), self.reports[at].shards);
            let Some(scenario) = scenario::ALL.iter().find(|scenario| scenario.name == self.reports[at].name) else {
                continue;
            };
            let (name, mut scenario) = (scenario.name, *scenario);
            if first == Verdict::Passed {
                continue;
            }
            if let Some(complaint) = self.reports[at].final_complaint() {
                // scripts/hostile.sh counts these lines, and those below.
                println!("failed: {name} with {shards} shards: {complaint}");
                continue;
            }
            println!("{name} with {shards}: once more; what fails twice has failed");
            let complaints = self.reports[at].complaints().join("; ");
            let was_idle = self.reports[at].is_idle();
            if was_idle {
                // On a busy machine attackers of low priority need longer to begin.
                scenario.lasts_ms *= IDLE_TIMES;
            }
            if let Ok(attacked) = run::start(&self.encke, scenario, shards) {
                self.reports[at] = attacked.settle();
                self.report_it(at);
            }
            match (first, self.reports[at].verdict()) {
                // An attack that did not begin said nothing about the server.
                (Verdict::Failed, Verdict::Passed) if !was_idle => {
                    println!("flaky: {name} with {shards} shards: {complaints}");
                }
                (_, Verdict::NotMeasured) => println!("skipped: {name} with {shards} shards: the machine was too busy"),
                _ => {}
            }
        }
    }

    fn join(&mut self, scenario: Scenario, thread: JoinHandle<Report>) {
        let report = thread.join().unwrap_or_else(|_| failed(scenario, 0, "its judge panicked".into()));
        self.note(report);
    }

    fn note(&mut self, report: Report) {
        self.reports.push(report);
        self.report_it(self.reports.len() - 1);
    }

    fn report_it(&self, at: usize) {
        let report = &self.reports[at];
        let seconds = self.began.elapsed().as_secs_f64();
        println!(
            "{seconds:5.1} s  {:22} {}  {:12} {}",
            report.name,
            report.shards,
            report.verdict().word(),
            report.figures()
        );
        for complaint in report.complaints() {
            println!("         {complaint}");
        }
    }

    fn conclude(self) -> ExitCode {
        // The 99th percentiles, and how many times those at the server that nobody attacks they are.
        println!("\n{:22} shards  {:12} p99 ms  times others  times  peak MiB  of  after MiB  of", "scenario", "");
        for report in &self.reports {
            println!("{}", report.row());
        }
        let count = |verdict| self.reports.iter().filter(|report| report.verdict() == verdict).count();
        let [passed, unmeasured, failed] = [Verdict::Passed, Verdict::NotMeasured, Verdict::Failed].map(count);
        println!(
            "{passed} passed, {unmeasured} not measured, {failed} failed in {:.0} s",
            self.began.elapsed().as_secs_f64()
        );
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn failed(scenario: Scenario, shards: usize, broken: String) -> Report {
    Report {
        name: scenario.name.into(),
        shards,
        amount: 0,
        did: "nothing".into(),
        latency: report::Latency::default(),
        others: report::Latency::default(),
        memory: report::Memory { settled: Some(std::time::Duration::ZERO), ..report::Memory::default() },
        machine: 0.0,
        broken: vec![broken],
    }
}

/// A signal that ends this process ends its servers, too.
fn end_on_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        program::kill_all();
        std::process::exit(130)
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}

/// The time of an attack that is repeated because the attackers did nothing, as a multiple of its usual time.
const IDLE_TIMES: u64 = 4;

/// Raises the limit of open files to the most that the system allows. Too few make an attack fail visibly.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
