//! What can go wrong with a journal.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the journal could not do what it was asked for.
#[derive(Debug, Error)]
pub enum Error {
    /// Another process, or another journal of this one, has the directory.
    #[error("{} is held by another process: a journal has one writer", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// Bytes that were once safe on disk are not what they were. Nothing was changed.
    #[error("{} is damaged at offset {offset}: expected {expected}, found {found}", file.display())]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// Where the record (or the header, at 0) that should be there begins.
        offset: u64,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A segment that was once safe on disk is not there. Nothing was changed.
    #[error(
        "{} is missing: {} lists it. Put it back, or remove the list to go on with what is left", file.display(), list.display()
    )]
    Missing {
        /// The segment.
        file: PathBuf,
        /// The file whose name says so.
        list: PathBuf,
    },
    /// The disk refused: full, read-only, broken. The records stay in memory; the call can be repeated.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried: `write`, `sync`, `create`, …
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The record is longer than [`Options::record_bytes`](crate::Options::record_bytes). It was not taken.
    #[error("a record of {bytes} bytes is above the limit of {limit_bytes} bytes")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// [`Options::memory_bytes`](crate::Options::memory_bytes) are full of records that the disk has not taken. This one was not taken.
    #[error("{limit_bytes} bytes of records wait for the disk: no more are taken")]
    Full {
        /// The limit.
        limit_bytes: usize,
    },
}

impl Error {
    /// Whether the disk refused for want of room only.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Error::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }
}
