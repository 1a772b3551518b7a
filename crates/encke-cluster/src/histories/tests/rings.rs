//! The rings of a node of the model. All nodes share what they know of each offset, so that no offset ever stands for two messages.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use encke_core::PublishToken;
use encke_core::history::{Lineage, partition_of};

use crate::histories::{Content, Copied, Cursor, Entry, Rings};

/// All that nodes have ever applied.
#[derive(Default)]
pub(super) struct Truth {
    /// The message at each offset: by the seed of its epoch, the channel and the offset.
    messages: BTreeMap<(u64, String, u64), String>,
    /// The offset of each message in each epoch.
    offsets: BTreeMap<(u64, String), u64>,
    /// The latest entry of each epoch from each publisher: its offset and its number.
    latest: BTreeMap<(u64, String, String), BTreeMap<u64, u64>>,
}

impl Truth {
    fn note(&mut self, seed: u64, channel: &str, offset: u64, text: &str) {
        let key = (seed, channel.to_string(), offset);
        let before = self.messages.entry(key).or_insert_with(|| text.into());
        assert_eq!(*before, text, "offset {offset} of {channel} in {seed:x} stands for two messages");
        let first = *self.offsets.entry((seed, text.to_string())).or_insert(offset);
        assert_eq!(first, offset, "{text} is doubled");
        let (publisher, number) = text.split_once(' ').expect("a publisher and a number");
        let of_publisher = self.latest.entry((seed, channel.into(), publisher.into())).or_default();
        of_publisher.insert(offset, number.parse().expect("a number"));
    }

    /// The number of seeds.
    pub(super) fn seeds(&self) -> usize {
        self.messages.keys().map(|(seed, ..)| seed).collect::<BTreeSet<_>>().len()
    }

    /// Checks that the messages of each publisher are in order.
    pub(super) fn check(&self) {
        for ((_, channel, publisher), numbers) in &self.latest {
            let numbers: Vec<u64> = numbers.values().copied().collect();
            assert!(numbers.is_sorted(), "{publisher} is out of order on {channel}: {numbers:?}");
        }
    }
}

/// The ring of a channel.
#[derive(Clone, Default)]
struct Ring {
    seed: u64,
    next: u64,
    messages: BTreeMap<u64, String>,
    /// The time at which each came, in milliseconds; 0 if it came with others.
    came_ms: BTreeMap<u64, u64>,
}

pub(super) struct ModelRings {
    truth: Rc<RefCell<Truth>>,
    lineages: BTreeMap<usize, Lineage>,
    rings: BTreeMap<String, Ring>,
    floor: u64,
    /// The seed and the offset that was delivered last on each channel.
    delivered: BTreeMap<String, (u64, u64)>,
    pub(super) now_ms: u64,
    /// The messages that have been delivered, in order, and those that were there before this node.
    pub(super) came: Vec<(u64, String)>,
    pub(super) old: BTreeSet<(u64, String)>,
    /// The messages that have been delivered, with their seeds.
    pub(super) live: BTreeSet<(u64, String)>,
    /// The seeds and channels in which publications of this node are stored, by token.
    pub(super) stored: BTreeMap<u64, (u64, String)>,
}

impl ModelRings {
    pub(super) fn new(truth: Rc<RefCell<Truth>>) -> ModelRings {
        ModelRings {
            truth,
            lineages: BTreeMap::new(),
            rings: BTreeMap::new(),
            floor: 0,
            delivered: BTreeMap::new(),
            now_ms: 0,
            came: Vec::new(),
            old: BTreeSet::new(),
            live: BTreeSet::new(),
            stored: BTreeMap::new(),
        }
    }

    /// The seed of a partition, if its channels have rings here.
    pub(super) fn seed_of(&self, channel: &str) -> Option<u64> {
        self.lineages.get(&partition_of(channel)).map(|lineage| lineage.seed)
    }

    /// All messages of a channel in order.
    pub(super) fn texts(&self, channel: &str) -> Vec<String> {
        self.rings.get(channel).map(|ring| ring.messages.values().cloned().collect()).unwrap_or_default()
    }

    /// The offset of the last message of a channel.
    pub(super) fn last_offset(&self, channel: &str) -> Option<u64> {
        self.rings.get(channel)?.messages.last_key_value().map(|(offset, _)| *offset)
    }

    /// The messages of a channel that came before this time, in milliseconds.
    pub(super) fn texts_before(&self, channel: &str, ms: u64) -> Vec<String> {
        let Some(ring) = self.rings.get(channel) else { return Vec::new() };
        let came_before = ring.messages.iter().filter(|(offset, _)| ring.came_ms[*offset] < ms);
        came_before.map(|(_, text)| text.clone()).collect()
    }

