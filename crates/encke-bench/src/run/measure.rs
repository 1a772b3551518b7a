//! Trials with one set of clients after another. Clients of a failed trial are not used again.

use std::thread;
use std::time::{Duration, Instant};

use super::bench::Bench;
use super::generator::Generator;
use super::verdict::{self, Limits};
use super::watch::Watcher;
use super::{latency, options::Sending};
use crate::order::{ClientsSpec, Order};
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::report::units::count;
use crate::report::{Report, Trial};

/// Executes orders with clients of one kind.
#[derive(Debug)]
pub struct Measure<'a> {
    /// The run that it is for.
    pub bench: &'a mut Bench,
    /// The clients.
    pub spec: ClientsSpec,
    /// The time that the last opening took.
    pub opening: Duration,
    workers: u32,
    generator: Option<Generator>,
    rss_before_bytes: u64,
}

impl<'a> Measure<'a> {
    /// Prepares; nothing is opened yet.
    pub fn new(bench: &'a mut Bench, spec: ClientsSpec, sending: &Sending) -> Self {
        let spec = ClientsSpec { no_reply: sending.no_reply, ..spec };
        let rss_before_bytes = bench.server.and_then(|server| server.rss_bytes().ok()).unwrap_or(0);
        Measure { bench, spec, opening: Duration::ZERO, workers: sending.workers, generator: None, rss_before_bytes }
    }

    /// Opens the clients unless they are open. Returns false if the run is to end.
    ///
    /// # Errors
    /// As [`Generator::open`].
    pub fn open(&mut self) -> Result<bool, Problem> {
        if self.generator.is_some() {
            return Ok(!self.bench.interrupt.is_set());
        }
        let began = Instant::now();
        let Bench { progress, interrupt, common, .. } = &mut *self.bench;
        let all = u64::from(self.spec.clients) + u64::from(self.spec.publishers);
        let opened = Generator::open(&self.spec, self.workers, &common.core, &mut |open| {
            progress.tick(|| format!("{:>4} s  opening  {} of {}", began.elapsed().as_secs(), count(open), count(all)));
            !interrupt.is_set()
        });
        self.opening = began.elapsed();
        if self.bench.interrupt.is_set() {
            if let Ok(generator) = opened {
                generator.disconnect();
            }
            return Ok(false);
        }
        self.generator = Some(opened?);
        Ok(true)
    }

    /// Executes an order and judges it. Returns `None` if the run was ended before.
    ///
    /// # Errors
    /// The clients cannot be opened, a worker died, or the system fails.
    pub fn trial(&mut self, name: &str, order: &Order, limits: Limits) -> Result<Option<Trial>, Problem> {
        Ok(self.trial_with_outcome(name, order, limits)?.map(|(trial, _)| trial))
    }

    /// As [`Measure::trial`], with the raw figures of the trial.
    ///
    /// # Errors
    /// As [`Measure::trial`].
    pub fn trial_with_outcome(
        &mut self,
        name: &str,
        order: &Order,
        limits: Limits,
    ) -> Result<Option<(Trial, Outcome)>, Problem> {
        if !self.open()? {
            return Ok(None);
        }
        let Some(mut generator) = self.generator.take() else { return Ok(None) };
        let cores = self.cores();
        let bench = &mut *self.bench;
        let mut watcher = Watcher::new(name, bench.server, &mut bench.progress, &bench.interrupt);
        let outcome = generator.run_trial(order, &mut |event| watcher.take(event))?;
        let seen = watcher.conclude(&outcome);
        let latency = latency::summary(&outcome.latencies);
        let mut trial = verdict::judged(&self.spec, order, outcome.clone(), latency, limits, cores);
        trial.name = name.into();
        trial.samples = seen.samples;
        trial.others_cores = seen.others_cores;
        trial.server =
            seen.server.map(|server| crate::report::Server { rss_before_bytes: self.rss_before_bytes, ..server });
        // A failed trial leaves backlogs, so the next one starts with new sockets. The old sessions are disconnected,
        // since the server would keep sessions with broken sockets, and deliver to them, until they expire.
        if trial.holds {
            self.generator = Some(generator);
        } else {
            generator.disconnect();
            self.rest(RECOVER);
        }
        Ok(Some((trial, outcome)))
    }

    /// Gives the server time to recover, unless the run is to end.
    pub fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.bench.interrupt.is_set() {
            thread::sleep(SAMPLE_EVERY.min(end.saturating_duration_since(Instant::now())));
        }
    }

    /// Cores that the load can use: each process of it has one thread.
    fn cores(&self) -> f64 {
        let given = match self.bench.common.core.len() {
            0 => thread::available_parallelism().map_or(1, usize::from),
            named => named,
        };
        f64::from(self.workers).min(given as f64)
    }

    /// The open clients.
    pub fn generator(&mut self) -> Option<&mut Generator> {
        self.generator.as_mut()
    }

    /// Disconnects all sessions. Returns the time that took.
    pub fn close(&mut self) -> Duration {
        let began = Instant::now();
        if let Some(generator) = self.generator.take() {
            generator.disconnect();
        }
        began.elapsed()
    }
}

impl Drop for Measure<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Adds a problem to a report that already has figures: the run ends, and earlier measurements count.
///
/// # Errors
/// The problem itself, if nothing was measured yet.
pub(crate) fn ended_by(problem: Problem, report: &mut Report) -> Result<(), Problem> {
    if report.trials.is_empty() {
        return Err(problem);
    }
    report.holds = false;
    report.reasons.push(format!("It ended before its time: {problem}."));
    Ok(())
}

const RECOVER: Duration = Duration::from_millis(500);
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
