//! A server that nobody attacks, beside the one under attack: the same program, settings and witnesses, at the same time. Where its
//! witnesses are as late as those of the attacked server, the machine is the cause.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program::Program;
use crate::report::{self, Trip};
use crate::scenario::Scenario;
use crate::witness::Witnesses;

/// The server, with its witnesses.
pub struct Unattacked {
    // Dropped first: witnesses would report the end of the server.
    witnesses: Witnesses,
    program: Program,
}

impl Unattacked {
    /// Starts it. Times count from `zero`.
    ///
    /// # Errors
    /// It does not start, or has no witnesses.
    pub fn start(encke: &Path, scenario: Scenario, shards: usize, zero: Instant) -> io::Result<Unattacked> {
        let program = Program::start(encke, scenario, shards, "unattacked")?;
        let witnesses = Witnesses::start(&program, shards, zero)?;
        Ok(Unattacked { witnesses, program })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.program.address
    }

    /// Waits until all messages of its witnesses have arrived.
    pub fn rest(&self) {
        self.witnesses.rest();
    }

    /// The times that the messages of its witnesses took, and the faults that no machine excuses.
    pub fn end(self) -> (Vec<Duration>, Vec<String>) {
        let notes = self.witnesses.notes();
        let times = notes.trips().map(Trip::time).collect();
        let faults = notes.faults.into_iter().filter(|fault| report::is_final(fault));
        (times, faults.map(|fault| format!("at the server that nobody attacks: {fault}")).collect())
    }
}
