//! The members of channels on all nodes of a cluster, from the reports of each: on a node that follows these channels.
//!
//! A node follows a channel while it has subscribers to its announcements, also by a pattern, and for a while after somebody has asked for
//! its members. First it gathers the members that are there, the *baseline*, of which nothing is announced; who asks for the list waits for
//! it. From then on each change is announced. So list and announcements come from one table and agree.
//!
//! A user is there while one node says so. Only that node says when the grace time of a user is over. A node that is gone takes its members
//! with it after a while, in which its sessions can go on at others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bayeux::channel::is_pattern;
use encke_core::{Amount, Budget, SessionOwner, Share, Shares, Urgency};

use super::merged::Merged;
use super::names::reaches;
use super::report::{FollowPage, MembersReport};
use super::reporter::{FOLLOWED_MAX, REPORT_BYTES_MAX};
use super::{MemberTable, Members, PresenceTerms, Touched};

/// The members on all nodes of the channels that this node follows.
#[derive(Debug, Default)]
pub struct Gathered {
    merged: Merged,
    names: BTreeMap<Box<str>, Name>,
    /// Names whose members are gathered for the first time.
    pending: BTreeSet<Box<str>>,
    /// Names by the time at which their baseline ends, or they do.
    ends: BTreeSet<(u64, Box<str>)>,
    /// The other nodes.
    nodes: BTreeMap<u64, Node>,
    last_stream: u64,
    /// True: there are so many names that all channels are followed.
    is_full: bool,
    /// True: members of a channel have been gathered since [`Gathered::take_gathered`] was called.
    has_gathered: bool,
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
    /// They are this page of the list of all. None: they are new.
    pub page: Option<FollowPage>,
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
    /// Its time in `ends`.
    ends_ms: Option<u64>,
}

/// Members are gathered for the first time.
#[derive(Clone, Debug)]
struct Baseline {
    /// The nodes that have not reported all.
    missing: BTreeSet<u64>,
    /// The time after which they are not waited for.
    until_ms: u64,
}

#[derive(Debug, Default)]
struct Node {
    stream: u64,
    /// The time at which it is asked for all names again.
    whole_ms: u64,
    /// Names that it does not know of yet.
    new: BTreeSet<Box<str>>,
    /// The names that it is asked for now.
    asking: Option<ToFollow>,
    /// The last name that it knows of, while it is asked for all names.
    listed: Option<Box<str>>,
    /// The time before which it is not asked.
    next_ms: u64,
    /// True: it has not answered the last time.
    is_refusing: bool,
    /// It is gone since some time: the time at which its members are, too.
    gone_ms: Option<u64>,
}

impl Gathered {
    /// The first subscriber to the announcements of a channel or pattern has come, or the last one has left.
    pub fn want(&mut self, name: &str, is_wanted: bool, table: &MemberTable, now_ms: u64) {
        if is_wanted {
            self.follow(name, table, now_ms);
        }
        let Some(known) = self.names.get_mut(name) else { return };
        (known.is_wanted, known.until_ms) = (is_wanted, known.until_ms.max(now_ms + LEAVE_MS));
        // The pattern of all channels covers it: so there are no more names than subscribers and askers want.
        if !is_wanted && known.asked.is_none() && self.is_full && name != ALL {
            return self.forget(name);
        }
        self.arm(name);
    }

    /// Somebody asks for the members of a channel: it is followed for a while. False if the asker has its share of such channels.
    pub fn ask(&mut self, name: &str, owner: Option<SessionOwner>, table: &MemberTable, now_ms: u64) -> bool {
        let until_ms = now_ms + ASKED_MS;
        if let Some(known) = self.names.get_mut(name) {
            known.until_ms = known.until_ms.max(until_ms);
            self.arm(name);
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
        self.arm(name);
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
            self.is_full = true;
            self.follow(ALL, table, now_ms);
            self.arm(ALL);
        }
        // The pattern of all channels covers this one.
        let all = self.names.get(ALL);
        let is_new = all.is_none();
        let baseline = match all {
            Some(all) => all.baseline.clone(),
            None => {
                let missing = self.here().map(|(node, _)| node).collect();
                Some(Baseline { missing, until_ms: now_ms + BASELINE_MS })
            }
        };
        let baseline = baseline.filter(|baseline| !baseline.missing.is_empty());
        let is_ready = baseline.is_none();
        let own: Vec<Arc<str>> = match (is_new, is_pattern(name)) {
            (false, _) => Vec::new(),
            (true, true) => table.covered(name).filter(|channel| !self.is_followed(channel)).cloned().collect(),
            (true, false) => vec![name.into()],
        };
        self.names.insert(name.into(), Name { baseline, ..Name::default() });
        if !is_ready {
            self.pending.insert(name.into());
        }
        self.arm(name);
        if is_new {
            let here = self.nodes.values_mut().filter(|node| node.gone_ms.is_none());
            here.for_each(|node| _ = node.new.insert(name.into()));
            own.iter().for_each(|channel| self.take_own(channel, table));
        }
        if is_new && is_ready {
            self.merged.announce(name);
        }
    }

