//! Recovery: builds rings from the records in the log, per channel and by offset.
//!
//! It needs little more memory than the result: messages that exceed the limits of their channel's history are dropped,
//! and above the total limit the messages are dropped first that would be evicted first from the rings. Expired
//! messages are dropped only when the rings are made: if the clock was set back, an expired message may stand behind
//! messages that have not expired and whose records may come later.

use std::cmp::Reverse;
use std::collections::btree_map::Entry::Vacant;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

use bayeux::ChannelName;
use foldhash::fast::RandomState;
use journal::Position;

use encke_core::Now;
use encke_core::Rules;
use encke_core::history::log_record::{LoggedMessage, Part, Record, decode};
use encke_core::history::{Entry, Histories, Life, Room, first_offset};
use encke_core::{ChannelRule, HistoryTerms, Settings};

/// Reads the log of an earlier process. Records may be repeated, and need not be in the order of their offsets.
pub struct Recovery<'a> {
    settings: &'a Settings,
    rules: Rules,
    now: Now,
    rings: HashMap<Box<str>, Draft, RandomState>,
    /// The bytes that all rings hold.
    bytes: usize,
    floor: u64,
    /// True if the last record marks a clean end.
    is_clean: bool,
    unreadable: Option<Position>,
}

/// The result of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovered {
    /// Channels with a history.
    pub channels: usize,
    /// Messages.
    pub messages: usize,
    /// True if the process before ended cleanly, or there was none. If false, offsets have jumped.
    pub is_clean: bool,
    /// Channels of the log that have no history now: no rule gives them one, or there are too many.
    pub left_out: usize,
}

/// A ring as far as it is known.
struct Draft {
    /// The limits of its channel's history now; None if it has none any more.
    terms: Option<HistoryTerms>,
    epoch: Arc<str>,
    /// See [`Life`].
    oldest: u64,
    next: u64,
    /// By offset. They arrive in any order; many old ones arrive behind newer ones if the log ends in a compaction.
    entries: BTreeMap<u64, Entry>,
    bytes: usize,
    /// Messages below this offset were not retained any more, or would not be now.
    dropped: u64,
    /// The time of day of its newest message so far, in milliseconds.
    last_received_ms: u64,
}

impl<'a> Recovery<'a> {
    /// An empty recovery. The settings contain the limits of each channel's history.
    pub fn new(settings: &'a Settings, now: Now) -> Recovery<'a> {
        let rules = Rules::new(&settings.channels);
        Recovery {
            settings,
            rules,
            now,
            rings: HashMap::default(),
            bytes: 0,
            floor: 0,
            is_clean: true,
            unreadable: None,
        }
    }

    /// Reads the next record.
    pub fn read(&mut self, at: Position, record: &[u8]) {
        self.is_clean = false;
        match decode(record) {
            Some(Record::Burst(part)) => self.part(&part, false),
            Some(Record::State(part)) => self.part(&part, true),
            Some(Record::Floor(floor)) => self.floor = self.floor.max(floor),
            Some(Record::Leap(offset)) => {
                self.floor = self.floor.max(offset);
                self.rings.values_mut().for_each(|draft| draft.next = draft.next.max(offset));
            }
            Some(Record::Closed(floor)) => {
                self.floor = self.floor.max(floor);
                self.is_clean = true;
            }
            None => self.unreadable = self.unreadable.or(Some(at)),
        }
    }

    /// The first record that could not be decoded, if there is one.
    pub fn unreadable(&self) -> Option<Position> {
        self.unreadable
    }

    /// The first record to write for the process that starts now.
    pub fn first_record(&self) -> Record<'static> {
        if self.is_clean {
            return Record::Floor(self.known());
        }
        // Clients may have seen offsets above the known ones.
        Record::Leap((self.known() + JUMP).max(first_offset(self.now.wall_ms)))
    }

    /// Notes that a process has started with this offset, and the log does not record it.
    pub fn begun_unwritten(&mut self, offset: u64) {
        self.floor = self.floor.max(offset);
        self.is_clean = false;
    }

    /// Like [`Recovery::first_record`], for a disk without room for it. Offsets leap even after a clean end, because
    /// the next start may learn of this process by its offset only. Returns the record, and the offset.
    pub fn first_unwritten(&mut self) -> (Record<'static>, u64) {
        self.is_clean = false;
        match self.first_record() {
            Record::Leap(offset) => (Record::Leap(offset), offset),
            other => (other, self.known()),
        }
    }

