//! The memory for messages that no reader has taken yet, which all subscriptions of a client share.
//!
//! Each subscription has a reserve. Beyond it, messages are charged to the shared part, of which one subscription takes at most as
//! much as it leaves free: half of it, if it is the only one that is not read. So readers that are asleep never take all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The shared part.
#[derive(Debug)]
pub(crate) struct Unread {
    bytes_max: usize,
    bytes: AtomicUsize,
    /// True if the client's task waits for room in it.
    is_awaited: AtomicBool,
    /// Wakes the client's task.
    wake: Arc<Notify>,
}

/// The memory that the messages of one subscription take.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Of its reserve.
    reserved_bytes: usize,
    /// Of the shared part.
    shared_bytes: usize,
}

/// The memory of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    bytes: usize,
    is_shared: bool,
}

impl Unread {
    pub(crate) fn new(bytes_max: usize, wake: Arc<Notify>) -> Unread {
        Unread { bytes_max, bytes: AtomicUsize::new(0), is_awaited: AtomicBool::new(false), wake }
    }

    /// Wakes the client's task, which delivers again.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Charges a message, or returns nothing if the subscription has to wait for room. Only the client's task calls it. A subscription
    /// that has nothing gets one message of any length, unless the shared part is full.
    pub(crate) fn charge(&self, taken: &mut Taken, bytes: usize) -> Option<Charge> {
        if taken.reserved_bytes + bytes <= RESERVED_BYTES {
            taken.reserved_bytes += bytes;
            return Some(Charge { bytes, is_shared: false });
        }
        let free = self.bytes_max.saturating_sub(self.bytes.load(Ordering::Acquire));
        let has_room = taken.shared_bytes + bytes <= free || (taken.bytes() == 0 && free > 0);
        if !has_room {
            self.is_awaited.store(true, Ordering::Release);
            return None;
        }
        taken.shared_bytes += bytes;
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        Some(Charge { bytes, is_shared: true })
    }

    /// A message has left its queue.
    pub(crate) fn release(&self, taken: &mut Taken, charge: Charge) {
        if charge.is_shared {
            taken.shared_bytes -= charge.bytes;
            self.free(charge.bytes);
        } else {
            taken.reserved_bytes -= charge.bytes;
        }
    }

    /// All messages of a subscription are gone.
    pub(crate) fn release_all(&self, taken: &mut Taken) {
        self.free(taken.shared_bytes);
        *taken = Taken::default();
    }

    fn free(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if self.is_awaited.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }
}

impl Charge {
    /// That of an item without a limit: there is one report of discarded messages for each time that a buffer was full.
    pub(crate) const NONE: Charge = Charge { bytes: 0, is_shared: false };
}

impl Taken {
    pub(crate) fn bytes(&self) -> usize {
        self.reserved_bytes + self.shared_bytes
    }
}

/// The memory that each subscription has for itself, in bytes.
pub(crate) const RESERVED_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1024 * 1024;
    const MESSAGE: usize = 16 * 1024;

    /// Charges messages until there is no room.
    fn fill(unread: &Unread, bytes: usize) -> (Taken, Vec<Charge>) {
        let mut taken = Taken::default();
        let charges = std::iter::from_fn(|| unread.charge(&mut taken, bytes)).collect();
        (taken, charges)
    }

    #[test]
    fn one_subscription_takes_half_and_more_of_them_never_all() {
        let unread = Unread::new(MAX, Arc::default());
        let filled: Vec<usize> = (0..10).map(|_| fill(&unread, MESSAGE).0.bytes()).collect();
        assert_eq!(filled[0], MAX / 2 + RESERVED_BYTES);
        assert!(filled.is_sorted_by(|one, two| one >= two), "{filled:?}");
        assert_eq!(filled[9], RESERVED_BYTES, "each has its reserve");
        assert!(filled.iter().sum::<usize>() <= MAX + 10 * RESERVED_BYTES);
    }

    #[test]
    fn one_message_of_any_length_gets_into_an_empty_subscription_but_only_one_beyond_the_limit() {
        let unread = Unread::new(MAX, Arc::default());
        let (mut first, charges) = fill(&unread, 3 * MAX);
        assert_eq!((first.bytes(), charges.len()), (3 * MAX, 1));
        assert!(fill(&unread, MAX).1.is_empty(), "the shared part is full");
        assert_eq!(fill(&unread, MESSAGE).0.bytes(), RESERVED_BYTES, "the reserve is not");
        unread.release(&mut first, charges[0]);
        assert_eq!(first.bytes(), 0);
        assert_eq!(fill(&unread, MAX).1.len(), 1);
    }

    #[test]
    fn room_that_becomes_free_in_one_subscription_is_room_for_the_others() {
        let unread = Unread::new(MAX, Arc::default());
        let (mut first, _) = fill(&unread, MESSAGE);
        let before = fill(&unread, MESSAGE).0.bytes();
        unread.release_all(&mut first);
        assert!(fill(&unread, MESSAGE).0.bytes() > before);
    }
}
