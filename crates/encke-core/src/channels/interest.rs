//! The shards that want a channel: the only map that all shards share.
//!
//! A shard adds its interest when its first session subscribes, *before* the reply to the subscription leaves, and
//! removes it after its last subscriber left. So a client that publishes after it has seen that reply reaches the
//! subscriber. The map is read once for each publication, and not at all while it is empty. A single shard adds nothing
//! to it, unless the server is a node of a cluster.
//!
//! The subscribers in the process are a shard, too: one without sessions, whose index is the number of
//! shards.
//!
//! In a cluster the map is the interest of the node, too. It notes the names that have come or gone for whoever tells the
//! other nodes, and which names the other nodes know of: [`Interest::take_changes`], [`Interest::set_known`].

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use bayeux::ChannelName;
use parking_lot::{RwLock, RwLockWriteGuard};

/// Channel or pattern → the shards with subscribers, a bit each.
#[derive(Debug, Default)]
pub struct Interest {
    names: RwLock<Names>,
    /// The number of names. Written while `names` is locked.
    len: AtomicUsize,
    /// Called when a name has come or gone.
    on_change: OnceLock<OnChange>,
}

struct OnChange(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for OnChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnChange")
    }
}

/// The interest in one name.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    /// The shards with subscribers, a bit each.
    shards: u64,
    /// True if publications of other nodes arrive.
    is_known: bool,
}

#[derive(Debug, Default)]
struct Names {
    wanted: HashMap<Box<str>, Wanted, foldhash::fast::RandomState>,
    /// The number of patterns among the names.
    patterns: usize,
    /// Names that have come or gone since the last call of [`Interest::take_changes`], in a cluster.
    changed: HashSet<Box<str>, foldhash::fast::RandomState>,
}

impl Interest {
    /// Notes that a shard has its first subscriber of `name`.
    pub fn add(&self, name: &str, shard: usize) {
        let mut names = self.names.write();
        if let Some(wanted) = names.wanted.get_mut(name) {
            wanted.shards |= 1 << shard;
            return;
        }
        names.wanted.insert(name.into(), Wanted { shards: 1 << shard, is_known: false });
        names.patterns += usize::from(ChannelName::known(name).is_pattern());
        self.changed(names, name);
    }

    /// Notes that a shard has no subscriber of `name` any more.
    pub fn remove(&self, name: &str, shard: usize) {
        let mut names = self.names.write();
        let Some(wanted) = names.wanted.get_mut(name) else { return };
        wanted.shards &= !(1 << shard);
        if wanted.shards == 0 {
            names.wanted.remove(name);
            names.patterns -= usize::from(ChannelName::known(name).is_pattern());
            names.give_room_back();
            self.changed(names, name);
        }
    }

    /// Notes that a name has come or gone.
    fn changed(&self, mut names: RwLockWriteGuard<'_, Names>, name: &str) {
        self.len.store(names.wanted.len(), Ordering::Release);
        let Some(OnChange(on_change)) = self.on_change.get() else { return };
        let is_first = names.changed.is_empty();
        names.changed.insert(name.into());
        drop(names);
        if is_first {
            on_change();
        }
    }

    /// Sets a function that is called when names have come or gone, on whichever thread did it. From now on
    /// [`Interest::take_changes`] returns them.
    pub fn set_on_change(&self, on_change: impl Fn() + Send + Sync + 'static) {
        // The first function stays: a server sets it once.
        let _set = self.on_change.set(OnChange(Box::new(on_change)));
    }

    /// The names that have come (true) or gone (false) since the last call. One that has come and gone is among them, too.
    pub fn take_changes(&self) -> Vec<(Box<str>, bool)> {
        let mut names = self.names.write();
        let changed = std::mem::take(&mut names.changed);
        let is_wanted = |name: Box<str>| {
            let is_wanted = names.wanted.contains_key(&name);
            (name, is_wanted)
        };
        changed.into_iter().map(is_wanted).collect()
    }

    /// Notes that publications of other nodes on this channel or pattern arrive. False if nobody wants it any more.
    pub fn set_known(&self, name: &str) -> bool {
        let mut names = self.names.write();
        let wanted = names.wanted.get_mut(name);
        wanted.map(|wanted| wanted.is_known = true).is_some()
    }

    /// Notes that no publications of other nodes arrive.
    pub fn forget_known(&self) {
        self.names.write().wanted.values_mut().for_each(|wanted| wanted.is_known = false);
    }

    /// True if publications of other nodes on this channel or pattern arrive.
    pub fn is_known(&self, name: &str) -> bool {
        self.names.read().wanted.get(name).is_some_and(|wanted| wanted.is_known)
    }

    /// True if some shard wants exactly this channel or pattern.
    pub fn has(&self, name: &str) -> bool {
        self.of_name(name) != 0
    }

    /// The shards that want a publication to `channel`, a bit each. `scratch` is a buffer to build pattern names in.
    pub fn of(&self, channel: ChannelName<'_>, scratch: &mut String) -> u64 {
        let names = self.names.read();
        let of = |name: &str| names.wanted.get(name).map_or(0, |wanted| wanted.shards);
        let mut all = of(channel.as_str());
        if names.patterns > 0 {
            channel.patterns(scratch, |pattern| all |= of(pattern));
        }
        all
    }

    /// The shards with subscribers of exactly this channel or pattern, a bit each. Nothing is noted while there is only
    /// one shard and no cluster.
    pub fn of_name(&self, name: &str) -> u64 {
        let names = self.names.read();
        names.wanted.get(name).map_or(0, |wanted| wanted.shards)
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
        if self.wanted.capacity() > ROOM_RETAINED && self.wanted.len() < self.wanted.capacity() / 4 {
            self.wanted.shrink_to(self.wanted.len() * 2);
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
        let room = interest.names.read().wanted.capacity();
        assert!(room <= 2 * ROOM_RETAINED && interest.len() == 10, "room for {room}");
    }

    #[test]
    fn what_has_come_or_gone_is_noted_once_something_listens() {
        let interest = Interest::default();
        interest.add("/before", 0);
        assert!(interest.take_changes().is_empty(), "nobody listens");
        let calls = std::sync::Arc::<AtomicUsize>::default();
        let counter = calls.clone();
        interest.set_on_change(move || _ = counter.fetch_add(1, Ordering::Relaxed));
        interest.add("/a", 0);
        interest.add("/a", 1);
        interest.add("/b", 0);
        interest.remove("/b", 0);
        interest.remove("/before", 0);
        let mut changes = interest.take_changes();
        changes.sort();
        let expected = [("/a", true), ("/b", false), ("/before", false)];
        assert_eq!(changes, expected.map(|(name, is_wanted)| (Box::from(name), is_wanted)));
        assert_eq!(calls.load(Ordering::Relaxed), 1, "one call for all that is not taken yet");
        assert!(interest.take_changes().is_empty());
    }

    #[test]
    fn a_name_that_comes_again_is_not_known_to_other_nodes() {
        let interest = Interest::default();
        interest.add("/a", 0);
        assert!(!interest.is_known("/a") && interest.set_known("/a") && interest.is_known("/a"));
        interest.remove("/a", 0);
        assert!(!interest.set_known("/a") && !interest.is_known("/a"), "nobody wants it");
        interest.add("/a", 0);
        assert!(!interest.is_known("/a"));
        interest.set_known("/a");
        interest.forget_known();
        assert!(!interest.is_known("/a"));
    }
}
