//! The errors of a journal.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// An error of a journal operation.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process, or another journal of this process, has the directory.
    #[error("{} is held by another process: a journal has one writer", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// Bytes that were once durable have changed. The journal changed nothing.
    #[error("{} is damaged at offset {offset}: expected {expected}, found {found}", file.display())]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// The offset at which the expected record (or the header, at 0) begins.
        offset: u64,
        /// The expected contents.
        expected: String,
        /// The actual contents.
        found: String,
    },
    /// A segment that was once durable is missing. The journal changed nothing.
    #[error(
        "{} is missing: {} lists it. Put it back, or remove the list to go on with what is left", file.display(), list.display()
    )]
    Missing {
        /// The segment.
        file: PathBuf,
        /// The file whose name lists it.
        list: PathBuf,
    },
    /// The disk failed: full, read-only, broken. The records stay in memory; the caller can repeat the call.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The operation: `write`, `sync`, `create`, …
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The record is longer than [`Options::record_bytes`](crate::Options::record_bytes). It was not appended.
    #[error("a record of {bytes} bytes is above the limit of {limit_bytes} bytes")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The [`Options::memory_bytes`](crate::Options::memory_bytes) are full of records that the disk has not taken.
    /// This record was not appended.
    #[error("{limit_bytes} bytes of records wait for the disk: no more are taken")]
    Full {
        /// The limit.
        limit_bytes: usize,
    },
}

impl Error {
    /// True if the disk failed only for want of room.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Error::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }
}
