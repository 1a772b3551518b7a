//! An append-only log of records on disk: segmented, checksummed, synced in groups.
//!
//! A record is bytes, whose meaning only the caller knows. The journal guarantees: [synced](Journal::sync) records
//! come back when it is opened again, in order and byte for byte, after any failure in between. Of the unsynced
//! records a prefix comes back, or none. No other record ever comes back. The journal has no threads and no clock: the
//! caller, or a [`Committer`], decides when to write and sync. Calls block while the disk works, a sync for tens of
//! milliseconds: a caller that must not wait runs the journal on another thread.
//! A small file beside the log is replaced as a whole: [`replace_file`].
//!
//! ```
//! use journal::{Committer, Directory, Journal, Options, Policy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::temp_dir().join(format!("journal-example-{}", std::process::id()));
//! let random = 0x5eed; // from the kernel, in earnest
//! let (mut journal, opened) = Journal::open(Directory::open(&path)?, Options::new(random), &mut |_, _| {})?;
//! assert_eq!(opened.records, 0);
//!
//! let mut committer = Committer::new(Policy::Always);
//! journal.append(b"one")?;
//! let two = journal.append(b"two")?;
//! let now_ms = 0;
//! assert_eq!(committer.commit(&mut journal, now_ms)?, two);
//! drop(journal);
//!
//! let mut records = Vec::new();
//! Journal::open(Directory::open(&path)?, Options::new(random), &mut |at, record| records.push((at.0, record.to_vec())))?;
//! assert_eq!(records, [(1, b"one".to_vec()), (2, b"two".to_vec())]);
//! # std::fs::remove_dir_all(&path)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Format
//!
//! A directory holds segments, `00000000000000000001.journal` and on, without gaps in their numbers, their list, and the file `lock`. Numbers are
//! little-endian; checksums are CRC-32C.
//!
//! | segment header, 40 bytes | | record | |
//! | --- | --- | --- | --- |
//! | 0 | `enckejnl` | 0 | u32 checksum of all that follows |
//! | 8 | u32 version, 1 | 4 | u32 length of the payload |
//! | 12 | u64 segment number | 8 | u32 how many records before it were not yet synced when it was appended |
//! | 20 | u64 sequence of the first record | 12 | u64 sequence, xored with the salt |
//! | 28 | u64 salt | 20 | payload |
//! | 36 | u32 checksum of these 36 bytes | | |
//!
//! The salt is random and the same in all segments: a payload from outside cannot contain a matching sequence.
//!
//! A segment ends where the next one begins: its records from the next one's first sequence on do not count. In this
//! way a segment whose sync failed is given up. A segment is created under another name, `unfinished.journal`, and
//! gets its own when its header and its first records are synced; the segment before it is already synced or given
//! up.
//!
//! # Opening
//!
//! All segments are read. Only the last one may end torn. The rule there: *unsynced records may be cut, synced
//! records never*. A crash can tear several records written together and leave the later ones intact, so a whole
//! record after a torn one alone proves nothing. But each record states how far the journal was synced when it was
//! appended. If a whole record states that the torn one was synced, the journal is [damaged](Error::Damaged) and is
//! not opened. Otherwise everything from the torn record on is [cut](Cut). Zeros, which some file systems leave after
//! a crash, count as torn, too.
//!
//! The name of an empty file, `FIRST-LAST.segments`, lists the segments. It is renamed after each new segment and
//! before old ones are removed: that needs no room and is never half written. A listed segment without a file is
//! [missing](Error::Missing), and the journal is not opened. A journal without such a file, of an older version, gets
//! one.
//!
//! The end of the last segment, which no record proves to be synced, is rewritten in place and synced before anything
//! is appended: a sync of the previous process may have failed, and then the system shows records that the disk does
//! not have and that no later sync writes. If the new sync fails, too, a new segment holds the records. A full disk
//! does not prevent opening a journal: then the records wait in memory.
//!
//! One kind of damage cannot be detected: damage to the records of the very last sync, when nothing was written after
//! it. These records are cut, and [`Opened::cut`] reports it.

mod commit;
mod disk;
mod error;
mod format;
mod journal;
mod open;
mod probe;
mod read;
mod unproven;

pub use commit::{Committer, Policy, RETRY_MS};
pub use disk::{Directory, DirectoryLock, Disk, LOCK, replace_file};
pub use error::Error;
pub use format::RECORD_BYTES_MAX;
pub use journal::{Journal, Options, Position, Segment};
pub use open::{Cut, Opened};
pub use probe::probe;

/// Compiles the program of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
