//! The shards that want a channel: the only map that all shards share.
//!
//! A shard adds its interest when its first session subscribes, *before* the reply to the subscription leaves, and
//! removes it after its last subscriber left. So a client that publishes after it has seen that reply reaches the
//! subscriber. The map is read once for each publication, and not at all while it is empty. A single shard adds nothing
//! to it.
//!
//! The subscribers in the process are a shard, too: one without sessions, whose index is the number of
//! shards.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use bayeux::ChannelName;
use parking_lot::RwLock;

/// Channel or pattern → the shards with subscribers, a bit each.
#[derive(Debug, Default)]
pub struct Interest {
    names: RwLock<Names>,
    /// The number of names. Written while `names` is locked.
    len: AtomicUsize,
}

#[derive(Debug, Default)]
struct Names {
    shards: HashMap<Box<str>, u64, foldhash::fast::RandomState>,
    /// The number of patterns among the names.
    patterns: usize,
}

impl Interest {
    /// Notes that a shard has its first subscriber of `name`.
    pub fn add(&self, name: &str, shard: usize) {
        let mut names = self.names.write();
        match names.shards.get_mut(name) {
            Some(bits) => *bits |= 1 << shard,
            None => {
                names.shards.insert(name.into(), 1 << shard);
                names.patterns += usize::from(ChannelName::known(name).is_pattern());
                self.len.store(names.shards.len(), Ordering::Release);
            }
        }
    }

    /// Notes that a shard has no subscriber of `name` any more.
    pub fn remove(&self, name: &str, shard: usize) {
        let mut names = self.names.write();
        if let Some(bits) = names.shards.get_mut(name) {
            *bits &= !(1 << shard);
            if *bits == 0 {
                names.shards.remove(name);
                names.patterns -= usize::from(ChannelName::known(name).is_pattern());
                self.len.store(names.shards.len(), Ordering::Release);
                names.give_room_back();
            }
        }
    }

    /// The shards that want a publication to `channel`, a bit each. `scratch` is a buffer to build pattern names in.
    pub fn of(&self, channel: ChannelName<'_>, scratch: &mut String) -> u64 {
        let names = self.names.read();
        let of = |name: &str| names.shards.get(name).copied().unwrap_or(0);
        let mut all = of(channel.as_str());
        if names.patterns > 0 {
            channel.patterns(scratch, |pattern| all |= of(pattern));
        }
        all
    }

    /// The shards with subscribers of exactly this channel or pattern, a bit each. Nothing is noted while there is only
    /// one shard.
    pub fn of_name(&self, name: &str) -> u64 {
        let names = self.names.read();
        names.shards.get(name).copied().unwrap_or(0)
    }

    /// The number of names with any interest.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// True if no shard wants anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Names {
    /// Releases the memory of most names when most are gone. The removals pay for the cost of moving the others.
    fn give_room_back(&mut self) {
        if self.shards.capacity() > ROOM_RETAINED && self.shards.len() < self.shards.capacity() / 4 {
            self.shards.shrink_to(self.shards.len() * 2);
        }
    }
}

/// The map is not shrunk below this capacity.
const ROOM_RETAINED: usize = 64;

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
        interest.add("/*", 2);
        assert_eq!(of("/b"), 1 << 2);
    }

    #[test]
    fn removed_names_leave_little_memory() {
        let interest = Interest::default();
        let names: Vec<String> = (0..100_000).map(|number| format!("/a/{number}")).collect();
        names.iter().for_each(|name| interest.add(name, 0));
        names[10..].iter().for_each(|name| interest.remove(name, 0));
        let room = interest.names.read().shards.capacity();
        assert!(room <= 2 * ROOM_RETAINED && interest.len() == 10, "room for {room}");
    }
}
