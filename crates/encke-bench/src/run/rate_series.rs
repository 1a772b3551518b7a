//! Trials at several rates: a list, or a search for the highest that holds.

use std::time::{Duration, Instant};

use super::measure::{Measure, ended_by};
use super::options::Rates;
use super::search::{Length, PRECISION, SearchResult, TrialVerdict, find_max};
use super::verdict::Limits;
use crate::order::{Order, Size};
use crate::problem::Problem;
use crate::report::units::number;
use crate::report::{Report, Trial};

/// A measurement at several rates.
pub struct RateSeries<'a> {
    /// The unit of the rate, such as `deliveries/s`.
    pub unit: &'a str,
    /// The prefix of a trial's name, such as `1,000 clients, `; may be empty.
    pub prefix: &'a str,
    /// The start of a search without `--rate`.
    pub start: f64,
    /// The order for a rate; warm-up and length are set by the series.
    pub order: &'a dyn Fn(f64) -> Order,
}

impl RateSeries<'_> {
    /// Measures at each rate of `--rate`, or searches, and adds the trials to the report. Returns false if that ended
    /// early.
    ///
    /// # Errors
    /// As [`Measure::trial`], if the report has no trials yet; otherwise the report records the problem.
    pub fn run(&self, measure: &mut Measure<'_>, rates: &Rates, report: &mut Report) -> Result<bool, Problem> {
        let done =
            if rates.find_max { self.search(measure, rates, report) } else { self.list(measure, &rates.rate, report) };
        match done {
            Ok(()) => Ok(!measure.bench.interrupt.is_set()),
            Err(problem) => ended_by(problem, report).map(|()| false),
        }
    }

    fn list(&self, measure: &mut Measure<'_>, rates: &[f64], report: &mut Report) -> Result<(), Problem> {
        for rate in rates {
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
        let first = report.trials.len();
        let mut best = None;
        let mut closed = None;
        let found = find_max(start, || Instant::now() > end, &mut |rate, length| {
            closed = None;
            match measure.open() {
                Ok(true) => {}
                Ok(false) => return Ok(TrialVerdict::Stop),
                // The previous trial may keep the server busy for long.
                Err(problem) if report.trials.len() > first => {
                    measure.bench.progress.print_line(&format!("{}: {problem}", self.name(rate)));
                    closed = Some(problem);
                    measure.rest(REOPEN_AFTER);
                    return Ok(TrialVerdict::Fails);
                }
                Err(problem) => return Err(problem),
            }
            let order = self.search_order(rate, length, measure, rates.p99);
            let Some(trial) = measure.trial(&self.name(rate), &order, limits)? else { return Ok(TrialVerdict::Stop) };
            let holds = trial.holds;
            measure.bench.progress.print_line(&summary_line(&trial));
            report.trials.push(trial);
            if measure.bench.interrupt.is_set() {
                return Ok(TrialVerdict::Stop);
            }
            if holds && length == Length::Long {
                best = Some(report.trials.len() - 1);
            }
            Ok(if holds { TrialVerdict::Holds } else { TrialVerdict::Fails })
        });
        report.result = best;
        self.conclude(found?, closed, report, first);
        Ok(())
    }

    /// Adds the result of a search to the report. Its trials start at `first`. `closed` is the reason that its last
    /// trial had no clients.
    fn conclude(&self, found: SearchResult, closed: Option<Problem>, report: &mut Report, first: usize) {
        let reason = match closed {
            Some(problem) => Some(format!("the clients could not come back after a trial that failed: {problem}.")),
            None => self.reason(found),
        };
        if let Some(reason) = reason {
            report.holds = false;
            report.reasons.push(reason);
        }
        if let SearchResult::Rough { best, fails_at } = found {
            report.at_least.push(format!(
                "At least {}: the search's time ended before it was found to {:.0} %; {} did not hold.",
                self.name(best),
                (PRECISION - 1.0) * 100.0,
                number(fails_at)
            ));
        }
        if let (SearchResult::Rough { best, .. } | SearchResult::Rate(best), Some(result)) = (found, report.result)
            && load_is_limit(&report.trials[first..], &report.trials[result])
        {
            let best = self.name(best);
            report.at_least.push(format!("At least {best}: the load was at its own limit, the server may do more."));
        }
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

    fn reason(&self, found: SearchResult) -> Option<String> {
        let rate = |rate| format!("{} {}", number(rate), self.unit);
        match found {
            SearchResult::Rate(_) | SearchResult::Rough { .. } | SearchResult::Stopped(_) => None,
            SearchResult::NothingHolds(lowest) => Some(format!("not even {} hold.", rate(lowest))),
            SearchResult::TooShort(Some(low)) => Some(format!(
                "the search's time ended above {}; give it more --search-time, or begin it there with --rate.",
                rate(low)
            )),
            SearchResult::TooShort(None) => {
                Some("the search's time ended before any rate held; begin it with a lower --rate.".into())
            }
        }
    }

    fn name(&self, rate: f64) -> String {
        format!("{}{} {}", self.prefix, number(rate), self.unit)
    }
}

/// Returns true if the load was at its limit in the result of a search, or in the slowest faster trial that failed.
fn load_is_limit(trials: &[Trial], result: &Trial) -> bool {
    let rate = |trial: &Trial| trial.planned_per_s.unwrap_or(0.0);
    let faster = || trials.iter().filter(|trial| !trial.holds && rate(trial) > rate(result));
    let next = faster().map(rate).reduce(f64::min);
    result.load_is_limit || faster().any(|trial| trial.load_is_limit && Some(rate(trial)) <= next)
}

/// One line about a trial of a search.
fn summary_line(trial: &Trial) -> String {
    let p99 = trial.latency.as_ref().map_or(0, |latency| latency.p99_us);
    let (received, p99) = (number(trial.incoming.messages_per_s()), crate::report::units::micros(p99 as f64));
    let verdict = if trial.holds { "holds".to_string() } else { trial.reasons.join(" ") };
    format!("{}: {received} received/s, p99 {p99}: {verdict}", trial.name)
}

/// Warm-up and length of a search's trials, unless less was asked for.
const SHORT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(1));
const LONG: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// The pause after a server accepted no clients.
const REOPEN_AFTER: Duration = Duration::from_secs(5);
/// A latency of this many times the bound means a growing backlog.
const GIVE_UP_P99S: u32 = 20;
/// A busy machine may halt the load or the server for this long.
const GIVE_UP_LEAST: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Senders;

    fn order(rate: f64) -> Order {
        Order::sample(Senders::Publishers, Some(rate), Size::Ms(0))
    }

    fn trial(rate: f64, holds: bool, load_is_limit: bool) -> Trial {
        Trial { planned_per_s: Some(rate), holds, load_is_limit, ..Trial::default() }
    }

    /// The report of a search that found this in these trials, the first of which is its result.
    fn concluded(found: SearchResult, closed: Option<Problem>, trials: Vec<Trial>) -> Report {
        let series = RateSeries { unit: "messages/s", prefix: "", start: 1.0, order: &order };
        let mut report = Report { trials, holds: true, result: Some(0), ..Report::default() };
        series.conclude(found, closed, &mut report, 0);
        report
    }

    #[test]
    fn a_search_whose_time_ended_says_at_least() {
        let trials = vec![trial(900.0, true, false), trial(1200.0, false, false)];
        let report = concluded(SearchResult::Rough { best: 900.0, fails_at: 1200.0 }, None, trials);
        let summary_line =
            "At least 900 messages/s: the search's time ended before it was found to 4 %; 1,200 did not hold.";
        assert_eq!((report.holds, report.at_least), (true, vec![summary_line.to_owned()]));
    }

    #[test]
    fn a_search_that_ended_at_the_loads_limit_says_so() {
        let summary_line = "At least 900 messages/s: the load was at its own limit, the server may do more.";
        let found = SearchResult::Rate(900.0);
        let full = concluded(found, None, vec![trial(900.0, true, true), trial(930.0, false, false)]);
        assert_eq!(full.at_least, [summary_line]);
        let next = concluded(found, None, vec![trial(900.0, true, false), trial(930.0, false, true)]);
        assert_eq!(next.at_least, [summary_line]);
        let far = [trial(900.0, true, false), trial(1600.0, false, true), trial(930.0, false, false)];
        assert!(concluded(found, None, far.into()).at_least.is_empty(), "the server was the limit already at 930");
    }

    #[test]
    fn a_search_whose_last_trial_had_no_clients_has_found_nothing() {
        let gone = Problem::Unreachable { address: "127.0.0.1:1".into(), reason: "refused".into() };
        let report = concluded(SearchResult::Rate(900.0), Some(gone), vec![trial(900.0, true, false)]);
        assert!(!report.holds);
        let summary_line =
            "the clients could not come back after a trial that failed: cannot reach 127.0.0.1:1: refused.";
        assert_eq!(report.reasons, [summary_line]);
    }
}
