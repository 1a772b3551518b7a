//! From the log back to rings: what stands in it is put together by channel, number by number.

use std::collections::{HashMap, VecDeque};

use bayeux::ChannelName;
use foldhash::fast::RandomState;
use journal::Position;

use super::record::{Message, Part, Record, decode};
use crate::settings::{HistoryTerms, Settings};
use crate::shard::history::{Entry, Histories, Life, Room, first_number};
use crate::shard::{Now, rule_index};

/// Reads the log of an earlier life of the process. Records may come twice, and not in the order of their numbers.
pub struct Recovery<'a> {
    settings: &'a Settings,
    now: Now,
    rings: HashMap<Box<str>, Draft, RandomState>,
    floor: u64,
    /// Whether the last record says that the process ended as it should.
    is_clean: bool,
    unreadable: Option<Position>,
}

/// What came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Channels with a history.
    pub channels: usize,
    /// Messages.
    pub messages: usize,
    /// Whether the process before ended as it should, if there was one. If not, numbers have jumped.
    pub is_clean: bool,
}

/// A ring as far as it is known.
struct Draft {
    /// What is kept of its channel now; nothing of one without.
    terms: Option<HistoryTerms>,
    life: Life,
    bytes: usize,
    /// What stood below this number would not be kept now.
    dropped: u64,
}

impl<'a> Recovery<'a> {
    /// Nothing is read yet. The settings say what is kept of which channel.
    pub fn new(settings: &'a Settings, now: Now) -> Recovery<'a> {
        Recovery { settings, now, rings: HashMap::default(), floor: 0, is_clean: true, unreadable: None }
    }

    /// Takes the next record.
    pub fn read(&mut self, at: Position, record: &[u8]) {
        self.is_clean = false;
        match decode(record) {
            Some(Record::Burst(part)) => self.part(&part, false),
            Some(Record::State(part)) => self.part(&part, true),
            Some(Record::Floor(floor)) => self.floor = self.floor.max(floor),
            Some(Record::Leap(number)) => {
                self.floor = self.floor.max(number);
                self.rings.values_mut().for_each(|draft| draft.life.next = draft.life.next.max(number));
            }
            Some(Record::Closed(floor)) => {
                self.floor = self.floor.max(floor);
                self.is_clean = true;
            }
            None => self.unreadable = self.unreadable.or(Some(at)),
        }
    }

    /// The first record that could not be understood, if there is one.
    pub fn unreadable(&self) -> Option<Position> {
        self.unreadable
    }

    /// What the log has to say first of all about the life that begins now.
    pub fn first_record(&self) -> Record<'static> {
        let known = self.rings.values().map(|draft| draft.life.next).max().unwrap_or(0).max(self.floor);
        if self.is_clean {
            return Record::Floor(known);
        }
        // Numbers above those that are known may have been seen.
        Record::Leap((known + JUMP).max(first_number(self.now.wall_ms)))
    }

    /// Makes the rings, in histories that have none yet. `room` is what each owner may keep.
    pub fn restore(mut self, histories: &Histories, room: Room) -> Recovered {
        let is_clean = self.is_clean;
        self.read(Position::default(), &self.first_record().encode());
        histories.raise_floor(self.floor);
        let mut recovered = Recovered { is_clean, ..Recovered::default() };
        let mut rings: Vec<_> = self.rings.drain().collect();
        // If there are too many, those that were heard of last stay.
        rings.sort_unstable_by_key(|(_, draft)| u64::MAX - draft.life.entries.back().map_or(0, |entry| entry.wall_ms));
        for (channel, draft) in rings {
            let Some(terms) = draft.terms else { continue };
            recovered.channels += usize::from(histories.restore(&channel, draft.life, terms, room, self.now));
        }
        recovered.messages = (0..histories.owners()).map(|owner| histories.holding(owner).messages).sum();
        recovered
    }

    fn part(&mut self, part: &Part<'_>, is_state: bool) {
        let Some(draft) = self.rings.get_mut(part.channel) else {
            let draft = Draft::new(part, terms_of(self.settings, part.channel));
            self.rings.insert(part.channel.into(), draft);
            return;
        };
        if *draft.life.epoch != *part.epoch {
            // A later life of a channel begins above all numbers of the one before.
            if part.from >= draft.life.next {
                *draft = Draft::new(part, draft.terms);
            }
            return;
        }
        if is_state {
            draft.begin_at(part.from);
        }
        draft.take(part);
    }
}

impl Draft {
    fn new(part: &Part<'_>, terms: Option<HistoryTerms>) -> Draft {
        let life = Life { epoch: part.epoch.into(), oldest: part.from, next: part.from, entries: VecDeque::new() };
        let mut draft = Draft { terms, life, bytes: 0, dropped: 0 };
        draft.take(part);
        draft
    }

    /// Everything from this number on is in the log; nothing below it was kept.
    fn begin_at(&mut self, number: u64) {
        while self.life.entries.front().is_some_and(|entry| entry.number < number) {
            self.drop_oldest();
        }
        self.life.oldest = number.max(self.dropped);
    }

    fn take(&mut self, part: &Part<'_>) {
        self.life.next = self.life.next.max(part.next);
        let Some(HistoryTerms { messages_max, bytes_max, .. }) = self.terms else { return };
        for message in &part.messages {
            self.insert(message);
            // No more is held on the way than in the end.
            while self.life.entries.len() > 1 && (self.life.entries.len() > messages_max || self.bytes > bytes_max) {
                self.drop_oldest();
            }
        }
    }

    fn insert(&mut self, message: &Message<'_>) {
        let Message { number, wall_ms, except, text } = *message;
        if number < self.life.oldest {
            return;
        }
        let entries = &mut self.life.entries;
        let at = if entries.back().is_none_or(|last| last.number < number) {
            entries.len()
        } else {
            match entries.binary_search_by_key(&number, |entry| entry.number) {
                Ok(_) => return,
                Err(at) => at,
            }
        };
        let entry = Entry { number, text: text.into(), at_ms: 0, wall_ms, except: except.map(Box::new) };
        self.bytes += entry.bytes();
        entries.insert(at, entry);
    }

    fn drop_oldest(&mut self) {
        if let Some(entry) = self.life.entries.pop_front() {
            self.bytes -= entry.bytes();
            self.dropped = entry.number + 1;
            self.life.oldest = self.life.oldest.max(self.dropped);
        }
    }
}

/// What is kept of a channel, as the settings are now.
fn terms_of(settings: &Settings, channel: &str) -> Option<HistoryTerms> {
    let channel = ChannelName::parse(channel, &settings.bayeux_limits()).ok()?;
    let rule = rule_index(&settings.channels, channel)?;
    settings.channels[rule].history()
}

/// After an end that was not clean, numbers that somebody may have seen are lost with their messages: so many are left out, or as many as
/// the time of day says, whichever are more.
const JUMP: u64 = 1 << 20;
