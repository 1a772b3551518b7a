//! The members of channels, and the changes that are to be announced. Time is an input.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use encke_core::{Id, Settings};
use serde::Serialize;

mod gathered;
#[cfg(test)]
mod gathered_tests;
#[cfg(test)]
mod limits_tests;
mod merged;
mod names;
mod report;
mod reporter;
#[cfg(test)]
mod tests;

pub use gathered::{Gathered, ToFollow};
pub use report::{FollowPage, MembersReport};
pub use reporter::Reporter;

/// The settings of presence.
#[derive(Clone, Copy, Debug)]
pub struct PresenceTerms {
    /// `presence_grace_ms`.
    pub grace_ms: u64,
    /// `presence_interval_ms`.
    pub interval_ms: u64,
    /// `presence_members_max`.
    pub members_max: usize,
    /// `presence_bytes_max`.
    pub bytes_max: usize,
}

impl PresenceTerms {
    /// The terms in the settings.
    pub fn of(settings: &Settings) -> PresenceTerms {
        PresenceTerms {
            grace_ms: settings.presence_grace_ms,
            interval_ms: settings.presence_interval_ms,
            members_max: settings.presence_members_max,
            bytes_max: settings.presence_bytes_max,
        }
    }
}

/// The members of all channels with presence.
#[derive(Debug, Default)]
pub struct MemberTable {
    channels: BTreeMap<Arc<str>, Channel>,
    /// Users without a session, and anonymous sessions that have left, by the time at which they count as gone.
    leaving: BTreeSet<(u64, Arc<str>, Arc<str>)>,
    /// Channels with changes that are not announced yet.
    changed: BTreeSet<Arc<str>>,
    /// The time of the next announcement, if a channel has changed.
    announce_ms: u64,
    /// Distinguishes anonymous sessions that leave a channel at the same time.
    departures: u64,
    sessions: usize,
    /// The bytes of all members, and of those that are leaving.
    bytes: usize,
    /// Users that have changed since the last call of [`MemberTable::take_touched`], by channel; an empty name stands for the anonymous
    /// sessions. None: nobody asks.
    touched: Option<Touched>,
}

/// Users by channel.
pub type Touched = BTreeSet<(Arc<str>, Arc<str>)>;

#[derive(Debug, Default)]
struct Channel {
    users: BTreeMap<Arc<str>, User>,
    anonymous: BTreeSet<Id>,
    /// Anonymous sessions that have left and still count, oldest first: their entries in `leaving`.
    anonymous_leaving: VecDeque<(u64, Arc<str>)>,
    sessions: usize,
    joined: BTreeSet<Arc<str>>,
    left: BTreeSet<Arc<str>>,
    /// Users of before a restart for whom there was no room. Some subscribers know them as members, others do not.
    missed: BTreeSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct User {
    sessions: BTreeSet<Id>,
    /// The time at which it counts as gone, while it has no session.
    gone_ms: Option<u64>,
}

/// The numbers of a channel's members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PresenceCounts {
    /// Users with a session, and those whose last one has left within the grace time.
    pub users: usize,
    /// Sessions without a user, and those that have left within the grace time.
    pub anonymous: usize,
    /// Sessions that subscribe now, with and without a user.
    pub sessions: usize,
}

/// A user on a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Member {
    /// The name of the user.
    pub user: String,
    /// The number of its sessions. 0 within the grace time.
    pub sessions: usize,
    /// The client ids of its sessions, up to 100. They are secrets: clients must not see those of others.
    #[serde(skip)]
    pub session_ids: Vec<String>,
}

/// Members of a channel, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Members {
    /// The numbers of all members.
    #[serde(flatten)]
    pub counts: PresenceCounts,
    /// The users of this page.
    pub members: Vec<Member>,
    /// The last user of this page, if more follow.
    pub next: Option<String>,
}

/// A change of a channel's members, as the subscribers of its presence channel get it.
#[derive(Debug, Serialize)]
struct Announcement<'a> {
    channel: &'a str,
    joined: Vec<&'a str>,
    left: Vec<&'a str>,
    #[serde(flatten)]
    counts: PresenceCounts,
}

