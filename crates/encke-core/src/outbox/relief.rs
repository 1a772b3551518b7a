//! Relief: what is done where sessions hold much memory.
//!
//! When what a shard holds has doubled since it last looked, it packs ranges that keep mostly dead chunks alive ([`Sweep`]), a part in
//! each turn. When all shards together hold more than `sessions_bytes_max`, edges take in no heavy messages, and the shards that hold at
//! least their share pack larger parts; one that has packed everything ends the sessions that hold most. Packing millions of ranges
//! takes seconds, so it never happens in one turn.

use std::collections::HashSet;

use crate::outbox::Sweep;
use crate::outbox::arena::Chunk;

/// What a shard knows of its need for memory.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    pub(crate) sweep: Option<Sweep>,
    /// From so many bytes on the next sweep begins; 0 before the first look.
    pub(crate) sweep_from: usize,
    /// From so many bytes on it is time to look, in the middle of a turn.
    pub(crate) look_from: usize,
    /// What the account said at the last look.
    pub(crate) looked_bytes: usize,
    /// Runs that the sweep has to look at to keep up with what was added since it began.
    pub(crate) owed_runs: usize,
    /// When tables are looked at next, in milliseconds.
    pub(crate) room_ms: u64,
    /// Whether this shard packs because all sessions hold too much.
    pub(crate) is_short: bool,
    /// When sessions may be ended for memory again, in milliseconds.
    pub(crate) rests_until_ms: u64,
}

impl Relief {
    /// Whether packing has not kept up with what was added.
    pub(crate) fn is_behind(&self) -> bool {
        self.sweep.is_some() && self.owed_runs > OWED_RUNS_MAX
    }

    /// The bytes of chunks that a sweep holds, but for those among the `seen`.
    pub(crate) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.sweep.as_ref().map_or(0, |sweep| sweep.recount(seen))
    }
}

/// The same at most: some milliseconds of work.
pub(crate) const SWEEP_RUNS_MAX: usize = 98_304;

/// When a sweep owes more runs than this, no heavy message is taken in.
const OWED_RUNS_MAX: usize = 4 * SWEEP_RUNS_MAX;
