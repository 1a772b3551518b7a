//! From an order to an outcome: trials, searches for the highest rate, workers, progress.

mod bench;
mod carry;
mod chance;
mod force;
mod interrupt;
pub mod latency;
mod measure;
mod options;
mod order;
pub mod parse;
mod plan;
mod progress;
pub mod search;
mod series;
mod verdict;
mod watch;
mod wire;
mod worker;
mod workers;

pub use bench::Bench;
pub use carry::{Event, Look};
pub(crate) use chance::Chance;
pub use force::{Force, Local};
pub use interrupt::Interrupt;
pub use measure::Measure;
pub(crate) use measure::ended_by;
pub use options::{Carriage, Common, Rates, ReportOptions, Sending};
pub use order::{
    Breaks, CrowdSpec, CutShort, Cuts, From, Membership, Order, Outcome, Recovery, Replay, Size, To, Traffic,
    Transport, Usage,
};
pub use progress::Progress;
pub use series::Series;
pub use verdict::Limits;
pub(crate) use watch::{Seen, Watcher};
pub use worker::work;
