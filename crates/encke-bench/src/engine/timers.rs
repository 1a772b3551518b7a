//! When sessions want to be woken: one heap for all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times, in microseconds, and who is to be woken. A time that moves later leaves its entry: it comes early, and who is
/// woken sets the next. So each session has few entries however often its deadline moves.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

/// When one session is woken next; [`Timer::default`] for never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timer(Option<u64>);

impl Timers {
    /// Lets `who` be woken at `at_us`, or earlier if it is to be woken earlier anyway.
    pub(super) fn set(&mut self, who: u32, at_us: u64, timer: &mut Timer) {
        if timer.0.is_none_or(|armed_us| at_us < armed_us) {
            timer.0 = Some(at_us);
            self.heap.push(Reverse((at_us, who)));
        }
    }

    /// When the next is to be woken.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_us, _))| *at_us)
    }

    /// Takes one whose time has come. Its alarm is to be [rung](Timer::fire).
    pub(super) fn due(&mut self, now_us: u64) -> Option<(u64, u32)> {
        if self.next_us()? > now_us {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

impl Timer {
    /// Whether the entry of `at_us` is the one that counts; then the alarm is off.
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
    fn who_is_set_earlier_is_woken_once_and_in_time() {
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
