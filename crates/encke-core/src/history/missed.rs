//! The messages of a cluster's histories since a time: those that a session has missed whose node is gone.
//!
//! A message has the time at which this node has taken it, so the times of a ring do not depend on the clocks of other nodes. The session's
//! shard gets ranges of offsets and reads their messages itself, page by page.

use std::collections::HashSet;

use bayeux::ChannelName;
use foldhash::fast::RandomState;

use super::{Histories, Owned, PARTITIONS, RingKey, partition_of};
use crate::id::Id;

/// The messages that a session may have missed.
#[derive(Clone, Copy, Debug)]
pub struct Missed<'a> {
    /// The session. Its own messages are left out.
    pub session: &'a Id,
    /// For each partition the time from which on it may have missed messages, in milliseconds of the monotonic clock. None: not known.
    pub since_ms: &'a [Option<u64>; PARTITIONS],
    /// The most messages.
    pub messages_max: usize,
    /// The most bytes of their texts.
    pub bytes_max: usize,
}

/// Messages of one ring that a session may have missed. Its own ones may be among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedRange {
    /// The ring.
    pub ring: RingKey,
    /// The offset of the first message.
    pub first: u64,
    /// One past the offset of the last message.
    pub end: u64,
}

/// The messages found so far.
#[derive(Default)]
struct Found {
    /// Ranges with the times of their first messages.
    ranges: Vec<(u64, MissedRange)>,
    messages: usize,
    bytes: usize,
    /// The rings that have been read.
    rings: usize,
    /// Names, rings and messages that have been looked at.
    steps: usize,
}

impl Histories {
    /// Finds the messages of channels and patterns that a session may have missed: for each channel one range, those with the oldest
    /// messages first. None if some of them may be gone, or if there are too many. Also returns the steps that it has cost: names, rings
    /// and messages. No owner is locked for more than a page of channels.
    pub fn missed<'n>(
        &self,
        names: impl Iterator<Item = ChannelName<'n>>,
        missed: &Missed<'_>,
    ) -> (Option<Vec<MissedRange>>, usize) {
        let mut found = Found::default();
        let names: Vec<ChannelName<'_>> = names.collect();
        let is_found = self.find_missed(&names, missed, &mut found);
        let Found { mut ranges, steps, .. } = found;
        ranges.sort_by_key(|(at_ms, _)| *at_ms);
        (is_found.map(|()| ranges.into_iter().map(|(_, range)| range).collect()), steps)
    }

    /// Each ring is read once: of two names that both match a channel one is a pattern that reaches all that the other one reaches.
    fn find_missed(&self, names: &[ChannelName<'_>], missed: &Missed<'_>, found: &mut Found) -> Option<()> {
        let patterns = names.iter().filter(|name| name.is_pattern()).map(|name| name.as_str());
        let patterns: HashSet<&str, RandomState> = patterns.collect();
        for name in names {
            found.steps += 1;
            if is_covered(name.as_str(), &patterns) {
                continue;
            }
            if name.is_pattern() {
                (0..self.owners.len()).try_for_each(|owner| self.missed_by_pattern(owner, *name, missed, found))?;
                continue;
            }
            let owner = self.owner(name.as_str());
            let owned = self.lock(owner)?;
            owned.has_all_since(missed.since_ms[partition_of(name.as_str())]?)?;
            let slot = owned.names.get(name.as_str());
            slot.map_or(Some(()), |slot| found.read(&owned, (owner, slot), missed))?;
        }
        Some(())
    }

    /// The same for the channels of one owner that match a pattern. A ring that goes between two pages has gone before the next one is read.
    fn missed_by_pattern(
        &self,
        owner: usize,
        pattern: ChannelName<'_>,
        missed: &Missed<'_>,
        found: &mut Found,
    ) -> Option<()> {
        let mut after: Option<Box<str>> = None;
        loop {
            let owned = self.lock(owner)?;
            missed.since_ms.iter().try_for_each(|since_ms| owned.has_all_since((*since_ms)?))?;
            let (mut channels, mut last) = (0, None);
            for (name, slot) in owned.names.matching(pattern, after.as_deref()).take(CHANNELS_AT_ONCE) {
                found.read(&owned, (owner, slot), missed)?;
                (channels, last) = (channels + 1, Some(name));
            }
            if channels < CHANNELS_AT_ONCE {
                return Some(());
            }
            let last = last.map(Box::from);
            drop(owned);
            after = last;
        }
    }
}

