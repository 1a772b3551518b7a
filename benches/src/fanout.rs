//! One publisher, many subscribers: how much, how fast, at what cost; and the highest rate that holds.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::load::{Client, Load};
use crate::machine::{Process, all_cpu, own_cpu};
use crate::problem::Problem;
use crate::reader::Faults;
use crate::session::{Plan, Purpose, Session};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Subscribers.
    #[arg(long, default_value_t = 1000)]
    pub sessions: usize,
    /// Publications per second; where the search starts with --find-max.
    #[arg(long, default_value_t = 100.0)]
    pub rate: f64,
    /// Length of the measurement, in seconds, after one second of warm-up.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Search the highest rate that loses nothing, keeps up and has a p99 under one second.
    #[arg(long)]
    pub find_max: bool,
    /// Time for the whole search, in seconds.
    #[arg(long, default_value_t = 60.0)]
    pub search_seconds: f64,
}

/// What came of one rate.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Publications planned per second.
    pub rate: f64,
    /// Deliveries per second in the measured window.
    pub delivered_per_s: f64,
    /// What was not delivered once and in order.
    pub faults: Faults,
    /// Sessions that the server dropped, and why the first.
    pub gone: (usize, Option<String>),
    /// Latency from planned time to arrival, in microseconds: p50, p99, highest.
    pub latency_us: [u64; 3],
    /// Share of one core that the server used, if it was watched.
    pub server_busy: Option<f64>,
    /// Share of one core that the load used, waiting for a planned time included.
    pub load_busy: f64,
    /// Cores that other processes used meanwhile, if the server was watched; the nearer to 0 the better the measurement.
    pub others_busy: Option<f64>,
    sessions: usize,
}

/// Runs what the options say against a server.
pub fn run(
    server: SocketAddr,
    dialect: Dialect,
    watched: Option<Process>,
    options: &Options,
) -> Result<(Trial, Value), Problem> {
    if options.rate <= 0.0 || options.seconds <= 0.0 || options.sessions == 0 {
        return Err(Problem::Usage("rate, seconds and sessions must be above zero".into()));
    }
    let mut bench = Bench { server, dialect, watched, sessions: options.sessions, load: None, next: 0 };
    let trial = if options.find_max {
        bench.find_max(options)?
    } else {
        bench.trial(options.rate, WARM_SECONDS, options.seconds)?
    };
    let report = trial.json(dialect, options.find_max);
    Ok((trial, report))
}

struct Bench {
    server: SocketAddr,
    dialect: Dialect,
    watched: Option<Process>,
    sessions: usize,
    load: Option<Load<Session>>,
    next: u32,
}

/// What is read at both ends of the measured window.
struct Mark {
    at: Instant,
    received: u64,
    server: Option<Duration>,
    own: Duration,
    all: Duration,
}

impl Bench {
    /// Ramps up until a rate fails, then halves the gap with longer trials; the last long trial that held is the result.
    fn find_max(&mut self, options: &Options) -> Result<Trial, Problem> {
        let end = Instant::now() + Duration::from_secs_f64(options.search_seconds);
        let (mut low, mut high) = (options.rate, f64::INFINITY);
        while high.is_infinite() {
            let rate = low * RAMP;
            let trial = self.trial(rate, 0.5, 1.0)?;
            if trial.holds() {
                low = rate
            } else {
                high = rate
            }
            if Instant::now() > end {
                return Err(Problem::Usage(
                    "the search's time ended in the ramp; start it with a higher --rate".into(),
                ));
            }
        }
        let mut best: Option<Trial> = None;
        let mut rate = (low * high).sqrt();
        while Instant::now() < end && (best.is_none() || high / low > PRECISION) {
            let trial = self.trial(rate, WARM_SECONDS, LONG_TRIAL_SECONDS)?;
            if trial.holds() {
                low = rate;
                best = Some(trial);
            } else {
                high = rate;
                // A short trial of the ramp may have flattered.
                low = if best.is_none() { low.min(high / RAMP) } else { low };
            }
            rate = (low * high).sqrt();
        }
        best.ok_or_else(|| Problem::Server(format!("no rate below {high:.0} publications/s holds")))
    }

