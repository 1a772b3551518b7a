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
//!
//! Messages that come from other nodes of a cluster are in parts by their channels. Each part has a share of the room of light messages, so a
//! flood on one channel does not delay those of other parts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::admission::budget::Weight;

/// The bytes in transit between the shards of a server, as atomics that all threads share.
#[derive(Default)]
pub struct MailboxAccount {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    parts: Parts,
    on_room: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The bytes of each part of what comes from other nodes.
struct Parts([AtomicUsize; PARTS]);

impl Default for Parts {
    fn default() -> Parts {
        Parts(std::array::from_fn(|_| AtomicUsize::default()))
    }
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
        self.charge_as(bytes, None)
    }

    /// Charges bytes of a part of what comes from other nodes, until the charge is dropped.
    pub fn charge_part(self: &Arc<Self>, part: usize, bytes: usize) -> Charge {
        self.charge_as(bytes, Some((part % PARTS) as u8))
    }

    fn charge_as(self: &Arc<Self>, bytes: usize, part: Option<u8>) -> Charge {
        let mut charge = Charge { account: self.clone(), bytes: 0, part };
        charge.add(bytes);
        charge
    }

    /// True if more of a part of what comes from other nodes may be admitted. Above the limit of heavy messages each part has a share of
    /// the room of light ones.
    pub fn has_room_for_part(&self, part: usize) -> bool {
        let has_share = || self.parts.0[part % PARTS].load(Ordering::Relaxed) < self.share_of_part();
        self.has_room(Weight::Heavy) || (self.has_room(Weight::Light) && has_share())
    }

    fn share_of_part(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed) / PARTS
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
    /// Above 4 GiB nothing more counts: no message is so large.
    bytes: u32,
    part: Option<u8>,
}

impl Charge {
    /// Charges more bytes.
    pub fn add(&mut self, bytes: usize) {
        let more = u32::try_from(bytes).unwrap_or(u32::MAX).min(u32::MAX - self.bytes);
        self.bytes += more;
        self.account.bytes.fetch_add(more as usize, Ordering::Relaxed);
        if let Some(part) = self.part {
            self.account.parts.0[usize::from(part)].fetch_add(more as usize, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({})", self.bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = self.bytes as usize;
        let before = self.account.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let after = before - bytes;
        let falls_below = |(before, after), limit: usize| (after..before).contains(&limit.saturating_sub(1));
        let undercuts = |weight| falls_below((before, after), self.account.limit(weight));
        let part_undercuts = self.part.is_some_and(|part| {
            let before = self.account.parts.0[usize::from(part)].fetch_sub(bytes, Ordering::Relaxed);
            falls_below((before, before - bytes), self.account.share_of_part())
        });
        // Below the limit of heavy messages a part waits for nothing.
        let frees_part = part_undercuts && after >= self.account.limit(Weight::Heavy);
        if (undercuts(Weight::Heavy) || undercuts(Weight::Light) || frees_part)
            && let Some(on_room) = self.account.on_room.get()
        {
            on_room();
        }
    }
}

/// The parts of what comes from other nodes: as many as the partitions of histories.
const PARTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_what_other_nodes_send_has_a_share_when_another_one_fills_the_room() {
        let account = Arc::<MailboxAccount>::default();
        account.set_bytes_max(64 * 100);
        let calls = Arc::<AtomicUsize>::default();
        let counter = calls.clone();
        account.set_on_room(move || _ = counter.fetch_add(1, Ordering::Relaxed));
        let mut flood = Vec::new();
        while account.has_room_for_part(1) {
            flood.push(account.charge_part(1, 100));
        }
        assert_eq!(flood.len(), 64);
        let quiet = account.charge_part(2, 99);
        assert!(account.has_room_for_part(2), "a byte is left of its share");
        let mut more = account.charge_part(2, 0);
        more.add(1);
        assert!(!account.has_room_for_part(2) && account.has_room_for_part(3));
        drop(quiet);
        assert!(account.has_room_for_part(2) && !account.has_room_for_part(1));
        assert_eq!(calls.load(Ordering::Relaxed), 1, "the part has room");
        drop(more);
        flood.truncate(1);
        assert!(account.has_room_for_part(1));
        drop(flood);
        assert_eq!(
            (account.bytes(), account.parts.0.iter().map(|part| part.load(Ordering::Relaxed)).max()),
            (0, Some(0))
        );
    }

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
