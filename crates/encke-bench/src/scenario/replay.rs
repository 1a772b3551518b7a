//! Many clients that replay a long history at the same time.

use std::time::{Duration, Instant};

use clap::Args;

use super::{Scenario, parts};
use crate::engine::{Clients, PlannedMessage, Published};
use crate::order::{ClientsSpec, Recovery, Replay as Wanted};
use crate::problem::Problem;
use crate::report::units::count;
use crate::report::{Figure, Flow, Report, Trial};
use crate::run::{Bench, Carriage, parse};

/// `encke bench replay`.
#[derive(Clone, Debug, Args)]
pub struct Replay {
    /// Clients that replay at the same time
    #[arg(long, alias = "sessions", value_name = "N", default_value = "100", value_parser = parse::count)]
    pub clients: u32,
    /// Messages that each of them is to get
    #[arg(long, value_name = "N", default_value = "10000", value_parser = parse::count)]
    pub messages: u32,
    /// Length of a message's data
    #[arg(long, value_name = "SIZE", default_value = "50", value_parser = parts::data_size)]
    pub message_size: u32,
    /// The channel that has the history is below this one
    #[arg(long, value_name = "CHANNEL", default_value = "/bench/replay", value_parser = parts::channel)]
    pub channel: String,
    /// Transport and recovery.
    #[command(flatten)]
    pub carriage: Carriage,
}

impl Scenario for Replay {
    const NAME: &'static str = "replay";
    const TITLE: &'static str = "Clients that replay a long history at the same time";
    const STANDS_FOR: &'static str = "Not from a published benchmark: the load after an outage, when all clients want the messages they have missed. \
         The load fills the channel's history first. Then clients open a session, subscribe from the oldest message on, \
         leave when they have all messages, and begin again, for --duration. Run a broadcast beside it to see its effect on others.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let mut report = bench.report::<Self>();
        let membership = parts::membership(&self.channel, 1, 1);
        let idle = parts::clients_spec(bench, &self.carriage, 0, 1, membership);
        let mut publisher = Clients::open(&idle, 0, 1, &mut |_| true)?;
        self.fill(bench, &mut publisher)?;
        if bench.interrupt.is_set() {
            publisher.disconnect();
            return Ok(report);
        }
        let replaying = Recovery { replay: Wanted::Stored, ..self.carriage.recovery() };
        let spec = ClientsSpec { clients: self.clients, publishers: 0, recovery: replaying, ..idle };
        let trial = self.rounds(bench, &spec, publisher.published())?;
        publisher.disconnect();
        report.trials.extend(trial);
        Ok(report)
    }
}

impl Replay {
    /// Publishes the history in batches, no faster than the server accepts them.
    ///
    /// # Errors
    /// The server accepts no more, or the publisher is lost.
    fn fill(&self, bench: &mut Bench, publisher: &mut Clients) -> Result<(), Problem> {
        let session = publisher.publishers().start;
        let mut left = self.messages as usize;
        let mut taken = Instant::now();
        while left > 0 && !bench.interrupt.is_set() {
            let size = left.min(BATCH_MESSAGES);
            let batch = vec![PlannedMessage { room: 0, planned_us: Clients::clock_us() }; size];
            match publisher.publish(session, &batch, self.message_size as usize) {
                Ok(()) => (left, taken) = (left - size, Instant::now()),
                Err(_) if publisher.counts().dropped == 0 && taken.elapsed() < TIMEOUT => {}
                Err(problem) => {
                    let why = publisher.first_loss().map_or_else(|| problem.to_string(), String::from);
                    let text = format!("{why}, with {} messages of the history to go", count(left as u64));
                    return Err(Problem::Server(text));
                }
            }
            publisher.turn(PAUSE)?;
            bench.progress.tick(|| format!("filling the history  {} to go", count(left as u64)));
        }
        // The last ones are under way.
        let until = Instant::now() + bench.common.warm_up;
        while Instant::now() < until && !bench.interrupt.is_set() {
            publisher.turn(PAUSE)?;
        }
        Ok(())
    }

    /// Round after round, until the time is over; none if that was before the first had its end.
    fn rounds(&self, bench: &mut Bench, spec: &ClientsSpec, published: &Published) -> Result<Option<Trial>, Problem> {
        let mut trial = Trial { name: "replay".into(), clients: spec.clients.into(), holds: true, ..Trial::default() };
        let (began, mut times) = (Instant::now(), Vec::new());
        while trial.holds && !bench.interrupt.is_set() && (times.is_empty() || began.elapsed() < bench.common.duration)
        {
            let Some(took) = self.round(bench, spec, published, &mut trial)? else { break };
            times.push(took);
            bench.progress.tick(|| format!("replaying  {} rounds", times.len()));
        }
        if times.is_empty() {
            return Ok(None);
        }
        times.sort_unstable();
        trial.incoming.window_ms = began.elapsed().as_millis() as u64;
        let figures = [
            ("rounds", times.len() as f64, ""),
            ("replayed per second", trial.incoming.messages_per_s().round(), "messages/s"),
            ("median time of a round", times[times.len() / 2].as_secs_f64() * 1000.0, "ms"),
        ];
        trial.figures =
            figures.map(|(name, value, unit)| Figure { name: name.into(), value, unit: unit.into() }).into();
        Ok(Some(trial))
    }

    /// Opens all clients, and waits until they have everything. Returns how long that took; none if the run is to end before,
    /// and nothing counts then.
    fn round(
        &self,
        bench: &Bench,
        spec: &ClientsSpec,
        published: &Published,
        trial: &mut Trial,
    ) -> Result<Option<Duration>, Problem> {
        let all = [published.clone()];
        let began = Instant::now();
        let mut clients = Clients::open(spec, 0, 1, &mut |_| !bench.interrupt.is_set())?;
        let expected = clients.expected(&all);
        let mut moved = (0, Instant::now());
        while clients.counts().received < expected && moved.1.elapsed() < TIMEOUT && !bench.interrupt.is_set() {
            clients.turn(TURN)?;
            let received = clients.counts().received;
            if received != moved.0 {
                moved = (received, Instant::now());
            }
        }
        if bench.interrupt.is_set() {
            clients.disconnect();
            return Ok(None);
        }
        let took = began.elapsed();
        let (counts, faults) = (clients.counts(), clients.faults(&all));
        trial.expected += expected;
        trial.faults += faults;
        let Flow { messages, batches, bytes, .. } = trial.incoming;
        trial.incoming = Flow {
            messages: messages + counts.received,
            batches: batches + counts.received_batches,
            bytes: bytes + counts.received_bytes,
            window_ms: 0,
        };
        if !faults.none() {
            trial.holds = false;
            let text = match counts.received {
                0 => format!("nothing came: the channels below {} need a history of {}", self.channel, self.messages),
                _ => format!(
                    "{} messages were lost, {} doubled, {} out of order",
                    faults.lost, faults.doubled, faults.reordered
                ),
            };
            trial.reasons.push(text);
        }
        clients.disconnect();
        Ok(Some(took))
    }
}

const BATCH_MESSAGES: usize = 50;
const PAUSE: Duration = Duration::from_millis(1);
const TURN: Duration = Duration::from_millis(5);
/// The longest time without a delivery.
const TIMEOUT: Duration = Duration::from_secs(5);
