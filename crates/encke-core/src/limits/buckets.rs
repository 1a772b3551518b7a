//! The token buckets of users, addresses and channels: one table for all shards, without locks.
//!
//! A bucket that is full needs no entry, so its entry is the first to be used for another one. If all eight entries of a
//! set belong to buckets that are not full, the fullest one is forgotten: its owner may then send a burst too many. So
//! the table has a fixed size, and no owner is refused because of others.

use std::hash::{BuildHasher, Hash};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;

use crate::limits::rate::{Rate, nanoseconds};
use crate::now::Now;

/// A table of buckets. It takes memory when the first bucket is used.
#[derive(Debug, Default)]
pub struct Buckets {
    entries: OnceLock<Box<[Entry]>>,
    hasher: RandomState,
    forgotten: AtomicU64,
}

/// A bucket, 16 bytes.
#[derive(Debug, Default)]
struct Entry {
    /// The hash of its owner; 0 if it is free.
    owner: AtomicU64,
    full_ns: AtomicU64,
}

impl Buckets {
    /// The hash function of all shards.
    pub fn hasher(&self) -> RandomState {
        self.hasher.clone()
    }

    /// The hash of an owner and a resource, the same on all shards.
    pub fn key(&self, owner: impl Hash) -> u64 {
        self.hasher.hash_one(owner).max(1)
    }

    /// Takes units out of the bucket of an owner. `entries_max` is the size of the table when it is first used.
    pub fn take(&self, key: u64, rate: Rate, now: Now, units: usize, entries_max: usize) -> bool {
        if !rate.is_on() {
            return true;
        }
        let entries = self.entries.get_or_init(|| {
            let sets = entries_max.div_ceil(WAYS).max(1).next_power_of_two();
            (0..sets * WAYS).map(|_| Entry::default()).collect()
        });
        let sets = entries.len() / WAYS;
        let first = (key >> 32) as usize % sets * WAYS;
        let set = &entries[first..first + WAYS];
        let now_ns = nanoseconds(now);
        loop {
            if let Some(entry) = set.iter().find(|entry| entry.owner.load(Ordering::Acquire) == key) {
                return rate.take_shared(&entry.full_ns, now, units);
            }
            let Some(entry) = set.iter().min_by_key(|entry| entry.full_ns.load(Ordering::Relaxed)) else { return true };
            let (owner, full_ns) = (entry.owner.load(Ordering::Acquire), entry.full_ns.load(Ordering::Relaxed));
            if owner == key || entry.owner.compare_exchange(owner, key, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // Another thread has taken the entry.
                continue;
            }
            if full_ns > now_ns {
                self.forgotten.fetch_add(1, Ordering::Relaxed);
            }
            // A second thread of the same owner may have taken from the bucket of its predecessor. It gets one message
            // too many.
            entry.full_ns.store(rate.after(0, now, units).unwrap_or(now_ns), Ordering::Relaxed);
            return true;
        }
    }

    /// True if a bucket was ever used: the table has memory.
    #[cfg(test)]
    pub fn is_used(&self) -> bool {
        self.entries.get().is_some()
    }

    /// The number of buckets forgotten before they were full.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }
}

/// The entries of a set: two lines of the processor's cache.
const WAYS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { ms: (1 << 42) + ms, wall_ms: 0 }
    }

    #[test]
    fn each_owner_has_a_bucket() {
        let table = Buckets::default();
        let taken = |owner: u32, ms| {
            let key = table.key(owner);
            (0..10).filter(|_| table.take(key, Rate(3), at(ms), 1, 1_000)).count()
        };
        for owner in 0..50 {
            assert_eq!((taken(owner, 0), taken(owner, 0), taken(owner, 1_000)), (3, 0, 3), "{owner}");
        }
        assert_eq!(table.forgotten(), 0);
    }

    /// A table with room for 16 buckets meets a hundred thousand owners: nobody is refused its first message, and the
    /// table does not grow.
    #[test]
    fn a_full_table_forgets_buckets_and_refuses_nobody() {
        let table = Buckets::default();
        for owner in 0..100_000_u32 {
            assert!(table.take(table.key(owner), Rate(1), at(0), 1, 16), "{owner}");
        }
        assert!(table.forgotten() > 99_000, "{}", table.forgotten());
        assert_eq!(table.entries.get().map(|entries| entries.len()), Some(16));
        // Buckets that have filled again are reused without a loss.
        let before = table.forgotten();
        assert!((0..16_u32).all(|owner| table.take(table.key(("later", owner)), Rate(1), at(2_000), 1, 16)));
        assert!(table.forgotten() - before <= 8, "only within a set that got more than its share");
    }

    #[test]
    fn threads_share_a_bucket_exactly() {
        let table = Buckets::default();
        let key = table.key("ann");
        let taken: usize = std::thread::scope(|scope| {
            let take = || (0..10_000).filter(|_| table.take(key, Rate(1_000), at(0), 1, 64)).count();
            // The entry is there before the threads begin.
            assert!(table.take(key, Rate(1_000), at(0), 1, 64));
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(taken, 999);
    }
}
