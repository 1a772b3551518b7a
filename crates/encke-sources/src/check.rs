//! Checks of settings.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// Collects the errors of one source.
pub(crate) struct Check<'a> {
    subject: &'a str,
    problems: &'a mut Vec<String>,
}

impl<'a> Check<'a> {
    pub(crate) fn new(subject: &'a str, problems: &'a mut Vec<String>) -> Check<'a> {
        Check { subject, problems }
    }

    /// Adds a problem, which begins with the name of the setting, unless a condition holds.
    pub(crate) fn that(&mut self, holds: bool, problem: impl Display) {
        if !holds {
            self.problems.push(format!("{}.{problem}", self.subject));
        }
    }

    /// Adds a problem if a number is out of its range.
    pub(crate) fn range(&mut self, name: &str, value: u64, range: RangeInclusive<u64>) {
        let problem = format!("{name} = {value}: from {} to {}", range.start(), range.end());
        self.that(range.contains(&value), problem);
    }
}
