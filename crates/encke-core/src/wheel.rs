//! One timer wheel for each shard: it holds every deadline of the shard's sessions and sockets, without one timer for
//! each.
//!
//! An entry is a key and the slot of its time. Single entries are never removed. The entries of owners that are gone
//! are removed together, once there are many ([`Wheel::forget`]). An owner that moves its deadline to a later time
//! leaves the old entry in place; when that comes, the owner sets it again. So a session whose deadline moves a
//! thousand times costs one entry.

/// The length of a slot in milliseconds, and so the precision of deadlines.
pub const SLOT_MS: u64 = 16;
/// The number of slots. A time beyond the last slot waits in the last slot and is set again.
const SLOTS: usize = 4096;
/// The slots of one row. One block for all of them would be so large that an allocator puts it among the frames of
/// large messages. It would then prevent their memory from being returned to the system.
const ROW: usize = 64;

/// A timer wheel of keys.
#[derive(Debug)]
pub struct Wheel<K> {
    rows: Vec<Box<[Vec<K>]>>,
    /// The next slot of time to process.
    next: u64,
    entries: usize,
    /// Owners that have gone since the last [`Wheel::retain`]. Each left at most one entry.
    gone: usize,
}

impl<K> Wheel<K> {
    /// Creates a wheel that starts at `now_ms`.
    pub fn new(now_ms: u64) -> Wheel<K> {
        Wheel {
            rows: (0..SLOTS / ROW).map(|_| (0..ROW).map(|_| Vec::new()).collect()).collect(),
            next: now_ms / SLOT_MS,
            entries: 0,
            gone: 0,
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Adds an entry for `key` that comes at `at_ms`, or up to a slot later, or earlier if that is beyond the wheel.
    /// Adds none if an entry already comes by `armed_ms` and that is early enough. Returns the time of the key's next
    /// entry.
    ///
    /// The owner stores that time and ignores entries that come before it, which a sooner entry has overtaken. So each
    /// entry ends when it comes, and the number of entries does not grow with each change of a deadline.
    pub fn set(&mut self, key: K, at_ms: u64, armed_ms: u64) -> u64 {
        let slot = at_ms.div_ceil(SLOT_MS).clamp(self.next, self.next + SLOTS as u64 - 1);
        if armed_ms <= slot * SLOT_MS {
            return armed_ms;
        }
        let (row, index) = row_and_index(slot);
        self.rows[row][index].push(key);
        self.entries += 1;
        slot * SLOT_MS
    }

    /// Notes that the owner of an entry has gone. Returns true if so many have that the caller should call
    /// [`Wheel::retain`].
    pub fn forget(&mut self) -> bool {
        self.gone += 1;
        self.gone > self.entries / 2 + GONE_RETAINED
    }

    /// Removes the entries for which `keep` is false, and frees their memory.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        (self.entries, self.gone) = (0, 0);
        for keys in self.rows.iter_mut().flat_map(|row| row.iter_mut()) {
            keys.retain(&mut keep);
            self.entries += keys.len();
            if keys.capacity() > SLOT_RETAINED && keys.len() < keys.capacity() / 4 {
                keys.shrink_to(keys.len() * 2);
            }
        }
    }

    /// Moves all keys whose time has come to `due`.
    pub fn advance(&mut self, now_ms: u64, due: &mut Vec<K>) {
        let current = now_ms / SLOT_MS;
        // After a pause of more than one turn of the wheel each slot is processed once.
        let first = self.next.max((current + 1).saturating_sub(SLOTS as u64));
        for slot in first..=current {
            let (row, index) = row_and_index(slot);
            let keys = &mut self.rows[row][index];
            self.entries -= keys.len();
            due.append(keys);
            // A burst of entries must not pin its memory.
            if keys.capacity() > SLOT_RETAINED {
                *keys = Vec::new();
            }
        }
        self.next = self.next.max(current + 1);
    }
}

/// The row of a slot, and its index there.
fn row_and_index(slot: u64) -> (usize, usize) {
    let slot = slot as usize % SLOTS;
    (slot / ROW, slot % ROW)
}

/// The number of entries of gone owners that is not worth a walk over all slots.
const GONE_RETAINED: usize = 4_096;
/// The number of entries for which a slot keeps room.
const SLOT_RETAINED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_at_their_time_and_not_before() {
        let mut wheel = Wheel::new(1_000);
        wheel.set('a', 1_100, u64::MAX);
        wheel.set('b', 5_000, u64::MAX);
        let mut due = Vec::new();
        wheel.advance(1_099, &mut due);
        assert!(due.is_empty());
        wheel.advance(1_100 + SLOT_MS, &mut due);
        assert_eq!(due, ['a']);
        due.clear();
        wheel.advance(5_007, &mut due);
        assert!(due.is_empty());
        wheel.advance(5_008, &mut due);
        assert_eq!(due, ['b']);
    }