impl MemberTable {
    /// Adds a session to a channel. False if there is no room: then it is no member. A session that is there already
    /// stays. `is_announced`: false for sessions of before a restart. Subscribers may know those as members, so one without
    /// room counts as gone.
    pub fn join(
        &mut self,
        channel: &str,
        session: &Id,
        user: &str,
        is_announced: bool,
        now_ms: u64,
        terms: &PresenceTerms,
    ) -> bool {
        if !is_announced {
            // Until then the other shards report theirs.
            self.announce_ms = self.announce_ms.max(now_ms + terms.interval_ms.max(RESTORE_MS));
        }
        if self.channels.get(channel).is_some_and(|known| known.has(session, user)) {
            return true;
        }
        if self.sessions + self.leaving.len() >= terms.members_max || self.bytes + cost(channel, user) > terms.bytes_max
        {
            if !is_announced {
                self.miss(channel, user, now_ms);
            }
            return false;
        }
        let (name, mut known) =
            self.channels.remove_entry(channel).unwrap_or_else(|| (channel.into(), Channel::default()));
        self.sessions += 1;
        self.bytes += cost(channel, user);
        known.sessions += 1;
        let has_changed = if user.is_empty() {
            known.anonymous.insert(*session);
            // It takes the place of one that has just left.
            match known.anonymous_leaving.pop_back() {
                None => true,
                Some((gone_ms, number)) => {
                    self.leaving.remove(&(gone_ms, name.clone(), number));
                    self.bytes -= cost(channel, user);
                    false
                }
            }
        } else if let Some(member) = known.users.get_mut(user) {
            member.sessions.insert(*session);
            if let Some(gone_ms) = member.gone_ms.take() {
                self.leaving.remove(&(gone_ms, name.clone(), user.into()));
                self.bytes -= cost(channel, user);
            }
            false
        } else {
            let user: Arc<str> = user.into();
            known.users.insert(user.clone(), User { sessions: BTreeSet::from([*session]), gone_ms: None });
            // Its leave is not announced yet: for everybody else it never left.
            let is_new = !known.left.remove(&user);
            if is_new && is_announced {
                known.joined.insert(user);
            }
            is_new
        };
        self.channels.insert(name.clone(), known);
        self.touch(&name, user);
        if has_changed && is_announced {
            self.change(&name, now_ms);
        }
        true
    }

    /// Removes a session from a channel. Its user stays a member for the grace time.
    pub fn leave(&mut self, channel: &str, session: &Id, user: &str, now_ms: u64, terms: &PresenceTerms) {
        let Some((name, mut known)) = self.channels.remove_entry(channel) else { return };
        let gone_ms = now_ms + terms.grace_ms;
        let is_member = known.remove(session, user);
        if is_member {
            known.sessions -= 1;
            self.sessions -= 1;
            if user.is_empty() {
                self.departures += 1;
                let number: Arc<str> = format!("\n{}", self.departures).into();
                known.anonymous_leaving.push_back((gone_ms, number.clone()));
                self.leaving.insert((gone_ms, name.clone(), number));
            } else if let Some(member) = known.users.get_mut(user).filter(|member| member.sessions.is_empty()) {
                member.gone_ms = Some(gone_ms);
                self.leaving.insert((gone_ms, name.clone(), user.into()));
            } else {
                self.bytes -= cost(channel, user);
            }
        }
        self.channels.insert(name.clone(), known);
        if is_member {
            self.touch(&name, user);
        }
        if is_member && terms.grace_ms == 0 {
            self.expire(now_ms);
        }
    }

    /// Advances time, and returns announcements: the name of a channel and the data.
    pub fn advance(&mut self, now_ms: u64, terms: &PresenceTerms) -> Vec<(Arc<str>, String)> {
        self.expire(now_ms);
        if self.changed.is_empty() || now_ms < self.announce_ms {
            return Vec::new();
        }
        self.announce_ms = now_ms + terms.interval_ms;
        let names = std::mem::take(&mut self.changed);
        names.into_iter().flat_map(|name| self.announce(&name)).collect()
    }

    /// Ends all grace times, and returns what is left to announce: the process ends.
    pub fn finish(&mut self) -> Vec<(Arc<str>, String)> {
        self.expire(u64::MAX);
        let names = std::mem::take(&mut self.changed);
        names.into_iter().flat_map(|name| self.announce(&name)).collect()
    }

    /// The next time at which something is to be done. `None`: at the next change.
    pub fn next_ms(&self) -> Option<u64> {
        let announce_ms = (!self.changed.is_empty()).then_some(self.announce_ms);
        let gone_ms = self.leaving.first().map(|(gone_ms, ..)| *gone_ms);
        announce_ms.into_iter().chain(gone_ms).min()
    }

    /// The numbers of a channel's members.
    #[cfg(test)]
    pub fn counts(&self, channel: &str) -> PresenceCounts {
        self.channels.get(channel).map(Channel::counts).unwrap_or_default()
    }

