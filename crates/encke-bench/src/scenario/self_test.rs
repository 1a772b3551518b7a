//! `self-test`: how much the load itself can take, and how much latency it adds.
//!
//! A thread of this process is the server: it sends ready-made frames and does nothing else ([`sender`]). A figure that comes near
//! these ones says something about the load, not about the server that was measured.

mod sender;

use std::time::{Duration, Instant};

use clap::Args;

use self::sender::{Mode, Sender};
use super::Scenario;
use crate::engine::{Crowd, Published};
use crate::machine::{self, own_cpu};
use crate::problem::Problem;
use crate::report::{Faults, Figure, Flow, Report, Trial};
use crate::run::{Bench, CrowdSpec, Membership, Recovery, Transport, latency, parse};

/// Options of `self-test`.
#[derive(Clone, Debug, Args)]
pub struct SelfTest {
    /// Sockets to receive from
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse::count)]
    pub clients: u32,
    /// The core of the thread that sends; the load stays on --core, or on another one
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub sender_core: usize,
    /// Messages per second that the load has to be able to receive
    #[arg(long, value_name = "N", default_value = "3000000", value_parser = parse::rate)]
    pub wanted: f64,
    /// The p99 that the load may add at a tenth of that
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse::some_duration)]
    pub added_p99: Duration,
}

impl Scenario for SelfTest {
    const NAME: &'static str = "self-test";
    const TITLE: &'static str = "How much the load itself can receive on one core, and how much latency it adds";
    const STANDS_FOR: &'static str = "No post's benchmark: it shows that the load is not the limit of the others. It needs \
        no server: a thread sends ready-made frames to all sockets, first as fast as it can, then a tenth of --wanted, each \
        stamped at the moment it is sent.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        if bench.common.core.is_empty() {
            machine::pin(usize::from(self.sender_core == 0))?;
        }
        let mut report = bench.report::<Self>();
        report.target = "a thread of the load".into();
        let most = self.trial(bench, "all it can receive", Mode::Flood)?;
        let paced = self.trial(bench, "a tenth of what is wanted", Mode::Paced { per_s: self.wanted / 10.0 })?;
        report.trials.extend([most, paced]);
        Ok(report)
    }
}

impl SelfTest {
    fn trial(&self, bench: &mut Bench, name: &str, mode: Mode) -> Result<Trial, Problem> {
        let sender = Sender::start(self.sender_core, self.clients, mode)?;
        let mut crowd = Crowd::open(&self.spec(sender.address()), 0, 1, &mut |_| true)?;
        sender.go();
        let seen = self.receive(bench, &mut crowd)?;
        let sent = sender.stop()?;
        let patience = Instant::now() + PATIENCE;
        let all = [Published { next: vec![sent.messages] }];
        while crowd.counts().received < u64::from(sent.messages) * u64::from(self.clients) && Instant::now() < patience
        {
            crowd.turn(Duration::from_millis(5))?;
        }
        let faults = crowd.faults(&all);
        let expected = crowd.expected(&all);
        crowd.leave();
        let rate = if let Mode::Paced { per_s } = mode { Some(per_s) } else { None };
        let mut trial = Trial { name: name.into(), clients: self.clients.into(), planned_per_s: rate, ..seen };
        (trial.faults, trial.expected) = (faults, expected);
        self.judge(&mut trial, rate.is_some());
        Ok(trial)
    }

    fn spec(&self, address: std::net::SocketAddr) -> CrowdSpec {
        CrowdSpec {
            target: format!("ws://{address}/"),
            transport: Transport::Raw,
            recovery: Recovery::default(),
            clients: self.clients,
            membership: Membership { channel: "/bench/a".into(), rooms: 1, per_client: 1, seed: 0 },
            publishers: 0,
            opening_at_once: OPENING_AT_ONCE,
            opens_per_s: None,
            reconnect: false,
        }
    }

