//! The members of channels on all nodes of a cluster, from the reports of each: on a node that follows these channels.
//!
//! A node follows a channel while it has subscribers to its announcements, also by a pattern, and for a while after somebody has asked for
//! its members. First it gathers the members that are there, the *baseline*, of which nothing is announced; who asks for the list waits for
//! it. From then on each change is announced. So list and announcements come from one table and agree.
//!
//! A user is there while one node says so. Only that node says when the grace time of a user is over. A node that is gone takes its members
//! with it after a while, in which its sessions can go on at others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bayeux::ChannelName;
use bayeux::channel::{covers, is_pattern};
use encke_core::{Amount, Budget, SessionOwner, Share, Shares, Urgency};
use foldhash::fast::RandomState;

use super::report::{MembersReport, PartReport};
use super::reporter::FOLLOWED_MAX;
use super::{
    Member, MemberTable, Members, PAGE_BYTES_MAX, PresenceCounts, PresenceTerms, Touched, announcements, cost,
};

/// The members on all nodes of the channels that this node follows.
#[derive(Debug, Default)]
pub struct Gathered {
    channels: HashMap<Arc<str>, Channel, RandomState>,
    names: BTreeMap<Box<str>, Name>,
    /// The other nodes.
    nodes: BTreeMap<u64, Node>,
    last_stream: u64,
    /// True: there are so many names that all channels are followed.
    is_full: bool,
    /// Channels with changes that are not announced yet, and the time of the next announcement.
    changed: BTreeSet<Arc<str>>,
    announce_ms: u64,
    /// Those who have asked for members of channels without subscribers to the announcements. None: the program.
    askers: Shares<Option<SessionOwner>>,
    /// Members of other nodes, each once for each channel and node, and their bytes.
    members: usize,
    bytes: usize,
    /// Members for whom there was no room.
    refused: u64,
}

/// What a node has to say to another one: the names that it follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToFollow {
    /// The other node.
    pub node: u64,
    /// The stream in which the other node reports.
    pub stream: u64,
    /// Channels and patterns.
    pub names: Vec<Box<str>>,
    /// True if these are all.
    pub is_whole: bool,
}

/// A channel or pattern that the node follows.
#[derive(Debug, Default)]
struct Name {
    /// True while it has subscribers.
    is_wanted: bool,
    /// The time until which it is followed without subscribers.
    until_ms: u64,
    /// The share of the one who has asked for its members.
    asked: Option<Share<Option<SessionOwner>>>,
    baseline: Option<Baseline>,
}

/// Members are gathered for the first time.
#[derive(Clone, Debug)]
struct Baseline {
    /// The nodes that have not reported all.
    missing: BTreeSet<u64>,
    /// The time after which they are not waited for.
    until_ms: u64,
}

#[derive(Debug)]
struct Node {
    stream: u64,
    /// The time at which it is asked for all names again.
    whole_ms: u64,
    /// Names that it does not know of yet.
    new: BTreeSet<Box<str>>,
    is_asking: bool,
    /// It is gone since some time: the time at which its members are, too.
    gone_ms: Option<u64>,
}

#[derive(Debug, Default)]
struct Channel {
    /// The sessions of each user by node; of this one, too.
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

impl Gathered {
    /// The name under which this node stands in the table.
    const OWN: u64 = 0;

    /// The first subscriber to the announcements of a channel or pattern has come, or the last one has left.
    pub fn want(&mut self, name: &str, is_wanted: bool, table: &MemberTable, now_ms: u64) {
        if is_wanted {
            self.follow(name, table, now_ms);
        }
        if let Some(known) = self.names.get_mut(name) {
            (known.is_wanted, known.until_ms) = (is_wanted, known.until_ms.max(now_ms + LEAVE_MS));
        }
    }

