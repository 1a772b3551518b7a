//! Real files: a directory, and a process that is killed repeatedly.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{SMALL, append, name, open, record};
use journal::{Directory, Error, Options, Position};

/// A directory that is removed with the test.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new(test: &str) -> TestDirectory {
        let path = std::env::temp_dir().join(format!("journal-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        TestDirectory(path)
    }

    fn disk(&self) -> Directory {
        Directory::open(&self.0).expect("the directory can be made")
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_real_directory_stores_records_and_segments_and_holds_the_lock() {
    let directory = TestDirectory::new("real");
    let (mut journal, opened) = open(directory.disk(), SMALL).expect("it opens");
    assert_eq!((opened.first, opened.last), (Position(1), Position(0)));
    append(&mut journal, 40);
    assert!(matches!(open(directory.disk(), SMALL), Err(Error::Locked { .. })));
    assert!(journal.segments().len() > 4);
    journal.remove_before(Position(20)).expect("it works");
    let segments: Vec<_> = journal.segments().collect();
    drop(journal);

    let last = directory.0.join(name(segments.last().expect("there are some").number));
    let mut file = std::fs::OpenOptions::new().append(true).open(&last).expect("it exists");
    file.write_all(b"half a rec").expect("it can be written");
    std::fs::write(directory.0.join("notes.txt"), "mine").expect("it can be written");
    let (journal, opened) = open(directory.disk(), SMALL).expect("it opens");
    assert_eq!((opened.first, opened.last), (segments[0].first, Position(40)));
    assert_eq!((&opened.cut[0].file, opened.cut[0].bytes), (&last, 10));
    assert_eq!(opened.strangers, [directory.0.join("notes.txt")]);
    assert_eq!(journal.segments().collect::<Vec<_>>(), segments);
}

#[test]
fn only_the_owner_may_read_what_is_written() {
    let directory = TestDirectory::new("modes");
    let disk = Directory::open(directory.0.join("a/b")).expect("the directories can be made");
    let (mut journal, _) = open(disk, SMALL).expect("it opens");
    append(&mut journal, 1);
    let mode =
        |path: &str| std::fs::metadata(directory.0.join(path)).expect("it is there").permissions().mode() & 0o777;
    assert_eq!([mode("a"), mode("a/b")], [0o700; 2]);
    assert_eq!([mode("a/b/lock"), mode(&format!("a/b/{}", name(1)))], [0o600; 2]);
}

#[test]
fn a_path_that_cannot_be_a_directory_is_an_error() {
    let directory = TestDirectory::new("file");
    std::fs::write(&directory.0, "a file").expect("it can be written");
    assert!(Directory::open(directory.0.join("data")).is_err());
    std::fs::remove_file(&directory.0).expect("it exists");
}

/// Kills a process that appends, at random points; each time all confirmed records must be there.
#[test]
fn confirmed_records_are_present_after_each_of_200_kills() {
    let directory = TestDirectory::new("kill");
    let mut random = u64::from(std::process::id());
    let mut confirmed = 0;
    for round in 0..200 {
        confirmed = killed_appender(&directory.0, &mut random).unwrap_or(confirmed);
        let (mut journal, opened) = open(directory.disk(), small_segments()).expect("it opens after a kill");
        assert!(opened.last.0 >= confirmed, "round {round}: {confirmed} was confirmed, {} is there", opened.last);
        journal.remove_before(Position(opened.last.0.saturating_sub(1000))).expect("it works");
        confirmed = opened.last.0;
    }
    assert!(confirmed > 200, "only {confirmed} records: the processes did not come to work");
}

/// Runs this test's program as the appender and kills it soon after its start. Returns the last number it confirmed.
fn killed_appender(directory: &Path, random: &mut u64) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().expect("it runs"))
        .args(["the_process_that_is_killed", "--exact", "--nocapture", "--test-threads=1"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can run once more");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let begun = lines.by_ref().map_while(Result::ok).find(|line| line.ends_with("begins"));
    assert!(begun.is_some(), "the appender opens the journal");
    let mut below = |limit: u64| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*random >> 33) % limit
    };
    // After a number of confirmations, and at a random point after them, so that the process makes progress on any machine.
    let (confirmations, pause) = (below(6), Duration::from_micros(below(3000)));
    let read = lines.by_ref().map_while(Result::ok).take(confirmations as usize).last();
    std::thread::sleep(pause);
    child.kill().expect("it lives");
    child.wait().expect("it is dead");
    // A line may be torn, too: only a line with its full stop counts.
    let unread = lines.map_while(Result::ok).filter(|line| line.ends_with('.')).last();
    unread.or(read)?.strip_prefix("confirmed ")?.strip_suffix('.')?.parse().ok()
}

/// Not a test: the process that [`confirmed_records_are_present_after_each_of_200_kills`] kills.
#[test]
fn the_process_that_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let disk = Directory::open(directory).expect("the directory is there");
    let (mut journal, _) = open(disk, small_segments()).expect("it opens");
    println!("begins");
    for group in 1.. {
        for _ in 0..group % 4 + 1 {
            let position = journal.appended().next();
            journal.append(&record(position.0)).expect("there is room");
        }
        let confirmed = journal.sync().expect("the disk works");
        println!("confirmed {confirmed}.");
    }
}

fn small_segments() -> Options {
    Options { segment_bytes: 2000, ..SMALL }
}

const DIRECTORY: &str = "JOURNAL_TEST_DIRECTORY";
