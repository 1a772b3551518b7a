//! From an order to an outcome: trials, searches for the highest rate, workers, progress.

mod order;

pub use order::{CrowdSpec, From, Membership, Order, Outcome, Size, To, Traffic, Transport, Usage};
