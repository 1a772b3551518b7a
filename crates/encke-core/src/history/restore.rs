//! Restores rings from an earlier process, and iterates over all rings.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Entry, Histories, NUMBERS_PER_MS, Ring, Room, WALL_MAX_MS, hash_of};
use crate::HistoryTerms;
use crate::limits::shares::{Amount, Urgency};
use crate::now::Now;

/// The data of a ring from an earlier process.
#[derive(Debug)]
pub struct Life {
    /// Its epoch, which does not change.
    pub epoch: Arc<str>,
    /// No message from this offset on is missing.
    pub oldest: u64,
    /// The offset of the next message.
    pub next: u64,
    /// The messages, with growing offsets. Their monotonic time is computed again from their time of day.
    pub entries: VecDeque<Entry>,
}

impl Histories {
    /// Restores a ring with the messages that have not expired by the time of day. Messages from the future count as
    /// published now. False if there is no room for one more channel, or it already has a ring. The pattern of its rule gets
    /// the ring even above its share: what was stored stays.
    pub fn restore(&self, [channel, rule]: [&str; 2], life: Life, terms: HistoryTerms, room: Room, now: Now) -> bool {
        let owner = self.owner(channel);
        let Some(mut owned) = self.lock(owner) else { return false };
        if owned.names.get(channel).is_some() || owned.rings.len() >= room.channels_max {
            return false;
        }
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let share = owned.shares.take_regardless(hash_of(rule), None, Amount::of(1), Urgency::Common);
        let mut ring = Ring::new(channel, life.epoch, serial, terms, life.oldest, share);
        for entry in life.entries {
            let age_ms = now.wall_ms.saturating_sub(entry.wall_ms);
            ring.restore(Entry { at_ms: now.ms.saturating_sub(age_ms), ..entry });
        }
        ring.jump_to(life.next);
        while ring.due_ms().is_some_and(|due_ms| due_ms <= now.ms) {
            ring.drop_oldest(now.ms);
        }
        ring.empty_since_ms = now.ms;
        owned.messages += ring.messages();
        owned.bytes += ring.bytes();
        let due_ms = ring.due_ms();
        let slot = owned.rings.insert(ring) as u32;
        owned.names.insert(channel, slot);
        match due_ms {
            Some(due_ms) => owned.due.push(Reverse((due_ms, slot, serial))),
            None if terms.is_persistent => {}
            None => owned.is_empty(slot, now.ms),
        }
        owned.make_room(room.bytes_max, now.ms);
        self.note_scarcity(owner, &owned, room);
        true
    }

    /// Makes new rings begin at this offset or above it.
    pub fn raise_floor(&self, floor: u64) {
        for owner in 0..self.owners.len() {
            if let Some(mut owned) = self.lock(owner) {
                owned.floor = owned.floor.max(floor);
            }
        }
    }

    /// An offset above all offsets of removed rings.
    pub fn floor(&self) -> u64 {
        (0..self.owners.len()).filter_map(|owner| Some(self.lock(owner)?.floor)).max().unwrap_or(0)
    }

    /// Passes the first ring of an owner at this slot or behind it to `visit`, with its slot. None if there is none.
    pub fn visit_from<T>(&self, owner: usize, position: usize, visit: impl FnOnce(usize, &Ring) -> T) -> Option<T> {
        let owned = self.lock(owner)?;
        let mut positions = position..owned.rings.capacity();
        positions
            .find_map(|position| Some((position, owned.rings.get(position)?)))
            .map(|(position, ring)| visit(position, ring))
    }

    /// The bytes that all rings retain.
    pub fn bytes(&self) -> usize {
        (0..self.owners.len()).map(|owner| self.holding(owner).bytes).sum()
    }

    /// The number of owners.
    pub fn owners(&self) -> usize {
        self.owners.len()
    }
}

/// The first offset of a ring created at this time of day. After an unclean end, existing rings resume at this offset,
/// too.
pub fn first_offset(wall_ms: u64) -> u64 {
    wall_ms.min(WALL_MAX_MS) * NUMBERS_PER_MS
}