    /// Somebody asks for the members of a channel: it is followed for a while. False if the asker has its share of such channels.
    pub fn ask(&mut self, name: &str, owner: Option<SessionOwner>, table: &MemberTable, now_ms: u64) -> bool {
        let until_ms = now_ms + ASKED_MS;
        if let Some(known) = self.names.get_mut(name) {
            known.until_ms = known.until_ms.max(until_ms);
            return true;
        }
        if self.is_covered_well(name) {
            return true;
        }
        let budget = Budget::new(ASKED_MAX, usize::MAX);
        let Ok(share) = self.askers.take(&budget, owner, Amount::of(1), Urgency::Common) else { return false };
        self.follow(name, table, now_ms);
        match self.names.get_mut(name) {
            Some(known) => (known.asked, known.until_ms) = (Some(share), until_ms),
            None => self.askers.give_back(share),
        }
        true
    }

    /// True if the members of a channel are gathered.
    pub fn is_ready(&self, channel: &str) -> bool {
        self.names.get(channel).is_some_and(|name| name.baseline.is_none()) || self.is_covered_well(channel)
    }

    /// The nodes that are asked for a channel and have not reported all.
    pub fn missing(&self, channel: &str) -> usize {
        let baseline = self.names.get(channel).and_then(|name| name.baseline.as_ref());
        baseline.map_or(0, |baseline| baseline.missing.len())
    }

    /// True if some pattern whose baseline is there covers a channel.
    fn is_covered_well(&self, channel: &str) -> bool {
        let mut is_covered = false;
        if self.names.keys().any(|name| is_pattern(name)) {
            ChannelName::known(channel).patterns(&mut String::new(), |pattern| {
                is_covered |= self.names.get(pattern).is_some_and(|name| name.baseline.is_none());
            });
        }
        is_covered
    }

    fn follow(&mut self, name: &str, table: &MemberTable, now_ms: u64) {
        if self.names.contains_key(name) {
            return;
        }
        if self.names.len() >= FOLLOWED_MAX && name != ALL {
            self.follow(ALL, table, now_ms);
            self.is_full = true;
        }
        // What covers all covers this one.
        let baseline = match self.names.get(ALL) {
            Some(all) => all.baseline.clone(),
            None => {
                let missing = self.here().map(|(node, _)| node).collect();
                Some(Baseline { missing, until_ms: now_ms + BASELINE_MS })
            }
        };
        let is_new = !self.names.contains_key(ALL);
        self.names.insert(name.into(), Name { baseline, ..Name::default() });
        if is_new {
            let here = self.nodes.values_mut().filter(|node| node.gone_ms.is_none());
            here.for_each(|node| _ = node.new.insert(name.into()));
            let own: Vec<Arc<str>> = match is_pattern(name) {
                true => table.channels().filter(|channel| covers(name, channel)).cloned().collect(),
                false => vec![name.into()],
            };
            own.iter().for_each(|channel| self.take_own(channel, table));
        }
        self.end_baselines(now_ms);
    }

    /// Takes the members of this node.
    fn take_own(&mut self, channel: &Arc<str>, table: &MemberTable) {
        for (user, sessions) in table.users_after(channel, None) {
            self.set(channel, user, Gathered::OWN, Some(sessions), usize::MAX);
        }
        self.sum_own(channel, table);
    }

    fn sum_own(&mut self, channel: &Arc<str>, table: &MemberTable) {
        let (anonymous, sessions) = table.sums(channel);
        self.sum(channel, Gathered::OWN, (anonymous, sessions));
    }

    /// Takes the users of this node that have changed.
    pub fn touched(&mut self, touched: &Touched, table: &MemberTable) {
        for (channel, user) in
            touched.iter().filter(|(channel, _)| self.is_followed(channel)).cloned().collect::<Vec<_>>()
        {
            if !user.is_empty() {
                self.set(&channel, &user, Gathered::OWN, table.sessions_of(&channel, &user), usize::MAX);
            }
            self.sum_own(&channel, table);
        }
    }

