//! The lists of subscribers of a shard's channels.
//!
//! A channel exists while it has a subscriber. `*` and `**` can only be the last segment of a pattern, so a publication
//! of depth *d* goes to at most *d* + 2 lists: its own and those of the *d* + 1 patterns that match it. No tree is
//! walked.

use std::hash::BuildHasher;

use bayeux::ChannelName;
use smallvec::SmallVec;

use crate::channels::Channels;
use crate::channels::channel::{Channel, LastReceived, Subscriber, Subscription};
use crate::interval::Interval;

/// A correction for the caller to make after a removal: the subscription at `slot` of the session `session` now has
/// this `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    /// The session, as its index in the shard.
    pub(super) session: u32,
    /// Its subscription.
    pub(super) slot: u32,
    /// The new index in the channel's list.
    pub(super) position: u32,
}

impl Channels {
    /// The number of channels and patterns with subscribers.
    pub(crate) fn len(&self) -> usize {
        self.channels.len()
    }

    /// The number of subscriptions of all sessions.
    pub(crate) fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// The bytes that count in the account: subscriptions, channels and their names.
    pub(crate) fn bytes(&self) -> usize {
        self.subscriptions * SUBSCRIPTION_BYTES
            + self.channels.len() * size_of::<Channel>()
            + self.name_bytes
            + self.by_server.bytes()
    }

    /// The bytes of one subscription. What its channel takes counts in proportion.
    pub(super) fn bytes_of(&self, subscription: Subscription) -> usize {
        let of_channel =
            |channel: &Channel| (size_of::<Channel>() + channel.name.len()) / channel.subscribers.len().max(1);
        SUBSCRIPTION_BYTES + self.channels.get(subscription.channel as usize).map_or(0, of_channel)
    }

    /// The index of a channel or pattern that has subscribers without an interval.
    pub(super) fn find(&self, name: &str) -> Option<u32> {
        self.find_with(name, Interval::NONE)
    }

