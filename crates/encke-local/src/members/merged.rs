//! The members of channels as a map by node, and the changes that are to be announced.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bayeux::channel::{covers, is_pattern};
use foldhash::fast::RandomState;

use super::report::PartReport;
use super::{Members, PresenceCounts, PresenceTerms, announcements, cost, page_of};

/// The members of channels on all nodes.
#[derive(Debug, Default)]
pub(super) struct Merged {
    channels: HashMap<Arc<str>, Channel, RandomState>,
    /// Channels with changes that are not announced yet, and the time of the next announcement.
    changed: BTreeSet<Arc<str>>,
    announce_ms: u64,
    /// Members of other nodes, each once for each channel and node, and their bytes.
    members: usize,
    bytes: usize,
    /// Members for whom there was no room.
    refused: u64,
}

#[derive(Debug, Default)]
struct Channel {
    /// The sessions of each user by node.
    users: BTreeMap<Arc<str>, BTreeMap<u64, usize>>,
    parts: BTreeMap<u64, Part>,
    /// False until the baseline is there.
    is_announced: bool,
    joined: BTreeSet<Arc<str>>,
    left: BTreeSet<Arc<str>>,
}

/// The part of a channel on one node.
#[derive(Debug, Default)]
struct Part {
    anonymous: usize,
    sessions: usize,
    /// All users are being reported: those that have been.
    fresh: Option<BTreeSet<Arc<str>>>,
    /// The names of which all channels are being reported, and this one was not yet.
    stale: BTreeSet<Box<str>>,
}

/// The part of this node.
pub(super) struct Own<'a> {
    merged: &'a mut Merged,
    channel: Arc<str>,
}

impl Own<'_> {
    /// Notes the sessions of a user. None: it is not there.
    pub(super) fn set(&mut self, user: &Arc<str>, sessions: Option<usize>) {
        self.merged.set((&self.channel, OWN), user, sessions, true);
    }

    /// Notes the anonymous sessions and all sessions.
    pub(super) fn sum(self, sums: (usize, usize)) {
        self.merged.sum(&self.channel, OWN, sums);
    }
}

