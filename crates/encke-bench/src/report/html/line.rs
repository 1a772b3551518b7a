//! A line of a chart, and a chart that has one.

use super::super::chart::{Chart, Plot};
use super::super::model::Trial;

/// A trial and its name among the others of a chart.
pub(super) struct Line<'a> {
    pub(super) name: String,
    pub(super) trial: &'a Trial,
}

pub(super) fn chart(plot: Plot) -> Option<Chart> {
    (!plot.is_empty()).then_some(Chart::Plot(plot))
}
