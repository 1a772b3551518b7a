//! Journals on a simulated disk, small enough to break at every byte.
#![allow(dead_code, reason = "each test file uses some of it")]

use journal::{Disk, Error, Journal, Opened, Options};
use simulated_disk::SimDisk;

/// Segments of some 300 bytes.
pub const SMALL: Options =
    Options { record_bytes: 1000, memory_bytes: 100_000, segment_bytes: 300, salt: 0x1234_5678_9abc };

/// The record at a position.
pub fn record(position: u64) -> Vec<u8> {
    format!("record {position} {}", "x".repeat(position as usize % 40)).into_bytes()
}

/// Opens the journal on the disk, and checks that each record belongs to its position.
pub fn open<D: Disk>(disk: D, options: Options) -> Result<(Journal<D>, Opened), Error> {
    Journal::open(disk, options, &mut |at, bytes| assert_eq!(bytes, record(at.0), "record {at}"))
}

/// A disk with this number of records, each synced separately.
pub fn disk_with(records: u64, options: Options) -> SimDisk {
    let disk = SimDisk::new(1);
    let (mut journal, _) = open(disk.clone(), options).expect("an empty disk opens");
    append(&mut journal, records);
    disk
}

/// Appends and syncs records, one by one.
pub fn append<D: Disk>(journal: &mut Journal<D>, records: u64) {
    for _ in 0..records {
        let position = journal.appended().next();
        journal.append(&record(position.0)).expect("there is room");
        journal.sync().expect("the disk works");
    }
}

/// The name of a segment's file.
pub fn name(number: u64) -> String {
    format!("{number:020}.journal")
}
