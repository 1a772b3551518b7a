//! The members of channels on all nodes of a cluster, from the reports of each: on a node that follows these channels.
//!
//! A node follows a channel while it has subscribers to its announcements, also by a pattern, and for a while after somebody has asked for
//! its members. First it gathers the members that are there, the *baseline*, of which nothing is announced; who asks for the list waits for
//! it. From then on each change is announced. So list and announcements come from one table and agree.
//!
//! A user is there while one node says so. Only that node says when the grace time of a user is over. A node that is gone takes its members
//! with it after a while, in which its sessions can go on at others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bayeux::channel::{covers, is_pattern};
use encke_core::{Amount, Budget, SessionOwner, Share, Shares, Urgency};

use super::merged::Merged;
use super::report::MembersReport;
use super::reporter::FOLLOWED_MAX;
use super::{MemberTable, Members, PresenceTerms, Touched, reaches};

/// The members on all nodes of the channels that this node follows.
#[derive(Debug, Default)]
pub struct Gathered {
    merged: Merged,
    names: BTreeMap<Box<str>, Name>,
    /// The other nodes.
    nodes: BTreeMap<u64, Node>,
    last_stream: u64,
    /// True: there are so many names that all channels are followed.
    is_full: bool,
    /// The time before which no node, name or baseline ends.
    ends_ms: Option<u64>,
    /// Those who have asked for members of channels without subscribers to the announcements. None: the program.
    askers: Shares<Option<SessionOwner>>,
}

/// The names that a node follows, for another node.
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

impl Gathered {
    /// The first subscriber to the announcements of a channel or pattern has come, or the last one has left.
    pub fn want(&mut self, name: &str, is_wanted: bool, table: &MemberTable, now_ms: u64) {
        if is_wanted {
            self.follow(name, table, now_ms);
        }
        if let Some(known) = self.names.get_mut(name) {
            (known.is_wanted, known.until_ms) = (is_wanted, known.until_ms.max(now_ms + LEAVE_MS));
            let until_ms = known.until_ms;
            self.look_at(until_ms);
        }
    }

    /// Somebody asks for the members of a channel: it is followed for a while. False if the asker has its share of such channels.
    pub fn ask(&mut self, name: &str, owner: Option<SessionOwner>, table: &MemberTable, now_ms: u64) -> bool {
        let until_ms = now_ms + ASKED_MS;
        if let Some(known) = self.names.get_mut(name) {
            known.until_ms = known.until_ms.max(until_ms);
            return true;
        }
        if self.is_ready(name) {
            return true;
        }
        let budget = Budget::new(ASKED_MAX, usize::MAX);
        let Ok(share) = self.askers.take(&budget, owner, Amount::of(1), Urgency::Common) else { return false };
        self.follow(name, table, now_ms);
        match self.names.get_mut(name) {
            Some(known) => (known.asked, known.until_ms) = (Some(share), until_ms),
            None => self.askers.give_back(share),
        }
        self.look_at(until_ms);
        true
    }

    /// True if the members of a channel are gathered.
    pub fn is_ready(&self, channel: &str) -> bool {
        reaches(channel, |name| self.names.get(name).is_some_and(|name| name.baseline.is_none()))
    }

    /// The nodes that are asked for a channel and have not reported all.
    pub fn missing(&self, channel: &str) -> usize {
        let baseline = self.names.get(channel).and_then(|name| name.baseline.as_ref());
        baseline.map_or(0, |baseline| baseline.missing.len())
    }

    fn follow(&mut self, name: &str, table: &MemberTable, now_ms: u64) {
        if self.names.contains_key(name) {
            return;
        }
        if self.names.len() >= FOLLOWED_MAX && name != ALL {
            self.follow(ALL, table, now_ms);
            self.is_full = true;
        }
        // The pattern of all channels covers this one.
        let baseline = match self.names.get(ALL) {
            Some(all) => all.baseline.clone(),
            None => {
                let missing = self.here().map(|(node, _)| node).collect();
                Some(Baseline { missing, until_ms: now_ms + BASELINE_MS })
            }
        };
        let baseline = baseline.filter(|baseline| !baseline.missing.is_empty());
        let is_new = !self.names.contains_key(ALL);
        self.look_at(now_ms + BASELINE_MS);
        let is_ready = baseline.is_none();
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
        if is_ready {
            self.merged.announce(name);
        }
    }

    /// Something may end at this time.
    fn look_at(&mut self, at_ms: u64) {
        self.ends_ms = Some(self.ends_ms.map_or(at_ms, |ends_ms| ends_ms.min(at_ms)));
    }

    /// Takes the members of this node.
    fn take_own(&mut self, channel: &Arc<str>, table: &MemberTable) {
        let is_announced = self.is_ready(channel);
        let mut own = self.merged.own(channel, is_announced);
        table.users_after(channel, None).for_each(|(user, sessions)| own.set(user, Some(sessions)));
        own.sum(table.sums(channel));
    }

    /// Takes the users of this node that have changed.
    pub fn touched(&mut self, touched: &Touched, table: &MemberTable) {
        for (channel, user) in touched {
            if self.is_followed(channel) {
                let is_announced = self.is_ready(channel);
                let mut own = self.merged.own(channel, is_announced);
                if !user.is_empty() {
                    own.set(user, table.sessions_of(channel, user));
                }
                own.sum(table.sums(channel));
            }
        }
    }

