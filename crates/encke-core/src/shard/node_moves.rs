//! The rate of moves to other nodes: of one session, and of the bytes of all sessions of one owner. A move carries the whole session, so a
//! client that comes by two nodes in turns would else cost the cluster that again and again. A session that stays is served through its node.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;

use crate::events::SessionKey;
use crate::limits::sessions::SessionOwner;

/// The moves of the last second.
#[derive(Debug, Default)]
pub(super) struct NodeMoves {
    /// The times at which sessions have come from other nodes, in milliseconds. They go after one to two seconds.
    came: BTreeMap<SessionKey, u64>,
    /// The bytes that the sessions of each owner have carried to other nodes since [`NodeMoves::since_ms`].
    given: HashMap<SessionOwner, usize, RandomState>,
    since_ms: u64,
}

impl NodeMoves {
    /// A session has come from another node.
    pub(super) fn came(&mut self, now_ms: u64, key: SessionKey) {
        self.forget(now_ms);
        self.came.insert(key, now_ms);
    }

    /// True if a session of this owner may move with so many bytes, which then count.
    pub(super) fn give(&mut self, now_ms: u64, key: SessionKey, owner: SessionOwner, bytes: usize) -> bool {
        self.forget(now_ms);
        if self.came.get(&key).is_some_and(|came_ms| now_ms < came_ms + MOVE_EVERY_MS) {
            return false;
        }
        let given = self.given.entry(owner).or_default();
        // The first one of a second moves, however large it is.
        let has_room = *given == 0 || *given + bytes <= OWNER_MOVED_BYTES_PER_S_MAX;
        if has_room {
            *given += bytes;
            self.came.remove(&key);
        }
        has_room
    }

    /// Forgets what is older than a second, once in a second.
    fn forget(&mut self, now_ms: u64) {
        if now_ms < self.since_ms + 1_000 {
            return;
        }
        self.since_ms = now_ms;
        self.given.clear();
        self.came.retain(|_, came_ms| now_ms < *came_ms + MOVE_EVERY_MS);
    }
}

/// The time for which a session stays on the node to which it has moved, in milliseconds.
pub(super) const MOVE_EVERY_MS: u64 = 1_000;
/// The bytes that the sessions of one user or address carry to other nodes in a second, from one shard.
pub(super) const OWNER_MOVED_BYTES_PER_S_MAX: usize = 4 << 20;
/// The bytes of a session that moves, beside its messages and its subscriptions.
pub(super) const MOVE_BYTES: usize = 4 * 1_024;
/// The bytes of each of its subscriptions.
pub(super) const SUBSCRIPTION_BYTES: usize = 64;
