//! The figures of a flood: welcomes, chunks, and the connections opened in each interval.

use std::time::Duration;

use super::drive::{Done, Plan};
use crate::report::units::{count, micros, number};
use crate::report::{Figure, Table, Trial};

/// The trial, which holds when all connections were welcomed in time, and each chunk came once, in order and in time.
pub(super) fn trial(plan: &Plan, done: Done, interrupted: bool) -> Trial {
    let Done { shared, outcome, seen, begin_us, opened_us } = done;
    let mut reasons: Vec<String> =
        shared.errors.iter().map(|(why, times)| format!("{} connections: {why}", count(*times))).collect();
    let welcomed = shared.welcomed_us.len() as u64;
    let missing = u64::from(plan.connections).saturating_sub(welcomed);
    let reported: u64 =
        shared.errors.iter().filter(|(why, _)| why.starts_with("no welcome")).map(|(_, times)| times).sum();
    if missing > reported && !interrupted {
        reasons.push(format!("{} connections had no welcome until the end", count(missing - reported)));
    }
    let faults = shared.faults;
    for (times, what) in [
        (faults.lost, "never came".to_owned()),
        (faults.doubled, "came more than once".into()),
        (faults.reordered, "came out of order".into()),
        (faults.late, format!("came over {} late", micros(shared.late_after_us as f64))),
    ] {
        if times > 0 {
            reasons.push(format!("{} of {} chunks {what}", count(times), count(outcome.expected)));
        }
    }
    if let Some(why) = &shared.publisher_failed {
        reasons.push(format!("the session that publishes ended: {why}"));
    }
    let ms = |us: u64| us as f64 / 1000.0;
    let figure = |name: &str, value: f64, unit: &str| Figure { name: name.into(), value, unit: unit.into() };
    let last_us = shared.welcomed_us.last().copied().unwrap_or(begin_us);
    let mut figures = vec![
        figure("connections welcomed", welcomed as f64, ""),
        figure("opened per second", per_s(welcomed, last_us.saturating_sub(begin_us)), "/s"),
        figure("chunks", shared.chunks as f64, ""),
    ];
    if welcomed == u64::from(plan.connections) {
        let late_ms = ms(last_us.saturating_sub(opened_us));
        figures.insert(2, figure("last welcome after its planned time", late_ms, "ms"));
    }
    if shared.chunks > 0 {
        figures.extend([
            figure("chunk lateness, half", ms(shared.lateness.at_share(0.5)), "ms"),
            figure("chunk lateness, 99 %", ms(shared.lateness.at_share(0.99)), "ms"),
            figure("chunk lateness, highest", ms(shared.lateness.max_us()), "ms"),
        ]);
    }
    Trial {
        name: plan.name.clone(),
        clients: plan.connections.into(),
        planned_per_s: Some(plan.per_s),
        figures,
        holds: reasons.is_empty(),
        reasons,
        ..seen.trial(&outcome)
    }
}

/// Connections that were welcomed in each interval until the last: the post's chart as a table.
pub(super) fn rates(done: &Done, interval: Duration) -> Table {
    let interval_us = (interval.as_micros() as u64).max(1);
    let columns = ["until s", "opened", "per second", "connected"].map(String::from).to_vec();
    let mut rows = Vec::new();
    let mut total = 0;
    let times = &done.shared.welcomed_us;
    let span_us = times.last().map_or(0, |last| last - done.begin_us);
    // The longest useful table.
    let intervals = (span_us / interval_us + 1).min(ROWS_MAX);
    for index in 0..intervals {
        let end_us = if index + 1 == intervals { u64::MAX } else { done.begin_us + (index + 1) * interval_us };
        let opened = times[total..].iter().take_while(|at_us| **at_us < end_us).count();
        if times.is_empty() {
            break;
        }
        total += opened;
        let until_s = ((index + 1) * interval_us) as f64 / 1e6;
        let per_second = opened as f64 * 1e6 / interval_us as f64;
        rows.push(vec![number(until_s), opened.to_string(), number(per_second), total.to_string()]);
    }
    Table { columns, rows }
}

fn per_s(count: u64, us: u64) -> f64 {
    if us == 0 { 0.0 } else { count as f64 * 1e6 / us as f64 }
}

const ROWS_MAX: u64 = 10_000;
