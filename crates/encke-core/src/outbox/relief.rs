//! Relief: the measures against high memory use by sessions.
//!
//! When the memory of a shard has doubled since its last sweep, the shard packs ranges that keep mostly dead chunks
//! alive ([`Sweep`]), a part in each turn. When all shards together hold more than `sessions_bytes_max`, edges admit no
//! heavy messages, and the shards that hold at least their share pack larger parts. A shard that has packed everything
//! ends the sessions that hold most. Packing millions of ranges takes seconds, so it is never done in one turn.

use std::collections::HashSet;

use crate::outbox::Sweep;
use crate::outbox::arena::Chunk;

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
}

impl Relief {
    /// True if packing is behind the messages that were added.
    pub(crate) fn is_behind(&self) -> bool {
        self.sweep.is_some() && self.pending_runs > PENDING_RUNS_MAX
    }

    /// The bytes of chunks that a sweep holds, without chunks that are in `seen`.
    pub(crate) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.sweep.as_ref().map_or(0, |sweep| sweep.recount(seen))
    }
}

/// The maximum number of runs that one step of a sweep visits: some milliseconds of work.
pub(crate) const SWEEP_RUNS_MAX: usize = 98_304;

/// While a sweep owes more runs than this, no heavy message is admitted.
const PENDING_RUNS_MAX: usize = 4 * SWEEP_RUNS_MAX;
