//! Rooms over rising rates, for more and more clients: throughput against latency.

use clap::Args;

use super::{Scenario, parts};
use crate::machine;
use crate::order::{Order, Senders};
use crate::problem::Problem;
use crate::report::units::count;
use crate::report::{Faults, Report, Trial};
use crate::run::{Bench, Carriage, Limits, Measure, Sending, ended_by, parse};

/// `encke bench throughput`.
#[derive(Clone, Debug, Args)]
pub struct Throughput {
    /// Numbers of clients, one after another
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1000,5000,10000,20000", value_parser = parse::count)]
    pub clients: Vec<u32>,
    /// Messages delivered per second, rising; a number of clients is done with the first that does not hold
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "10k,20k,50k,100k,200k,500k,1M,2M", value_parser = parse::rate)]
    pub rate: Vec<f64>,
    /// Rooms, each a channel
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse::count)]
    pub rooms: u32,
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

impl Scenario for Throughput {
    const NAME: &'static str = "throughput";
    const TITLE: &'static str = "Throughput against latency: rooms at rising rates, with more and more clients";
    const STANDS_FOR: &'static str = "Stands for the chart of \"Cometd-2 Throughput vs Latency\" (2010) and of \"20,000 reasons that Comet scales\" (2008): \
         100 rooms, each client in one, 1,000 to 20,000 clients. Numbers of clients for which there are too few files \
         are skipped and reported.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let mut report = bench.report::<Self>();
        let mut fits = 0;
        for &clients in &self.clients {
            if let Some(why) = self.too_many(bench, clients) {
                report.transcript.push(format!("{} clients skipped: {why}", count(clients.into())));
                continue;
            }
            fits += 1;
            let first = report.trials.len();
            if let Err(problem) = self.rates(bench, clients, &mut report) {
                ended_by(problem, &mut report)?;
                break;
            }
            if bench.interrupt.is_set() {
                break;
            }
            let wrong = wrong(&report.trials[first..]);
            report.holds &= wrong.is_empty();
            report.reasons.extend(wrong);
        }
        if fits == 0 {
            return Err(Problem::Machine(report.transcript.join("; ")));
        }
        let holding = report.trials.iter().enumerate().filter(|(_, trial)| trial.holds);
        let best = holding.max_by(|(_, a), (_, b)| a.incoming.messages.cmp(&b.incoming.messages));
        report.result = best.map(|(index, _)| index);
        Ok(report)
    }
}

impl Throughput {
    /// All rates for a number of clients, until one does not hold.
    fn rates(&self, bench: &mut Bench, clients: u32, report: &mut Report) -> Result<(), Problem> {
        // Fewer clients than rooms would leave some empty.
        let rooms = self.rooms.min(clients);
        let spec = parts::clients_spec(bench, &self.carriage, clients, 0, parts::membership("/bench/a", rooms, 1));
        let fan_out = parts::fan_out(&spec);
        let order = |bench: &Bench, rate: f64| {
            let traffic = parts::traffic(Senders::AnyClient, Some(rate / fan_out), self.message_size);
            let order = parts::order(bench, &self.sending, traffic, parts::duration(bench));
            // A growing backlog adds no information.
            Order { give_up_us: Some(self.sending.late_after.as_micros() as u64), ..order }
        };
        let mut measure = Measure::new(bench, spec, &self.sending);
        for &rate in &self.rate {
            let name = format!("{} clients, {} deliveries/s", count(clients.into()), count(rate as u64));
            let order = order(measure.bench, rate);
            let Some(trial) = measure.trial(&name, &order, Limits::default())? else { break };
            let holds = trial.holds;
            report.trials.push(trial);
            if !holds || measure.bench.interrupt.is_set() {
                break;
            }
        }
        Ok(())
    }

    /// The reason that there are too few files for this many clients, if there are.
    fn too_many(&self, bench: &Bench, clients: u32) -> Option<String> {
        let own = u64::from(clients.div_ceil(self.sending.workers)) + SPARE_FILES;
        let own_max = machine::files_max();
        if own > own_max {
            return Some(format!("this process may open {} files (ulimit -Hn)", count(own_max)));
        }
        let server_max = bench.server.and_then(|server| server.files_max())?;
        (u64::from(clients) + SPARE_FILES > server_max)
            .then(|| format!("the server may open {} files (ulimit -n)", count(server_max)))
    }
}

/// The faults of the trials with one number of clients. The last trial need not hold: it is at the server's limit.
fn wrong(trials: &[Trial]) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(lowest) = trials.first()
        && !trials.iter().any(|trial| trial.holds)
    {
        wrong.push(format!("{}: not even this rate holds. {}", lowest.name, lowest.reasons.join(" ")));
    }
    // Too much load makes messages late, or loses them. It never makes more of them, or brings them to others.
    for trial in trials {
        let Faults { doubled, reordered, misdelivered, .. } = trial.faults;
        if doubled + reordered + misdelivered > 0 {
            wrong.push(format!(
                "{}: {} messages were doubled, {} out of order, {} misdelivered.",
                trial.name,
                count(doubled),
                count(reordered),
                count(misdelivered)
            ));
        }
    }
    wrong
}

/// Files beside the sockets of clients: libraries, listeners, epoll, and connections that only publish.
const SPARE_FILES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(holds: bool, faults: Faults) -> Trial {
        Trial { name: "10 clients, 100 deliveries/s".into(), holds, faults, ..Trial::default() }
    }

    #[test]
    fn a_number_of_clients_is_done_with_a_rate_that_does_not_hold() {
        let late = Faults { late: 5, lost: 3, ..Faults::default() };
        assert!(wrong(&[trial(true, Faults::default()), trial(false, late)]).is_empty());
    }

    #[test]
    fn a_number_of_clients_that_holds_no_rate_does_not_hold() {
        let failed = Trial { reasons: vec!["did not keep up.".into()], ..trial(false, Faults::default()) };
        assert_eq!(wrong(&[failed]), ["10 clients, 100 deliveries/s: not even this rate holds. did not keep up."]);
    }

    #[test]
    fn doubled_reordered_and_misdelivered_messages_fail_at_any_rate() {
        for faults in [
            Faults { doubled: 2, ..Faults::default() },
            Faults { reordered: 2, ..Faults::default() },
            Faults { misdelivered: 2, ..Faults::default() },
        ] {
            assert_eq!(wrong(&[trial(true, Faults::default()), trial(false, faults)]).len(), 1, "{faults:?}");
        }
    }
}