    /// The other nodes that are there. None: the engine of the cluster is away, so nobody knows.
    pub fn set_nodes(&mut self, others: Option<&[u64]>, terms: &PresenceTerms, now_ms: u64) {
        for (number, node) in &mut self.nodes {
            let is_here = others.is_some_and(|others| others.contains(number));
            match node.gone_ms {
                None if !is_here => {
                    let silent_ms = if others.is_none() { SILENT_MS } else { 0 };
                    node.gone_ms = Some(now_ms + silent_ms + terms.grace_ms);
                }
                Some(_) if is_here => (node.gone_ms, node.whole_ms) = (None, now_ms),
                _ => {}
            }
        }
        for number in others.unwrap_or_default() {
            self.nodes.entry(*number).or_insert_with(|| {
                self.last_stream += 1;
                let new = BTreeSet::new();
                Node { stream: self.last_stream, whole_ms: now_ms, new, is_asking: false, gone_ms: None }
            });
        }
        let gone: BTreeSet<u64> =
            self.nodes.iter().filter(|(_, node)| node.gone_ms.is_some()).map(|(number, _)| *number).collect();
        for baseline in self.names.values_mut().filter_map(|name| name.baseline.as_mut()) {
            baseline.missing.retain(|node| !gone.contains(node));
        }
        self.end_baselines(now_ms);
    }

    /// The other nodes that are there.
    fn here(&self) -> impl Iterator<Item = (u64, &Node)> {
        self.nodes.iter().filter(|(_, node)| node.gone_ms.is_none()).map(|(number, node)| (*number, node))
    }

    /// What the other nodes have to know now. Each is answered by [`Gathered::followed`].
    pub fn take_follows(&mut self, now_ms: u64) -> Vec<ToFollow> {
        let mut follows = Vec::new();
        let has_all = self.names.contains_key(ALL);
        for (number, node) in self.nodes.iter_mut().filter(|(_, node)| node.gone_ms.is_none() && !node.is_asking) {
            let is_whole = node.whole_ms <= now_ms;
            let new = std::mem::take(&mut node.new);
            let names: Vec<Box<str>> = match is_whole {
                true if has_all => vec![ALL.into()],
                true => self.names.keys().cloned().collect(),
                false => new.into_iter().collect(),
            };
            if is_whole || !names.is_empty() {
                node.is_asking = true;
                node.whole_ms = if is_whole { now_ms + RENEW_MS } else { node.whole_ms };
                follows.push(ToFollow { node: *number, stream: node.stream, names, is_whole });
            }
        }
        follows
    }

    /// A node has learned what this one follows, or not.
    pub fn followed(&mut self, node: u64, stream: u64, is_taken: bool, now_ms: u64) {
        let Some(node) = self.nodes.get_mut(&node).filter(|node| node.stream == stream) else { return };
        node.is_asking = false;
        if !is_taken {
            node.whole_ms = now_ms + AGAIN_MS;
        }
    }

    /// Takes the report of a node. False if this node does not want it: its stream is an old one.
    pub fn take_report(
        &mut self,
        (node, stream): (u64, u64),
        report: MembersReport,
        terms: &PresenceTerms,
        now_ms: u64,
    ) -> bool {
        if self.nodes.get(&node).is_none_or(|known| known.stream != stream || known.gone_ms.is_some()) {
            return false;
        }
        for name in &report.begun {
            let covered = self.channels.iter_mut().filter(|(channel, _)| covers(name, channel));
            covered
                .filter_map(|(_, known)| known.parts.get_mut(&node))
                .for_each(|part| _ = part.stale.insert(name.clone()));
        }
        for part in report.parts {
            if self.is_followed(&part.channel) {
                self.take_part(node, part, terms);
            }
        }
        for name in &report.done {
            let covered = self.channels.iter().filter(|(channel, _)| covers(name, channel));
            let is_stale = |known: &Channel| known.parts.get(&node).is_some_and(|part| part.stale.contains(name));
            let stale: Vec<_> =
                covered.filter(|(_, known)| is_stale(known)).map(|(channel, _)| channel.clone()).collect();
            stale.iter().for_each(|channel| self.remove_part(channel, node));
            match &**name {
                ALL => self.names.values_mut().for_each(|known| known.has_reported(node)),
                name => self.names.get_mut(name).into_iter().for_each(|known| known.has_reported(node)),
            }
        }
        self.end_baselines(now_ms);
        true
    }

