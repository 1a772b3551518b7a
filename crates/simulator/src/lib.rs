//! Encke's core under made-up time, sockets and faults.
//!
//! A seed decides everything: how many shards and clients, the settings, what the clients do, when bytes and mail arrive, what breaks. So a
//! run can be done again exactly, and ten thousand seeds are ten thousand different afternoons of a busy server. The shards are the real
//! ones, and so is the log of the histories; the network ([`network`]), the threads around them ([`server`]) and the clients ([`client`], [`reading`]) are made
//! here. What must always hold is in [`checker`].
//!
//! In some runs histories are on a disk that refuses, tears and forgets, and the server ends in the middle: in order, so that its sessions go
//! on, or by a kill or a loss of power ([`restart`]).
//!
//! ```
//! let tally = simulator::run(1, &simulator::Options::default()).expect("every promise is kept");
//! assert!(tally.sessions > 0);
//! ```
//!
//! Not simulated: the WebSocket and HTTP codecs of the server, and responses that overtake each other on two connections of a client that does
//! not replay.

pub mod application;
pub mod checker;
pub mod client;
mod edges;
mod ending;
pub mod follower;
mod late;
mod log;
pub mod network;
mod oddities;
pub mod reading;
pub mod restart;
mod returning;
pub mod rng;
pub mod script;
mod sending;
pub mod server;
pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use checker::{Broken, Invariant, Tally};
use restart::Stop;
use world::World;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keeps the last steps, to be told if a promise is broken.
    pub trace: bool,
    /// Something done wrong on purpose, to see that it is found.
    pub sabotage: Sabotage,
}

/// What is done wrong around the core, to prove that the checks find it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// Nothing.
    #[default]
    None,
    /// A frame arrives twice.
    DoubledFrame,
    /// A frame is taken and never arrives.
    DroppedFrame,
    /// Messages arrive the wrong way round.
    SwappedMessages,
    /// Data is written anew on its way.
    ChangedData,
    /// A delivered message has advice in it.
    ForgedAdvice,
    /// A client gets the id of another.
    LeakedId,
    /// A response is never given to its connection.
    LostResponse,
    /// Responses are reported as taken that were not.
    FalseReceipt,
    /// The server is not told that a socket is gone.
    ForgottenSocket,
    /// Time passes, and the shards do not learn of it.
    StoppedClock,
    /// A message of a channel with a history is taken and never arrives.
    DroppedPlace,
    /// A message of a channel with a history arrives twice.
    DoubledPlace,
    /// A message has the place of another.
    ChangedPlace,
    /// What is lost is not told.
    HushedLoss,
    /// Records are reported as kept that never came to the log.
    FalseKept,
    /// After a kill the log says that the end was in order.
    FalseEnd,
    /// What the start after a kill writes again never reaches the disk.
    SkippedRewrite,
    /// A session is lost with a clean restart.
    LostSession,
    /// What waits for sessions is lost with a clean restart.
    LostOutbox,
}

impl Sabotage {
    /// How the server has to end for this to be done, time after time.
    fn stops(self) -> Option<&'static [Stop]> {
        match self {
            Sabotage::FalseKept | Sabotage::FalseEnd => Some(&[Stop::Killed]),
            Sabotage::SkippedRewrite => Some(&[Stop::Killed, Stop::PowerLoss]),
            Sabotage::LostSession | Sabotage::LostOutbox => Some(&[Stop::Clean]),
            _ => None,
        }
    }
}

/// A seed that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The promise.
    pub broken: Broken,
    /// The last steps, if they were kept.
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
    /// Adds another.
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
            (&mut self.places_lost, other.places_lost),
            (&mut self.returns, other.returns),
            (&mut self.overtaken, other.overtaken),
            (&mut self.long_lost, other.long_lost),
            (&mut self.edge_waits, other.edge_waits),
            (&mut self.full_starts, other.full_starts),
            (&mut self.lost_writes, other.lost_writes),
        ];
        for (mine, more) in pairs {
            *mine += more;
        }
    }
}

/// The program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
