//! One publisher, one room, many subscribers.

use clap::Args;

use super::{Scenario, parts};
use crate::order::{Order, Senders};
use crate::problem::Problem;
use crate::report::Report;
use crate::run::{Bench, Carriage, Measure, RateSeries, Rates, Sending, parse};

/// `encke bench broadcast`.
#[derive(Clone, Debug, Args)]
pub struct Broadcast {
    /// Subscribers
    #[arg(long, alias = "sessions", value_name = "N", default_value = "1000", value_parser = parse::count)]
    pub clients: u32,
    /// Length of a message's data
    #[arg(long, value_name = "SIZE", default_value = "50", value_parser = parts::data_size)]
    pub message_size: u32,
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

impl Scenario for Broadcast {
    const NAME: &'static str = "broadcast";
    const TITLE: &'static str = "One publisher, many subscribers: deliveries, latency and cost";
    const STANDS_FOR: &'static str = "The bare fan-out: the deliveries a server makes from one core, and the cost of a delivery. --rate counts \
         publications per second [default: 100]; deliveries are as many times the subscribers.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let mut report = bench.report::<Self>();
        let spec =
            parts::clients_spec(bench, &self.carriage, self.clients, 1, parts::membership("/bench/fanout", 1, 1));
        let at_rate = |rate| parts::traffic(Senders::Publishers, Some(rate), self.message_size);
        let blank = parts::order(bench, &self.sending, at_rate(START_PER_S), parts::duration(bench));
        let order = |rate| Order { traffic: at_rate(rate), ..blank.clone() };
        let mut rates = self.rates.clone();
        if rates.rate.is_empty() {
            rates.rate = vec![START_PER_S];
        }
        let mut measure = Measure::new(bench, spec, &self.sending);
        let series = RateSeries { unit: "publications/s", prefix: "", start: START_PER_S, order: &order };
        series.run(&mut measure, &rates, &mut report)?;
        Ok(report)
    }
}

/// Any server holds it.
const START_PER_S: f64 = 100.0;