/// True if a wider pattern of a set reaches all that a name reaches.
fn is_covered(name: &str, patterns: &HashSet<&str, RandomState>) -> bool {
    if patterns.is_empty() {
        return false;
    }
    let deep = name.match_indices('/').map(|(at, _)| format!("{}/**", &name[..at])).take_while(|deep| deep != name);
    let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
    let is_channel = !ChannelName::known(name).is_pattern();
    deep.chain(is_channel.then(|| format!("{parent}/*"))).any(|pattern| patterns.contains(&*pattern))
}

impl Found {
    /// Finds the messages of a ring. None if it has not all of them, or too many.
    fn read(&mut self, owned: &Owned, at: (usize, u32), missed: &Missed<'_>) -> Option<()> {
        self.rings += 1;
        self.steps += 1;
        if self.rings > CHANNELS_MAX {
            return None;
        }
        let ring = owned.rings.get(at.1 as usize)?;
        let mut first = None;
        for entry in ring.since(missed.since_ms[partition_of(ring.name())]?)? {
            self.steps += 1;
            if entry.except.as_deref() == Some(missed.session) {
                continue;
            }
            first = first.or(Some((entry.at_ms, entry.offset)));
            self.messages += 1;
            self.bytes += entry.text.len();
            if self.messages > missed.messages_max || self.bytes > missed.bytes_max {
                return None;
            }
        }
        if let Some((at_ms, first)) = first {
            let key = RingKey { owner: at.0 as u32, slot: at.1, serial: ring.serial };
            self.ranges.push((at_ms, MissedRange { ring: key, first, end: ring.next() }));
        }
        Some(())
    }
}

impl Owned {
    /// None if messages that came at this time or later may have gone without a trace in a ring.
    fn has_all_since(&self, since_ms: u64) -> Option<()> {
        (self.gone_ms < since_ms).then_some(())
    }

    /// Messages have gone without a trace in a ring. The latest of them came at this time, or before it.
    pub(super) fn are_gone(&mut self, at_ms: u64) {
        self.gone_ms = self.gone_ms.max(at_ms);
    }
}

