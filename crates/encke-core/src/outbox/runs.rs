//! A queue of runs that counts its memory.

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use super::Run;
use crate::outbox::arena::Chunk;
use crate::outbox::memory::Account;

/// Runs in order. A queue of more than a few runs counts in the account of the chunks that it holds.
///
/// It needs no pointer to the account: a queue whose memory counts is never empty, and every run refers to a chunk.
#[derive(Debug, Default)]
pub(super) struct Runs(VecDeque<Run>);

/// Queues with room for at most this many runs do not count: 384 bytes, which belong to a session like its record.
const UNCOUNTED: usize = 16;
/// Queues with less room than this are not shrunk.
const SHRUNK_FROM: usize = 1024;

impl Runs {
    /// The number of runs.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn front(&self) -> Option<&Run> {
        self.0.front()
    }

    /// The first run. Its range may be changed, its chunk must not.
    pub(super) fn front_mut(&mut self) -> Option<&mut Run> {
        self.0.front_mut()
    }

    /// The last run.
    pub(super) fn back_mut(&mut self) -> Option<&mut Run> {
        self.0.back_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.0.iter()
    }

    /// All runs as one slice.
    pub(super) fn as_slice(&mut self) -> &[Run] {
        self.0.make_contiguous()
    }

    /// The bytes that it adds to its account.
    pub(super) fn counted_bytes(&self) -> usize {
        if self.0.capacity() > UNCOUNTED { self.0.capacity() * size_of::<Run>() } else { 0 }
    }

    /// The bytes that it and its chunks take, without chunks that are in `seen`. Adds its chunks to `seen`.
    pub(super) fn recount(&self, seen: &mut HashSet<*const Chunk>) -> usize {
        self.counted_bytes() + self.iter().map(|run| run.frames.chunk.recount(seen)).sum::<usize>()
    }

    /// The bytes that it takes, and its share of its chunks. Bytes shared with others count in proportion.
    pub(super) fn share_bytes(&self) -> usize {
        let of_run = |Run { frames, .. }: &Run| frames.bytes().min(frames.chunk.share_bytes());
        self.counted_bytes() + self.iter().map(of_run).sum::<usize>()
    }

    /// The account of its chunks; None while it is empty.
    pub(super) fn account(&self) -> Option<Rc<Account>> {
        self.front().map(|run| run.frames.chunk.account().clone())
    }

    #[inline]
    pub(super) fn push_back(&mut self, run: Run) {
        if self.0.len() == self.0.capacity() {
            self.make_room(&run);
        }
        self.0.push_back(run);
    }

    pub(super) fn push_front(&mut self, run: Run) {
        if self.0.len() == self.0.capacity() {
            self.make_room(&run);
        }
        self.0.push_front(run);
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Run> {
        let run = self.0.pop_front()?;
        if self.0.capacity() > UNCOUNTED {
            self.shrink(run.frames.chunk.account());
        }
        Some(run)
    }

    /// Appends all runs of another queue, which is empty afterwards.
    pub(super) fn append(&mut self, other: &mut Runs) {
        while let Some(run) = other.pop_front() {
            self.push_back(run);
        }
    }

    /// Removes the runs for which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Run) -> bool) {
        let Some(account) = self.account() else { return };
        self.0.retain(keep);
        self.shrink(&account);
    }

    #[cold]
    fn make_room(&mut self, run: &Run) {
        let before = self.counted_bytes();
        // A long queue grows by half: doubling would take twice the memory that is needed at that moment.
        if self.0.len() < UNCOUNTED {
            self.0.reserve(1)
        } else {
            self.0.reserve_exact(self.0.len() / 2)
        }
        run.frames.chunk.account().queue_changed(before, self.counted_bytes());
    }

    /// Releases memory that is mostly unused.
    fn shrink(&mut self, account: &Account) {
        let (capacity, before) = (self.0.capacity(), self.counted_bytes());
        if self.0.is_empty() && before > 0 {
            self.0 = VecDeque::new();
        } else if capacity >= SHRUNK_FROM && self.0.len() < capacity / 8 {
            self.0.shrink_to(capacity / 4);
        } else {
            return;
        }
        account.queue_changed(before, self.counted_bytes());
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if let Some(account) = self.account() {
            account.queue_changed(self.counted_bytes(), 0);
        }
    }
}
