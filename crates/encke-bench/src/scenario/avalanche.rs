//! Restarts the server under load: measures when all clients have reconnected, and counts missing messages.

mod restart_run;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use self::restart_run::{RestartRun, RestartTerms, RestartTimes, SHARES};
use self::server::{Kill, Plan};
use super::{Scenario, parts};
use crate::engine::{Clients, Target};
use crate::machine::Process;
use crate::order::{ClientsSpec, Transport};
use crate::problem::Problem;
use crate::report::units::count;
use crate::report::{Faults, Figure, Report, Trial};
use crate::run::{Bench, Carriage, parse};

/// `encke bench avalanche`.
#[derive(Clone, Debug, Args)]
pub struct Avalanche {
    /// Subscribers
    #[arg(long, alias = "sessions", value_name = "N", default_value = "10000", value_parser = parse::count)]
    pub clients: u32,
    /// Signal that stops the server
    #[arg(long, value_enum, default_value = "term")]
    pub kill: Kill,
    /// Messages to all of them per second: before, during (as far as they are accepted) and after the restart
    #[arg(long, value_name = "N", default_value = "2", value_parser = parse::rate)]
    pub rate: f64,
    /// Time to send messages before the stop, and after all are back
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::some_duration)]
    pub around: Duration,
    /// Time within which all have to be back
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::some_duration)]
    pub back_within: Duration,
    /// Length of a message's data
    #[arg(long, value_name = "SIZE", default_value = "50", value_parser = parts::data_size)]
    pub message_size: u32,
    /// The port that the server listens on [default: any that is free]
    #[arg(long, value_name = "N")]
    pub port: Option<u16>,
    /// Data directory of the server [default: a new one, removed afterwards]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The command that starts the server, with {port} and {data} [default: this program's serve, with a history]
    #[arg(long, value_name = "COMMAND")]
    pub server: Option<String>,
    /// The URL that the clients use: a balancer in front of several nodes, of which this run stops one [default: the server itself]
    #[arg(long, value_name = "URL", requires = "server")]
    pub through: Option<String>,
    /// Transport and recovery.
    #[command(flatten)]
    pub carriage: Carriage,
}

impl Scenario for Avalanche {
    const NAME: &'static str = "avalanche";
    const TITLE: &'static str = "The server stops and starts again: the time until all are back, and missing messages";
    const STANDS_FOR: &'static str = "Stands for every deployment and every crash. It starts the server itself. What the server has confirmed to the \
         publisher has to arrive at all clients, once and in order: with --kill term and --ack or --replay, with --kill kill and \
         --replay. --target and --duration have no meaning here.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        if self.carriage.transport == Transport::Raw {
            return Err(Problem::Usage("--transport raw has no sessions that could come back".into()));
        }
        let plan = Plan::new(self.port, self.data.as_deref(), self.server.as_deref())?;
        let own = || format!("http://127.0.0.1:{}", plan.port);
        bench.common.target = self.through.clone().unwrap_or_else(own);
        bench.target = Target::resolve(&bench.common.target, "/cometd", &bench.common.trust)?;
        let mut report = bench.report::<Self>();
        let membership = parts::membership(CHANNEL, 1, 1);
        let spec = parts::clients_spec(bench, &self.carriage, self.clients, 1, membership);
        let spec = ClientsSpec { reconnect: true, ..spec };
        let Some(server) = restart_run::started(&plan, &bench.interrupt)? else { return Ok(report) };
        bench.server = Process::watch(server.id()).ok();
        if let Some(unsupported) = Clients::unsupported(&spec)? {
            report.holds = false;
            report.reasons.push(format!("the server {unsupported}"));
            return Ok(report);
        }
        let Some(mut generator) = super::opened(bench, &spec)? else { return Ok(report) };
        let Some(clients) = super::local_clients(&mut generator) else { return Ok(report) };
        let times = RestartRun::new(self.terms(), bench, clients).run(&plan, server)?;
        report.trials.extend(times.map(|times| self.judged(times, clients)));
        Ok(report)
    }
}

