//! The rings of a node of a cluster, as its partitions see them: the histories of the server, and the way to the shards with
//! subscribers.

use std::sync::Arc;

use bayeux::ChannelName;
use bytes::Bytes;
use encke_core::history::log_record::{self, LoggedMessage, Record};
use encke_core::history::{
    Appended, BeginRestore, Birth, Histories, Lineage, Missed, MissedRange, Position, Ring, Room, Stamp, partition_of,
};
use encke_core::{
    EncodedPublications, Entropy, HistoryTerms, Now, PublishToken, Report, Rules, Settings, ShardMessage, Shared,
};
use websocket::{Opcode, frame};

use crate::histories::{Content, Copied, Cursor, Entry as ClusterEntry, Rings};

/// The shards of a node, as the machines of its cluster reach them.
pub trait Shards {
    /// Their common state.
    fn shared(&self) -> &Arc<Shared>;

    /// Sends a message to a shard. [`Shared::shards`] stands for the subscribers in the process, and [`PublishToken::HANDLES`] for handles.
    /// A shard that has ended takes nothing.
    fn send(&self, shard: usize, message: ShardMessage);
}

/// The rings of a node, while its partitions change them.
pub(crate) struct NodeRings<'a> {
    pub(crate) shards: &'a dyn Shards,
    pub(crate) terms: &'a mut Terms,
    pub(crate) now: Now,
}

/// The rules for channels in force.
pub(crate) struct Terms {
    settings: Arc<Settings>,
    rules: Rules,
    scratch: String,
}

/// Messages of one channel, as shards exchange them.
struct Burst<'a> {
    channel: &'a str,
    frames: &'a [u8],
    messages: u32,
    stamp: Stamp,
}

impl Terms {
    pub(crate) fn new(settings: Arc<Settings>) -> Terms {
        Terms { rules: Rules::new(&settings.channels), settings, scratch: String::new() }
    }

    /// True if some channels have a history.
    pub(crate) fn have_histories(&self) -> bool {
        self.settings.channels.iter().any(|rule| rule.history().is_some())
    }

    /// The index of the rule of a channel, and the terms of its history. None if it has none.
    fn of(&mut self, channel: &str) -> Option<(usize, HistoryTerms)> {
        let Terms { settings, rules, scratch } = self;
        let rule = rules.first(&settings.channels, ChannelName::known(channel), scratch)?;
        Some((rule, settings.channels[rule].history()?))
    }
}

impl NodeRings<'_> {
    fn histories(&self) -> Arc<Histories> {
        self.shards.shared().histories.clone()
    }

    /// Calls `with` with the data for a ring of a channel. None if the channel has no history on this node.
    fn with_birth<T>(&mut self, channel: &str, with: impl FnOnce(Birth<'_>) -> T) -> Option<T> {
        let (rule, terms) = self.terms.of(channel)?;
        let settings = &self.terms.settings;
        let room = Room::of(settings, self.shards.shared().shards);
        // Epochs follow from the lineage.
        let mut entropy: Entropy = Box::new(|_| {});
        let rule = &settings.channels[rule].pattern;
        Some(with(Birth { channel, rule, terms, room, now: self.now, entropy: &mut entropy }))
    }

    /// Appends messages with their offsets. They are passed to subscribers, if they are new and `is_live`. Returns their epoch.
    fn append(&mut self, lineage: Lineage, first: u64, burst: &Burst<'_>, is_live: bool) -> Option<Arc<str>> {
        let (texts, ends) = texts_of(burst.frames);
        let histories = self.histories();
        let appended = self.with_birth(burst.channel, |birth| {
            histories.append_at(birth, lineage, first, &burst.stamp, texts.iter().copied())
        });
        let (position, skipped) = match appended {
            Some(Appended::Known) => return None,
            Some(Appended::At(position, skipped)) => (Some(position), skipped),
            Some(Appended::NoRoom) => (None, 0),
            None => {
                histories.note_unknown(burst.channel, lineage, first + texts.len() as u64);
                (None, 0)
            }
        };
        let epoch = position.as_ref().map(|position| position.epoch.clone());
        if is_live {
            let from = skipped.checked_sub(1).and_then(|last| ends.get(last)).copied().unwrap_or_default();
            let (frames, messages) = (&burst.frames[from..], burst.messages - skipped as u32);
            self.deliver(&Burst { frames, messages, ..*burst }, position);
        }
        epoch
    }

    fn deliver(&mut self, burst: &Burst<'_>, position: Option<Position>) {
        let Stamp { side, except, .. } = burst.stamp;
        let account = &self.shards.shared().mailbox;
        let publications = EncodedPublications {
            charge: EncodedPublications::charge_of_nodes(account, burst.channel, burst.frames),
            channel: burst.channel.into(),
            frames: burst.frames.into(),
            messages: burst.messages,
            side,
            is_lazy: false,
            except,
            position,
            token: None,
            publisher: None,
        };
        send_to_wanting(self.shards, publications, &mut self.terms.scratch);
    }

    /// The messages that a session has missed on these channels and patterns, and the steps that it has cost to find them. Nothing comes to a
    /// ring meanwhile.
    pub(crate) fn missed(&mut self, names: &[Box<str>], missed: &Missed<'_>) -> (Option<Vec<MissedRange>>, usize) {
        let names = names.iter().map(|name| ChannelName::known(name));
        let terms = &mut self.terms;
        let recorded = names.filter(|name| name.is_pattern() || terms.of(name.as_str()).is_some());
        self.shards.shared().histories.missed(recorded, missed)
    }

    /// Applies an entry that came at this time, in milliseconds.
    fn apply(&mut self, entry: &ClusterEntry, ms: u64, is_live: bool, token: Option<PublishToken>) {
        let channel = &*entry.submission.channel;
        match &entry.submission.content {
            Content::Clear => self.clear_channel(channel, entry.first, token),
            Content::Publications { side, except, messages, frames } => {
                let Some(lineage) = self.histories().lineage_of(channel) else { return };
                let stamp = Stamp { now: Now { ms, wall_ms: entry.wall_ms }, side: *side, except: *except };
                let burst = Burst { channel, frames, messages: *messages, stamp };
                let epoch = self.append(lineage, entry.first, &burst, is_live);
                if let (Some(token), Some(epoch)) = (token, epoch) {
                    let report = ShardMessage::Report(Report::Recorded(token.number, epoch, entry.first));
                    self.shards.send(token.shard.into(), report);
                }
            }
        }
    }

    fn clear_channel(&mut self, channel: &str, offset: u64, token: Option<PublishToken>) {
        let removed = self.histories().clear_below(channel, offset, self.now.ms);
        if let Some(token) = token {
            self.shards.send(token.shard.into(), ShardMessage::Report(Report::Cleared(token.number, removed)));
        }
    }
}

