//! Rings in a cluster: other nodes have the same, so their epochs and offsets come from outside, and so do the messages.

use std::sync::atomic::Ordering;

use super::log_record::Part;
use super::{Birth, Histories, Lineage, Owned, PARTITIONS, Position, Ring, RingKey, Stamp, first_offset, partition_of};

/// The outcome for messages that have their offsets.
#[derive(Clone, Debug)]
pub enum Appended {
    /// They are in the ring, but for so many first ones that were there before. The position is that of the rest.
    At(Position, usize),
    /// All were there before.
    Known,
    /// There is no room for one more channel.
    NoRoom,
}

/// The lineages of the partitions of a node, as one owner of rings knows them.
#[derive(Debug)]
pub(super) struct Lineages {
    /// Those whose channels may have rings.
    begun: [Option<Lineage>; PARTITIONS],
    /// For each partition a lineage, and an offset above all that it has given in rings that are not here. Those of another lineage say
    /// nothing: the clock of its owner may have been ahead, and who follows a new ring from there on would miss its first messages.
    floors: [Option<(Lineage, u64)>; PARTITIONS],
}

impl Lineages {
    /// That of a channel, if its partition has begun.
    pub(super) fn of(&self, channel: &str) -> Option<Lineage> {
        self.begun[partition_of(channel)]
    }

    fn floor(&self, partition: usize, lineage: Lineage) -> u64 {
        self.floors[partition].filter(|(of, _)| *of == lineage).map_or(0, |(_, floor)| floor)
    }

    fn raise(&mut self, partition: usize, lineage: Lineage, floor: u64) {
        self.floors[partition] = Some((lineage, self.floor(partition, lineage).max(floor)));
    }
}

impl Owned {
    /// New rings of a channel begin at this offset or above it. `lineage`: that of the channel, in a cluster.
    pub(super) fn floor_of(&self, channel: &str, lineage: Option<Lineage>) -> u64 {
        match (&self.lineages, lineage) {
            (Some(lineages), Some(lineage)) => lineages.floor(partition_of(channel), lineage),
            _ => self.floor,
        }
    }

    fn raise_floor_of(&mut self, channel: &str, lineage: Lineage, floor: u64) {
        self.lineages.iter_mut().for_each(|lineages| lineages.raise(partition_of(channel), lineage, floor));
    }

    /// The slots of some rings.
    fn slots_of(&self, is_of: impl Fn(&Ring) -> bool) -> Vec<usize> {
        self.rings.iter().filter(|(_, ring)| is_of(ring)).map(|(slot, _)| slot).collect()
    }

    /// New rings begin above the offsets of this one, which is gone.
    pub(super) fn raise_above(&mut self, ring: &Ring) {
        let Some(lineages) = &mut self.lineages else { return self.floor = self.floor.max(ring.next()) };
        let (name, partition) = (ring.name(), partition_of(ring.name()));
        let known = [lineages.begun[partition], lineages.floors[partition].map(|(lineage, _)| lineage)];
        if let Some(lineage) = known.into_iter().flatten().find(|of| of.epoch_of(name) == **ring.epoch()) {
            lineages.raise(partition, lineage, ring.next());
        }
    }
}

/// The result of [`Histories::begin_restore`].
#[derive(Debug)]
pub enum BeginRestore {
    /// There is no room for one more channel.
    NoRoom,
    /// The ring takes the messages of the part. It lacks some between its own and those, if there is a gap.
    Begun(Option<Gap>),
}

/// Messages of a channel that this node of a cluster has missed, and that the owner of the channel does not retain any more.
#[derive(Debug)]
pub struct Gap {
    /// The channel.
    pub channel: Box<str>,
    /// The position of the first message after them.
    pub position: Position,
    /// The offset of the first of them.
    pub from: u64,
}

impl Histories {
    /// The server is a node of a cluster. Channels have no rings until their partition has [begun](Histories::begin_partition). It is
    /// called before the first shard is created.
    pub fn begin_in_cluster(&self) {
        self.is_mirrored.store(true, Ordering::Relaxed);
        for owned in &self.owners {
            owned.lock().lineages = Some(Box::new(Lineages { begun: [None; PARTITIONS], floors: [None; PARTITIONS] }));
        }
    }