impl Merged {
    /// The part of this node. `is_announced`: changes of the channel are announced.
    pub(super) fn own(&mut self, channel: &Arc<str>, is_announced: bool) -> Own<'_> {
        let channel = self.name_of(channel, is_announced);
        Own { merged: self, channel }
    }

    /// A node begins to report all channels that this name covers.
    pub(super) fn begin(&mut self, name: &str, node: u64) {
        for channel in self.covered(name) {
            if let Some(part) = self.channels.get_mut(&channel).and_then(|known| known.parts.get_mut(&node)) {
                part.stale.insert(name.into());
            }
        }
    }

    /// A node has reported all channels that this name covers: what it has not named is gone.
    pub(super) fn end(&mut self, name: &str, node: u64) {
        for channel in self.covered(name) {
            let part = self.channels.get(&channel).and_then(|known| known.parts.get(&node));
            if part.is_some_and(|part| part.stale.contains(name)) {
                self.remove_part(&channel, node);
            }
        }
    }

    /// Takes the report of a node about a channel.
    pub(super) fn take(&mut self, node: u64, part: PartReport, is_announced: bool, terms: &PresenceTerms) {
        let channel = self.name_of(&part.channel, is_announced);
        if part.is_first {
            let known = self.part(&channel, node);
            (known.fresh, known.stale) = (Some(BTreeSet::new()), BTreeSet::new());
        }
        for (user, sessions) in part.users {
            let user: Arc<str> = user.into();
            if let Some(fresh) = &mut self.part(&channel, node).fresh {
                fresh.insert(user.clone());
            }
            let has_room = self.members < terms.members_max && self.bytes < terms.bytes_max;
            self.set((&channel, node), &user, usize::try_from(sessions).ok(), has_room);
        }
        if part.is_last
            && let Some(fresh) = self.part(&channel, node).fresh.take()
        {
            let is_old = |user: &Arc<str>| !fresh.contains(user);
            self.users_on(&channel, node, is_old).iter().for_each(|user| self.set((&channel, node), user, None, true));
        }
        self.sum(&channel, node, (part.anonymous, part.sessions));
    }

    /// A node is gone.
    pub(super) fn remove_node(&mut self, node: u64) {
        let of_node = self.channels.iter().filter(|(_, known)| known.parts.contains_key(&node));
        let of_node: Vec<Arc<str>> = of_node.map(|(channel, _)| channel.clone()).collect();
        of_node.iter().for_each(|channel| self.remove_part(channel, node));
    }

    /// Forgets a channel that is no longer followed.
    pub(super) fn forget(&mut self, channel: &str) {
        let Some((channel, known)) = self.channels.remove_entry(channel) else { return };
        self.changed.remove(&channel);
        for (user, nodes) in known.users {
            let of_others = nodes.keys().filter(|node| **node != OWN).count();
            self.members -= of_others;
            self.bytes -= of_others * cost(&channel, &user);
        }
    }

    /// Changes of the channels that this name covers are announced from now on.
    pub(super) fn announce(&mut self, name: &str) {
        for channel in self.covered(name) {
            self.channels.get_mut(&channel).into_iter().for_each(|known| known.is_announced = true);
        }
    }

    /// The channels that a name covers.
    pub(super) fn covered(&self, name: &str) -> Vec<Arc<str>> {
        match is_pattern(name) {
            true => self.channels.keys().filter(|channel| covers(name, channel)).cloned().collect(),
            false => self.channels.get_key_value(name).map(|(channel, _)| channel.clone()).into_iter().collect(),
        }
    }

    /// The announcements that leave now: the name of a channel and the data.
    pub(super) fn advance(&mut self, now_ms: u64, terms: &PresenceTerms) -> Vec<(Arc<str>, String)> {
        if self.changed.is_empty() || now_ms < self.announce_ms {
            return Vec::new();
        }
        self.announce_ms = now_ms + terms.interval_ms;
        let mut all = Vec::new();
        for name in std::mem::take(&mut self.changed) {
            let Some(known) = self.channels.get_mut(&name) else { continue };
            let counts = known.counts();
            all.extend(announcements(&name, (&mut known.joined, &mut known.left), counts));
            self.forget_if_empty(&name);
        }
        all
    }

    /// The time of the next announcement.
    pub(super) fn next_ms(&self) -> Option<u64> {
        (!self.changed.is_empty()).then_some(self.announce_ms)
    }

    /// Up to `max` members of a channel whose names come after `after`, of 64 KiB at most.
    pub(super) fn members(
        &self,
        channel: &str,
        (after, max): (&str, usize),
        session_ids: impl Fn(&str) -> Vec<String>,
    ) -> Members {
        let Some(known) = self.channels.get(channel) else { return Members::default() };
        let users = known.users.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        let users = users.map(|(name, nodes)| (name, nodes.values().sum(), session_ids(name)));
        page_of(known.counts(), users, max)
    }

    /// Members of other nodes and their bytes.
    pub(super) fn sizes(&self) -> [usize; 2] {
        [self.members, self.bytes]
    }

    /// Takes the number of members for whom there was no room.
    pub(super) fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// The channel of this name, which is there from now on.
    fn name_of(&mut self, name: &str, is_announced: bool) -> Arc<str> {
        if let Some((channel, _)) = self.channels.get_key_value(name) {
            return channel.clone();
        }
        let channel: Arc<str> = name.into();
        self.channels.insert(channel.clone(), Channel { is_announced, ..Channel::default() });
        channel
    }

    fn part(&mut self, channel: &Arc<str>, node: u64) -> &mut Part {
        self.channels.entry(channel.clone()).or_default().parts.entry(node).or_default()
    }

    /// Notes the sessions of a user on a node. None: it is not there.
    fn set(&mut self, (channel, node): (&Arc<str>, u64), user: &Arc<str>, sessions: Option<usize>, has_room: bool) {
        let known = self.channels.entry(channel.clone()).or_default();
        let was_there = known.users.contains_key(user);
        let had = known.users.get(user).is_some_and(|nodes| nodes.contains_key(&node));
        match sessions {
            Some(_) if !had && !has_room => {
                self.refused += 1;
                return;
            }
            Some(sessions) => _ = known.users.entry(user.clone()).or_default().insert(node, sessions),
            None => {
                if let Some(nodes) = known.users.get_mut(user) {
                    nodes.remove(&node);
                    if nodes.is_empty() {
                        known.users.remove(user);
                    }
                }
            }
        }
        if node != OWN && had != sessions.is_some() {
            let bytes = cost(channel, user);
            match had {
                true => (self.members, self.bytes) = (self.members - 1, self.bytes - bytes),
                false => (self.members, self.bytes) = (self.members + 1, self.bytes + bytes),
            }
        }
        let is_there = known.users.contains_key(user);
        if known.is_announced && was_there != is_there {
            let (now, before) =
                if is_there { (&mut known.joined, &mut known.left) } else { (&mut known.left, &mut known.joined) };
            // A change that is not announced yet is undone.
            if !before.remove(user) {
                now.insert(user.clone());
            }
            self.changed.insert(channel.clone());
        }
    }

    /// Notes the anonymous sessions and all sessions of a node.
    fn sum(&mut self, channel: &Arc<str>, node: u64, (anonymous, sessions): (usize, usize)) {
        let part = self.part(channel, node);
        let has_changed = part.anonymous != anonymous;
        (part.anonymous, part.sessions) = (anonymous, sessions);
        let is_complete = part.fresh.is_none();
        if sessions == 0 && anonymous == 0 && is_complete && self.users_on(channel, node, |_| true).is_empty() {
            self.channels.get_mut(channel).into_iter().for_each(|known| _ = known.parts.remove(&node));
        }
        if has_changed && self.channels.get(channel).is_some_and(|known| known.is_announced) {
            self.changed.insert(channel.clone());
        }
        self.forget_if_empty(channel);
    }

    /// Removes the part of a node.
    fn remove_part(&mut self, channel: &Arc<str>, node: u64) {
        self.part(channel, node).fresh = None;
        self.users_on(channel, node, |_| true).iter().for_each(|user| self.set((channel, node), user, None, true));
        self.sum(channel, node, (0, 0));
    }

    /// The users of a channel on a node.
    fn users_on(&self, channel: &str, node: u64, is_meant: impl Fn(&Arc<str>) -> bool) -> Vec<Arc<str>> {
        let users = self.channels.get(channel).into_iter().flat_map(|known| &known.users);
        let users = users.filter(|(user, nodes)| nodes.contains_key(&node) && is_meant(user));
        users.map(|(user, _)| user.clone()).collect()
    }

    fn forget_if_empty(&mut self, channel: &str) {
        let is_empty = |known: &Channel| known.users.is_empty() && known.parts.is_empty();
        if self.channels.get(channel).is_some_and(is_empty) && !self.changed.contains(channel) {
            self.channels.remove(channel);
        }
    }
}

impl Channel {
    fn counts(&self) -> PresenceCounts {
        let sum = |of: fn(&Part) -> usize| self.parts.values().map(of).sum();
        PresenceCounts {
            users: self.users.len(),
            anonymous: sum(|part| part.anonymous),
            sessions: sum(|part| part.sessions),
        }
    }
}

/// The number of this node here. The numbers of nodes are random, and not this one.
const OWN: u64 = 0;
