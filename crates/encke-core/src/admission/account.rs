//! The account of bytes in transit between shards.
//!
//! Mailboxes themselves have no bound: a send inside the server never fails and never waits, so two shards cannot
//! wait for each other. This account is the bound. Every [`Envelope`](crate::Envelope) is charged when it is sent, and
//! its [`Charge`] is released when the receiving shard has processed it. While the account is full, the edges admit
//! nothing (see [`super::budget`]).
//!
//! ```text
//!   edges ──has_room?──▶ a shard ──charge──▶ mailbox ──▶ another shard ──release──▶ on_room: wake waiting readers
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::admission::budget::Weight;

/// The bytes in transit between the shards of a server, as atomics that all threads share.
#[derive(Default)]
pub struct MailboxAccount {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    on_room: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl MailboxAccount {
    /// The bytes in transit now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets the limit: setting `mailbox_bytes_max`.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// True if an edge may admit more. Heavy messages stop at the limit. Light messages have as much again, so that a
    /// flood does not stop them.
    pub fn has_room(&self, weight: Weight) -> bool {
        self.bytes() < self.limit(weight)
    }

    /// Sets a function that is called each time the account falls below a limit, on whichever thread released the
    /// bytes.
    pub fn set_on_room(&self, on_room: impl Fn() + Send + Sync + 'static) {
        // The first function stays: a server sets it once.
        let _set = self.on_room.set(Box::new(on_room));
    }

    /// Charges bytes until the charge is dropped.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Charge { account: self.clone(), bytes }
    }

    fn limit(&self, weight: Weight) -> usize {
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        match weight {
            Weight::Heavy => bytes_max,
            Weight::Light => bytes_max.saturating_mul(2),
        }
    }
}

/// Bytes on the account, released on drop.
pub struct Charge {
    account: Arc<MailboxAccount>,
    bytes: usize,
}

impl Charge {
    /// Charges more bytes.
    pub fn add(&mut self, bytes: usize) {
        self.account.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({})", self.bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let before = self.account.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        let after = before - self.bytes;
        let undercuts = |weight| (after..before).contains(&(self.account.limit(weight).saturating_sub(1)));
        if (undercuts(Weight::Heavy) || undercuts(Weight::Light))
            && let Some(on_room) = self.account.on_room.get()
        {
            on_room();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn falling_below_a_limit_notifies_once() {
        let account = Arc::<MailboxAccount>::default();
        let calls = Arc::<AtomicUsize>::default();
        account.set_bytes_max(100);
        let counter = calls.clone();
        account.set_on_room(move || _ = counter.fetch_add(1, Ordering::Relaxed));
        let calls = || calls.load(Ordering::Relaxed);
        let charges: Vec<Charge> = (0..5).map(|_| account.charge(50)).collect();
        assert_eq!((account.has_room(Weight::Heavy), account.has_room(Weight::Light)), (false, false));
        let mut charges = charges.into_iter();
        drop(charges.next());
        assert_eq!((calls(), account.has_room(Weight::Light)), (0, false), "200 of 200");
        drop(charges.next());
        assert_eq!((calls(), account.has_room(Weight::Light), account.has_room(Weight::Heavy)), (1, true, false));
        drop(charges.next());
        assert_eq!(calls(), 1);
        drop(charges.next());
        assert_eq!((calls(), account.has_room(Weight::Heavy)), (2, true));
        drop(charges.next());
        assert_eq!((calls(), account.bytes()), (2, 0));
    }
}