    /// Sets the time at which a name or its baseline ends.
    fn arm(&mut self, name: &str) {
        let is_full = self.is_full;
        let Some(known) = self.names.get_mut(name) else { return };
        let stays = known.is_wanted || (name == ALL && is_full);
        let baseline_ms = known.baseline.as_ref().map(|baseline| baseline.until_ms);
        let ends_ms = baseline_ms.into_iter().chain((!stays).then_some(known.until_ms)).min();
        let before_ms = std::mem::replace(&mut known.ends_ms, ends_ms);
        if before_ms != ends_ms {
            before_ms.into_iter().for_each(|before_ms| _ = self.ends.remove(&(before_ms, Box::<str>::from(name))));
            self.ends.extend(ends_ms.map(|ends_ms| (ends_ms, Box::<str>::from(name))));
        }
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
        let mut gone = Vec::new();
        for (number, node) in &mut self.nodes {
            let is_here = others.is_some_and(|others| others.contains(number));
            match node.gone_ms {
                None if !is_here => {
                    let silent_ms = if others.is_none() { SILENT_MS } else { 0 };
                    node.gone_ms = Some(now_ms + silent_ms + terms.grace_ms);
                    gone.push(*number);
                }
                Some(_) if is_here => (node.gone_ms, node.whole_ms) = (None, now_ms),
                _ => {}
            }
        }
        for number in others.unwrap_or_default() {
            self.nodes.entry(*number).or_insert_with(|| {
                self.last_stream += 1;
                Node { stream: self.last_stream, whole_ms: now_ms, ..Node::default() }
            });
        }
        gone.into_iter().for_each(|node| self.has_reported(ALL, node));
    }

    /// The other nodes that are there.
    fn here(&self) -> impl Iterator<Item = (u64, &Node)> {
        self.nodes.iter().filter(|(_, node)| node.gone_ms.is_none()).map(|(number, node)| (*number, node))
    }

    /// The names that the other nodes have to know of now. Each is answered by [`Gathered::followed`].
    pub fn take_follows(&mut self, terms: &PresenceTerms, now_ms: u64) -> Vec<ToFollow> {
        let Gathered { nodes, names, merged, last_stream, .. } = self;
        let is_free = |node: &Node| node.gone_ms.is_none() && node.asking.is_none() && node.next_ms <= now_ms;
        let mut follows = Vec::new();
        for (number, node) in nodes.iter_mut().filter(|(_, node)| is_free(node)) {
            let (names, page) = if !node.new.is_empty() {
                (first_names(std::iter::from_fn(|| node.new.pop_first())), None)
            } else if node.listed.is_some() || node.whole_ms <= now_ms {
                let is_first = node.listed.is_none();
                if is_first {
                    node.whole_ms = now_ms + RENEW_MS;
                    if merged.takes_again(*number, terms) {
                        // In a new stream it reports all.
                        *last_stream += 1;
                        node.stream = *last_stream;
                    }
                }
                let page = node.next_page(names);
                (page, Some(FollowPage { is_first, is_last: node.listed.is_none() }))
            } else {
                continue;
            };
            let follow = ToFollow { node: *number, stream: node.stream, names, page };
            node.asking = Some(follow.clone());
            follows.push(follow);
        }
        follows
    }