    /// An offset above all offsets of the log.
    fn known(&self) -> u64 {
        self.rings.values().map(|draft| draft.next).max().unwrap_or(0).max(self.floor)
    }

    /// Creates the rings in empty histories. `room` is the limit for each owner.
    pub fn restore(mut self, histories: &Histories, room: Room) -> Recovered {
        let is_clean = self.is_clean;
        self.read(Position::default(), &self.first_record().encode());
        histories.raise_floor(self.floor);
        let mut recovered = Recovered { is_clean, ..Recovered::default() };
        let mut rings: Vec<_> = self.rings.drain().collect();
        // If there are too many, the rings with the newest messages stay.
        rings.sort_unstable_by_key(|(_, draft)| Reverse(draft.last_received_ms));
        for (channel, draft) in rings {
            let pattern = rule_of(self.settings, &self.rules, &channel).map_or("", |rule| &rule.pattern);
            let restored = draft
                .terms
                .is_some_and(|terms| histories.restore([&channel, pattern], draft.into_life(), terms, room, self.now));
            *if restored { &mut recovered.channels } else { &mut recovered.left_out } += 1;
        }
        recovered.messages = (0..histories.owners()).map(|owner| histories.holding(owner).messages).sum();
        recovered
    }

    fn part(&mut self, part: &Part<'_>, is_state: bool) {
        let terms = || rule_of(self.settings, &self.rules, part.channel)?.history();
        let draft = match self.rings.get_mut(part.channel) {
            Some(draft) => draft,
            None => self.rings.entry(part.channel.into()).or_insert(Draft::new(part, terms())),
        };
        let before = draft.bytes;
        if *draft.epoch == *part.epoch {
            if is_state {
                draft.begin_at(part.from);
            } else {
                draft.reach_back_to(part.from);
            }
            draft.take(part);
        } else if part.from >= draft.next {
            // A later ring of a channel begins above all offsets of the earlier one.
            *draft = Draft::new(part, draft.terms);
            draft.take(part);
        }
        self.bytes = self.bytes + draft.bytes - before;
        let bytes_max = self.settings.history_bytes_max;
        if self.bytes > bytes_max + bytes_max / SPARE_PART {
            self.make_room(bytes_max);
        }
    }

    /// Drops the messages that expire first until the others fit.
    fn make_room(&mut self, bytes_max: usize) {
        let mut drafts: Vec<&mut Draft> = self.rings.values_mut().collect();
        let due = |(index, draft): (usize, &&mut Draft)| Some(Reverse((draft.due_ms()?, index)));
        let mut due: BinaryHeap<_> = drafts.iter().enumerate().filter_map(due).collect();
        while self.bytes > bytes_max
            && let Some(Reverse((_, index))) = due.pop()
        {
            let draft = &mut *drafts[index];
            self.bytes -= draft.drop_oldest();
            due.extend(draft.due_ms().map(|due_ms| Reverse((due_ms, index))));
        }
    }
}

impl Draft {
    /// A draft without messages.
    fn new(part: &Part<'_>, terms: Option<HistoryTerms>) -> Draft {
        let (oldest, next) = (part.from, part.from);
        let entries = BTreeMap::new();
        Draft { terms, epoch: part.epoch.into(), oldest, next, entries, bytes: 0, dropped: 0, last_received_ms: 0 }
    }

    /// Notes that everything from this offset on is in the log and nothing below it is retained.
    fn begin_at(&mut self, offset: u64) {
        while self.entries.first_key_value().is_some_and(|(first, _)| *first < offset) {
            self.drop_oldest();
        }
        self.dropped = self.dropped.max(offset);
        self.oldest = self.dropped;
    }

    /// Notes that a burst begins at this offset. The record that was read first may belong to a later burst: several
    /// shards write records of one ring, and these overtake each other on the way to the log.
    fn reach_back_to(&mut self, offset: u64) {
        self.oldest = self.oldest.min(offset.max(self.dropped));
    }

    fn take(&mut self, part: &Part<'_>) {
        self.next = self.next.max(part.next);
        let Some(HistoryTerms { messages_max, bytes_max, .. }) = self.terms else { return };
        part.messages.iter().for_each(|message| self.insert(message));
        let is_too_much = |draft: &Draft| draft.entries.len() > messages_max || draft.bytes > bytes_max;
        while self.entries.len() > 1 && is_too_much(self) {
            self.drop_oldest();
        }
    }

