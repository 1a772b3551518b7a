//! The subscriptions within one shard.
//!
//! A channel exists while it has a subscriber. `*` and `**` can only be the last segment of a pattern, so a publication
//! of depth *d* goes to at most *d* + 2 lists: its own and those of the *d* + 1 patterns that match it. No tree is
//! walked.

use std::sync::Arc;

use bayeux::ChannelName;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;
use std::hash::BuildHasher;

/// A subscriber in the list of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// The session, as its index in the shard.
    pub session: u32,
    /// The index of this channel among the session's subscriptions.
    pub slot: u32,
}

/// A subscription of a session: the channel, and the session's index in the channel's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The channel, as its index in the hub.
    pub channel: u32,
    /// The session's index in the channel's list.
    pub position: u32,
}

/// A channel or a pattern with its subscribers.
#[derive(Debug)]
pub struct Channel {
    /// Its name.
    name: Box<str>,
    subscribers: Vec<Subscriber>,
    /// The number of subscribers that asked for positions.
    position_subscribers: u32,
    received: Option<Box<LastReceived>>,
    /// For each owner of histories, the number of bursts older than this channel's first subscriber.
    older: Option<Box<[u64]>>,
}

/// The newest position that this shard has fanned out of a channel with a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReceived {
    /// The serial of the ring.
    pub serial: u64,
    /// Its epoch.
    pub epoch: Arc<str>,
    /// The offset of the last message.
    pub offset: u64,
}

/// The subscriptions of a shard.
#[derive(Debug, Default)]
pub struct Hub {
    hasher: RandomState,
    names: HashTable<u32>,
    channels: Slab<Channel>,
    subscriptions: usize,
    /// Bytes of all names.
    name_bytes: usize,
    /// The number of patterns among the names.
    patterns: usize,
    /// A buffer to build pattern names in.
    spelling: String,
    /// A buffer for the lists of a publication.
    lists: Vec<u32>,
}

/// A correction for the caller to make after a removal: the subscription at `slot` of the session `session` now has
/// this `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The session, as its index in the shard.
    pub session: u32,
    /// Its subscription.
    pub slot: u32,
    /// The new index in the channel's list.
    pub position: u32,
}

impl Hub {
    /// The number of channels and patterns with subscribers.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// The number of subscriptions of all sessions.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// The bytes that subscriptions, channels and their names take.
    pub fn bytes(&self) -> usize {
        self.subscriptions * SUBSCRIPTION_BYTES + self.channels.len() * size_of::<Channel>() + self.name_bytes
    }

    /// The bytes of one subscription. What its channel takes counts in proportion.
    pub fn share_bytes(&self, subscription: Subscription) -> usize {
        let of_channel =
            |channel: &Channel| (size_of::<Channel>() + channel.name.len()) / channel.subscribers.len().max(1);
        SUBSCRIPTION_BYTES + self.channels.get(subscription.channel as usize).map_or(0, of_channel)
    }

    /// The index of a channel or pattern that has subscribers.
    pub fn find(&self, name: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        self.names.find(hash, |index| self.name(*index) == name).copied()
    }

    /// The number of slots, empty or occupied.
    pub fn slots(&self) -> usize {
        self.channels.capacity()
    }

    /// The name of a channel. Empty if there is none at this index.
    pub fn name(&self, channel: u32) -> &str {
        self.channels.get(channel as usize).map_or("", |channel| &channel.name)
    }

    /// Adds a subscriber. Returns its subscription, and true if it is the channel's first.
    pub fn subscribe(&mut self, name: &str, subscriber: Subscriber, follows: bool) -> (Subscription, bool) {
        let channel = self.find(name).unwrap_or_else(|| self.create(name));
        self.channels[channel as usize].position_subscribers += u32::from(follows);
        let subscribers = &mut self.channels[channel as usize].subscribers;
        let position = subscribers.len() as u32;
        subscribers.push(subscriber);
        self.subscriptions += 1;
        (Subscription { channel, position }, position == 0)
    }

    /// Removes a subscriber. Returns the subscriber that took over its index, and the channel's name if it was the
    /// last.
    pub fn unsubscribe(&mut self, subscription: Subscription, follows: bool) -> (Option<Moved>, Option<Box<str>>) {
        let Subscription { channel, position } = subscription;
        self.channels[channel as usize].position_subscribers -= u32::from(follows);
        let subscribers = &mut self.channels[channel as usize].subscribers;
        subscribers.swap_remove(position as usize);
        self.subscriptions -= 1;
        let moved = subscribers.get(position as usize).map(|s| Moved { session: s.session, slot: s.slot, position });
        if subscribers.is_empty() {
            return (None, Some(self.destroy(channel)));
        }
        // Shrinks a list that was long.
        if subscribers.capacity() > 64 && subscribers.len() < subscribers.capacity() / 4 {
            subscribers.shrink_to(subscribers.len() * 2);
        }
        (moved, None)
    }

