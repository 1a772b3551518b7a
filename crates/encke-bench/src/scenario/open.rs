//! The number of full sessions that a server opens per second.

use std::time::Instant;

use clap::Args;

use super::{Scenario, parts};
use crate::engine::Clients;
use crate::machine::{all_cpu, own_cpu};
use crate::problem::Problem;
use crate::report::units::count;
use crate::report::{Figure, Report, Sample, Server, Trial};
use crate::run::{Bench, Carriage, parse};

/// `encke bench open`.
#[derive(Clone, Debug, Args)]
pub struct Open {
    /// Sessions to open, all held until the end
    #[arg(long, alias = "clients", value_name = "N", default_value = "8000", value_parser = parse::count)]
    pub sessions: u32,
    /// Subscribe each session to a separate channel instead of a common one
    #[arg(long)]
    pub own_channels: bool,
    /// Transport and recovery.
    #[command(flatten)]
    pub carriage: Carriage,
}

impl Scenario for Open {
    const NAME: &'static str = "open";
    const TITLE: &'static str = "Full sessions opened per second";
    const STANDS_FOR: &'static str = "Stands for the first line of \"Websocket Example: Server, Client and LoadTest\" (2011), `Opened 1000 of 1000 \
         connections in 1109ms`. A session is full when it has shaken hands, connected and subscribed, each step after \
         the answer to the one before.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let mut report = bench.report::<Self>();
        // The first sessions include one-time costs.
        let warm = super::opened(bench, &self.spec(bench, WARM_SESSIONS))?;
        let Some(warm) = warm else { return Ok(report) };
        let (spec, server) = (self.spec(bench, self.sessions), bench.server);
        let server_cpu = || server.and_then(|server| server.cpu().ok());
        let (began, own, all, used) = (Instant::now(), own_cpu(), all_cpu(), server_cpu());
        let mut samples = Vec::new();
        let (progress, interrupt) = (&mut bench.progress, &bench.interrupt);
        let clients = Clients::open(&spec, 0, 1, &mut |open| {
            let at_ms = began.elapsed().as_millis() as u64;
            if samples.last().is_none_or(|last: &Sample| at_ms >= last.at_ms + SAMPLE_EVERY_MS) {
                samples.push(Sample { at_ms, connected: open, ..Sample::default() });
            }
            progress.tick(|| format!("opening  {} of {}", count(open), count(spec.clients.into())));
            !interrupt.is_set()
        });
        let took_s = began.elapsed().as_secs_f64().max(1e-9);
        if bench.interrupt.is_set() {
            return Ok(report);
        }
        let mut clients = clients?;
        let cores = |used: std::time::Duration| used.as_secs_f64() / took_s;
        let load_cores = cores(own_cpu().saturating_sub(own));
        let server_cores = server_cpu().zip(used).map(|(now, before)| cores(now.saturating_sub(before)));
        let all_cores = cores(all_cpu().saturating_sub(all));
        samples.push(Sample { at_ms: (took_s * 1000.0) as u64, connected: self.sessions.into(), ..Sample::default() });
        let figure = |name: &str, value, unit: &str| Figure { name: name.into(), value, unit: unit.into() };
        let mut figures = vec![
            figure("sessions opened per second", f64::from(self.sessions) / took_s, "/s"),
            figure("time", took_s * 1000.0, "ms"),
        ];
        if bench.common.trust.tls_tickets {
            figures.push(figure("resumed TLS sessions", clients.resumed() as f64, ""));
        }
        report.trials.push(Trial {
            name: format!("{} sessions", count(self.sessions.into())),
            clients: self.sessions.into(),
            figures,
            server: server_cores.map(|cores| Server { cores, ..Server::default() }),
            load_cores,
            others_cores: server_cores.map(|cores| (all_cores - cores - load_cores).max(0.0)),
            samples,
            holds: true,
            ..Trial::default()
        });
        clients.disconnect();
        warm.disconnect();
        Ok(report)
    }
}

impl Open {
    fn spec(&self, bench: &Bench, sessions: u32) -> crate::order::ClientsSpec {
        let rooms = if self.own_channels { sessions } else { 1 };
        parts::clients_spec(bench, &self.carriage, sessions, 0, parts::membership("/bench/open", rooms, 1))
    }
}

const WARM_SESSIONS: u32 = 16;
const SAMPLE_EVERY_MS: u64 = 50;
