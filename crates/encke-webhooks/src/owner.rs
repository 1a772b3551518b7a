//! Whose events are in a queue: each owner has its share of the queue and of the requests under way.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use encke_core::Caller;

/// The owner of an event: a user, an anonymous session, or the address of a client that has no session yet. It is a hash, so it is as
/// small for a long name as for a short one, and nobody can find two names with the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner(u64);

/// Makes owners.
#[derive(Debug, Default)]
pub(crate) struct Owners(RandomState);

impl Owners {
    /// The owner of what a session does: its user, or itself if it is anonymous.
    pub(crate) fn of(&self, caller: &Caller<'_>) -> Owner {
        match caller.user() {
            "" => Owner(self.0.hash_one(("session", caller.id))),
            user => Owner(self.0.hash_one(("user", user))),
        }
    }

    /// The owner of what a client does without a session.
    pub(crate) fn of_address(&self, address: Option<IpAddr>) -> Owner {
        Owner(self.0.hash_one(("address", address.map(encke_core::network))))
    }
}

#[cfg(test)]
impl Owner {
    /// An owner of a test.
    pub(crate) fn number(number: u64) -> Owner {
        Owner(number)
    }
}