    fn insert(&mut self, message: &LoggedMessage<'_>) {
        let LoggedMessage { offset, wall_ms, side, except, text } = *message;
        self.last_received_ms = self.last_received_ms.max(wall_ms);
        if offset < self.oldest {
            return;
        }
        let Vacant(position) = self.entries.entry(offset) else { return };
        let entry = Entry { offset, text: text.into(), at_ms: 0, wall_ms, side, except: except.map(Box::new) };
        self.bytes += entry.bytes();
        position.insert(entry);
    }

    /// The time of day when its oldest message expires, in milliseconds; None if it has no messages.
    fn due_ms(&self) -> Option<u64> {
        let (_, oldest) = self.entries.first_key_value()?;
        Some(oldest.wall_ms.saturating_add(self.terms?.age_max_ms))
    }

    /// Drops the oldest message. Returns its size in bytes.
    fn drop_oldest(&mut self) -> usize {
        let Some((offset, entry)) = self.entries.pop_first() else { return 0 };
        self.bytes -= entry.bytes();
        self.dropped = offset + 1;
        self.oldest = self.oldest.max(self.dropped);
        entry.bytes()
    }

    fn into_life(self) -> Life {
        let Draft { epoch, oldest, next, entries, .. } = self;
        Life { epoch, oldest, next, entries: entries.into_values().collect() }
    }
}

/// The rule for a channel by the current settings.
fn rule_of<'a>(settings: &'a Settings, rules: &Rules, channel: &str) -> Option<&'a ChannelRule> {
    let channel = ChannelName::parse(channel, &settings.into()).ok()?;
    let rule = rules.first(&settings.channels, channel, &mut String::new())?;
    settings.channels.get(rule)
}

