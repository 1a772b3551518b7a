//! The shards that want a channel: the only map that all shards share.
//!
//! A shard adds its interest when its first session subscribes, *before* the reply to the subscription leaves, and
//! removes it after its last subscriber left. So a client that publishes after it has seen that reply reaches the
//! subscriber. The map is read once for each publication, and never if there is only one shard.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use bayeux::ChannelName;

/// Channel or pattern → the shards with subscribers, a bit each.
#[derive(Debug, Default)]
pub struct Interest {
    shards: RwLock<Names>,
}

type Names = HashMap<Box<str>, u64, foldhash::fast::RandomState>;

impl Interest {
    /// Notes that a shard has its first subscriber of `name`.
    pub fn add(&self, name: &str, shard: usize) {
        let mut shards = self.shards.write().unwrap_or_else(PoisonError::into_inner);
        match shards.get_mut(name) {
            Some(bits) => *bits |= 1 << shard,
            None => {
                shards.insert(name.into(), 1 << shard);
            }
        }
    }

    /// Notes that a shard has no subscriber of `name` any more.
    pub fn remove(&self, name: &str, shard: usize) {
        let mut shards = self.shards.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(bits) = shards.get_mut(name) {
            *bits &= !(1 << shard);
            if *bits == 0 {
                shards.remove(name);
                give_room_back(&mut shards);
            }
        }
    }

    /// The shards that want a publication to `channel`, a bit each. `scratch` is a buffer to build pattern names in.
    pub fn of(&self, channel: ChannelName<'_>, scratch: &mut String) -> u64 {
        let shards = self.shards.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = shards.get(channel.as_str()).copied().unwrap_or(0);
        if !channel.is_pattern() {
            channel.patterns(scratch, |pattern| all |= shards.get(pattern).copied().unwrap_or(0));
        }
        all
    }

    /// The number of names with any interest.
    pub fn len(&self) -> usize {
        self.shards.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True if no shard wants anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Releases the memory of most names when most are gone. The removals pay for the cost of moving the others.
fn give_room_back(shards: &mut Names) {
    if shards.capacity() > ROOM_KEPT && shards.len() < shards.capacity() / 4 {
        shards.shrink_to(shards.len() * 2);
    }
}

/// The map is not shrunk below this capacity.
const ROOM_KEPT: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interest_is_a_bit_a_shard_and_leaves_nothing_behind() {
        let interest = Interest::default();
        interest.add("/a", 0);
        interest.add("/a/**", 63);
        interest.add("/a", 1);
        let limits = bayeux::Limits::default();
        let of = |name: &str| interest.of(ChannelName::parse(name, &limits).expect("valid"), &mut String::new());
        assert_eq!((of("/a"), of("/a/b/c"), of("/b")), (1 | 2, 1 << 63, 0));
        interest.remove("/a", 0);
        interest.remove("/a", 1);
        interest.remove("/a/**", 63);
        assert!(interest.is_empty());
    }

    #[test]
    fn names_that_are_gone_leave_little_memory() {
        let interest = Interest::default();
        let names: Vec<String> = (0..100_000).map(|number| format!("/a/{number}")).collect();
        names.iter().for_each(|name| interest.add(name, 0));
        names[10..].iter().for_each(|name| interest.remove(name, 0));
        let room = interest.shards.read().map_or(usize::MAX, |shards| shards.capacity());
        assert!(room <= 2 * ROOM_KEPT && interest.len() == 10, "room for {room}");
    }
}
