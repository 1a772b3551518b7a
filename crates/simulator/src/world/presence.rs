//! Presence: the shards report who subscribes to a channel with presence, the table keeps them with their grace, and a
//! witness in the process follows the announcements.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bayeux::json::{decode_string, elements, integer, member};
use encke_core::{Id, PRESENCE_CHANNEL, PresenceEvent, SLOTS_VISITED_MAX, Settings, Shard, ShardMessage, Weight};
use encke_local::PresenceTerms;

use crate::channels::PRESENT;
use crate::checker::Invariant;
use crate::members::{News, OnChannel, Presence};
use crate::sabotage::Sabotage;
use crate::script::TREE_RULE;
use crate::world::World;

impl World {
    /// Takes a report of a shard.
    pub(super) fn presence_changes(&mut self, shard: usize, event: PresenceEvent) {
        self.checker.tally.presence_reports += 1;
        let terms = self.terms_of(shard);
        let now_ms = self.now.ms;
        match event {
            PresenceEvent::Joined { channel, session, user, is_new } => {
                let member = (channel.to_string(), session.to_string());
                if self.presence.members.insert(member.clone(), user.to_string()).is_some() {
                    self.presence_fails(format!("{member:?} joins and was a member"));
                }
                if !self.sabotage_once(Sabotage::ForgottenMember) {
                    self.joins(member, &session, &user, is_new, &terms);
                }
            }
            PresenceEvent::Left { channel, session, user } => {
                let member = (channel.to_string(), session.to_string());
                if self.presence.members.get(&member).is_none_or(|known| **known != *user) {
                    self.presence_fails(format!("{member:?} leaves and was no member"));
                }
                if self.sabotage == Sabotage::ForgottenLeave {
                    return;
                }
                self.presence.members.remove(&member);
                let was_listed = !self.presence.refused.remove(&member);
                self.presence.table.leave(&channel, &session, &user, now_ms, &terms);
                let others: Vec<String> = self.presence.listed(&channel).map(|listed| listed.1.to_owned()).collect();
                if !was_listed {
                    return;
                }
                if !others.contains(&user.to_string()) {
                    self.presence.away.insert((channel.to_string(), user.to_string()), now_ms);
                } else if self.sabotage == Sabotage::LeaveOfAll {
                    let ids: Vec<String> = self.presence.listed(&channel).map(|listed| listed.0.to_owned()).collect();
                    for id in ids.iter().filter_map(|id| Id::parse(id)) {
                        self.presence.table.leave(&channel, &id, &user, now_ms, &terms);
                    }
                }
            }
            PresenceEvent::Asked { .. } => {}
        }
    }

    fn joins(&mut self, member: OnChannel, session: &Id, user: &str, is_new: bool, terms: &PresenceTerms) {
        let was_there = !is_new && self.presence.users(&member.0).contains(user);
        if self.presence.table.join(&member.0, session, user, is_new, self.now.ms, terms) {
            self.presence.away.remove(&(member.0.clone(), user.to_owned()));
            if !is_new && !was_there && !user.is_empty() {
                self.presence.news.entry(member.0).or_default().push_back(News::Silently(user.to_owned()));
            }
            return;
        }
        self.checker.tally.members_refused += 1;
        let is_limited =
            |settings: &Settings| settings.presence_members_max < ENOUGH || settings.presence_bytes_max < ENOUGH_BYTES;
        if !self.scenario.settings.iter().any(is_limited) {
            self.presence_fails(format!("there is no room for {member:?}"));
        }
        if !is_new {
            self.presence.missed.insert((member.0.clone(), user.to_owned()));
        }
        self.presence.refused.insert(member);
    }

    /// The terms by which a shard reports members.
    fn terms_of(&self, shard: usize) -> PresenceTerms {
        let terms = PresenceTerms::of(self.shards[shard].settings());
        match self.sabotage {
            Sabotage::EndlessGrace => PresenceTerms { grace_ms: u64::MAX / 2, ..terms },
            Sabotage::NoGrace => PresenceTerms { grace_ms: 0, ..terms },
            Sabotage::BoundlessTable => PresenceTerms { members_max: usize::MAX, ..terms },
            _ => terms,
        }
    }

