//! A queue of runs that counts its memory.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use super::Run;
use crate::delivery::outbox::arena::{Chunk, Frames};
use crate::memory::Account;

/// Runs in order. A queue of more than a few runs counts in the account of the chunks that it holds.
///
/// It needs no pointer to the account: a queue whose memory counts is never empty, and every run refers to a chunk.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// The first run. Nearly all queues have one run or none, so they need no memory elsewhere.
    first: Option<Run>,
    /// The other runs. Empty if there is no first.
    rest: VecDeque<Run>,
}

/// Queues with room for at most this many runs behind the first do not count: 384 bytes, which belong to a session like
/// its record.
const UNCOUNTED: usize = 16;
/// Queues with less room than this are not shrunk.
const SHRUNK_FROM: usize = 1024;

impl Runs {
    /// The number of runs.
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn front(&self) -> Option<&Run> {
        self.first.as_ref()
    }

    /// The first run. Its range may be changed, its chunk must not.
    pub(super) fn front_mut(&mut self) -> Option<&mut Run> {
        self.first.as_mut()
    }

    /// The last run.
    pub(super) fn back_mut(&mut self) -> Option<&mut Run> {
        if self.rest.is_empty() { self.first.as_mut() } else { self.rest.back_mut() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.first.iter().chain(&self.rest)
    }

    /// The run at this index.
    pub(super) fn get(&self, at: usize) -> Option<&Run> {
        at.checked_sub(1).map_or(self.first.as_ref(), |at| self.rest.get(at))
    }

    /// The index of the run that begins with these frames. Looks at the index `hint` first.
    pub(super) fn find(&self, hint: usize, frames: &Frames) -> Option<usize> {
        let is_it = |run: &Run| run.frames.start == frames.start && Rc::ptr_eq(&run.frames.chunk, &frames.chunk);
        if self.get(hint).is_some_and(is_it) { Some(hint) } else { self.iter().position(is_it) }
    }

    /// Replaces the runs in this range with others of the same account.
    pub(super) fn replace(&mut self, range: Range<usize>, with: Vec<Run>) {
        let Some(account) = self.account() else { return };
        let before = self.counted_bytes();
        if let Some(first) = self.first.take() {
            self.rest.push_front(first);
        }
        let behind = self.rest.split_off(range.end);
        self.rest.truncate(range.start);
        self.rest.reserve_exact(with.len() + behind.len());
        self.rest.extend(with.into_iter().chain(behind));
        self.first = self.rest.pop_front();
        account.queue_changed(before, self.counted_bytes());
        self.shrink(&account);
    }

    /// Lends all runs as one slice.
    pub(super) fn in_one_piece<R>(&mut self, look: impl FnOnce(&[Run]) -> R) -> R {
        if self.rest.is_empty() {
            return look(self.first.as_slice());
        }
        if let Some(first) = self.first.take() {
            self.make_room_for(&first);
            self.rest.push_front(first);
        }
        let seen = look(self.rest.make_contiguous());
        self.first = self.rest.pop_front();
        seen
    }

    /// The bytes that it adds to its account.
    pub(super) fn counted_bytes(&self) -> usize {
        if self.rest.capacity() > UNCOUNTED { self.rest.capacity() * size_of::<Run>() } else { 0 }
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

    // Once for each subscriber. Left to the compiler, code elsewhere decides if it costs a call: 9 of 490 instructions.
    #[inline(always)]
    pub(super) fn push_back(&mut self, run: Run) {
        if self.first.is_none() {
            self.first = Some(run);
        } else {
            self.make_room_for(&run);
            self.rest.push_back(run);
        }
    }

    pub(super) fn push_front(&mut self, run: Run) {
        if let Some(second) = self.first.replace(run) {
            self.make_room_for(&second);
            self.rest.push_front(second);
        }
    }

    #[inline(always)]
    pub(super) fn pop_front(&mut self) -> Option<Run> {
        if self.rest.is_empty() { self.first.take() } else { self.move_up() }
    }

    /// Removes the first run. The next one is the first then.
    #[inline(never)]
    fn move_up(&mut self) -> Option<Run> {
        let gone = std::mem::replace(&mut self.first, self.rest.pop_front())?;
        if self.rest.capacity() > UNCOUNTED {
            self.shrink(gone.frames.chunk.account());
        }
        Some(gone)
    }

    /// Appends all runs of another queue, which is empty afterwards.
    pub(super) fn append(&mut self, other: &mut Runs) {
        while let Some(run) = other.pop_front() {
            self.push_back(run);
        }
    }

    /// Keeps the runs that `keep` wants.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Run) -> bool) {
        let Some(account) = self.account() else { return };
        let first = self.first.take().filter(&mut keep);
        self.rest.retain(keep);
        self.first = first.or_else(|| self.rest.pop_front());
        self.shrink(&account);
    }

    #[inline]
    fn make_room_for(&mut self, run: &Run) {
        if self.rest.len() == self.rest.capacity() {
            self.make_room(run);
        }
    }

    #[cold]
    fn make_room(&mut self, run: &Run) {
        let before = self.counted_bytes();
        // A long one grows by half: doubling would take twice what is needed just then.
        if self.rest.len() < UNCOUNTED {
            self.rest.reserve(1)
        } else {
            self.rest.reserve_exact(self.rest.len() / 2)
        }
        run.frames.chunk.account().queue_changed(before, self.counted_bytes());
    }

    /// Releases memory that is mostly unused.
    fn shrink(&mut self, account: &Account) {
        let (capacity, before) = (self.rest.capacity(), self.counted_bytes());
        if self.rest.is_empty() && before > 0 {
            self.rest = VecDeque::new();
        } else if capacity >= SHRUNK_FROM && self.rest.len() < capacity / 8 {
            self.rest.shrink_to(capacity / 4);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::outbox::Kind;
    use crate::delivery::outbox::arena::Arena;

    /// A run with a number.
    fn run(frames: &Frames, number: u32) -> Run {
        Run { frames: frames.clone(), kind: Kind::Messages, messages: number }
    }

    proptest! {
        #[test]
        fn runs_are_a_queue_that_counts_its_bytes(steps in prop::collection::vec((0..7_u8, 1..40_u32), 1..100)) {
            let account = Rc::<Account>::default();
            let frames = Arena::new(&account).encoded(b"\x81\x02[]");
            let (mut runs, mut model, mut number) = (Runs::default(), VecDeque::new(), 0);
            for (step, count) in steps {
                let numbers = number..number + count;
                match step {
                    0 => numbers.clone().for_each(|number| runs.push_back(run(&frames, number))),
                    1 => numbers.clone().for_each(|number| runs.push_front(run(&frames, number))),
                    2 => (0..count).for_each(|_| assert_eq!(runs.pop_front().map(|run| run.messages), model.pop_front())),
                    3 => runs.retain(|run| run.messages % count < count / 2),
                    4 => {
                        let mut others = Runs::default();
                        numbers.clone().for_each(|number| others.push_back(run(&frames, number)));
                        runs.append(&mut others);
                        assert!(others.is_empty() && others.counted_bytes() == 0);
                    }
                    5 => {
                        let (start, others) = (model.len() / 2, numbers.clone().map(|number| run(&frames, number)));
                        let end = model.len().min(start + count as usize / 2);
                        if !model.is_empty() {
                            runs.replace(start..end, others.collect());
                            let behind = model.split_off(end);
                            model.truncate(start);
                            model.extend(numbers.clone().chain(behind));
                        }
                    }
                    _ => runs.in_one_piece(|all| assert!(all.iter().map(|run| run.messages).eq(model.iter().copied()))),
                }
                match step {
                    0 | 4 => model.extend(numbers),
                    1 => numbers.for_each(|number| model.push_front(number)),
                    3 => model.retain(|number| number % count < count / 2),
                    _ => {}
                }
                number += count;
                prop_assert!(runs.iter().map(|run| run.messages).eq(model.iter().copied()));
                prop_assert_eq!((runs.len(), runs.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(runs.front().map(|run| run.messages), model.front().copied());
                prop_assert_eq!(runs.back_mut().map(|run| run.messages), model.back().copied());
                prop_assert_eq!(account.bytes() - account.chunk_bytes(), runs.counted_bytes());
            }
            drop(runs);
            prop_assert_eq!(account.bytes(), account.chunk_bytes());
        }
    }

    #[test]
    fn a_queue_of_one_allocates_nothing() {
        let frames = Arena::new(&Rc::default()).encoded(b"\x81\x02[]");
        let mut runs = Runs::default();
        for number in 0..10 {
            runs.push_back(run(&frames, number));
            assert_eq!((runs.rest.capacity(), runs.pop_front().map(|run| run.messages)), (0, Some(number)));
        }
    }
}
