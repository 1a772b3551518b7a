//! Decides when the thread of a shard asks the allocator to return free memory to the system.
//!
//! An allocator retains the free memory of a thread for that thread's next allocations, and notices blocks that other
//! threads have freed only when it allocates again. A shard that has been busy and is now quiet would hold that memory
//! until its next busy time. It reclaims memory when it becomes quiet, and again a few times while it stays quiet: other
//! threads may free later what it has allocated. See
//! [`Builder::reclaim_memory_with`](crate::Builder::reclaim_memory_with).

/// The times at which one shard's thread reclaims memory.
#[derive(Debug, Default)]
pub(super) struct Reclaim {
    /// The time of the next check, in milliseconds.
    check_ms: u64,
    /// The work of the shard at the last check.
    checked: u64,
    /// The work of the shard when memory was last reclaimed.
    reclaimed: u64,
    /// The earliest time at which a quiet shard reclaims memory again, in milliseconds.
    quiet_ms: u64,
    /// The next time at which the shard reclaims memory if it stays quiet.
    again: Option<Again>,
    /// The most bytes held since memory was last reclaimed.
    held_most: usize,
}

/// One more time at which a shard that stays quiet reclaims memory.
#[derive(Clone, Copy, Debug)]
struct Again {
    /// The time, in milliseconds.
    at_ms: u64,
    /// The pause before it, in milliseconds.
    pause_ms: u64,
}

/// A shard at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Bytes received and written since the start.
    pub(super) work: u64,
    /// Bytes that its sessions and sockets hold.
    pub(super) held_bytes: usize,
}

impl Reclaim {
    /// True if memory is to be reclaimed now: the shard holds much less than before, has done something and is quiet, or
    /// has stayed quiet for the next pause.
    pub(super) fn is_due(&mut self, now_ms: u64, load: impl FnOnce() -> Load) -> bool {
        if now_ms < self.check_ms {
            return false;
        }
        self.check_ms = now_ms + CHECK_EVERY_MS;
        let Load { work, held_bytes } = load();
        let is_quiet = work - std::mem::replace(&mut self.checked, work) < QUIET_BYTES;
        let is_idle = is_quiet && work > self.reclaimed && now_ms >= self.quiet_ms;
        self.held_most = self.held_most.max(held_bytes);
        let freed = self.held_most - held_bytes;
        let has_changed = is_idle || freed >= FREED_BYTES.max(self.held_most / 4);
        let stays_quiet = self.again.filter(|again| is_quiet && now_ms >= again.at_ms);
        let is_due = has_changed || stays_quiet.is_some();
        if is_due {
            (self.reclaimed, self.held_most) = (work, held_bytes);
            self.quiet_ms = now_ms + QUIET_EVERY_MS;
            let repeated = stays_quiet.filter(|_| !has_changed);
            let pause_ms = repeated.map_or(QUIET_EVERY_MS, |again| 2 * again.pause_ms);
            self.again = (pause_ms <= QUIET_PAUSE_MAX_MS).then_some(Again { at_ms: now_ms + pause_ms, pause_ms });
        }
        is_due
    }
}

/// The time between two checks, in milliseconds.
const CHECK_EVERY_MS: u64 = 1_000;
/// A shard that has done less work than this since the last check is quiet.
const QUIET_BYTES: u64 = 256 * 1024;
/// The time between two times at which a quiet shard reclaims memory, in milliseconds. Responses and sessions may end
/// long after the work that they belong to.
const QUIET_EVERY_MS: u64 = 5_000;
/// The longest pause after which a shard that stays quiet reclaims memory again, in milliseconds. The first is
/// [`QUIET_EVERY_MS`], and each is twice the one before.
const QUIET_PAUSE_MAX_MS: u64 = 40_000;
/// Memory is not reclaimed for fewer freed bytes than this.
const FREED_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    /// Checks every second whether memory is reclaimed, for a series of loads: work in MiB, held MiB.
    fn seconds_reclaimed(loads: &[(u64, usize)]) -> Vec<usize> {
        let mut reclaim = Reclaim::default();
        let mut is_due = |second: usize, (work, held): (u64, usize)| {
            let load = Load { work: work * MIB as u64, held_bytes: held * MIB };
            reclaim.is_due(second as u64 * CHECK_EVERY_MS, || load)
        };
        loads.iter().enumerate().filter(|(second, load)| is_due(*second, **load)).map(|(second, _)| second).collect()
    }

    #[test]
    fn a_shard_reclaims_when_it_becomes_quiet_and_some_times_while_it_stays_quiet() {
        let mut loads = vec![(0, 0), (50, 0), (90, 0)];
        loads.resize(1_000, (90, 0));
        assert_eq!(seconds_reclaimed(&loads), [3, 8, 18, 38, 78]);
    }

    #[test]
    fn a_shard_that_has_done_nothing_never_reclaims() {
        assert_eq!(seconds_reclaimed(&[(0, 0); 100]), [0; 0]);
    }

    #[test]
    fn a_shard_with_little_work_reclaims_every_few_seconds() {
        let mut reclaim = Reclaim::default();
        let load = |second: u64| Load { work: 1_000 * second, held_bytes: 0 };
        let seconds = (1..=20).filter(|second| reclaim.is_due(second * CHECK_EVERY_MS, || load(*second)));
        assert_eq!(seconds.collect::<Vec<_>>(), [1, 6, 11, 16]);
    }

    #[test]
    fn a_busy_shard_reclaims_when_it_holds_much_less() {
        assert_eq!(seconds_reclaimed(&[(0, 0), (50, 40), (90, 35), (150, 20), (200, 20)]), [3]);
    }

    #[test]
    fn a_busy_shard_that_holds_the_same_never_reclaims() {
        assert_eq!(seconds_reclaimed(&[(1, 10), (2, 10), (3, 9), (4, 10), (5, 11)]), [0; 0]);
    }
}
