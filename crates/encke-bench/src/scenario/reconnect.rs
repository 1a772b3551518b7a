//! All clients cut off at once: how soon they are back.

use std::time::{Duration, Instant};

use clap::Args;

use super::{Scenario, parts};
use crate::engine::Clients;
use crate::order::{ClientsSpec, Order, Senders, Size};
use crate::problem::Problem;
use crate::report::units::count;
use crate::report::{Faults, Figure, Report, Sample, Trial};
use crate::run::{Bench, Carriage, Generator, parse};

/// `encke bench reconnect`.
#[derive(Clone, Debug, Args)]
pub struct Reconnect {
    /// Clients, each with a session and a subscription
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse::count)]
    pub clients: u32,
    /// Number of cuts
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse::count)]
    pub rounds: u32,
    /// Time to reconnect
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse::some_duration)]
    pub timeout: Duration,
    /// Transport and recovery.
    #[command(flatten)]
    pub carriage: Carriage,
}

impl Scenario for Reconnect {
    const NAME: &'static str = "reconnect";
    const TITLE: &'static str = "All clients cut off at once: the time until 50, 99 and 100 % are back";
    const STANDS_FOR: &'static str = "Stands for what \"20,000 reasons that Comet scales\" (2008) leaves open: what comes after a network or a proxy has \
         failed. A client is back when it has a session and its subscription; then messages are sent to see that they \
         arrive.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let mut report = bench.report::<Self>();
        let membership = parts::membership("/bench/back", ROOMS.min(self.clients), 1);
        let spec =
            ClientsSpec { reconnect: true, ..parts::clients_spec(bench, &self.carriage, self.clients, 0, membership) };
        let Some(mut generator) = super::opened(bench, &spec)? else { return Ok(report) };
        for round in 1..=self.rounds {
            let Some(trial) = self.round(bench, &mut generator, round)? else { break };
            let holds = trial.holds;
            report.trials.push(trial);
            if !holds || bench.interrupt.is_set() {
                break;
            }
        }
        generator.disconnect();
        Ok(report)
    }
}

impl Reconnect {
    /// Cuts all off once; none if the run is to end before it has begun.
    fn round(&self, bench: &mut Bench, generator: &mut Generator, round: u32) -> Result<Option<Trial>, Problem> {
        let Some(clients) = super::local_clients(generator) else { return Ok(None) };
        if bench.interrupt.is_set() {
            return Ok(None);
        }
        let mut trial = Trial { name: format!("round {round}"), clients: self.clients.into(), ..Trial::default() };
        let back = self.wait_for_return(bench, clients, &mut trial)?;
        trial.figures = SHARES
            .iter()
            .zip(back)
            .filter_map(|(share, time)| {
                let value = time?.as_secs_f64() * 1000.0;
                Some(Figure { name: format!("{share} % back after"), value, unit: "ms".into() })
            })
            .collect();
        let missing = u64::from(self.clients).saturating_sub(clients.counts().connected);
        if bench.interrupt.is_set() {
            trial.holds = missing == 0;
            return Ok(Some(trial));
        }
        if missing > 0 {
            trial.faults = Faults { dropped_sessions: missing, ..Faults::default() };
            let why = clients.first_loss().map(|why| format!(" ({why})")).unwrap_or_default();
            trial.reasons.push(format!(
                "{} of {} clients did not come back{why}.",
                count(missing),
                count(trial.clients)
            ));
            return Ok(Some(trial));
        }
        self.check(bench, generator, &mut trial)?;
        Ok(Some(trial))
    }

    /// Cuts, and waits until all are back: the times at which each share was.
    fn wait_for_return(
        &self,
        bench: &mut Bench,
        clients: &mut Clients,
        trial: &mut Trial,
    ) -> Result<[Option<Duration>; 3], Problem> {
        let wanted = SHARES.map(|share| (u64::from(self.clients) * share).div_ceil(100));
        let (mut back, mut sampled) = ([None; 3], Duration::ZERO);
        clients.reset_breaks();
        clients.cut();
        let began = Instant::now();
        trial.samples.push(sample(bench, Duration::ZERO, 0));
        while began.elapsed() < self.timeout && !bench.interrupt.is_set() {
            clients.turn(TURN)?;
            let (connected, now) = (clients.counts().connected, began.elapsed());
            for (time, wanted) in back.iter_mut().zip(wanted) {
                if time.is_none() && connected >= wanted {
                    *time = Some(now);
                }
            }
            let all_back = back[2].is_some();
            if now >= sampled + SAMPLE_EVERY || all_back {
                sampled = now;
                trial.samples.push(sample(bench, now, connected));
                let all = u64::from(self.clients);
                bench.progress.tick(|| format!("{}  {} of {} are back", trial.name, count(connected), count(all)));
            }
            if all_back {
                break;
            }
        }
        Ok(back)
    }

    /// Sends some messages to see that subscriptions are back, too.
    fn check(&self, bench: &mut Bench, generator: &mut Generator, trial: &mut Trial) -> Result<(), Problem> {
        let traffic = parts::traffic(Senders::AnyClient, Some(CHECKS_PER_S), CHECK_BYTES);
        let order = Order {
            traffic,
            warm_up_ms: 0,
            size: Size::Batches(u64::from(ROOMS) * 4),
            drain_timeout_ms: TIMEOUT_MS,
            late_after_us: TIMEOUT_MS * 1000,
            give_up_us: None,
            cuts: None,
        };
        let interrupt = bench.interrupt.clone();
        let outcome = generator.run_trial(&order, &mut |_| !interrupt.is_set())?;
        trial.expected = outcome.expected;
        trial.faults = outcome.faults;
        let (name, value) = ("came again, dropped by the client".into(), outcome.breaks.again as f64);
        trial.figures.push(Figure { name, value, unit: String::new() });
        if outcome.faults.none() && outcome.refused == 0 {
            trial.holds = true;
        } else {
            let (lost, expected) = (outcome.faults.lost + outcome.refused, outcome.expected);
            let text = format!("after all were back, {} of {} messages did not arrive as they should.", lost, expected);
            trial.reasons.push(text);
        }
        Ok(())
    }
}

fn sample(bench: &Bench, at: Duration, connected: u64) -> Sample {
    let rss = bench.server.and_then(|server| server.rss_bytes().ok());
    Sample { at_ms: at.as_millis() as u64, connected, server_rss_bytes: rss, ..Sample::default() }
}

/// Percent of the clients that are timed.
const SHARES: [u64; 3] = [50, 99, 100];
const ROOMS: u32 = 10;
const CHECKS_PER_S: f64 = 100.0;
const CHECK_BYTES: u32 = 50;
const TIMEOUT_MS: u64 = 5000;
const TURN: Duration = Duration::from_millis(5);
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
