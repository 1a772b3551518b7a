//! Tests of the store on a simulated disk: recovery, answers, and the length of the log.

mod length;

use std::sync::Arc;

use simulated_disk::SimDisk;

use super::*;
use encke_core::ChannelRule;
use encke_core::history::log_record::{self, LoggedMessage, Part};
use encke_core::history::{Birth, Room};
use encke_core::{Entropy, Id, Now, Side};

const WALL_MS: u64 = 1_700_000_000_000;
const START_MS: u64 = 1 << 40;
const ROOM: Room = Room { bytes_max: usize::MAX, channels_max: 1_000 };

/// Histories and their store, as in one process.
struct Life {
    histories: Histories,
    history_store: HistoryStore<SimDisk>,
    recovered: Recovered,
    settings: Settings,
    now: Now,
    room: Room,
    tokens: u64,
}

fn rules(messages: usize) -> Settings {
    let rule = ChannelRule { pattern: "/**".into(), history_messages: messages, ..ChannelRule::default() };
    Settings { channels: vec![rule], history_commit: HistoryCommit::Always, ..Settings::default() }
}

fn open(disk: &SimDisk, settings: &Settings, now: Now) -> Result<Life, StoreError> {
    let terms = StoreOptions {
        record_bytes: 2_000,
        memory_bytes: 10_000,
        segment_bytes: 2_000,
        step_bytes: 500,
        ..StoreOptions::new(settings)
    };
    open_with(disk, settings, now, terms)
}

fn open_with(disk: &SimDisk, settings: &Settings, now: Now, terms: StoreOptions) -> Result<Life, StoreError> {
    let mut recovery = Recovery::new(settings, now);
    let (history_store, _) = HistoryStore::open(disk.clone(), terms, 7, &mut recovery)?;
    let histories = Histories::new(2);
    let recovered = recovery.restore(&histories, ROOM);
    Ok(Life { histories, history_store, recovered, settings: settings.clone(), now, room: ROOM, tokens: 0 })
}

fn at(ms: u64) -> Now {
    Now { ms: START_MS + ms, wall_ms: WALL_MS + ms }
}

fn start(disk: &SimDisk, settings: &Settings, ms: u64) -> Life {
    open(disk, settings, at(ms)).unwrap_or_else(|error| panic!("it starts: {error}"))
}

impl Life {
    /// Publishes, and passes the record to the store. Returns the offset of the first message.
    fn publish_as(&mut self, channel: &str, except: Option<Id>, texts: &[&str]) -> u64 {
        let terms = self.settings.channels[0].history().expect("a history");
        let birth = Birth { channel, rule: "/**", terms, room: self.room, now: self.now, entropy: &mut entropy() };
        let side = if except.is_some() { Side::Client } else { Side::Server };
        let position = self.histories.append(birth, side, except, texts.iter().copied()).expect("room");
        let record = log_record::burst(channel, &position, side, except, texts.iter().copied());
        self.tokens += 1;
        self.history_store.take(PersistRequest { record, token: Some(PublishToken { shard: 0, number: self.tokens }) });
        position.first
    }

    fn publish(&mut self, channel: &str, text: &str) -> u64 {
        self.publish_as(channel, None, &[text])
    }

    /// Commits a few times. Returns for each record since the last call if it is persisted.
    fn commit(&mut self) -> Vec<bool> {
        for _ in 0..100 {
            self.history_store.commit(self.now.ms, &self.histories);
            if self.history_store.due_ms() != Some(0) {
                break;
            }
        }
        self.history_store.answers().iter().map(|answer| answer.is_persisted).collect()
    }

    /// The retained part of a channel's history: its epoch, offset and text of each message, the oldest and the next
    /// offset.
    fn ring(&self, channel: &str) -> (Arc<str>, Vec<(u64, String)>, u64, u64) {
        let key = self.histories.find(channel, 0).expect("a ring").ring;
        let look = |ring: &encke_core::history::Ring| {
            let messages = ring.from(0).map(|entry| (entry.offset, entry.text.to_string())).collect();
            (ring.epoch().clone(), messages, ring.oldest(), ring.next())
        };
        self.histories.with(key, look).expect("a ring")
    }