    #[test]
    fn a_deadline_that_moves_back_and_forth_leaves_few_entries() {
        let mut wheel = Wheel::new(0);
        let (mut armed_ms, mut due) = (u64::MAX, Vec::new());
        for now_ms in (0..600_000).step_by(10) {
            wheel.advance(now_ms, &mut due);
            if !due.is_empty() && now_ms >= armed_ms {
                armed_ms = u64::MAX;
            }
            due.clear();
            let deadline_ms = now_ms + if now_ms % 20 == 0 { 20_000 } else { 10_000 };
            armed_ms = wheel.set('a', deadline_ms, armed_ms);
        }
        assert!(wheel.len() <= 3, "{} entries", wheel.len());
    }

    #[test]
    fn a_time_beyond_the_wheel_comes_early_rather_than_never() {
        let mut wheel = Wheel::new(0);
        wheel.set('z', 10_000_000, u64::MAX);
        let mut due = Vec::new();
        wheel.advance(SLOTS as u64 * SLOT_MS, &mut due);
        assert_eq!(due, ['z']);
    }

    #[test]
    fn removed_owners_leave_few_entries_and_little_memory() {
        let mut wheel = Wheel::new(0);
        for at in 0..200_000_u64 {
            wheel.set(at, 20_000 + at % 7, u64::MAX);
            // All but the first few are gone at once.
            if at >= 10 && wheel.forget() {
                wheel.retain(|key| *key < 10);
            }
        }
        assert!(wheel.len() <= 2 * GONE_RETAINED + 20, "{} entries", wheel.len());
        let room: usize = wheel.rows.iter().flat_map(|row| row.iter()).map(Vec::capacity).sum();
        assert!(room <= 4 * GONE_RETAINED, "room for {room}");
        let mut due = Vec::new();
        wheel.advance(30_000, &mut due);
        assert_eq!(due.iter().filter(|key| **key < 10).count(), 10);
    }

    #[test]
    fn many_removed_owners_leave_little_memory() {
        const OWNERS: u64 = 200_000;
        let mut wheel = Wheel::new(0);
        for key in 0..OWNERS {
            wheel.set(key, 20_000 + key % 7, u64::MAX);
        }
        for gone in 0..OWNERS {
            if wheel.forget() {
                wheel.retain(|key| *key > gone);
            }
        }
        let room: usize = wheel.rows.iter().flat_map(|row| row.iter()).map(Vec::capacity).sum();
        assert!(room < OWNERS as usize / 3, "room for {room}");
    }

    #[test]
    fn a_long_sleep_loses_no_key() {
        let mut wheel = Wheel::new(0);
        for at in (0..60_000).step_by(7) {
            wheel.set(at, at, u64::MAX);
        }
        let mut due = Vec::new();
        wheel.advance(100_000_000, &mut due);
        assert_eq!(due.len(), 60_000_usize.div_ceil(7));
        assert_eq!(wheel.len(), 0);
    }
}
