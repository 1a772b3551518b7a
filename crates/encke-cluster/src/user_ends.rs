//! The keys of users whose sessions have ended by an order, beside those of revoked tokens. Nodes of earlier versions do not know them, and
//! leave them alone.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use encke_core::{Amount, Budget, SessionOwner, Share, Shares, Urgency};
use foldhash::fast::RandomState;
use sha2::{Digest as _, Sha256};

use crate::hex;

/// An order that has ended all sessions of a user.
#[derive(Clone, Copy, Debug)]
pub struct UserEnd<'a> {
    /// The user.
    pub user: &'a str,
    /// The mark of the order.
    pub mark: u64,
    /// The time for which it has to be known, in milliseconds.
    pub ttl_ms: u64,
    /// The one who has caused it, by a hook or a service. None: the program, or the HTTP API.
    pub owner: Option<SessionOwner>,
    /// Comes back with [`RevocationOutput::Written`](crate::RevocationOutput::Written).
    pub waiter: Option<u64>,
}

/// The room of marks that clients cause, by hooks and services, for as long as these are known.
#[derive(Default)]
pub(crate) struct MarkShares {
    shares: Shares<SessionOwner>,
    /// Oldest first: the times until which they are known, in milliseconds, and the hashes of the users.
    taken: VecDeque<(u64, [u8; 32], Share<SessionOwner>)>,
    /// The users of these. A later mark of one replaces the earlier one, and takes no further room.
    users: HashSet<[u8; 32], RandomState>,
}

impl MarkShares {
    /// Takes room for a mark. False if there is none. The program has as much as it wants.
    pub(crate) fn take(&mut self, now_ms: u64, owner: Option<SessionOwner>, user: &str, ttl_ms: u64) -> bool {
        while let Some((_, user, share)) = self.taken.pop_front_if(|(until_ms, ..)| *until_ms <= now_ms) {
            self.shares.give_back(share);
            self.users.remove(&user);
        }
        let Some(owner) = owner else { return true };
        let user = hash_of(user);
        if self.users.contains(&user) {
            return true;
        }
        let budget = Budget::new(MARKS_OF_CLIENTS_MAX, usize::MAX);
        let share = self.shares.take(&budget, owner, Amount::of(1), Urgency::Common);
        let Ok(share) = share else { return false };
        self.users.insert(user);
        self.taken.push_back((now_ms + ttl_ms, user, share));
        true
    }
}

/// The key of a user.
pub(crate) fn key_of(user: &str) -> String {
    format!("{PREFIX}{}", hex::of(&hash_of(user)))
}

/// The hash that stands for a user.
pub(crate) fn hash_of(user: &str) -> [u8; 32] {
    Sha256::new().chain_update(b"encke user ").chain_update(user).finalize().into()
}

/// Writes the value of a user.
pub(crate) fn write(user: &str, mark: u64) -> Bytes {
    let mut value = vec![VERSION];
    value.extend_from_slice(&mark.to_le_bytes());
    value.extend_from_slice(user.as_bytes());
    value.into()
}

/// Reads a user with its mark. None if the key is none of a user, or has another value.
pub(crate) fn read(key: &str, value: &[u8]) -> Option<(Box<str>, u64)> {
    let (mark, user) = value.strip_prefix(&[VERSION])?.split_first_chunk()?;
    let user = str::from_utf8(user).ok().filter(|user| key_of(user) == key)?;
    Some((user.into(), u64::from_le_bytes(*mark)))
}

const PREFIX: &str = "u.";
/// Not that of a revoked token.
const VERSION: u8 = 2;
/// Marks that the clients of a node may have caused at once.
const MARKS_OF_CLIENTS_MAX: usize = 16 * 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_from_the_key_of_its_user_only() {
        let value = write("ann \u{e4}", 7);
        assert_eq!(read(&key_of("ann \u{e4}"), &value), Some(("ann \u{e4}".into(), 7)));
        assert_eq!(read(&key_of("bob"), &value), None);
        assert_eq!(read(&key_of(""), b"\x01\0\0\0\0\0\0\0\0"), None, "that of a token");
        assert_eq!(read("u.", b"\x02"), None);
    }

    #[test]
    fn one_client_leaves_room_for_the_marks_of_others_and_the_program_needs_none() {
        let mut shares = MarkShares::default();
        let mut take =
            |now_ms, owner: Option<u64>, user: &str| shares.take(now_ms, owner.map(SessionOwner::of), user, 1_000);
        let of_one = (0..100_000).take_while(|number| take(1, Some(1), &number.to_string())).count();
        assert!((4_000..16_000).contains(&of_one), "{of_one}");
        assert!(take(1, Some(1), "7"), "a later mark of one of these users");
        assert!(take(1, Some(2), "ann") && take(1, None, "bob") && !take(1, Some(1), "carol"));
        assert!(take(1_001, Some(1), "carol"), "the first ones are known no more");
    }
}