    /// The other nodes that are there. None: the engine of the cluster is away, so nobody knows.
    pub fn set_nodes(&mut self, others: Option<&[u64]>, terms: &PresenceTerms, now_ms: u64) {
        let mut first_gone_ms = None;
        for (number, node) in &mut self.nodes {
            let is_here = others.is_some_and(|others| others.contains(number));
            match node.gone_ms {
                None if !is_here => {
                    let silent_ms = if others.is_none() { SILENT_MS } else { 0 };
                    node.gone_ms = Some(now_ms + silent_ms + terms.grace_ms);
                    first_gone_ms = first_gone_ms.into_iter().chain(node.gone_ms).min();
                }
                Some(_) if is_here => (node.gone_ms, node.whole_ms) = (None, now_ms),
                _ => {}
            }
        }
        first_gone_ms.into_iter().for_each(|gone_ms| self.look_at(gone_ms));
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

    /// The names that the other nodes have to know of now. Each is answered by [`Gathered::followed`].
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
        report.begun.iter().for_each(|name| self.merged.begin(name, node));
        for part in report.parts {
            if self.is_followed(&part.channel) {
                let is_announced = self.is_ready(&part.channel);
                self.merged.take(node, part, is_announced, terms);
            }
        }
        for name in &report.done {
            self.merged.end(name, node);
            match &**name {
                ALL => self.names.values_mut().for_each(|known| known.has_reported(node)),
                name => self.names.get_mut(name).into_iter().for_each(|known| known.has_reported(node)),
            }
        }
        self.end_baselines(now_ms);
        true
    }

    fn is_followed(&self, channel: &str) -> bool {
        reaches(channel, |name| self.names.contains_key(name))
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
        for channel in self.merged.covered(name) {
            if !self.is_followed(&channel) {
                self.merged.forget(&channel);
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
        ended.iter().for_each(|name| self.merged.announce(name));
    }

    /// Lets time pass, and returns announcements: the name of a channel and the data.
    pub fn advance(&mut self, now_ms: u64, terms: &PresenceTerms) -> Vec<(Arc<str>, String)> {
        if self.ends_ms.is_some_and(|ends_ms| ends_ms <= now_ms) {
            self.end_baselines(now_ms);
            self.expire(now_ms);
        }
        self.merged.advance(now_ms, terms)
    }

    /// Forgets nodes that are gone, and names for whose members nobody has asked for long.
    fn expire(&mut self, now_ms: u64) {
        let is_over = |node: &Node| node.gone_ms.is_some_and(|gone_ms| gone_ms <= now_ms);
        let gone: Vec<u64> = self.nodes.iter().filter(|(_, node)| is_over(node)).map(|(number, _)| *number).collect();
        for node in gone {
            self.nodes.remove(&node);
            self.merged.remove_node(node);
        }
        let is_over = |name: &Name| !name.is_wanted && name.until_ms <= now_ms;
        let over: Vec<Box<str>> =
            self.names.iter().filter(|(_, known)| is_over(known)).map(|(name, _)| name.clone()).collect();
        over.iter().for_each(|name| self.forget_unless_followed(name));
        if self.is_full && self.names.len() <= FOLLOWED_MAX / 2 {
            self.is_full = false;
        }
        let baselines = self.names.values().filter_map(|name| Some(name.baseline.as_ref()?.until_ms));
        let leaving = self.names.values().filter(|name| !name.is_wanted).map(|name| name.until_ms);
        let gone = self.nodes.values().filter_map(|node| node.gone_ms);
        self.ends_ms = baselines.chain(leaving).chain(gone).min();
    }

    /// The next time at which something is to be done, if nothing happens before.
    pub fn next_ms(&self) -> Option<u64> {
        [self.merged.next_ms(), self.ends_ms].into_iter().flatten().min()
    }

    /// Up to `max` members of a channel whose names come after `after`, of 64 KiB at most. Of the sessions of other nodes no ids are known.
    pub fn members(&self, channel: &str, page: (&str, usize), table: &MemberTable) -> Members {
        self.merged.members(channel, page, |user| table.session_ids(channel, user))
    }

    /// Members of other nodes, their bytes, and the names that are followed.
    pub fn sizes(&self) -> [usize; 3] {
        let [members, bytes] = self.merged.sizes();
        [members, bytes, self.names.len()]
    }

    /// Takes the number of members for whom there was no room.
    pub fn take_refused(&mut self) -> u64 {
        self.merged.take_refused()
    }
}

impl Name {
    fn has_reported(&mut self, node: u64) {
        self.baseline.iter_mut().for_each(|baseline| _ = baseline.missing.remove(&node));
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
/// The time after which a node is asked for all names again, in milliseconds: what was lost with a report comes then.
const RENEW_MS: u64 = 10_000;
/// The same after it has not answered.
const AGAIN_MS: u64 = 1_000;
/// The time for which the members of other nodes stay while the engine of the cluster is away, beside the grace time, in milliseconds.
const SILENT_MS: u64 = 7_000;
