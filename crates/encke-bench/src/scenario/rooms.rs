//! Many rooms: the load client of CometD with its parameters and its words.

use std::time::Duration;

use clap::Args;

use super::{Scenario, parts, rooms_transcript};
use crate::order::{Order, Senders, Size};
use crate::problem::Problem;
use crate::report::Report;
use crate::run::{Bench, Carriage, Limits, Measure, RateSeries, Rates, Sending, ended_by, parse};

/// `encke bench rooms`.
#[derive(Clone, Debug, Args)]
pub struct Rooms {
    /// Clients
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse::count)]
    pub clients: u32,
    /// Rooms, each a channel
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse::count)]
    pub rooms: u32,
    /// Different rooms of each client, chosen at random
    #[arg(long, alias = "roomsPerClient", value_name = "N", default_value = "10", value_parser = parse::count)]
    pub rooms_per_client: u32,
    /// Batches to send, each from a random client
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse::count,
          conflicts_with_all = ["rate", "find_max"])]
    pub batches: u32,
    /// Messages in a batch, each to a random room
    #[arg(long, alias = "batchSize", value_name = "N", default_value = "10", value_parser = parse::count)]
    pub batch_size: u32,
    /// Time between batches, in µs unless it has another unit; 0 for none
    #[arg(long, alias = "batchPause", value_name = "TIME", default_value = "10000", value_parser = micros,
          conflicts_with_all = ["rate", "find_max"])]
    pub batch_pause: Duration,
    /// Length of a message's data
    #[arg(long, alias = "messageSize", value_name = "SIZE", default_value = "50", value_parser = parts::data_size)]
    pub message_size: u32,
    /// The channel that rooms are below
    #[arg(long, value_name = "CHANNEL", default_value = "/bench/a", value_parser = parts::channel, hide_short_help = true)]
    pub channel: String,
    /// Number of measurements
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse::count,
          conflicts_with_all = ["rate", "find_max"], hide_short_help = true)]
    pub iterations: u32,
    /// Transport and recovery.
    #[command(flatten)]
    pub carriage: Carriage,
    /// At which rates.
    #[command(flatten)]
    pub rates: Rates,
    /// Sending and judging messages.
    #[command(flatten)]
    pub sending: Sending,
}

impl Scenario for Rooms {
    const NAME: &'static str = "rooms";
    const TITLE: &'static str = "Chat rooms: batches of messages to random rooms, as CometD's load client sends them";
    const STANDS_FOR: &'static str = "Stands for the load client of \"Prelim Cometd WebSocket Benchmarks\" (2011) and \"Cometd-2 Throughput vs Latency\" \
         (2010), with its parameters, also by their own names such as --roomsPerClient, and its raw output. With --rate or \
         --find-max, rates count messages delivered per second, for --duration each.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        self.check()?;
        let mut report = bench.report::<Self>();
        let membership = parts::membership(&self.channel, self.rooms, self.rooms_per_client);
        let spec = parts::clients_spec(bench, &self.carriage, self.clients, 0, membership);
        let per_batch = parts::fan_out(&spec) * f64::from(self.batch_size);
        let pause_s = self.batch_pause.as_secs_f64();
        let batches_per_s = (pause_s > 0.0).then(|| 1.0 / pause_s);
        let blank = parts::order(bench, &self.sending, self.traffic(batches_per_s), Size::Batches(self.batches.into()));
        let mut measure = Measure::new(bench, spec, &self.sending);
        if self.rates.rate.is_empty() && !self.rates.find_max {
            self.batches(&mut measure, &blank, &mut report)?;
            return Ok(report);
        }
        let order = |rate: f64| Order { traffic: self.traffic(Some(rate / per_batch)), ..blank.clone() };
        let series = RateSeries { unit: "deliveries/s", prefix: "", start: START_PER_S, order: &order };
        series.run(&mut measure, &self.rates, &mut report)?;
        Ok(report)
    }
}

impl Rooms {
    /// Sends the batches with a pause between them, and prints each iteration like CometD.
    fn batches(&self, measure: &mut Measure<'_>, order: &Order, report: &mut Report) -> Result<(), Problem> {
        if self.batch_pause.is_zero() {
            if !measure.open()? {
                return Ok(());
            }
        } else if !parts::warm_up(measure, order)? {
            return Ok(());
        }
        let order = Order { warm_up_ms: 0, ..order.clone() };
        for iteration in 1..=self.iterations {
            let name = if self.iterations == 1 { "rooms".into() } else { format!("iteration {iteration}") };
            let began = rooms_transcript::begin(&self.load());
            let (trial, outcome) = match measure.trial_with_outcome(&name, &order, Limits::default()) {
                Ok(Some(done)) => done,
                Ok(None) => break,
                Err(problem) => return ended_by(problem, report),
            };
            report.transcript.extend(began);
            report.transcript.extend(rooms_transcript::end(&trial, &outcome));
            report.trials.push(trial);
            if measure.bench.interrupt.is_set() {
                break;
            }
        }
        Ok(())
    }

    /// The load as CometD's client prints it.
    fn load(&self) -> rooms_transcript::Load {
        rooms_transcript::Load {
            clients: self.clients,
            rooms: self.rooms,
            rooms_per_client: self.rooms_per_client,
            batches: self.batches,
            batch_size: self.batch_size,
            message_size: self.message_size,
            batch_pause: self.batch_pause,
        }
    }

    fn traffic(&self, batches_per_s: Option<f64>) -> crate::order::Traffic {
        let traffic = parts::traffic(Senders::AnyClient, batches_per_s, self.message_size);
        crate::order::Traffic { batch_size: self.batch_size, ..traffic }
    }

    fn check(&self) -> Result<(), Problem> {
        if self.rooms_per_client > self.rooms {
            let (per_client, rooms) = (self.rooms_per_client, self.rooms);
            let text = format!("--rooms-per-client {per_client}: there are only {rooms} rooms");
            return Err(Problem::Usage(text));
        }
        Ok(())
    }
}

/// A time that is in microseconds unless it has a unit.
fn micros(text: &str) -> Result<Duration, String> {
    if text.chars().all(|letter| letter.is_ascii_digit() || letter == '_') {
        parse::duration(&format!("{text}us"))
    } else {
        parse::duration(text)
    }
    .map_err(|_| "microseconds such as 8000, or a number and a unit such as 8ms".into())
}

/// The start of a search: any server holds it.
const START_PER_S: f64 = 10_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_microseconds_unless_they_have_a_unit() {
        assert_eq!(micros("8000"), Ok(Duration::from_millis(8)));
        assert_eq!(micros("8ms"), Ok(Duration::from_millis(8)));
        assert_eq!(micros("0"), Ok(Duration::ZERO));
        assert!(micros("soon").is_err());
    }
}
