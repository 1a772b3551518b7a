//! The owners of sessions: which sessions a user has, which a token has opened, and which tokens are revoked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::events::SessionKey;
use crate::identity::Identity;

/// The sessions of each user and of each token, of one shard.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    users: Index,
    tokens: Index,
}

/// The positions of a session among those of its user and of its token.
pub(crate) type Slots = [u32; 2];

/// The slot of a session that is in no list.
pub(crate) const NO_SLOT: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Index(HashMap<Box<str>, Vec<SessionKey>, RandomState>);

impl Index {
    fn add(&mut self, name: &str, key: SessionKey) -> u32 {
        if name.is_empty() {
            return NO_SLOT;
        }
        let sessions = match self.0.get_mut(name) {
            Some(sessions) => sessions,
            None => self.0.entry(name.into()).or_default(),
        };
        sessions.push(key);
        sessions.len() as u32 - 1
    }

    /// Removes the session in a slot. Returns the session that has this slot now, if another one moved there.
    fn remove(&mut self, name: &str, slot: u32) -> Option<SessionKey> {
        let sessions = self.0.get_mut(name).filter(|sessions| (slot as usize) < sessions.len())?;
        sessions.swap_remove(slot as usize);
        let moved = sessions.get(slot as usize).copied();
        if sessions.is_empty() {
            self.0.remove(name);
            if self.0.len() < self.0.capacity() / 8 {
                self.0.shrink_to_fit();
            }
        }
        moved
    }

