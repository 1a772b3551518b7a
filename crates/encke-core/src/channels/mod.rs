//! The channels of a shard: who subscribes to each, and how far it has been fanned out. The machine knows a session by its
//! index only. What others have to do after a change, such as to tell the other shards, its methods return.

mod by_server;
mod channel;
pub(crate) mod interest;
mod lists;
pub(crate) mod rules;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use bayeux::ChannelName;
use bayeux::channel::overlap;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use slab::Slab;
use smallvec::SmallVec;

pub(crate) use channel::{LastReceived, Subscriber};

use crate::channels::by_server::ByServer;
use crate::channels::channel::{Channel, Subscription};
use crate::channels::interest::Interest;
use crate::interval::Interval;
use crate::memory::Account;

/// The channels of a shard, and the subscriptions of its sessions.
#[derive(Debug)]
pub(crate) struct Channels {
    hasher: RandomState,
    /// The index of each channel and pattern, by its name.
    names: HashTable<u32>,
    channels: Slab<Channel>,
    /// The number of subscriptions of all sessions.
    subscriptions: usize,
    /// Bytes of all names.
    name_bytes: usize,
    /// The number of patterns among the names.
    patterns: usize,
    /// The number of groups: channels and patterns whose subscribers have an interval.
    groups: usize,
    /// The subscriptions of each session, by the session's index.
    sessions: Vec<Subscriptions>,
    /// Those of them that the server's side has made.
    by_server: ByServer,
    /// The account of the memory that subscriptions take.
    account: Rc<Account>,
    /// A buffer to build pattern names in.
    spelling: String,
    /// A buffer for the lists of a publication.
    lists: Vec<u32>,
}

type Subscriptions = SmallVec<[Subscription; 1]>;

/// A new subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscribed {
    /// The index of the channel or pattern.
    pub(crate) channel: u32,
    /// True if it had no subscriber on this shard: other shards must send its publications from now on.
    pub(crate) is_first: bool,
    /// True if it had none with the same interval.
    pub(crate) begins: bool,
}

impl Channels {
    /// No channels. Their memory counts in this account.
    pub(crate) fn new(account: &Rc<Account>) -> Channels {
        Channels {
            hasher: RandomState::default(),
            names: HashTable::new(),
            channels: Slab::new(),
            subscriptions: 0,
            name_bytes: 0,
            patterns: 0,
            groups: 0,
            sessions: Vec::new(),
            by_server: ByServer::default(),
            account: account.clone(),
            spelling: String::new(),
            lists: Vec::new(),
        }
    }

    /// The channel or pattern in a slot, with the number of its subscribers.
    pub(crate) fn in_slot(&self, slot: usize) -> Option<(&str, usize)> {
        let name = self.name(slot as u32);
        if self.has_no_groups() || name.is_empty() {
            return (!name.is_empty()).then(|| (name, self.subscribers(slot as u32).len()));
        }
        // The groups of a name are listed with the first of them.
        (self.all_of(name).min() == Some(slot as u32)).then(|| (name, self.subscribers_of(name)))
    }

