//! Torn records are cut, damaged ones are refused, and both are reported.

mod common;

use common::{SMALL, append, disk_with, name, open, record};
use journal::{Disk, Error, Journal, Options, Position, probe};
use simulated_disk::SimDisk;

/// One segment for all.
const LARGE: Options = Options { segment_bytes: 1 << 20, ..SMALL };

/// The offset of the damage in the error.
fn damage(disk: &SimDisk, options: Options) -> (String, u64) {
    match open(disk.clone(), options) {
        Err(Error::Damaged { file, offset, .. }) => (file.display().to_string(), offset),
        Err(error) => panic!("another error: {error}"),
        Ok((_, opened)) => panic!("it was opened: {opened:?}"),
    }
}

/// The beginning of each record of the only segment, and the end of the last one.
fn borders(records: u64) -> Vec<u64> {
    let mut at = 40;
    let mut borders = vec![at];
    for position in 1..=records {
        at += 20 + record(position).len() as u64;
        borders.push(at);
    }
    borders
}

#[test]
fn a_flipped_bit_anywhere_in_a_middle_segment_is_refused_with_file_and_offset() {
    let disk = disk_with(40, SMALL);
    let (journal, _) = open(disk.clone(), SMALL).expect("whole");
    let segments: Vec<_> = journal.segments().collect();
    drop(journal);
    assert!(segments.len() > 4, "{segments:?}");
    let (middle, after) = (segments[1], segments[2]);
    let mut offset = 40;
    let mut records = vec![0, 40];
    for position in middle.first.0..after.first.0 {
        offset += 20 + record(position).len();
        records.push(offset);
    }
    let length = disk.contents(&name(2)).expect("it exists").len();
    assert_eq!(length, offset);
    for byte in 0..length {
        disk.flip(&name(2), byte, (byte % 8) as u8);
        let begin = records.iter().rev().find(|begin| **begin <= byte).expect("0 is before all");
        assert_eq!(damage(&disk, SMALL), (name(2), *begin as u64), "byte {byte}");
        disk.flip(&name(2), byte, (byte % 8) as u8);
    }
    open(disk, SMALL).expect("whole again");
}

#[test]
fn the_error_is_one_clear_line() {
    let disk = disk_with(40, SMALL);
    disk.flip(&name(2), 70, 0);
    let error = open(disk, SMALL).err().expect("damaged").to_string();
    let text = "00000000000000000002.journal is damaged at offset 40: expected record ";
    assert!(error.starts_with(text) && error.ends_with(", found bytes that are no whole record"), "{error}");
}

#[test]
fn a_shortened_or_missing_middle_segment_is_refused() {
    let disk = disk_with(40, SMALL);
    let whole = disk.contents(&name(2)).expect("it exists");
    for bytes in 0..whole.len() {
        disk.put(&name(2), &whole[..bytes]);
        assert_eq!(damage(&disk, SMALL).0, name(2), "{bytes} bytes");
    }
    disk.remove(&name(2)).expect("it exists");
    // The list of segments shows that it is missing; without the list the numbers do.
    assert!(matches!(open(disk.clone(), SMALL), Err(Error::Missing { file, .. }) if file == disk.path(&name(2))));
    let list = disk.list().expect("names").into_iter().find(|name| name.ends_with(".segments")).expect("a list");
    disk.remove(&list).expect("it exists");
    assert_eq!(damage(&disk, SMALL), (name(2), 0));
}