    fn of(&self, name: &str) -> Vec<SessionKey> {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

impl Owners {
    /// The number of users and tokens with a session.
    pub(crate) fn len(&self) -> usize {
        self.users.0.len() + self.tokens.0.len()
    }

    /// Adds a session of this identity.
    pub(super) fn add(&mut self, identity: &Identity, key: SessionKey) -> Slots {
        let token = identity.token_id.as_deref().unwrap_or_default();
        [self.users.add(&identity.user, key), self.tokens.add(token, key)]
    }

    /// Removes the session of this identity in these slots. Returns the sessions that have its slots now.
    pub(super) fn remove(&mut self, identity: &Identity, [user, token]: Slots) -> [Option<SessionKey>; 2] {
        let token_id = identity.token_id.as_deref().unwrap_or_default();
        [self.users.remove(&identity.user, user), self.tokens.remove(token_id, token)]
    }

    /// The sessions of a user.
    pub(crate) fn of_user(&self, user: &str) -> Vec<SessionKey> {
        self.users.of(user)
    }

    /// The sessions of a token.
    pub(crate) fn of_token(&self, token_id: &str) -> Vec<SessionKey> {
        self.tokens.of(token_id)
    }
}

/// The tokens that are revoked and have not expired yet, of all shards. Their number is limited by the caller, and an
/// id that is longer than 255 bytes counts as several.
#[derive(Debug, Default)]
pub struct Revoked {
    tokens: Mutex<Tokens>,
    /// Their number: most servers have none, and need no lock to see that.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Tokens {
    /// For each id the end of its token, in milliseconds since 1970.
    ends: HashMap<Box<str>, u64>,
    /// The sum of what the ids count.
    units: usize,
}

/// The number that a token counts as.
fn units(token_id: &str) -> usize {
    1 + token_id.len() / ID_BYTES
}

impl Revoked {
    /// Revokes a token until it expires by itself, in milliseconds since 1970. Returns false if there are `max` revoked
    /// tokens that have not expired, with this one.
    pub fn add(&self, token_id: &str, until_ms: u64, now_wall_ms: u64, max: usize) -> bool {
        let mut tokens = self.tokens.lock();
        let Tokens { ends, units: sum } = &mut *tokens;
        if !ends.contains_key(token_id) {
            let further = units(token_id);
            if *sum + further > max {
                ends.retain(|_, until_ms| *until_ms > now_wall_ms);
                *sum = ends.keys().map(|token_id| units(token_id)).sum();
            }
            if *sum + further > max {
                self.count.store(ends.len(), Ordering::Release);
                return false;
            }
            *sum += further;
        }
        let until = ends.entry(token_id.into()).or_default();
        *until = until_ms.max(*until);
        self.count.store(ends.len(), Ordering::Release);
        true
    }

    /// The end of a revoked token, in milliseconds since 1970. None if it is not revoked.
    pub fn end_of(&self, token_id: &str) -> Option<u64> {
        self.tokens.lock().ends.get(token_id).copied()
    }

    /// True if the token of an identity is revoked.
    pub fn has(&self, identity: &Identity) -> bool {
        let Some(token_id) = identity.token_id.as_deref().filter(|_| !self.is_empty()) else { return false };
        self.tokens.lock().ends.contains_key(token_id)
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them that have not expired, each with its end.
    pub fn all(&self, now_wall_ms: u64) -> Vec<(Box<str>, u64)> {
        let tokens = self.tokens.lock();
        let mut all: Vec<_> = tokens.ends.iter().map(|(token_id, until_ms)| (token_id.clone(), *until_ms)).collect();
        all.retain(|(_, until_ms)| *until_ms > now_wall_ms);
        all.sort_unstable();
        all
    }
}

/// The bytes of an id above which a revoked token counts as several.
const ID_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoked_token_with_a_long_id_counts_as_several() {
        let revoked = Revoked::default();
        let long = |letter: &str| letter.repeat(4 * ID_BYTES);
        assert!(revoked.add(&long("a"), 100, 0, 12) && revoked.add(&long("b"), 100, 0, 12));
        assert!(
            !revoked.add(&long("c"), 100, 0, 12) && revoked.add("c", 100, 0, 12) && revoked.add(&long("b"), 100, 0, 12)
        );
        assert_eq!(revoked.len(), 3);
        assert!(revoked.add(&long("d"), 300, 100, 12), "the others have expired");
        assert_eq!(revoked.len(), 1);
    }

    #[test]
    fn sessions_of_a_user_are_found_after_any_removal() {
        let mut owners = Owners::default();
        let key = |index| SessionKey { index, generation: 1 };
        let identity = Identity { token_id: Some("t".into()), ..Identity::of_user("ann") };
        let mut slots: Vec<Slots> = (0..5).map(|index| owners.add(&identity, key(index))).collect();
        for gone in [1, 0, 4] {
            for (at, moved) in owners.remove(&identity, slots[gone]).into_iter().enumerate() {
                if let Some(moved) = moved {
                    slots[moved.index as usize][at] = slots[gone][at];
                }
            }
        }
        let mut left = owners.of_user("ann");
        left.sort_unstable_by_key(|key| key.index);
        assert_eq!(left, [key(2), key(3)]);
        for gone in [2, 3] {
            for (at, moved) in owners.remove(&identity, slots[gone]).into_iter().enumerate() {
                moved.into_iter().for_each(|moved| slots[moved.index as usize][at] = slots[gone][at]);
            }
        }
        assert_eq!((owners.len(), owners.of_token("t")), (0, Vec::new()));
        assert_eq!(owners.add(&Identity::default(), key(9)), [NO_SLOT; 2]);
        assert_eq!(owners.remove(&Identity::default(), [NO_SLOT; 2]), [None, None]);
    }

    #[test]
    fn revoked_tokens_make_room_when_they_have_expired() {
        let revoked = Revoked::default();
        assert!(revoked.add("a", 100, 0, 2) && revoked.add("b", 200, 0, 2) && revoked.add("b", 150, 0, 2));
        assert!(!revoked.add("c", 300, 50, 2), "both are still valid");
        assert!(revoked.add("c", 300, 100, 2), "the first has expired");
        let of = |token: &str| Identity { token_id: Some(token.into()), ..Identity::default() };
        assert!(
            !revoked.has(&of("a"))
                && revoked.has(&of("b"))
                && revoked.has(&of("c"))
                && !revoked.has(&Identity::default())
        );
        assert_eq!(revoked.all(200), [("c".into(), 300)]);
    }
}
