//! The sessions of all shards, in shares: an owner leaves room for others below `sessions_max`.
//!
//! Sessions that have not connected yet make room when others need it. So they count as free, and among what their own
//! owner holds.

use parking_lot::Mutex;

use super::shares::{Amount, Budget, Share, Shares, Urgency};

/// The number of sessions of each owner.
#[derive(Debug, Default)]
pub struct SessionShares(Mutex<Shares<SessionOwner>>);

/// The owner of a session: 31 bits of the hash of its user, or of its origin. It is small because each session has one.
/// Two owners with the same bits are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionOwner(u32);

impl SessionOwner {
    /// The owner with this hash.
    pub fn of(hash: u64) -> SessionOwner {
        SessionOwner(hash as u32 & !NEWCOMER)
    }
}

/// The standing of a session in 4 bytes: its index among those that have not connected yet, which keep its owner there, or
/// its owner.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing(u32);

impl Standing {
    /// It is a newcomer with this index.
    pub(crate) fn newcomer(index: u32) -> Standing {
        Standing(index | NEWCOMER)
    }

    /// It has connected, and counts for this owner.
    pub(crate) fn of(owner: SessionOwner) -> Standing {
        Standing(owner.0)
    }

    /// Its owner, or otherwise its index among the newcomers.
    pub(crate) fn owner(self) -> Result<SessionOwner, u32> {
        if self.0 & NEWCOMER == 0 { Ok(SessionOwner(self.0)) } else { Err(self.0 & !NEWCOMER) }
    }
}

/// The bit of a [`Standing`] that is an index.
const NEWCOMER: u32 = 1 << 31;

impl SessionShares {
    /// The number of sessions.
    pub fn count(&self) -> usize {
        self.0.lock().used().count
    }

    /// Counts one more session, if its owner may have it. `sessions_max` is for those that do not make room; `newcomers`
    /// is the number of the others. Returns the number of all sessions with this one.
    pub(crate) fn take(&self, owner: SessionOwner, sessions_max: usize, newcomers: usize) -> Option<usize> {
        let budget = Budget::new(sessions_max.saturating_add(newcomers), usize::MAX);
        let mut shares = self.0.lock();
        let _held_by_the_session = shares.take(&budget, owner, Amount::of(1), Urgency::Common).ok()?;
        Some(shares.used().count)
    }

    /// Counts a session that exists already.
    pub(crate) fn add(&self, owner: SessionOwner) {
        let _held_by_the_session = self.0.lock().take_regardless(owner, None, Amount::of(1), Urgency::Common);
    }

    /// Ends the count of a session.
    pub(crate) fn give_back(&self, owner: SessionOwner) {
        self.0.lock().give_back(Share::of_one(owner));
    }
}
