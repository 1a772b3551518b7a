//! Relief: the measures against high memory use by sessions.
//!
//! When the memory of a shard has doubled since its last sweep, the shard packs ranges that keep mostly dead chunks
//! alive ([`Sweep`]), a part in each turn. When all shards together hold more than `sessions_bytes_max`, edges admit no
//! heavy messages, and the shards that hold at least their share pack larger parts. A shard that has packed everything
//! ends the sessions that hold most. Packing millions of ranges takes seconds, and so does a look at millions of
//! sessions. So neither is ever done in one turn: each goes on where the last turn has left it. Until the largest
//! sessions are known, memory may exceed the limit by a 64th for each [`SWEEP_RUNS_MAX`] sessions and sockets.

use std::collections::{BinaryHeap, HashSet};

use crate::events::{SessionKey, SocketKey};
use crate::outbox::Sweep;
use crate::outbox::arena::Chunk;
use crate::outbox::waste::Waste;

/// The state of a shard's relief.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    pub(crate) sweep: Option<Sweep>,
    /// The number of bytes at which the next sweep begins; 0 before the first check.
    pub(crate) sweep_from: usize,
    /// The number of bytes at which a check is due in the middle of a turn.
    pub(crate) check_from: usize,
    /// The bytes of the account at the last check.
    pub(crate) checked_bytes: usize,
    /// The number of runs that the sweep has to visit to keep up with what was added since it began.
    pub(crate) pending_runs: usize,
    /// The time of the next check of the tables, in milliseconds.
    pub(crate) room_ms: u64,
    /// True if this shard packs because all sessions together hold too much.
    pub(crate) is_short: bool,
    /// The time when sessions may be ended for memory again, in milliseconds.
    pub(crate) rests_until_ms: u64,
    /// The search for the largest sessions, while sessions have to end.
    pub(crate) holders: Option<Holders>,
    /// The queues of ended sessions.
    pub(crate) waste: Waste,
}

/// The sessions and sockets that hold most: found, then ended, a part in each turn.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// The next slot to look at: those of sessions first, then those of sockets.
    pub(crate) next: usize,
    /// Those found, with the bytes that they held then.
    pub(crate) found: BinaryHeap<(usize, Holder)>,
    /// The bytes to free. None until every slot was looked at.
    pub(crate) excess: Option<usize>,
    /// The bytes that those held that have ended.
    pub(crate) freed: usize,
    /// The number of ended sessions.
    pub(crate) ended: usize,
}

/// A session, or the queue of a WebSocket itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    Session(SessionKey),
    Socket(SocketKey),
}

impl Relief {
    /// True if packing is behind the messages that were added.
    pub(crate) fn is_behind(&self) -> bool {
        self.sweep.is_some() && self.pending_runs > PENDING_RUNS_MAX
    }

    /// The bytes of chunks that a sweep holds, without chunks that are in `seen`.
    pub(crate) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.waste.recount(seen) + self.sweep.as_ref().map_or(0, |sweep| sweep.recount(seen))
    }
}

/// The maximum number of runs, sessions and sockets that one part of this work visits: some milliseconds.
pub(crate) const SWEEP_RUNS_MAX: usize = 98_304;

/// While a sweep owes more runs than this, no heavy message is admitted.
const PENDING_RUNS_MAX: usize = 4 * SWEEP_RUNS_MAX;