#[test]
fn a_file_cut_at_any_byte_opens_with_exactly_the_whole_records() {
    let whole = disk_with(12, LARGE).contents(&name(1)).expect("it exists");
    let borders = borders(12);
    for bytes in 0..=whole.len() {
        let disk = SimDisk::new(1);
        disk.put(&name(1), &whole[..bytes]);
        if bytes < 40 {
            assert_eq!(damage(&disk, LARGE), (name(1), 0), "a segment has its name when its header is on the disk");
            continue;
        }
        let (mut journal, opened) = open(disk.clone(), LARGE).expect("a torn end is no damage");
        let records = borders.iter().filter(|border| **border <= bytes as u64).count().saturating_sub(1);
        assert_eq!(opened.records, records as u64, "{bytes} bytes");
        let end = borders[records];
        match &opened.cut[..] {
            [] => assert_eq!(bytes as u64, end, "something was cut"),
            [cut] => assert_eq!((cut.offset, cut.offset + cut.bytes), (end, bytes as u64)),
            more => panic!("{more:?}"),
        }
        append(&mut journal, 3);
        drop(journal);
        assert_eq!(open(disk, LARGE).expect("whole").1.last, Position(records as u64 + 3), "goes on behind the cut");
    }
}

#[test]
fn zeros_at_the_end_are_torn_not_damaged() {
    for zeros in [1, 19, 20, 511, 5000] {
        let disk = disk_with(5, LARGE);
        let mut bytes = disk.contents(&name(1)).expect("it exists");
        let end = bytes.len() as u64;
        bytes.resize(bytes.len() + zeros, 0);
        disk.put(&name(1), &bytes);
        let (_, opened) = open(disk, LARGE).expect("it opens");
        assert_eq!((opened.records, opened.cut[0].offset, opened.cut[0].bytes), (5, end, zeros as u64));
        let said = format!("cut {zeros} bytes that were never known to be synced off {} at offset {end}", name(1));
        assert_eq!(opened.cut[0].to_string(), said);
    }
}

#[test]
fn a_torn_record_before_whole_ones_of_the_same_sync_is_cut_with_them() {
    let disk = SimDisk::new(1);
    let (mut journal, _) = open(disk.clone(), LARGE).expect("it opens");
    append(&mut journal, 4);
    for position in 5..=9 {
        journal.append(&record(position)).expect("there is room");
    }
    journal.write().expect("the disk works");
    drop(journal);
    disk.flip(&name(1), borders(6)[5] as usize + 25, 3);
    let (_, opened) = open(disk, LARGE).expect("none of them was ever confirmed");
    assert_eq!((opened.records, opened.cut[0].offset), (5, borders(5)[5]));
}

#[test]
fn a_flipped_bit_in_the_last_segment_is_damage_where_a_later_record_proves_it() {
    let disk = disk_with(12, LARGE);
    let borders = borders(12);
    for byte in 40..borders[11] as usize {
        disk.flip(&name(1), byte, (byte % 8) as u8);
        let begin = *borders.iter().rev().find(|border| **border <= byte as u64).expect("40 is before all");
        assert_eq!(damage(&disk, LARGE), (name(1), begin), "byte {byte}");
        disk.flip(&name(1), byte, (byte % 8) as u8);
    }
    for byte in 0..40 {
        disk.flip(&name(1), byte, (byte % 8) as u8);
        assert_eq!(damage(&disk, LARGE), (name(1), 0), "byte {byte} of the header");
        disk.flip(&name(1), byte, (byte % 8) as u8);
    }
}

#[test]
fn a_payload_that_holds_records_of_another_journal_proves_nothing() {
    let forged = disk_with(12, Options { salt: 99, ..LARGE }).contents(&name(1)).expect("it exists");
    let disk = SimDisk::new(1);
    let (mut journal, _) = Journal::open(disk.clone(), LARGE, &mut |_, _| {}).expect("it opens");
    journal.append(&forged).expect("there is room");
    journal.sync().expect("the disk works");
    disk.flip(&name(1), 45, 0);
    drop(journal);
    let (_, opened) = Journal::open(disk, LARGE, &mut |_, _| {}).expect("a missing last sync looks like a torn one");
    assert_eq!((opened.records, opened.cut.len()), (0, 1));
}

