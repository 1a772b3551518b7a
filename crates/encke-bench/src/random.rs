//! Random choices that repeat with their seed.

/// A seeded generator of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(fastrand::Rng);

impl Rng {
    /// The sequence `stream` of a seed: each worker, or each client, has its own.
    pub fn new(seed: u64, stream: u32) -> Self {
        Rng(fastrand::Rng::with_seed(seed ^ u64::from(stream) << 32))
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_repeat_with_the_seed_and_differ_between_workers() {
        let draw = |seed, worker| {
            let mut rng = Rng::new(seed, worker);
            (0..100).map(|_| rng.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn all_choices_are_about_equally_frequent() {
        let (mut rng, mut counts) = (Rng::new(7, 0), [0; 10]);
        for _ in 0..10_000 {
            counts[rng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(rng.below(0), 0);
    }
}
