//! Encke's core under simulated time, sockets and faults.
//!
//! A seed decides everything: the number of shards and clients, the settings, the actions of the clients, the arrival
//! of bytes and messages, and the faults. A run is therefore reproducible exactly, and ten thousand seeds are ten
//! thousand different runs of a busy server. The shards are the real ones, and so is the log of the histories. The
//! network ([`network`]), the threads around the shards ([`server`]) and the clients ([`client`], [`reading`]) are
//! simulated. The module [`checker`] holds the invariants.
//!
//! In some runs histories are on a disk that refuses, tears and loses writes, and the server ends in the middle of
//! the run: cleanly, so that its sessions continue, or by a kill or a loss of power ([`restart`]).
//!
//! ```
//! let tally = simulator::run(1, &simulator::Options::default()).expect("no promise is broken");
//! assert!(tally.sessions > 0);
//! ```
//!
//! Not simulated: the WebSocket and HTTP codecs of the server, and responses that overtake each other on two
//! connections of a client that does not replay.

pub mod application;
mod by_handle;
pub mod checker;
pub mod client;
mod cost;
mod edges;
mod ending;
mod feeds;
pub mod follower;
mod held;
mod inspecting;
mod late;
mod local;
mod log;
pub mod network;
mod oddities;
mod presence;
pub mod reading;
pub mod restart;
mod returning;
mod rights;
pub mod rng;
mod sabotage;
pub mod script;
mod sending;
pub mod server;
mod waits;
pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use checker::{Broken, Invariant, Tally};
pub use sabotage::Sabotage;
use world::World;

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// True to record the last steps, for the report of a failure.
    pub trace: bool,
    /// A deliberate fault, to prove that it is found.
    pub sabotage: Sabotage,
}

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

impl Tally {
    /// Adds the counters of another tally.
    pub fn add(&mut self, other: &Tally) {
        let pairs = [
            (&mut self.published, other.published),
            (&mut self.arrived, other.arrived),
            (&mut self.lost, other.lost),
            (&mut self.sessions, other.sessions),
            (&mut self.breaks, other.breaks),
            (&mut self.switches, other.switches),
            (&mut self.refused_responses, other.refused_responses),
            (&mut self.dropped, other.dropped),
            (&mut self.slow, other.slow),
            (&mut self.ended_for_memory, other.ended_for_memory),
            (&mut self.sweeps, other.sweeps),
            (&mut self.expired, other.expired),
            (&mut self.kicked, other.kicked),
            (&mut self.replies, other.replies),
            (&mut self.moves, other.moves),
            (&mut self.replayed, other.replayed),
            (&mut self.gone, other.gone),
            (&mut self.heartbeats, other.heartbeats),
            (&mut self.restarts, other.restarts),
            (&mut self.kills, other.kills),
            (&mut self.restored, other.restored),
            (&mut self.disk_faults, other.disk_faults),
            (&mut self.pending_replies, other.pending_replies),
            (&mut self.late_replies, other.late_replies),
            (&mut self.positions_lost, other.positions_lost),
            (&mut self.returns, other.returns),
            (&mut self.overtaken, other.overtaken),
            (&mut self.long_lost, other.long_lost),
            (&mut self.edge_waits, other.edge_waits),
            (&mut self.full_starts, other.full_starts),
            (&mut self.lost_writes, other.lost_writes),
            (&mut self.late_decisions, other.late_decisions),
            (&mut self.decisions_timed_out, other.decisions_timed_out),
            (&mut self.rights_ended, other.rights_ended),
            (&mut self.refreshes, other.refreshes),
            (&mut self.over_limits, other.over_limits),
            (&mut self.presence_reports, other.presence_reports),
            (&mut self.superseded, other.superseded),
            (&mut self.sips, other.sips),
            (&mut self.held_answers, other.held_answers),
            (&mut self.held_gaps, other.held_gaps),
            (&mut self.held_refused, other.held_refused),
            (&mut self.announcements, other.announcements),
            (&mut self.members_refused, other.members_refused),
            (&mut self.changes, other.changes),
            (&mut self.histories_cleared, other.histories_cleared),
        ];
        for (mine, more) in pairs {
            *mine += more;
        }
    }
}

/// Compiles the program of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
