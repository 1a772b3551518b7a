//! The recent messages of channels, for clients that come later: one [`Ring`] for each channel with a history.
//!
//! Rings belong to shards: the channel's name selects the owner. Only the owner appends, so that a channel has one
//! order; every shard reads. Each owner has a lock, held for as long as it takes to append a burst or to copy a few
//! kilobytes.
//!
//! A ring whose last message has expired stays as an empty one for a while ([`EMPTY_RETAINED_MS`]): without it the server
//! could not tell if a client that comes back has missed something. Offsets begin at the time of day, so offsets from
//! an earlier process are below the first one and are recognized as gone.

mod lineage;
pub mod log_record;
mod mirrored;
mod missed;
mod names;
mod page;
mod restore;
mod ring;
mod room;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bayeux::ChannelName;
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};
use slab::Slab;

use lineage::random_epoch;
pub use lineage::{Lineage, PARTITIONS, hash_of_name, mixed, partition_of};
use mirrored::Lineages;
pub use mirrored::{Appended, BeginRestore, Gap};
pub use missed::{Missed, MissedRange};
use names::Names;
pub(crate) use names::order;
pub use page::{HistoryPage, HistoryQuery, within};
pub use restore::{Life, first_offset};
pub use ring::{Entry, Ring};
pub use room::{Holding, Room};

use crate::HistoryTerms;
use crate::id::{Entropy, Id};
use crate::limits::shares::{Amount, Budget, Over, Share, Shares, Urgency};
use crate::now::Now;
use crate::side::Side;

/// The histories of all channels of a server.
#[derive(Debug)]
pub struct Histories {
    owners: Vec<Mutex<Owned>>,
    serials: AtomicU64,
    /// A bit for each owner that has rings for half of the channels that it may have.
    scarce: AtomicU64,
    /// True if other nodes have the same rings.
    is_mirrored: AtomicBool,
}

/// A reference to a ring. It stays valid when the ring is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingKey {
    owner: u32,
    slot: u32,
    /// Unique in the process. A later ring of a channel has a higher one.
    pub serial: u64,
}

/// The position of a burst of messages in the history of its channel.
#[derive(Clone, Debug)]
pub struct Position {
    /// The ring.
    pub ring: RingKey,
    /// Its epoch.
    pub epoch: Arc<str>,
    /// The offset of the first message; the others are consecutive.
    pub first: u64,
    /// The time when they were published, in milliseconds since 1970.
    pub wall_ms: u64,
    /// The number of the burst among all bursts of its owner, across channels.
    pub burst: u64,
}

/// The rings of one owner.
#[derive(Debug, Default)]
struct Owned {
    names: Names,
    rings: Slab<Ring>,
    /// For each ring with messages a time, in milliseconds, at or before which its oldest message expires.
    due: BinaryHeap<Reverse<(u64, u32, u64)>>,
    /// For each rule the rings without messages, with the time when they lost their last one, in milliseconds.
    empty: BTreeMap<u64, BTreeSet<(u64, u32)>>,
    /// The rings of each rule.
    shares: Shares<u64>,
    /// An offset above all offsets of removed rings. In a cluster each lineage has its own.
    floor: u64,
    /// The number of bursts appended since the start.
    bursts: u64,
    messages: usize,
    bytes: usize,
    evicted: usize,
    /// The time at which the latest message came that has gone without a trace in a ring, in milliseconds, or a later time.
    gone_ms: u64,
    /// In a cluster those of the partitions.
    lineages: Option<Box<Lineages>>,
}

/// The data that the messages of a burst share.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The time when they were published.
    pub now: Now,
    /// The side that has made them.
    pub side: Side,
    /// The session that published them and must not get them back.
    pub except: Option<Id>,
}

/// The data for a new ring.
pub struct Birth<'a> {
    /// The channel.
    pub channel: &'a str,
    /// The pattern of its rule. The channels of a rule have a share of all channels with a history.
    pub rule: &'a str,
    /// The limits for what it retains.
    pub terms: HistoryTerms,
    /// The limits for its owner.
    pub room: Room,
    /// The time.
    pub now: Now,
    /// Randomness for the epoch.
    pub entropy: &'a mut Entropy,
}