    /// True if a channel or pattern has subscribers.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all_of(name).next().is_some()
    }

    /// The number of subscribers of exactly this channel or pattern.
    pub(crate) fn subscribers_of(&self, name: &str) -> usize {
        self.all_of(name).map(|channel| self.subscribers(channel).len()).sum()
    }

    /// Releases the memory of most channels and sessions if most are gone.
    pub(crate) fn give_room_back(&mut self) {
        self.give_lists_back();
        let used = self.sessions.iter().rposition(|own| !own.is_empty()).map_or(0, |last| last + 1);
        if self.sessions.capacity() > ROOM_RETAINED && used < self.sessions.capacity() / 4 {
            self.sessions.truncate(used);
            self.sessions.shrink_to(used * 2);
        }
    }

    /// Adds a subscription of a session with this interval, which must not have it yet. `follows`: the session asked for
    /// positions; a subscription with an interval has none.
    pub(crate) fn subscribe(&mut self, session: u32, name: &str, interval: Interval, follows: bool) -> Subscribed {
        let index = session as usize;
        if self.sessions.len() <= index {
            self.sessions.resize_with(index + 1, Subscriptions::new);
        }
        let slot = self.sessions[index].len() as u32;
        let bytes_before = self.bytes();
        let (subscription, is_first) = self.add_subscriber(name, Subscriber { session, slot }, interval, follows);
        self.account.queue_changed(bytes_before, self.bytes());
        self.sessions[index].push(subscription);
        Subscribed { channel: subscription.channel, is_first, begins: subscription.position == 0 }
    }

    /// Removes the subscription at `slot` of a session. The session's last subscription takes that slot. Returns the name
    /// of the channel if it has no subscriber any more: other shards need not send its publications.
    pub(crate) fn unsubscribe(&mut self, session: u32, slot: usize, follows: bool) -> Option<Box<str>> {
        let bytes_before = self.bytes();
        if !self.by_server.is_empty() {
            let name = self.at(session, slot).0.to_owned();
            self.by_server.remove(session, &name);
        }
        let own = self.sessions.get_mut(session as usize).filter(|own| slot < own.len())?;
        let subscription = own.swap_remove(slot);
        if let Some(shifted) = own.get(slot) {
            self.channels[shifted.channel as usize].subscribers[shifted.position as usize].slot = slot as u32;
        }
        let (moved, gone) = self.remove_subscriber(subscription, follows);
        self.account.queue_changed(bytes_before, self.bytes());
        if let Some(moved) = moved {
            self.sessions[moved.session as usize][moved.slot as usize].position = moved.position;
        }
        gone
    }

    /// Gives the subscription at `slot` of a session another interval. Returns its new list.
    pub(crate) fn change_interval(
        &mut self,
        session: u32,
        slot: usize,
        interval: Interval,
        follows: bool,
    ) -> Subscribed {
        let name = self.at(session, slot).0.to_owned();
        let is_by_server = self.by_server.has(session, &name);
        // The new one takes the slot of the other.
        let subscribed = self.subscribe(session, &name, interval, follows);
        self.unsubscribe(session, slot, follows);
        if is_by_server {
            self.is_by_server(session, &name);
        }
        subscribed
    }

    /// Notes that the server's side has made a subscription of a session.
    pub(crate) fn is_by_server(&mut self, session: u32, name: &str) {
        let bytes_before = self.bytes();
        self.by_server.add(session, name);
        self.account.queue_changed(bytes_before, self.bytes());
    }

    /// The slots of those subscriptions of a session that the server's side has made.
    pub(crate) fn slots_by_server(&self, session: u32) -> Vec<u32> {
        if self.by_server.is_empty() {
            return Vec::new();
        }
        let names = self.names_of(session).zip(0..);
        names.filter(|(name, _)| self.by_server.has(session, name)).map(|(_, slot)| slot).collect()
    }

    /// The number of subscriptions of a session.
    #[inline]
    pub(crate) fn count_of(&self, session: u32) -> usize {
        self.of(session).len()
    }

    /// The channels and patterns that a session subscribes to, in the order of their slots.
    pub(crate) fn names_of(&self, session: u32) -> impl Iterator<Item = &str> {
        self.of(session).iter().map(|subscription| self.name(subscription.channel))
    }

    /// The channel at `slot` of a session, and how far it has been fanned out.
    pub(crate) fn at(&self, session: u32, slot: usize) -> (&str, Option<&LastReceived>) {
        let subscription = self.of(session).get(slot);
        subscription.map_or(("", None), |own| (self.name(own.channel), self.received(own.channel)))
    }

    /// The slot of a session's subscription to exactly this channel or pattern.
    pub(crate) fn slot_of(&self, session: u32, name: &str) -> Option<usize> {
        if self.has_no_groups() {
            let known = self.find(name)?;
            return self.of(session).iter().position(|own| own.channel == known);
        }
        let known: SmallVec<[u32; 4]> = self.all_of(name).collect();
        self.of(session).iter().position(|own| known.contains(&own.channel))
    }

    /// The index of the channel at `slot` of a session, and the interval of the subscription.
    pub(crate) fn list_at(&self, session: u32, slot: usize) -> Option<(u32, Interval)> {
        let own = self.of(session).get(slot)?;
        Some((own.channel, self.interval(own.channel)))
    }

    /// The interval of a session's subscription to exactly this channel or pattern.
    pub(crate) fn interval_of(&self, session: u32, name: &str) -> Interval {
        let own = self.slot_of(session, name).and_then(|slot| self.list_at(session, slot));
        own.map(|(_, interval)| interval).unwrap_or_default()
    }

    /// The intervals of a session's subscriptions, in the order of their slots.
    pub(crate) fn intervals_of(&self, session: u32) -> impl Iterator<Item = Interval> {
        self.of(session).iter().map(|own| self.interval(own.channel))
    }

    /// The indexes of the channels and patterns that a session subscribes to.
    pub(crate) fn lists_of(&self, session: u32) -> impl Iterator<Item = u32> {
        self.of(session).iter().map(|own| own.channel)
    }

    /// The other subscriptions of a session that may get messages of the same channels as its subscription to `list`.
    pub(crate) fn overlapping(&self, session: u32, list: u32) -> impl Iterator<Item = u32> {
        let others = self.lists_of(session).filter(move |other| *other != list);
        others.filter(move |other| overlap(self.name(list), self.name(*other)))
    }

    /// Those of them where one of both has an interval.
    pub(crate) fn overlapping_in_groups(&self, session: u32, list: u32) -> impl Iterator<Item = u32> {
        let has_interval = |list: u32| !self.interval(list).is_none();
        let is_in_group = has_interval(list);
        self.overlapping(session, list).filter(move |other| is_in_group || has_interval(*other))
    }

    /// True if a session receives all messages of a channel: by a subscription without an interval.
    pub(crate) fn receives(&self, session: u32, channel: &str) -> bool {
        self.receives_beside(session, channel, None)
    }

    /// The same by a subscription other than that to the channel or pattern `but`.
    pub(crate) fn receives_beside(&self, session: u32, channel: &str, but: Option<u32>) -> bool {
        let channel = ChannelName::known(channel);
        let counts = |own: &&Subscription| Some(own.channel) != but && self.interval(own.channel).is_none();
        let mut others = self.of(session).iter().filter(counts);
        others.any(|own| ChannelName::known(self.name(own.channel)).matches(channel))
    }

    /// The bytes that the subscriptions of a session take. What their channels take counts in proportion.
    pub(crate) fn share_bytes(&self, session: u32) -> usize {
        self.of(session).iter().map(|own| self.bytes_of(*own)).sum()
    }

    /// Notes that a session asks for positions from now on.
    pub(crate) fn follow(&mut self, session: u32) {
        for own in self.sessions.get(session as usize).into_iter().flatten() {
            let channel = &mut self.channels[own.channel as usize];
            channel.position_subscribers += u32::from(channel.interval.is_none());
        }
    }

    /// Prepares the end of a session's subscription. Messages published before it ends reach the session through its
    /// other subscriptions, even if those are younger: their channels also get the bursts that are older than they but
    /// not older than the channel of the ending one.
    pub(crate) fn hand_over(&mut self, session: u32, slot: usize) {
        let Some(own) = self.sessions.get(session as usize) else { return };
        let Some(ending) = own.get(slot) else { return };
        let given = self.channels[ending.channel as usize].older.clone();
        for other in own.iter().filter(|other| other.channel != ending.channel) {
            let older = &mut self.channels[other.channel as usize].older;
            *older = match (older.take(), &given) {
                (Some(own), Some(given)) => Some(own.iter().zip(given).map(|(own, given)| *own.min(given)).collect()),
                _ => None,
            };
        }
    }

    /// The number of subscriptions to which a publication on a channel goes.
    pub(crate) fn reach(&mut self, channel: ChannelName<'_>) -> usize {
        let lists = self.route(channel);
        let subscribers = lists.iter().map(|list| self.subscribers(*list).len()).sum();
        self.reuse(lists);
        subscribers
    }

    /// The shards that want a channel, as bits.
    #[inline]
    pub(crate) fn shards_that_want(&mut self, interest: &Interest, channel: ChannelName<'_>) -> u64 {
        interest.of(channel, &mut self.spelling)
    }

    /// Notes how far a channel has been fanned out, if somebody subscribes to exactly it.
    pub(crate) fn note_received(&mut self, name: &str, received: LastReceived) {
        if let Some(channel) = self.find(name) {
            self.set_last_received(channel, received);
        }
    }

    /// The same for a publication with these lists, the channel's own first.
    pub(crate) fn note_fanned_out(&mut self, lists: &[u32], name: &str, received: impl FnOnce() -> LastReceived) {
        if let Some(own) = lists.first().filter(|list| self.name(**list) == name) {
            self.set_last_received(*own, received());
        }
    }

    #[inline]
    fn of(&self, session: u32) -> &[Subscription] {
        self.sessions.get(session as usize).map_or(&[], |own| own)
    }
}

/// The number of sessions for which the table keeps room.
const ROOM_RETAINED: usize = 64;
