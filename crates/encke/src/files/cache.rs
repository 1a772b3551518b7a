//! The files that were requested lately: small ones in memory, others open.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use encke_core::Settings;
use foldhash::fast::RandomState;
use parking_lot::RwLock;

use super::account::{Account, Held, OpenFile};
use super::resource::Resource;
use super::tree::Stamp;

/// The files, for all shards. When there is no room, those go that were not requested since the last look at them (second chance).
#[derive(Default)]
pub(super) struct Cache {
    entries: RwLock<Entries>,
    pub(super) account: Arc<Account>,
    evicted: AtomicU64,
}

#[derive(Default)]
struct Entries {
    by_name: HashMap<Arc<str>, Arc<Entry>, RandomState>,
    /// The names of those that are wholly in memory. The first one is the next to go.
    in_memory: VecDeque<Arc<str>>,
    /// The names of those that hold files open.
    open: VecDeque<Arc<str>>,
}

/// A file with the compressed ones beside it.
pub(crate) struct Entry {
    pub(crate) resource: Resource,
    /// The state of each of these files, none for those that there are not.
    pub(super) stamps: Stamps,
    /// The settings that its fields follow.
    pub(super) settings: Arc<Settings>,
    /// True if a file may have changed once more since, without another state.
    pub(super) is_fresh: bool,
    /// True if it holds files open.
    pub(super) is_open: bool,
    pub(super) checked_ms: AtomicU64,
    /// True if it was requested since the last look for files that may go.
    pub(super) is_used: AtomicBool,
    /// The memory of the entry without its content, if the cache has room for it.
    pub(super) held: Option<Held>,
}

/// The states of a file and of its compressed forms.
pub(super) type Stamps = [Option<Stamp>; 4];

impl Entry {
    /// True if these are the states of the files that it has.
    pub(super) fn is_still(&self, stamps: &Stamps) -> bool {
        self.stamps == *stamps && !self.is_fresh
    }

    /// True if nobody needs to look at the disk now. Where the time is over, one request does, and the others take the entry meanwhile.
    pub(super) fn may_be_used(&self, now_ms: u64) -> bool {
        let checked_ms = self.checked_ms.load(Ordering::Relaxed);
        let is_over = now_ms.saturating_sub(checked_ms) >= self.settings.files_cache_ms;
        !is_over
            || self.settings.files_cache_ms > 0
                && self.checked_ms.compare_exchange(checked_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_err()
    }
}

impl Cache {
    /// The file of this name, as it was last seen.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Entry>> {
        let entries = self.entries.read();
        let entry = entries.by_name.get(name)?;
        entry.is_used.store(true, Ordering::Relaxed);
        Some(entry.clone())
    }

    /// Adds a file, or replaces it.
    pub(super) fn insert(&self, name: &str, entry: &Arc<Entry>) {
        let mut entries = self.entries.write();
        let name: Arc<str> = name.into();
        match entries.by_name.insert(name.clone(), entry.clone()) {
            Some(before) if before.is_open == entry.is_open => {}
            Some(before) => {
                entries.order(before.is_open).retain(|other| *other != name);
                entries.order(entry.is_open).push_back(name);
            }
            None => entries.order(entry.is_open).push_back(name),
        }
    }

    /// Removes a file that is not there any more.
    pub(super) fn remove(&self, name: &str) {
        if self.entries.read().by_name.contains_key(name) {
            let mut entries = self.entries.write();
            if let Some(entry) = entries.by_name.remove(name) {
                entries.order(entry.is_open).retain(|other| **other != *name);
            }
        }
    }

    /// Room for bytes in memory; other files go for them. None if there is no such room.
    pub(super) fn hold(&self, bytes: usize, bytes_max: usize) -> Option<Held> {
        if bytes > bytes_max {
            return None;
        }
        // Bounded: clients that read slowly may hold what others need.
        for _ in 0..EVICTIONS_MAX {
            let held = self.account.hold(bytes, bytes_max);
            if held.is_some() || !self.evict(false) && !self.evict(true) {
                return held;
            }
        }
        None
    }

    /// Counts a file that stays open; another one is closed for it. None if clients are reading too many.
    pub(super) fn open(&self, mut file: File, open_max: usize) -> Option<OpenFile> {
        loop {
            file = match self.account.count_open(file, open_max) {
                Ok(open) => return Some(open),
                Err(_) if !self.evict(true) => return None,
                Err(file) => file,
            };
        }
    }

    /// Files that made room for others.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Removes the first one that was not used lately, of those that hold files open or of the others. False if there is none left.
    fn evict(&self, is_open: bool) -> bool {
        let mut entries = self.entries.write();
        while let Some(name) = entries.order(is_open).pop_front() {
            match entries.by_name.get(&name) {
                Some(entry) if entry.is_used.swap(false, Ordering::Relaxed) => {
                    entries.order(is_open).push_back(name);
                }
                Some(_) => {
                    entries.by_name.remove(&name);
                    self.evicted.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                None => {}
            }
        }
        false
    }
}

impl Entries {
    fn order(&mut self, is_open: bool) -> &mut VecDeque<Arc<str>> {
        if is_open { &mut self.open } else { &mut self.in_memory }
    }
}

/// The files that may go for one other.
const EVICTIONS_MAX: usize = 64;
