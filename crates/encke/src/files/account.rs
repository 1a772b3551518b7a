//! The account of files: the bytes of those in memory, and the number of those that are open.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// The sums, over all threads.
#[derive(Debug, Default)]
pub(super) struct Account {
    bytes: AtomicUsize,
    open: AtomicUsize,
}

/// Bytes in memory. They count until this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    account: Arc<Account>,
    bytes: usize,
}

/// A file that is open. It counts until this is dropped.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    account: Arc<Account>,
}

/// The content of a file in memory.
struct Content {
    bytes: Vec<u8>,
    _held: Held,
}

impl Account {
    /// Bytes of files in memory, with those that clients are still reading.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Files that are open.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts these bytes, unless there are then more than `bytes_max`.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize, bytes_max: usize) -> Option<Held> {
        let is_within = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= bytes_max;
        // Dropped at once where there are too many.
        let held = Held { account: self.clone(), bytes };
        is_within.then_some(held)
    }

    /// Counts this file, unless there are then more than `open_max`. It is closed in that case.
    pub(super) fn count_open(self: &Arc<Self>, file: File, open_max: usize) -> Result<OpenFile, File> {
        if self.open.fetch_add(1, Ordering::Relaxed) < open_max {
            return Ok(OpenFile { file, account: self.clone() });
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        Err(file)
    }
}

impl Held {
    /// The content that these bytes are.
    pub(super) fn with(self, content: Vec<u8>) -> Bytes {
        Bytes::from_owner(Content { bytes: content, _held: self })
    }
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.account.open.fetch_sub(1, Ordering::Relaxed);
    }
}
