//! The sockets of a load, driven by one thread over epoll: opens sessions, publishes at given times, checks and times
//! what arrives.

mod crowd;
pub mod stamp;

pub use crowd::{Counts, Crowd, Published, Publication};