    /// Warm-up, then the window that counts.
    fn receive(&self, bench: &mut Bench, crowd: &mut Crowd) -> Result<Trial, Problem> {
        let until = Instant::now() + bench.common.warm_up;
        while Instant::now() < until && !bench.interrupt.is_set() {
            crowd.turn(TURN)?;
        }
        crowd.time_from(Crowd::clock_us(), 1, u64::MAX);
        let (before, own, began) = (crowd.counts(), own_cpu(), Instant::now());
        while began.elapsed() < bench.common.duration.min(DURATION_MAX) && !bench.interrupt.is_set() {
            crowd.turn(TURN)?;
            let received = crowd.counts().received - before.received;
            let per_s = received as f64 / began.elapsed().as_secs_f64();
            bench.progress.tick(|| format!("receiving {per_s:.0} messages/s"));
        }
        bench.progress.clear();
        let (after, took) = (crowd.counts(), began.elapsed());
        let (counted, max_us) = crowd.latencies_us();
        Ok(Trial {
            incoming: Flow {
                messages: after.received - before.received,
                carriers: after.received_carriers - before.received_carriers,
                bytes: after.received_bytes - before.received_bytes,
                window_ms: took.as_millis() as u64,
            },
            latency: latency::summary(&counted, max_us),
            load_cores: (own_cpu() - own).as_secs_f64() / took.as_secs_f64(),
            ..Trial::default()
        })
    }

    fn judge(&self, trial: &mut Trial, paced: bool) {
        let per_s = trial.incoming.messages_per_s();
        trial.figures.push(Figure {
            name: "received per second".into(),
            value: per_s.round(),
            unit: "messages/s".into(),
        });
        let Faults { lost, doubled, reordered, .. } = trial.faults;
        if !trial.faults.none() {
            trial.reasons.push(format!("{lost} messages were lost, {doubled} doubled, {reordered} out of order"));
        }
        let p99 = Duration::from_micros(trial.latency.as_ref().map_or(0, |latency| latency.p99_us));
        if paced && p99 > self.added_p99 {
            trial.reasons.push(format!("the load adds a p99 of {p99:?}, wanted was {:?}", self.added_p99));
        }
        if !paced {
            // The sender is always ahead: what waits in the sockets is no latency of anybody.
            trial.latency = None;
            if per_s < self.wanted {
                trial.reasons.push(format!("the load receives {per_s:.0} messages/s, wanted were {:.0}", self.wanted));
            }
        }
        trial.holds = trial.reasons.is_empty();
    }
}

/// Between two looks at the time.
const TURN: Duration = Duration::from_millis(1);
/// How long messages that were sent may stay under way.
const PATIENCE: Duration = Duration::from_secs(10);
/// Sequence numbers and the machine's patience end; nothing is learnt from a longer window.
const DURATION_MAX: Duration = Duration::from_secs(30);
const OPENING_AT_ONCE: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(messages: u64, p99_us: u64, lost: u64, paced: bool) -> Trial {
        let test = SelfTest { clients: 1, sender_core: 0, wanted: 1000.0, added_p99: Duration::from_millis(1) };
        let mut trial = Trial {
            incoming: Flow { messages, window_ms: 1000, ..Flow::default() },
            latency: Some(crate::report::Latency { p99_us, ..Default::default() }),
            faults: Faults { lost, ..Faults::default() },
            ..Trial::default()
        };
        test.judge(&mut trial, paced);
        trial
    }

    #[test]
    fn a_load_that_is_too_slow_adds_latency_or_loses_messages_does_not_hold() {
        assert!(judged(1000, 5_000_000, 0, false).holds, "what waits behind a flood is no latency");
        assert!(!judged(999, 0, 0, false).holds);
        assert!(judged(100, 1000, 0, true).holds);
        assert!(!judged(100, 1001, 0, true).holds);
        assert!(!judged(5000, 0, 1, false).holds);
    }
}