    fn texts(&self, channel: &str) -> Vec<String> {
        self.ring(channel).1.into_iter().map(|(_, text)| text).collect()
    }
}

#[test]
fn after_a_kill_stored_messages_return_with_epoch_offset_and_publisher() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(10), 0);
    let publisher = Id::new(0, &mut entropy());
    life.publish("/a", "1");
    life.publish_as("/a", Some(publisher), &["2", "3"]);
    life.publish("/b/c", "4");
    assert_eq!(life.commit(), [true; 3]);
    let (before, other) = (life.ring("/a"), life.ring("/b/c"));
    disk.crash();
    let later = start(&disk, &rules(10), 0);
    assert_eq!(later.recovered, Recovered { channels: 2, messages: 4, is_clean: false, left_out: 0 });
    let after = later.ring("/a");
    assert_eq!((&after.0, &after.1, after.2), (&before.0, &before.1, before.2));
    assert!(after.3 >= before.3 + (1 << 20), "numbers that somebody may have seen are left out");
    assert_eq!(later.texts("/b/c"), ["4"]);
    assert!(later.histories.floor() >= other.3.max(before.3) + (1 << 20));
    let key = later.histories.find("/a", 0).expect("a ring").ring;
    let makers = later
        .histories
        .with(key, |ring| ring.from(0).map(|entry| (entry.side, entry.except.as_deref().copied())).collect::<Vec<_>>());
    let by_client = (Side::Client, Some(publisher));
    assert_eq!(makers, Some(vec![(Side::Server, None), by_client, by_client]));
    disk.crash();
    let without = start(&disk, &Settings::default(), 0).recovered;
    assert_eq!((without.channels, without.left_out), (0, 2), "no rule gives them a history now");
}

#[test]
fn after_a_clean_end_offsets_continue() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(10), 0);
    life.publish("/a", "1");
    assert!(life.history_store.close(&life.histories));
    assert_eq!(life.history_store.answers().len(), 1);
    let before = life.ring("/a");
    drop(life);
    let mut later = start(&disk, &rules(10), 60_000);
    assert!(later.recovered.is_clean);
    assert_eq!(later.ring("/a"), before);
    assert_eq!(later.publish("/a", "2"), before.3);
    // Offsets that were assigned and never written must not be assigned again: the mark is not the last record any
    // more.
    drop(later);
    let last = start(&disk, &rules(10), 0);
    assert!(!last.recovered.is_clean && last.ring("/a").3 > before.3 + 1);
}

#[test]
fn two_runs_without_a_message_do_not_assign_the_same_offsets() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(10), 0);
    life.publish("/a", "1");
    life.commit();
    disk.crash();
    // The clock was set back by a day, so it does not help.
    let back = Now { wall_ms: WALL_MS - 86_400_000, ..at(0) };
    let second = open(&disk, &rules(10), back).unwrap_or_else(|error| panic!("{error}")).ring("/a").3;
    disk.crash();
    let third = open(&disk, &rules(10), back).unwrap_or_else(|error| panic!("{error}")).ring("/a").3;
    assert!(third >= second + (1 << 20), "{second} {third}");
}

#[test]
fn a_clean_end_after_a_leap_does_not_undo_it() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(10), 0);
    life.publish("/a", "1");
    life.commit();
    disk.crash();
    let mut second = start(&disk, &rules(10), 5_000);
    let next = second.ring("/a").3;
    assert!(second.history_store.close(&second.histories));
    drop(second);
    assert_eq!(start(&disk, &rules(10), 6_000).ring("/a").3, next);
}

#[test]
fn the_current_rules_apply_at_recovery() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(10), 0);
    for text in ["1", "2", "3"] {
        life.publish("/a", text);
    }
    life.publish("/b", "4");
    life.commit();
    drop(life);
    assert_eq!(start(&disk, &rules(2), 0).texts("/a"), ["2", "3"]);
    let mut few = rules(10);
    few.channels[0].pattern = "/a".into();
    let life = start(&disk, &few, 0);
    assert_eq!((life.texts("/a").len(), life.histories.find("/b", 0).is_none()), (3, true));
    assert!(life.histories.floor() > 0);
}