    fn take_part(&mut self, node: u64, part: PartReport, terms: &PresenceTerms) {
        let channel: Arc<str> = match self.channels.get_key_value(&*part.channel) {
            Some((channel, _)) => channel.clone(),
            None => part.channel.into(),
        };
        if part.is_first {
            let known = self.part_of(&channel, node);
            (known.fresh, known.stale) = (Some(BTreeSet::new()), BTreeSet::new());
        }
        for (user, sessions) in part.users {
            let user: Arc<str> = user.into();
            let sessions = usize::try_from(sessions).ok();
            if let Some(fresh) = &mut self.part_of(&channel, node).fresh {
                fresh.insert(user.clone());
            }
            let has_room = self.members < terms.members_max && self.bytes < terms.bytes_max;
            self.set(&channel, &user, node, sessions, if has_room { usize::MAX } else { 0 });
        }
        if part.is_last
            && let Some(fresh) = self.part_of(&channel, node).fresh.take()
        {
            let known = self.channels.get(&channel);
            let users = known.into_iter().flat_map(|known| &known.users);
            let old = users.filter(|(user, nodes)| nodes.contains_key(&node) && !fresh.contains(*user));
            let old: Vec<Arc<str>> = old.map(|(user, _)| user.clone()).collect();
            old.iter().for_each(|user| self.set(&channel, user, node, None, 0));
        }
        self.sum(&channel, node, (part.anonymous, part.sessions));
    }

    fn part_of(&mut self, channel: &Arc<str>, node: u64) -> &mut Part {
        self.channel(channel).parts.entry(node).or_default()
    }

    /// The channel, which is followed.
    fn channel(&mut self, channel: &Arc<str>) -> &mut Channel {
        if !self.channels.contains_key(channel) {
            let is_announced = self.is_ready(channel);
            self.channels.insert(channel.clone(), Channel { is_announced, ..Channel::default() });
        }
        self.channels.entry(channel.clone()).or_default()
    }