    /// Notes that a session's subscription has moved to another slot.
    pub fn set_slot(&mut self, subscription: Subscription, slot: u32) {
        self.channels[subscription.channel as usize].subscribers[subscription.position as usize].slot = slot;
    }

    /// The lists that a publication to `channel` goes to, as indexes for [`Hub::subscribers`]; its own first. The
    /// caller returns them to [`Hub::reuse`].
    pub fn route(&mut self, channel: ChannelName<'_>) -> Vec<u32> {
        let mut lists = std::mem::take(&mut self.lists);
        lists.clear();
        lists.extend(self.find(channel.as_str()));
        if self.patterns > 0 {
            let mut spelling = std::mem::take(&mut self.spelling);
            channel.patterns(&mut spelling, |pattern| lists.extend(self.find(pattern)));
            self.spelling = spelling;
        }
        lists
    }

    /// Takes lists back, so that the next ones need no memory.
    pub fn reuse(&mut self, lists: Vec<u32>) {
        self.lists = lists;
    }

    /// Releases the memory of most channels if most are gone. Slots behind an occupied one stay.
    pub fn give_room_back(&mut self) {
        let len = self.channels.len();
        if self.channels.capacity() > ROOM_RETAINED && len < self.channels.capacity() / 4 {
            self.channels.shrink_to_fit();
        }
        if self.names.capacity() > ROOM_RETAINED && len < self.names.capacity() / 4 {
            let (hasher, channels) = (&self.hasher, &self.channels);
            self.names.shrink_to(len * 2, |index| hasher.hash_one(&*channels[*index as usize].name));
        }
    }

    /// The subscribers of a channel.
    pub fn subscribers(&self, channel: u32) -> &[Subscriber] {
        self.channels.get(channel as usize).map_or(&[], |channel| &channel.subscribers)
    }

    /// Notes that a subscriber of a channel asks for positions from now on.
    pub fn add_position_subscriber(&mut self, channel: u32) {
        if let Some(channel) = self.channels.get_mut(channel as usize) {
            channel.position_subscribers += 1;
        }
    }

    /// True if a subscriber of a channel asked for positions.
    pub fn wants_positions(&self, channel: u32) -> bool {
        self.channels.get(channel as usize).is_some_and(|channel| channel.position_subscribers > 0)
    }

    /// Sets, for each owner, the number of bursts older than a channel or pattern that has got its first subscriber.
    pub fn set_older(&mut self, channel: u32, older: Box<[u64]>) {
        if let Some(channel) = self.channels.get_mut(channel as usize) {
            channel.older = Some(older);
        }
    }

    /// Notes that subscribers of the channel or pattern `to` may come from `from`, which is removed: they also get the
    /// bursts that are older than `to` but not older than `from`.
    pub fn hand_over(&mut self, from: u32, to: u32) {
        let given = self.channels.get(from as usize).and_then(|channel| channel.older.clone());
        let Some(channel) = self.channels.get_mut(to as usize).filter(|_| from != to) else { return };
        channel.older = match (channel.older.take(), given) {
            (Some(own), Some(given)) => Some(own.iter().zip(&given).map(|(own, given)| *own.min(given)).collect()),
            _ => None,
        };
    }

    /// True if a channel or pattern got its first subscriber after this burst of this owner. Such a burst was sent to
    /// this shard for other subscribers. Later ones were not sent while nobody subscribed.
    pub fn began_after(&self, channel: u32, owner: usize, burst: u64) -> bool {
        let older = self.channels.get(channel as usize).and_then(|channel| channel.older.as_ref());
        older.and_then(|older| older.get(owner)).is_some_and(|older| burst <= *older)
    }

    /// The newest position fanned out of a channel.
    pub fn received(&self, channel: u32) -> Option<&LastReceived> {
        self.channels.get(channel as usize)?.received.as_deref()
    }

    /// Sets the newest position fanned out of a channel, if it is newer than before.
    pub fn set_last_received(&mut self, channel: u32, received: LastReceived) {
        let Some(channel) = self.channels.get_mut(channel as usize) else { return };
        match &mut channel.received {
            Some(before) if (before.serial, before.offset) >= (received.serial, received.offset) => {}
            Some(before) => **before = received,
            None => channel.received = Some(Box::new(received)),
        }
    }

