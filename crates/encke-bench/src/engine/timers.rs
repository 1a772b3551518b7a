//! The timers of all sessions, in one heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times in microseconds, and the sessions to wake. A deadline that moves later keeps its old entry, which fires early;
/// the session then sets the next. So each session has few entries, however often its deadline moves.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

/// A session's next wake-up; [`Timer::default`] for none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timer(Option<u64>);

impl Timers {
    /// Wakes `who` at `at_us`, or earlier if an earlier time is set.
    pub(super) fn set(&mut self, who: u32, at_us: u64, timer: &mut Timer) {
        if timer.0.is_none_or(|armed_us| at_us < armed_us) {
            timer.0 = Some(at_us);
            self.heap.push(Reverse((at_us, who)));
        }
    }

    /// The time of the next wake-up.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_us, _))| *at_us)
    }

    /// Removes an entry whose time has come. Call [`Timer::fire`] on its timer.
    pub(super) fn due(&mut self, now_us: u64) -> Option<(u64, u32)> {
        if self.next_us()? > now_us {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

impl Timer {
    /// Returns true if the entry of `at_us` is current, and clears the timer then.
    pub(super) fn fire(&mut self, at_us: u64) -> bool {
        let counts = self.0 == Some(at_us);
        if counts {
            self.0 = None;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_timer_fires_once_and_in_time() {
        let (mut timers, mut timer) = (Timers::default(), Timer::default());
        timers.set(7, 100, &mut timer);
        timers.set(7, 200, &mut timer);
        timers.set(7, 50, &mut timer);
        assert_eq!((timers.next_us(), timers.due(49)), (Some(50), None));
        assert_eq!(timers.due(60), Some((50, 7)));
        assert!(timer.fire(50));
        assert_eq!(timers.due(300), Some((100, 7)));
        assert!(!timer.fire(100), "overtaken");
        assert_eq!(timers.due(300), None);
    }

    #[test]
    fn a_deadline_that_moves_later_leaves_no_heap_of_entries() {
        let (mut timers, mut timer) = (Timers::default(), Timer::default());
        for at_us in 0..10_000 {
            timers.set(1, 1_000 + at_us, &mut timer);
        }
        assert_eq!(timers.heap.len(), 1);
    }
}