impl Rings for NodeRings<'_> {
    fn begin(&mut self, partition: usize, lineage: Lineage) {
        self.histories().begin_partition(partition, lineage);
    }

    fn clear(&mut self, partition: usize) {
        self.histories().clear_partition(partition);
    }

    fn next_of(&mut self, channel: &str) -> u64 {
        self.histories().next_of(channel, self.now.wall_ms)
    }

    fn commit(&mut self, entry: &ClusterEntry, token: Option<PublishToken>) {
        self.apply(entry, self.now.ms, true, token);
    }

    fn replay(&mut self, entry: &ClusterEntry, came_ms: u64, is_live: bool) {
        self.apply(entry, came_ms, is_live, None);
    }

    fn floor(&self, partition: usize) -> u64 {
        self.histories().floor_in(partition)
    }

    fn copy(&mut self, partition: usize, from: Option<Cursor>, bytes_max: usize) -> Copied {
        let histories = self.histories();
        let mut copied = Copied { floor: histories.floor_in(partition), ..Copied::default() };
        let mut bytes = 0;
        let mut at = from.unwrap_or_default();
        while (at.owner as usize) < histories.owners() {
            let copy = histories.visit_from(at.owner as usize, at.slot as usize, |slot, ring| {
                let offset = if slot as u64 == at.slot { at.offset } else { 0 };
                let is_of_partition = partition_of(ring.name()) == partition;
                let room = bytes_max.saturating_sub(bytes);
                let copy = || copy_of(ring, offset, self.now.ms, room);
                (slot as u64, is_of_partition.then(copy))
            });
            match copy {
                None => at = Cursor { owner: at.owner + 1, ..Cursor::default() },
                Some((slot, None)) => at = Cursor { slot: slot + 1, offset: 0, ..at },
                Some((slot, Some((record, _)))) if !copied.records.is_empty() && bytes + record.len() > bytes_max => {
                    // The whole of it is in the next part.
                    let offset = if slot == at.slot { at.offset } else { 0 };
                    copied.next = Some(Cursor { slot, offset, ..at });
                    return copied;
                }
                Some((slot, Some((record, next)))) => {
                    bytes += record.len();
                    copied.records.push(record.into());
                    at = match next {
                        Some(offset) => Cursor { slot, offset, ..at },
                        None => Cursor { slot: slot + 1, offset: 0, ..at },
                    };
                    if bytes >= bytes_max || next.is_some() {
                        copied.next = Some(at);
                        return copied;
                    }
                }
            }
        }
        copied
    }

    fn restore(&mut self, lineage: Lineage, record: &Bytes, is_live: bool) {
        // Nodes write no other records.
        let Some((ages, record)) = ages_of(record) else { return };
        let Some(Record::State(part)) = log_record::decode(record) else { return };
        let (channel, histories) = (part.channel, self.histories());
        let begun = self.with_birth(channel, |birth| histories.begin_restore(birth, lineage, &part));
        let Some(BeginRestore::Begun(gap)) = begun else {
            return histories.note_unknown(channel, lineage, part.next);
        };
        if let Some(gap) = gap.filter(|_| is_live) {
            let gap = Arc::new(gap);
            for_wanting(self.shards, channel, &mut self.terms.scratch, || ShardMessage::Gap(gap.clone()));
        }
        for (message, age_ms) in part.messages.iter().zip(ages) {
            let LoggedMessage { offset, text, wall_ms, side, except } = *message;
            let mut frames = Vec::new();
            frame::message(Opcode::Text, format!("[{text}]").as_bytes(), &mut frames);
            let now = Now { ms: self.now.ms.saturating_sub(age_ms), wall_ms };
            let burst = Burst { channel, frames: &frames, messages: 1, stamp: Stamp { now, side, except } };
            self.append(lineage, offset, &burst, is_live);
        }
        histories.end_restore(channel, part.next);
    }

    fn raise_floor(&mut self, partition: usize, lineage: Lineage, floor: u64) {
        self.histories().raise_floor_in(partition, lineage, floor);
    }

    fn leap(&mut self, partition: usize, lineage: Lineage, next: u64) {
        self.histories().leap_in(partition, lineage, next);
    }

    fn has_room(&self, partition: usize) -> bool {
        self.shards.shared().mailbox.has_room_for_part(partition)
    }
}

