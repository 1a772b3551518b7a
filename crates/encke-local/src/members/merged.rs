//! The members of channels as a map by node, and the changes that are to be announced.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::names::{self, ByNode};
use super::report::PartReport;
use super::{Members, PresenceCounts, PresenceTerms, announcements, cost, page_of};

/// The members of channels on all nodes.
#[derive(Debug, Default)]
pub(super) struct Merged {
    channels: BTreeMap<Arc<str>, Channel>,
    /// Channels with changes that are not announced yet, and the time of the next announcement.
    changed: BTreeSet<Arc<str>>,
    announce_ms: u64,
    /// Parts of channels on other nodes, and users in them, and their bytes.
    members: usize,
    bytes: usize,
    /// Members for whom there was no room.
    refused: u64,
    /// Nodes that have reported members for whom there was no room.
    lacking: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Channel {
    /// The sessions of each user by node.
    users: BTreeMap<Arc<str>, ByNode<usize>>,
    parts: ByNode<Part>,
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
    /// All users are being reported: those that have been, and are listed.
    fresh: Option<BTreeSet<Arc<str>>>,
    /// True: all channels of a name are being reported, and this one was not yet.
    is_stale: bool,
}

/// The part of this node.
pub(super) struct Own<'a> {
    merged: &'a mut Merged,
    channel: Arc<str>,
}

