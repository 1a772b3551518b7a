//! The search for the highest rate that holds.

use crate::problem::Problem;

/// The length of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// To come near quickly.
    Short,
    /// To be believed.
    Long,
}

/// The verdict on a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialVerdict {
    /// The rate holds.
    Holds,
    /// It does not.
    Fails,
    /// The search ends; the trial does not count.
    Stop,
}

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SearchResult {
    /// The highest rate that held in a long trial; one that is higher by [`PRECISION`] did not.
    Rate(f64),
    /// The time ended before the limit was found: it lies between these.
    Rough {
        /// The highest rate that held in a long trial.
        best: f64,
        /// The lowest that did not hold.
        fails_at: f64,
    },
    /// The time ended before a long trial held; the highest rate that held in a short one, if any did.
    TooShort(Option<f64>),
    /// This rate does not hold either.
    NothingHolds(f64),
    /// It was stopped; the highest rate that held in a long trial so far.
    Stopped(Option<f64>),
}

/// Searches for the highest rate that holds, from `start`. Short trials ramp up, by [`FIRST_STEP`] and then by
/// [`RAMP`], until one fails. Long trials then halve the gap until both ends are within [`PRECISION`], or `is_over`
/// returns true. If `start` does not hold, the search ramps down. A rate fails only if it fails twice, since a busy
/// machine halts now and then.
///
/// # Errors
/// The errors of `trial`.
pub fn find_max(
    start: f64,
    is_over: impl Fn() -> bool,
    trial: &mut dyn FnMut(f64, Length) -> Result<TrialVerdict, Problem>,
) -> Result<SearchResult, Problem> {
    let trial = &mut |rate, length| match trial(rate, length)? {
        TrialVerdict::Fails if !is_over() => trial(rate, length),
        verdict => Ok(verdict),
    };
    let (mut low, mut high) = match ramp(start, &is_over, trial)? {
        Ramp::Between(low, high) => (low, high),
        Ramp::Ended(found) => return Ok(found),
    };
    let mut best = None;
    let mut rate = (low * high).sqrt();
    while best.is_none() || high / low > PRECISION {
        if is_over() {
            return Ok(
                best.map_or(SearchResult::TooShort(Some(low)), |best| SearchResult::Rough { best, fails_at: high })
            );
        }
        match trial(rate, Length::Long)? {
            TrialVerdict::Stop => return Ok(SearchResult::Stopped(best)),
            TrialVerdict::Holds => {
                low = rate;
                best = Some(rate);
            }
            TrialVerdict::Fails => {
                high = rate;
                if best.is_none() && rate <= low {
                    low = rate / RAMP;
                }
            }
        }
        if high < start * LEAST {
            return Ok(SearchResult::NothingHolds(high));
        }
        // A short trial may be too favourable: its rate needs a long trial before a higher rate is tried.
        rate = if best.is_none() { low } else { (low * high).sqrt() };
    }
    Ok(best.map_or(SearchResult::NothingHolds(high), SearchResult::Rate))
}

enum Ramp {
    /// The first holds, the second does not.
    Between(f64, f64),
    Ended(SearchResult),
}

fn ramp(
    start: f64,
    is_over: &impl Fn() -> bool,
    trial: &mut dyn FnMut(f64, Length) -> Result<TrialVerdict, Problem>,
) -> Result<Ramp, Problem> {
    let (mut low, mut high, mut rate) = (None, None, start);
    // A given start is usually near the limit.
    let (mut up, mut down) = (FIRST_STEP, FIRST_STEP);
    loop {
        match trial(rate, Length::Short)? {
            TrialVerdict::Stop => return Ok(Ramp::Ended(SearchResult::Stopped(None))),
            TrialVerdict::Holds => low = Some(rate),
            TrialVerdict::Fails => high = Some(rate),
        }
        rate = match (low, high) {
            (Some(low), Some(high)) => return Ok(Ramp::Between(low, high)),
            (None, Some(high)) if high < start * LEAST => return Ok(Ramp::Ended(SearchResult::NothingHolds(high))),
            (Some(_), _) => rate * up,
            (None, _) => rate / down,
        };
        // If the start was far off, larger steps find the limit sooner.
        (up, down) = (RAMP, RAMP * RAMP);
        if is_over() {
            return Ok(Ramp::Ended(SearchResult::TooShort(low)));
        }
    }
}