    /// One rate: warm-up, measured window, and a wait for what is still under way.
    fn trial(&mut self, rate: f64, warm_seconds: f64, seconds: f64) -> Result<Trial, Problem> {
        let mut load = match self.load.take() {
            Some(load) => load,
            None => self.open()?,
        };
        let base = self.next;
        load.clients().for_each(|client| client.tally.restart(base));
        let total = (rate * (warm_seconds + seconds)).ceil() as u32;
        let sample = (rate * self.sessions as f64 / SAMPLES_PER_S).max(1.0) as u32;
        load.reader.restart(base + (rate * warm_seconds) as u32, sample);

        let publisher = self.sessions;
        let begin_us = load.reader.clock_us() as f64 + 1000.0;
        let planned_us = |index: u32| begin_us + f64::from(index) * 1e6 / rate;
        let window_us = [begin_us + warm_seconds * 1e6, begin_us + (warm_seconds + seconds) * 1e6];
        let all = u64::from(total) * self.sessions as u64;
        let mut marks: Vec<Mark> = Vec::new();
        let (mut sent, mut progress) = (0, (0, Instant::now()));
        loop {
            let now_us = load.reader.clock_us() as f64;
            while sent < total && planned_us(sent) <= now_us {
                let until = (sent + BATCH_MAX).min(total);
                let due = (sent..until).find(|&index| planned_us(index) > now_us).unwrap_or(until);
                let batch = (sent..due).map(|index| (base + index, planned_us(index) as u64));
                load.with(publisher, |client| client.publish(batch))?;
                sent = due;
            }
            if marks.len() < 2 && now_us >= window_us[marks.len()] {
                marks.push(self.mark(&load)?);
            }
            if load.reader.received() > progress.0 {
                progress = (load.reader.received(), Instant::now());
            }
            let stalled = progress.1.elapsed() > STALL && sent > 0;
            if load.gone().0 > 0 || stalled || load.reader.latency_max_us() > GIVE_UP_US {
                break;
            }
            if marks.len() == 2 && sent == total && load.reader.received() >= all {
                break;
            }
            let next_us = if sent < total { planned_us(sent) } else { now_us + 5000.0 };
            load.turn(Duration::from_micros((next_us - now_us).clamp(0.0, 5000.0) as u64))?;
        }
        while marks.len() < 2 {
            marks.push(self.mark(&load)?);
        }
        self.next = base + total;
        let trial = self.conclude(rate, &mut load, &marks);
        // What failed has backlogs everywhere: start over with new sockets.
        if trial.holds() {
            self.load = Some(load);
        } else {
            // A session whose socket only breaks waits for its client to come back, and is delivered to until then.
            load.clients().for_each(Session::leave);
            load.idle_until(Instant::now() + RECOVER)?;
        }
        eprintln!("{trial}");
        Ok(trial)
    }

    fn open(&self) -> Result<Load<Session>, Problem> {
        let mut load = Load::new(self.dialect)?;
        let plan = |path: &str, purpose| Plan { dialect: self.dialect, path: path.into(), purpose };
        let subscribe = plan(self.dialect.subscriber_path(), Purpose::Subscribe);
        load.open(self.server, &subscribe, self.sessions, IN_FLIGHT)?;
        load.open(self.server, &plan(self.dialect.publisher_path(), Purpose::Publish), 1, 1)?;
        Ok(load)
    }

    fn mark<C: Client>(&self, load: &Load<C>) -> Result<Mark, Problem> {
        Ok(Mark {
            at: Instant::now(),
            received: load.reader.received(),
            server: self.watched.map(|process| process.cpu()).transpose()?,
            own: own_cpu(),
            all: all_cpu(),
        })
    }

