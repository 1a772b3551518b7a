//! Encke's core under simulated time, sockets and faults.
//!
//! A seed decides everything: the number of shards and clients, the settings, the actions of the clients, the arrival
//! of bytes and messages, and the faults. A run is therefore reproducible exactly, and ten thousand seeds are ten
//! thousand different runs of a busy server. The shards are the real ones, and so is the log of the histories. The
//! network ([`network`]), the threads around the shards and the clients ([`client`]) are simulated. The module
//! [`checker`] holds the invariants.
//!
//! A [`World`] is one run. Its chapters, in the folder `world`, make everything happen; the modules beside it
//! are the parts of which it consists, and know nothing of it.
//!
//! In some runs histories are on a disk that refuses, tears and loses writes, and the server ends in the middle of
//! the run: cleanly, so that its sessions continue, or by a kill or a loss of power ([`Stop`](script::Stop)).
//!
//! ```
//! let tally = simulator::run(1, &simulator::Options::default()).expect("no promise is broken");
//! assert!(tally.sessions > 0);
//! ```
//!
//! Not simulated: the WebSocket and HTTP codecs of the server, and responses that overtake each other on two
//! connections of a client that does not replay.

pub mod application;
mod chain;
mod changes;
mod channels;
pub mod checker;
pub mod claims;
pub mod client;
mod cluster;
mod cost;
mod exchange;
pub mod follower;
mod holders;
mod local;
mod log;
mod members;
pub mod network;
mod offers;
mod plan;
pub mod records;
pub mod rng;
mod sabotage;
pub mod script;
pub mod tally;
mod texts;
mod transit;
pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use checker::{Broken, Invariant};
pub use cluster::{ClusterFailure, ClusterOptions, ClusterSabotage, ClusterTally, run_cluster};
pub use sabotage::{Options, Sabotage};
use tally::Tally;
use world::World;

/// A seed that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The promise.
    pub broken: Broken,
    /// The last steps, if they were recorded.
    pub history: Vec<String>,
}

/// Runs a seed.
///
/// # Errors
/// The first promise that was broken.
pub fn run(seed: u64, options: &Options) -> Result<Tally, Failure> {
    let mut world = World::new(seed, options);
    let result = catch_unwind(AssertUnwindSafe(|| world.run()));
    let broken = match result {
        Ok(Ok(tally)) => return Ok(tally),
        Ok(Err(broken)) => broken,
        Err(panic) => Broken { invariant: Invariant::NoPanic, detail: panic_text(&panic) },
    };
    Err(Failure { seed, broken, history: world.history() })
}

fn panic_text(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}

/// Compiles the program of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
