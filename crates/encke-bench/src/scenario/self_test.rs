//! `self-test`: the capacity of the load itself, and the latency it adds.
//!
//! A thread of this process is the server: it only sends ready-made frames ([`sender`]). A measured rate near this one
//! describes the load, not the server. The added latency is relative to a bare reader ([`bare`]), since both share the
//! machine's own delays.

mod bare;
mod reads;
mod sender;

use std::time::{Duration, Instant};

use clap::Args;

use self::bare::Bare;
use self::reads::Reads;
use self::sender::{Mode, Sender, Sent};
use super::Scenario;
use crate::engine::{Clients, Published};
use crate::latencies::Latencies;
use crate::machine::{self, own_cpu};
use crate::order::{ClientsSpec, Membership, Recovery, Transport, Trust};
use crate::problem::Problem;
use crate::report::{Faults, Figure, Flow, Report, Trial};
use crate::run::latency;
use crate::run::{Bench, parse};

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
    /// The p99 that the load may add to a bare reader's at a tenth of that
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse::some_duration)]
    pub added_p99: Duration,
}

impl Scenario for SelfTest {
    const NAME: &'static str = "self-test";
    const TITLE: &'static str = "The capacity of the load itself on one core, and the latency that it adds";
    const STANDS_FOR: &'static str = "Not from a published benchmark: it shows that the load is not the limit of the other scenarios. It needs \
        no server: a thread sends ready-made frames to all sockets, first as fast as it can, then at a tenth of --wanted. \
        Each frame has the time at which it was sent. At that rate the load takes turns with a bare reader, and only the \
        difference to the reader's p99 counts.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        if bench.common.core.is_empty() {
            machine::pin(usize::from(self.sender_core == 0))?;
        }
        let mut report = bench.report::<Self>();
        report.target = "a thread of the load".into();
        let length = bench.common.duration.min(DURATION_MAX);
        if !bench.interrupt.is_set() {
            let seen = self.load(bench, Mode::Flood, bench.common.warm_up, length)?;
            report.trials.push(self.judged("all it can receive", seen, None));
        }
        report.trials.extend(self.beside(bench, length / ROUNDS)?);
        Ok(report)
    }
}

impl SelfTest {
    /// The load and a bare reader in turns.
    fn beside(&self, bench: &mut Bench, length: Duration) -> Result<Vec<Trial>, Problem> {
        let per_s = self.wanted / 10.0;
        let mode = Mode::Paced { per_s };
        let warm_up = bench.common.warm_up.min(ROUND_WARM_UP_MAX);
        let (mut load, mut bare) = (Measured::default(), Measured::default());
        for _ in 0..ROUNDS {
            if bench.interrupt.is_set() {
                break;
            }
            bare.add(self.bare(bench, mode, warm_up, length)?);
            load.add(self.load(bench, mode, warm_up, length)?);
        }
        if load.flow.window_ms == 0 {
            return Ok(Vec::new());
        }
        let added_us = load.p99_us().saturating_sub(bare.p99_us());
        let mut bare = bare.into_trial("the same, read bare", self.clients);
        bare.holds = true;
        Ok(vec![self.judged("a tenth of what is wanted", load, Some((per_s, added_us))), bare])
    }

    /// Through the engine that all scenarios have.
    fn load(&self, bench: &mut Bench, mode: Mode, warm_up: Duration, length: Duration) -> Result<Measured, Problem> {
        let sender = Sender::start(self.sender_core, self.clients, mode)?;
        let mut clients = Clients::open(&self.spec(sender.address()), 0, 1, &mut |_| true)?;
        let (seen, sent) = self.receive(bench, sender, &mut clients, warm_up, length)?;
        let faults = clients.faults(&[Published { next: vec![sent.messages] }]);
        clients.disconnect();
        Ok(Measured { faults, ..seen })
    }

    fn bare(&self, bench: &mut Bench, mode: Mode, warm_up: Duration, length: Duration) -> Result<Measured, Problem> {
        let sender = Sender::start(self.sender_core, self.clients, mode)?;
        let mut bare = Bare::open(sender.address(), self.clients)?;
        let (seen, _) = self.receive(bench, sender, &mut bare, warm_up, length)?;
        let lost = seen.expected.saturating_sub(bare.received().messages);
        Ok(Measured { faults: Faults { lost, ..Faults::default() }, ..seen })
    }

    fn spec(&self, address: std::net::SocketAddr) -> ClientsSpec {
        ClientsSpec {
            target: format!("ws://{address}/"),
            publish_to: None,
            trust: Trust::default(),
            transport: Transport::Raw,
            recovery: Recovery::default(),
            compress: false,
            streams_per_connection: None,
            clients: self.clients,
            membership: Membership { channel: "/bench/a".into(), rooms: 1, per_client: 1, seed: 0, first: 0 },
            publishers: 0,
            opening_at_once: OPENING_AT_ONCE,
            opens_per_s: None,
            reconnect: false,
            no_reply: false,
        }
    }

