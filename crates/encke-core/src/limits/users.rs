//! The sessions, subscriptions and use of users on this node of a cluster and on the others: the limits of users hold for all nodes together.
//!
//! Shards count here what users do. Once a second the node takes it, reports it to the other nodes, and states here what they have reported. So a limit
//! is as old as that: what a user does on two nodes within a second or two may exceed it.
//!
//! ```text
//!   shards ── add, remove, used ──▶ UsersOfNodes ── take ──▶ other nodes
//!   shards ◀── elsewhere, rate ─────     ▲ ── state ◀─────── other nodes
//! ```

use sha2::{Digest as _, Sha256};

use super::counts::Striped;
use super::rate::Rate;
use super::{Resource, SESSIONS, SUBSCRIPTIONS};

/// The users of all nodes, as far as they are known here. On a server that is no node of a cluster it stays empty.
#[derive(Debug, Default)]
pub struct UsersOfNodes {
    users: Striped<User>,
}

/// A user, the same on all nodes: 8 bytes of a hash that nobody can aim at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserKey(pub u64);

impl UserKey {
    /// The key of a user.
    pub fn of(user: &str) -> UserKey {
        let hash = Sha256::new().chain_update(b"encke user ").chain_update(user).finalize();
        UserKey(hash.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// A number below `count`, which spreads users evenly.
    pub fn part(self, count: u64) -> u64 {
        self.0 % count.max(1)
    }
}

/// The sessions and subscriptions of a user, and its use of resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserUse {
    /// Its sessions.
    pub sessions: u32,
    /// The subscriptions of all of them.
    pub subscriptions: u32,
    /// Its use of each resource in a second: see [`Resource`].
    pub used: [u32; 3],
}

impl UserUse {
    /// So many sessions or subscriptions, as the kind of the count says.
    pub(crate) fn of(kind: u8, count: usize) -> UserUse {
        let of_kind = |other: u8| if kind == other { count as u32 } else { 0 };
        UserUse { sessions: of_kind(SESSIONS), subscriptions: of_kind(SUBSCRIPTIONS), used: [0; 3] }
    }

    /// The count of this kind.
    pub(crate) fn count(&self, kind: u8) -> usize {
        (if kind == SESSIONS { self.sessions } else { self.subscriptions }) as usize
    }

    /// True if it is nothing.
    pub fn is_nothing(&self) -> bool {
        *self == UserUse::default()
    }
}

/// The sessions, subscriptions and use of a user on the other nodes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// The sums.
    pub sum: UserUse,
    /// For each resource the nodes that have reported a use of it.
    pub nodes: [u16; 3],
}

#[derive(Debug, Default)]
struct User {
    here: UserUse,
    /// True if its sessions or subscriptions have changed since they were taken.
    is_changed: bool,
    elsewhere: Elsewhere,
}

impl User {
    fn is_nothing(&self) -> bool {
        self.here.is_nothing() && !self.is_changed && self.elsewhere == Elsewhere::default()
    }
}

impl UsersOfNodes {
    /// A user has more here, or has used more.
    pub fn add(&self, key: UserKey, more: UserUse) {
        self.change(key, |user| {
            let UserUse { sessions, subscriptions, used } = &mut user.here;
            *sessions = sessions.saturating_add(more.sessions);
            *subscriptions = subscriptions.saturating_add(more.subscriptions);
            used.iter_mut().zip(more.used).for_each(|(used, more)| *used = used.saturating_add(more));
            user.is_changed |= more.sessions + more.subscriptions > 0;
        });
    }

    /// A user has fewer sessions or subscriptions here.
    pub fn remove(&self, key: UserKey, fewer: UserUse) {
        self.change(key, |user| {
            let UserUse { sessions, subscriptions, .. } = &mut user.here;
            *sessions = sessions.saturating_sub(fewer.sessions);
            *subscriptions = subscriptions.saturating_sub(fewer.subscriptions);
            user.is_changed = true;
        });
    }

