//! Tests of rings: offsets, limits, expiry, the log.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::history::log_record;
use crate::history::log_record::{Record, decode};
use crate::kernel_entropy;

const ROOM: Room = Room { bytes_max: usize::MAX, channels_max: 10 };
const TERMS: HistoryTerms =
    HistoryTerms { messages_max: 3, age_max_ms: 1_000, bytes_max: usize::MAX, is_persistent: false, compresses: false };

fn at(ms: u64) -> Now {
    Now { ms, wall_ms: 1_700_000_000_000 }
}

fn append_as(
    histories: &Histories,
    channel: &str,
    terms: HistoryTerms,
    room: Room,
    ms: u64,
    text: &str,
) -> Option<Position> {
    let birth = Birth { channel, rule: "/**", terms, room, now: at(ms), entropy: &mut kernel_entropy() };
    histories.append(birth, Side::Client, None, [text].into_iter())
}

fn append(histories: &Histories, channel: &str, ms: u64, text: &str) -> Position {
    append_as(histories, channel, TERMS, ROOM, ms, text).expect("room")
}

fn open(histories: &Histories, channel: &str, room: Room) -> Option<RingKey> {
    let birth = Birth { channel, rule: "/**", terms: TERMS, room, now: at(0), entropy: &mut kernel_entropy() };
    histories.open(birth, |_| ()).map(|(ring, _)| ring)
}

fn texts(histories: &Histories, key: RingKey, from: u64) -> Vec<String> {
    histories.with(key, |ring| ring.from(from).map(|entry| entry.text.to_string()).collect()).expect("a ring")
}

#[test]
fn messages_of_the_last_time_begin_with_the_first_one_of_it() {
    let histories = Histories::new(1);
    let first = append(&histories, "/a", 100, "1");
    append(&histories, "/a", 200, "2");
    append(&histories, "/a", 200, "3");
    let since = |ms| histories.with(first.ring, |ring| ring.first_since(ms)).map(|offset| offset - first.first);
    assert_eq!([0, 100, 101, 200, 201].map(since), [0, 0, 1, 1, 3].map(Some));
}

#[test]
fn offsets_are_consecutive_and_the_newest_messages_stay() {
    let histories = Histories::new(1);
    let first = append(&histories, "/a", 0, "1");
    assert_eq!(first.first, 1_700_000_000_000 * 1024);
    for text in ["2", "3", "4"] {
        append(&histories, "/a", 0, text);
    }
    assert_eq!(texts(&histories, first.ring, 0), ["2", "3", "4"]);
    assert_eq!(texts(&histories, first.ring, first.first + 3), ["4"]);
    assert_eq!(texts(&histories, first.ring, first.first + 4), [""; 0]);
    assert_eq!(
        histories.with(first.ring, |ring| (ring.oldest(), ring.next())),
        Some((first.first + 1, first.first + 4))
    );
}

#[test]
fn a_ring_of_few_bytes_retains_its_latest_message_whatever_its_length() {
    let histories = Histories::new(1);
    let terms = HistoryTerms { bytes_max: 200, ..TERMS };
    let long = "x".repeat(1_000);
    let ring = append_as(&histories, "/a", terms, ROOM, 0, "1").expect("room").ring;
    append_as(&histories, "/a", terms, ROOM, 0, &long);
    assert_eq!(texts(&histories, ring, 0), [long]);
}

#[test]
fn old_messages_are_removed_and_the_empty_ring_stays_for_a_day() {
    let histories = Histories::new(1);
    let one = append(&histories, "/a", 0, "1");
    append(&histories, "/a", 500, "2");
    histories.sweep(0, ROOM, 1_000);
    assert_eq!(texts(&histories, one.ring, 0), ["2"]);
    histories.sweep(0, ROOM, 1_500);
    assert_eq!(histories.holding(0), Holding { channels: 1, ..Holding::default() });
    let three = append(&histories, "/a", 2_000, "3");
    assert_eq!((three.ring, three.first), (one.ring, one.first + 2));
    histories.sweep(0, ROOM, 3_000);
    histories.sweep(0, ROOM, 3_000 + EMPTY_RETAINED_MS);
    assert_eq!(histories.holding(0), Holding::default());
}