    /// Runs the warm-up, then the measured window, then reads the rest.
    fn receive(
        &self,
        bench: &mut Bench,
        sender: Sender,
        reader: &mut impl Reads,
        warm_up: Duration,
        length: Duration,
    ) -> Result<(Measured, Sent), Problem> {
        sender.go();
        let until = Instant::now() + warm_up;
        while Instant::now() < until && !bench.interrupt.is_set() {
            reader.turn(TURN)?;
        }
        let mut seen = Measured::default();
        let (before, own, began) = (reader.received(), own_cpu(), Instant::now());
        while began.elapsed() < length && !bench.interrupt.is_set() {
            let slice_end = (began.elapsed() + SLICE).min(length);
            reader.time_from_now();
            while began.elapsed() < slice_end && !bench.interrupt.is_set() {
                reader.turn(TURN)?;
                bench.progress.tick(|| {
                    let received = reader.received().messages - before.messages;
                    format!("receiving {:.0} messages/s", received as f64 / began.elapsed().as_secs_f64())
                });
            }
            seen.add_slice(reader.latencies());
        }
        bench.progress.clear();
        let (after, took) = (reader.received(), began.elapsed());
        seen.cpu = own_cpu() - own;
        seen.flow = Flow {
            messages: after.messages - before.messages,
            batches: after.batches - before.batches,
            bytes: after.bytes - before.bytes,
            window_ms: took.as_millis() as u64,
        };
        let sent = stopped(sender, reader)?;
        let timeout = Instant::now() + TIMEOUT;
        seen.expected = u64::from(sent.messages) * u64::from(self.clients);
        while reader.received().messages < seen.expected && Instant::now() < timeout {
            reader.turn(LAST_TURN)?;
        }
        Ok((seen, sent))
    }

    /// `paced` is the rate it was sent at, and the microseconds by which its p99 is above a bare reader's.
    fn judged(&self, name: &str, seen: Measured, paced: Option<(f64, u64)>) -> Trial {
        let mut trial = seen.into_trial(name, self.clients);
        let per_s = trial.incoming.messages_per_s();
        let figure = |name: &str, value, unit: &str| Figure { name: name.into(), value, unit: unit.into() };
        trial.figures.push(figure("received per second", per_s.round(), "messages/s"));
        let Faults { lost, doubled, reordered, .. } = trial.faults;
        if !trial.faults.none() {
            trial.reasons.push(format!("{lost} messages were lost, {doubled} doubled, {reordered} out of order"));
        }
        let wanted = paced.map_or(self.wanted, |(per_s, _)| per_s * PACED_SHARE);
        if per_s < wanted {
            trial.reasons.push(format!("the load receives {per_s:.0} messages/s, wanted were {wanted:.0}"));
        }
        match paced {
            // The sender is always ahead, so the time that frames wait in the sockets is no latency.
            None => trial.latency = None,
            Some(_) if trial.latency.is_none() => trial.reasons.push("no message was timed".into()),
            Some((per_s, added_us)) => {
                trial.planned_per_s = Some(per_s);
                trial.figures.push(figure("p99 added", added_us as f64, "µs"));
                let added = Duration::from_micros(added_us);
                if added > self.added_p99 {
                    let wanted = self.added_p99;
                    let reason = format!("the load adds {added:?} to a bare reader's p99, wanted was {wanted:?}");
                    trial.reasons.push(reason);
                }
            }
        }
        trial.holds = trial.reasons.is_empty();
        trial
    }
}

/// The measurements of one round, or of several.
#[derive(Debug, Default)]
struct Measured {
    flow: Flow,
    expected: u64,
    faults: Faults,
    latencies: Latencies,
    /// The p99 of each slice of time.
    slices_p99_us: Vec<u64>,
    cpu: Duration,
}

impl Measured {
    fn add_slice(&mut self, latencies: &Latencies) {
        if latencies.count() > 0 {
            self.slices_p99_us.push(latencies.at_share(0.99));
        }
        self.latencies += latencies;
    }

    fn add(&mut self, other: Measured) {
        self.flow += other.flow;
        self.expected += other.expected;
        self.faults += other.faults;
        self.latencies += &other.latencies;
        self.slices_p99_us.extend(other.slices_p99_us);
        self.cpu += other.cpu;
    }

    /// The lower quartile of the slices. Other processes disturb some slices and only ever add latency; a permanent
    /// delay is in the quiet slices, too.
    fn p99_us(&self) -> u64 {
        let mut sorted = self.slices_p99_us.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 4).copied().unwrap_or(0)
    }

    fn into_trial(self, name: &str, clients: u32) -> Trial {
        Trial {
            name: name.into(),
            clients: clients.into(),
            expected: self.expected,
            faults: self.faults,
            incoming: self.flow,
            latency: latency::summary(&self.latencies),
            load_cores: self.cpu.as_secs_f64() * 1000.0 / self.flow.window_ms.max(1) as f64,
            ..Trial::default()
        }
    }
}