    /// Does the work of the thread that announces changes. False if there was none.
    pub(super) fn announce(&mut self) -> bool {
        let terms = self.terms_of(0);
        if self.presence.unpublished.is_empty() {
            let announcements = self.presence.table.advance(self.now.ms, &terms);
            self.presence.advanced_ms = self.now.ms;
            self.announced(announcements, false);
        }
        let mut has_published = false;
        while !self.presence.unpublished.is_empty() && self.shared.mailbox.has_room(Weight::Heavy) {
            has_published |= self.publish_announcement();
        }
        has_published
    }

    /// Announces what is left, before a process ends that saves its sessions. False if nothing was.
    pub(super) fn finish_presence(&mut self) -> bool {
        if self.sabotage != Sabotage::ForgottenEnd {
            let announcements = self.presence.table.finish();
            self.announced(announcements, true);
        }
        let has_left = !self.presence.unpublished.is_empty();
        while self.publish_announcement() {}
        has_left
    }

    fn publish_announcement(&mut self) -> bool {
        let Some((channel, data)) = self.presence.unpublished.pop_front() else { return false };
        if self.sabotage_once(Sabotage::ForgottenAnnouncement) {
            return true;
        }
        self.checker.tally.announcements += 1;
        let channel = format!("{PRESENCE_CHANNEL}{channel}");
        let publication = encke_core::EncodedPublications::of_server(&self.shared.mailbox, &channel, &data);
        let (to, outside) = (self.shared.histories.owner(&channel), self.shards.len());
        self.send_to_shard(to, outside, ShardMessage::Record(publication.into()));
        true
    }

    /// Checks announcements of the table, which are to be published.
    fn announced(&mut self, announcements: Vec<(Arc<str>, String)>, is_end: bool) {
        let grace_ms = self.scenario.settings.iter().map(|settings| settings.presence_grace_ms).min().unwrap_or(0);
        for (channel, data) in announcements {
            self.note(|_| format!("it is announced: {data}"));
            for user in users_in(&data, "left") {
                let is_there = self.presence.listed(&channel).any(|listed| listed.1 == user);
                let member = (channel.to_string(), user.clone());
                let away_ms = self.presence.away.get(&member).copied();
                let is_missed = self.presence.missed.contains(&member);
                let is_over = is_end || is_missed || away_ms.is_some_and(|since_ms| since_ms + grace_ms <= self.now.ms);
                if is_there || !is_over {
                    let detail = format!("{user} leaves {channel}, is there: {is_there}, away since {away_ms:?} ms");
                    self.checker.fail(Invariant::PresenceGrace, detail);
                }
            }
            self.presence.news.entry(channel.to_string()).or_default().push_back(News::Announced(data.clone()));
            self.presence.unpublished.push_back((channel, data));
        }
    }

    /// The witness gets an announcement.
    pub(super) fn witness_learns(&mut self, channel: &str, data: &str) {
        let Some(channel) = channel.strip_prefix(PRESENCE_CHANNEL) else { return };
        self.witness_hears_of(channel);
        let expected = self.presence.news.get_mut(channel).and_then(VecDeque::pop_front);
        if !matches!(&expected, Some(News::Announced(announced)) if announced == data) {
            let detail = format!("{data} was announced, and not {expected:?}");
            return self.checker.fail(Invariant::PresenceAnnounced, detail);
        }
        let known = self.presence.known.entry(channel.to_owned()).or_default();
        let (joined, left) = (users_in(data, "joined"), users_in(data, "left"));
        let missed = &self.presence.missed;
        let is_missed = |user: String| missed.contains(&(channel.to_owned(), user));
        let is_followed = joined.into_iter().all(|user| known.insert(user.clone()) || is_missed(user))
            && left.into_iter().all(|user| known.remove(&user) || is_missed(user));
        let count = member(data, "users").and_then(integer);
        if !is_followed || count != i64::try_from(known.len()).ok() {
            let detail = format!("after {data} the members of {channel} should be {known:?}");
            self.checker.fail(Invariant::PresenceAnnounced, detail);
        }
    }

    /// The witness asks who is there, where somebody came without an announcement.
    fn witness_hears_of(&mut self, channel: &str) {
        let Some(news) = self.presence.news.get_mut(channel) else { return };
        while let Some(News::Silently(user)) = news.front() {
            self.presence.known.entry(channel.to_owned()).or_default().insert(user.clone());
            news.pop_front();
        }
    }

    /// True if the witness knows who is there. Announcements may still be on their way.
    pub(super) fn members_are_known(&mut self) -> bool {
        PRESENT.iter().for_each(|channel| self.witness_hears_of(channel));
        self.presence.is_known()
    }

