//! A disk that is full, read-only or failing; limits; segments that are removed.

mod common;

use common::{SMALL, append, disk_with, name, open, record};
use journal::{Committer, Disk, Error, Journal, Options, Policy, Position, RETRY_MS};
use simulated_disk::{Faults, SimDisk};

/// One segment for all.
const LARGE: Options = Options { segment_bytes: 1 << 20, ..SMALL };

fn message<T>(result: Result<T, Error>) -> String {
    result.err().expect("it fails").to_string()
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_lost_when_there_is_space_again() {
    for space_bytes in 0..900 {
        let disk = SimDisk::new(space_bytes);
        let (mut journal, _) = open(disk.clone(), SMALL).expect("it opens");
        disk.faults(|faults| faults.space_bytes = Some(space_bytes));
        for position in 1..=30 {
            journal.append(&record(position)).expect("memory has room");
            if let Err(error) = journal.write() {
                assert!(error.to_string().contains("no storage space"), "{error}");
            }
        }
        assert!(journal.written() < Position(30), "it was full");
        disk.faults(|faults| faults.space_bytes = None);
        assert_eq!(journal.sync().expect("there is space"), Position(30));
        drop(journal);
        disk.crash();
        let (_, opened) = open(disk, SMALL).expect("no half record is in front of a good one");
        assert_eq!((opened.records, opened.cut.len()), (30, 0));
    }
}

#[test]
fn room_can_be_made_on_a_full_disk() {
    let disk = disk_with(40, SMALL);
    let (mut journal, _) = open(disk.clone(), SMALL).expect("it opens");
    disk.faults(|faults| faults.space_bytes = Some(0));
    journal.append(&record(41)).expect("memory has room");
    assert!(message(journal.sync()).contains("no storage space"));
    assert!(journal.remove_before(Position(30)).expect("deleting needs no space") > 0);
    disk.faults(|faults| faults.space_bytes = Some(1700));
    assert_eq!(journal.sync().expect("there is space"), Position(41));
}

#[test]
fn memory_has_a_limit_and_refused_records_use_no_position() {
    let disk = SimDisk::new(1);
    let options = Options { record_bytes: 1000, memory_bytes: 5000, ..SMALL };
    let (mut journal, _) = open(disk.clone(), options).expect("it opens");
    assert_eq!(message(journal.append(&[0; 1001])), "a record of 1001 bytes is above the limit of 1000 bytes");
    disk.faults(|faults| faults.read_only = true);
    let taken = (1..).take_while(|position| journal.append(&record(*position)).is_ok()).count() as u64;
    assert!(journal.unsynced_bytes() <= 5000);
    assert_eq!(
        message(journal.append(&record(taken + 1))),
        "5000 bytes of records wait for the disk: no more are taken"
    );
    disk.faults(|faults| faults.read_only = false);
    journal.sync().expect("the disk works");
    assert_eq!(journal.append(&record(taken + 1)).expect("there is room again"), Position(taken + 1));
}

#[test]
fn a_write_that_fills_half_the_memory_is_synced() {
    let options = Options { record_bytes: 1000, memory_bytes: 5000, segment_bytes: 1 << 20, ..SMALL };
    let (mut journal, _) = open(SimDisk::new(1), options).expect("it opens");
    for position in 1..=200 {
        journal.append(&record(position)).expect("there is always room");
        journal.write().expect("the disk works");
        assert!(journal.unsynced_bytes() <= 2500);
    }
    assert!(journal.synced() > Position(100));
}

#[test]
fn short_and_interrupted_calls_are_no_errors() {
    let disk = SimDisk::new(1);
    disk.faults(|faults| faults.stutter = true);
    let (mut journal, _) = open(disk.clone(), SMALL).expect("it opens");
    append(&mut journal, 100);
    drop(journal);
    assert_eq!(open(disk, SMALL).expect("it opens").1.records, 100);
}

#[test]
fn a_read_only_directory_is_reported_at_once() {
    let disk = disk_with(3, SMALL);
    disk.faults(|faults| faults.read_only = true);
    assert_eq!(message(open(disk, SMALL)), "cannot lock lock: read-only filesystem or storage medium");
}

#[test]
fn a_second_writer_is_refused() {
    let disk = SimDisk::new(1);
    let first = open(disk.clone(), SMALL).expect("it opens");
    assert_eq!(message(open(disk.clone(), SMALL)), "lock is held by another process: a journal has one writer");
    drop(first);
    open(disk, SMALL).expect("it is free again");
}

#[test]
fn a_failed_sync_is_repeated_in_a_new_segment() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let (mut journal, _) = open(disk.clone(), LARGE).expect("it opens");
        append(&mut journal, 30);
        for position in 31..=60 {
            journal.append(&record(position)).expect("there is room");
        }
        disk.faults(|faults| faults.failing_syncs = 1);
        assert_eq!(journal.sync().expect("the second try works"), Position(60));
        assert_eq!((journal.given_up_segments(), journal.segments().len()), (1, 2));
        append(&mut journal, 1);
        drop(journal);
        disk.crash();
        assert_eq!(open(disk, SMALL).expect("it opens").1.records, 61);
    }
}

