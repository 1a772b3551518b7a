//! Rooms for hours: does anything get lost, does memory grow.

use clap::Args;

use super::{Scenario, parts};
use crate::order::{Senders, Traffic};
use crate::problem::Problem;
use crate::report::{Figure, Report, Sample, Table, Trial};
use crate::run::{Bench, Carriage, Limits, Measure, Sending, parse};

/// `encke bench soak`.
#[derive(Clone, Debug, Args)]
pub struct Soak {
    /// Clients
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse::count)]
    pub clients: u32,
    /// Rooms, each a channel
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse::count)]
    pub rooms: u32,
    /// Different rooms of each client, chosen at random
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse::count)]
    pub rooms_per_client: u32,
    /// Messages in a batch, each to a random room
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse::count)]
    pub batch_size: u32,
    /// Length of a message's data
    #[arg(long, value_name = "SIZE", default_value = "50", value_parser = parts::data_size)]
    pub message_size: u32,
    /// Messages delivered per second
    #[arg(long, value_name = "N", default_value = "50k", value_parser = parse::rate)]
    pub rate: f64,
    /// Transport and recovery.
    #[command(flatten)]
    pub carriage: Carriage,
    /// Sending and judging messages.
    #[command(flatten)]
    pub sending: Sending,
}

impl Scenario for Soak {
    const NAME: &'static str = "soak";
    const TITLE: &'static str = "Chat rooms for a long time: losses, and the growth of memory";
    const STANDS_FOR: &'static str = "Stands for the long run of \"Prelim Cometd WebSocket Benchmarks\" (2011): 1,000,013,657 messages in three hours. \
         Give it --duration 3h; the CSV has a row a minute.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        if self.rooms_per_client > self.rooms {
            return Err(Problem::Usage(format!("--rooms-per-client: there are only {} rooms", self.rooms)));
        }
        let mut report = bench.report::<Self>();
        let membership = parts::membership("/bench/a", self.rooms, self.rooms_per_client);
        let spec = parts::clients_spec(bench, &self.carriage, self.clients, 0, membership);
        let batches_per_s = self.rate / parts::fan_out(&spec) / f64::from(self.batch_size);
        let traffic = parts::traffic(Senders::AnyClient, Some(batches_per_s), self.message_size);
        let traffic = Traffic { batch_size: self.batch_size, ..traffic };
        let order = parts::order(bench, &self.sending, traffic, parts::duration(bench));
        let (warm_up_ms, mut measure) = (order.warm_up_ms, Measure::new(bench, spec, &self.sending));
        let Some(mut trial) = measure.trial("soak", &order, Limits::default())? else { return Ok(report) };
        report.table = Some(Table { columns: COLUMNS.map(String::from).to_vec(), rows: rows(&trial) });
        let settled = trial.samples.iter().filter(|sample| sample.at_ms >= warm_up_ms);
        let points: Vec<(f64, f64)> = settled.filter_map(memory_point).collect();
        if let Some(slope) = slope(&points) {
            trial.figures.push(Figure { name: "server memory growth".into(), value: slope, unit: "bytes/hour".into() });
        }
        trial.samples = thinned(trial.samples);
        report.trials.push(trial);
        Ok(report)
    }
}

/// Hours and bytes.
fn memory_point(sample: &Sample) -> Option<(f64, f64)> {
    Some((sample.at_ms as f64 / MS_PER_HOUR, sample.server_rss_bytes? as f64))
}

/// The slope of the line with the least squares; none for fewer than two points.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |part: fn(&(f64, f64)) -> f64| points.iter().map(part).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let together: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (points.len() > 1 && spread > 0.0).then(|| together / spread)
}

/// One row for each minute that has begun.
fn rows(trial: &Trial) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut before = Sample::default();
    for minute in trial.samples.chunk_by(|a, b| a.at_ms / MS_PER_MINUTE == b.at_ms / MS_PER_MINUTE) {
        let Some(last) = minute.last() else { continue };
        let seconds = (last.at_ms - before.at_ms).max(1) as f64 / 1000.0;
        let cores: Vec<f64> = minute.iter().filter_map(|sample| sample.server_cores).collect();
        let mean_cores = cores.iter().sum::<f64>() / cores.len().max(1) as f64;
        let highest = minute.iter().map(|sample| sample.p99_us).max().unwrap_or(0);
        rows.push(vec![
            (last.at_ms / MS_PER_MINUTE + 1).to_string(),
            last.connected.to_string(),
            format!("{:.0}", (last.sent - before.sent) as f64 / seconds),
            format!("{:.0}", (last.received - before.received) as f64 / seconds),
            format!("{:.3}", highest as f64 / 1000.0),
            if cores.is_empty() { String::new() } else { format!("{mean_cores:.3}") },
            last.server_rss_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
        ]);
        before = *last;
    }
    rows
}

/// At most [`SAMPLES_MAX`] of them, evenly, with the last.
fn thinned(samples: Vec<Sample>) -> Vec<Sample> {
    let (count, step) = (samples.len(), samples.len().div_ceil(SAMPLES_MAX).max(1));
    let thinned = samples.into_iter().enumerate().filter(|(index, _)| (count - 1 - index).is_multiple_of(step));
    thinned.map(|(_, sample)| sample).collect()
}

const COLUMNS: [&str; 7] =
    ["minute", "connected", "sent/s", "received/s", "highest p99 (ms)", "server cores", "server memory (bytes)"];
const MS_PER_MINUTE: u64 = 60_000;
const MS_PER_HOUR: f64 = 3.6e6;
/// An hour of seconds: more points than a chart has pixels.
const SAMPLES_MAX: usize = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(seconds: u64) -> Vec<Sample> {
        let sample = |second: u64| Sample {
            at_ms: second * 1000,
            connected: 10,
            sent: second * 100,
            received: second * 1000,
            p99_us: 500 + second,
            server_cores: Some(0.5),
            server_rss_bytes: Some(1_000_000 + second * 1000),
        };
        (1..=seconds).map(sample).collect()
    }

    #[test]
    fn growth_is_the_slope_of_the_line_with_the_least_squares() {
        let points: Vec<(f64, f64)> = samples(100).iter().filter_map(memory_point).collect();
        assert!((slope(&points).expect("points") - 3.6e6).abs() < 1.0);
        assert_eq!(slope(&[(1.0, 1.0)]), None);
        let around = [(0.0, 1.0), (1.0, 3.0), (2.0, 2.0), (3.0, 4.0)];
        assert!((slope(&around).expect("points") - 0.8).abs() < 1e-9);
    }

    #[test]
    fn each_minute_is_a_row() {
        let trial = Trial { samples: samples(150), ..Trial::default() };
        let rows = rows(&trial);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[1], ["2", "10", "100", "1000", "0.619", "0.500", "1119000"]);
        assert!(rows.iter().all(|row| row.len() == COLUMNS.len()));
    }

    #[test]
    fn a_long_run_keeps_few_samples_and_its_end() {
        let thin = thinned(samples(10_000));
        assert!(thin.len() <= SAMPLES_MAX && thin.len() > SAMPLES_MAX / 2);
        assert_eq!(thin.last().map(|sample| sample.at_ms), Some(10_000_000));
        assert_eq!(thinned(samples(10)).len(), 10);
    }
}