    /// True if other nodes have the same rings. Messages of any channel may then be on their way to any shard.
    pub fn is_mirrored(&self) -> bool {
        self.is_mirrored.load(Ordering::Relaxed)
    }

    /// From now on the channels of a partition have rings of this lineage. Those of another one are removed.
    pub fn begin_partition(&self, partition: usize, lineage: Lineage) {
        for owned in &self.owners {
            let mut owned = owned.lock();
            let is_other = |name: &str, epoch: &str| partition_of(name) == partition && lineage.epoch_of(name) != epoch;
            let others = owned.slots_of(|ring| is_other(ring.name(), ring.epoch()));
            others.into_iter().for_each(|slot| owned.remove(slot as u32));
            if let Some(lineages) = &mut owned.lineages {
                lineages.begun[partition] = Some(lineage);
            }
        }
    }

    /// Removes all rings of a partition. New ones begin above them.
    pub fn clear_partition(&self, partition: usize) {
        for owned in &self.owners {
            let mut owned = owned.lock();
            let slots = owned.slots_of(|ring| partition_of(ring.name()) == partition);
            slots.into_iter().for_each(|slot| owned.remove(slot as u32));
        }
    }

    /// The lineage of a channel, if its partition has begun.
    pub fn lineage_of(&self, channel: &str) -> Option<Lineage> {
        self.owners.get(self.owner(channel))?.lock().lineages.as_ref()?.of(channel)
    }

    /// The offset of the next message of a channel: that of its ring, or of a new one at this time of day.
    pub fn next_of(&self, channel: &str, wall_ms: u64) -> u64 {
        let Some(owned) = self.lock(self.owner(channel)) else { return 1 };
        let ring = owned.names.get(channel).and_then(|slot| owned.rings.get(slot as usize));
        let lineage = owned.lineages.as_ref().and_then(|lineages| lineages.of(channel));
        let floor = owned.floor_of(channel, lineage);
        let first = lineage.map_or(1, |lineage| lineage.first).max(floor).max(first_offset(wall_ms));
        match ring {
            // Another node may have a ring with a higher offset and no message yet.
            Some(ring) if ring.is_unused() => ring.next().max(first),
            Some(ring) => ring.next(),
            None => first,
        }
    }