#[test]
fn ages_continue_by_the_wall_clock_and_future_messages_are_new() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(10), 0);
    life.publish("/a", "1");
    life.now = at(400_000);
    life.publish("/a", "2");
    life.commit();
    drop(life);
    let texts = |wall_ms| {
        let life = open(&disk, &rules(10), Now { ms: START_MS, wall_ms }).unwrap_or_else(|error| panic!("{error}"));
        let texts = life.texts("/a");
        // By default messages are retained for ten minutes.
        life.histories.sweep(life.histories.owner("/a"), ROOM, START_MS + 599_999);
        (texts, life.texts("/a").len())
    };
    assert_eq!(texts(WALL_MS + 600_000), (vec!["2".into()], 0));
    assert_eq!(texts(WALL_MS - 1_000_000_000), (vec!["1".into(), "2".into()], 2));
    assert_eq!(texts(WALL_MS + 1_000_000_000), (vec![], 0));
}

#[test]
fn a_full_disk_is_reported_and_refused_messages_are_stored_when_there_is_room() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(1_000), 0);
    life.publish("/a", "1");
    assert_eq!(life.commit(), [true]);
    disk.faults(|faults| faults.space_bytes = Some(0));
    for number in 2..200 {
        life.publish("/a", &format!("{number} {}", "x".repeat(100)));
        assert_eq!(life.commit(), [false], "{number}");
    }
    assert_eq!(life.texts("/a").len(), 199, "delivery and replay go on");
    assert!(life.history_store.figures().failures > 0);
    disk.faults(|faults| faults.space_bytes = None);
    life.now = at(10_000);
    life.commit();
    life.publish("/a", "200");
    assert_eq!(life.commit(), [true]);
    let before = life.ring("/a");
    assert!(life.history_store.close(&life.histories), "nothing is missing any more");
    drop(life);
    assert_eq!(start(&disk, &rules(1_000), 0).ring("/a"), before);
}

#[test]
fn offsets_of_refused_messages_are_not_assigned_again() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(10), 0);
    life.publish("/a", "1");
    let long = life.publish("/a", &"x".repeat(3_000));
    assert_eq!(life.commit(), [false, true]);
    assert!(!life.history_store.close(&life.histories));
    drop(life);
    let later = start(&disk, &rules(10), 0);
    assert_eq!(later.texts("/a"), ["1"]);
    assert!(later.ring("/a").3 > long + 1);
}

#[test]
fn a_message_too_long_for_a_record_is_not_stored_and_causes_no_endless_retries() {
    let mut settings = Settings { message_bytes_max: 64 << 20, ..rules(10) };
    settings.channels[0].history_bytes = 64 << 20;
    let disk = SimDisk::new(1);
    let mut life =
        open_with(&disk, &settings, at(0), StoreOptions::new(&settings)).unwrap_or_else(|error| panic!("{error}"));
    life.publish("/a", "1");
    life.publish("/a", &"x".repeat(journal::RECORD_BYTES_MAX));
    life.publish("/a", "3");
    assert_eq!(life.commit(), [false, true, true]);
    life.history_store.missed();
    life.commit();
    assert_eq!((life.history_store.due_ms(), life.history_store.figures().compactions), (None, 1));
    assert!(life.history_store.figures().bytes < 10_000, "{:?}", life.history_store.figures());
    drop(life);
    assert_eq!(start(&disk, &settings, 0).texts("/a"), ["1", "3"]);
}

#[test]
fn a_sync_that_works_at_the_second_try_is_counted() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(10), 0);
    life.publish("/a", "1");
    disk.faults(|faults| faults.failing_syncs = 1);
    assert_eq!(life.commit(), [true]);
    assert_eq!((life.history_store.figures().given_up, life.history_store.figures().failures), (1, 0));
}

