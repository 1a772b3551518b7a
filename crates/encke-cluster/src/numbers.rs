//! The numbers of envelopes that have arrived. While the subscriptions of a node change, an envelope may come by two of them;
//! its second copy is dropped.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::envelope::Origin;

/// The numbers that have arrived from each origin.
#[derive(Default)]
pub(crate) struct Numbers {
    origins: HashMap<Origin, Window, RandomState>,
    /// Increases with each envelope.
    arrivals: u64,
}

/// The last numbers of one origin, a bit each.
struct Window {
    bits: Box<[u64]>,
    /// The highest number that has arrived.
    highest: u64,
    /// The count of arrivals at the last one.
    last: u64,
}

impl Numbers {
    /// Notes a number. False if it has arrived before.
    pub(crate) fn is_new(&mut self, origin: Origin, number: u64) -> bool {
        self.arrivals += 1;
        if self.origins.len() >= ORIGINS_MAX && !self.origins.contains_key(&origin) {
            let oldest = self.origins.iter().min_by_key(|(_, window)| window.last).map(|(origin, _)| *origin);
            oldest.and_then(|oldest| self.origins.remove(&oldest));
        }
        let window = self.origins.entry(origin).or_insert_with(|| Window::from(number));
        window.last = self.arrivals;
        window.note(number)
    }

    /// The number of origins from which envelopes have come.
    pub(crate) fn origins(&self) -> usize {
        self.origins.len()
    }
}

impl Window {
    fn from(number: u64) -> Window {
        Window { bits: vec![0; WINDOW / 64].into(), highest: number, last: 0 }
    }

    fn note(&mut self, number: u64) -> bool {
        let window = WINDOW as u64;
        if number > self.highest {
            let skipped = number - self.highest;
            if skipped >= window {
                self.bits.fill(0);
            } else {
                (self.highest + 1..=number).for_each(|gone| self.set(gone, false));
            }
            self.highest = number;
        } else if self.highest - number >= window {
            // Too old to know. Copies come soon after each other, so it is none.
            return true;
        }
        let is_new = self.bits[(number % window / 64) as usize] & 1 << (number % 64) == 0;
        self.set(number, true);
        is_new
    }

    fn set(&mut self, number: u64, is_set: bool) {
        let bits = &mut self.bits[(number % WINDOW as u64 / 64) as usize];
        *bits = *bits & !(1 << (number % 64)) | u64::from(is_set) << (number % 64);
    }
}

/// The numbers of one origin that are remembered.
const WINDOW: usize = 64 * 1024;
/// The origins whose numbers are remembered, 8 KiB each. The one that has been silent for the longest time is forgotten.
const ORIGINS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_second_copy_is_dropped_and_gaps_are_not() {
        let mut numbers = Numbers::default();
        let mut note = |origin: u64, number: u64| numbers.is_new(Origin(origin), number);
        assert!([5, 6, 9, 7].into_iter().all(|number| note(1, number)));
        assert!(![5, 6, 7, 9].into_iter().any(|number| note(1, number)));
        assert!(note(2, 5), "another origin");
        assert!(note(1, 4), "older than the first one");
        assert!(note(1, 1 << 40) && !note(1, 1 << 40) && note(1, 10), "too old to know");
        assert!(note(1, u64::MAX) && !note(1, u64::MAX));
    }

    #[test]
    fn the_most_silent_origin_is_forgotten() {
        let mut numbers = Numbers::default();
        (0..ORIGINS_MAX as u64).for_each(|origin| assert!(numbers.is_new(Origin(origin), 1)));
        assert!(!numbers.is_new(Origin(0), 1));
        assert!(numbers.is_new(Origin(1 << 20), 1));
        assert_eq!(numbers.origins(), ORIGINS_MAX);
        assert!(!numbers.is_new(Origin(0), 1) && numbers.is_new(Origin(1), 1));
    }

    proptest! {
        #[test]
        fn each_number_is_new_once(mut all in prop::collection::vec(0_u64..3_000, 1..400), base in any::<u32>()) {
            let mut numbers = Numbers::default();
            let mut seen = std::collections::HashSet::new();
            all.iter_mut().for_each(|number| *number += u64::from(base));
            for number in all {
                prop_assert_eq!(numbers.is_new(Origin(1), number), seen.insert(number));
            }
        }
    }
}