/// The channels that are read for one session. A session that has more of them begins again.
const CHANNELS_MAX: usize = 10_000;
/// The channels of a pattern that are read while their owner is locked.
const CHANNELS_AT_ONCE: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Birth, Lineage, Ring, Room, Stamp};
    use crate::now::Now;
    use crate::{HistoryTerms, Side, kernel_entropy};

    const LINEAGE: Lineage = Lineage { seed: 7, first: 100 };

    struct Rig {
        histories: Histories,
        terms: HistoryTerms,
        channels_max: usize,
        next: u64,
    }

    impl Rig {
        fn new(messages_max: usize) -> Rig {
            let histories = Histories::new(2);
            histories.begin_in_cluster();
            (0..PARTITIONS).for_each(|partition| histories.begin_partition(partition, LINEAGE));
            let (age_max_ms, bytes_max) = (5_000, 9_000);
            let terms = HistoryTerms { messages_max, age_max_ms, bytes_max, is_persistent: false, compresses: false };
            Rig { histories, terms, channels_max: 2 * CHANNELS_MAX, next: 1_000 }
        }

        fn append(&mut self, channel: &str, ms: u64, text: &str, except: Option<Id>) {
            let mut entropy = kernel_entropy();
            let (now, room) = (Now { ms, wall_ms: 0 }, Room { bytes_max: usize::MAX, channels_max: self.channels_max });
            let birth = Birth { channel, rule: "/**", terms: self.terms, room, now, entropy: &mut entropy };
            let stamp = Stamp { now, side: Side::Client, except };
            self.histories.append_at(birth, LINEAGE, self.next, &stamp, [text].into_iter());
            self.next += 1;
        }

        fn missed(&self, names: &[&str], since_ms: u64) -> Option<String> {
            self.missed_by(&Id::new(0, &mut kernel_entropy()), names, &[Some(since_ms); PARTITIONS], 5)
        }

        fn missed_by(
            &self,
            session: &Id,
            names: &[&str],
            since_ms: &[Option<u64>; PARTITIONS],
            messages_max: usize,
        ) -> Option<String> {
            let missed = Missed { session, since_ms, messages_max, bytes_max: 100 };
            let names = names.iter().map(|name| ChannelName::known(name));
            let ranges = self.histories.missed(names, &missed).0?;
            let texts = ranges.into_iter().flat_map(|MissedRange { ring, first, end }| {
                let of_others = |ring: &Ring| {
                    let entries = ring.between(first, end).filter(|entry| entry.except.as_deref() != Some(session));
                    entries.map(|entry| entry.text.to_string()).collect::<Vec<_>>()
                };
                self.histories.with(ring, of_others).expect("it is there")
            });
            Some(texts.collect::<Vec<_>>().join(" "))
        }
    }

    #[test]
    fn messages_come_since_a_time_once_and_each_channel_in_its_order() {
        let mut rig = Rig::new(9);
        for (ms, channel) in [(10, "/a"), (20, "/p/b"), (30, "/a"), (30, "/p/c"), (40, "/p/b"), (50, "/other")] {
            rig.append(channel, ms, &format!("{channel}@{ms}"), None);
        }
        assert_eq!(rig.missed(&["/a", "/p/*"], 20).as_deref(), Some("/p/b@20 /p/b@40 /a@30 /p/c@30"));
        assert_eq!(rig.missed(&["/p/b", "/p/*", "/p/**", "/none"], 40).as_deref(), Some("/p/b@40"));
        assert_eq!(rig.missed(&["/a"], 51).as_deref(), Some(""));
    }

    #[test]
    fn a_pattern_with_more_channels_than_a_page_misses_none() {
        let mut rig = Rig::new(9);
        let channels = 3 * CHANNELS_AT_ONCE;
        (0..channels).for_each(|number| rig.append(&format!("/many/{number}"), 10, ".", None));
        let (session, since_ms) = (Id::new(0, &mut kernel_entropy()), [Some(5); PARTITIONS]);
        let missed = Missed { session: &session, since_ms: &since_ms, messages_max: channels, bytes_max: channels };
        let (ranges, _) = rig.histories.missed([ChannelName::known("/many/*")].into_iter(), &missed);
        let ranges = ranges.expect("all");
        let rings: HashSet<u64> = ranges.iter().map(|range| range.ring.serial).collect();
        assert_eq!((ranges.len(), rings.len()), (channels, channels));
    }

    #[test]
    fn names_inside_a_pattern_cost_no_further_visit_of_its_channels() {
        let mut rig = Rig::new(9);
        (0..1_000).for_each(|number| rig.append(&format!("/a/b/c/{number}"), 10, ".", None));
        let (session, since_ms) = (Id::new(0, &mut kernel_entropy()), [Some(20); PARTITIONS]);
        let missed = Missed { session: &session, since_ms: &since_ms, messages_max: 1, bytes_max: 1 };
        let names = ["/a/b/c/7", "/a/b/c/*", "/a/b/c/**", "/a/b/**", "/a/**", "/**", "/*", "/a", "/a/b/c/7/d/*"];
        let (ranges, steps) = rig.histories.missed(names.iter().map(|name| ChannelName::known(name)), &missed);
        assert_eq!((ranges, steps), (Some(Vec::new()), 1_000 + names.len()));
        let patterns = HashSet::from_iter(["/a/*", "/b/**"]);
        for (name, expected) in [
            ("/a/x", true),
            ("/a/x/y", false),
            ("/a/*", false),
            ("/a/**", false),
            ("/a", false),
            ("/b/**", false),
            ("/b/*", true),
            ("/b/x/**", true),
            ("/b/x/y", true),
            ("/b", false),
            ("/**", false),
        ] {
            assert_eq!(is_covered(name, &patterns), expected, "{name}");
        }
    }

    #[test]
    fn what_a_ring_has_dropped_since_then_is_not_hidden() {
        let mut rig = Rig::new(2);
        (1..=3).for_each(|number| rig.append("/a", 10 * number, &number.to_string(), None));
        assert_eq!(rig.missed(&["/a"], 30).as_deref(), Some("3"));
        assert_eq!(
            rig.missed(&["/a"], 21).as_deref(),
            Some("3"),
            "the second one is there, so the first was before it"
        );
        assert_eq!(rig.missed(&["/a"], 20).as_deref(), Some("2 3"), "the one that is gone was before them");
        assert_eq!(rig.missed(&["/a"], 10), None);
        let room = Room { bytes_max: usize::MAX, channels_max: 100 };
        (0..2).for_each(|owner| rig.histories.sweep(owner, room, 9_000));
        assert_eq!((rig.missed(&["/a"], 31).as_deref(), rig.missed(&["/a"], 30)), (Some(""), None));
    }

    // Rings come and go with their channels, so others would refuse each session.
    #[test]
    fn a_ring_that_goes_hides_nothing_that_came_after_its_last_message() {
        let mut rig = Rig::new(9);
        rig.append("/a", 10, "1", None);
        rig.append("/b", 10, "2", None);
        let room = Room { bytes_max: usize::MAX, channels_max: 0 };
        [9_000, 99_000].iter().for_each(|now_ms| (0..2).for_each(|owner| rig.histories.sweep(owner, room, *now_ms)));
        assert_eq!((rig.missed(&["/**"], 11).as_deref(), rig.missed(&["/**"], 10)), (Some(""), None));
    }

    #[test]
    fn what_has_gone_with_its_ring_or_never_had_one_is_not_hidden() {
        let mut rig = Rig::new(9);
        rig.append("/a", 10, "1", None);
        rig.histories.clear_below("/a", u64::MAX, 20);
        rig.append("/a", 30, "2", None);
        assert_eq!((rig.missed(&["/a"], 21).as_deref(), rig.missed(&["/a"], 20)), (Some("2"), None));
        rig.channels_max = 0;
        rig.append("/b", 40, "3", None);
        assert!(["/b", "/**"].iter().all(|name| rig.missed(&[name], 40).is_none()));
        assert_eq!(rig.missed(&["/**"], 41).as_deref(), Some(""));
    }

    #[test]
    fn a_partition_that_is_not_known_own_messages_and_bounds() {
        let mut rig = Rig::new(9_000);
        let own = Id::new(0, &mut kernel_entropy());
        rig.append("/a", 10, "1", Some(own));
        rig.append("/a", 10, "2", None);
        let (mut since_ms, other) = ([Some(5); PARTITIONS], partition_of("/a") ^ 1);
        assert_eq!(rig.missed_by(&own, &["/a"], &since_ms, 1).as_deref(), Some("2"));
        since_ms[other] = None;
        assert_eq!(rig.missed_by(&own, &["/a"], &since_ms, 1).as_deref(), Some("2"));
        assert_eq!(rig.missed_by(&own, &["/**"], &since_ms, 1), None);
        assert_eq!(rig.missed(&["/a"], 5).as_deref(), Some("1 2"));
        (0..4).for_each(|_| rig.append("/a", 20, "3", None));
        assert_eq!(rig.missed(&["/a"], 5), None, "too many");
        rig.append("/a", 30, &"x".repeat(101), None);
        assert_eq!(rig.missed(&["/a"], 30), None, "too large");
        (0..=CHANNELS_MAX).for_each(|number| rig.append(&format!("/many/{number}"), 40, "", None));
        assert_eq!(rig.missed_by(&own, &["/many/*"], &[Some(50); PARTITIONS], 9), None, "too many channels");
    }
}
