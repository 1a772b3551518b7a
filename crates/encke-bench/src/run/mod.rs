//! From an order to an outcome: trials, searches for the highest rate, workers, progress.

mod bench;
mod interrupt;
mod options;
mod order;
pub mod parse;
mod progress;
mod target;

pub use bench::Bench;
pub use interrupt::Interrupt;
pub use options::{Carriage, Common, Rates, ReportOptions, Sending};
pub use order::{CrowdSpec, From, Membership, Order, Outcome, Size, To, Traffic, Transport, Usage};
pub use progress::Progress;
pub use target::Target;