#[test]
fn a_restart_has_another_epoch_and_higher_offsets_even_if_the_clock_stands_still() {
    let histories = Histories::new(1);
    let one = append(&histories, "/a", 0, "1");
    histories.sweep(0, ROOM, 1_000);
    histories.sweep(0, ROOM, 1_000 + EMPTY_RETAINED_MS);
    let other = append(&histories, "/a", 1_000 + EMPTY_RETAINED_MS, "2");
    assert!(other.first > one.first && other.ring.serial > one.ring.serial && other.epoch != one.epoch);
    assert_eq!(histories.with(one.ring, Ring::next), None);
}

#[test]
fn without_room_the_oldest_messages_of_all_channels_are_removed_first() {
    let histories = Histories::new(1);
    let room = Room { bytes_max: 3 * (72 + 1), ..ROOM };
    let a = append_as(&histories, "/a", TERMS, room, 0, "1").expect("room").ring;
    let b = append_as(&histories, "/b", TERMS, room, 1, "2").expect("room").ring;
    append_as(&histories, "/a", TERMS, room, 2, "3");
    append_as(&histories, "/b", TERMS, room, 3, "4");
    assert_eq!((texts(&histories, a, 0), texts(&histories, b, 0)), (vec!["3".into()], vec!["2".into(), "4".into()]));
    assert_eq!(histories.holding(0), Holding { messages: 3, bytes: 219, channels: 2, evicted: 1 });
}

#[test]
fn a_new_channel_replaces_an_empty_ring_and_no_other() {
    let histories = Histories::new(1);
    // A rule that is alone has two of three.
    let room = Room { channels_max: 3, ..ROOM };
    let empty = open(&histories, "/empty", room).expect("room");
    append_as(&histories, "/a", TERMS, room, 0, "1");
    let b = append_as(&histories, "/b", TERMS, room, 0, "2").expect("the empty ring is removed");
    assert_eq!(histories.with(empty, Ring::next), None);
    assert!(open(&histories, "/c", room).is_none());
    assert!(b.first > 0);
}

/// The channels of one rule neither take all histories nor the empty ones of other rules.
#[test]
fn each_rule_has_a_share_of_the_channels() {
    let histories = Histories::new(1);
    let room = Room { channels_max: 80, ..ROOM };
    let birth = |rule: &'static str, nth: usize, has_message: bool| {
        let channel = format!("/{rule}/{nth}");
        let birth = Birth { channel: &channel, rule, terms: TERMS, room, now: at(0), entropy: &mut kernel_entropy() };
        let text = has_message.then_some("1");
        histories.append(birth, Side::Client, None, text.into_iter()).map(|position| position.ring)
    };
    let empty = birth("news", 0, false).expect("room");
    assert!(!histories.are_scarce());
    let game = (0..101).filter(|nth| birth("game", *nth, true).is_some()).count();
    assert!((55..65).contains(&game) && histories.are_scarce(), "{game}");
    assert!(histories.with(empty, Ring::next).is_some(), "the empty ring of another rule");
    assert!((1..4).all(|nth| birth("news", nth, true).is_some() && birth("chat", nth, true).is_some()));
    // Rings that are gone leave room, and no trace in the tables.
    histories.sweep(0, room, 1_000);
    histories.sweep(0, room, 1_000 + EMPTY_RETAINED_MS);
    assert!(!histories.are_scarce() && histories.holding(0).channels == 0);
    let owned = histories.lock(0).expect("an owner");
    assert_eq!((owned.shares.used(), owned.shares.owners(), owned.empty.len()), (Amount::default(), 0, 0));
}

