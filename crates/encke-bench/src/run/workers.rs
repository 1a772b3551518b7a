//! The workers' master: starts them, assigns the shares, adds up the outcomes.

use std::io::BufReader;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::trial_run::{Event, Snapshot, Watch};
use super::wire::{self, FromWorker, ToWorker};
use crate::engine::Clients;
use crate::latencies::Latencies;
use crate::order::{ClientsSpec, Order, Size};
use crate::outcome::Outcome;
use crate::problem::Problem;

/// Processes of this program that share the clients.
#[derive(Debug)]
pub struct Workers {
    all: Vec<WorkerProcess>,
    messages: Receiver<WorkerMessage>,
}

#[derive(Debug)]
struct WorkerProcess {
    child: Child,
    orders: ChildStdin,
}

/// A message of a worker, or the end of its output.
type WorkerMessage = (usize, Result<Option<FromWorker>, Problem>);

impl Workers {
    /// Starts the workers and lets them open their shares.
    ///
    /// # Errors
    /// One cannot be started, dies, or cannot open its share.
    pub fn open(
        spec: &ClientsSpec,
        workers: u32,
        cores: &[usize],
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Workers, Problem> {
        let (send, messages) = channel();
        let mut started = Workers { all: Vec::new(), messages };
        for worker in 0..workers {
            started.all.push(start(worker as usize, send.clone())?);
            let core = (!cores.is_empty()).then(|| cores[worker as usize % cores.len()]);
            started.send(worker as usize, &ToWorker::Open { spec: spec.clone(), worker, workers, core })?;
        }
        let (mut open, mut opened, mut stopped) = (vec![0; started.all.len()], 0, false);
        while opened < started.all.len() {
            match started.next(EVERY)? {
                Some((worker, FromWorker::Opening(count))) => open[worker] = count,
                Some((_, FromWorker::Opened)) => opened += 1,
                _ => {}
            }
            if !progress(open.iter().sum()) && !stopped {
                stopped = true;
                started.send_all(&ToWorker::Stop)?;
            }
        }
        Ok(started)
    }

    /// Lets all workers run their shares of an order, and adds up the outcomes.
    ///
    /// # Errors
    /// A worker died or could not continue.
    pub fn run_trial(&mut self, order: &Order, watch: &mut Watch<'_>) -> Result<Outcome, Problem> {
        let begin_us = Clients::clock_us() + LEAD_US;
        self.send_all(&ToWorker::RunTrial { order: order.clone(), begin_us })?;
        let mut sum = Sum::new(self.all.len());
        let mut clock = Clock::new(order, begin_us);
        let mut stopped = false;
        while sum.done < self.all.len() {
            if let Some((worker, message)) = self.next(clock.timeout())?
                && sum.take(worker, message)
            {
                self.send_all(&ToWorker::Totals(std::mem::take(&mut sum.published)))?;
            }
            while let Some(event) = clock.due(&mut sum) {
                match event {
                    Due::WindowBegins => watch(Some(Event::WindowBegins)),
                    Due::WindowEnds => watch(Some(Event::WindowEnds)),
                    Due::Snapshot(snapshot) => watch(Some(Event::Snapshot(&snapshot))),
                };
            }
            let hopeless = sum.sent > 0 && sum.sent < self.all.len() && order.give_up_us.is_some() && clock.is_early();
            if !stopped && (!watch(None) || hopeless) {
                stopped = true;
                self.send_all(&ToWorker::Stop)?;
            }
        }
        if clock.marks < 2 {
            watch(Some(Event::WindowEnds));
        }
        watch(Some(Event::Snapshot(&sum.snapshot())));
        Ok(sum.outcome)
    }

    /// Asks all workers to disconnect, and waits briefly for their ends.
    pub fn disconnect(mut self) {
        // Workers that are gone have disconnected.
        let _ = self.send_all(&ToWorker::Disconnect);
        let end = Instant::now() + DISCONNECT_TIMEOUT;
        while Instant::now() < end && self.all.iter_mut().any(|worker| matches!(worker.child.try_wait(), Ok(None))) {
            thread::sleep(EVERY);
        }
    }

    fn send(&mut self, worker: usize, message: &ToWorker) -> Result<(), Problem> {
        if wire::write(&mut self.all[worker].orders, message).is_ok() {
            return Ok(());
        }
        // The worker's last message explains more than a broken pipe.
        while let Ok((from, message)) = self.messages.recv_timeout(LAST_MESSAGES) {
            if let (true, Ok(Some(FromWorker::Failed(failure)))) = (from == worker, message) {
                return Err(failure.into());
            }
        }
        Err(self.death(worker))
    }

    fn send_all(&mut self, message: &ToWorker) -> Result<(), Problem> {
        (0..self.all.len()).try_for_each(|worker| self.send(worker, message))
    }

    /// The next message of a worker, if it arrives in time.
    fn next(&mut self, timeout: Duration) -> Result<Option<(usize, FromWorker)>, Problem> {
        match self.messages.recv_timeout(timeout) {
            Ok((_, Ok(Some(FromWorker::Failed(failure))))) => Err(failure.into()),
            Ok((worker, Ok(Some(message)))) => Ok(Some((worker, message))),
            Ok((worker, Ok(None))) => Err(self.death(worker)),
            Ok((_, Err(problem))) => Err(problem),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Problem::Machine("all workers are gone".into())),
        }
    }