    /// Checks, when nothing changes any more, that the witness knows who is there.
    pub(super) fn check_announced(&mut self) {
        if !self.members_are_known() {
            let Presence { known, table, news, .. } = &self.presence;
            let detail = format!("the witness knows {known:?}, has yet to learn {news:?}, and there is {table:?}");
            self.checker.fail(Invariant::PresenceAnnounced, detail);
        }
    }

    /// Checks that the reported members of a shard are those that subscribe, by the rules in force there, and that the
    /// table has them and those within the grace time.
    pub(super) fn check_presence(&mut self) {
        if !self.scenario.has_presence() {
            return;
        }
        let there: BTreeSet<OnChannel> = self.shards.iter().flat_map(members_of).collect();
        let reported: BTreeSet<OnChannel> = self.presence.members.keys().cloned().collect();
        if let Some(member) = there.symmetric_difference(&reported).next() {
            let subscribes = there.contains(member);
            self.presence_fails(format!("{member:?} subscribes: {subscribes}, and the shards report the opposite"));
        }
        PRESENT.iter().for_each(|channel| self.check_table(channel));
        let most = |limit: fn(&Settings) -> usize| self.scenario.settings.iter().map(limit).max().unwrap_or(0);
        let [members, _, bytes] = self.presence.table.sizes();
        if members > most(|settings| settings.presence_members_max)
            || bytes > most(|settings| settings.presence_bytes_max)
        {
            let detail = format!("the table has {members} members and {bytes} bytes");
            self.checker.fail(Invariant::PresenceBounded, detail);
        }
    }

    fn check_table(&mut self, channel: &str) {
        let grace_ms = self.scenario.settings.iter().map(|settings| settings.presence_grace_ms).max().unwrap_or(0);
        let table = self.presence.table.members(channel, "", usize::MAX);
        let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (session, user) in self.presence.listed(channel) {
            users.entry(user).or_default().push(session);
        }
        let anonymous = users.remove("").map_or(0, |sessions| sessions.len());
        let sessions: usize = users.values().map(Vec::len).sum();
        let mut wrong = None;
        if table.counts.sessions != anonymous + sessions || table.counts.anonymous < anonymous {
            wrong = Some(format!("{channel} has {users:?} and {anonymous} anonymous sessions"));
        }
        let mut overdue = None;
        for listed in &table.members {
            let there = users.remove(&*listed.user).unwrap_or_default();
            if !there.iter().eq(&listed.session_ids) {
                wrong = Some(format!("{} is on {channel} with {there:?}", listed.user));
            }
            let away_ms = self.presence.away.get(&(channel.to_owned(), listed.user.clone()));
            let is_over = away_ms.is_some_and(|since_ms| since_ms + grace_ms <= self.presence.advanced_ms);
            if there.is_empty() && is_over {
                overdue = Some(format!("{} is on {channel}, and left it at {away_ms:?} ms", listed.user));
            }
        }
        if !users.is_empty() {
            wrong = Some(format!("{users:?} are on {channel}"));
        }
        if let Some(overdue) = overdue {
            self.checker.fail(Invariant::PresenceGrace, overdue);
        }
        if let Some(wrong) = wrong {
            self.presence_fails(format!("{wrong}, and the table has {table:?}"));
        }
    }

    fn presence_fails(&mut self, detail: String) {
        self.checker.fail(Invariant::PresenceAgrees, detail);
    }
}

/// The users in a list of an announcement.
fn users_in(data: &str, list: &str) -> Vec<String> {
    let names = elements(member(data, list).unwrap_or("[]"));
    names.filter_map(decode_string).map(String::from).collect()
}

/// The members that subscribe on a shard.
fn members_of(shard: &Shard) -> Vec<OnChannel> {
    if !shard.settings().channels[TREE_RULE].presence {
        return Vec::new();
    }
    let views = shard.sessions_from(0, SLOTS_VISITED_MAX).items;
    let of_session = |id: Id| {
        let names = shard.session(&id).map(|session| session.1).unwrap_or_default();
        let names = names.into_iter().filter(|name| name.starts_with("/a/") && !name.ends_with('*'));
        names.map(move |name| (name.to_string(), id.as_str().to_string())).collect::<Vec<_>>()
    };
    views.into_iter().flat_map(|view| of_session(view.id)).collect()
}

/// More members than any run has.
const ENOUGH: usize = 1_000;
/// More bytes than their members take.
const ENOUGH_BYTES: usize = 1 << 20;