#[test]
fn a_pattern_finds_the_rings_it_matches() {
    let histories = Histories::new(3);
    for name in ["/a", "/a/b", "/a/c", "/a/b/c", "/ab/c", "/b"] {
        append(&histories, name, 0, "1");
    }
    let found = |pattern: &str| {
        let limits = bayeux::Limits::default();
        let pattern = ChannelName::parse(pattern, &limits).expect("a pattern");
        let mut names: Vec<_> = histories.matching(pattern, None, 4, |_| true).into_iter().map(String::from).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(found("/a/*"), ["/a/b", "/a/c"]);
    assert_eq!(found("/a/**"), ["/a/b", "/a/b/c", "/a/c"]);
    assert_eq!(found("/*"), ["/a", "/b"]);
    assert_eq!(found("/**").len(), 4, "no more than are wanted");
    assert_eq!(found("/c/**"), [""; 0]);
}

#[test]
fn channels_that_differ_in_the_last_character_only_belong_to_different_shards() {
    for shards in [2, 3, 4, 8] {
        let histories = Histories::new(shards);
        let mut counts = vec![0; shards];
        (0..64).for_each(|number| counts[histories.owner(&format!("/stock/{}", char::from(b'0' + number)))] += 1);
        assert!(counts.iter().all(|count| *count > 0 && *count < 3 * 64 / shards), "{counts:?}");
    }
}

#[test]
fn the_record_of_a_new_ring_names_its_first_message_even_if_its_owner_appends_at_once() {
    let histories = Histories::new(1);
    let room = Room { channels_max: usize::MAX, ..ROOM };
    let (opener, appender) = (AtomicU64::new(0), AtomicU64::new(0));
    // Starts both threads on each round as close to the same time as possible.
    let meet = |own: &AtomicU64, other: &AtomicU64, round: u64| {
        own.store(round, Ordering::Release);
        while other.load(Ordering::Acquire) < round {
            std::thread::yield_now();
        }
    };
    let firsts = std::thread::scope(|scope| {
        let births = scope.spawn(|| {
            let open = |round: u64| {
                meet(&opener, &appender, round);
                let channel = format!("/{round}");
                let birth = Birth {
                    channel: &channel,
                    rule: "/**",
                    terms: TERMS,
                    room,
                    now: at(0),
                    entropy: &mut kernel_entropy(),
                };
                let (_, record) = histories.open(birth, log_record::birth).expect("room");
                record.map(|record| match decode(&record) {
                    Some(Record::Burst(part)) => part.from,
                    other => panic!("{other:?}"),
                })
            };
            (1..=ROUNDS).map(open).collect::<Vec<_>>()
        });
        let append = |round: u64| {
            meet(&appender, &opener, round);
            append_as(&histories, &format!("/{round}"), TERMS, room, 0, "1").expect("room").first
        };
        let firsts: Vec<u64> = (1..=ROUNDS).map(append).collect();
        births.join().expect("no panic").into_iter().zip(firsts).collect::<Vec<_>>()
    });
    assert!(firsts.iter().all(|(birth, first)| birth.is_none_or(|birth| birth == *first)));
}

/// The number of channels that two threads create at the same time.
const ROUNDS: u64 = 5_000;

#[test]
fn a_cleared_history_is_empty_keeps_its_offsets_and_is_removed_once() {
    let histories = Histories::new(1);
    let first = append(&histories, "/a", 0, "1");
    append(&histories, "/a", 1, "2");
    append(&histories, "/b", 0, "other");
    let (removed, record) = histories.clear("/a", 5, log_record::cleared).expect("a ring");
    let next = first.first + 2;
    let Some(Record::State(part)) = decode(&record) else { panic!("a state") };
    assert_eq!((removed, part.from, part.next, part.messages.len()), (2, next, next, 0));
    assert_eq!(histories.holding(0).messages, 1);
    assert_eq!(histories.clear("/a", 6, |ring| ring.oldest()), Some((0, next)));
    assert_eq!(histories.clear("/none", 6, |_| ()), None);
    // Its old deadline passes, then it is filled again, then all rings expire: none is removed twice.
    histories.sweep(0, ROOM, 2_000);
    assert_eq!(append(&histories, "/a", 2_000, "3").first, next);
    assert_eq!(texts(&histories, first.ring, 0), ["3"]);
    histories.sweep(0, ROOM, 4_000);
    histories.sweep(0, ROOM, 4_000 + EMPTY_RETAINED_MS);
    append(&histories, "/c", 0, "new");
    histories.sweep(0, ROOM, 2 * EMPTY_RETAINED_MS);
    assert_eq!(histories.holding(0).channels, 1);
}
