//! A node of a cluster as a source: it reports its members to the nodes that follow their channels.
//!
//! A follower has one report at a time on its way. What changes meanwhile is in the next one, as it is then. So a slow follower costs
//! no more room than the names of what has changed. A follower that does not answer is forgotten; it asks again, and gets all.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use bayeux::channel::{covers, is_pattern};
use foldhash::fast::RandomState;

use super::names::reaches;
use super::report::{FollowPage, MembersReport, NOT_THERE, PartReport};
use super::{MemberTable, PresenceTerms, Touched};

/// The followers of a node's members.
#[derive(Debug, Default)]
pub struct Reporter {
    followers: BTreeMap<u64, Follower>,
}

/// Another node.
#[derive(Debug, Default)]
struct Follower {
    /// The number of the stream of reports that it takes.
    stream: u64,
    /// The channels and patterns that it follows.
    names: HashSet<Box<str>, RandomState>,
    /// The list of all names, while it arrives.
    listed: Option<HashSet<Box<str>, RandomState>>,
    /// The time at which it is forgotten, unless it asks again.
    until_ms: u64,
    /// Users that have changed since they were reported, by channel.
    changed: Touched,
    /// The steps of reporting all.
    steps: VecDeque<Step>,
    is_sending: bool,
    /// The time of the next report.
    next_ms: u64,
}

#[derive(Debug)]
enum Step {
    Begin(Box<str>),
    /// The channels that a pattern covers after this one.
    Covered(Box<str>, Option<Arc<str>>),
    /// The users of a channel whose names come after this one.
    Channel(Arc<str>, Option<Arc<str>>),
    End(Box<str>),
}

impl Reporter {
    /// A node follows channels and patterns: a page of the list of all, or further ones. It gets all members of those that are new.
    pub fn follow(
        &mut self,
        (node, stream): (u64, u64),
        (names, page): (Vec<Box<str>>, Option<FollowPage>),
        now_ms: u64,
    ) {
        let is_other = self.followers.get(&node).is_none_or(|follower| follower.stream != stream);
        if is_other {
            self.followers.insert(node, Follower { stream, ..Follower::default() });
        }
        let Some(follower) = self.followers.get_mut(&node) else { return };
        follower.until_ms = now_ms + FOLLOWED_MS;
        if page.is_some_and(|page| page.is_first) {
            follower.listed = Some(HashSet::default());
        }
        for name in names {
            let is_new = !follower.names.contains(&name);
            // It has more than it names: what it has forgotten is in no later list.
            if is_new && follower.names.len() >= NAMES_MAX {
                continue;
            }
            // One that the follower names again by itself, it has forgotten meanwhile.
            if is_new || page.is_none() {
                follower.report_all(&name);
            }
            follower.listed.iter_mut().for_each(|listed| _ = listed.insert(name.clone()));
            follower.names.insert(name);
        }
        if page.is_some_and(|page| page.is_last)
            && let Some(listed) = follower.listed.take()
        {
            follower.names = listed;
            let names = &follower.names;
            follower.changed.retain(|(channel, _)| reaches(channel, |name| names.contains(name)));
        }
    }

    /// Notes users that have changed.
    pub fn touched(&mut self, touched: &Touched) {
        for follower in self.followers.values_mut() {
            let Follower { names, changed, .. } = follower;
            changed
                .extend(touched.iter().filter(|(channel, _)| reaches(channel, |name| names.contains(name))).cloned());
        }
    }

    /// The reports that leave now: the node, its stream and the report. Each is answered by [`Reporter::answered`].
    pub fn take_reports(
        &mut self,
        table: &MemberTable,
        terms: &PresenceTerms,
        now_ms: u64,
    ) -> Vec<(u64, u64, MembersReport)> {
        self.followers.retain(|_, follower| follower.is_sending || follower.until_ms > now_ms);
        let mut reports = Vec::new();
        for (node, follower) in &mut self.followers {
            if follower.is_sending || follower.next_ms > now_ms {
                continue;
            }
            let report = follower.report(table);
            if !report.is_empty() {
                follower.is_sending = true;
                // More of the same follows at once.
                let has_more = !follower.steps.is_empty() || !follower.changed.is_empty();
                follower.next_ms = if has_more { now_ms } else { now_ms + terms.interval_ms };
                reports.push((*node, follower.stream, report));
            }
        }
        reports
    }

    /// A follower has taken its report, or not.
    pub fn answered(&mut self, node: u64, stream: u64, is_taken: bool) {
        let Some(follower) = self.followers.get_mut(&node).filter(|follower| follower.stream == stream) else { return };
        match is_taken {
            true => follower.is_sending = false,
            false => _ = self.followers.remove(&node),
        }
    }

