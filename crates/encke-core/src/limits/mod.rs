//! Limits on rates and numbers: token buckets, the tables of buckets and counts that all shards share, budgets in shares,
//! and turns.

pub mod buckets;
pub mod counts;
pub mod rate;
pub mod sessions;
pub mod shares;
pub mod turns;
pub mod users;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use buckets::Buckets;
use counts::{Counts, ShardCounts};
use users::UsersOfNodes;

/// The state of all limits that hold for the whole server.
#[derive(Debug, Default)]
pub struct SharedLimits {
    /// The buckets of users, addresses and channels.
    pub buckets: Buckets,
    /// The buckets of the server: see [`Resource`].
    pub server: [AtomicU64; 3],
    /// The sessions of each user, and its subscriptions.
    pub users: Counts,
    /// The sessions, subscriptions and use of users on all nodes of a cluster.
    pub users_of_nodes: UsersOfNodes,
    /// The subscriptions to each channel whose rule has `subscribers_max`.
    pub subscribers: ShardCounts,
    /// Subscriptions of all sessions.
    pub subscriptions: AtomicUsize,
}

impl SharedLimits {
    /// The counted sessions and subscriptions of a user. For tests.
    pub fn of_user(&self, user: &str) -> [usize; 2] {
        [SESSIONS, SUBSCRIPTIONS].map(|kind| self.users.of(self.users.key((kind, user))))
    }

    /// The counted subscriptions of all sessions, and the number of users and channels that count anything. For tests.
    pub fn sizes(&self) -> [usize; 3] {
        [self.subscriptions.load(Ordering::Relaxed), self.users.names(), self.subscribers.names()]
    }
}

/// The limits of an outbox.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Messages.
    pub messages_max: usize,
    /// Bytes, as encoded frames.
    pub bytes_max: usize,
}

impl Capacity {
    /// Twice as much of both.
    pub fn twice(&self) -> Capacity {
        let Capacity { messages_max, bytes_max } = *self;
        Capacity { messages_max: messages_max.saturating_mul(2), bytes_max: bytes_max.saturating_mul(2) }
    }
}

/// The kinds of counts of a user.
pub(crate) const SESSIONS: u8 = 3;
pub(crate) const SUBSCRIPTIONS: u8 = 4;

/// A resource with a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Messages.
    Messages,
    /// Their bytes.
    Bytes,
    /// Handshakes.
    Handshakes,
}

/// The name under which the addresses of a host are counted. A host has a whole network of IPv6 addresses (RFC 6177), so
/// a network counts as one address.
pub fn network(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address) & (u128::MAX << 64),
    }
}
