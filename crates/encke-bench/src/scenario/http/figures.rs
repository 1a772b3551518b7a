//! The figures of requests and answers.

use super::drive::{Done, Pace, Plan};
use super::visitor::Page;
use crate::report::units::{count, number};
use crate::report::{Faults, Figure, Trial};

/// The columns of [`file_row`].
pub(super) const FILE_COLUMNS: [&str; 10] =
    ["path", "bytes", "requests", "requests/s", "mean ms", "p90 ms", "p99 ms", "max ms", "errors", "Mbit/s"];

/// The trial of a plan, which holds when each request was answered as it should be.
pub(super) fn trial(plan: &Plan, done: Done) -> Trial {
    let Done { counts, outcome, seen } = done;
    let failed = counts.failed();
    // Answers missing after an early end are no fault.
    let lost = if outcome.cut_short.is_some() { 0 } else { counts.asked.saturating_sub(counts.answered + failed) };
    let mut reasons: Vec<String> = counts
        .errors
        .iter()
        .map(|(why, times)| format!("{} of {} requests: {why}", count(*times), count(counts.asked)))
        .collect();
    if lost > 0 {
        reasons.push(format!("{} of {} requests were never answered", count(lost), count(counts.asked)));
    }
    let window_s = outcome.usage.window_s.max(1e-6);
    if let Pace::PerSecond(rate) = plan.pace
        && outcome.cut_short.is_none()
        && plan.requests_max.is_none()
        && (outcome.outgoing.messages as f64) < rate * window_s * ON_TIME - 2.0
    {
        let sent = number(outcome.outgoing.messages as f64 / window_s);
        reasons.push(format!("all connections were busy: {sent} of {} requests/s were sent", number(rate)));
    }
    let figure = |name: &str, value: f64, unit: &str| Figure { name: name.into(), value, unit: unit.into() };
    let errors = failed + lost;
    let figures = vec![
        figure("requests per second", outcome.incoming.messages_per_s(), "/s"),
        figure("throughput", outcome.incoming.bits_per_s() / 1e6, "Mbit/s"),
        figure("errors", errors as f64, ""),
        figure("connections reused", percent(counts.reusable, counts.answered), "%"),
    ];
    Trial {
        name: plan.name.clone(),
        clients: plan.slots.into(),
        planned_per_s: if let Pace::PerSecond(rate) = plan.pace { Some(rate) } else { None },
        faults: Faults {
            lost: lost + failed - counts.broken.min(failed),
            dropped_sessions: counts.broken.min(failed),
            ..Faults::default()
        },
        figures,
        holds: reasons.is_empty(),
        reasons,
        ..seen.trial(&outcome)
    }
}

/// A row of the table of files.
pub(super) fn file_row(page: &Page, trial: &Trial) -> Vec<String> {
    let mut row = vec![page.path.clone(), page.bytes.to_string(), trial.expected.to_string()];
    row.push(format!("{:.2}", trial.incoming.messages_per_s()));
    row.extend(latency_cells(trial));
    row.push(errors(trial).to_string());
    row.push(format!("{:.1}", trial.incoming.bits_per_s() / 1e6));
    row
}

/// Mean, p90, p99 and the highest latency in milliseconds.
pub(super) fn latency_cells(trial: &Trial) -> [String; 4] {
    let latency = trial.latency.clone().unwrap_or_default();
    let ms = |us: f64| format!("{:.2}", us / 1000.0);
    [ms(latency.mean_us), ms(latency.p90_us as f64), ms(latency.p99_us as f64), ms(latency.max_us as f64)]
}

/// Requests that failed or were never answered.
pub(super) fn errors(trial: &Trial) -> u64 {
    trial.faults.lost + trial.faults.dropped_sessions
}

fn percent(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 }
}

/// Below 1, since the requests under way at the window's edges vary.
const ON_TIME: f64 = 0.98;
