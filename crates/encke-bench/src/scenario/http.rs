//! `http`: static files over keep-alive connections.

mod drive;
pub(crate) mod exchange;
mod figures;
mod pages;
pub(crate) mod probe;
mod users;
mod visitor;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use self::drive::{Pace, Plan};
use self::exchange::Exchange;
use self::visitor::Page;
use super::Scenario;
use crate::engine::{Target, allow_sockets};
use crate::problem::Problem;
use crate::report::units::{count, number};
use crate::report::{Report, Table};
use crate::run::{Bench, parse};

/// Static files, by connections or by users.
#[derive(Clone, Debug, Args)]
pub struct Http {
    /// Paths to ask for, one trial each [default: the three files of --files]
    #[arg(long, value_name = "PATH", value_delimiter = ',')]
    path: Vec<String>,
    /// Write files of 2 kB, 14 kB and 954 kB into this directory where they are missing, for `encke serve --files DIR`
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// Connections, each of which asks again as soon as it is answered, as those of ApacheBench do
    #[arg(long, value_name = "N", default_value = "300", value_parser = parse::count)]
    connections: u32,
    /// Ask so often per second instead; latency counts from the planned time, also while all connections are busy
    #[arg(long, value_name = "N", value_parser = parse::rate, conflicts_with = "users")]
    rate: Option<f64>,
    /// End each trial after this many requests instead of after --duration, without a warm-up
    #[arg(long, value_name = "N", value_parser = parse::count, conflicts_with = "users")]
    requests: Option<u32>,
    /// HTTP/2, one request at a time on each connection: over TLS, or without it by prior knowledge
    #[arg(long)]
    http2: bool,
    /// Search the most users whose answers stay within --p90 and --errors
    #[arg(long)]
    users: bool,
    /// Think time of a user between answer and next request, on average
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = parse::some_duration)]
    think: Duration,
    /// Limit for the fastest nine of ten answers
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::some_duration)]
    p90: Duration,
    /// The share of requests that may fail
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = share)]
    errors: f64,
    /// Users to begin the search with
    #[arg(long, value_name = "N", default_value = "500", value_parser = parse::count, hide_short_help = true)]
    users_start: u32,
    /// Most users to try [default: as the limit of open files allows]
    #[arg(long, value_name = "N", value_parser = parse::count, hide_short_help = true)]
    users_max: Option<u32>,
    /// Time for the whole search
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse::some_duration, hide_short_help = true)]
    search_time: Duration,
}

impl Scenario for Http {
    const NAME: &'static str = "http";
    const TITLE: &'static str = "Measure static files: requests per second with keep-alive, or the most users";
    const STANDS_FOR: &'static str = "Stands for \"Can a Grizzly run faster than a Coyote?\" (2006): ab -n1000 -c300 -k on files of \
                                      2 kB, 14 kB and 954 kB, and Faban's clients, of which 90 % have to be answered in time.";

    fn run(&self, bench: &mut Bench) -> Result<Report, Problem> {
        let mut target = Target::resolve(&bench.common.target, "/", &bench.common.trust)?;
        if self.http2 {
            target.require_http2();
        }
        let paths = self.paths(bench)?;
        let pages = paths.iter().map(|path| page(&target, path, self.http2)).collect::<Result<Vec<Page>, Problem>>()?;
        let mut report = bench.report::<Http>();
        if self.users {
            users::search(self, &target, pages, bench, &mut report)?;
        } else {
            self.files(&target, &pages, bench, &mut report)?;
        }
        Ok(report)
    }
}

impl Http {
    /// The paths to request. Writes the files if asked for.
    fn paths(&self, bench: &mut Bench) -> Result<Vec<String>, Problem> {
        if let Some(folder) = &self.files {
            let written = pages::write_missing(folder)?;
            if !written.is_empty() {
                bench.progress.print_line(&format!("written to {}: {}", folder.display(), written.join(", ")));
            }
        }
        let wanted = |path: &String| path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
        if let Some(path) = self.path.iter().find(|path| !wanted(path)) {
            return Err(Problem::Usage(format!("--path {path}: a path such as /index.html")));
        }
        let default = || pages::NAMES.iter().map(|name| format!("/{name}")).collect();
        Ok(if self.path.is_empty() { default() } else { self.path.clone() })
    }

    /// One trial for each page.
    fn files(&self, target: &Target, pages: &[Page], bench: &mut Bench, report: &mut Report) -> Result<(), Problem> {
        allow_sockets(self.connections.into())?;
        let mut table = Table { columns: figures::FILE_COLUMNS.map(String::from).to_vec(), rows: Vec::new() };
        for page in pages {
            let plan = self.plan(page, bench);
            let done = drive::drive(target, &plan, bench)?;
            let trial = figures::trial(&plan, done);
            table.rows.push(figures::file_row(page, &trial));
            report.trials.push(trial);
            if bench.interrupt.is_set() {
                break;
            }
        }
        report.table = Some(table);
        report.transcript.push(match self.rate {
            Some(rate) => format!("open loop: {} requests/s planned, latency from the planned time", number(rate)),
            None => format!(
                "closed loop, as ab -c{} -k has it: each of {} connections asks when it is answered, so a slow server is \
                 asked less; --rate has an open one",
                self.connections,
                count(self.connections.into())
            ),
        });
        Ok(())
    }

    fn plan(&self, page: &Page, bench: &Bench) -> Plan {
        let (warm_up, duration) = match self.requests {
            Some(_) => (Duration::ZERO, REQUESTS_TIME_MAX),
            None => (bench.common.warm_up, bench.common.duration),
        };
        let connections = count(self.connections.into());
        let (pace, name) = match self.rate {
            None => (Pace::WhenAnswered, format!("{}, {connections} connections", page.path)),
            Some(rate) => (Pace::PerSecond(rate), format!("{}, {} requests/s", page.path, number(rate))),
        };
        let (pages, requests_max) = (vec![page.clone()], self.requests.map(u64::from));
        Plan { name, pages, slots: self.connections, http2: self.http2, pace, warm_up, duration, requests_max }
    }
}

/// Requests a page once, so that a missing one is reported before the measurement.
fn page(target: &Target, path: &str, http2: bool) -> Result<Page, Problem> {
    let answer = probe::get_over(target, path, Exchange::new(http2), |_| false)?;
    if answer.head.status != 200 {
        let hint = "; encke bench http --files DIR writes files, encke serve --files DIR serves them";
        let hint = if pages::NAMES.contains(&&path[1..]) { hint } else { "" };
        return Err(Problem::Server(format!("answers GET {path} with {}{hint}", answer.head.reason)));
    }
    Ok(Page { path: path.into(), request: Exchange::new(http2).request(target, path), bytes: answer.body_bytes })
}

/// Parses a share such as `0.1%` or `0.001`.
fn share(text: &str) -> Result<f64, String> {
    let (number, part) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.trim().parse::<f64>().ok().map(|number| number / part);
    share.filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| "a share such as 0.1% or 0.001".into())
}

/// The most time of a trial with a fixed number of requests.
const REQUESTS_TIME_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_people_write_them() {
        assert_eq!(["0.1%", "0", "0.25", "100 %"].map(|text| share(text).expect(text)), [0.001, 0.0, 0.25, 1.0]);
        for text in ["", "%", "-1%", "101%", "2", "many"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