    /// Up to `max` members of a channel whose names come after `after`, of 64 KiB at most.
    pub fn members(&self, channel: &str, after: &str, max: usize) -> Members {
        let Some(known) = self.channels.get(channel) else { return Members::default() };
        let users = known.users.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        let users = users.map(|(name, user)| (name, user.sessions.len(), user.session_ids()));
        page_of(known.counts(), users, max)
    }

    /// Members in all channels, channels, and their bytes.
    pub fn sizes(&self) -> [usize; 3] {
        [self.sessions, self.channels.len(), self.bytes]
    }

    /// Notes users that change from now on: another node reports them.
    pub fn watch(&mut self) {
        self.touched.get_or_insert_default();
    }

    /// Takes the users that have changed, by channel; an empty name stands for the anonymous sessions.
    pub fn take_touched(&mut self) -> Touched {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lets time pass for a node whose announcements are made from the reports of all nodes.
    pub fn advance_quietly(&mut self, now_ms: u64) {
        self.expire(now_ms);
        for name in std::mem::take(&mut self.changed) {
            let Some(known) = self.channels.get_mut(&name) else { continue };
            (known.joined, known.left, known.missed) = Default::default();
            if known.is_empty() {
                self.channels.remove(&name);
            }
        }
    }

    /// The channels with members that a name covers.
    fn covered<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<str>> {
        names::covered(&self.channels, name)
    }

    /// The next channel with members below the parent of a pattern.
    fn next_below(&self, pattern: &str, after: Option<&str>) -> Option<&Arc<str>> {
        names::next_below(&self.channels, pattern, after)
    }

    /// The sessions of a user on a channel. None: it is not there.
    fn sessions_of(&self, channel: &str, user: &str) -> Option<usize> {
        self.channels.get(channel)?.users.get(user).map(|user| user.sessions.len())
    }

    /// The client ids of a user's sessions on a channel, up to 100.
    fn session_ids(&self, channel: &str, user: &str) -> Vec<String> {
        let user = self.channels.get(channel).and_then(|known| known.users.get(user));
        user.map(User::session_ids).unwrap_or_default()
    }

    /// The anonymous sessions and all sessions of a channel.
    fn sums(&self, channel: &str) -> (usize, usize) {
        self.channels.get(channel).map(Channel::counts).map_or((0, 0), |counts| (counts.anonymous, counts.sessions))
    }

    /// The users of a channel whose names come after `after`, with their sessions.
    fn users_after(&self, channel: &str, after: Option<&str>) -> impl Iterator<Item = (&Arc<str>, usize)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let users = self.channels.get(channel).map(|known| known.users.range::<str, _>((from, Bound::Unbounded)));
        users.into_iter().flatten().map(|(name, user)| (name, user.sessions.len()))
    }

    fn touch(&mut self, channel: &Arc<str>, user: &str) {
        if let Some(touched) = &mut self.touched {
            touched.insert((channel.clone(), user.into()));
        }
    }

    /// Announces that a user is not there any more, unless another of its sessions is. Anonymous sessions are a number.
    fn miss(&mut self, channel: &str, user: &str, now_ms: u64) {
        let (name, mut known) =
            self.channels.remove_entry(channel).unwrap_or_else(|| (channel.into(), Channel::default()));
        if !known.users.contains_key(user) {
            known.missed.extend((!user.is_empty()).then(|| Arc::from(user)));
            self.change(&name, now_ms);
        }
        self.channels.insert(name, known);
    }

    fn change(&mut self, name: &Arc<str>, now_ms: u64) {
        if self.changed.insert(name.clone()) && self.changed.len() == 1 {
            self.announce_ms = self.announce_ms.max(now_ms);
        }
    }

    /// Removes those whose grace time is over.
    fn expire(&mut self, now_ms: u64) {
        while self.leaving.first().is_some_and(|(gone_ms, ..)| *gone_ms <= now_ms)
            && let Some((gone_ms, name, user)) = self.leaving.pop_first()
        {
            let is_anonymous = user.starts_with('\n');
            self.bytes -= cost(&name, if is_anonymous { "" } else { &user });
            self.touch(&name, if is_anonymous { "" } else { &user });
            let Some(known) = self.channels.get_mut(&name) else { continue };
            if is_anonymous {
                let entry = (gone_ms, user);
                // The first one, unless the grace time has been changed.
                if known.anonymous_leaving.front() == Some(&entry) {
                    known.anonymous_leaving.pop_front();
                } else {
                    known.anonymous_leaving.retain(|other| *other != entry);
                }
            } else {
                known.users.remove(&user);
                // Its join is not announced yet: for everybody else it never came.
                if !known.joined.remove(&user) {
                    known.left.insert(user);
                }
            }
            self.change(&name, now_ms);
        }
    }