#[test]
fn records_of_an_abandoned_segment_never_replace_newer_ones() {
    for seed in 0..500 {
        let disk = SimDisk::new(seed);
        let mut found = Vec::new();
        let mut begin = || {
            found.clear();
            let opened = Journal::open(disk.clone(), SMALL, &mut |_, record| found.push(record.to_vec()));
            (opened.expect("it opens").0, found.clone())
        };
        let (mut journal, _) = begin();
        append(&mut journal, 1);
        // The old record is in the first segment, which is given up, and there is no next one yet.
        journal.append(b"old").expect("there is room");
        disk.faults(|faults| faults.failing_syncs = 2);
        message(journal.sync());
        disk.crash();
        let (mut journal, found) = begin();
        if found.len() == 2 {
            continue;
        }
        // The old record is lost. The new one gets its position, in a segment that is given up, too.
        journal.append(b"new").expect("there is room");
        journal.write().expect("the disk works");
        disk.faults(|faults| (faults.failing_syncs, faults.space_bytes) = (1, Some(0)));
        message(journal.sync());
        disk.crash();
        assert!(!begin().1.contains(&b"old".to_vec()), "seed {seed}");
    }
}

#[test]
fn a_disk_that_never_syncs_is_not_filled_with_abandoned_segments() {
    let disk = disk_with(3, SMALL);
    let (mut journal, _) = open(disk.clone(), SMALL).expect("it opens");
    for position in 4..54 {
        journal.append(&record(position)).expect("there is room");
        // The sync of the data fails or has succeeded; then the sync of the replacing segment fails, or that of its name.
        disk.faults(|faults| (faults.failing_syncs, faults.failing_directory_syncs) = (u32::MAX, 0));
        assert!(message(journal.sync()).starts_with("cannot begin "));
        disk.faults(|faults| (faults.failing_syncs, faults.failing_directory_syncs) = (0, 1));
        assert!(message(journal.write()).starts_with("cannot sync the directory "));
    }
    let segments = disk.list().expect("it works").iter().filter(|name| name.ends_with(".journal")).count();
    assert_eq!(segments, 2, "{:?}", disk.list());
    assert_eq!(journal.synced(), Position(3));
    disk.faults(|faults| *faults = Faults::default());
    assert_eq!(journal.sync().expect("the disk works"), Position(53));
    drop(journal);
    disk.crash();
    assert_eq!(open(disk, SMALL).expect("it opens").1.last, Position(53));
}

/// The process ends in each of the calls that replace a segment whose sync failed.
#[test]
fn written_records_survive_the_end_of_the_process_after_a_failed_sync() {
    for (synced, space_bytes) in [(20, None), (0, None), (20, Some(1500))] {
        for calls in 0..20 {
            let disk = SimDisk::new(u64::from(calls));
            let (mut journal, _) = open(disk.clone(), LARGE).expect("it opens");
            append(&mut journal, synced);
            for position in synced + 1..=30 {
                journal.append(&record(position)).expect("there is room");
            }
            journal.write().expect("the disk works");
            assert_eq!(journal.written(), Position(30));
            disk.faults(|faults| (faults.failing_syncs, faults.space_bytes) = (1, space_bytes));
            disk.faults(|faults| faults.calls_left = Some(calls));
            let _ = journal.sync();
            drop(journal);
            disk.kill();
            let (_, opened) = open(disk, SMALL).expect("it opens");
            assert_eq!(opened.last, Position(30), "{synced} synced, dead after {calls} calls");
        }
    }
}

