//! The publications of one worker in one room that one session has received.
//!
//! Usually each publication is the next one, and a flow is only a number. An unexpected one opens a window that records
//! which have arrived; it closes when the gaps are filled. Publications of several publishers may arrive out of their
//! numbering, since servers keep the order of each publisher only.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use foldhash::fast::FixedState;

/// A flow.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// The next sequence number; [`HAS_GAPS`] while there are gaps.
    next: u32,
    window: Option<Box<Window>>,
}

/// The classification of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    /// The next of its publisher that this session had not had.
    InOrder,
    /// After a later publication of the same publisher.
    Reordered,
    /// Received before.
    Doubled,
}

#[derive(Debug, Default)]
struct Window {
    /// The sequence number of the lowest bit of the first word.
    first: u32,
    /// One above the highest that has come.
    top: u32,
    /// A bit is set for each received publication.
    words: VecDeque<u64>,
    /// The number of missing publications between `first` and `top`.
    holes: u32,
    /// The highest of each publisher that has come since the window was opened.
    latest: HashMap<u32, u32, FixedState>,
    /// Holes that were too far back to wait for.
    given_up: VecDeque<Range<u32>>,
    /// Their number, including the forgotten ones.
    given_up_count: u64,
}

impl Flow {
    /// Creates a flow whose first publication is `next`.
    pub(super) fn new(next: u32) -> Flow {
        Flow { next, window: None }
    }

    /// Begins to count at `base`: nothing before it is expected any more. Returns the number of publications from `base` on that have
    /// already come.
    pub(super) fn begin(&mut self, base: u32) -> u32 {
        let has_gaps = self.next == HAS_GAPS;
        let end = self.window.as_ref().filter(|_| has_gaps).map_or(self.next, |window| window.top);
        if end <= base {
            *self = Flow::new(base);
            return 0;
        }
        if let Some(window) = &mut self.window {
            window.forget_given_up_before(base);
            if has_gaps {
                window.fill_before(base);
                if window.holes == 0 {
                    self.next = window.top;
                    window.close();
                }
            }
        }
        end - base - self.lost(end) as u32
    }

    /// Takes one; `publisher` is asked only if the order is unclear.
    #[inline]
    pub(super) fn take(&mut self, sequence: u32, publisher: impl FnOnce() -> u32) -> Sequence {
        if sequence == self.next && sequence != HAS_GAPS {
            self.next += 1;
            return Sequence::InOrder;
        }
        self.take_out_of_order(sequence, publisher())
    }

    /// The number of missing deliveries if `end` would be next and nothing more arrives.
    pub(super) fn lost(&self, end: u32) -> u64 {
        let (next, holes) = match &self.window {
            None => (self.next, 0),
            Some(window) if self.next == HAS_GAPS => (window.top, u64::from(window.holes) + window.given_up_count),
            Some(window) => (self.next, window.given_up_count),
        };
        holes + u64::from(end.saturating_sub(next))
    }

    /// The missing deliveries if `end` would be next, without those too old to be remembered.
    pub(super) fn missing(&self, end: u32) -> Vec<u32> {
        let Some(window) = &self.window else { return (self.next..end).collect() };
        let given_up = window.given_up.iter().cloned().flatten();
        if self.next != HAS_GAPS {
            return given_up.chain(self.next..end).collect();
        }
        let holes = (window.first..window.top).filter(|sequence| !window.has(*sequence));
        given_up.chain(holes).chain(window.top..end).collect()
    }

    #[cold]
    fn take_out_of_order(&mut self, sequence: u32, publisher: u32) -> Sequence {
        if sequence == HAS_GAPS {
            return Sequence::Doubled;
        }
        let window = self.window.get_or_insert_default();
        if self.next != HAS_GAPS {
            if sequence < self.next {
                // The publishers in between are unknown. After so long, one of them was most likely this publisher.
                return if window.take_given_up(sequence) { Sequence::Reordered } else { Sequence::Doubled };
            }
            (window.first, window.top) = (self.next, self.next);
            self.next = HAS_GAPS;
        }
        let found = window.take(sequence, publisher);
        if window.holes == 0 {
            self.next = window.top;
            window.close();
        }
        found
    }
}

