//! Connections that break all the time, and the deliveries in spite of it.

use std::time::Duration;

use clap::Args;

use super::{Scenario, parts};
use crate::engine::Clients;
use crate::order::{ClientsSpec, Cuts, Order, Senders, Transport};
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::report::{Figure, Report, Trial};
use crate::run::{Bench, Carriage, Limits, Measure, Sending, parse};

/// `encke bench jitter`.
#[derive(Clone, Debug, Args)]
pub struct Jitter {
    /// Subscribers
    #[arg(long, alias = "sessions", value_name = "N", default_value = "5000", value_parser = parse::count)]
    pub clients: u32,
    /// Messages to all of them per second
    #[arg(long, value_name = "N", default_value = "2", value_parser = parse::rate)]
    pub rate: f64,
    /// Average lifetime of a connection
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse::some_duration)]
    pub cut_every: Duration,
    /// Average time that a client then stays offline
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::some_duration)]
    pub offline: Duration,
    /// Length of a message's data
    #[arg(long, value_name = "SIZE", default_value = "50", value_parser = parts::data_size)]
    pub message_size: u32,
    /// Transport and recovery.
    #[command(flatten)]
    pub carriage: Carriage,
    /// Sending and judging messages.
    #[command(flatten)]
    pub sending: Sending,
}

impl Scenario for Jitter {
    const NAME: &'static str = "jitter";
    const TITLE: &'static str = "Connections that break all the time: each message arrives once and in order";
    const STANDS_FOR: &'static str = "Stands for comparisons of realtime servers under reconnects, where the fastest delivered 41 to 87 % (2025). A third of \
         the breaks is a reset, a third comes in the middle of a message, a third leaves the server with a dead connection that still \
         accepts data. With --replay or --ack nothing may be lost; without them the report shows the loss. A full run takes \
         --duration 60s.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        if self.carriage.transport == Transport::Raw {
            return Err(Problem::Usage("--transport raw has no sessions that could come back".into()));
        }
        let mut report = bench.report::<Self>();
        let membership = parts::membership(CHANNEL, 1, 1);
        let spec = parts::clients_spec(bench, &self.carriage, self.clients, 1, membership);
        let spec = ClientsSpec { reconnect: true, ..spec };
        if let Some(unsupported) = Clients::unsupported(&spec)? {
            report.holds = false;
            report.reasons.push(format!("the server {unsupported}"));
            return Ok(report);
        }
        let traffic = parts::traffic(Senders::Publishers, Some(self.rate), self.message_size);
        let (every_us, offline_us) = (self.cut_every.as_micros() as u64, self.offline.as_micros() as u64);
        let order = Order {
            warm_up_ms: 0,
            cuts: Some(Cuts { every_us, offline_us, seed: traffic.seed }),
            ..parts::order(bench, &self.sending, traffic, parts::duration(bench))
        };
        let mut measure = Measure::new(bench, spec, &self.sending);
        if let Some((mut trial, outcome)) = measure.trial_with_outcome(Self::NAME, &order, Limits::default())? {
            judge(&mut trial, &outcome);
            report.trials.push(trial);
        }
        Ok(report)
    }
}

/// Adds the figures that only this scenario has.
fn judge(trial: &mut Trial, outcome: &Outcome) {
    let (breaks, expected) = (outcome.breaks, outcome.expected.max(1));
    let missing = outcome.faults.lost.min(expected);
    let figure = |name: &str, value: f64, unit: &str| Figure { name: name.into(), value, unit: unit.into() };
    trial.figures = vec![
        figure("delivered", (expected - missing) as f64 * 100.0 / expected as f64, "%"),
        figure("connections cut", breaks.cut as f64, ""),
        figure("sessions resumed", breaks.resumed as f64, ""),
        figure("sessions renewed", breaks.renewed as f64, ""),
        figure("gaps reported", breaks.gaps as f64, ""),
        figure("came again, dropped by the client", breaks.again as f64, ""),
    ];
    if breaks.cut == 0 {
        trial.holds = false;
        trial.reasons.push("no connection was cut: --duration is too short for --cut-every.".into());
    }
}

const CHANNEL: &str = "/jitter";
