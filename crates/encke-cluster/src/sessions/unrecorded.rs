//! Sessions whose client relies on subscriptions that their record does not have yet. A node names those that wait for long with its
//! heartbeat: when it is gone, no other node goes on with them, because messages would be missing and nobody would say so.

use std::collections::HashMap;

use bytes::Bytes;
use encke_core::SessionOwner;
use foldhash::fast::RandomState;

use super::record::{KEY_BYTES, Key};

/// The sessions of a node that another one must not go on with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unrecorded {
    /// Some of them.
    keys: Vec<Key>,
    /// True if there are more.
    has_more: bool,
}

impl Unrecorded {
    /// Those of some owners. One with more than its share takes the room of no other, and its further sessions are not named.
    pub(super) fn of(sessions: impl Iterator<Item = (Key, SessionOwner)>) -> Unrecorded {
        let mut counts = HashMap::<SessionOwner, usize, RandomState>::default();
        let has_share = |(_, owner): &(Key, SessionOwner)| {
            let count = counts.entry(*owner).or_default();
            *count += 1;
            *count <= OF_OWNER_MAX
        };
        let mut keys = sessions.filter(has_share).map(|(key, _)| key);
        let first: Vec<Key> = keys.by_ref().take(UNRECORDED_MAX).collect();
        Unrecorded { keys: first, has_more: keys.next().is_some() }
    }

    /// True if a session may be one of them.
    pub(super) fn may_have(&self, key: &Key) -> bool {
        self.has_more || self.keys.contains(key)
    }

    /// Writes them: their keys, and a byte if there are more.
    pub(super) fn write(&self) -> Bytes {
        let mut bytes: Vec<u8> = self.keys.iter().flat_map(|key| key.bytes()).copied().collect();
        bytes.extend(self.has_more.then_some(1));
        bytes.into()
    }

    /// Reads what [`Unrecorded::write`] has written.
    pub(super) fn read(bytes: &[u8]) -> Unrecorded {
        let (keys, rest) = bytes.as_chunks::<KEY_BYTES>();
        let keys = keys.iter().take(UNRECORDED_MAX).filter_map(|key| Key::from_bytes(key)).collect();
        Unrecorded { keys, has_more: !rest.is_empty() }
    }
}

/// Sessions that a heartbeat names, of 16 bytes each. If there are more, other nodes go on with no session of the node.
pub(super) const UNRECORDED_MAX: usize = 1_024;
/// Those of one user or address.
pub(super) const OF_OWNER_MAX: usize = 16;
/// The time after which a record is late, in milliseconds. A write takes a few.
pub(super) const UNRECORDED_AFTER_MS: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::tests::id;

    #[test]
    fn sessions_read_back_and_too_many_are_all_sessions() {
        let keys = |count: u64| (0..count).map(|number| (Key::of(&id(1, number)), SessionOwner::of(number)));
        let some = Unrecorded::of(keys(3));
        assert_eq!(Unrecorded::read(&some.write()), some);
        assert!(some.may_have(&Key::of(&id(1, 2))) && !some.may_have(&Key::of(&id(1, 3))));
        let most = Unrecorded::of(keys(UNRECORDED_MAX as u64));
        assert!(!most.may_have(&Key::of(&id(1, UNRECORDED_MAX as u64))));
        let all = Unrecorded::of(keys(UNRECORDED_MAX as u64 + 1));
        assert_eq!(Unrecorded::read(&all.write()), all);
        assert!(all.may_have(&Key::of(&id(7, 7))));
        assert_eq!((Unrecorded::read(b""), Unrecorded::default().write()), (Unrecorded::default(), Bytes::new()));
    }

    #[test]
    fn an_owner_with_more_sessions_than_its_share_takes_the_room_of_no_other() {
        let mut sessions: Vec<_> = (0..2_000).map(|number| (Key::of(&id(1, number)), SessionOwner::of(1))).collect();
        let other = Key::of(&id(2, 0));
        sessions.push((other, SessionOwner::of(2)));
        let unrecorded = Unrecorded::of(sessions.iter().copied());
        assert_eq!((unrecorded.keys.len(), unrecorded.has_more), (OF_OWNER_MAX + 1, false));
        assert!(unrecorded.may_have(&other) && !unrecorded.may_have(&Key::of(&id(3, 0))));
    }
}