#[test]
fn a_long_log_is_compacted_without_a_change_of_its_contents() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(20), 0);
    let channels: Vec<String> = (0..10).map(|channel| format!("/a/{channel}")).collect();
    for round in 0..2_000 {
        life.publish(&channels[round % 9], &format!("{round} {}", "x".repeat(round % 50)));
        if round == 1_000 {
            // It publishes nothing after this.
            life.publish(&channels[9], "once");
        }
        assert!(life.commit().iter().all(|is_persisted| *is_persisted));
        assert!(life.history_store.figures().bytes < 60_000, "{:?}", life.history_store.figures());
    }
    assert!(life.history_store.figures().compactions > 5);
    let before: Vec<_> = channels.iter().map(|channel| life.ring(channel)).collect();
    disk.crash();
    let later = start(&disk, &rules(20), 0);
    for (channel, before) in channels.iter().zip(before) {
        let after = later.ring(channel);
        assert_eq!((after.0, after.1), (before.0, before.1), "{channel}");
        // The log may have slightly more than the ring had.
        assert!(after.2 <= before.2, "{channel}");
    }
}

#[test]
fn records_that_arrive_twice_or_late_change_nothing() {
    let settings = rules(3);
    let message =
        |offset: u64, text| LoggedMessage { offset, wall_ms: WALL_MS, side: Side::Client, except: None, text };
    let part = |epoch, from, messages: Vec<LoggedMessage<'static>>| {
        let next = messages.last().map_or(from, |message| message.offset + 1);
        Part { channel: "/a", epoch, from, next, messages }
    };
    let texts = ["0", "1", "2", "3", "4", "5", "6"];
    let burst = |first: u64, last: u64| {
        let messages = (first..=last).map(|number| message(number, texts[number as usize]));
        Record::Burst(part("later", first, messages.collect()))
    };
    let old_life = Record::Burst(part("before", 1, vec![message(1, "old")]));
    let orders = [
        vec![burst(3, 3), burst(4, 4), burst(5, 6)],
        vec![old_life.clone(), burst(4, 6), burst(3, 3), burst(4, 4), old_life],
        vec![burst(5, 6), Record::State(part("later", 3, vec![message(3, "3"), message(4, "4")])), burst(5, 6)],
        vec![Record::State(part("later", 1, vec![])), burst(2, 4), burst(2, 6)],
        vec![burst(2, 6), Record::State(part("later", 2, vec![])), Record::Burst(part("later", 2, vec![]))],
    ];
    for order in orders {
        let mut recovery = Recovery::new(&settings, at(0));
        for (at, record) in order.iter().enumerate() {
            recovery.read(Position(at as u64 + 1), &record.encode());
        }
        let histories = Histories::new(1);
        recovery.restore(&histories, ROOM);
        let key = histories.find("/a", 0).expect("a ring").ring;
        let found = histories.with(key, |ring| {
            let texts: Vec<_> = ring.from(0).map(|entry| entry.text.to_string()).collect();
            (ring.epoch().to_string(), ring.oldest(), texts)
        });
        assert_eq!(found, Some(("later".into(), 4, vec!["4".into(), "5".into(), "6".into()])), "{order:?}");
    }
}

#[test]
fn a_read_only_or_broken_disk_is_refused_at_the_start() {
    let disk = SimDisk::new(1);
    start(&disk, &rules(10), 0);
    disk.faults(|faults| faults.read_only = true);
    let error = open(&disk, &rules(10), at(0)).err().expect("refused").to_string();
    assert!(error.starts_with("cannot lock lock: ") && error.contains("read-only"), "{error}");
    disk.faults(|faults| (faults.read_only, faults.failing_writes) = (false, 10));
    let error = open(&disk, &rules(10), at(0)).err().expect("refused").to_string();
    assert!(error.starts_with("cannot write 00000000000000000001.journal: "), "{error}");
}

#[test]
fn a_start_on_a_full_disk_restores_histories_and_nothing_counts_as_stored_until_there_is_room() {
    for (is_clean, has_room_again) in [(false, false), (true, false), (false, true), (true, true)] {
        let disk = SimDisk::new(1);
        let mut life = start(&disk, &rules(10), 0);
        life.publish("/a", "1");
        life.commit();
        if is_clean {
            life.history_store.close(&life.histories);
        }
        drop(life);
        disk.faults(|faults| faults.space_bytes = Some(0));
        // The clock stands still, so offsets cannot rely on it.
        let mut full = start(&disk, &rules(10), 0);
        assert_eq!(full.texts("/a"), ["1"]);
        let given = full.publish("/a", "2");
        assert_eq!(full.commit(), [false]);
        assert!(full.history_store.figures().failures > 0);
        if has_room_again {
            disk.faults(|faults| faults.space_bytes = None);
            full.now = at(10_000);
            full.commit();
            full.publish("/a", "3");
            assert_eq!(full.commit(), [true]);
        }
        let last = full.ring("/a").3;
        disk.kill();
        drop(full);
        let mut next = start(&disk, &rules(10), 0);
        let texts = next.texts("/a");
        assert_eq!((texts[0].as_str(), texts.last().map(String::as_str) == Some("3")), ("1", has_room_again));
        let number = next.publish("/a", "4");
        assert!(number != given && (!has_room_again || number >= last), "{number} {given} {last}");
    }
}

