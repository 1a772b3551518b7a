//! Choices by chance that are the same in each run with the same seed.

/// A generator of random numbers (SplitMix64): small, fast, and good enough to choose rooms and senders.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Begins the sequence of a seed; each worker has one of its own.
    pub fn new(seed: u64, worker: u32) -> Self {
        let mut chance = Chance(seed ^ u64::from(worker).wrapping_mul(STEP));
        // Seeds that differ in few bits begin alike otherwise.
        chance.next();
        chance
    }

    /// A number below `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of a product spreads evenly for the small ranges that are used here.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_repeat_with_the_seed_and_differ_between_workers() {
        let draw = |seed, worker| {
            let mut chance = Chance::new(seed, worker);
            (0..100).map(|_| chance.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn every_choice_comes_about_equally_often() {
        let (mut chance, mut counts) = (Chance::new(7, 0), [0; 10]);
        for _ in 0..10_000 {
            counts[chance.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(chance.below(0), 0);
    }
}
