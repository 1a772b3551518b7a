//! Observations during an order: samples each second, the server's process, progress, Ctrl-C.

use std::time::{Duration, Instant};

use super::interrupt::Interrupt;
use super::latency;
use super::progress::Progress;
use super::trial_run::{Event, Snapshot};
use crate::machine::{Process, all_cpu};
use crate::outcome::Outcome;
use crate::report::units::{bytes, count, micros, number};
use crate::report::{Sample, Server, Trial};

/// Watches one trial.
#[derive(Debug)]
pub struct Watcher<'a> {
    /// The phase, for the progress line.
    pub phase: &'a str,
    /// The server's process, where it can be watched.
    pub server: Option<Process>,
    /// Prints the progress.
    pub progress: &'a mut Progress,
    /// Ends the trial.
    pub interrupt: &'a Interrupt,
    began: Instant,
    marks: Vec<Mark>,
    samples: Vec<Sample>,
    last: (Instant, Option<Duration>),
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    server: Option<Duration>,
    all: Duration,
}

/// The observations of a trial.
#[derive(Debug)]
pub struct Observed {
    /// About one per second.
    pub samples: Vec<Sample>,
    /// The server in the measured window, without its memory before the clients connected.
    pub server: Option<Server>,
    /// Cores that neither the load nor the server used, where the server was watched.
    pub others_cores: Option<f64>,
}

impl Observed {
    /// A trial with these observations and the figures of an outcome.
    pub fn trial(self, outcome: &Outcome) -> Trial {
        Trial {
            expected: outcome.expected,
            faults: outcome.faults,
            outgoing: outcome.outgoing,
            incoming: outcome.incoming,
            latency: latency::summary(&outcome.latencies),
            server: self.server,
            load_cores: outcome.usage.cpu_s / outcome.usage.window_s.max(MOMENT_S),
            others_cores: self.others_cores,
            samples: self.samples,
            ..Trial::default()
        }
    }
}

impl<'a> Watcher<'a> {
    /// Begins to watch.
    pub fn new(
        phase: &'a str,
        server: Option<Process>,
        progress: &'a mut Progress,
        interrupt: &'a Interrupt,
    ) -> Watcher<'a> {
        let began = Instant::now();
        let cpu = server.and_then(|server| server.cpu().ok());
        Watcher {
            phase,
            server,
            progress,
            interrupt,
            began,
            marks: Vec::new(),
            samples: Vec::new(),
            last: (began, cpu),
        }
    }

    /// Handles an event. Returns false if the run is to end.
    pub fn take(&mut self, event: Option<Event<'_>>) -> bool {
        match event {
            None => {}
            Some(Event::Snapshot(snapshot)) => self.snapshot(snapshot),
            Some(Event::WindowBegins | Event::WindowEnds) => {
                let mark = Mark { at: Instant::now(), server: self.server_cpu(), all: all_cpu() };
                self.marks.push(mark);
            }
        }
        !self.interrupt.is_set()
    }

    /// The observations, completed with the trial's outcome.
    pub fn conclude(self, outcome: &Outcome) -> Observed {
        let rss_bytes = self.rss_bytes();
        let server = self.server(outcome, rss_bytes);
        let load = outcome.usage.cpu_s / outcome.usage.window_s.max(MOMENT_S);
        let others_cores = match (self.window(), server) {
            (Some((first, last, window_s)), Some(server)) => {
                let all = last.all.saturating_sub(first.all).as_secs_f64() / window_s;
                Some((all - load - server.cores).max(0.0))
            }
            _ => None,
        };
        Observed { samples: self.samples, server, others_cores }
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        let before = self.samples.last().copied().unwrap_or_default();
        let sample = self.sample(snapshot);
        let seconds = (sample.at_ms - before.at_ms).max(1) as f64 / 1000.0;
        let (phase, began) = (self.phase, self.began);
        self.progress.tick(|| line(phase, began, &sample, &before, seconds));
    }

    fn sample(&mut self, snapshot: &Snapshot) -> Sample {
        let (now, cpu) = (Instant::now(), self.server_cpu());
        let seconds = now.duration_since(self.last.0).as_secs_f64().max(MOMENT_S);
        let used = cpu.zip(self.last.1).map(|(cpu, last)| cpu.saturating_sub(last).as_secs_f64());
        self.last = (now, cpu);
        let sample = Sample {
            at_ms: now.duration_since(self.began).as_millis() as u64,
            connected: snapshot.connected,
            sent: snapshot.sent,
            received: snapshot.received,
            p99_us: snapshot.latencies.at_share(0.99),
            server_cores: used.map(|used| used / seconds),
            server_rss_bytes: self.rss_bytes(),
        };
        self.samples.push(sample);
        sample
    }

    fn server(&self, outcome: &Outcome, rss_bytes: Option<u64>) -> Option<Server> {
        let (first, last, window_s) = self.window()?;
        let used_s = last.server?.saturating_sub(first.server?).as_secs_f64();
        let rss_after_bytes = rss_bytes.unwrap_or(0);
        let peak = self.samples.iter().filter_map(|sample| sample.server_rss_bytes).max().unwrap_or(0);
        let deliveries = outcome.incoming.messages.max(1) as f64;
        Some(Server {
            cores: used_s / window_s,
            ns_per_delivery: if outcome.incoming.messages == 0 { 0.0 } else { used_s * 1e9 / deliveries },
            rss_before_bytes: 0,
            rss_peak_bytes: peak.max(rss_after_bytes),
            rss_after_bytes,
        })
    }

    fn window(&self) -> Option<(Mark, Mark, f64)> {
        let (first, last) = (*self.marks.first()?, *self.marks.get(1)?);
        Some((first, last, last.at.duration_since(first.at).as_secs_f64().max(MOMENT_S)))
    }

    fn server_cpu(&self) -> Option<Duration> {
        self.server.and_then(|server| server.cpu().ok())
    }

    fn rss_bytes(&self) -> Option<u64> {
        self.server.and_then(|server| server.rss_bytes().ok())
    }
}

fn line(phase: &str, began: Instant, now: &Sample, before: &Sample, seconds: f64) -> String {
    let per_s = |now: u64, before: u64| number(now.saturating_sub(before) as f64 / seconds);
    let mut line = format!(
        "{:>4} s  {phase}  {} open  {} sent/s  {} received/s",
        began.elapsed().as_secs(),
        count(now.connected),
        per_s(now.sent, before.sent),
        per_s(now.received, before.received),
    );
    if now.p99_us > 0 {
        line += &format!("  p99 {}", micros(now.p99_us as f64));
    }
    if let Some(cores) = now.server_cores {
        line += &format!("  server {:.0} %", cores * 100.0);
    }
    if let Some(rss_bytes) = now.server_rss_bytes {
        line += &format!(" {}", bytes(rss_bytes as f64));
    }
    line
}

/// The shortest window.
const MOMENT_S: f64 = 1e-6;