impl Window {
    fn take(&mut self, sequence: u32, publisher: u32) -> Sequence {
        if sequence < self.first {
            return if self.take_given_up(sequence) { self.order(sequence, publisher) } else { Sequence::Doubled };
        }
        self.slide_to_hold(sequence);
        let offset = (sequence - self.first) as usize;
        let (word, bit) = (offset / 64, 1 << (offset % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if self.words[word] & bit != 0 {
            return Sequence::Doubled;
        }
        self.words[word] |= bit;
        if sequence >= self.top {
            self.holes += sequence - self.top;
            self.top = sequence + 1;
        } else {
            self.holes -= 1;
        }
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.first += 64;
        }
        self.order(sequence, publisher)
    }

    fn has(&self, sequence: u32) -> bool {
        let offset = (sequence - self.first) as usize;
        self.words.get(offset / 64).is_some_and(|word| word >> (offset % 64) & 1 == 1)
    }

    /// Takes the holes before `base` as filled.
    fn fill_before(&mut self, base: u32) {
        for sequence in self.first..self.top.min(base) {
            if !self.has(sequence) {
                let offset = (sequence - self.first) as usize;
                self.words[offset / 64] |= 1 << (offset % 64);
                self.holes -= 1;
            }
        }
    }

    fn forget_given_up_before(&mut self, base: u32) {
        self.given_up.iter_mut().for_each(|range| range.start = range.start.max(base));
        self.given_up.retain(|range| !range.is_empty());
        self.given_up_count = self.given_up.iter().map(|range| u64::from(range.end - range.start)).sum();
    }

    fn order(&mut self, sequence: u32, publisher: u32) -> Sequence {
        if self.latest.len() >= PUBLISHERS_REMEMBERED_MAX {
            self.latest.clear();
        }
        let latest = self.latest.entry(publisher).or_insert(sequence);
        if *latest > sequence {
            return Sequence::Reordered;
        }
        *latest = sequence;
        Sequence::InOrder
    }

    /// Gives up the oldest holes if `sequence` would be too far from them.
    fn slide_to_hold(&mut self, sequence: u32) {
        let far = (sequence - self.first).saturating_sub(WINDOW_MAX - 1).div_ceil(64) * 64;
        if far == 0 {
            return;
        }
        let first = self.first + far;
        while self.first < first
            && let Some(word) = self.words.pop_front()
        {
            let first = self.first;
            let missing = (0..64).filter(|bit| word >> bit & 1 == 0).map(|bit| first + bit);
            for sequence in missing.filter(|&sequence| sequence < self.top).collect::<Vec<_>>() {
                self.give_up(sequence..sequence + 1);
                self.holes -= 1;
            }
            self.first += 64;
        }
        self.first = first;
        if self.top < first {
            self.give_up(self.top..first);
            self.top = first;
        }
    }

    fn give_up(&mut self, range: Range<u32>) {
        self.given_up_count += u64::from(range.end - range.start);
        match self.given_up.back_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.given_up.push_back(range),
        }
        if self.given_up.len() > GIVEN_UP_REMEMBERED_MAX {
            self.given_up.pop_front();
        }
    }

    fn take_given_up(&mut self, sequence: u32) -> bool {
        let Some(index) = self.given_up.iter().position(|range| range.contains(&sequence)) else { return false };
        let range = self.given_up[index].clone();
        self.given_up[index] = range.start..sequence;
        self.given_up.insert(index + 1, sequence + 1..range.end);
        self.given_up.retain(|range| !range.is_empty());
        self.given_up_count -= 1;
        true
    }

    fn close(&mut self) {
        self.words.clear();
        self.latest.clear();
    }
}

