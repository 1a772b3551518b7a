//! `self-test`: how much the load itself can take, and how much latency it adds.
//!
//! A thread of this process is the server: it sends ready-made frames and does nothing else ([`sender`]). A figure that comes near
//! these ones says something about the load, not about the server that was measured.

mod sender;

use std::time::{Duration, Instant};

use clap::Args;

use self::sender::{Mode, Sender, Sent};
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
        let modes = [
            ("all it can receive", Mode::Flood),
            ("a tenth of what is wanted", Mode::Paced { per_s: self.wanted / 10.0 }),
        ];
        for (name, mode) in modes {
            if !bench.interrupt.is_set() {
                report.trials.push(self.trial(bench, name, mode)?);
            }
        }
        Ok(report)
    }
}

impl SelfTest {
    fn trial(&self, bench: &mut Bench, name: &str, mode: Mode) -> Result<Trial, Problem> {
        let sender = Sender::start(self.sender_core, self.clients, mode)?;
        let mut crowd = Crowd::open(&self.spec(sender.address()), 0, 1, &mut |_| true)?;
        sender.go();
        let seen = self.receive(bench, &mut crowd)?;
        let sent = stopped(sender, &mut crowd)?;
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
        self.judge(&mut trial, rate);
        Ok(trial)
    }

    fn spec(&self, address: std::net::SocketAddr) -> CrowdSpec {
        CrowdSpec {
            target: format!("ws://{address}/"),
            transport: Transport::Raw,
            recovery: Recovery::default(),
            clients: self.clients,
            membership: Membership { channel: "/bench/a".into(), rooms: 1, per_client: 1, seed: 0, first: 0 },
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

    fn judge(&self, trial: &mut Trial, paced_per_s: Option<f64>) {
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
        let wanted = paced_per_s.map_or(self.wanted, |per_s| per_s * PACED_SHARE);
        if per_s < wanted {
            trial.reasons.push(format!("the load receives {per_s:.0} messages/s, wanted were {wanted:.0}"));
        }
        match trial.latency.as_ref().map(|latency| Duration::from_micros(latency.p99_us)) {
            // The sender is always ahead: what waits in the sockets is no latency of anybody.
            _ if paced_per_s.is_none() => trial.latency = None,
            Some(p99) if p99 <= self.added_p99 => {}
            Some(p99) => {
                trial.reasons.push(format!("the load adds a p99 of {p99:?}, wanted was {:?}", self.added_p99));
            }
            None => trial.reasons.push("no message was timed".into()),
        }
        trial.holds = trial.reasons.is_empty();
    }
}

/// Ends the sender; its last round is read meanwhile, or it would never get rid of it.
fn stopped(sender: Sender, crowd: &mut Crowd) -> Result<Sent, Problem> {
    sender.ask_to_stop();
    let patience = Instant::now() + PATIENCE;
    while !sender.has_ended() {
        if Instant::now() > patience {
            return Err(Problem::Machine(format!("the last round takes longer than {} s", PATIENCE.as_secs())));
        }
        crowd.turn(TURN)?;
    }
    sender.join()
}

/// Between two looks at the time.
const TURN: Duration = Duration::from_millis(1);
/// How long messages that were sent may stay under way.
const PATIENCE: Duration = Duration::from_secs(10);
/// Sequence numbers and the machine's patience end; nothing is learnt from a longer window.
const DURATION_MAX: Duration = Duration::from_secs(30);
const OPENING_AT_ONCE: u32 = 64;
/// How much of what is sent at a rate has to be received: a window does not begin and end with a round.
const PACED_SHARE: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(messages: u64, p99_us: Option<u64>, lost: u64, paced_per_s: Option<f64>) -> Trial {
        let test = SelfTest { clients: 1, sender_core: 0, wanted: 1000.0, added_p99: Duration::from_millis(1) };
        let mut trial = Trial {
            incoming: Flow { messages, window_ms: 1000, ..Flow::default() },
            latency: p99_us.map(|p99_us| crate::report::Latency { p99_us, ..Default::default() }),
            faults: Faults { lost, ..Faults::default() },
            ..Trial::default()
        };
        test.judge(&mut trial, paced_per_s);
        trial
    }

    #[test]
    fn a_load_that_is_too_slow_or_loses_messages_does_not_hold() {
        assert!(judged(1000, Some(5_000_000), 0, None).holds, "what waits behind a flood is no latency");
        assert!(!judged(999, None, 0, None).holds);
        assert!(!judged(5000, None, 1, None).holds);
    }

    #[test]
    fn at_a_rate_most_of_it_has_to_come_in_time() {
        let paced = Some(100.0);
        assert!(judged(100, Some(1000), 0, paced).holds);
        assert!(judged(90, Some(1000), 0, paced).holds);
        assert!(!judged(89, Some(1000), 0, paced).holds, "not what was sent");
        assert!(!judged(100, Some(1001), 0, paced).holds);
        assert!(!judged(100, None, 0, paced).holds, "nothing was timed");
    }

    #[test]
    fn a_sender_that_is_told_to_stop_ends_with_a_whole_round_though_sockets_are_full() {
        let test = SelfTest { clients: 3, sender_core: 0, wanted: 1.0, added_p99: Duration::from_millis(1) };
        // The slow one is at its second round when it is told to stop, which would take a hundred seconds.
        for mode in [Mode::Flood, Mode::Paced { per_s: 0.3 }] {
            let sender = Sender::start(test.sender_core, test.clients, mode).expect("starts");
            let mut crowd = Crowd::open(&test.spec(sender.address()), 0, 1, &mut |_| true).expect("opens");
            sender.go();
            while crowd.counts().received == 0 {
                crowd.turn(TURN).expect("turns");
            }
            // Nobody reads: the flood stops in the middle of a round.
            std::thread::sleep(Duration::from_millis(200));
            let sent = stopped(sender, &mut crowd).expect("ends");
            let all = [Published { next: vec![sent.messages] }];
            let until = Instant::now() + PATIENCE;
            while crowd.counts().received < crowd.expected(&all) && Instant::now() < until {
                crowd.turn(TURN).expect("turns");
            }
            assert!(crowd.faults(&all).none(), "{mode:?}: {:?}", crowd.faults(&all));
        }
    }
}
