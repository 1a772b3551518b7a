//! The memory of an idle session.

use std::time::{Duration, Instant};

use clap::Args;

use super::{Scenario, parts};
use crate::machine::{Memory, Process};
use crate::problem::Problem;
use crate::report::units::count;
use crate::report::{Figure, Report, Sample, Server, Trial};
use crate::run::{Bench, Carriage, Generator, parse};

/// `encke bench idle`.
#[derive(Clone, Debug, Args)]
pub struct Idle {
    /// Sessions to open, one subscription each
    #[arg(long, alias = "clients", value_name = "N", default_value = "9000", value_parser = parse::count)]
    pub sessions: u32,
    /// Subscribe each session to a separate channel instead of a common one
    #[arg(long)]
    pub own_channels: bool,
    /// Transport and recovery.
    #[command(flatten)]
    pub carriage: Carriage,
}

impl Scenario for Idle {
    const NAME: &'static str = "idle";
    const TITLE: &'static str = "Idle sessions: the server's memory for each";
    const STANDS_FOR: &'static str = "Stands for the question of \"20,000 reasons that Comet scales\" (2008): how many clients that mostly wait fit into a \
         server. Memory is the growth of the resident set, after it has settled. Needs the server's process.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let mut report = bench.report::<Self>();
        // A few sessions first: one-time allocations are not a session's cost. Only a reachable server has a process to
        // watch.
        let Some(mut warm) = self.open(bench, WARM_SESSIONS)? else { return Ok(report) };
        let process = bench.watched()?;
        let mut watch = Settling { process, began: Instant::now(), samples: Vec::new() };
        let before = watch.settled(bench, &mut warm)?;
        let Some(mut generator) = self.open(bench, self.sessions)? else { return Ok(report) };
        let with_all = watch.settled(bench, &mut generator)?;
        let dropped = super::local_clients(&mut generator).map_or(0, |clients| clients.counts().dropped);
        generator.disconnect();
        let after = watch.settled(bench, &mut warm)?;
        warm.disconnect();
        report.trials.push(self.trial([before, with_all, after], dropped, watch.samples));
        Ok(report)
    }
}

impl Idle {
    fn open(&self, bench: &mut Bench, sessions: u32) -> Result<Option<Generator>, Problem> {
        let rooms = if self.own_channels { sessions } else { 1 };
        let membership = parts::membership("/bench/idle", rooms, 1);
        super::opened(bench, &parts::clients_spec(bench, &self.carriage, sessions, 0, membership))
    }

    fn trial(&self, memory: [Memory; 3], dropped: u64, samples: Vec<Sample>) -> Trial {
        let [before, with_all, after] = memory;
        let per_session =
            |kind: fn(&Memory) -> u64| (kind(&with_all) as f64 - kind(&before) as f64) / f64::from(self.sessions);
        let (grown, retained) =
            (with_all.rss_bytes.saturating_sub(before.rss_bytes), after.rss_bytes.saturating_sub(before.rss_bytes));
        let figure = |name: &str, value: f64, unit: &str| Figure { name: name.into(), value, unit: unit.into() };
        let mut trial = Trial {
            name: format!("{} sessions", count(self.sessions.into())),
            clients: self.sessions.into(),
            samples,
            figures: vec![
                figure("resident memory per session", per_session(|memory| memory.rss_bytes), "bytes"),
                figure("proportional memory per session", per_session(|memory| memory.pss_bytes), "bytes"),
                figure("retained after all left", retained as f64 * 100.0 / grown.max(1) as f64, "%"),
            ],
            server: Some(Server {
                rss_before_bytes: before.rss_bytes,
                rss_peak_bytes: with_all.rss_bytes,
                rss_after_bytes: after.rss_bytes,
                ..Server::default()
            }),
            holds: dropped == 0,
            ..Trial::default()
        };
        trial.faults.dropped_sessions = dropped;
        if dropped > 0 {
            trial.reasons.push(format!("{dropped} idle sessions were dropped."));
        }
        trial
    }
}

struct Settling {
    process: Process,
    began: Instant,
    samples: Vec<Sample>,
}

impl Settling {
    /// Memory when it has not moved by more than 1 % for seven seconds, or after 30 seconds, or on Ctrl-C.
    fn settled(&mut self, bench: &mut Bench, generator: &mut Generator) -> Result<Memory, Problem> {
        let end = Instant::now() + SETTLE_MAX;
        let (mut reference, mut still_since) = (self.process.memory()?, Instant::now());
        while Instant::now() < end && still_since.elapsed() < SETTLE && !bench.interrupt.is_set() {
            let Some(clients) = super::local_clients(generator) else { break };
            let next = Instant::now() + SAMPLE_EVERY;
            while Instant::now() < next {
                clients.turn(next.saturating_duration_since(Instant::now()))?;
            }
            let (memory, connected) = (self.process.memory()?, clients.counts().connected);
            self.samples.push(Sample {
                at_ms: self.began.elapsed().as_millis() as u64,
                connected,
                server_rss_bytes: Some(memory.rss_bytes),
                ..Sample::default()
            });
            bench.progress.tick(|| format!("settling  {connected} open  {} KiB", memory.rss_bytes / 1024));
            if memory.rss_bytes.abs_diff(reference.rss_bytes) > reference.rss_bytes / 100 {
                (reference, still_since) = (memory, Instant::now());
            }
        }
        self.process.memory()
    }
}

const WARM_SESSIONS: u32 = 16;
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
/// Longer than the pause of some seconds after which a quiet server returns free memory to the system once more.
const SETTLE: Duration = Duration::from_secs(7);
const SETTLE_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Transport;

    #[test]
    fn a_sessions_cost_is_the_growth_by_their_number() {
        let idle = Idle {
            sessions: 100,
            own_channels: false,
            carriage: Carriage {
                transport: Transport::Websocket,
                opening: 1,
                ack: false,
                replay: false,
                publish_to: None,
                compress: false,
                http2: false,
                streams_per_connection: None,
            },
        };
        let memory = |rss_bytes| Memory { rss_bytes, pss_bytes: rss_bytes / 2 };
        let trial = idle.trial([memory(1_000_000), memory(1_200_000), memory(1_050_000)], 0, Vec::new());
        let values: Vec<f64> = trial.figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [2000.0, 1000.0, 25.0]);
        assert!(trial.holds);
        assert!(!idle.trial([memory(1), memory(2), memory(1)], 3, Vec::new()).holds);
    }
}
