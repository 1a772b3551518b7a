//! One room full of clients, all talking.

use clap::Args;

use super::{Scenario, parts};
use crate::order::{Order, Senders, Size};
use crate::problem::Problem;
use crate::report::Report;
use crate::run::{Bench, Carriage, Limits, Measure, RateSeries, Rates, Sending, parse};

/// `encke bench chat`.
#[derive(Clone, Debug, Args)]
pub struct Chat {
    /// Clients in the room
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse::count)]
    pub clients: u32,
    /// Messages, each from a random client, as fast as they can be sent unless there is a --rate
    #[arg(long, value_name = "N", default_value = "10000", value_parser = parse::count,
          conflicts_with_all = ["rate", "find_max"])]
    pub messages: u32,
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

impl Scenario for Chat {
    const NAME: &'static str = "chat";
    const TITLE: &'static str = "A chat room: messages of random clients to all of them";
    const STANDS_FOR: &'static str = "Stands for the load test of \"Websocket Example: Server, Client and LoadTest\" (2011): 1,000 clients in one room, \
         10,000 messages from random clients, each of which goes to all. Without --rate its three lines come out; --rate \
         counts messages sent per second.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let mut report = bench.report::<Self>();
        let spec = parts::clients_spec(bench, &self.carriage, self.clients, 0, parts::membership("/bench/chat", 1, 1));
        let at_rate = |rate: Option<f64>| parts::traffic(Senders::AnyClient, rate, self.message_size);
        let blank = parts::order(bench, &self.sending, at_rate(None), Size::Batches(self.messages.into()));
        let mut measure = Measure::new(bench, spec, &self.sending);
        if self.rates.rate.is_empty() && !self.rates.find_max {
            self.all_at_once(&mut measure, &Order { warm_up_ms: 0, ..blank }, &mut report)?;
            return Ok(report);
        }
        let order = |rate| Order { traffic: at_rate(Some(rate)), ..blank.clone() };
        let series = RateSeries { unit: "messages/s", prefix: "", start: START_PER_S, order: &order };
        series.run(&mut measure, &self.rates, &mut report)?;
        Ok(report)
    }
}

impl Chat {
    /// Sends everything at once, and prints the lines of the post.
    fn all_at_once(&self, measure: &mut Measure<'_>, order: &Order, report: &mut Report) -> Result<(), Problem> {
        if !measure.open()? {
            return Ok(());
        }
        let (clients, address) = (self.clients, measure.bench.target.authority.clone());
        let opened_ms = measure.opening.as_millis();
        // Small parts, again and again, so that no server is flooded by its warm-up.
        let part = Order { size: Size::Batches(u64::from(self.messages.div_ceil(WARM_UP_PARTS))), ..order.clone() };
        let end = std::time::Instant::now() + measure.bench.common.warm_up;
        while std::time::Instant::now() < end && !measure.bench.interrupt.is_set() {
            measure.trial("warm-up", &part, Limits::default())?;
        }
        let name = format!("{} clients, all at once", crate::report::units::count(clients.into()));
        let Some((trial, outcome)) = measure.trial_with_outcome(&name, order, Limits::default())? else {
            return Ok(());
        };
        let per_s = outcome.received as f64 * 1000.0 / outcome.elapsed_ms.max(1) as f64;
        report.trials.push(trial);
        let closed_ms = measure.close().as_millis();
        report.transcript = vec![
            format!("Opened {clients} of {clients} connections to {address} in {opened_ms}ms"),
            format!(
                "Sent/Received {}/{} messages in {}ms: {per_s:.0}msg/s",
                outcome.sent, outcome.received, outcome.elapsed_ms
            ),
            format!("Closed {clients} connections to {address} in {closed_ms}ms"),
        ];
        Ok(())
    }
}

/// The start of a search: any server holds it.
const START_PER_S: f64 = 50.0;
const WARM_UP_PARTS: u32 = 10;