    fn create(&mut self, name: &str) -> u32 {
        let channel = self.channels.insert(Channel {
            name: name.into(),
            subscribers: Vec::new(),
            position_subscribers: 0,
            received: None,
            older: None,
        }) as u32;
        self.name_bytes += name.len();
        self.patterns += usize::from(is_pattern(name));
        let hash = self.hasher.hash_one(name);
        let (hasher, channels) = (&self.hasher, &self.channels);
        self.names.insert_unique(hash, channel, |index| hasher.hash_one(&*channels[*index as usize].name));
        channel
    }

    fn destroy(&mut self, channel: u32) -> Box<str> {
        let name = self.channels.remove(channel as usize).name;
        self.name_bytes -= name.len();
        self.patterns -= usize::from(is_pattern(&name));
        if let Ok(entry) = self.names.find_entry(self.hasher.hash_one(&*name), |index| *index == channel) {
            entry.remove();
        }
        name
    }
}

fn is_pattern(name: &str) -> bool {
    ChannelName::known(name).is_pattern()
}

/// The bytes of a subscription at its session and at its channel.
const SUBSCRIPTION_BYTES: usize = size_of::<Subscription>() + size_of::<Subscriber>();
/// Tables with at most this capacity are not shrunk.
const ROOM_RETAINED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> ChannelName<'_> {
        ChannelName::parse(name, &bayeux::Limits::default()).expect("a valid name")
    }

    #[test]
    fn a_publication_goes_to_its_channel_and_the_patterns_that_match() {
        let mut hub = Hub::default();
        for (session, name) in ["/a/b", "/a/*", "/a/**", "/**", "/a", "/a/b/*", "/*"].into_iter().enumerate() {
            hub.subscribe(name, Subscriber { session: session as u32, slot: 0 }, false);
        }
        let lists = hub.route(parse("/a/b"));
        let mut sessions: Vec<u32> = lists.iter().flat_map(|list| hub.subscribers(*list)).map(|s| s.session).collect();
        sessions.sort_unstable();
        assert_eq!(sessions, [0, 1, 2, 3]);
    }

    #[test]
    fn patterns_are_found_as_long_as_somebody_subscribes_to_one() {
        let mut hub = Hub::default();
        let lists = |hub: &mut Hub| hub.route(parse("/a/b")).len();
        hub.subscribe("/a/b", Subscriber { session: 0, slot: 0 }, false);
        let one = hub.subscribe("/a/*", Subscriber { session: 1, slot: 0 }, false).0;
        let other = hub.subscribe("/**", Subscriber { session: 2, slot: 0 }, false).0;
        assert_eq!(lists(&mut hub), 3);
        hub.unsubscribe(one, false);
        assert_eq!(lists(&mut hub), 2);
        hub.unsubscribe(other, false);
        assert_eq!(lists(&mut hub), 1);
        hub.subscribe("/a/**", Subscriber { session: 1, slot: 0 }, false);
        assert_eq!(lists(&mut hub), 2);
    }

    #[test]
    fn removed_channels_leave_little_memory() {
        let mut hub = Hub::default();
        let subscribe = |hub: &mut Hub, number: u32| {
            hub.subscribe(&format!("/a/{number}"), Subscriber { session: number, slot: 0 }, false).0
        };
        let all: Vec<_> = (0..100_000).map(|number| subscribe(&mut hub, number)).collect();
        all[10..].iter().for_each(|subscription| _ = hub.unsubscribe(*subscription, false));
        hub.give_room_back();
        assert!(hub.channels.capacity() <= 64 && hub.names.capacity() <= 64, "{}", hub.names.capacity());
        assert!((0..10).all(|number| hub.find(&format!("/a/{number}")).is_some()));
    }

    #[test]
    fn the_last_unsubscribe_removes_the_channel_and_other_positions_stay_valid() {
        let mut hub = Hub::default();
        let (first, new) = hub.subscribe("/a", Subscriber { session: 1, slot: 0 }, false);
        let (second, again) = hub.subscribe("/a", Subscriber { session: 2, slot: 7 }, true);
        assert!(hub.wants_positions(first.channel));
        assert!(new && !again);
        let (moved, gone) = hub.unsubscribe(first, false);
        assert_eq!((moved, gone), (Some(Moved { session: 2, slot: 7, position: 0 }), None));
        let (moved, gone) = hub.unsubscribe(Subscription { position: 0, ..second }, true);
        assert_eq!((moved, gone.as_deref()), (None, Some("/a")));
        assert_eq!((hub.channels(), hub.subscriptions(), hub.find("/a")), (0, 0, None));
    }
}
