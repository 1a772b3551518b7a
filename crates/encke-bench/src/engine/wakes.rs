//! When sessions want to be woken: one heap for all.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times, in microseconds, and who is to be woken. A time that moves later leaves its entry: it comes early, and who is
/// woken sets the next. So each session has few entries however often its deadline moves.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

/// When one session is woken next; [`Alarm::default`] for never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alarm(Option<u64>);

impl Wakes {
    /// Lets `who` be woken at `at_us`, or earlier if it is to be woken earlier anyway.
    pub(super) fn set(&mut self, who: u32, at_us: u64, alarm: &mut Alarm) {
        if alarm.0.is_none_or(|armed_us| at_us < armed_us) {
            alarm.0 = Some(at_us);
            self.heap.push(Reverse((at_us, who)));
        }
    }

    /// When the next is to be woken.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_us, _))| *at_us)
    }

    /// Takes one whose time has come. Its alarm is to be [rung](Alarm::ring).
    pub(super) fn due(&mut self, now_us: u64) -> Option<(u64, u32)> {
        if self.next_us()? > now_us {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

impl Alarm {
    /// Whether the entry of `at_us` is the one that counts; then the alarm is off.
    pub(super) fn ring(&mut self, at_us: u64) -> bool {
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
        let (mut wakes, mut alarm) = (Wakes::default(), Alarm::default());
        wakes.set(7, 100, &mut alarm);
        wakes.set(7, 200, &mut alarm);
        wakes.set(7, 50, &mut alarm);
        assert_eq!((wakes.next_us(), wakes.due(49)), (Some(50), None));
        assert_eq!(wakes.due(60), Some((50, 7)));
        assert!(alarm.ring(50));
        assert_eq!(wakes.due(300), Some((100, 7)));
        assert!(!alarm.ring(100), "overtaken");
        assert_eq!(wakes.due(300), None);
    }

    #[test]
    fn a_deadline_that_moves_later_leaves_no_heap_of_entries() {
        let (mut wakes, mut alarm) = (Wakes::default(), Alarm::default());
        for at_us in 0..10_000 {
            wakes.set(1, 1_000 + at_us, &mut alarm);
        }
        assert_eq!(wakes.heap.len(), 1);
    }
}
