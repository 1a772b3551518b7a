//! Relief: the measures against high memory use by sessions.
//!
//! When the memory of a shard has doubled since its last sweep, the shard packs ranges that keep mostly dead chunks
//! alive ([`Sweep`]), a part in each turn. When all shards together hold more than `sessions_bytes_max`, edges admit no
//! heavy messages, and the shards that hold at least their share pack larger parts. A shard that has packed everything
//! ends the sessions that hold most. Packing millions of ranges takes seconds, and so does a look at millions of
//! sessions. So neither is ever done in one turn: each goes on where the last turn has left it. Until the largest
//! sessions are known, memory may exceed the limit by a 64th for each [`SWEEP_RUNS_MAX`] sessions and sockets.
//!
//! The machine decides what is done when. Its owner lets the delivery visit the outboxes, and ends what is to end.

mod holders;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

pub(crate) use holders::Holders;

use crate::delivery::{Chunk, RUN_BYTES, Sweep};

/// The state of a shard's relief.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    sweep: Option<Sweep>,
    /// The number of bytes at which the next sweep begins; 0 before the first check.
    sweep_from: usize,
    /// The number of bytes at which a check is due in the middle of a turn.
    check_from: usize,
    /// The bytes of the account at the last check.
    checked_bytes: usize,
    /// The number of runs that the sweep has to visit to keep up with what was added since it began.
    pending_runs: usize,
    /// The time of the next check of the tables, in milliseconds.
    room_ms: u64,
    /// True if this shard packs because all sessions together hold too much.
    is_short: bool,
    /// The time when sessions may be ended for memory again, in milliseconds.
    rests_until_ms: u64,
    /// The search for the largest sessions, while sessions have to end.
    holders: Option<Holders>,
}

impl Relief {
    /// True if a check is due before the next tick: the account has changed, or a sweep is under way.
    pub(crate) fn needs_care(&self, bytes: usize) -> bool {
        bytes != self.checked_bytes || self.sweep.is_some() || self.is_short
    }

    /// The number of bytes at which a check is due in the middle of a turn.
    #[inline]
    pub(crate) fn check_from(&self) -> usize {
        self.check_from
    }

    /// The number of runs of ended sessions to free in a turn. `steps`: those that were made for memory in it.
    pub(crate) fn runs_to_free(steps: usize) -> usize {
        SWEEP_RUNS_MAX.saturating_sub(steps).max(SWEEP_RUNS)
    }

    /// Notes what the shard holds now: `bytes`, of which it does not hold `held` for the next frames only. Returns true if
    /// a sweep has to begin.
    pub(crate) fn check(&mut self, held: usize, bytes: usize, max: usize) -> bool {
        self.check_from = bytes + slack(max);
        let next = next_sweep(held, max);
        self.sweep_from = if self.sweep_from == 0 { next } else { next.min(self.sweep_from) };
        // The work of a sweep is proportional to the added bytes, but spread over turns.
        let before = std::mem::replace(&mut self.checked_bytes, bytes);
        self.pending_runs += bytes.saturating_sub(before) / RUN_BYTES * 4;
        held >= self.sweep_from && self.sweep.is_none()
    }

    /// Begins a sweep.
    pub(crate) fn begin(&mut self, sweep: Sweep) {
        self.sweep = Some(sweep);
    }

    /// The number of runs that the sweep visits in this turn.
    pub(crate) fn runs(&self) -> usize {
        self.pending_runs.clamp(SWEEP_RUNS, SWEEP_RUNS_MAX)
    }

    /// Takes the sweep to go on with it. It comes back with [`Relief::go_on_later`], or ends with [`Relief::end_sweep`].
    pub(crate) fn take_sweep(&mut self) -> Option<Sweep> {
        if self.sweep.is_none() {
            self.pending_runs = 0;
        }
        self.sweep.take()
    }

    /// Takes a sweep back that has visited a part.
    pub(crate) fn go_on_later(&mut self, sweep: Sweep) {
        self.pending_runs = self.pending_runs.saturating_sub(sweep.looked_at);
        self.sweep = Some(sweep);
    }

    /// Notes that a sweep has visited everything, and what the shard holds now.
    pub(crate) fn end_sweep(&mut self, held: usize, max: usize) {
        self.pending_runs = 0;
        self.sweep_from = next_sweep(held, max);
    }

    /// True if packing is behind the messages that were added.
    pub(crate) fn is_behind(&self) -> bool {
        self.sweep.is_some() && self.pending_runs > PENDING_RUNS_MAX
    }

    /// True if the shard packs because memory is short, or ends sessions.
    pub(crate) fn is_acting(&self) -> bool {
        self.is_behind() || (self.is_short && (self.sweep.is_some() || self.holders.is_some()))
    }

    /// Notes that all sessions together hold too much, or not. Returns true if a sweep has to begin.
    pub(crate) fn set_short(&mut self, is_short: bool) -> bool {
        let was_short = std::mem::replace(&mut self.is_short, is_short);
        if !is_short {
            self.holders = None;
        }
        is_short && !was_short && self.sweep.is_none()
    }

    /// True if everything is packed, so that sessions have to end if memory is still short.
    pub(crate) fn may_end_sessions(&self, now_ms: u64) -> bool {
        self.sweep.is_none() && now_ms >= self.rests_until_ms
    }

    /// True if the sessions that have to end are known, and not all have ended.
    pub(crate) fn is_ending_sessions(&self) -> bool {
        self.holders.as_ref().is_some_and(Holders::are_known)
    }

    /// Takes the search for the largest sessions, or begins one. It comes back with [`Relief::search_later`], or ends with
    /// [`Relief::end_search`].
    pub(crate) fn take_search(&mut self) -> Holders {
        self.holders.take().unwrap_or_default()
    }

    /// Takes a search back that has visited a part.
    pub(crate) fn search_later(&mut self, holders: Holders) {
        self.holders = Some(holders);
    }

    /// Notes that enough sessions have ended. Further ones have some time to get their queues.
    pub(crate) fn end_search(&mut self, now_ms: u64, bytes: usize, max: usize) {
        self.rests_until_ms = now_ms + REST_MS;
        self.check_from = bytes + slack(max);
    }

    /// True if tables that were large once may be shrunk now: at intervals.
    pub(crate) fn gives_room_back(&mut self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.room_ms;
        if is_due {
            self.room_ms = now_ms + ROOM_EVERY_MS;
        }
        is_due
    }

    /// The bytes of chunks that it holds, without chunks that are in `seen`.
    pub(crate) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.sweep.as_ref().map_or(0, |sweep| sweep.recount(seen))
    }
}

/// The bytes that may be added before the next check.
fn slack(max: usize) -> usize {
    max / 64
}

/// The number of bytes at which the next sweep begins, after one that has left this much.
fn next_sweep(held: usize, max: usize) -> usize {
    (held * 2).max(held + slack(max))
}

/// The maximum number of runs, sessions and sockets that one part of this work visits: some milliseconds.
pub(crate) const SWEEP_RUNS_MAX: usize = 98_304;

/// The least number of runs that a sweep looks at in each turn.
const SWEEP_RUNS: usize = 16_384;

/// While a sweep owes more runs than this, no heavy message is admitted.
const PENDING_RUNS_MAX: usize = 4 * SWEEP_RUNS_MAX;

/// The interval between two checks of the tables, in milliseconds.
const ROOM_EVERY_MS: u64 = 1_000;

/// The pause after sessions were ended for memory, in milliseconds. The memory they held is freed meanwhile.
const REST_MS: u64 = 10;
