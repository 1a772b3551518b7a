//! Any faults in any order: the synced records come back, in order and byte for byte, and nothing else.

use journal::{Error, Journal, Options, Position};
use proptest::prelude::*;
use simulated_disk::SimDisk;

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Write,
    Sync,
    /// The machine stops.
    Crash,
    /// The process is killed.
    Kill,
    RemoveUpToSynced,
    FailSyncs(u32),
    FailDirectorySync,
    FailWrite,
    Space(Option<u64>),
    ReadOnly(bool),
    Stutter(bool),
    /// The process is killed in one of the calls that follow.
    Die(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..700usize).prop_map(Step::Append),
        4 => Just(Step::Write),
        4 => Just(Step::Sync),
        2 => Just(Step::Crash),
        1 => Just(Step::Kill),
        1 => Just(Step::RemoveUpToSynced),
        1 => (1..4u32).prop_map(Step::FailSyncs),
        1 => Just(Step::FailDirectorySync),
        1 => Just(Step::FailWrite),
        1 => prop_oneof![Just(None), (0..20_000u64).prop_map(Some)].prop_map(Step::Space),
        1 => any::<bool>().prop_map(Step::ReadOnly),
        1 => any::<bool>().prop_map(Step::Stutter),
        1 => (0..12u32).prop_map(Step::Die),
    ]
}

/// A journal and its expected contents.
struct World {
    disk: SimDisk,
    journal: Option<Journal<SimDisk>>,
    /// All records that may be present, the first one at position 1.
    records: Vec<Vec<u8>>,
    promised: usize,
    /// The number of records that survive the end of the process.
    written: usize,
    /// The last position that removed segments may contain.
    removed: usize,
    /// Makes each record unique, including lost ones.
    stamp: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let disk = SimDisk::new(seed);
        let mut world =
            World { disk, journal: None, records: Vec::new(), promised: 0, written: 0, removed: 0, stamp: 0 };
        world.open();
        world
    }

    fn journal(&mut self) -> &mut Journal<SimDisk> {
        self.journal.as_mut().expect("always opened again")
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Append(bytes) => self.append(bytes),
            Step::Write => drop(self.journal().write()),
            Step::Sync => match self.journal().sync() {
                Ok(synced) => assert_eq!(synced.0 as usize, self.records.len(), "all is synced"),
                Err(error) => assert!(matches!(error, Error::Io { .. }), "{error}"),
            },
            Step::RemoveUpToSynced => {
                let position = self.journal().synced();
                self.removed = position.0 as usize;
                drop(self.journal().remove_before(position));
            }
            Step::FailSyncs(times) => self.disk.faults(|faults| faults.failing_syncs = times),
            Step::FailDirectorySync => self.disk.faults(|faults| faults.failing_directory_syncs = 1),
            Step::FailWrite => self.disk.faults(|faults| faults.failing_writes = 1),
            Step::Space(space_bytes) => self.disk.faults(|faults| faults.space_bytes = space_bytes),
            Step::ReadOnly(read_only) => self.disk.faults(|faults| faults.read_only = read_only),
            Step::Stutter(stutter) => self.disk.faults(|faults| faults.stutter = stutter),
            Step::Die(calls) => self.disk.faults(|faults| faults.calls_left = Some(calls)),
            Step::Kill => {
                self.disk.kill();
                self.open();
                assert!(self.records.len() >= self.written, "{} were written", self.written);
            }
            Step::Crash => {
                self.disk.crash();
                self.open();
                self.written = 0;
            }
        }
        let written = self.journal().written().0 as usize;
        self.written = self.written.max(written);
        let (promised, synced) = (self.promised, self.journal().synced().0 as usize);
        assert!(synced >= promised, "what was synced stays synced");
        self.promised = synced;
    }

    fn append(&mut self, bytes: usize) {
        self.stamp += 1;
        let mut record: Vec<u8> = self.stamp.to_le_bytes().to_vec();
        // Zeros, too: a lost sector reads as zeros.
        record.extend(
            (0..bytes).map(|index| if self.stamp.is_multiple_of(3) { 0 } else { (index as u64 * self.stamp) as u8 }),
        );
        match self.journal().append(&record) {
            Ok(position) => {
                self.records.push(record);
                assert_eq!(position.0 as usize, self.records.len(), "no gap in the positions");
            }
            Err(error) => assert!(matches!(error, Error::Full { .. }), "{error}"),
        }
    }

    fn open(&mut self) {
        self.journal = None;
        let mut found: Vec<(Position, Vec<u8>)> = Vec::new();
        let options = Options { record_bytes: 1000, memory_bytes: 12_000, segment_bytes: 3000, salt: 7 };
        let opened = Journal::open(self.disk.clone(), options, &mut |at, record| found.push((at, record.to_vec())));
        let (journal, opened) = opened.unwrap_or_else(|error| panic!("it opens: {error}"));
        assert!(opened.first.0 as usize <= self.removed + 1, "only what was removed is gone");
        assert!(opened.last.0 as usize >= self.promised, "{} is there, not {}", opened.last, self.promised);
        assert_eq!(opened.records as usize, found.len());
        for (index, (position, record)) in found.iter().enumerate() {
            assert_eq!(position.0, opened.first.0 + index as u64, "no gap");
            assert_eq!(
                record,
                &self.records[position.0 as usize - 1],
                "record {position} is the one that was appended"
            );
        }
        self.records.truncate(opened.last.0 as usize);
        assert_eq!(journal.synced(), opened.last);
        self.journal = Some(journal);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]

    #[test]
    fn synced_records_survive_any_fault(seed: u64, steps in prop::collection::vec(step(), 1..150)) {
        let mut world = World::new(seed);
        for step in &steps {
            world.step(step);
        }
        world.step(&Step::Crash);
        // After the faults it works again.
        world.step(&Step::Append(100));
        world.step(&Step::Sync);
        assert_eq!(world.promised, world.records.len());
    }
}