#[test]
fn an_incomplete_new_segment_is_removed() {
    let disk = disk_with(20, SMALL);
    let whole = disk.contents(&name(2)).expect("it exists");
    for bytes in [0, 1, 39, 40, whole.len()] {
        disk.put("unfinished.journal", &whole[..bytes]);
        let (mut journal, opened) = open(disk.clone(), SMALL).expect("it opens");
        assert_eq!((opened.last, opened.cut, opened.strangers), (Position(20), vec![], vec![]));
        assert_eq!(disk.contents("unfinished.journal"), None);
        assert_eq!(journal.append(&record(21)).expect("there is room"), Position(21));
    }
}

#[test]
fn a_probe_beside_the_writer_reports_why_a_journal_cannot_be_opened() {
    let disk = disk_with(40, SMALL);
    let _writer = open(disk.clone(), SMALL).expect("whole");
    let before = disk.list().expect("it works");
    disk.faults(|faults| faults.stutter = true);
    probe(&disk).expect("whole");
    assert_eq!(disk.list().expect("it works"), before);
    let said = || probe(&disk).expect_err("it is refused").to_string();
    disk.faults(|faults| (faults.stutter, faults.space_bytes) = (false, Some(0)));
    assert!(said().starts_with("cannot write probe: no storage space"), "{}", said());
    assert_eq!(disk.list().expect("it works"), before, "nothing is left behind");
    disk.faults(|faults| (faults.read_only, faults.space_bytes) = (true, None));
    assert!(said().starts_with("cannot write probe: read-only"), "{}", said());
    disk.faults(|faults| faults.read_only = false);
    disk.flip(&name(3), 9, 0);
    assert!(said().starts_with("00000000000000000003.journal is damaged at offset 0"), "{}", said());
}

#[test]
fn another_version_of_the_format_is_refused_and_not_touched() {
    let disk = disk_with(0, LARGE);
    let mut header = disk_with(1, LARGE).contents(&name(1)).expect("it exists")[..36].to_vec();
    header[8] = 2;
    let checksum = crc32c::crc32c(&header);
    header.extend(checksum.to_le_bytes());
    disk.put(&name(1), &header);
    let error = open(disk.clone(), LARGE).err().expect("it is refused").to_string();
    assert!(error.ends_with("at offset 0: expected version 1 of the format, found version 2"), "{error}");
    assert_eq!(disk.contents(&name(1)), Some(header));
}

#[test]
fn a_segment_with_the_name_of_another_is_refused() {
    let disk = disk_with(40, SMALL);
    let other = disk.contents(&name(3)).expect("it exists");
    disk.put(&name(2), &other);
    assert_eq!(damage(&disk, SMALL), (name(2), 0));
}

#[test]
fn a_missing_first_or_last_segment_is_refused_and_named() {
    for which in ["first", "middle", "last"] {
        let disk = disk_with(40, SMALL);
        let (journal, _) = open(disk.clone(), SMALL).expect("it opens");
        let segments: Vec<u64> = journal.segments().map(|segment| segment.number).collect();
        drop(journal);
        let gone = match which {
            "first" => segments[0],
            "middle" => segments[segments.len() / 2],
            _ => segments[segments.len() - 1],
        };
        disk.remove(&name(gone)).expect("it is there");
        let error = open(disk.clone(), SMALL).err().expect("refused").to_string();
        assert!(error.starts_with(&format!("{} is missing: ", name(gone))), "{error}");
    }
}

#[test]
fn a_journal_without_a_list_of_its_segments_opens_and_gets_one() {
    let disk = disk_with(40, SMALL);
    let lists =
        || disk.list().expect("names").into_iter().filter(|name| name.ends_with(".segments")).collect::<Vec<_>>();
    let list = lists();
    assert_eq!(list.len(), 1);
    disk.remove(&list[0]).expect("it is there");
    drop(open(disk.clone(), SMALL).expect("an older version had none"));
    assert_eq!(lists(), list);
}