    /// Notes the sessions of a user on a node. None: it is not there. `room`: for so many more users.
    fn set(&mut self, channel: &Arc<str>, user: &Arc<str>, node: u64, sessions: Option<usize>, room: usize) {
        let known = self.channel(channel);
        let was_there = known.users.contains_key(user);
        let had = known.users.get(user).is_some_and(|nodes| nodes.contains_key(&node));
        match sessions {
            Some(_) if !had && room == 0 => {
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
        let is_there = known.users.contains_key(user);
        let is_announced = known.is_announced;
        if is_announced && was_there != is_there {
            let (now, before) =
                if is_there { (&mut known.joined, &mut known.left) } else { (&mut known.left, &mut known.joined) };
            // A change that is not announced yet is undone.
            if !before.remove(user) {
                now.insert(user.clone());
            }
        }
        if node != Gathered::OWN && had != sessions.is_some() {
            let bytes = cost(channel, user);
            match had {
                true => (self.members, self.bytes) = (self.members - 1, self.bytes - bytes),
                false => (self.members, self.bytes) = (self.members + 1, self.bytes + bytes),
            }
        }
        if is_announced && was_there != is_there {
            self.changed.insert(channel.clone());
        }
    }

    /// Notes the numbers of a node.
    fn sum(&mut self, channel: &Arc<str>, node: u64, (anonymous, sessions): (usize, usize)) {
        let part = self.part_of(channel, node);
        let has_changed = part.anonymous != anonymous;
        (part.anonymous, part.sessions) = (anonymous, sessions);
        let known = self.channel(channel);
        let is_empty = sessions == 0 && anonymous == 0 && !known.users.values().any(|nodes| nodes.contains_key(&node));
        if is_empty && known.parts.get(&node).is_some_and(|part| part.fresh.is_none()) {
            known.parts.remove(&node);
        }
        if has_changed && known.is_announced {
            self.changed.insert(channel.clone());
        }
        self.forget_if_empty(channel);
    }

    /// Removes the part of a node.
    fn remove_part(&mut self, channel: &Arc<str>, node: u64) {
        let Some(known) = self.channels.get_mut(channel) else { return };
        known.parts.get_mut(&node).into_iter().for_each(|part| part.fresh = None);
        let users = known.users.iter().filter(|(_, nodes)| nodes.contains_key(&node));
        let users: Vec<Arc<str>> = users.map(|(user, _)| user.clone()).collect();
        users.iter().for_each(|user| self.set(channel, user, node, None, 0));
        self.sum(channel, node, (0, 0));
    }

    fn forget_if_empty(&mut self, channel: &Arc<str>) {
        let is_empty = |known: &Channel| known.users.is_empty() && known.parts.is_empty();
        if self.channels.get(channel).is_some_and(is_empty) && !self.changed.contains(channel) {
            self.channels.remove(channel);
        }
    }

    fn is_followed(&self, channel: &str) -> bool {
        let mut is_followed = self.names.contains_key(channel);
        if !is_followed {
            ChannelName::known(channel).patterns(&mut String::new(), |pattern| {
                is_followed |= self.names.contains_key(pattern);
            });
        }
        is_followed
    }

    fn forget_unless_followed(&mut self, name: &str) {
        if self.names.get(name).is_none_or(|known| known.is_wanted) || (name == ALL && self.is_full) {
            return;
        }
        let known = self.names.remove(name);
        known.and_then(|known| known.asked).into_iter().for_each(|share| self.askers.give_back(share));
        if name == ALL {
            // The other nodes report what it has covered from now on by its names.
            self.nodes.values_mut().for_each(|node| node.whole_ms = 0);
        }
        self.nodes.values_mut().for_each(|node| _ = node.new.remove(name));
        let of_name: Vec<Arc<str>> = match is_pattern(name) {
            true => self.channels.keys().filter(|channel| covers(name, channel)).cloned().collect(),
            false => self.channels.get_key_value(name).map(|(channel, _)| channel.clone()).into_iter().collect(),
        };
        for channel in of_name.iter().filter(|channel| !self.is_followed(channel)).cloned().collect::<Vec<_>>() {
            let Some(known) = self.channels.remove(&channel) else { continue };
            self.changed.remove(&channel);
            for (user, nodes) in known.users {
                let of_others = nodes.keys().filter(|node| **node != Gathered::OWN).count();
                self.members -= of_others;
                self.bytes -= of_others * cost(&channel, &user);
            }
        }
    }

    /// Announces from now on what has its baseline.
    fn end_baselines(&mut self, now_ms: u64) {
        let mut ended = Vec::new();
        for (name, known) in &mut self.names {
            let is_over = |baseline: &Baseline| baseline.missing.is_empty() || baseline.until_ms <= now_ms;
            if known.baseline.as_ref().is_some_and(is_over) {
                known.baseline = None;
                ended.push(name.clone());
            }
        }
        for name in ended {
            if is_pattern(&name) {
                let covered = self.channels.iter_mut().filter(|(channel, _)| covers(&name, channel));
                covered.for_each(|(_, known)| known.is_announced = true);
            } else if let Some(known) = self.channels.get_mut(&*name) {
                known.is_announced = true;
            }
        }
    }

    /// Lets time pass, and returns announcements: the name of a channel and the data.
    pub fn advance(&mut self, now_ms: u64, terms: &PresenceTerms) -> Vec<(Arc<str>, String)> {
        self.end_baselines(now_ms);
        self.expire(now_ms);
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

    /// Forgets nodes that are gone, and names for whose members nobody has asked for long.
    fn expire(&mut self, now_ms: u64) {
        let is_over = |node: &Node| node.gone_ms.is_some_and(|gone_ms| gone_ms <= now_ms);
        let gone: Vec<u64> = self.nodes.iter().filter(|(_, node)| is_over(node)).map(|(number, _)| *number).collect();
        for node in gone {
            self.nodes.remove(&node);
            let of_node = self.channels.iter().filter(|(_, known)| known.parts.contains_key(&node));
            let of_node: Vec<Arc<str>> = of_node.map(|(channel, _)| channel.clone()).collect();
            of_node.iter().for_each(|channel| self.remove_part(channel, node));
        }
        let is_over = |name: &Name| !name.is_wanted && name.until_ms <= now_ms;
        let over: Vec<Box<str>> =
            self.names.iter().filter(|(_, known)| is_over(known)).map(|(name, _)| name.clone()).collect();
        over.iter().for_each(|name| self.forget_unless_followed(name));
        if self.is_full && self.names.len() <= FOLLOWED_MAX / 2 {
            self.is_full = false;
        }
    }

    /// The next time at which something is to be done, if nothing happens before.
    pub fn next_ms(&self) -> Option<u64> {
        let announce_ms = (!self.changed.is_empty()).then_some(self.announce_ms);
        let baselines = self.names.values().filter_map(|name| Some(name.baseline.as_ref()?.until_ms));
        let asked = self.names.values().filter(|name| !name.is_wanted).map(|name| name.until_ms);
        let gone = self.nodes.values().filter_map(|node| node.gone_ms);
        announce_ms.into_iter().chain(baselines).chain(asked).chain(gone).min()
    }

    /// Up to `max` members of a channel whose names come after `after`, of 64 KiB at most. Of the sessions of other nodes no ids are known.
    pub fn members(&self, channel: &str, (after, max): (&str, usize), table: &MemberTable) -> Members {
        let Some(known) = self.channels.get(channel) else { return Members::default() };
        let mut page = Members { counts: known.counts(), ..Members::default() };
        let mut bytes = 0;
        for (name, nodes) in known.users.range::<str, _>((Bound::Excluded(after), Bound::Unbounded)) {
            let session_ids = table.session_ids(channel, name);
            bytes += name.len() + session_ids.iter().map(String::len).sum::<usize>();
            let is_full = page.members.len() >= max.max(1) || bytes > PAGE_BYTES_MAX;
            if is_full && let Some(last) = page.members.last() {
                page.next = Some(last.user.clone());
                break;
            }
            page.members.push(Member { user: name.to_string(), sessions: nodes.values().sum(), session_ids });
        }
        page
    }

    /// Members of other nodes, their bytes, the names that are followed, and how many members had no room.
    pub fn sizes(&self) -> [u64; 4] {
        [self.members as u64, self.bytes as u64, self.names.len() as u64, self.refused]
    }
}

impl Name {
    fn has_reported(&mut self, node: u64) {
        self.baseline.iter_mut().for_each(|baseline| _ = baseline.missing.remove(&node));
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

/// The pattern of all channels.
const ALL: &str = "/**";
/// The time for which a name is followed after its last subscriber has left, in milliseconds.
const LEAVE_MS: u64 = 5_000;
/// The longest wait for the members of the other nodes, in milliseconds.
const BASELINE_MS: u64 = 2_000;
/// The time for which a channel is followed after somebody has asked for its members, in milliseconds.
const ASKED_MS: u64 = 30_000;
/// Channels that are followed because somebody has asked for their members.
const ASKED_MAX: usize = 1_000;
/// The time after which a node is asked for all names again, in milliseconds: a report that is lost for good is missing no longer.
const RENEW_MS: u64 = 10_000;
/// The same after it has not answered.
const AGAIN_MS: u64 = 1_000;
/// The time for which the members of other nodes stay while the engine of the cluster is away, beside the grace time, in milliseconds.
const SILENT_MS: u64 = 7_000;