#[test]
fn a_log_of_another_version_is_refused() {
    let disk = SimDisk::new(1);
    let mut life = start(&disk, &rules(10), 0);
    life.history_store.take(PersistRequest { record: vec![99], token: None });
    life.commit();
    drop(life);
    let error = open(&disk, &rules(10), at(0)).err().expect("refused").to_string();
    assert_eq!(error, "record 2 in 00000000000000000001.journal is of a kind that this version does not know");
}

#[test]
fn after_any_disk_fault_stored_messages_return_once_and_in_order() {
    let mut compactions = 0;
    for seed in 0..300_u64 {
        let disk = SimDisk::new(seed);
        let mut random = seed;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % limit
        };
        // By offset: the text, and true if it was reported as persisted.
        let mut given: Vec<(u64, String, bool)> = Vec::new();
        let (mut ms, mut epoch) = (0, None);
        // With short histories the log is compacted repeatedly; messages evicted from memory need not come back.
        let settings = rules([100_000, 5][seed as usize % 2]);
        let mut oldest = 0;
        for _life in 0..4 {
            let mut life = start(&disk, &settings, ms);
            if let Some(found) = life.histories.find("/a", 0) {
                let (texts, next) = (life.ring("/a").1, life.ring("/a").3);
                let wanted = given.iter().filter(|(number, _, is_persisted)| *is_persisted && *number >= oldest);
                let mut wanted = wanted.map(|(number, text, _)| (*number, text));
                assert!(wanted.all(|(number, text)| texts.contains(&(number, text.clone()))), "seed {seed}");
                assert!(texts.is_sorted_by(|one, two| one.0 < two.0), "seed {seed}");
                assert!(given.iter().all(|(number, ..)| *number < next), "seed {seed}: numbers come again");
                assert_eq!(epoch.get_or_insert(found.epoch.clone()), &found.epoch, "seed {seed}");
            } else {
                assert!(given.iter().all(|(.., is_persisted)| !is_persisted), "seed {seed}");
            }
            for _ in 0..below(60) {
                ms += 400;
                life.now = at(ms);
                disk.faults(|faults| match below(12) {
                    0 => faults.failing_syncs = below(3) as u32,
                    1 => faults.failing_writes = below(3) as u32,
                    2 => faults.space_bytes = Some(below(20_000)),
                    3 => faults.space_bytes = None,
                    4 => faults.stutter = true,
                    _ => {}
                });
                let group = below(4);
                for _ in 0..group {
                    let text = format!("{} {}", given.len(), "x".repeat(below(400) as usize));
                    let number = life.publish("/a", &text);
                    given.push((number, text, false));
                }
                let answers = life.commit();
                assert_eq!(answers.len() as u64, group, "seed {seed}: each is answered");
                let first = given.len() - group as usize;
                // Refused ones are answered first; the answers can be compared only if all are equal.
                if answers.iter().all(|is_persisted| *is_persisted) {
                    given[first..].iter_mut().for_each(|given| given.2 = true);
                }
            }
            disk.faults(|faults| *faults = Default::default());
            oldest = life.histories.find("/a", 0).map_or(oldest, |_| life.ring("/a").2);
            compactions += life.history_store.figures().compactions;
            match below(3) {
                0 => disk.crash(),
                1 => disk.kill(),
                _ => _ = life.history_store.close(&life.histories),
            }
        }
    }
    assert!(compactions > 300, "{compactions}");
}

fn entropy() -> Entropy {
    Box::new(|bytes| getrandom::fill(bytes).expect("the kernel gives random bytes"))
}