    /// Appends messages at this offset. Those that the ring has already are left out.
    pub fn append_at<'m>(
        &self,
        birth: Birth<'_>,
        lineage: Lineage,
        first: u64,
        stamp: &Stamp,
        messages: impl ExactSizeIterator<Item = &'m str>,
    ) -> Appended {
        let (now, room, end) = (birth.now, birth.room, first + messages.len() as u64);
        let (owner, channel) = (self.owner(birth.channel), birth.channel);
        let Some(mut owned) = self.lock(owner) else { return Appended::NoRoom };
        // A node that reads a journal without its beginning knows nothing of this ring.
        owned.raise_floor_of(channel, lineage, end);
        let Some((slot, is_new)) = self.slot_in(&mut owned, birth, Some(lineage)) else {
            owned.are_gone(now.ms);
            return Appended::NoRoom;
        };
        let Some(ring) = owned.rings.get_mut(slot as usize) else { return Appended::NoRoom };
        if is_new || (ring.is_unused() && ring.next() > first) {
            ring.begin_at(first);
        }
        ring.leap_to(first);
        let skipped = (ring.next() - first) as usize;
        if skipped >= messages.len() {
            return Appended::Known;
        }
        let position = owned.append(owner, slot, stamp, messages.skip(skipped));
        owned.make_room(room.bytes_max, now.ms);
        position.map_or(Appended::NoRoom, |position| Appended::At(position, skipped))
    }

    /// The offsets of a lineage up to this one are used, though the channel has no ring here.
    pub fn note_unknown(&self, channel: &str, lineage: Lineage, end: u64) {
        if let Some(mut owned) = self.lock(self.owner(channel)) {
            owned.raise_floor_of(channel, lineage, end);
        }
    }

    /// Makes new rings of a partition begin at this offset or above it, in this lineage.
    pub fn raise_floor_in(&self, partition: usize, lineage: Lineage, floor: u64) {
        for owned in &self.owners {
            let mut owned = owned.lock();
            owned.lineages.iter_mut().for_each(|lineages| lineages.raise(partition, lineage, floor));
        }
    }

    /// Makes the next message of each ring of a partition, and new rings, have this offset or a higher one, in this lineage.
    pub fn leap_in(&self, partition: usize, lineage: Lineage, next: u64) {
        self.raise_floor_in(partition, lineage, next);
        for owned in &self.owners {
            let mut owned = owned.lock();
            let is_of =
                |ring: &Ring| partition_of(ring.name()) == partition && lineage.epoch_of(ring.name()) == **ring.epoch();
            for slot in owned.slots_of(is_of) {
                owned.rings.get_mut(slot).into_iter().for_each(|ring| ring.leap_to(next));
            }
        }
    }

    /// An offset above all offsets of removed rings of a partition, in its lineage.
    pub fn floor_in(&self, partition: usize) -> u64 {
        let floor = |owner: usize| {
            let owned = self.lock(owner)?;
            let lineages = owned.lineages.as_ref()?;
            lineages.begun[partition].map(|lineage| lineages.floor(partition, lineage))
        };
        (0..self.owners.len()).filter_map(floor).max().unwrap_or(0)
    }

    /// Removes messages of a channel below an offset. Returns their number; None if the channel has no ring.
    pub fn clear_below(&self, channel: &str, offset: u64, now_ms: u64) -> Option<usize> {
        let mut owned = self.lock(self.owner(channel))?;
        let slot = owned.names.get(channel)?;
        let removed = owned.clear_below(slot, offset, now_ms);
        if removed > 0 {
            owned.are_gone(now_ms);
        }
        Some(removed)
    }

    /// Lets the ring of a channel begin where a part of another node's ring does: what that one has not any more goes, and what this one
    /// has missed is not there.
    pub fn begin_restore(&self, birth: Birth<'_>, lineage: Lineage, part: &Part<'_>) -> BeginRestore {
        let (now_ms, owner) = (birth.now.ms, self.owner(birth.channel));
        let Some(mut owned) = self.lock(owner) else { return BeginRestore::NoRoom };
        let epoch = lineage.epoch_of(birth.channel);
        // A ring of it may go before the partition has begun.
        owned.raise_floor_of(birth.channel, lineage, 0);
        if let Some(slot) = owned.names.get(birth.channel)
            && owned.rings.get(slot as usize).is_some_and(|ring| **ring.epoch() != *epoch)
        {
            owned.remove(slot);
        }
        let Some((slot, is_new)) = self.slot_in(&mut owned, birth, Some(lineage)) else {
            owned.raise_floor_of(part.channel, lineage, part.next);
            return BeginRestore::NoRoom;
        };
        owned.clear_below(slot, part.from, now_ms);
        let Owned { rings, bursts, .. } = &mut *owned;
        let Some(ring) = rings.get_mut(slot as usize).filter(|ring| is_new || ring.next() < part.from) else {
            return BeginRestore::Begun(None);
        };
        let from = ring.next();
        ring.begin_at(part.from);
        if is_new {
            return BeginRestore::Begun(None);
        }
        // A subscription that begins from now on has missed nothing.
        *bursts += 1;
        let ring_key = RingKey { owner: owner as u32, slot, serial: ring.serial };
        let position =
            Position { ring: ring_key, epoch: ring.epoch.clone(), first: part.from, wall_ms: 0, burst: *bursts };
        BeginRestore::Begun(Some(Gap { channel: part.channel.into(), position, from }))
    }

    /// The next offset of a channel's ring is this one or a higher one.
    pub fn end_restore(&self, channel: &str, next: u64) {
        if let Some(mut owned) = self.lock(self.owner(channel))
            && let Some(slot) = owned.names.get(channel)
            && let Some(ring) = owned.rings.get_mut(slot as usize)
        {
            ring.leap_to(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Now;
    use crate::history::{Position, Ring, Room};
    use crate::{HistoryTerms, Side, kernel_entropy};

    const LINEAGE: Lineage = Lineage { seed: 7, first: 100 };
    const TERMS: HistoryTerms =
        HistoryTerms { messages_max: 9, age_max_ms: 1_000, bytes_max: 9_000, is_persistent: false, compresses: false };
    const NOW: Now = Now { ms: 0, wall_ms: 0 };

    fn histories() -> Histories {
        let histories = Histories::new(2);
        histories.begin_in_cluster();
        (0..PARTITIONS).for_each(|partition| histories.begin_partition(partition, LINEAGE));
        histories
    }

    fn with_birth<T>(channel: &str, channels_max: usize, with: impl FnOnce(Birth<'_>) -> T) -> T {
        let (room, mut entropy) = (Room { bytes_max: usize::MAX, channels_max }, kernel_entropy());
        with(Birth { channel, rule: "/**", terms: TERMS, room, now: NOW, entropy: &mut entropy })
    }

    fn append(histories: &Histories, channel: &str, first: u64, texts: &[&str]) -> Appended {
        let stamp = Stamp { now: NOW, side: Side::Client, except: None };
        let texts = texts.iter().copied();
        with_birth(channel, 10, |birth| histories.append_at(birth, LINEAGE, first, &stamp, texts))
    }

    fn first_of(appended: Appended) -> Option<(u64, usize)> {
        match appended {
            Appended::At(Position { first, .. }, skipped) => Some((first, skipped)),
            Appended::Known | Appended::NoRoom => None,
        }
    }

    fn ring(histories: &Histories, channel: &str) -> (u64, Vec<(u64, String)>, u64) {
        let ring = histories.find(channel, 0).expect("a ring").ring;
        let entries = |ring: &Ring| {
            let entries = ring.from(0).map(|entry| (entry.offset, entry.text.to_string())).collect();
            (ring.oldest(), entries, ring.next())
        };
        histories.with(ring, entries).expect("it is there")
    }

    fn message(offset: u64, text: &str) -> (u64, String) {
        (offset, text.to_string())
    }

    #[test]
    fn a_partition_that_leaps_goes_on_at_higher_offsets_in_its_rings_and_in_new_ones() {
        let histories = histories();
        append(&histories, "/a", 100, &["x"]);
        let partition = partition_of("/a");
        let name = |is_there: bool| {
            let names = (0..).map(|number| format!("/new/{number}"));
            names.into_iter().find(|name| (partition_of(name) == partition) == is_there).expect("a name")
        };
        histories.leap_in(partition, LINEAGE, 500);
        assert_eq!([histories.next_of("/a", 0), histories.next_of(&name(true), 0)], [500, 500]);
        assert_eq!(histories.next_of(&name(false), 0), LINEAGE.first);
        let (oldest, messages, next) = ring(&histories, "/a");
        assert_eq!((oldest, messages.len(), next), (100, 1, 500));
    }

    #[test]
    fn messages_have_the_offsets_of_the_owner_and_come_once() {
        let histories = histories();
        assert_eq!(first_of(append(&histories, "/a", 150, &["1", "2"])), Some((150, 0)));
        assert_eq!(first_of(append(&histories, "/a", 151, &["2", "3"])), Some((152, 1)));
        assert!(matches!(append(&histories, "/a", 150, &["1", "2", "3"]), Appended::Known));
        assert_eq!(first_of(append(&histories, "/a", 160, &["4"])), Some((160, 0)));
        let messages = vec![message(150, "1"), message(151, "2"), message(152, "3"), message(160, "4")];
        assert_eq!(ring(&histories, "/a"), (150, messages, 161));
        assert_eq!((histories.next_of("/a", 0), histories.next_of("/b", 0)), (161, 100));
    }

    #[test]
    fn a_ring_without_messages_has_the_epoch_of_all_nodes_and_takes_any_offset() {
        let (one, other) = (histories(), histories());
        let open = |histories: &Histories| {
            with_birth("/a", 10, |birth| histories.open(birth, |ring| ring.epoch().clone()))
                .and_then(|(_, epoch)| epoch)
        };
        assert_eq!(open(&one), open(&other));
        other.raise_floor_in(partition_of("/c"), LINEAGE, 500);
        assert_eq!(first_of(append(&one, "/a", 300, &["1"])), Some((300, 0)));
        assert_eq!(ring(&one, "/a").0, 100, "nothing was there before");
        with_birth("/c", 10, |birth| other.open(birth, |_| ()));
        assert_eq!(first_of(append(&other, "/c", 300, &["1"])), Some((300, 0)));
        assert_eq!(ring(&other, "/c").0, 300);
    }

    #[test]
    fn a_partition_that_has_not_begun_has_no_rings_and_another_lineage_removes_them() {
        let histories = Histories::new(2);
        histories.begin_in_cluster();
        assert!(with_birth("/a", 10, |birth| histories.open(birth, |_| ())).is_none());
        let partition = partition_of("/a");
        histories.begin_partition(partition, LINEAGE);
        assert_eq!(histories.lineage_of("/a"), Some(LINEAGE));
        append(&histories, "/a", 100, &["1", "2"]);
        let before = histories.find("/a", 0).expect("a ring").epoch;
        histories.begin_partition(partition, LINEAGE);
        assert!(histories.has("/a"));
        histories.begin_partition(partition, Lineage { seed: 8, ..LINEAGE });
        assert!(!histories.has("/a"));
        assert_eq!((0..2).map(|owner| histories.holding(owner).bytes).sum::<usize>(), 0);
        let after = with_birth("/a", 10, |birth| histories.open(birth, |ring| ring.epoch().clone()));
        assert_ne!(after.and_then(|(_, epoch)| epoch), Some(before));
    }

    // The clock of the owner before was ahead.
    #[test]
    fn a_ring_of_another_lineage_begins_with_it_though_offsets_before_were_higher() {
        let (histories, partition) = (histories(), partition_of("/a"));
        append(&histories, "/a", 700, &["1"]);
        let other = Lineage { seed: 8, first: 50 };
        histories.begin_partition(partition, other);
        let open = || with_birth("/a", 10, |birth| histories.open(birth, |_| ()));
        open();
        assert_eq!((ring(&histories, "/a").2, histories.next_of("/a", 0), histories.floor_in(partition)), (50, 50, 0));
        histories.raise_floor_in(partition, other, 60);
        histories.begin_partition(partition, Lineage { seed: 9, first: 40 });
        histories.begin_partition(partition, other);
        open();
        assert_eq!((ring(&histories, "/a").2, histories.floor_in(partition)), (60, 60), "its own offsets hold");
    }

    #[test]
    fn offsets_without_a_ring_are_not_used_again() {
        let histories = histories();
        let stamp = Stamp { now: NOW, side: Side::Client, except: None };
        let appended = with_birth("/a", 0, |birth| histories.append_at(birth, LINEAGE, 700, &stamp, ["1"].into_iter()));
        assert!(matches!(appended, Appended::NoRoom));
        assert_eq!(histories.next_of("/a", 0), 701);
    }

    /// Begins to restore a part, which leaves this gap.
    fn begins(histories: &Histories, part: &Part<'_>, gap: Option<(u64, u64)>) {
        match with_birth("/a", 10, |birth| histories.begin_restore(birth, LINEAGE, part)) {
            BeginRestore::Begun(found) => assert_eq!(found.map(|gap| (gap.from, gap.position.first)), gap),
            BeginRestore::NoRoom => panic!("there is room"),
        }
    }

    #[test]
    fn rings_that_are_cleared_begin_above_their_offsets_or_at_those_of_messages() {
        let histories = histories();
        append(&histories, "/a", 150, &["1", "2"]);
        histories.clear_partition(partition_of("/a"));
        assert!(!histories.has("/a"));
        assert_eq!(histories.next_of("/a", 0), 152);
        append(&histories, "/a", 160, &["3"]);
        assert_eq!(ring(&histories, "/a"), (160, vec![message(160, "3")], 161));
    }

    #[test]
    fn a_part_of_another_node_replaces_what_is_older() {
        let histories = histories();
        append(&histories, "/a", 100, &["1", "2", "3"]);
        let part = |from, next| Part { channel: "/a", epoch: "", from, next, messages: Vec::new() };
        begins(&histories, &part(101, 103), None);
        assert_eq!(ring(&histories, "/a").1, [message(101, "2"), message(102, "3")]);
        begins(&histories, &part(200, 203), Some((103, 200)));
        assert_eq!(ring(&histories, "/a"), (200, vec![], 200));
        append(&histories, "/a", 201, &["4"]);
        histories.end_restore("/a", 203);
        assert_eq!(ring(&histories, "/a"), (200, vec![message(201, "4")], 203));
        assert_eq!(histories.clear_below("/a", 202, 0), Some(1));
    }
}