    /// The index of a channel or pattern that has subscribers with this interval.
    #[inline]
    fn find_with(&self, name: &str, interval: Interval) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        let is_it = |channel: &Channel| *channel.name == *name && channel.interval == interval;
        self.names.find(hash, |index| self.channels.get(*index as usize).is_some_and(is_it)).copied()
    }

    /// The indexes of a channel or pattern: of its subscribers without an interval, and of its groups.
    pub(super) fn all_of(&self, name: &str) -> impl Iterator<Item = u32> {
        let hash = self.hasher.hash_one(name);
        self.names.iter_hash(hash).copied().filter(move |index| self.name(*index) == name)
    }

    /// True if no subscriber of the shard has an interval.
    #[inline]
    pub(crate) fn has_no_groups(&self) -> bool {
        self.groups == 0
    }

    /// The groups that a publication to `channel` goes to, with their intervals.
    #[inline]
    pub(crate) fn groups(&mut self, channel: ChannelName<'_>) -> SmallVec<[(u32, Interval); 4]> {
        if self.has_no_groups() { SmallVec::new() } else { self.groups_of(channel) }
    }

    /// The same where there are groups: most servers have none.
    #[inline(never)]
    fn groups_of(&mut self, channel: ChannelName<'_>) -> SmallVec<[(u32, Interval); 4]> {
        let lists = self.lists_and_groups(channel);
        let groups = lists.into_iter().map(|list| (list, self.interval(list)));
        groups.filter(|(_, interval)| !interval.is_none()).collect()
    }

    /// The lists that come before a group where a session is in several that get the messages of a channel: it gets each message by the
    /// one with the shortest interval.
    pub(crate) fn lists_before(&mut self, group: u32, channel: ChannelName<'_>) -> SmallVec<[u32; 4]> {
        let lists = self.lists_and_groups(channel);
        let rank = |list: u32| (self.interval(list), list);
        lists.into_iter().filter(|list| rank(*list) < rank(group)).collect()
    }

    /// True if one of these lists, which are in ascending order, gets the messages of a channel.
    pub(crate) fn is_brought_by(&mut self, lists: &[u32], channel: ChannelName<'_>) -> bool {
        !lists.is_empty() && self.lists_and_groups(channel).iter().any(|list| lists.binary_search(list).is_ok())
    }

    /// The lists that a publication to `channel` goes to, with any interval.
    fn lists_and_groups(&mut self, channel: ChannelName<'_>) -> SmallVec<[u32; 8]> {
        let mut lists: SmallVec<[u32; 8]> = self.all_of(channel.as_str()).collect();
        if self.patterns > 0 {
            let mut spelling = std::mem::take(&mut self.spelling);
            channel.patterns(&mut spelling, |pattern| lists.extend(self.all_of(pattern)));
            self.spelling = spelling;
        }
        lists
    }

    /// The interval of a channel's subscribers.
    pub(crate) fn interval(&self, channel: u32) -> Interval {
        self.channels.get(channel as usize).map_or(Interval::NONE, |channel| channel.interval)
    }

    /// The number of slots, empty or occupied.
    pub(crate) fn slots(&self) -> usize {
        self.channels.capacity()
    }

    /// The name of a channel. Empty if there is none at this index.
    pub(crate) fn name(&self, channel: u32) -> &str {
        self.channels.get(channel as usize).map_or("", |channel| &channel.name)
    }

    /// Adds a subscriber with this interval. Returns its subscription, and true if it is the channel's first.
    pub(super) fn add_subscriber(
        &mut self,
        name: &str,
        subscriber: Subscriber,
        interval: Interval,
        follows: bool,
    ) -> (Subscription, bool) {
        let is_first = !self.has(name);
        let channel = self.find_with(name, interval).unwrap_or_else(|| self.create(name, interval));
        self.channels[channel as usize].position_subscribers += u32::from(follows && interval.is_none());
        let subscribers = &mut self.channels[channel as usize].subscribers;
        let position = subscribers.len() as u32;
        subscribers.push(subscriber);
        self.subscriptions += 1;
        (Subscription { channel, position }, is_first)
    }

    /// Removes a subscriber. Returns the subscriber that took over its index, and the channel's name if it was the
    /// last.
    pub(super) fn remove_subscriber(
        &mut self,
        subscription: Subscription,
        follows: bool,
    ) -> (Option<Moved>, Option<Box<str>>) {
        let Subscription { channel, position } = subscription;
        let has_positions = follows && self.interval(channel).is_none();
        self.channels[channel as usize].position_subscribers -= u32::from(has_positions);
        let subscribers = &mut self.channels[channel as usize].subscribers;
        subscribers.swap_remove(position as usize);
        self.subscriptions -= 1;
        let moved = subscribers.get(position as usize).map(|s| Moved { session: s.session, slot: s.slot, position });
        if subscribers.is_empty() {
            let name = self.destroy(channel);
            return (None, (!self.has(&name)).then_some(name));
        }
        // Shrinks a list that was long.
        if subscribers.capacity() > 64 && subscribers.len() < subscribers.capacity() / 4 {
            subscribers.shrink_to(subscribers.len() * 2);
        }
        (moved, None)
    }

    /// The lists that a publication to `channel` goes to, as indexes for [`Channels::subscribers`]; its own first. The
    /// caller returns them to [`Channels::reuse`].
    #[inline]
    pub(crate) fn route(&mut self, channel: ChannelName<'_>) -> Vec<u32> {
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
    #[inline]
    pub(crate) fn reuse(&mut self, lists: Vec<u32>) {
        self.lists = lists;
    }

    /// Releases the memory of most channels if most are gone. Slots behind an occupied one stay.
    pub(super) fn give_lists_back(&mut self) {
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
    #[inline]
    pub(crate) fn subscribers(&self, channel: u32) -> &[Subscriber] {
        self.channels.get(channel as usize).map_or(&[], |channel| &channel.subscribers)
    }

    /// True if a subscriber of a channel asked for positions.
    #[inline]
    pub(crate) fn wants_positions(&self, channel: u32) -> bool {
        self.channels.get(channel as usize).is_some_and(|channel| channel.position_subscribers > 0)
    }

    /// Sets, for each owner, the number of bursts older than a channel or pattern that has got its first subscriber.
    pub(crate) fn set_older(&mut self, channel: u32, older: Box<[u64]>) {
        if let Some(channel) = self.channels.get_mut(channel as usize) {
            channel.older = Some(older);
        }
    }

    /// True if a channel or pattern got its first subscriber after this burst of this owner. Such a burst was sent to
    /// this shard for other subscribers. Later ones were not sent while nobody subscribed.
    #[inline]
    pub(crate) fn began_after(&self, channel: u32, owner: usize, burst: u64) -> bool {
        let older = self.channels.get(channel as usize).and_then(|channel| channel.older.as_ref());
        older.and_then(|older| older.get(owner)).is_some_and(|older| burst <= *older)
    }

    /// The newest position fanned out of a channel.
    pub(super) fn received(&self, channel: u32) -> Option<&LastReceived> {
        self.channels.get(channel as usize)?.received.as_deref()
    }

    /// Sets the newest position fanned out of a channel, if it is newer than before.
    pub(super) fn set_last_received(&mut self, channel: u32, received: LastReceived) {
        let Some(channel) = self.channels.get_mut(channel as usize) else { return };
        match &mut channel.received {
            Some(before) if (before.serial, before.offset) >= (received.serial, received.offset) => {}
            Some(before) => **before = received,
            None => channel.received = Some(Box::new(received)),
        }
    }

    fn create(&mut self, name: &str, interval: Interval) -> u32 {
        let channel = self.channels.insert(Channel {
            name: name.into(),
            interval,
            subscribers: Vec::new(),
            position_subscribers: 0,
            received: None,
            older: None,
        }) as u32;
        self.name_bytes += name.len();
        self.patterns += usize::from(is_pattern(name));
        self.groups += usize::from(!interval.is_none());
        let hash = self.hasher.hash_one(name);
        let (hasher, channels) = (&self.hasher, &self.channels);
        self.names.insert_unique(hash, channel, |index| hasher.hash_one(&*channels[*index as usize].name));
        channel
    }

    fn destroy(&mut self, channel: u32) -> Box<str> {
        let Channel { name, interval, .. } = self.channels.remove(channel as usize);
        self.groups -= usize::from(!interval.is_none());
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