/// Stops the sender. Its last round is read meanwhile, since it could not be written otherwise.
fn stopped(sender: Sender, reader: &mut impl Reads) -> Result<Sent, Problem> {
    sender.ask_to_stop();
    let timeout = Instant::now() + TIMEOUT;
    while !sender.has_ended() {
        if Instant::now() > timeout {
            return Err(Problem::Machine(format!("the last round takes longer than {} s", TIMEOUT.as_secs())));
        }
        reader.turn(TURN)?;
    }
    sender.join()
}

/// The time between two checks of the clock.
const TURN: Duration = Duration::from_millis(1);
/// Time for the sent messages to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Sequence numbers are limited, and a longer window adds no information.
const DURATION_MAX: Duration = Duration::from_secs(30);
const OPENING_AT_ONCE: u32 = 64;
const LAST_TURN: Duration = Duration::from_millis(5);
/// The number of turns of the load and the bare reader.
const ROUNDS: u32 = 5;
/// The length of a slice with its own p99.
const SLICE: Duration = Duration::from_millis(250);
const ROUND_WARM_UP_MAX: Duration = Duration::from_millis(300);
/// The share of a paced rate that has to arrive: a window does not align with rounds.
const PACED_SHARE: f64 = 0.9;

#[cfg(test)]
mod tests {
    use super::*;

    fn test() -> SelfTest {
        SelfTest { clients: 1, sender_core: 0, wanted: 1000.0, added_p99: Duration::from_millis(1) }
    }

    fn judged(messages: u64, lost: u64, paced: Option<(f64, u64)>) -> Trial {
        let mut seen = Measured {
            flow: Flow { messages, window_ms: 1000, ..Flow::default() },
            faults: Faults { lost, ..Faults::default() },
            ..Measured::default()
        };
        seen.add_slice(&Latencies::from_iter([(5_000_000, 1)]));
        test().judged("", seen, paced)
    }

    #[test]
    fn a_load_that_is_too_slow_or_loses_messages_does_not_hold() {
        let trial = judged(1000, 0, None);
        assert!(trial.holds && trial.latency.is_none(), "what waits behind a flood is no latency");
        assert!(!judged(999, 0, None).holds);
        assert!(!judged(5000, 1, None).holds);
    }

    #[test]
    fn at_a_rate_most_of_it_has_to_come_and_little_latency_may_be_added() {
        assert!(judged(100, 0, Some((100.0, 1000))).holds);
        assert!(judged(90, 0, Some((100.0, 0))).holds);
        assert!(!judged(89, 0, Some((100.0, 0))).holds, "not what was sent");
        let late = judged(100, 0, Some((100.0, 1001)));
        assert_eq!(late.reasons, ["the load adds 1.001ms to a bare reader's p99, wanted was 1ms"]);
        assert!(!test().judged("", Measured::default(), Some((0.0, 0))).holds, "nothing was timed");
    }

    #[test]
    fn a_p99_is_that_of_the_quiet_slices_of_all_rounds() {
        let mut all = Measured::default();
        for p99s_us in [[7, 9000], [3, 9000], [9000, 8]] {
            let mut round = Measured::default();
            p99s_us.into_iter().for_each(|us| round.add_slice(&Latencies::from_iter([(1, 90), (us, 10)])));
            round.add_slice(&Latencies::default());
            all.add(round);
        }
        assert_eq!((all.p99_us(), all.latencies.max_us(), all.slices_p99_us.len()), (7, 9000, 6));
        assert_eq!(all.latencies.count(), 600);
    }

    #[test]
    fn a_stopped_sender_completes_its_round_though_sockets_are_full() {
        let test = SelfTest { clients: 3, sender_core: 0, wanted: 1.0, added_p99: Duration::from_millis(1) };
        // The slow sender is in its second round, which would take a hundred seconds, when it is stopped.
        for mode in [Mode::Flood, Mode::Paced { per_s: 0.3 }] {
            let sender = Sender::start(test.sender_core, test.clients, mode).expect("starts");
            let mut clients = Clients::open(&test.spec(sender.address()), 0, 1, &mut |_| true).expect("opens");
            sender.go();
            while clients.counts().received == 0 {
                clients.turn(TURN).expect("turns");
            }
            // Without a reader, the flood stops in the middle of a round.
            std::thread::sleep(Duration::from_millis(200));
            let sent = stopped(sender, &mut clients).expect("ends");
            let all = [Published { next: vec![sent.messages] }];
            let until = Instant::now() + TIMEOUT;
            while clients.counts().received < clients.expected(&all) && Instant::now() < until {
                clients.turn(TURN).expect("turns");
            }
            assert!(clients.faults(&all).none(), "{mode:?}: {:?}", clients.faults(&all));
        }
    }
}
