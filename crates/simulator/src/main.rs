//! Runs many seeds and reports those that broke a promise.

use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Instant;

use simulator::tally::Tally;
use simulator::{ClusterOptions, ClusterTally, Options, run, run_cluster};

const USAGE: &str = "\
Runs seeds of sessions, faults and restarts under virtual time, and reports those that break a promise.

usage: simulator [OPTION…]
  --cluster     clusters of nodes instead of one server
  --journals    with an engine that keeps journals of histories
  --seeds N     so many seeds; 1000 by default
  --from S      from this seed on; 1 by default
  --seed X      this seed alone
  --seconds T   no more seeds after this time
  --verbose     all steps of each seed that failed

It exits with 1 if a seed broke a promise.";

struct Arguments {
    /// True for clusters of nodes, false for one server.
    is_cluster: bool,
    /// True if the engine of a cluster keeps journals.
    has_journals: bool,
    seeds: u64,
    from: u64,
    /// The time after which no more seeds are run, in seconds.
    seconds: u64,
    verbose: bool,
}

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|word| matches!(word.as_str(), "--help" | "-h")) {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(word) => {
            eprintln!("{word}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // A panic in the core is reported with its seed; the usual message would repeat it.
    std::panic::set_hook(Box::new(|_| {}));
    let failures = match arguments.is_cluster {
        true => {
            let run = |seed, trace| of_cluster(seed, trace, arguments.has_journals);
            run_all(&arguments, ClusterTally::default(), ClusterTally::add, run)
        }
        false => run_all(&arguments, Tally::default(), Tally::add, of_server),
    };
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A seed that broke a promise: the promise, and the last steps if they were recorded.
struct Failed(String, Vec<String>);

fn of_server(seed: u64, trace: bool) -> Result<Tally, Failed> {
    let options = Options { trace, ..Options::default() };
    run(seed, &options).map_err(|failure| Failed(failure.broken.to_string(), failure.history))
}

fn of_cluster(seed: u64, trace: bool, has_journals: bool) -> Result<ClusterTally, Failed> {
    let options = ClusterOptions { trace, has_journals, ..ClusterOptions::default() };
    run_cluster(seed, &options).map_err(|failure| Failed(failure.broken, failure.history))
}

/// Runs seeds one by one, and reports. Returns the number of those that broke a promise.
fn run_all<T: Debug>(
    arguments: &Arguments,
    mut tally: T,
    add: impl Fn(&mut T, &T),
    run: impl Fn(u64, bool) -> Result<T, Failed>,
) -> usize {
    let begun = Instant::now();
    let (mut failures, mut done) = (0, 0);
    for seed in arguments.from..arguments.from + arguments.seeds {
        match run(seed, false) {
            Ok(one) => add(&mut tally, &one),
            Err(Failed(broken, _)) => {
                failures += 1;
                let again = (arguments.verbose || failures == 1).then(|| run(seed, true).err()).flatten();
                report(seed, &broken, again, arguments);
                if failures == FAILURES_MAX {
                    eprintln!("{FAILURES_MAX} seeds failed: the rest is left");
                    break;
                }
            }
        }
        done = seed - arguments.from + 1;
        if done % PROGRESS_EVERY == 0 {
            eprintln!("{done} of {} seeds, {:.1} s", arguments.seeds, begun.elapsed().as_secs_f64());
        }
        if begun.elapsed().as_secs() >= arguments.seconds {
            break;
        }
    }
    println!(
        "{done} of {} seeds from {}, {failures} failed, {:.1} s",
        arguments.seeds,
        arguments.from,
        begun.elapsed().as_secs_f64()
    );
    if failures == 0 {
        println!("{tally:#?}");
    }
    failures
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments =
        Arguments { is_cluster: false, has_journals: false, seeds: 1_000, from: 1, seconds: u64::MAX, verbose: false };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().unwrap_or_default();
            value.parse::<u64>().map_err(|_| format!("{word} wants a number, not {value:?}"))
        };
        match word.as_str() {
            "--seeds" => arguments.seeds = number()?,
            "--from" => arguments.from = number()?,
            "--seed" => (arguments.from, arguments.seeds) = (number()?, 1),
            "--seconds" => arguments.seconds = number()?,
            "--cluster" => arguments.is_cluster = true,
            "--journals" => arguments.has_journals = true,
            "--verbose" => arguments.verbose = true,
            _ => return Err(format!("{word:?} is no option")),
        }
    }
    Ok(arguments)
}

/// Reports a failure; with its last steps, if the seed has run again.
fn report(seed: u64, broken: &str, again: Option<Failed>, arguments: &Arguments) {
    let cluster = match (arguments.is_cluster, arguments.has_journals) {
        (false, _) => "",
        (true, false) => " --cluster",
        (true, true) => " --cluster --journals",
    };
    eprintln!("seed {seed} broke a promise. {}", broken.chars().take(LINE_CHARS_MAX).collect::<String>());
    eprintln!("  again: cargo run --release -p simulator --{cluster} --seed {seed} --verbose");
    let Some(Failed(_, history)) = again else { return };
    let skipped = if arguments.verbose { 0 } else { history.len().saturating_sub(HISTORY_LINES) };
    for line in &history[skipped..] {
        eprintln!("  {}", line.chars().take(LINE_CHARS_MAX).collect::<String>());
    }
}

/// The number of failures after which no more seeds are run.
const FAILURES_MAX: usize = 20;
/// Steps shown of the first failure; all with `--verbose`.
const HISTORY_LINES: usize = 40;
/// Seeds between two lines of progress.
const PROGRESS_EVERY: u64 = 1_000;
/// Characters shown of a step.
const LINE_CHARS_MAX: usize = 600;
