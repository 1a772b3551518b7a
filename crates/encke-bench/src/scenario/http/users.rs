//! The search for the most users that are served in time, as in Faban.

use std::time::{Duration, Instant};

use super::drive::{self, Pace, Plan};
use super::visitor::Page;
use super::{Http, figures};
use crate::engine::{Target, allow_sockets};
use crate::machine;
use crate::problem::Problem;
use crate::report::units::{count, micros};
use crate::report::{Report, Table, Trial};
use crate::run::Bench;
use crate::run::search::{Length, SearchResult, TrialVerdict, find_max};

/// Searches, and adds its trials to the report.
///
/// # Errors
/// The machine's.
pub(super) fn search(
    options: &Http,
    target: &Target,
    pages: Vec<Page>,
    bench: &mut Bench,
    report: &mut Report,
) -> Result<(), Problem> {
    let bound = Bound::new(options, bench);
    allow_sockets(bound.users.into())?;
    let plan = Plan {
        name: String::new(),
        pages,
        slots: 0,
        http2: options.http2,
        pace: Pace::AfterThinking(options.think),
        warm_up: Duration::ZERO,
        duration: Duration::ZERO,
        requests_max: None,
    };
    let mut table = Table { columns: COLUMNS.map(String::from).to_vec(), rows: Vec::new() };
    let mut best: Option<(u32, usize)> = None;
    let (mut is_bound, mut is_hopeless) = (false, false);
    let end = Instant::now() + options.search_time;
    let start = f64::from(options.users_start.min(bound.users));
    let found = find_max(start, || Instant::now() > end, &mut |users, length| {
        let users = (users.round() as u32).clamp(1, bound.users);
        let plan = sized(&plan, users, length, bench);
        let trial = judged(figures::trial(&plan, drive::drive(target, &plan, bench)?), options);
        bench.progress.print_line(&summary_line(&trial));
        table.rows.push(row(&trial));
        let holds = trial.holds;
        report.trials.push(trial);
        if bench.interrupt.is_set() {
            return Ok(TrialVerdict::Stop);
        }
        if !holds {
            is_hopeless = users == 1;
            return Ok(if is_hopeless { TrialVerdict::Stop } else { TrialVerdict::Fails });
        }
        // Fewer users than held before are no better result.
        if best.is_none_or(|(most, _)| users >= most) && (length == Length::Long || users == bound.users) {
            best = Some((users, report.trials.len() - 1));
        }
        is_bound = users == bound.users;
        Ok(if is_bound { TrialVerdict::Stop } else { TrialVerdict::Holds })
    })?;
    report.table = Some(table);
    report.result = best.map(|(_, index)| index);
    report.transcript.extend(summary(found, best.map(|(users, _)| users), is_bound.then_some(&bound), options));
    if best.is_none() && !bench.interrupt.is_set() {
        report.holds = false;
        report.reasons.push(if is_hopeless {
            "not even one user's answers stay within the bounds".into()
        } else {
            "the search's time ended before any number of users held; give it more --search-time".into()
        });
    }
    Ok(())
}

/// More users than this cannot be tried.
struct Bound {
    users: u32,
    why: String,
}

impl Bound {
    fn new(options: &Http, bench: &Bench) -> Bound {
        let most = |files: u64| u32::try_from(files.saturating_sub(SPARE_FILES)).unwrap_or(u32::MAX).max(1);
        let own = machine::files_max();
        let mut bound = Bound { users: most(own), why: "the load's limit of open files (ulimit -Hn)".into() };
        if let Some(files) = bench.server.and_then(|server| server.files_max()).filter(|files| *files < own) {
            bound = Bound { users: most(files), why: "the server's limit of open files".into() };
        }
        // One address has no more ports for connections to one server (the kernel's ip_local_port_range).
        if bound.users > PORTS {
            bound = Bound { users: PORTS, why: "the ports of one address".into() };
        }
        if let Some(users) = options.users_max.filter(|users| *users <= bound.users) {
            bound = Bound { users, why: "--users-max".into() };
        }
        bound
    }
}

fn sized(plan: &Plan, users: u32, length: Length, bench: &Bench) -> Plan {
    let Pace::AfterThinking(think) = plan.pace else { return plan.clone() };
    let (warm_up, duration) = match length {
        // All have begun after one pause; half of one shows whether it is hopeless.
        Length::Short => (think, (bench.common.duration / 2).max(think / 2)),
        Length::Long => (think, bench.common.duration.max(think)),
    };
    Plan { name: format!("{} users", count(users.into())), slots: users, warm_up, duration, ..plan.clone() }
}

/// Judges by the bounds of the search; a few errors may be among them.
fn judged(mut trial: Trial, options: &Http) -> Trial {
    let failed = figures::errors(&trial);
    let share = failed as f64 / trial.expected.max(1) as f64;
    if share <= options.errors {
        trial.reasons.clear();
    }
    match &trial.latency {
        Some(latency) if u128::from(latency.p90_us) > options.p90.as_micros() => {
            let (p90, bound) = (micros(latency.p90_us as f64), micros(options.p90.as_micros() as f64));
            trial.reasons.push(format!("p90 is {p90}, over {bound}"));
        }
        Some(_) => {}
        None => trial.reasons.push("no request was answered".into()),
    }
    if trial.load_cores > LOAD_CORES_MAX {
        trial.reasons.push(format!("the load itself had no time left: it used {:.2} cores", trial.load_cores));
    }
    trial.holds = trial.reasons.is_empty();
    trial
}

fn summary(found: SearchResult, users: Option<u32>, bound: Option<&Bound>, options: &Http) -> Vec<String> {
    let (p90, errors) = (micros(options.p90.as_micros() as f64), options.errors * 100.0);
    let mut lines = Vec::new();
    if let Some(users) = users {
        let think = micros(options.think.as_micros() as f64);
        lines.push(format!(
            "{} users that think {think} on average have 90 % of their answers within {p90}, and at most {errors} % errors",
            count(users.into())
        ));
    }
    match (bound, found) {
        (Some(Bound { users, why }), _) => {
            lines.push(format!("more were not tried: {} is {why}; the server may hold more", count((*users).into())));
        }
        (None, SearchResult::TooShort(_) | SearchResult::Rough { .. }) => {
            lines.push("the search's time ended before the limit was found".into())
        }
        _ => {}
    }
    lines
}

fn summary_line(trial: &Trial) -> String {
    let p90 = trial.latency.as_ref().map_or(0, |latency| latency.p90_us);
    let verdict = if trial.holds { "holds".into() } else { trial.reasons.join("; ") };
    format!("{}: p90 {}, {} errors: {verdict}", trial.name, micros(p90 as f64), count(figures::errors(trial)))
}

fn row(trial: &Trial) -> Vec<String> {
    let mut row = vec![trial.clients.to_string(), trial.expected.to_string()];
    row.push(format!("{:.2}", trial.incoming.messages_per_s()));
    row.extend(figures::latency_cells(trial));
    let share = figures::errors(trial) as f64 * 100.0 / trial.expected.max(1) as f64;
    row.extend([format!("{share:.3}"), if trial.holds { "yes" } else { "no" }.into()]);
    row
}

const COLUMNS: [&str; 9] =
    ["users", "requests", "requests/s", "mean ms", "p90 ms", "p99 ms", "max ms", "errors %", "holds"];
/// Files that are no connections, in the load or in the server.
const SPARE_FILES: u64 = 64;
/// Linux assigns the ports 32,768 to 60,999.
const PORTS: u32 = 28_000;
/// A thread that is always busy adds its own queue to every latency.
const LOAD_CORES_MAX: f64 = 0.9;