    /// `came_ms`: the time at which it has come, in milliseconds.
    fn apply(&mut self, (seed, came_ms): (u64, u64), channel: &str, offset: u64, text: &str, is_live: bool) {
        let ring = self.rings.entry(channel.into()).or_default();
        if ring.seed != seed {
            *ring = Ring { seed, ..Ring::default() };
        }
        self.truth.borrow_mut().note(seed, channel, offset, text);
        if offset < ring.next {
            return;
        }
        ring.next = offset + 1;
        ring.messages.insert(offset, text.into());
        ring.came_ms.insert(offset, came_ms);
        if !is_live {
            self.old.insert((seed, text.into()));
        }
        if is_live {
            self.came.push((seed, text.into()));
            self.live.insert((seed, text.into()));
            let before = self.delivered.insert(channel.into(), (seed, offset));
            assert!(before.is_none_or(|(of, last)| of != seed || last < offset), "{text} is delivered twice");
        }
    }

    /// Applies an entry that came at this time, in milliseconds.
    fn enter(&mut self, entry: &Entry, (came_ms, is_live): (u64, bool), token: Option<PublishToken>) {
        let channel = entry.submission.channel.to_string();
        let seed = self.seed_of(&channel).expect("it has begun");
        let Content::Publications { frames, .. } = &entry.submission.content else {
            if let Some(ring) = self.rings.get_mut(&channel) {
                ring.messages.retain(|offset, _| *offset >= entry.first);
            }
            return;
        };
        let mut rest = &frames[..];
        let mut offset = entry.first;
        while let Some((head, payload)) = websocket::frame::split(rest) {
            let text = str::from_utf8(&rest[head + 1..head + payload - 1]).expect("a text");
            self.apply((seed, came_ms), &channel, offset, text.trim().trim_matches('"'), is_live);
            rest = &rest[head + payload..];
            offset += 1;
        }
        assert_eq!(offset, entry.first + entry.submission.messages());
        token.into_iter().for_each(|token| _ = self.stored.insert(token.number, (seed, channel.clone())));
    }
}

impl Rings for ModelRings {
    fn begin(&mut self, partition: usize, lineage: Lineage) {
        self.lineages.insert(partition, lineage);
        self.rings.retain(|channel, ring| partition_of(channel) != partition || ring.seed == lineage.seed);
    }

    fn clear(&mut self, partition: usize) {
        self.floor = self.floor(partition);
        self.rings.retain(|channel, _| partition_of(channel) != partition);
    }

    fn next_of(&mut self, channel: &str) -> u64 {
        let first = self.lineages.get(&partition_of(channel)).expect("the owner has begun").first.max(self.floor);
        self.rings.get(channel).map_or(first, |ring| ring.next)
    }

    fn commit(&mut self, entry: &Entry, token: Option<PublishToken>) {
        self.enter(entry, (self.now_ms, true), token);
    }

    fn replay(&mut self, entry: &Entry, _: u64, is_live: bool) {
        self.enter(entry, (0, is_live), None);
    }

    fn floor(&self, partition: usize) -> u64 {
        let of_partition = self.rings.iter().filter(|(channel, _)| partition_of(channel) == partition);
        of_partition.map(|(_, ring)| ring.next).max().unwrap_or_default().max(self.floor)
    }

    fn copy(&mut self, partition: usize, from: Option<Cursor>, _: usize) -> Copied {
        // One ring in each part.
        let skipped = from.map_or(0, |from| from.slot as usize);
        let mut rings = self.rings.iter().filter(|(channel, _)| partition_of(channel) == partition).skip(skipped);
        let Some((channel, ring)) = rings.next() else { return Copied { floor: self.floor, ..Copied::default() } };
        let messages = ring.messages.iter().map(|(offset, text)| format!("{offset}\t{text}"));
        let lines: Vec<String> = std::iter::once(format!("{channel}\t{}", ring.next)).chain(messages).collect();
        let next = Cursor { owner: 0, slot: skipped as u64 + 1, offset: 0 };
        Copied { records: vec![lines.join("\n").into()], next: rings.next().map(|_| next), floor: self.floor }
    }

    fn restore(&mut self, lineage: Lineage, record: &Bytes, is_live: bool) {
        let record = str::from_utf8(record).expect("a text");
        let mut lines = record.lines();
        let head = lines.next().and_then(|head| head.split_once('\t'));
        let (channel, next) = head.expect("a channel and the next offset");
        for line in lines {
            let (offset, text) = line.split_once('\t').expect("an offset");
            // The clocks of nodes say nothing of it.
            self.apply((lineage.seed, 0), channel, offset.parse().expect("a number"), text, is_live);
        }
        let ring = self.rings.get_mut(channel).filter(|ring| ring.seed == lineage.seed);
        ring.into_iter().for_each(|ring| ring.next = ring.next.max(next.parse().expect("a number")));
    }

    fn raise_floor(&mut self, _: usize, _: Lineage, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    fn leap(&mut self, partition: usize, _: Lineage, next: u64) {
        self.floor = self.floor.max(next);
        let of_partition = self.rings.iter_mut().filter(|(channel, _)| partition_of(channel) == partition);
        of_partition.for_each(|(_, ring)| ring.next = ring.next.max(next));
    }

    fn has_room(&self, _: usize) -> bool {
        true
    }
}
