//! Rooms over rising rates, for more and more clients: throughput against latency.

use clap::Args;

use super::{Scenario, parts};
use crate::machine;
use crate::problem::Problem;
use crate::report::Report;
use crate::report::units::count;
use crate::run::{Bench, Carriage, From, Limits, Measure, Order, Sending, parse};

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
    /// How clients are carried.
    #[command(flatten)]
    pub carriage: Carriage,
    /// How messages are sent and judged.
    #[command(flatten)]
    pub sending: Sending,
}

impl Scenario for Throughput {
    const NAME: &'static str = "throughput";
    const TITLE: &'static str = "Throughput against latency: rooms at rising rates, with more and more clients";
    const STANDS_FOR: &'static str = "Stands for the chart of \"Cometd-2 Throughput vs Latency\" (2010) and of \"20,000 reasons that Comet scales\" (2008): \
         100 rooms, each client in one, 1,000 to 20,000 clients. Numbers of clients for which there are too few files \
         are passed over, and said so.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let mut report = bench.report::<Self>();
        let mut fits = 0;
        for &clients in &self.clients {
            if let Some(why) = self.too_many(bench, clients) {
                report.transcript.push(format!("{} clients passed over: {why}", count(clients.into())));
                continue;
            }
            fits += 1;
            self.rates(bench, clients, &mut report)?;
            if bench.interrupt.is_set() {
                break;
            }
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
        let spec = parts::crowd(bench, &self.carriage, clients, 0, parts::membership("/bench/a", rooms, 1));
        let fan_out = parts::fan_out(&spec);
        let order = |bench: &Bench, rate: f64| {
            let traffic = parts::traffic(From::AnyClient, Some(rate / fan_out), self.message_size);
            let order = parts::order(bench, &self.sending, traffic, parts::duration(bench));
            // A backlog that only grows tells nothing more.
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

    /// Why there are too few files for so many clients, if there are.
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

/// Files beside the sockets of clients: libraries, listeners, epoll, and connections that only publish.
const SPARE_FILES: u64 = 64;
