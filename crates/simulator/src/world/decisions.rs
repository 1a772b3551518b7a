//! Decisions of the application that come late, never, or after their session has ended, or that fail.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use encke_core::{Awaited, Received, Resolved, ShardMessage, WaitKey};

use crate::sabotage::Sabotage;
use crate::transit::WaitingFuture;
use crate::world::World;

impl World {
    /// Notes a future that a shard waits for.
    pub(super) fn wait_for(&mut self, shard: usize, key: WaitKey, awaited: Awaited) {
        self.checker.tally.late_decisions += 1;
        self.waits.push(WaitingFuture { shard, key, awaited });
    }

    /// Drops the future of a wait whose time is over.
    pub(super) fn cancel(&mut self, shard: usize, key: WaitKey) {
        self.checker.tally.decisions_timed_out += 1;
        self.waits.retain(|waiting| (waiting.shard, waiting.key) != (shard, key));
    }

    /// Notes if a connection is read on.
    pub(super) fn note_suspended(&mut self, conn: usize, received: Received) {
        let is_suspended = received == Received::Waits && self.sabotage != Sabotage::ReaderThatReadsOn;
        self.network.conns[conn].suspended = is_suspended;
    }

    /// One of the futures is done, or fails. False if none was.
    pub(super) fn some_decision(&mut self) -> bool {
        if self.waits.is_empty() {
            return false;
        }
        let which = self.rng.below(self.waits.len());
        let WaitingFuture { shard, key, mut awaited } = self.waits.swap_remove(which);
        let resolved = if !self.healing && self.rng.chance(50) {
            Resolved::Failed
        } else {
            match Pin::new(&mut awaited).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(resolved) => resolved,
                Poll::Pending if self.healing => Resolved::Failed,
                Poll::Pending => {
                    self.waits.push(WaitingFuture { shard, key, awaited });
                    return false;
                }
            }
        };
        self.note(|_| format!("shard {shard} gets the decision {key:?}: {resolved:?}"));
        let before = self.ends(shard);
        self.shards[shard].message(self.now, ShardMessage::Resolved(key, resolved));
        self.after(shard, before, false);
        true
    }
}