/// The number of offsets to skip after an unclean end, or up to the offset for the time of day if that is more. Clients
/// may have seen offsets whose messages are lost.
const JUMP: u64 = 1 << 20;
/// The part of the limit by which memory may exceed it before messages are dropped. Dropping visits all rings.
const SPARE_PART: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use encke_core::Side;

    const NOW: Now = Now { ms: 1 << 40, wall_ms: 1_700_000_000_000 };

    fn settings(messages: usize, history_bytes_max: usize) -> Settings {
        let rule = ChannelRule { pattern: "/**".into(), history_messages: messages, ..ChannelRule::default() };
        Settings { channels: vec![rule], history_bytes_max, ..Settings::default() }
    }

    /// A message whose offset determines its time: lower offsets are older.
    fn message(offset: u64, text: &str) -> LoggedMessage<'_> {
        LoggedMessage { offset, wall_ms: NOW.wall_ms - 1_000 + offset, side: Side::Client, except: None, text }
    }

    fn read(recovery: &mut Recovery<'_>, is_state: bool, channel: &str, messages: Vec<LoggedMessage<'_>>) {
        let from = if is_state { 1 } else { messages[0].offset };
        let next = messages.last().map_or(from, |message| message.offset + 1);
        let part = Part { channel, epoch: "e", from, next, messages };
        let record = if is_state { Record::State(part) } else { Record::Burst(part) };
        recovery.read(Position(1), &record.encode());
    }

    fn restored(recovery: Recovery<'_>, room: usize) -> Vec<(String, Vec<u64>)> {
        let histories = Histories::new(1);
        recovery.restore(&histories, Room { bytes_max: room, channels_max: 100 });
        let (mut found, mut position) = (Vec::new(), 0);
        while let Some((at, ring)) = histories.visit_from(0, position, |at, ring| {
            (at, (ring.name().to_string(), ring.from(0).map(|entry| entry.offset).collect::<Vec<_>>()))
        }) {
            found.push(ring);
            position = at + 1;
        }
        found.sort();
        found
    }

    #[test]
    fn recovery_holds_little_more_than_the_limit_of_all_histories_and_retains_the_newest() {
        let (limit, text) = (100_000, "x".repeat(900));
        let settings = settings(1_000_000, limit);
        let mut recovery = Recovery::new(&settings, NOW);
        for offset in 1..=900 {
            let channel = format!("/{}", offset % 3);
            read(&mut recovery, false, &channel, vec![message(offset, &text)]);
            assert!(recovery.bytes <= limit + limit / SPARE_PART, "{offset}: {}", recovery.bytes);
            assert_eq!(recovery.bytes, recovery.rings.values().map(|draft| draft.bytes).sum::<usize>());
        }
        let numbers: Vec<u64> = restored(recovery, limit).into_iter().flat_map(|(_, numbers)| numbers).collect();
        let fit = limit / (900 + 72);
        assert_eq!(numbers.len(), fit);
        assert!(numbers.iter().all(|offset| *offset > 900 - fit as u64), "{numbers:?}");
    }

    #[test]
    fn messages_that_are_too_old_are_removed_with_all_before_them() {
        let mut settings = settings(1_000, usize::MAX / 2);
        settings.channels[0].history_ms = 500;
        let mut recovery = Recovery::new(&settings, NOW);
        read(&mut recovery, false, "/a", (1..=900).map(|offset| message(offset, "text")).collect());
        // The state that a compaction wrote when the ring had all of them.
        read(&mut recovery, true, "/a", (1..=900).map(|offset| message(offset, "text")).collect());
        assert_eq!(restored(recovery, usize::MAX), [("/a".to_string(), (501..=900).collect())]);
    }

    #[test]
    fn a_clock_that_was_set_back_removes_no_later_records_with_lower_offsets() {
        let mut settings = settings(1_000, usize::MAX / 2);
        settings.channels[0].history_ms = 500;
        let mut recovery = Recovery::new(&settings, NOW);
        let set_back = LoggedMessage {
            offset: 103,
            wall_ms: NOW.wall_ms - 3_600_000,
            side: Side::Client,
            except: None,
            text: "set back",
        };
        read(&mut recovery, false, "/a", vec![set_back]);
        let before = [900, 901].map(|age| LoggedMessage { offset: age - 800, ..message(age, "before") });
        read(&mut recovery, true, "/a", before.into_iter().chain([set_back]).collect());
        assert_eq!(restored(recovery, usize::MAX), [("/a".to_string(), vec![100, 101, 103])]);
    }

    #[test]
    fn records_of_one_ring_in_any_order_lose_no_message() {
        let settings = settings(1_000, usize::MAX / 2);
        let burst = |numbers: std::ops::Range<u64>| Part {
            channel: "/a",
            epoch: "e",
            from: numbers.start,
            next: numbers.end,
            messages: numbers.map(|offset| message(offset, "text")).collect(),
        };
        let bursts = [burst(1..1), burst(1..3), burst(3..3), burst(3..4)];
        for order in [[0, 1, 2, 3], [2, 0, 1, 3], [2, 1, 3, 0], [3, 2, 1, 0], [1, 3, 0, 2]] {
            let mut recovery = Recovery::new(&settings, NOW);
            order.iter().for_each(|at| recovery.read(Position(1), &Record::Burst(bursts[*at].clone()).encode()));
            assert_eq!(restored(recovery, usize::MAX), [("/a".to_string(), vec![1, 2, 3])], "{order:?}");
        }
    }

    #[test]
    fn messages_removed_by_a_cleared_state_stay_removed_in_any_order_of_records() {
        let settings = settings(1_000, usize::MAX / 2);
        let burst = |numbers: std::ops::Range<u64>| {
            let (from, next) = (numbers.start, numbers.end);
            let messages = numbers.map(|offset| message(offset, "text")).collect();
            Record::Burst(Part { channel: "/a", epoch: "e", from, next, messages })
        };
        let cleared = Record::State(Part { channel: "/a", epoch: "e", from: 3, next: 3, messages: Vec::new() });
        let records = [burst(1..3), cleared, burst(3..5)];
        for order in [[0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0]] {
            let mut recovery = Recovery::new(&settings, NOW);
            order.iter().for_each(|at| recovery.read(Position(1), &records[*at].encode()));
            assert_eq!(restored(recovery, usize::MAX), [("/a".to_string(), vec![3, 4])], "{order:?}");
        }
    }

    #[test]
    fn old_messages_read_after_many_new_ones_get_their_positions() {
        let settings = settings(1_000_000, usize::MAX / 2);
        let mut recovery = Recovery::new(&settings, NOW);
        read(&mut recovery, false, "/a", (501..=1_000).map(|offset| message(offset, "new")).collect());
        for part in 0..5 {
            let numbers = part * 100 + 1..=part * 100 + 100;
            read(&mut recovery, true, "/a", numbers.map(|offset| message(offset, "old")).collect());
        }
        assert_eq!(restored(recovery, usize::MAX), [("/a".to_string(), (1..=1_000).collect())]);
    }
}
