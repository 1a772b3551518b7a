//! Trials at several rates: a list, or a search for the highest that holds.

use std::time::{Duration, Instant};

use super::measure::Measure;
use super::options::Rates;
use super::order::{Order, Size};
use super::search::{Found, Length, Verdict, find_max};
use super::verdict::Limits;
use crate::problem::Problem;
use crate::report::units::number;
use crate::report::{Report, Trial};

/// What is measured at several rates.
pub struct Series<'a> {
    /// What a rate counts, such as `deliveries/s`.
    pub unit: &'a str,
    /// What comes before the rate in a trial's name, such as `1,000 clients, `; may be empty.
    pub prefix: &'a str,
    /// Where a search begins unless `--rate` says it.
    pub start: f64,
    /// The order for a rate; warm-up and length are set by the series.
    pub order: &'a dyn Fn(f64) -> Order,
}

impl Series<'_> {
    /// Measures at each rate of `--rate`, or searches, and adds the trials to the report.
    ///
    /// # Errors
    /// As [`Measure::trial`].
    pub fn run(&self, measure: &mut Measure<'_>, rates: &Rates, report: &mut Report) -> Result<(), Problem> {
        if rates.find_max {
            return self.search(measure, rates, report);
        }
        for rate in &rates.rate {
            let mut order = (self.order)(*rate);
            order.warm_up_ms = measure.bench.common.warm_up.as_millis() as u64;
            order.size = Size::Ms(measure.bench.common.duration.as_millis() as u64);
            match measure.trial(&self.name(*rate), &order, Limits::default())? {
                Some(trial) => report.trials.push(trial),
                None => break,
            }
            if measure.bench.interrupt.is_set() {
                break;
            }
        }
        Ok(())
    }

    fn search(&self, measure: &mut Measure<'_>, rates: &Rates, report: &mut Report) -> Result<(), Problem> {
        let start = rates.rate.first().copied().unwrap_or(self.start);
        let end = Instant::now() + rates.search_time;
        let limits = Limits { p99_max: Some(rates.p99) };
        let mut best = None;
        let found = find_max(start, || Instant::now() > end, &mut |rate, length| {
            let order = self.search_order(rate, length, measure, rates.p99);
            let Some(trial) = measure.trial(&self.name(rate), &order, limits)? else { return Ok(Verdict::Stop) };
            let (holds, text) = (trial.holds, told(&trial));
            measure.bench.progress.say(&text);
            report.trials.push(trial);
            if measure.bench.interrupt.is_set() {
                return Ok(Verdict::Stop);
            }
            if holds && length == Length::Long {
                best = Some(report.trials.len() - 1);
            }
            Ok(if holds { Verdict::Holds } else { Verdict::Fails })
        })?;
        report.result = best;
        if let Some(reason) = self.reason(found) {
            report.holds = false;
            report.reasons.push(reason);
        }
        Ok(())
    }

    fn search_order(&self, rate: f64, length: Length, measure: &Measure<'_>, p99: Duration) -> Order {
        let (warm_up, duration) = match length {
            Length::Short => SHORT,
            Length::Long => LONG,
        };
        let mut order = (self.order)(rate);
        order.warm_up_ms = warm_up.min(measure.bench.common.warm_up).as_millis() as u64;
        order.size = Size::Ms(duration.min(measure.bench.common.duration).as_millis() as u64);
        order.give_up_us = Some((p99 * GIVE_UP_P99S).max(GIVE_UP_LEAST).as_micros() as u64);
        order
    }

    fn reason(&self, found: Found) -> Option<String> {
        let rate = |rate| format!("{} {}", number(rate), self.unit);
        match found {
            Found::Rate(_) | Found::Stopped(_) => None,
            Found::NothingHolds(lowest) => Some(format!("not even {} hold.", rate(lowest))),
            Found::TooShort(Some(low)) => Some(format!(
                "the search's time ended above {}; give it more --search-time, or begin it there with --rate.",
                rate(low)
            )),
            Found::TooShort(None) => {
                Some("the search's time ended before any rate held; begin it with a lower --rate.".into())
            }
        }
    }

    fn name(&self, rate: f64) -> String {
        format!("{}{} {}", self.prefix, number(rate), self.unit)
    }
}

/// One line about a trial of a search.
fn told(trial: &Trial) -> String {
    let p99 = trial.latency.as_ref().map_or(0, |latency| latency.p99_us);
    let (received, p99) = (number(trial.incoming.messages_per_s()), crate::report::units::micros(p99 as f64));
    let verdict = if trial.holds { "holds".to_string() } else { trial.reasons.join(" ") };
    format!("{}: {received} received/s, p99 {p99}: {verdict}", trial.name)
}

const SHORT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(1));
const LONG: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// A single latency so many times the bound means a backlog that only grows.
const GIVE_UP_P99S: u32 = 20;
/// A machine that does other things, too, halts for so long now and then.
const GIVE_UP_LEAST: Duration = Duration::from_secs(2);