impl Avalanche {
    fn terms(&self) -> RestartTerms {
        RestartTerms {
            clients: self.clients,
            kill: self.kill,
            rate: self.rate,
            message_size: self.message_size,
            around: self.around,
            back_within: self.back_within,
            is_one_of_several: self.through.is_some(),
        }
    }

    /// Judges the restart.
    fn judged(&self, times: RestartTimes, sessions: &Clients) -> Trial {
        let (breaks, counts, clients) = (sessions.breaks(), sessions.counts(), u64::from(self.clients));
        let (connect, handshake) = sessions.clients_back();
        let confirmed = sessions.confirmed();
        let sent = counts.sent;
        let faults = Faults {
            lost: sessions.missing_confirmed(),
            dropped_sessions: clients - self.terms().back(sessions),
            ..sessions.faults(&[])
        };
        let mut trial = Trial {
            name: format!("{} clients, {}", count(clients), self.kill.name()),
            clients,
            expected: confirmed * clients,
            faults,
            samples: times.samples,
            ..Trial::default()
        };
        let figure = |name: &str, value: f64, unit: &str| Figure { name: name.into(), value, unit: unit.into() };
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let after = |name: &str, time: Option<Duration>| time.map(|time| figure(name, ms(time), "ms"));
        let shares = SHARES.iter().zip(times.back);
        let shares = shares.filter_map(|(share, time)| after(&format!("{share} % back after"), time));
        trial.figures.extend(after("server ended after", times.ended));
        trial.figures.extend(after("server listened after", times.listened));
        trial.figures.extend(shares);
        trial.figures.extend([
            figure("back with a connect", connect as f64, ""),
            figure("back with a handshake", handshake as f64, ""),
            figure("messages confirmed", confirmed as f64, ""),
            figure("messages without an answer", sent.saturating_sub(confirmed) as f64, ""),
            figure("gaps reported", breaks.gaps as f64, ""),
            figure("came again, dropped by the client", breaks.again as f64, ""),
        ]);
        trial.reasons = self.reasons(&trial, times.back[2], sessions);
        trial.holds = trial.reasons.is_empty();
        trial
    }

    fn reasons(&self, trial: &Trial, back: Option<Duration>, sessions: &Clients) -> Vec<String> {
        let mut reasons = Vec::new();
        let why = sessions.first_loss().map(|why| format!(" ({why})")).unwrap_or_default();
        let limit_s = self.back_within.as_secs_f64();
        match back {
            None => reasons.push(format!("{} sessions did not come back{why}.", count(trial.faults.dropped_sessions))),
            Some(back) if back > self.back_within => {
                reasons.push(format!("all were back after {:.1} s, not within {limit_s} s.", back.as_secs_f64()));
            }
            Some(_) => {}
        }
        for (number, what) in [
            (trial.faults.lost, "that were confirmed never arrived"),
            (trial.faults.doubled, "arrived more than once"),
            (trial.faults.reordered, "arrived out of order"),
            (trial.faults.misdelivered, "arrived at sessions that had not subscribed"),
        ] {
            if number > 0 {
                reasons.push(format!("{} of {} messages {what}.", count(number), count(trial.expected)));
            }
        }
        let Carriage { ack, replay, .. } = self.carriage;
        if trial.faults.lost > 0 && !replay && (self.kill == Kill::Kill || !ack) {
            reasons.push(match self.kill {
                Kill::Term => "no client asked for what is missing: --ack or --replay.".into(),
                Kill::Kill => {
                    "no client asked for what is missing: --replay, as sessions do not outlive SIGKILL.".into()
                }
            });
        }
        if sessions.confirmed() == 0 {
            reasons.push("no message was confirmed: --around is too short, or the server takes none.".into());
        }
        reasons
    }
}

const CHANNEL: &str = "/avalanche";