/// A disk on which 30 records are synced, and 30 more are in the system's cache that a failed sync has lost; the process is killed.
fn disk_with_lost_writes(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let (mut journal, _) = open(disk.clone(), LARGE).expect("it opens");
    append(&mut journal, 30);
    for position in 31..=60 {
        journal.append(&record(position)).expect("there is room");
    }
    disk.faults(|faults| faults.failing_syncs = 2);
    message(journal.sync());
    drop(journal);
    disk.kill();
    disk
}

#[test]
fn records_found_only_in_the_cache_at_a_start_survive_a_later_power_loss() {
    for seed in 0..200 {
        let disk = disk_with_lost_writes(seed);
        let (mut journal, opened) = open(disk.clone(), LARGE).expect("it opens");
        assert_eq!((opened.last, journal.synced()), (Position(60), Position(60)));
        assert_eq!(journal.segments().len(), 1, "starts do not add segments");
        append(&mut journal, 1);
        drop(journal);
        disk.crash();
        assert_eq!(open(disk, LARGE).expect("it opens").1.last, Position(61), "seed {seed}");
    }
}

/// In each call of the start the machine stops, or the process ends and the machine stops after the next start.
#[test]
fn a_start_that_ends_in_the_middle_loses_nothing_that_was_synced() {
    for (seed, calls) in (0..400).map(|seed| (seed, (seed % 20) as u32)) {
        for is_killed_first in [false, true] {
            let disk = disk_with_lost_writes(seed);
            // The first sync of the start may fail, too: then it makes a new segment.
            disk.faults(|faults| (faults.calls_left, faults.failing_syncs) = (Some(calls), (seed % 2) as u32));
            drop(open(disk.clone(), LARGE));
            let least = if is_killed_first {
                disk.kill();
                append(&mut open(disk.clone(), LARGE).expect("it opens").0, 1);
                61
            } else {
                30
            };
            disk.crash();
            let last = open(disk, LARGE).expect("it opens").1.last;
            assert!(last >= Position(least), "seed {seed}: {last} is there, not {least}");
        }
    }
}

#[test]
fn a_journal_opens_on_a_full_disk_and_syncs_unproven_records_later() {
    for seed in 0..200 {
        let disk = disk_with_lost_writes(seed);
        disk.faults(|faults| (faults.failing_syncs, faults.space_bytes) = (1, Some(0)));
        let options = Options { memory_bytes: 0, ..LARGE };
        let (mut journal, opened) = open(disk.clone(), options).expect("it opens");
        assert_eq!((opened.last, journal.synced()), (Position(60), Position(30)));
        assert_eq!(journal.append(&[7; 1000]).expect("memory has room for the longest record"), Position(61));
        assert!(message(journal.sync()).contains("no storage space"));
        disk.faults(|faults| faults.space_bytes = None);
        assert_eq!(journal.sync().expect("there is room"), Position(61));
        drop(journal);
        disk.crash();
        let opened = Journal::open(disk, options, &mut |_, _| {}).expect("it opens").1;
        assert_eq!(opened.last, Position(61), "seed {seed}");
    }
}

#[test]
fn a_segment_that_replaces_the_only_one_has_its_number() {
    let disk = disk_with(40, SMALL);
    let (mut journal, _) = open(disk.clone(), SMALL).expect("it opens");
    journal.remove_before(Position(u64::MAX)).expect("it works");
    drop(journal);
    let last = open(disk.clone(), SMALL).expect("it opens").0.segments().next().expect("the last one stays").number;
    // Its records were lost without a trace: nothing in it was ever synced.
    let header = disk.contents(&name(last)).expect("it is there")[..40].to_vec();
    disk.put(&name(last), &header);
    let (mut journal, opened) = Journal::open(disk.clone(), SMALL, &mut |_, _| {}).expect("it opens");
    let next = opened.last.next();
    journal.append(&record(next.0)).expect("there is room");
    journal.write().expect("the disk works");
    disk.faults(|faults| faults.failing_syncs = 1);
    journal.sync().expect("the second try works");
    let files: Vec<String> =
        disk.list().expect("it works").into_iter().filter(|name| name.ends_with("journal")).collect();
    assert_eq!(files, [name(last)]);
    drop(journal);
    assert_eq!(open(disk, SMALL).expect("no gap").1.last, next);
}