/// Sends publications to the shards that want their channel.
pub(crate) fn send_to_wanting(to: &dyn Shards, publications: EncodedPublications, scratch: &mut String) {
    let publications = Arc::new(publications);
    for_wanting(to, &publications.channel, scratch, || ShardMessage::Publication(publications.clone()));
}

/// Sends a message to the shards that want a channel.
fn for_wanting(to: &dyn Shards, channel: &str, scratch: &mut String, message: impl Fn() -> ShardMessage) {
    let mut shards = to.shared().interest.of(ChannelName::known(channel), scratch);
    while shards != 0 {
        let shard = shards.trailing_zeros() as usize;
        shards &= shards - 1;
        to.send(shard, message());
    }
}

/// A part of a ring as bytes, and the offset of the rest: the number of messages, the age of each, and a record of the log. Ages are those that
/// this node has seen, because the times of day of other nodes may differ.
///
/// ```text
///   count 4 · age in milliseconds 4, for each · record
/// ```
fn copy_of(ring: &Ring, offset: u64, now_ms: u64, bytes_max: usize) -> (Vec<u8>, Option<u64>) {
    let (record, next) = log_record::state_from(ring, offset, bytes_max - bytes_max / AGES_PART, usize::MAX);
    let entries = ring.from(offset).take_while(|entry| next.is_none_or(|next| entry.offset < next));
    let ages: Vec<u32> =
        entries.map(|entry| now_ms.saturating_sub(entry.at_ms).try_into().unwrap_or(u32::MAX)).collect();
    let mut bytes = Vec::with_capacity(AGE_BYTES * (1 + ages.len()) + record.len());
    bytes.extend_from_slice(&(ages.len() as u32).to_le_bytes());
    ages.iter().for_each(|age_ms| bytes.extend_from_slice(&age_ms.to_le_bytes()));
    bytes.extend_from_slice(&record);
    (bytes, next)
}

/// The ages of the messages of [`copy_of`], in milliseconds, and the record. None if it is no copy.
fn ages_of(bytes: &[u8]) -> Option<(impl Iterator<Item = u64>, &[u8])> {
    let (count, rest) = bytes.split_first_chunk()?;
    let (ages, record) = rest.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(AGE_BYTES)?)?;
    let ages = ages.as_chunks().0.iter().map(|age_ms| u64::from(u32::from_le_bytes(*age_ms)));
    Some((ages, record))
}

/// The bytes of an age.
const AGE_BYTES: usize = 4;
/// Ages have this part of the bytes of a copy at most: a message without data has 20 bytes.
const AGES_PART: usize = 4;