    fn conclude(&self, rate: f64, load: &mut Load<Session>, marks: &[Mark]) -> Trial {
        let (first, last) = (&marks[0], &marks[1]);
        let seconds = last.at.duration_since(first.at).as_secs_f64().max(1e-9);
        let mut faults = Faults::default();
        let (end, sessions) = (self.next, self.sessions);
        load.clients().take(sessions).for_each(|client| faults += client.tally.faults(end));
        let busy = |used: Duration| used.as_secs_f64() / seconds;
        let (gone, reason) = load.gone();
        let server_busy = last.server.zip(first.server).map(|(last, first)| busy(last.saturating_sub(first)));
        let load_busy = busy(last.own.saturating_sub(first.own));
        let all_busy = busy(last.all.saturating_sub(first.all));
        Trial {
            rate,
            delivered_per_s: (last.received - first.received) as f64 / seconds,
            faults,
            gone: (gone, reason.map(str::to_owned)),
            latency_us: [load.reader.latency_us(0.5), load.reader.latency_us(0.99), load.reader.latency_max_us()],
            server_busy,
            load_busy,
            others_busy: server_busy.map(|server| (all_busy - load_busy - server).max(0.0)),
            sessions,
        }
    }
}

impl Trial {
    /// Nothing lost, nobody dropped, p99 under a second, and the deliveries kept up with the plan.
    pub fn holds(&self) -> bool {
        self.faults.none()
            && self.gone.0 == 0
            && self.latency_us[1] < 1_000_000
            && self.delivered_per_s >= KEPT_UP * self.rate * self.sessions as f64
    }

    /// Nanoseconds of processor time that the server used for one delivery, if it was watched.
    pub fn server_ns_per_delivery(&self) -> Option<f64> {
        self.server_busy.map(|busy| busy * 1e9 / self.delivered_per_s.max(1.0))
    }

    fn json(&self, dialect: Dialect, searched: bool) -> Value {
        json!({
            "mode": if searched { "fanout-max" } else { "fanout" },
            "dialect": format!("{dialect:?}").to_lowercase(),
            "sessions": self.sessions,
            "publications_per_s": self.rate.round(),
            "delivered_per_s": self.delivered_per_s.round(),
            "lost": self.faults.lost,
            "doubled": self.faults.doubled,
            "reordered": self.faults.reordered,
            "dropped_sessions": self.gone.0,
            "p50_us": self.latency_us[0],
            "p99_us": self.latency_us[1],
            "max_us": self.latency_us[2],
            "server_busy": self.server_busy,
            "server_ns_per_delivery": self.server_ns_per_delivery(),
            "load_busy": self.load_busy,
            "others_busy": self.others_busy,
            "holds": self.holds(),
        })
    }
}

impl std::fmt::Display for Trial {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [p50, p99, max] = self.latency_us.map(|us| us as f64 / 1000.0);
        write!(
            formatter,
            "{:>9.0} publications/s: {:>10.0} deliveries/s, p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms, load {:.0} %",
            self.rate,
            self.delivered_per_s,
            self.load_busy * 100.0
        )?;
        if let (Some(busy), Some(ns)) = (self.server_busy, self.server_ns_per_delivery()) {
            let others = self.others_busy.unwrap_or_default() * 100.0;
            write!(formatter, ", server {:.0} % ({ns:.0} ns/delivery), others {others:.0} %", busy * 100.0)?;
        }
        if !self.faults.none() {
            let Faults { lost, doubled, reordered } = self.faults;
            write!(formatter, ", LOST {lost} DOUBLED {doubled} REORDERED {reordered}")?;
        }
        if let (count, Some(reason)) = &self.gone {
            write!(formatter, ", DROPPED {count} sessions ({reason})")?;
        }
        write!(formatter, "{}", if self.holds() { "" } else { "  – does not hold" })
    }
}

/// Publications that may share one message.
const BATCH_MAX: u32 = 64;
const WARM_SECONDS: f64 = 1.0;
const LONG_TRIAL_SECONDS: f64 = 3.0;
const RAMP: f64 = 1.6;
/// The search ends when what holds and what does not are this near.
const PRECISION: f64 = 1.04;
/// A window's edges cut through a burst, hence not 1.
const KEPT_UP: f64 = 0.98;
const SAMPLES_PER_S: f64 = 200_000.0;
const STALL: Duration = Duration::from_secs(2);
const GIVE_UP_US: u64 = 4_000_000;
const RECOVER: Duration = Duration::from_millis(500);
const IN_FLIGHT: usize = 64;
