//! Calls to a service, each answered to the caller alone.

use std::time::Duration;

use clap::Args;

use super::{Scenario, parts};
use crate::order::{Recipients, Senders, Traffic};
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::report::units::count;
use crate::report::{Figure, Report, Table};
use crate::run::{Bench, Carriage, Limits, Measure, Sending, parse};

/// `encke bench request-reply`.
#[derive(Clone, Debug, Args)]
pub struct RequestReply {
    /// Clients that send orders
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse::count)]
    pub clients: u32,
    /// The service channel that answers with the same data
    #[arg(long, value_name = "CHANNEL", default_value = "/service/echo", value_parser = service)]
    pub channel: String,
    /// The shortest time between two orders of a client
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = parse::some_duration)]
    pub pause_min: Duration,
    /// The longest
    #[arg(long, value_name = "TIME", default_value = "300ms", value_parser = parse::some_duration)]
    pub pause_max: Duration,
    /// Length of an order's data
    #[arg(long, value_name = "SIZE", default_value = "100", value_parser = parts::data_size)]
    pub message_size: u32,
    /// Number of slowest and of fastest answers that are averaged
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse::count, hide_short_help = true)]
    pub outliers: u32,
    /// Transport and recovery.
    #[command(flatten)]
    pub carriage: Carriage,
    /// Sending and judging messages.
    #[command(flatten)]
    pub sending: Sending,
}

impl Scenario for RequestReply {
    const NAME: &'static str = "request-reply";
    const TITLE: &'static str = "Orders through a service channel: the latency of each answer";
    const STANDS_FOR: &'static str = "Stands for the request/reply client of \"Scaling Node.js\" (2012), which sends an order again and again at random \
         intervals and averages the answers, the ten slowest and the ten fastest. The server needs a service that \
         answers with what it is sent; that of Encke's demo is /service/echo.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        if self.pause_min > self.pause_max {
            return Err(Problem::Usage("--pause-min is above --pause-max".into()));
        }
        let mut report = bench.report::<Self>();
        // Answers need no subscription.
        let spec =
            parts::clients_spec(bench, &self.carriage, self.clients, 0, parts::membership("/bench/orders", 1, 0));
        let pauses_us = [self.pause_min, self.pause_max].map(|pause| pause.as_micros() as u64);
        let traffic = parts::traffic(Senders::EachClient(pauses_us), None, self.message_size);
        let traffic = Traffic { recipients: Recipients::Service(self.channel.clone()), ..traffic };
        let order = parts::order(bench, &self.sending, traffic, parts::duration(bench));
        let mut measure = Measure::new(bench, spec, &self.sending);
        let name = format!("{} clients", count(self.clients.into()));
        let Some((mut trial, outcome)) = measure.trial_with_outcome(&name, &order, Limits::default())? else {
            return Ok(report);
        };
        let row = self.row(&outcome);
        let figure = |name: &str, value| Figure { name: name.into(), value, unit: "ms".into() };
        trial.figures = vec![
            figure("average outlier high response", row.high_ms),
            figure("average outlier low response", row.low_ms),
        ];
        if outcome.received == 0 && outcome.sent > 0 {
            trial.reasons.push(format!("nothing was answered: the server needs a service {}.", self.channel));
        }
        report.trials.push(trial);
        report.table = Some(Table { columns: COLUMNS.map(String::from).to_vec(), rows: vec![row.cells()] });
        Ok(report)
    }
}

struct Row {
    count: u32,
    mean_ms: f64,
    high_ms: f64,
    low_ms: f64,
    size: u32,
    received: u64,
}

impl RequestReply {
    fn row(&self, outcome: &Outcome) -> Row {
        let timed = outcome.latencies.counts();
        let all = u64::MAX;
        Row {
            count: self.clients,
            mean_ms: mean_ms(timed.iter(), all),
            high_ms: mean_ms(timed.iter().rev(), self.outliers.into()),
            low_ms: mean_ms(timed.iter(), self.outliers.into()),
            size: self.message_size,
            received: outcome.incoming.messages,
        }
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let ms = |ms: f64| format!("{ms:.3}");
        vec![
            self.count.to_string(),
            ms(self.mean_ms),
            ms(self.high_ms),
            ms(self.low_ms),
            self.size.to_string(),
            self.received.to_string(),
        ]
    }
}

/// The mean of the first `most` values, each with its number of occurrences.
fn mean_ms<'a>(values_us: impl Iterator<Item = &'a (u64, u64)>, most: u64) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for (us, times) in values_us {
        let taken = (*times).min(most - count);
        sum += *us as f64 * taken as f64;
        count += taken;
        if count == most {
            break;
        }
    }
    if count == 0 { 0.0 } else { sum / count as f64 / 1000.0 }
}

fn service(text: &str) -> Result<String, String> {
    if !text.starts_with("/service/") {
        return Err("a service channel such as /service/echo".into());
    }
    parts::channel(text)
}

/// The post's heading.
const COLUMNS: [&str; 6] = [
    "count",
    "average response (ms)",
    "average outlier high response (ms)",
    "average outlier low response (ms)",
    "average message size",
    "messages received",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_are_the_mean_of_the_ends() {
        let timed = [(1000, 5), (2000, 100), (9000, 1), (10_000, 1)];
        assert_eq!(mean_ms(timed.iter(), 5), 1.0);
        assert_eq!(mean_ms(timed.iter().rev(), 2), 9.5);
        assert_eq!(mean_ms(timed.iter().rev(), 4), (10.0 + 9.0 + 2.0 + 2.0) / 4.0);
        assert_eq!(mean_ms([].iter(), 5), 0.0);
    }
}