impl Own<'_> {
    /// Notes the sessions of a user. None: it is not there.
    pub(super) fn set(&mut self, user: &Arc<str>, sessions: Option<usize>) {
        _ = self.merged.set((&self.channel, OWN), user, sessions, true);
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

    /// A node begins to report all channels that this name covers. It reports one name after the other.
    pub(super) fn begin(&mut self, name: &str, node: u64) {
        for channel in self.covered(name) {
            if let Some(part) = self.part(&channel, node) {
                (part.is_stale, part.fresh) = (true, None);
            }
        }
    }

    /// A node has reported all channels that this name covers: what it has not named is gone.
    pub(super) fn end(&mut self, name: &str, node: u64) {
        for channel in self.covered(name) {
            let Some(part) = self.part(&channel, node).filter(|part| part.is_stale) else { continue };
            part.is_stale = false;
            // Users who have changed meanwhile are there, though the channel was not reported as a whole.
            match part.fresh {
                Some(_) => {
                    let sums = (part.anonymous, part.sessions);
                    self.end_part(&channel, node);
                    self.sum(&channel, node, sums);
                }
                None => self.remove_part(&channel, node),
            }
        }
    }

    /// Takes the report of a node about a channel.
    pub(super) fn take(&mut self, node: u64, report: PartReport, is_announced: bool, terms: &PresenceTerms) {
        if self.part(&report.channel, node).is_none() {
            if report.is_empty() {
                return;
            }
            if !self.has_room(cost(&report.channel, ""), terms) {
                return self.refuse(node, report.users.len().max(1));
            }
        }
        let channel = self.name_of(&report.channel, is_announced);
        let part = self.add_part(&channel, node);
        if report.is_first {
            (part.fresh, part.is_stale) = (Some(BTreeSet::new()), false);
        } else if part.is_stale {
            part.fresh.get_or_insert_default();
        }
        for (user, sessions) in report.users {
            let user: Arc<str> = user.into();
            let has_room = self.has_room(cost(&channel, &user), terms);
            let is_there = self.set((&channel, node), &user, usize::try_from(sessions).ok(), has_room);
            if let Some(fresh) = self.part(&channel, node).and_then(|part| part.fresh.as_mut()) {
                if is_there {
                    fresh.insert(user)
                } else {
                    fresh.remove(&user)
                };
            }
        }
        if report.is_last {
            self.end_part(&channel, node);
        }
        self.sum(&channel, node, (report.anonymous, report.sessions));
    }

    /// All users of a part have been reported: those who have not been named are gone.
    fn end_part(&mut self, channel: &Arc<str>, node: u64) {
        let Some(fresh) = self.part(channel, node).and_then(|part| part.fresh.take()) else { return };
        let old = self.users_on(channel, node, |user| !fresh.contains(user));
        old.iter().for_each(|user| _ = self.set((channel, node), user, None, true));
    }

    /// Notes members of a node for whom there is no room.
    fn refuse(&mut self, node: u64, members: usize) {
        self.refused += members as u64;
        self.lacking.insert(node);
    }

    fn has_room(&self, bytes: usize, terms: &PresenceTerms) -> bool {
        self.members < terms.members_max && self.bytes + bytes <= terms.bytes_max
    }

    /// True once if a node has reported members for whom there was no room, and a part of the room is free again.
    pub(super) fn takes_again(&mut self, node: u64, terms: &PresenceTerms) -> bool {
        let is_free = |used: usize, max: usize| used + max / FREE_PART < max;
        is_free(self.members, terms.members_max) && is_free(self.bytes, terms.bytes_max) && self.lacking.remove(&node)
    }

    /// A node is gone.
    pub(super) fn remove_node(&mut self, node: u64) {
        let of_node = self.channels.iter().filter(|(_, known)| known.parts.get(node).is_some());
        let of_node: Vec<Arc<str>> = of_node.map(|(channel, _)| channel.clone()).collect();
        of_node.iter().for_each(|channel| self.remove_part(channel, node));
        self.lacking.remove(&node);
    }

    /// Forgets a channel that is no longer followed.
    pub(super) fn forget(&mut self, channel: &str) {
        let Some((channel, known)) = self.channels.remove_entry(channel) else { return };
        self.changed.remove(&channel);
        known.parts.iter().for_each(|(node, _)| self.count(node, cost(&channel, ""), false));
        for (user, nodes) in known.users {
            nodes.iter().for_each(|(node, _)| self.count(node, cost(&channel, &user), false));
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
        names::covered(&self.channels, name).cloned().collect()
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
        let users =
            users.map(|(name, nodes)| (name, nodes.iter().map(|(_, sessions)| sessions).sum(), session_ids(name)));
        page_of(known.counts(), users, max)
    }

    /// Parts of channels on other nodes and users in them, and their bytes.
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

    /// The part of a channel on a node.
    fn part(&mut self, channel: &str, node: u64) -> Option<&mut Part> {
        self.channels.get_mut(channel)?.parts.get_mut(node)
    }

    /// The part of a channel on a node, which is there from now on.
    fn add_part(&mut self, channel: &Arc<str>, node: u64) -> &mut Part {
        if self.part(channel, node).is_none() {
            self.count(node, cost(channel, ""), true);
        }
        self.channels.entry(channel.clone()).or_default().parts.or_default(node)
    }

    /// Counts a part or a user that has come (true) or gone (false). Those of this node count in its own table.
    fn count(&mut self, node: u64, bytes: usize, has_come: bool) {
        match (node, has_come) {
            (OWN, _) => {}
            (_, true) => (self.members, self.bytes) = (self.members + 1, self.bytes + bytes),
            (_, false) => (self.members, self.bytes) = (self.members - 1, self.bytes - bytes),
        }
    }

    /// Notes the sessions of a user on a node. None: it is not there. Returns true if it is listed now.
    fn set(
        &mut self,
        (channel, node): (&Arc<str>, u64),
        user: &Arc<str>,
        sessions: Option<usize>,
        has_room: bool,
    ) -> bool {
        let known = self.channels.entry(channel.clone()).or_default();
        let nodes = known.users.get_mut(user);
        let was_there = nodes.is_some();
        let had = nodes.as_ref().is_some_and(|nodes| nodes.get(node).is_some());
        match (sessions, nodes) {
            (Some(_), _) if !had && !has_room => {
                self.refuse(node, 1);
                return false;
            }
            (Some(sessions), _) => *known.users.entry(user.clone()).or_default().or_default(node) = sessions,
            (None, Some(nodes)) => {
                nodes.remove(node);
                if nodes.is_empty() {
                    known.users.remove(user);
                }
            }
            (None, None) => {}
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
        if had != sessions.is_some() {
            self.count(node, cost(channel, user), !had);
        }
        sessions.is_some()
    }

    /// Notes the anonymous sessions and all sessions of a node.
    fn sum(&mut self, channel: &Arc<str>, node: u64, (anonymous, sessions): (usize, usize)) {
        let part = self.add_part(channel, node);
        let has_changed = part.anonymous != anonymous;
        (part.anonymous, part.sessions) = (anonymous, sessions);
        let is_complete = part.fresh.is_none();
        if sessions == 0
            && anonymous == 0
            && is_complete
            && self.users_on(channel, node, |_| true).is_empty()
            && self.channels.get_mut(channel).is_some_and(|known| known.parts.remove(node))
        {
            self.count(node, cost(channel, ""), false);
        }
        if has_changed && self.channels.get(channel).is_some_and(|known| known.is_announced) {
            self.changed.insert(channel.clone());
        }
        self.forget_if_empty(channel);
    }

    /// Removes the part of a node.
    fn remove_part(&mut self, channel: &Arc<str>, node: u64) {
        self.add_part(channel, node).fresh = None;
        let users = self.users_on(channel, node, |_| true);
        users.iter().for_each(|user| _ = self.set((channel, node), user, None, true));
        self.sum(channel, node, (0, 0));
    }

    /// The users of a channel on a node.
    fn users_on(&self, channel: &str, node: u64, is_meant: impl Fn(&Arc<str>) -> bool) -> Vec<Arc<str>> {
        let users = self.channels.get(channel).into_iter().flat_map(|known| &known.users);
        let users = users.filter(|(user, nodes)| nodes.get(node).is_some() && is_meant(user));
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
        let sum = |of: fn(&Part) -> usize| self.parts.iter().map(|(_, part)| of(part)).sum();
        PresenceCounts {
            users: self.users.len(),
            anonymous: sum(|part| part.anonymous),
            sessions: sum(|part| part.sessions),
        }
    }
}

/// The number of this node here. The numbers of nodes are random, and not this one.
const OWN: u64 = 0;
/// One of so many parts of the room is free before members for whom there was none are asked for again.
const FREE_PART: usize = 8;