/// The message of each frame, without the array around it, and the end of each frame.
fn texts_of(frames: &[u8]) -> (Vec<&str>, Vec<usize>) {
    let (mut texts, mut ends, mut from) = (Vec::new(), Vec::new(), 0);
    while let Some((head, payload)) = frame::split(&frames[from..]) {
        let end = from + head + payload;
        let Some(array) = frames.get(from + head..end).filter(|array| array.len() >= 2) else { break };
        texts.push(str::from_utf8(&array[1..array.len() - 1]).unwrap_or_default());
        ends.push(end);
        from = end;
    }
    (texts, ends)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use encke_core::{ChannelRule, NoApplication, Side};

    use super::*;
    use crate::envelope::tests::frame_of;
    use crate::histories::Submission;

    /// A node whose shards take nothing.
    struct NoShards(Arc<Shared>, RefCell<usize>);

    impl Shards for NoShards {
        fn shared(&self) -> &Arc<Shared> {
            &self.0
        }

        fn send(&self, _: usize, _: ShardMessage) {
            *self.1.borrow_mut() += 1;
        }
    }

    fn node() -> (NoShards, Terms) {
        let shared = Arc::new(Shared::new(2, Box::new(NoApplication)));
        shared.histories.begin_in_cluster();
        shared.histories.begin_partition(partition_of("/a"), LINEAGE);
        let rule =
            ChannelRule { pattern: "/a".into(), history_messages: 9, history_ms: 60_000, ..ChannelRule::default() };
        let settings = Settings { channels: vec![rule], ..Settings::default() };
        (NoShards(shared, RefCell::default()), Terms::new(Arc::new(settings)))
    }

    fn offsets(node: &NoShards) -> Vec<u64> {
        let histories = &node.0.histories;
        let ring = histories.find("/a", 0).expect("a ring").ring;
        histories.with(ring, |ring| ring.from(0).map(|entry| entry.offset).collect()).expect("a ring")
    }

    const LINEAGE: Lineage = Lineage { seed: 7, first: 100 };
    const HOUR_MS: u64 = 3_600_000;

    #[test]
    fn messages_of_a_node_whose_clock_is_behind_keep_their_age_when_they_are_copied() {
        let (old, mut terms) = node();
        for (offset, ms) in [(100, 0), (101, 50_000)] {
            let now = Now { ms, wall_ms: 10 * HOUR_MS + ms };
            let frames = frame_of("1").into();
            let content = Content::Publications { side: Side::Client, except: None, messages: 1, frames };
            let entry = ClusterEntry::of_test(offset, now.wall_ms, Submission { channel: "/a".into(), content });
            NodeRings { shards: &old, terms: &mut terms, now }.commit(&entry, None);
        }
        let now = Now { ms: 55_000, wall_ms: 10 * HOUR_MS + 55_000 };
        let copied = NodeRings { shards: &old, terms: &mut terms, now }.copy(partition_of("/a"), None, 10_000);
        let (new, mut terms) = node();
        // Its own clock has begun elsewhere, and its time of day is an hour ahead.
        let restore = |ms: u64, terms: &mut Terms| {
            let now = Now { ms: 7 * HOUR_MS + ms, wall_ms: 11 * HOUR_MS + 55_000 + ms };
            let mut rings = NodeRings { shards: &new, terms, now };
            copied.records.iter().for_each(|record| rings.restore(LINEAGE, record, false));
            new.0.histories.sweep(new.0.histories.owner("/a"), Room::of(&Settings::default(), 2), now.ms);
            offsets(&new)
        };
        assert_eq!(restore(0, &mut terms), [100, 101]);
        new.0.histories.sweep(new.0.histories.owner("/a"), Room::of(&Settings::default(), 2), 7 * HOUR_MS + 6_000);
        assert_eq!(offsets(&new), [101], "the first one is over a minute old");
    }

    /// A node whose shards are busy: what was sent to them waits.
    struct BusyShards(Arc<Shared>, RefCell<Vec<ShardMessage>>);

    impl Shards for BusyShards {
        fn shared(&self) -> &Arc<Shared> {
            &self.0
        }

        fn send(&self, _: usize, message: ShardMessage) {
            self.1.borrow_mut().push(message);
        }
    }

    #[test]
    fn a_partition_that_fills_the_room_between_shards_delays_no_other() {
        let (node, mut terms) = node();
        let node = BusyShards(node.0, RefCell::default());
        node.0.mailbox.set_bytes_max(64 * 1024);
        node.0.interest.add("/a", 0);
        let (flooded, other) = (partition_of("/a"), partition_of("/a") ^ 1);
        let mut rings = NodeRings { shards: &node, terms: &mut terms, now: Now { ms: 5, wall_ms: 5 } };
        let mut offset = 100;
        while rings.has_room(flooded) {
            let frames = frame_of(&"x".repeat(1_000)).into();
            let content = Content::Publications { side: Side::Client, except: None, messages: 1, frames };
            let submission = Submission { channel: "/a".into(), content };
            rings.commit(&ClusterEntry::of_test(offset, 5, submission), None);
            offset += 1;
        }
        assert!((164..167).contains(&offset) && rings.has_room(other), "{offset}");
        node.1.borrow_mut().clear();
        assert!(rings.has_room(flooded));
    }

    #[test]
    fn bytes_that_are_no_copy_are_none() {
        for bytes in [&b""[..], b"\x01", b"\xff\xff\xff\xff1234", b"\x01\x00\x00\x00123"] {
            assert!(ages_of(bytes).is_none(), "{bytes:?}");
        }
    }
}
