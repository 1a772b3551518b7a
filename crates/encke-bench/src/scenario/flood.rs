//! `flood`: streaming responses opened at a fixed rate, each with a welcome and then a chunk every few seconds.

mod drive;
mod figures;
mod listener;
mod over;
mod session;
mod stream;

use std::time::Duration;

use clap::Args;

use self::drive::Plan;
use self::over::Over;
use super::Scenario;
use super::http::probe;
use crate::engine::{Target, allow_sockets};
use crate::problem::Problem;
use crate::report::Report;
use crate::report::units::{count, number};
use crate::run::{Bench, parse};

/// Connections that stay open.
#[derive(Clone, Debug, Args)]
pub struct Flood {
    /// Connections to open
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse::count)]
    connections: u32,
    /// Connections to open per second
    #[arg(long, value_name = "N", default_value = "100", value_parser = parse::rate)]
    rate: f64,
    /// Time between chunks; over long-polling one more session publishes them
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::some_duration)]
    chunk_every: Duration,
    /// Transport of chunks [default: stream if GET /comet?id=0 is answered in chunks, otherwise long-polling]
    #[arg(long, value_enum)]
    over: Option<Over>,
    /// Count chunks that come later than this as late, which no run may have
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::some_duration, hide_short_help = true)]
    late_after: Duration,
    /// Length of an interval in the table of connection rates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse::some_duration, hide_short_help = true)]
    interval: Duration,
}

impl Scenario for Flood {
    const NAME: &'static str = "flood";
    const TITLE: &'static str = "Open connections at a fixed rate that stay open and get a chunk every few seconds";
    const STANDS_FOR: &'static str = "Stands for \"Comet & Java: Threaded Vs Nonblocking I/O\" (2008): thousands of streaming \
                                      responses, opened at a fixed rate, a welcome line and a chunk every 10 s, and how many \
                                      were opened in each interval. encke flood-target --io async|threads serves them either \
                                      way. --duration is how long all stay open, at least until each has had a chunk.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let over = self.over(bench)?;
        // Ids go to /comet, sessions to the Bayeux endpoint.
        let target = Target::resolve(&bench.common.target, "/cometd", &bench.common.trust)?;
        let publishers = u64::from(over == Over::LongPolling);
        allow_sockets(u64::from(self.connections) + publishers)?;
        let name = format!("{} connections, {}/s", count(self.connections.into()), number(self.rate));
        let plan = Plan {
            name,
            over,
            connections: self.connections,
            per_s: self.rate,
            chunk_every: self.chunk_every,
            late_after: self.late_after,
            hold: bench.common.duration.max(self.chunk_every + self.late_after),
        };
        let done = drive::drive(&target, &plan, bench)?;
        let mut report = bench.report::<Flood>();
        report.table = Some(figures::rates(&done, self.interval));
        report.trials.push(figures::trial(&plan, done, bench.interrupt.is_set()));
        report.transcript.push(match over {
            Over::Stream => "streaming responses of GET /comet".into(),
            Over::LongPolling => "long-polling: each connection is a session with a held connect".into(),
        });
        report.transcript.push("latency is that of welcomes, from the planned time of their connection".into());
        Ok(report)
    }
}

impl Flood {
    fn over(&self, bench: &Bench) -> Result<Over, Problem> {
        let target = Target::resolve(&bench.common.target, "/", &bench.common.trust)?;
        if let Some(over) = self.over {
            probe::reach(&target)?;
            return Ok(over);
        }
        match probe::get(&target, &stream::path(0), |answer| answer.body_bytes > 0) {
            Ok(answer) if answer.head.status == 200 && answer.head.chunked => Ok(Over::Stream),
            Err(unreachable @ Problem::Unreachable { .. }) => Err(unreachable),
            // The first session shows whether it is one.
            Ok(_) | Err(_) => Ok(Over::LongPolling),
        }
    }
}