    /// A node has learned what this one follows, or not. True: it has not for the first time.
    pub fn followed(&mut self, node: u64, stream: u64, is_taken: bool, now_ms: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&node).filter(|node| node.stream == stream) else { return false };
        let asked = node.asking.take();
        let was_refusing = std::mem::replace(&mut node.is_refusing, !is_taken);
        if is_taken {
            return false;
        }
        (node.listed, node.whole_ms, node.next_ms) = (None, now_ms + AGAIN_MS, now_ms + AGAIN_MS);
        if let Some(asked) = asked.filter(|asked| asked.page.is_none()) {
            node.new.extend(asked.names.into_iter().filter(|name| self.names.contains_key(name)));
        }
        !was_refusing
    }

    /// Takes the report of a node. False if this node does not want it: its stream is an old one.
    pub fn take_report(&mut self, (node, stream): (u64, u64), report: MembersReport, terms: &PresenceTerms) -> bool {
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
            self.has_reported(name, node);
        }
        true
    }

    /// A node has reported all of a name; of all names, too, if it is gone.
    fn has_reported(&mut self, name: &str, node: u64) {
        let names: Vec<Box<str>> = match name {
            ALL => self.pending.iter().cloned().collect(),
            name => vec![name.into()],
        };
        for name in names {
            let baseline = self.names.get_mut(&name).and_then(|known| known.baseline.as_mut());
            if baseline.is_some_and(|baseline| baseline.missing.remove(&node) && baseline.missing.is_empty()) {
                self.end_baseline(&name);
            }
        }
    }

    /// Announces from now on what a name covers.
    fn end_baseline(&mut self, name: &str) {
        self.names.get_mut(name).into_iter().for_each(|known| known.baseline = None);
        self.pending.remove(name);
        self.arm(name);
        self.merged.announce(name);
        self.has_gathered = true;
    }

    fn is_followed(&self, channel: &str) -> bool {
        reaches(channel, |name| self.names.contains_key(name))
    }

    fn forget(&mut self, name: &str) {
        let Some(known) = self.names.remove(name) else { return };
        self.pending.remove(name);
        known.ends_ms.into_iter().for_each(|ends_ms| _ = self.ends.remove(&(ends_ms, Box::<str>::from(name))));
        known.asked.into_iter().for_each(|share| self.askers.give_back(share));
        self.nodes.values_mut().for_each(|node| _ = node.new.remove(name));
        if name == ALL {
            // The other nodes report what it has covered from now on by its names.
            self.nodes.values_mut().for_each(|node| node.whole_ms = 0);
        }
        if self.is_full && self.names.len() <= FOLLOWED_MAX / 2 {
            self.is_full = false;
            self.arm(ALL);
        }
        if !self.names.contains_key(ALL) {
            for channel in self.merged.covered(name) {
                if !self.is_followed(&channel) {
                    self.merged.forget(&channel);
                }
            }
        }
    }

    /// Lets time pass, and returns announcements: the name of a channel and the data.
    pub fn advance(&mut self, now_ms: u64, terms: &PresenceTerms) -> Vec<(Arc<str>, String)> {
        self.expire(now_ms);
        self.merged.advance(now_ms, terms)
    }

    /// Forgets nodes that are gone, and names for whose members nobody has asked for long; so many names at most.
    fn expire(&mut self, now_ms: u64) {
        let is_over = |node: &Node| node.gone_ms.is_some_and(|gone_ms| gone_ms <= now_ms);
        let gone: Vec<u64> = self.nodes.iter().filter(|(_, node)| is_over(node)).map(|(number, _)| *number).collect();
        for node in gone {
            self.nodes.remove(&node);
            self.merged.remove_node(node);
        }
        for _ in 0..ENDS_AT_ONCE {
            if self.ends.first().is_none_or(|(ends_ms, _)| *ends_ms > now_ms) {
                break;
            }
            let Some((_, name)) = self.ends.pop_first() else { break };
            let Some(known) = self.names.get_mut(&name) else { continue };
            known.ends_ms = None;
            let is_over = |baseline: &Baseline| baseline.until_ms <= now_ms;
            if known.baseline.as_ref().is_some_and(is_over) {
                self.end_baseline(&name);
            } else {
                self.forget(&name);
            }
        }
    }

    /// The next time at which something is to be done, if nothing happens before.
    pub fn next_ms(&self) -> Option<u64> {
        let ends_ms = self.ends.first().map(|(ends_ms, _)| *ends_ms);
        let gone_ms = self.nodes.values().filter_map(|node| node.gone_ms);
        gone_ms.chain(ends_ms).chain(self.merged.next_ms()).min()
    }

    /// Up to `max` members of a channel whose names come after `after`, of 64 KiB at most. Of the sessions of other nodes no ids are known.
    pub fn members(&self, channel: &str, page: (&str, usize), table: &MemberTable) -> Members {
        self.merged.members(channel, page, |user| table.session_ids(channel, user))
    }

    /// True if members of a channel have been gathered since the last call.
    pub fn take_gathered(&mut self) -> bool {
        std::mem::take(&mut self.has_gathered)
    }

    /// Parts of channels on other nodes and users in them, their bytes, and the names that are followed.
    pub fn sizes(&self) -> [usize; 3] {
        let [members, bytes] = self.merged.sizes();
        [members, bytes, self.names.len()]
    }

    /// Takes the number of members for whom there was no room.
    pub fn take_refused(&mut self) -> u64 {
        self.merged.take_refused()
    }
}

impl Node {
    /// The next page of the list of all names.
    fn next_page(&mut self, names: &BTreeMap<Box<str>, Name>) -> Vec<Box<str>> {
        let after = self.listed.take();
        if names.contains_key(ALL) {
            return vec![ALL.into()];
        }
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = names.range::<str, _>((from, Bound::Unbounded)).map(|(name, _)| name.clone()).peekable();
        let page = first_names(&mut rest);
        self.listed = rest.peek().and(page.last().cloned());
        page
    }
}

/// So many of these names as a command has room for.
fn first_names(names: impl Iterator<Item = Box<str>>) -> Vec<Box<str>> {
    let mut bytes = 0;
    let mut page = Vec::new();
    for name in names {
        bytes += name.len() + QUOTES_BYTES;
        page.push(name);
        if bytes >= REPORT_BYTES_MAX {
            break;
        }
    }
    page
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
/// Names that end in one step.
const ENDS_AT_ONCE: usize = 100;
/// The bytes of a name in a command beside it.
const QUOTES_BYTES: usize = 3;