    /// The announcements of a channel's changes.
    fn announce(&mut self, name: &Arc<str>) -> Vec<(Arc<str>, String)> {
        let Some(known) = self.channels.get_mut(name) else { return Vec::new() };
        let (counts, users) = (known.counts(), &known.users);
        known.left.extend(std::mem::take(&mut known.missed).into_iter().filter(|user| !users.contains_key(user)));
        let announcements = announcements(name, (&mut known.joined, &mut known.left), counts);
        if known.is_empty() {
            self.channels.remove(name);
        }
        announcements
    }
}

/// A page with the first `max` of these users, of 64 KiB at most: the name, the number of sessions and the ids of each.
fn page_of<'a>(
    counts: PresenceCounts,
    users: impl Iterator<Item = (&'a Arc<str>, usize, Vec<String>)>,
    max: usize,
) -> Members {
    let mut page = Members { counts, ..Members::default() };
    let mut bytes = 0;
    for (name, sessions, session_ids) in users {
        bytes += name.len() + session_ids.iter().map(String::len).sum::<usize>();
        let is_full = page.members.len() >= max.max(1) || bytes > PAGE_BYTES_MAX;
        if is_full && let Some(last) = page.members.last() {
            page.next = Some(last.user.clone());
            break;
        }
        page.members.push(Member { user: name.to_string(), sessions, session_ids });
    }
    page
}

/// The announcements of those who have joined and left a channel: one at least.
fn announcements(
    name: &Arc<str>,
    (joined, left): (&mut BTreeSet<Arc<str>>, &mut BTreeSet<Arc<str>>),
    counts: PresenceCounts,
) -> Vec<(Arc<str>, String)> {
    let mut announcements = Vec::new();
    while announcements.is_empty() || !joined.is_empty() || !left.is_empty() {
        let (joined, left) = (first_of(joined), first_of(left));
        let (joined, left) = (joined.iter().map(|name| &**name).collect(), left.iter().map(|name| &**name).collect());
        let announcement = Announcement { channel: name, joined, left, counts };
        announcements.push((name.clone(), serde_json::to_string(&announcement).unwrap_or_default()));
    }
    announcements
}

/// Takes the first names of one announcement.
fn first_of(names: &mut BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
    let (mut first, mut bytes) = (Vec::new(), 0);
    while first.len() < ANNOUNCED_MAX
        && bytes < PAGE_BYTES_MAX
        && let Some(user) = names.pop_first()
    {
        bytes += user.len();
        first.push(user);
    }
    first
}

impl User {
    fn session_ids(&self) -> Vec<String> {
        self.sessions.iter().take(SESSION_IDS_MAX).map(Id::to_string).collect()
    }
}

impl Channel {
    fn counts(&self) -> PresenceCounts {
        let anonymous = self.anonymous.len() + self.anonymous_leaving.len();
        PresenceCounts { users: self.users.len(), anonymous, sessions: self.sessions }
    }

    fn is_empty(&self) -> bool {
        self.users.is_empty() && self.anonymous.is_empty() && self.anonymous_leaving.is_empty()
    }

    fn has(&self, session: &Id, user: &str) -> bool {
        match user {
            "" => self.anonymous.contains(session),
            user => self.users.get(user).is_some_and(|member| member.sessions.contains(session)),
        }
    }

    fn remove(&mut self, session: &Id, user: &str) -> bool {
        match user {
            "" => self.anonymous.remove(session),
            user => self.users.get_mut(user).is_some_and(|member| member.sessions.remove(session)),
        }
    }
}

/// The bytes of one member, roughly.
fn cost(channel: &str, user: &str) -> usize {
    channel.len() + user.len() + MEMBER_BYTES
}

/// The bytes of a member beside the names, with its room in the tables.
const MEMBER_BYTES: usize = 256;
/// The client ids that a member is listed with.
const SESSION_IDS_MAX: usize = 100;
/// The time after a session of before a restart without announcements, in milliseconds: the counts are not yet those of all shards.
const RESTORE_MS: u64 = 500;
/// The most users in one list of an announcement. Further ones come with the next.
const ANNOUNCED_MAX: usize = 1_000;
/// The bytes of names in one announcement or page; more by one name at most.
const PAGE_BYTES_MAX: usize = 64 * 1024;
