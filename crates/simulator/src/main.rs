//! Runs many seeds and reports those that broke a promise.

use std::process::ExitCode;
use std::time::Instant;

use simulator::tally::Tally;
use simulator::{Failure, Options, run};

const USAGE: &str = "usage: simulator [--seeds N] [--from S] [--seed X] [--seconds T] [--verbose]";

struct Arguments {
    seeds: u64,
    from: u64,
    /// The time after which no more seeds are run, in seconds.
    seconds: u64,
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(word) => {
            eprintln!("{word}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // A panic in the core is reported with its seed; the usual message would repeat it.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let mut tally = Tally::default();
    let (mut failures, mut done) = (0, 0);
    for seed in arguments.from..arguments.from + arguments.seeds {
        match run(seed, &Options::default()) {
            Ok(one) => tally.add(&one),
            Err(failure) => {
                failures += 1;
                report(&failure, arguments.verbose || failures == 1, arguments.verbose);
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
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments { seeds: 1_000, from: 1, seconds: u64::MAX, verbose: false };
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
            "--verbose" => arguments.verbose = true,
            _ => return Err(format!("{word:?} is no option")),
        }
    }
    Ok(arguments)
}

/// Reports a failure; with its last steps if wanted, for which the seed runs again.
fn report(failure: &Failure, with_history: bool, verbose: bool) {
    eprintln!("seed {} broke a promise. {}", failure.seed, failure.broken);
    eprintln!("  again: cargo run --release -p simulator -- --seed {} --verbose", failure.seed);
    if with_history && let Err(again) = run(failure.seed, &Options { trace: true, ..Options::default() }) {
        let skipped = if verbose { 0 } else { again.history.len().saturating_sub(HISTORY_LINES) };
        for line in &again.history[skipped..] {
            eprintln!("  {}", line.chars().take(LINE_CHARS_MAX).collect::<String>());
        }
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