    fn death(&mut self, worker: usize) -> Problem {
        let (number, count) = (worker + 1, self.all.len());
        let child = &mut self.all[worker].child;
        let how = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        Problem::Machine(format!("worker {number} of {count} died: {how}"))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.all {
            // Most have ended by themselves.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}

/// The sum of the workers' reports on an order so far.
struct Sum {
    snapshots: Vec<Snapshot>,
    /// Latencies since the previous snapshot.
    latencies: Latencies,
    published: Vec<Vec<u32>>,
    sent: usize,
    outcome: Outcome,
    done: usize,
}

impl Sum {
    fn new(workers: usize) -> Self {
        Sum {
            snapshots: vec![Snapshot::default(); workers],
            latencies: Latencies::default(),
            published: vec![Vec::new(); workers],
            sent: 0,
            outcome: Outcome::default(),
            done: 0,
        }
    }

    /// Takes a worker's message. Returns true if all workers have now sent their totals.
    fn take(&mut self, worker: usize, message: FromWorker) -> bool {
        match message {
            FromWorker::Snapshot(snapshot) => {
                self.latencies += &snapshot.latencies;
                self.snapshots[worker] = snapshot;
            }
            FromWorker::Sent(published) => {
                self.published[worker] = published;
                self.sent += 1;
                return self.sent == self.snapshots.len();
            }
            FromWorker::Done(outcome) => {
                self.outcome += *outcome;
                self.done += 1;
            }
            FromWorker::Opening(_) | FromWorker::Opened | FromWorker::Failed(_) => {}
        }
        false
    }

    fn snapshot(&mut self) -> Snapshot {
        let sum = |part: fn(&Snapshot) -> u64| self.snapshots.iter().map(part).sum();
        Snapshot {
            connected: sum(|snapshot| snapshot.connected),
            sent: sum(|snapshot| snapshot.sent),
            received: sum(|snapshot| snapshot.received),
            latencies: std::mem::take(&mut self.latencies),
        }
    }
}

/// The times at which the master acts while the workers run.
struct Clock {
    window_us: [u64; 2],
    marks: usize,
    snapshot_us: u64,
}

enum Due {
    WindowBegins,
    WindowEnds,
    Snapshot(Snapshot),
}

impl Clock {
    fn new(order: &Order, begin_us: u64) -> Self {
        let first_us = begin_us + order.warm_up_ms * 1000;
        let last_us = match order.size {
            Size::Ms(ms) => first_us + ms * 1000,
            Size::Batches(_) => u64::MAX,
        };
        // Workers send a snapshot each second; shortly after, all have arrived.
        Clock { window_us: [first_us, last_us], marks: 0, snapshot_us: begin_us + SNAPSHOT_EVERY_US + TELL_US }
    }

    fn timeout(&self) -> Duration {
        let next_us = self.window_us.get(self.marks).copied().unwrap_or(u64::MAX).min(self.snapshot_us);
        Duration::from_micros(next_us.saturating_sub(Clients::clock_us())).min(EVERY)
    }

    /// Returns true before the end of the window.
    fn is_early(&self) -> bool {
        Clients::clock_us() < self.window_us[1]
    }

    fn due(&mut self, sum: &mut Sum) -> Option<Due> {
        let now_us = Clients::clock_us();
        if self.window_us.get(self.marks).is_some_and(|mark_us| now_us >= *mark_us) {
            self.marks += 1;
            return Some(if self.marks == 1 { Due::WindowBegins } else { Due::WindowEnds });
        }
        if now_us >= self.snapshot_us {
            self.snapshot_us += SNAPSHOT_EVERY_US;
            return Some(Due::Snapshot(sum.snapshot()));
        }
        None
    }
}

/// Starts a worker, and a thread that reads its messages.
fn start(worker: usize, send: Sender<WorkerMessage>) -> Result<WorkerProcess, Problem> {
    let program = std::env::current_exe()?;
    let mut command = Command::new(&program);
    command.args(WORKER_ARGS).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        Problem::Machine(format!("worker {} cannot be started as {}: {error}", worker + 1, program.display()))
    })?;
    let (Some(orders), Some(message)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Problem::Machine("a worker has no pipes".into()));
    };
    thread::spawn(move || {
        let mut lines = BufReader::new(message);
        loop {
            let read = wire::read(&mut lines);
            let is_last = !matches!(read, Ok(Some(_)));
            if send.send((worker, read)).is_err() || is_last {
                return;
            }
        }
    });
    Ok(WorkerProcess { child, orders })
}

/// The arguments that start this program as a worker.
const WORKER_ARGS: [&str; 2] = ["bench", "worker"];
const EVERY: Duration = Duration::from_millis(20);
/// The time from the order to the first planned time, enough for workers to read it.
const LEAD_US: u64 = 50_000;
const SNAPSHOT_EVERY_US: u64 = 1_000_000;
const TELL_US: u64 = 50_000;
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const LAST_MESSAGES: Duration = Duration::from_millis(500);
