//! The search for the sessions and sockets that hold most.

use std::collections::BinaryHeap;

use crate::delivery::Holder;

/// The sessions and sockets that hold most: found, then ended, a part in each turn.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// The next slot to look at: those of sessions first, then those of sockets.
    next: usize,
    /// Those found, with the bytes that they held then.
    found: BinaryHeap<(usize, Holder)>,
    /// The bytes to free. None until every slot was looked at.
    excess: Option<usize>,
    /// The bytes that those held that have ended.
    freed: usize,
    /// The number of ended sessions.
    ended: usize,
}

impl Holders {
    /// The next of so many slots to look at. None if all were.
    pub(crate) fn next_slot(&mut self, slots: usize) -> Option<usize> {
        let next = self.next;
        self.next += usize::from(next < slots);
        (next < slots).then_some(next)
    }

    /// True if all of so many slots were looked at.
    pub(crate) fn have_seen(&self, slots: usize) -> bool {
        self.next >= slots
    }

    /// Adds one that holds this many bytes.
    pub(crate) fn add(&mut self, holder: Holder, bytes: usize) {
        if bytes > 0 {
            self.found.push((bytes, holder));
        }
    }

    /// True if all were found, and some have to end.
    pub(crate) fn are_known(&self) -> bool {
        self.excess.is_some()
    }

    /// Sets the bytes to free when all were found.
    pub(crate) fn set_excess(&mut self, excess: impl FnOnce() -> usize) {
        self.excess.get_or_insert_with(excess);
    }

    /// The one that held most when it was found. None if enough have ended.
    pub(crate) fn largest(&mut self) -> Option<(usize, Holder)> {
        if self.freed >= self.excess.unwrap_or(0) { None } else { self.found.pop() }
    }

    /// Decides about the largest one, which holds `bytes` now. If it has got much of its queue meanwhile, it is added
    /// again. Otherwise it has to free what it holds, and the result is true.
    pub(crate) fn takes(&mut self, (found, holder): (usize, Holder), bytes: usize) -> bool {
        let takes = bytes >= found / 2;
        if takes {
            self.freed += bytes;
        } else {
            self.add(holder, bytes);
        }
        takes
    }

    /// Notes that a session has ended.
    pub(crate) fn has_ended(&mut self) {
        self.ended += 1;
    }

    /// The number of sessions that have ended, and the bytes that the largest ones held.
    pub(crate) fn outcome(&self) -> (usize, usize) {
        (self.ended, self.freed)
    }
}
