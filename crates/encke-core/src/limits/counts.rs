//! Counts that all shards share, for limits on the sessions of a user, the connections of an address, and the
//! subscribers of a channel. They are used only where such a limit is set.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};

/// Counts by name. A name that counts nothing has no entry, so the table is as large as the number of what it counts.
#[derive(Debug, Default)]
pub struct Counts {
    names: Striped<usize>,
}

impl Counts {
    /// The key of a name.
    pub fn key(&self, name: impl Hash) -> u64 {
        self.names.hasher.hash_one(name)
    }

    /// Adds one, unless there are `max`. True if it was added.
    pub fn try_add(&self, key: u64, max: usize) -> bool {
        let mut names = self.names.lock(key);
        let count = names.entry(key).or_default();
        let has_room = *count < max;
        *count += usize::from(has_room);
        if *count == 0 {
            names.remove(&key);
        }
        has_room
    }

    /// Adds `by` to a name, where no limit holds.
    pub fn add(&self, key: u64, by: usize) {
        if by > 0 {
            *self.names.lock(key).entry(key).or_default() += by;
        }
    }

    /// Removes `by` of a name.
    pub fn remove(&self, key: u64, by: usize) {
        let mut names = self.names.lock(key);
        let Some(count) = names.get_mut(&key) else { return };
        *count = count.saturating_sub(by);
        if *count == 0 {
            names.remove(&key);
        }
    }

    /// The count of a name.
    pub fn of(&self, key: u64) -> usize {
        self.names.lock(key).get(&key).copied().unwrap_or(0)
    }

    /// The number of names that count anything.
    pub fn names(&self) -> usize {
        self.names.len()
    }
}

/// Counts by name to which each shard adds its own. A shard states its count and does not change it by one, so a limit
/// that is set later begins with the right count at the next change.
#[derive(Debug, Default)]
pub struct ShardCounts {
    names: Striped<Vec<(u16, u32)>>,
}

impl ShardCounts {
    /// States the count of a shard.
    pub fn set(&self, name: &str, shard: usize, count: usize) {
        let key = self.names.hasher.hash_one(name);
        let mut names = self.names.lock(key);
        let counts = names.entry(key).or_default();
        counts.retain(|(other, _)| usize::from(*other) != shard);
        if count > 0 {
            counts.push((shard as u16, count as u32));
        } else if counts.is_empty() {
            names.remove(&key);
        }
    }

    /// States the count of a shard, if all together are at most `max`.
    pub fn try_set(&self, name: &str, shard: usize, count: usize, max: usize) -> bool {
        let key = self.names.hasher.hash_one(name);
        let mut names = self.names.lock(key);
        let others = names.get(&key).into_iter().flatten().filter(|(other, _)| usize::from(*other) != shard);
        let others: usize = others.map(|(_, count)| *count as usize).sum();
        if others + count > max {
            return false;
        }
        let counts = names.entry(key).or_default();
        counts.retain(|(other, _)| usize::from(*other) != shard);
        counts.push((shard as u16, count as u32));
        true
    }

    /// The count of a name on all shards.
    pub fn of(&self, name: &str) -> usize {
        let key = self.names.hasher.hash_one(name);
        self.names.lock(key).get(&key).into_iter().flatten().map(|(_, count)| *count as usize).sum()
    }

    /// The number of names that count anything.
    pub fn names(&self) -> usize {
        self.names.len()
    }
}

/// Tables by hash, each with its own lock.
#[derive(Debug)]
pub(super) struct Striped<T> {
    pub(super) stripes: [Mutex<HashMap<u64, T, RandomState>>; STRIPES],
    hasher: RandomState,
}

impl<T> Striped<T> {
    pub(super) fn lock(&self, key: u64) -> MutexGuard<'_, HashMap<u64, T, RandomState>> {
        self.stripes[(key >> 56) as usize % STRIPES].lock()
    }

    pub(super) fn len(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe.lock().len()).sum()
    }
}

impl<T> Default for Striped<T> {
    fn default() -> Striped<T> {
        Striped { stripes: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::default() }
    }
}

const STRIPES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_counts_up_to_its_limit_and_leaves_no_entry() {
        let counts = Counts::default();
        let (ann, bob) = (counts.key("ann"), counts.key("bob"));
        assert_eq!([counts.try_add(ann, 2), counts.try_add(ann, 2), counts.try_add(ann, 2)], [true, true, false]);
        assert!(counts.try_add(bob, 1) && !counts.try_add(bob, 0));
        assert_eq!((counts.of(ann), counts.of(bob)), (2, 1));
        counts.remove(ann, 1);
        assert!(counts.try_add(ann, 2));
        counts.remove(ann, 2);
        counts.remove(ann, 5);
        counts.remove(bob, 1);
        assert!(!counts.try_add(bob, 0));
        assert!(counts.names.stripes.iter().all(|stripe| stripe.lock().is_empty()));
    }

    #[test]
    fn shards_state_their_own_counts() {
        let counts = ShardCounts::default();
        assert!(counts.try_set("/a", 0, 2, 3) && counts.try_set("/a", 1, 1, 3));
        assert!(!counts.try_set("/a", 1, 2, 3), "four of three");
        assert!(counts.try_set("/b", 1, 3, 3));
        counts.set("/a", 0, 0);
        assert!(counts.try_set("/a", 1, 3, 3));
        counts.set("/a", 1, 0);
        counts.set("/b", 1, 0);
        assert!(counts.names.stripes.iter().all(|stripe| stripe.lock().is_empty()));
    }
}