#[test]
fn old_segments_are_removed_whole_and_the_last_one_stays() {
    let disk = disk_with(40, SMALL);
    let (mut journal, _) = open(disk.clone(), SMALL).expect("it opens");
    let segments: Vec<_> = journal.segments().collect();
    let third = segments[2].first;
    assert_eq!(journal.remove_before(third).expect("it works"), 2);
    assert_eq!(journal.remove_before(third.next()).expect("it works"), 0, "the third still holds it");
    drop(journal);
    disk.crash();
    let (mut journal, opened) = open(disk.clone(), SMALL).expect("no gap");
    assert_eq!((opened.first, opened.last), (third, Position(40)));
    journal.remove_before(Position(u64::MAX)).expect("it works");
    assert_eq!(journal.segments().len(), 1);
    drop(journal);
    assert_eq!(open(disk, SMALL).expect("it opens").1.last, Position(40), "positions go on");
}

#[test]
fn foreign_files_are_reported_and_not_changed() {
    let disk = disk_with(3, SMALL);
    let names = ["notes.txt", "1.journal", "00000000000000000001.journal~", "+0000000000000000001.journal"];
    for name in names {
        disk.put(name, b"mine");
    }
    let (_, opened) = open(disk.clone(), SMALL).expect("it opens");
    assert_eq!(opened.strangers.len(), names.len(), "{:?}", opened.strangers);
    for name in names {
        assert_eq!(disk.contents(name).as_deref(), Some(&b"mine"[..]));
    }
    assert!(disk.contents(&name(1)).is_some());
}

#[test]
fn each_policy_confirms_what_it_promises() {
    let (mut journal, _) = open(disk_with(1, SMALL), SMALL).expect("it opens");
    let (mut os, mut always) = (Committer::new(Policy::Os), Committer::new(Policy::Always));
    journal.append(&record(2)).expect("there is room");
    assert_eq!(os.commit(&mut journal, 0).expect("it works"), Position(2));
    assert_eq!((journal.synced(), os.due_ms()), (Position(1), None));
    assert_eq!(always.commit(&mut journal, 0).expect("it works"), Position(2));
    assert_eq!((journal.synced(), always.due_ms()), (Position(2), None));
}

#[test]
fn the_interval_holds_even_if_the_clock_jumps() {
    let (mut journal, _) = open(disk_with(1, SMALL), SMALL).expect("it opens");
    let mut committer = Committer::new(Policy::Interval { ms: 100 });
    let mut at = |position: u64, now_ms: u64| {
        if journal.appended() < Position(position) {
            journal.append(&record(position)).expect("there is room");
        }
        assert_eq!(
            committer.commit(&mut journal, now_ms).expect("it works"),
            Position(position),
            "a written record counts"
        );
        (journal.synced().0, committer.due_ms())
    };
    assert_eq!(at(2, 1000), (1, Some(1100)));
    assert_eq!(at(3, 1099), (1, Some(1100)));
    assert_eq!(at(3, 1100), (3, None), "nothing waits");
    assert_eq!(at(4, 5000), (3, Some(5100)));
    assert_eq!(at(5, 10), (3, Some(110)), "back: the interval starts again");
    assert_eq!(at(5, 9_000_000), (5, None), "forward: it is due");
}

#[test]
fn after_an_error_the_disk_is_not_used_for_a_while() {
    let disk = SimDisk::new(1);
    let (mut journal, _) = open(disk.clone(), SMALL).expect("it opens");
    let mut committer = Committer::new(Policy::Always);
    journal.append(&record(1)).expect("there is room");
    disk.faults(|faults| faults.space_bytes = Some(10));
    message(committer.commit(&mut journal, 500));
    assert_eq!(committer.due_ms(), Some(500 + RETRY_MS));
    disk.faults(|faults| faults.space_bytes = None);
    assert_eq!(committer.commit(&mut journal, 501).expect("no error twice"), Position(0));
    assert_eq!(committer.commit(&mut journal, 500 + RETRY_MS).expect("it works again"), Position(1));
    assert_eq!(committer.due_ms(), None);
}