/// Marks a flow with gaps; no publication has this number.
const HAS_GAPS: u32 = u32::MAX;
/// The most distance between the oldest gap and the newest delivery: 8 KiB of bits.
const WINDOW_MAX: u32 = 1 << 16;
const GIVEN_UP_REMEMBERED_MAX: usize = 1024;
/// Beyond this, the latest numbers are forgotten, and some reordered deliveries go unnoticed.
const PUBLISHERS_REMEMBERED_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(sequences: impl IntoIterator<Item = (u32, u32)>) -> (Flow, u64, u64) {
        let (mut flow, mut doubled, mut reordered) = (Flow::new(0), 0, 0);
        for (sequence, publisher) in sequences {
            match flow.take(sequence, || publisher) {
                Sequence::InOrder => {}
                Sequence::Doubled => doubled += 1,
                Sequence::Reordered => reordered += 1,
            }
        }
        (flow, doubled, reordered)
    }

    fn of_one(sequences: impl IntoIterator<Item = u32>) -> (Flow, u64, u64) {
        taken(sequences.into_iter().map(|sequence| (sequence, 1)))
    }

    #[test]
    fn lost_doubled_and_reordered_deliveries_are_distinguished() {
        let (flow, doubled, reordered) = of_one([0, 1, 4, 2, 5, 5, 1, 7]);
        // 3 and 6 are missing, 8 and 9 never came; 5 and 1 came twice; 2 came late.
        assert_eq!((flow.lost(10), doubled, reordered), (4, 2, 1));
        assert_eq!(flow.missing(10), [3, 6, 8, 9]);
    }

    #[test]
    fn several_publishers_may_overtake_each_other_but_not_themselves() {
        let (flow, doubled, reordered) = taken([(1, 8), (0, 7), (3, 7), (2, 8)]);
        assert_eq!((flow.lost(4), doubled, reordered), (0, 0, 0));
        let (flow, doubled, reordered) = taken([(1, 8), (3, 7), (0, 8), (2, 7)]);
        assert_eq!((flow.lost(4), doubled, reordered), (0, 0, 2));
    }

    #[test]
    fn publications_that_come_before_the_count_begins_are_counted_in_any_order() {
        let begun = |sequences: &[u32], base| {
            let (mut flow, ..) = of_one(sequences.iter().copied());
            let early = flow.begin(base);
            (early, flow.missing(6), flow.lost(6))
        };
        assert_eq!(begun(&[0, 1, 2], 0), (3, vec![3, 4, 5], 3));
        assert_eq!(begun(&[1, 0, 2], 1), (2, vec![3, 4, 5], 3));
        assert_eq!(begun(&[0, 3, 4], 0), (3, vec![1, 2, 5], 3));
        assert_eq!(begun(&[0, 3, 4], 2), (2, vec![2, 5], 2));
        assert_eq!(begun(&[0, 2, 4], 4), (1, vec![5], 1), "what was missing before does not matter");
        assert_eq!(begun(&[1], 5), (0, vec![5], 1));
        let (mut flow, ..) = of_one((0..200_000).filter(|sequence| ![5, 70_000].contains(sequence)));
        assert_eq!((flow.begin(60_000), flow.missing(200_000)), (139_999, vec![70_000]));
        assert_eq!(flow.take(200_000, || 1), Sequence::InOrder);
    }

    #[test]
    fn a_block_that_comes_late_counts_whole() {
        let (flow, _, reordered) = of_one((10..20).chain(0..10));
        assert_eq!((flow.lost(20), reordered), (0, 10));
    }

    #[test]
    fn a_flow_is_a_number_again_when_its_holes_are_filled() {
        let (mut flow, ..) = of_one([2, 1, 0]);
        assert_eq!(flow.next, 3);
        assert_eq!(flow.take(3, || panic!("nobody asks in order")), Sequence::InOrder);
        assert_eq!(flow.take(1, || 1), Sequence::Doubled);
    }

    #[test]
    fn everything_backwards_comes_whole() {
        let (flow, doubled, reordered) = of_one((0..60_000).rev());
        assert_eq!((flow.lost(60_000), doubled, reordered), (0, 0, 59_999));
    }

    #[test]
    fn holes_far_back_are_lost_and_found_again() {
        let (mut flow, doubled, reordered) = of_one((0..200_000).filter(|sequence| ![5, 6, 70_000].contains(sequence)));
        assert_eq!((flow.lost(200_000), doubled, reordered), (3, 0, 0));
        assert_eq!(flow.missing(200_001), [5, 6, 70_000, 200_000]);
        assert_eq!(flow.take(6, || 1), Sequence::Reordered);
        assert_eq!(flow.take(6, || 1), Sequence::Doubled);
        assert_eq!(flow.lost(200_000), 2);
        assert_eq!(flow.next, 200_000, "no window stays open for messages that never come");
    }

    #[test]
    fn a_leap_over_more_than_a_window_is_all_loss() {
        for leap in [65_535, 65_536, 65_600, 100_000, 1_000_000, 4_000_000_000] {
            for before in [0, 1, 63, 64, 65, 1000] {
                let (mut flow, ..) = of_one((0..before).chain([before + 2, before + leap]));
                let end = before + leap + 1;
                assert_eq!(flow.lost(end), u64::from(leap) - 1, "{before} {leap}");
                assert_eq!(flow.take(end, || 1), Sequence::InOrder);
                assert_eq!(flow.take(before + 2, || 1), Sequence::Doubled);
                assert_eq!(flow.take(before + leap - 1, || 1), Sequence::Reordered);
                assert_eq!(flow.take(before, || 1), Sequence::Reordered);
                assert_eq!(flow.lost(end + 1), u64::from(leap) - 3, "{before} {leap}");
            }
        }
    }
}