    /// The sessions, subscriptions and use of a user on the other nodes.
    pub fn elsewhere(&self, key: UserKey) -> UserUse {
        self.users.lock(key.0).get(&key.0).map(|user| user.elsewhere.sum).unwrap_or_default()
    }

    /// The part of a rate of a user that this node may grant: what the others leave, and at least an equal part.
    pub fn rate(&self, key: UserKey, resource: Resource, rate: Rate) -> Rate {
        let at = resource as usize;
        let Some(Elsewhere { sum, nodes }) = self.users.lock(key.0).get(&key.0).map(|user| user.elsewhere) else {
            return rate;
        };
        let equal = rate.0 / (u64::from(nodes[at]) + 1);
        // A rate of 0 is none.
        Rate(rate.0.saturating_sub(u64::from(sum.used[at])).max(equal).max(u64::from(rate.is_on())))
    }

    /// Takes what all users have here, with what they have used since the last call. True beside those whose sessions or subscriptions have
    /// changed.
    pub fn take(&self, mut each: impl FnMut(UserKey, UserUse, bool)) {
        for stripe in &self.users.stripes {
            stripe.lock().retain(|key, user| {
                if !user.here.is_nothing() || user.is_changed {
                    each(UserKey(*key), user.here, user.is_changed);
                }
                (user.is_changed, user.here.used) = (false, [0; 3]);
                !user.is_nothing()
            });
        }
    }

    /// States what a user has and uses on the other nodes.
    pub fn state(&self, key: UserKey, elsewhere: Elsewhere) {
        self.change(key, |user| user.elsewhere = elsewhere);
    }

    /// The number of users that have something here or elsewhere.
    pub fn count(&self) -> usize {
        self.users.len()
    }

    fn change(&self, key: UserKey, change: impl FnOnce(&mut User)) {
        let mut users = self.users.lock(key.0);
        let user = users.entry(key.0).or_default();
        change(user);
        if user.is_nothing() {
            users.remove(&key.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(users: &UsersOfNodes) -> Vec<(UserKey, UserUse, bool)> {
        let mut all = Vec::new();
        users.take(|key, here, is_changed| all.push((key, here, is_changed)));
        all
    }

    #[test]
    fn what_a_user_has_stays_what_it_has_used_is_taken_once_and_its_end_is_reported() {
        let (users, ann) = (UsersOfNodes::default(), UserKey::of("ann"));
        let has = UserUse { sessions: 1, subscriptions: 3, used: [2, 70, 1] };
        users.add(ann, has);
        assert_eq!(taken(&users), [(ann, has, true)]);
        assert_eq!(taken(&users), [(ann, UserUse { used: [0; 3], ..has }, false)]);
        users.add(ann, UserUse { used: [1, 5, 0], ..UserUse::default() });
        assert!(matches!(taken(&users)[..], [(_, UserUse { used: [1, 5, 0], .. }, false)]));
        users.remove(ann, has);
        assert_eq!(taken(&users), [(ann, UserUse::default(), true)]);
        assert_eq!((taken(&users), users.count()), (Vec::new(), 0));
    }

    #[test]
    fn other_nodes_leave_what_they_do_not_use_and_at_least_an_equal_part() {
        let (users, ann) = (UsersOfNodes::default(), UserKey::of("ann"));
        let rate_with = |used: u32, nodes: u16| {
            let sum = UserUse { used: [used, 0, 0], ..UserUse::default() };
            users.state(ann, Elsewhere { sum, nodes: [nodes, 0, 0] });
            users.rate(ann, Resource::Messages, Rate(90)).0
        };
        assert_eq!((rate_with(0, 0), rate_with(30, 1), rate_with(60, 1), rate_with(180, 2)), (90, 60, 45, 30));
        assert_eq!(rate_with(10_000, 200), 1, "never none");
        assert_eq!(users.rate(ann, Resource::Messages, Rate(0)), Rate(0), "no limit stays none");
        assert_eq!(users.rate(UserKey::of("bob"), Resource::Messages, Rate(90)), Rate(90));
        users.state(ann, Elsewhere::default());
        assert_eq!(users.count(), 0);
    }
}
