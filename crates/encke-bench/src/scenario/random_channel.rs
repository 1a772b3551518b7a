//! One channel for each subscriber, and messages to random channels.

use clap::Args;
use clap::builder::ArgPredicate;

use super::{Scenario, parts};
use crate::order::{Membership, Order, Senders};
use crate::problem::Problem;
use crate::report::units::count;
use crate::report::{Report, Table, Trial};
use crate::run::{Bench, Carriage, Measure, RateSeries, Rates, Sending, parse};

/// `encke bench random-channel`.
#[derive(Clone, Debug, Args)]
pub struct RandomChannel {
    /// Subscribers, number n on channel n; at the beginning of a --ramp as many as one step of it, if not given
    #[arg(long, value_name = "N", value_parser = parse::count, default_value = "500",
          default_value_if("ramp", ArgPredicate::IsPresent, None))]
    pub clients: Option<u32>,
    /// Repeat with this many more subscribers each time, up to --up-to
    #[arg(long, value_name = "N", value_parser = parse::count, requires = "up_to")]
    pub ramp: Option<u32>,
    /// Subscribers at the end of --ramp
    #[arg(long, value_name = "N", value_parser = parse::count, requires = "ramp")]
    pub up_to: Option<u32>,
    /// Length of a message's data
    #[arg(long, value_name = "SIZE", default_value = "172", value_parser = parts::data_size)]
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

impl Scenario for RandomChannel {
    const NAME: &'static str = "random-channel";
    const TITLE: &'static str = "One channel for each of N subscribers, and messages to random channels";
    const STANDS_FOR: &'static str = "Stands for the comparison of Netty, Atmosphere, Vert.x and Node.js with WebSockets (2012), where the server sent \
         about 940 messages per second to random channels, with 500 clients more each time; here one publisher does. The \
         CSV has the comparison's columns. --rate counts messages per second [default: 1000].";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let mut report = bench.report::<Self>();
        let mut table = Table { columns: COLUMNS.map(String::from).to_vec(), rows: Vec::new() };
        let mut results = Vec::new();
        let steps = self.steps()?;
        for &clients in &steps {
            let before = report.trials.len();
            let goes_on = self.step(bench, clients, steps.len() > 1, &mut report)?;
            let shown = report.result.take().or_else(|| report.trials.len().checked_sub(1)).filter(|at| *at >= before);
            results.extend(shown);
            table.rows.extend(shown.map(|at| row(clients, self.message_size, &report.trials[at])));
            if !goes_on {
                break;
            }
        }
        report.result = results.last().copied().filter(|_| self.rates.find_max);
        report.table = Some(table);
        Ok(report)
    }
}

impl RandomChannel {
    /// The number of clients of each measurement.
    fn steps(&self) -> Result<Vec<u32>, Problem> {
        let (Some(ramp), Some(up_to)) = (self.ramp, self.up_to) else {
            return Ok(self.clients.into_iter().collect());
        };
        let first = self.clients.unwrap_or(ramp);
        if first > up_to {
            return Err(Problem::Usage(format!("--up-to {up_to}: the ramp begins at {first} clients, which is more")));
        }
        Ok((first..=up_to).step_by(ramp as usize).collect())
    }

    /// Measures with this many clients. Returns false if the run ends there.
    fn step(&self, bench: &mut Bench, clients: u32, has_more: bool, report: &mut Report) -> Result<bool, Problem> {
        let membership = Membership { first: 1, ..parts::membership("/bench/channel", clients, 1) };
        let spec = parts::clients_spec(bench, &self.carriage, clients, 1, membership);
        let at_rate = |rate| parts::traffic(Senders::Publishers, Some(rate), self.message_size);
        let blank = parts::order(bench, &self.sending, at_rate(DEFAULT_PER_S), parts::duration(bench));
        let order = |rate| Order { traffic: at_rate(rate), ..blank.clone() };
        let mut rates = self.rates.clone();
        if rates.rate.is_empty() {
            rates.rate = vec![DEFAULT_PER_S];
        }
        let prefix = if has_more { format!("{} clients, ", count(clients.into())) } else { String::new() };
        let mut measure = Measure::new(bench, spec, &self.sending);
        let series = RateSeries { unit: "messages/s", prefix: &prefix, start: DEFAULT_PER_S, order: &order };
        series.run(&mut measure, &rates, report)
    }
}

/// The comparison's row of a trial.
fn row(clients: u32, message_size: u32, trial: &Trial) -> Vec<String> {
    let connected = trial.samples.last().map_or(u64::from(clients), |sample| sample.connected);
    let mean_ms = trial.latency.as_ref().map_or(0.0, |latency| latency.mean_us / 1000.0);
    let (messages, window_ms) = (trial.incoming.messages, trial.incoming.window_ms);
    vec![
        clients.to_string(),
        // The publisher is a session, too, but no subscriber.
        connected.min(clients.into()).to_string(),
        format!("{mean_ms:.3}"),
        format!("{message_size}"),
        messages.to_string(),
        format!("{:.3}", trial.incoming.messages_per_s()),
        format!("{:.3}", window_ms as f64 / 1000.0),
    ]
}

/// The comparison's columns.
const COLUMNS: [&str; 7] =
    ["connections", "connected", "average response (ms)", "average size", "messages", "msg/sec", "walltime(secs)"];
const DEFAULT_PER_S: f64 = 1000.0;

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;
    use crate::report::{Flow, Latency, Sample};

    fn steps(line: &str) -> Result<Vec<u32>, String> {
        let command = RandomChannel::augment_args(Command::new("random-channel").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split_whitespace()).expect("options");
        RandomChannel::from_arg_matches(&matches).expect("options").steps().map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_ramp_begins_with_one_step_unless_clients_are_given() {
        assert_eq!(steps(""), Ok(vec![500]));
        assert_eq!(steps("--clients 7"), Ok(vec![7]));
        assert_eq!(steps("--ramp 100 --up-to 300"), Ok(vec![100, 200, 300]));
        assert_eq!(steps("--ramp 100 --up-to 300 --clients 150"), Ok(vec![150, 250]));
        assert_eq!(steps("--ramp 100 --up-to 100"), Ok(vec![100]));
    }

    #[test]
    fn a_ramp_that_ends_before_it_begins_is_refused() {
        let refused = Err("--up-to 300: the ramp begins at 500 clients, which is more".to_string());
        assert_eq!(steps("--ramp 100 --up-to 300 --clients 500"), refused);
    }

    #[test]
    fn a_trial_is_a_row_of_the_comparison() {
        let trial = Trial {
            incoming: Flow { messages: 2000, batches: 2000, bytes: 400_000, window_ms: 4000 },
            latency: Some(Latency { mean_us: 1500.0, ..Latency::default() }),
            samples: vec![Sample { connected: 500, ..Sample::default() }],
            ..Trial::default()
        };
        assert_eq!(row(500, 172, &trial), ["500", "500", "1.500", "172", "2000", "500.000", "4.000"]);
        assert_eq!(row(500, 172, &trial).len(), COLUMNS.len());
    }
}
