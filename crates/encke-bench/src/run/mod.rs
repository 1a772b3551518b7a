//! Running orders: trials, searches for the highest rate, workers, progress.

mod bench;
mod generator;
mod interrupt;
pub mod latency;
mod measure;
mod options;
pub mod parse;
mod plan;
mod progress;
mod rate_series;
pub mod search;
mod trial_run;
mod verdict;
mod watch;
mod wire;
mod worker;
mod workers;

pub use bench::{Bench, Scenario};
pub use generator::{Generator, Local};
pub use interrupt::Interrupt;
pub use measure::Measure;
pub(crate) use measure::ended_by;
pub use options::{Carriage, Common, Rates, ReportOptions, Sending};
pub use progress::Progress;
pub use rate_series::RateSeries;
pub use trial_run::{Event, Snapshot};
pub use verdict::Limits;
pub(crate) use watch::{Observed, Watcher};
pub use worker::work;