    /// The time of the next report. None: when something changes.
    pub fn next_ms(&self) -> Option<u64> {
        let has_news = |follower: &&Follower| !follower.changed.is_empty() || !follower.steps.is_empty();
        let ready = self.followers.values().filter(has_news).filter(|follower| !follower.is_sending);
        ready.map(|follower| follower.next_ms).min()
    }

    /// The number of followers.
    pub fn followers(&self) -> usize {
        self.followers.len()
    }
}

impl Follower {
    fn report_all(&mut self, name: &str) {
        let channels = match is_pattern(name) {
            true => Step::Covered(name.into(), None),
            false => Step::Channel(name.into(), None),
        };
        self.steps.extend([Step::Begin(name.into()), channels, Step::End(name.into())]);
    }

    /// The next report, of so many bytes at most. Changes go before what is still to be reported for the first time.
    fn report(&mut self, table: &MemberTable) -> MembersReport {
        let mut report = MembersReport::default();
        let mut bytes = 0;
        while bytes < REPORT_BYTES_MAX
            && let Some((channel, _)) = self.changed.first()
        {
            let channel = channel.clone();
            let part = self.changes(&channel, table);
            bytes += part.bytes();
            report.parts.push(part);
        }
        while bytes < REPORT_BYTES_MAX
            && let Some(step) = self.steps.pop_front()
        {
            match step {
                Step::Begin(name) => {
                    bytes += name.len();
                    report.begun.push(name);
                }
                Step::End(name) => {
                    bytes += name.len();
                    report.done.push(name);
                }
                Step::Covered(name, after) => {
                    // A look at a channel that it does not cover counts, too.
                    bytes += 1;
                    if let Some(channel) = table.next_below(&name, after.as_deref()).cloned() {
                        let is_covered = covers(&name, &channel);
                        self.steps.push_front(Step::Covered(name, Some(channel.clone())));
                        if is_covered {
                            self.steps.push_front(Step::Channel(channel, None));
                        }
                    }
                }
                Step::Channel(channel, after) => {
                    let (part, last) = page(&channel, after.as_deref(), table);
                    bytes += part.bytes();
                    if !part.is_last {
                        self.steps.push_front(Step::Channel(channel, last));
                    }
                    report.parts.push(part);
                }
            }
        }
        report
    }

    /// The users of a channel that have changed.
    fn changes(&mut self, channel: &Arc<str>, table: &MemberTable) -> PartReport {
        let mut part = part_of(channel, table);
        let mut bytes = 0;
        while bytes < REPORT_BYTES_MAX
            && let Some((next, _)) = self.changed.first()
            && next == channel
            && let Some((_, user)) = self.changed.pop_first()
        {
            bytes += user.len();
            if !user.is_empty() {
                let sessions = table.sessions_of(channel, &user).map_or(NOT_THERE, |sessions| sessions as i64);
                part.users.push(((*user).into(), sessions));
            }
        }
        part
    }
}

/// The users of a channel from one on, as many as a report has room for, and the last of them.
fn page(channel: &Arc<str>, after: Option<&str>, table: &MemberTable) -> (PartReport, Option<Arc<str>>) {
    let mut part = PartReport { is_first: after.is_none(), is_last: true, ..part_of(channel, table) };
    let mut last = None;
    let mut bytes = 0;
    for (user, sessions) in table.users_after(channel, after) {
        if bytes >= REPORT_BYTES_MAX {
            part.is_last = false;
            break;
        }
        bytes += user.len();
        part.users.push(((**user).into(), sessions as i64));
        last = Some(user.clone());
    }
    (part, last)
}

fn part_of(channel: &str, table: &MemberTable) -> PartReport {
    let (anonymous, sessions) = table.sums(channel);
    PartReport { channel: channel.into(), anonymous, sessions, ..PartReport::default() }
}

/// The channels and patterns that a node follows by their names; one with more follows all channels.
pub(super) const FOLLOWED_MAX: usize = 10_000;
/// The time after which a follower that has not asked again is forgotten, in milliseconds.
const FOLLOWED_MS: u64 = 90_000;
/// The bytes of names in a report, or in a command to follow channels; more by one channel at most.
pub(super) const REPORT_BYTES_MAX: usize = 64 * 1024;
/// The names that a follower may have: those that it has forgotten since its last list are among them.
const NAMES_MAX: usize = 2 * FOLLOWED_MAX;