impl RingKey {
    /// The shard that it belongs to.
    pub fn owner(&self) -> usize {
        self.owner as usize
    }
}

impl Histories {
    /// Empty histories for this number of shards.
    pub fn new(shards: usize) -> Histories {
        Histories {
            owners: (0..shards).map(|_| Mutex::default()).collect(),
            serials: AtomicU64::new(FIRST_SERIAL),
            scarce: AtomicU64::new(0),
            is_mirrored: AtomicBool::new(false),
        }
    }

    /// True if a new channel may get no history because others have so many. Without it no lock is needed to know.
    pub fn are_scarce(&self) -> bool {
        self.scarce.load(Ordering::Relaxed) != 0
    }

    /// The shard that owns a channel's history. It is the same on every shard, so the hash is not seeded.
    pub fn owner(&self, channel: &str) -> usize {
        let hash = hash_of(channel);
        // The last characters of the name hardly reach the upper bits by themselves.
        let mixed = (hash ^ (hash >> 32)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed >> 32) % self.owners.len().max(1) as u64) as usize
    }

    /// Appends a burst of messages, JSON objects, to a channel's ring. None if there is no room for one more channel.
    pub fn append<'m>(
        &self,
        birth: Birth<'_>,
        side: Side,
        except: Option<Id>,
        messages: impl Iterator<Item = &'m str>,
    ) -> Option<Position> {
        let (now, room) = (birth.now, birth.room);
        let owner = self.owner(birth.channel);
        let mut owned = self.lock(owner)?;
        let (slot, _) = self.slot(&mut owned, birth)?;
        let stamp = Stamp { now, side, except };
        let position = owned.append(owner, slot, &stamp, messages);
        owned.make_room(room.bytes_max, now.ms);
        position
    }

    /// The ring of a channel. If it has none and there is room, makes an empty one and passes it to `look` before
    /// anybody can append to it.
    pub fn open<T>(&self, birth: Birth<'_>, look: impl FnOnce(&Ring) -> T) -> Option<(RingKey, Option<T>)> {
        let owner = self.owner(birth.channel);
        let mut owned = self.lock(owner)?;
        let (slot, is_new) = self.slot(&mut owned, birth)?;
        let ring = owned.rings.get(slot as usize)?;
        Some((RingKey { owner: owner as u32, slot, serial: ring.serial }, is_new.then(|| look(ring))))
    }

    /// The position of a channel's message with this offset.
    pub fn find(&self, channel: &str, offset: u64) -> Option<Position> {
        let owner = self.owner(channel);
        let owned = self.lock(owner)?;
        let slot = owned.names.get(channel)?;
        let ring = owned.rings.get(slot as usize)?;
        let key = RingKey { owner: owner as u32, slot, serial: ring.serial };
        Some(Position { ring: key, epoch: ring.epoch.clone(), first: offset, wall_ms: 0, burst: 0 })
    }

    /// True if a channel has a ring. Nothing is locked if there has never been one.
    pub fn has(&self, channel: &str) -> bool {
        let is_none_yet = self.serials.load(Ordering::Relaxed) == FIRST_SERIAL;
        !is_none_yet && self.lock(self.owner(channel)).is_some_and(|owned| owned.names.get(channel).is_some())
    }

    /// Passes a ring to `look`. None if the ring is gone.
    pub fn with<T>(&self, key: RingKey, look: impl FnOnce(&Ring) -> T) -> Option<T> {
        let owned = self.lock(key.owner as usize)?;
        owned.rings.get(key.slot as usize).filter(|ring| ring.serial == key.serial).map(look)
    }

    /// The first `max` channels, in the order of their names, that have a ring, whose name matches a pattern, and for which
    /// `is_wanted` is true. `after`: only those after this channel.
    pub fn matching(
        &self,
        pattern: ChannelName<'_>,
        after: Option<&str>,
        max: usize,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<Box<str>> {
        let mut found: Vec<Box<str>> = Vec::new();
        for owner in 0..self.owners.len() {
            let Some(owned) = self.lock(owner) else { continue };
            let names = owned.names.matching(pattern, after).map(|(name, _)| name).filter(|name| is_wanted(name));
            found.extend(names.take(max).map(Box::from));
        }
        found.sort_unstable_by(|one, other| order(one).cmp(&order(other)));
        found.truncate(max);
        found
    }

    /// Removes all messages of a channel's ring; its epoch and offsets go on. Returns the number of messages, and what
    /// `look` returns for the empty ring. None if the channel has no ring. Only the owner does it.
    pub fn clear<T>(&self, channel: &str, now_ms: u64, look: impl FnOnce(&Ring) -> T) -> Option<(usize, T)> {
        let mut owned = self.lock(self.owner(channel))?;
        let slot = owned.names.get(channel)?;
        let removed = owned.clear_below(slot, u64::MAX, now_ms);
        Some((removed, look(owned.rings.get(slot as usize)?)))
    }

    /// Removes expired messages. Each owner does it for its own rings.
    pub fn sweep(&self, owner: usize, room: Room, now_ms: u64) {
        let Some(mut owned) = self.lock(owner) else { return };
        owned.make_room(room.bytes_max, now_ms);
        for _ in 0..SWEPT_MAX {
            match owned.due.peek() {
                Some(Reverse((due_ms, ..))) if *due_ms <= now_ms => owned.drop_first_due(now_ms, DROPPED_MAX),
                _ => break,
            };
        }
        while let Some((since_ms, rule)) = owned.longest_empty()
            && since_ms + EMPTY_RETAINED_MS <= now_ms
        {
            owned.remove_emptiest(rule);
        }
        self.note_scarcity(owner, &owned, room);
    }

    /// The number of bursts that each owner has appended.
    pub fn bursts(&self) -> Box<[u64]> {
        (0..self.owners.len()).map(|owner| self.lock(owner).map_or(0, |owned| owned.bursts)).collect()
    }

    /// The amounts that an owner retains.
    pub fn holding(&self, owner: usize) -> Holding {
        self.lock(owner).map_or(Holding::default(), |owned| Holding {
            messages: owned.messages,
            bytes: owned.bytes,
            channels: owned.rings.len(),
            evicted: owned.evicted,
        })
    }

    fn lock(&self, owner: usize) -> Option<MutexGuard<'_, Owned>> {
        Some(self.owners.get(owner)?.lock())
    }

    /// The slot of a channel's ring, and true if the ring is new. Makes a ring if needed and if there is room; removes
    /// the longest empty ring to make room.
    fn slot(&self, owned: &mut Owned, birth: Birth<'_>) -> Option<(u32, bool)> {
        let lineage = owned.lineages.as_ref().map(|lineages| lineages.of(birth.channel));
        match lineage {
            // This node does not know the messages of the channel yet.
            Some(None) => None,
            known => self.slot_in(owned, birth, known.flatten()),
        }
    }

    /// The same with the lineage of the channel, in a cluster.
    fn slot_in(&self, owned: &mut Owned, birth: Birth<'_>, lineage: Option<Lineage>) -> Option<(u32, bool)> {
        if let Some(slot) = owned.names.get(birth.channel) {
            if let Some(ring) = owned.rings.get_mut(slot as usize) {
                ring.terms = birth.terms;
            }
            return Some((slot, false));
        }
        let share = owned.share(hash_of(birth.rule), birth.room)?;
        let (epoch, first) = match lineage {
            Some(lineage) => (lineage.epoch_of(birth.channel), lineage.first),
            None => (random_epoch(birth.entropy), first_offset(birth.now.wall_ms)),
        };
        let first = owned.floor_of(birth.channel, lineage).max(first).max(1);
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let mut ring = Ring::new(birth.channel, epoch.into(), serial, birth.terms, first, share);
        ring.empty_since_ms = birth.now.ms;
        let slot = owned.rings.insert(ring) as u32;
        owned.names.insert(birth.channel, slot);
        if !birth.terms.is_persistent {
            owned.is_empty(slot, birth.now.ms);
        }
        self.note_scarcity(self.owner(birth.channel), owned, birth.room);
        Some((slot, true))
    }

    /// Notes if few further channels may have a history. An owner refuses none before half of its room is taken.
    fn note_scarcity(&self, owner: usize, owned: &Owned, room: Room) {
        let bit = 1 << (owner % 64);
        if owned.rings.len() >= room.channels_max / 2 {
            self.scarce.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.scarce.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

impl Owned {
    /// Appends messages to a ring. The owner's limits are not looked at.
    fn append<'m>(
        &mut self,
        owner: usize,
        slot: u32,
        stamp: &Stamp,
        messages: impl Iterator<Item = &'m str>,
    ) -> Option<Position> {
        let Stamp { now, side, except } = *stamp;
        self.bursts += 1;
        let burst = self.bursts;
        let ring = self.rings.get_mut(slot as usize)?;
        let (first, serial) = (ring.next(), ring.serial);
        let key = RingKey { owner: owner as u32, slot, serial };
        let position = Position { ring: key, epoch: ring.epoch.clone(), first, wall_ms: now.wall_ms, burst };
        let (before, empty_since_ms) = ((ring.messages(), ring.bytes()), ring.empty_since_ms);
        for text in messages {
            let except = except.map(Box::new);
            ring.append(Entry { offset: 0, text: text.into(), at_ms: now.ms, wall_ms: now.wall_ms, side, except });
        }
        let (after, due_ms) = ((ring.messages(), ring.bytes()), ring.due_ms());
        self.messages = self.messages + after.0 - before.0;
        self.bytes = self.bytes + after.1 - before.1;
        if before.0 == 0
            && let Some(due_ms) = due_ms
        {
            self.is_in_use(slot, empty_since_ms);
            self.due.push(Reverse((due_ms, slot, serial)));
        }
        Some(position)
    }

    /// Evicts the oldest messages until the others fit.
    fn make_room(&mut self, bytes_max: usize, now_ms: u64) {
        while self.bytes > bytes_max && !self.due.is_empty() {
            self.evicted += self.drop_first_due(now_ms, 1);
        }
    }

    /// Removes the messages of a ring below an offset. Returns their number.
    fn clear_below(&mut self, slot: u32, offset: u64, now_ms: u64) -> usize {
        let Some(ring) = self.rings.get_mut(slot as usize).filter(|ring| ring.messages() > 0) else { return 0 };
        let (messages, bytes) = (ring.messages(), ring.bytes());
        ring.clear_below(offset, now_ms);
        self.messages -= messages - ring.messages();
        self.bytes -= bytes - ring.bytes();
        let (left, removed) = (ring.messages(), messages - ring.messages());
        if left == 0 {
            ring.empty_since_ms = now_ms;
            self.is_empty(slot, now_ms);
            // Its entry would add the ring to the empty ones again.
            self.due.retain(|Reverse((_, other, _))| *other != slot);
        }
        removed
    }

    /// Takes the first entry of `due`: drops the oldest messages of its ring, up to `max` of those that are as old as
    /// expected. Returns their number.
    fn drop_first_due(&mut self, now_ms: u64, max: usize) -> usize {
        let Some(Reverse((thought_ms, slot, serial))) = self.due.pop() else { return 0 };
        let Some(ring) = self.rings.get_mut(slot as usize).filter(|ring| ring.serial == serial) else { return 0 };
        let (messages, bytes) = (ring.messages(), ring.bytes());
        let until_ms = if max == 1 { thought_ms } else { now_ms };
        while messages - ring.messages() < max && ring.due_ms().is_some_and(|due_ms| due_ms <= until_ms) {
            ring.drop_oldest(now_ms);
        }
        let dropped = messages - ring.messages();
        self.messages -= dropped;
        self.bytes -= bytes - ring.bytes();
        match ring.due_ms() {
            Some(due_ms) => self.due.push(Reverse((due_ms, slot, serial))),
            None => {
                ring.empty_since_ms = now_ms;
                if !ring.terms.is_persistent {
                    self.is_empty(slot, now_ms);
                }
            }
        }
        dropped
    }

    /// A share for one more ring of a rule. The rule's own empty rings make room first, those of others only if nothing is
    /// left for anybody.
    fn share(&mut self, rule: u64, room: Room) -> Option<Share<u64>> {
        let budget = Budget::new(room.channels_max, usize::MAX);
        loop {
            let over = match self.shares.take(&budget, rule, Amount::of(1), Urgency::Common) {
                Ok(share) => return Some(share),
                Err(over) => over,
            };
            let longest = || self.longest_empty().map(|(_, other)| other).filter(|_| over == Over::All);
            let from = Some(rule).filter(|rule| self.empty.contains_key(rule)).or_else(longest)?;
            self.remove_emptiest(from);
        }
    }

    /// Notes that a ring has no messages, from this time on, in milliseconds.
    fn is_empty(&mut self, slot: u32, since_ms: u64) {
        if let Some(ring) = self.rings.get(slot as usize) {
            self.empty.entry(ring.rule()).or_default().insert((since_ms, slot));
        }
    }

    /// Notes that a ring that was empty since this time has messages.
    fn is_in_use(&mut self, slot: u32, since_ms: u64) {
        let Some(rule) = self.rings.get(slot as usize).map(Ring::rule) else { return };
        if let Some(empty) = self.empty.get_mut(&rule) {
            empty.remove(&(since_ms, slot));
            if empty.is_empty() {
                self.empty.remove(&rule);
            }
        }
    }

    /// The rule whose ring has been empty for the longest time, and since when, in milliseconds.
    fn longest_empty(&self) -> Option<(u64, u64)> {
        self.empty.iter().filter_map(|(rule, empty)| Some((empty.first()?.0, *rule))).min()
    }

    /// Removes the ring of a rule that has been empty for the longest time.
    fn remove_emptiest(&mut self, rule: u64) {
        let Some((_, slot)) = self.empty.get(&rule).and_then(|empty| empty.first().copied()) else { return };
        self.remove(slot);
    }

    /// Removes a ring with its messages.
    fn remove(&mut self, slot: u32) {
        let Some(ring) = self.rings.get(slot as usize) else { return };
        self.messages -= ring.messages();
        self.bytes -= ring.bytes();
        self.is_in_use(slot, ring.empty_since_ms);
        let ring = self.rings.remove(slot as usize);
        if !ring.is_unused() {
            self.are_gone(ring.newest_ms());
        }
        self.names.remove(&ring.name);
        self.raise_above(&ring);
        self.shares.give_back(ring.share);
    }
}

/// A hash that is the same in every process (FNV-1a). Anybody finds names with the same one.
pub(crate) fn hash_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A digest of a name, for tables that do not have the name itself: nobody finds another name with the same one (the first half of
/// SHA-256).
pub(crate) fn digest_of(name: &str) -> u128 {
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().take(16).fold(0, |half, byte| half << 8 | u128::from(*byte))
}

/// The serial of the first ring.
const FIRST_SERIAL: u64 = 1;
/// The time for which a ring without messages stays, in milliseconds: a day, which is how long clients of other
/// services with `replay` may stay away.
pub const EMPTY_RETAINED_MS: u64 = 24 * 60 * 60 * 1000;
/// The maximum number of rings handled in one sweep, and of messages dropped from one ring at a time. The rest waits
/// for the next sweep.
const SWEPT_MAX: usize = 256;
const DROPPED_MAX: usize = 1024;
/// The first offset of a ring is the time of day in milliseconds times this. A ring that lives for a second has room
/// for a million messages before a later ring could begin below its end. All offsets stay below 2^53, the largest
/// integer that JavaScript can represent exactly.
const NUMBERS_PER_MS: u64 = 1024;
/// The year 2109. Clocks beyond it are wrong.
const WALL_MAX_MS: u64 = 1 << 42;
