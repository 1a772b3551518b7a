//! Messages that left an outbox and may come back.

use std::collections::HashSet;
use std::rc::Rc;

use super::runs::Runs;
use super::{RUN_BYTES, payloads};
use crate::delivery::outbox::arena::{Chunk, Frames};
use crate::memory::Account;

/// Messages in a response that the kernel has not taken yet.
#[derive(Debug, Default)]
pub struct InFlight {
    pub(super) runs: Runs,
    /// The account that counts it.
    account: Option<Rc<Account>>,
}

/// The memory of messages in flight without their runs, in bytes: a record of the response that holds them, and a short
/// queue.
pub const IN_FLIGHT_BYTES: usize = 256;

impl InFlight {
    pub(super) fn new(runs: Runs) -> InFlight {
        let account = runs.account();
        account.iter().for_each(|account| account.queue_changed(0, IN_FLIGHT_BYTES));
        InFlight { runs, account }
    }

    /// The bytes that count against the capacity of its outbox.
    pub fn held_bytes(&self) -> usize {
        self.bytes() + self.runs.len() * RUN_BYTES + if self.account.is_some() { IN_FLIGHT_BYTES } else { 0 }
    }

    /// The bytes that it and its chunks take, without chunks that are in `seen`. Adds its chunks to `seen`.
    pub fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.runs.recount(seen) + if self.account.is_some() { IN_FLIGHT_BYTES } else { 0 }
    }

    /// The bytes that it and its chunks take. Bytes shared with others count in proportion.
    pub fn share_bytes(&self) -> usize {
        IN_FLIGHT_BYTES + self.runs.share_bytes()
    }

    /// The number of messages.
    pub fn messages(&self) -> usize {
        self.runs.iter().map(|run| run.messages as usize).sum()
    }

    /// The size of the messages, as encoded frames.
    pub fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.frames.bytes()).sum()
    }

    /// Replaces its runs with others of the same account.
    pub(super) fn replace(&mut self, runs: Runs) {
        self.runs = runs;
        if self.runs.is_empty() {
            self.uncount();
        }
    }

    fn uncount(&mut self) {
        self.account.take().iter().for_each(|account| account.queue_changed(IN_FLIGHT_BYTES, 0));
    }

    /// True if one of their channels compresses.
    pub fn compresses(&self) -> bool {
        self.ranges().any(|range| range.chunk.is_compressible())
    }

    /// The ranges, first to last.
    pub fn ranges(&self) -> impl Iterator<Item = &Frames> {
        self.runs.iter().map(|run| &run.frames)
    }

    /// Appends the messages to a JSON array that is being written, each preceded by a comma where needed.
    pub fn write(&self, body: &mut Vec<u8>) {
        body.reserve(self.bytes());
        for run in self.runs.iter() {
            let bytes = run.frames.chunk.slice(run.frames.start, run.frames.end);
            for payload in payloads(&bytes) {
                if body.last() != Some(&b'[') {
                    body.push(b',');
                }
                body.extend_from_slice(&payload[1..payload.len() - 1]);
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.uncount();
    }
}
