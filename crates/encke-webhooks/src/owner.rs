//! Whose events are in a queue: each owner has its share of the queue and of the requests under way.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use encke_core::Caller;

/// The owner of an event: a user, the address of an anonymous session, or that of a client that has no session yet. It is a hash, so it is as
/// small for a long name as for a short one, and nobody can find two names with the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner(u64);

/// Makes owners.
#[derive(Debug, Default)]
pub(crate) struct Owners(RandomState);

impl Owners {
    /// The owner of what a session does: its user, or its address if it is anonymous. So one address gets no further share with each
    /// session.
    pub(crate) fn of(&self, caller: &Caller<'_>) -> Owner {
        match (caller.user(), caller.counted_for) {
            ("", Some(address)) => Owner(self.0.hash_one(("sessions", address))),
            ("", None) => Owner(self.0.hash_one(("session", caller.id))),
            (user, _) => Owner(self.0.hash_one(("user", user))),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use encke_core::{Identity, SessionOwner};

    use super::*;

    #[test]
    fn sessions_of_one_user_or_of_one_address_are_one_owner() {
        let owners = Owners::default();
        let (ann, bob) = (Arc::new(Identity::of_user("ann")), Arc::new(Identity::of_user("bob")));
        let of = |id, user, address: u64| owners.of(&Caller::new(id, user).with_owner(Some(SessionOwner::of(address))));
        assert_eq!((of("1", None, 7), of("1", Some(&ann), 7)), (of("2", None, 7), of("2", Some(&ann), 8)));
        assert_ne!(of("1", None, 7), of("1", None, 8));
        assert_ne!(of("1", Some(&ann), 7), of("1", Some(&bob), 7));
        assert_ne!(owners.of(&Caller::new("1", None)), owners.of(&Caller::new("2", None)), "nothing else is known");
    }
}
