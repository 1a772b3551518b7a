//! An append-only log of records on disk: segmented, checksummed, synced in groups.
//!
//! A record is bytes; what they mean is the caller's business. The journal promises: what was [synced](Journal::sync) comes back when it is
//! opened again, in order and byte for byte, whatever happened in between; what was not synced comes back as a prefix of it, or not at all;
//! nothing else ever comes back. It has no threads and no clock: when to write and sync is decided by the caller, or by a [`Committer`].
//! Calls block while the disk works, a sync for tens of milliseconds: who must not wait keeps the journal on another thread.
//!
//! ```
//! use journal::{Committer, Directory, Journal, Options, Policy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = std::env::temp_dir().join(format!("journal-example-{}", std::process::id()));
//! let random = 0x5eed; // from the kernel, in earnest
//! let (mut journal, opened) = Journal::open(Directory::open(&place)?, Options::new(random), &mut |_, _| {})?;
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
//! Journal::open(Directory::open(&place)?, Options::new(random), &mut |at, record| records.push((at.0, record.to_vec())))?;
//! assert_eq!(records, [(1, b"one".to_vec()), (2, b"two".to_vec())]);
//! # std::fs::remove_dir_all(&place)?;
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
//! The salt is random and kept from segment to segment: a payload from outside cannot hold a sequence that fits.
//!
//! A segment ends where the next one begins: from that one's first sequence on, what it holds does not count. That is how a segment is
//! given up whose sync failed. A segment is made under another name, `unfinished.journal`, and gets its own when its header and its first
//! records are synced; the one before it is synced before, or given up.
//!
//! # Opening
//!
//! All segments are read. Only the last one may end torn, and there the rule is: *what was never synced may be cut, what was synced
//! never*. A crash can tear several records written together, and keep the later ones: a whole record behind a torn one alone proves
//! nothing. But each record says how far the journal was synced when it was appended. If one that is whole says that the torn one was synced, the
//! journal is [damaged](Error::Damaged) and is not opened; else everything from the torn one on is [cut](Cut). Zeros, which some file
//! systems leave after a crash, are torn like anything else.
//!
//! Which segments there are is told by the name of an empty file, `FIRST-LAST.segments`, which is renamed behind each new segment and before
//! old ones go: that takes no room and is never half written. A segment that it lists and that is not there is [missing](Error::Missing), and the
//! journal is not opened. A journal without such a file, of an older version, gets one.
//!
//! The end of the last segment, which no record proves to be synced, is written over itself and synced before anything is appended: the
//! process before may have seen its sync fail, and then the system shows records that the disk has not got and that no later sync writes.
//! If that sync fails, too, a new segment holds them. A full disk does not keep a journal from being opened: then they wait in memory.
//!
//! One thing cannot be seen: damage to the records of the very last sync, when nothing was written after it. It is cut, and
//! [`Opened::cut`] says so.

mod commit;
mod disk;
mod error;
mod format;
mod journal;
mod open;
mod probe;
mod read;
pub mod sim;

pub use commit::{Committer, Policy, RETRY_MS};
pub use disk::{Directory, DirectoryLock, Disk, LOCK};
pub use error::Error;
pub use format::RECORD_BYTES_MAX;
pub use journal::{Journal, Options, Position, Segment};
pub use open::{Cut, Opened};
pub use probe::probe;

/// The program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
