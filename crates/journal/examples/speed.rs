//! Measures the records per second that one core can store: `cargo run --release -p encke-journal --example speed -- [DIRECTORY [SECONDS]]`.
//!
//! Records of 200 bytes, as fast as possible; a write every millisecond, a sync every 100. The directory is emptied of segments and left.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use journal::{Committer, Directory, Journal, Options, Policy, Position};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(|| std::env::temp_dir().join("journal-speed"), PathBuf::from);
    let span = Duration::from_secs(arguments.next().map_or(Ok(3), |text| text.parse())?);

    let (mut journal, _) = Journal::open(Directory::open(&directory)?, Options::new(1), &mut |_, _| {})?;
    let mut committer = Committer::new(Policy::Interval { ms: 100 });
    let (begin, first, cpu) = (Instant::now(), journal.appended(), cpu_ticks()?);
    let (mut written_ms, mut longest, mut record) = (0, Duration::ZERO, [b'x'; 200]);
    while begin.elapsed() < span {
        // Several at a time, as from a shard's turn: the clock is not read for each.
        for _ in 0..32 {
            record[..8].copy_from_slice(&journal.appended().0.to_le_bytes());
            journal.append(&record)?;
        }
        let now_ms = begin.elapsed().as_millis() as u64;
        if now_ms > written_ms {
            written_ms = now_ms;
            let before = Instant::now();
            committer.commit(&mut journal, now_ms)?;
            longest = longest.max(before.elapsed());
        }
    }
    let appending = begin.elapsed();
    journal.sync()?;
    let (seconds, records) = (begin.elapsed().as_secs_f64(), journal.synced().0 - first.0);
    println!("{:.0} records/s of 200 B stored, {records} in {seconds:.2} s", records as f64 / seconds);
    println!(
        "{:.2} s of CPU (ticks of 10 ms), the longest commit took {longest:?}",
        (cpu_ticks()? - cpu) as f64 / 100.0
    );
    println!("{} segments; the last sync took {:.2} s", journal.segments().len(), seconds - appending.as_secs_f64());

    drop(journal);
    let before = Instant::now();
    let mut bytes = 0;
    let (mut journal, opened) =
        Journal::open(Directory::open(&directory)?, Options::new(1), &mut |_, record| bytes += record.len())?;
    println!("opened again: {} records, {bytes} bytes in {:.2} s", opened.records, before.elapsed().as_secs_f64());
    journal.remove_before(Position(u64::MAX))?;
    Ok(())
}

/// The CPU time of this process, in ticks (proc(5): utime and stime).
fn cpu_ticks() -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = text.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    Ok(ticks.iter().sum())
}