/// The first step of the ramp, up or down.
pub const FIRST_STEP: f64 = 1.25;
/// The step of the ramp.
pub const RAMP: f64 = 1.6;
/// The search ends when the ends of the gap are within this factor.
pub const PRECISION: f64 = 1.04;
/// A thousandth of the start is below any useful rate.
const LEAST: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A server that holds rates up to `limit`.
    fn search(start: f64, limit: f64, trials_max: u32) -> (SearchResult, u32) {
        let count = Cell::new(0);
        let found = find_max(start, || count.get() >= trials_max, &mut |rate, _| {
            count.set(count.get() + 1);
            Ok(if rate <= limit { TrialVerdict::Holds } else { TrialVerdict::Fails })
        });
        (found.expect("no trial fails by itself"), count.get())
    }

    #[test]
    fn the_limit_is_found_within_four_percent_from_above_and_below() {
        for start in [1.0, 50.0, 900.0, 1100.0, 40_000.0, 900_000.0] {
            let (found, trials) = search(start, 1000.0, 1000);
            let SearchResult::Rate(rate) = found else { panic!("from {start}: {found:?}") };
            assert!(rate <= 1000.0 && rate * PRECISION >= 1000.0, "from {start}: {rate}");
            assert!(trials < 50, "from {start}: {trials} trials");
        }
    }

    #[test]
    fn a_single_slip_does_not_end_the_ramp() {
        let mut slips = 0;
        let found = find_max(100.0, || false, &mut |rate, _| {
            if (200.0..300.0).contains(&rate) && slips == 0 {
                slips += 1;
                return Ok(TrialVerdict::Fails);
            }
            Ok(if rate <= 1000.0 { TrialVerdict::Holds } else { TrialVerdict::Fails })
        });
        assert!(matches!(found, Ok(SearchResult::Rate(rate)) if rate > 900.0), "{found:?}");
        assert_eq!(slips, 1);
    }

    #[test]
    fn a_server_that_holds_no_rate_is_reported() {
        assert!(matches!(search(1000.0, 0.0, 1000).0, SearchResult::NothingHolds(rate) if rate < 1000.0));
    }

    #[test]
    fn a_search_whose_time_ends_in_the_ramp_is_too_short() {
        assert_eq!(search(1.0, 1e9, 3).0, SearchResult::TooShort(Some(FIRST_STEP * RAMP)));
        assert_eq!(search(1e9, 1.0, 2).0, SearchResult::TooShort(None));
    }

    #[test]
    fn a_search_whose_time_ends_later_reports_both_ends_of_the_gap() {
        let (found, _) = search(900.0, 1000.0, 6);
        let SearchResult::Rough { best, fails_at } = found else { panic!("{found:?}") };
        assert!(best <= 1000.0 && fails_at > 1000.0 && fails_at / best > PRECISION, "{found:?}");
    }

    #[test]
    fn a_search_that_begins_just_below_the_limit_needs_few_trials() {
        let (found, trials) = search(900.0, 1000.0, 1000);
        assert!(matches!(found, SearchResult::Rate(_)), "{found:?}");
        assert!(trials <= 8, "{trials}");
    }

    #[test]
    fn only_long_trials_make_a_result() {
        // Short trials flatter: they hold up to twice the rate.
        let found = find_max(100.0, || false, &mut |rate, length| {
            let limit = if length == Length::Short { 2000.0 } else { 1000.0 };
            Ok(if rate <= limit { TrialVerdict::Holds } else { TrialVerdict::Fails })
        });
        let Ok(SearchResult::Rate(rate)) = found else { panic!("{found:?}") };
        assert!(rate <= 1000.0 && rate > 900.0, "{rate}");
    }

    #[test]
    fn a_stop_returns_the_best_rate_so_far() {
        let mut count = 0;
        let found = find_max(900.0, || false, &mut |rate, _| {
            count += 1;
            Ok(match (count, rate <= 1000.0) {
                (8.., _) => TrialVerdict::Stop,
                (_, true) => TrialVerdict::Holds,
                _ => TrialVerdict::Fails,
            })
        });
        assert!(matches!(found, Ok(SearchResult::Stopped(Some(rate))) if rate <= 1000.0), "{found:?}");
    }
}
