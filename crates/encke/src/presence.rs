//! Presence: who is on a channel.
//!
//! Shards report subscriptions to channels with presence, and their ends, as effects. The table of members is one for all
//! shards, behind a lock that no publication takes. A thread announces changes on `/presence/CHANNEL` and lets the grace
//! time of users end. It starts with the first member.
//!
//! On a node of a cluster it reports its members to the nodes that follow their channels, and makes the announcements of those that it
//! follows from the reports of all nodes: see [`Gathered`]. What passes between nodes is in `threads/members.rs`.
//!
//! A change is announced once it is published. So the end of a server that saves its sessions finds what is left, and
//! [`Presence::finish`] returns it: the next process knows the members only from the saved sessions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::error::PublishError;
use crate::metric::Metric;
use bayeux::{ChannelKind, ChannelName};
use encke_core::{
    Amount, Budget, Granted, Metrics, Now, PRESENCE_CHANNEL, PRESENCE_SERVICE, PresenceEvent, Right, SessionOwner,
    Settings, Share, Shares, Urgency, message_frame,
};
use encke_local::{FollowPage, Gathered, MemberTable, Members, MembersReport, PresenceTerms, Reporter, ToFollow};
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use tokio::sync::Notify;

/// The members of all channels with presence, and the thread that announces changes.
pub(crate) struct Presence {
    state: Mutex<State>,
    changed: Condvar,
    /// Written while the state is locked.
    metrics: Arc<Metrics>,
    is_clustered: bool,
    /// Wakes the task that talks to the other nodes of a cluster.
    pub(crate) to_nodes: Notify,
    /// Wakes those who wait until the members of a channel are gathered.
    pub(crate) gathered: Notify,
    /// Those who wait for that. None: the program.
    waiting: Arc<Mutex<Shares<Option<SessionOwner>>>>,
}

/// One who waits until the members of a channel are gathered, with its share.
pub(crate) struct Waiter {
    shares: Arc<Mutex<Shares<Option<SessionOwner>>>>,
    share: Option<Share<Option<SessionOwner>>>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.share.take().into_iter().for_each(|share| self.shares.lock().give_back(share));
    }
}

#[derive(Default)]
struct State {
    table: MemberTable,
    /// The members on all nodes of the channels that this node of a cluster follows.
    gathered: Gathered,
    /// The nodes that follow channels of this one.
    reporter: Reporter,
    terms: Option<PresenceTerms>,
    /// Announcements that are not published yet.
    unpublished: VecDeque<(Arc<str>, String)>,
    /// The work of the thread, until it starts.
    starter: Option<Box<dyn FnOnce() + Send>>,
    is_stopped: bool,
}

/// The answer of the service.
#[derive(Serialize)]
struct Answer<'a> {
    channel: &'a str,
    #[serde(flatten)]
    members: &'a Members,
}

impl Presence {
    /// No members.
    pub(crate) fn new(metrics: Arc<Metrics>, is_clustered: bool) -> Presence {
        let mut state = State::default();
        if is_clustered {
            state.table.watch();
        }
        Presence {
            state: Mutex::new(state),
            changed: Condvar::new(),
            metrics,
            is_clustered,
            to_nodes: Notify::new(),
            gathered: Notify::new(),
            waiting: Arc::default(),
        }
    }

    /// Starts a thread with this work when the first member comes. What waits for the thread must not hold the server.
    pub(crate) fn announce_by(&self, work: impl FnOnce() + Send + 'static) {
        self.state.lock().starter = Some(Box::new(work));
    }

    /// Ends the thread. Nothing is announced any more.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        (state.is_stopped, state.starter) = (true, None);
        self.changed.notify_all();
        self.to_nodes.notify_one();
        self.gathered.notify_waiters();
    }

    /// True if the server has stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// Ends the thread and all grace times. Returns what is left to announce: channels, and the data. In a cluster other nodes announce
    /// the end of this one.
    pub(crate) fn finish(&self) -> Vec<(String, String)> {
        self.stop();
        if self.is_clustered {
            return Vec::new();
        }
        let State { table, unpublished, .. } = &mut *self.state.lock();
        unpublished.extend(table.finish());
        unpublished.drain(..).map(|(channel, data)| (name_for(&channel), data)).collect()
    }

    /// Notes who has come to a channel, or left it.
    pub(crate) fn take(&self, event: &PresenceEvent, now: Now, settings: &Settings) {
        let terms = PresenceTerms::of(settings);
        let mut state = self.state.lock();
        let before_ms = state.next_ms();
        match event {
            PresenceEvent::Joined { channel, session, user, is_new } => {
                if !state.table.join(channel, session, user, *is_new, now.ms, &terms) {
                    self.metrics.presence_refused.add(1);
                    tracing::debug!(
                        channel,
                        "a session is not listed: presence_members_max or presence_bytes_max reached"
                    );
                }
                self.start(&mut state);
            }
            PresenceEvent::Left { channel, session, user } => {
                state.table.leave(channel, session, user, now.ms, &terms);
            }
            PresenceEvent::Asked { .. } => return,
        }
        self.has_changed(&mut state, before_ms);
    }

    /// Starts the thread, if it does not run.
    fn start(&self, state: &mut State) {
        let Some(starter) = state.starter.take() else { return };
        // Without the thread the members are known, and changes are not announced.
        if let Err(error) = std::thread::Builder::new().name("presence".into()).spawn(starter) {
            tracing::error!(%error, "changes of members are not announced");
        }
    }

    /// Passes on what has changed, and wakes those that have something to do now. The thread sleeps until the time that was the next one
    /// before.
    fn has_changed(&self, state: &mut State, before_ms: Option<u64>) {
        if state.spread() {
            self.to_nodes.notify_one();
        }
        self.measure(state);
        let next_ms = state.next_ms();
        if next_ms.is_some_and(|next_ms| before_ms.is_none_or(|before_ms| next_ms < before_ms)) {
            self.changed.notify_one();
        }
    }

    /// The answer of the service to a client.
    pub(crate) fn answer(channel: &str, id: Option<&bayeux::Id<'_>>, members: &Members) -> Vec<u8> {
        let answer = serde_json::to_string(&Answer { channel, members });
        message_frame(PRESENCE_SERVICE, &answer.unwrap_or_default(), id, Some(true))
    }

    /// Members of a channel: see [`Handle::presence`](crate::Handle::presence).
    pub(crate) fn members(&self, channel: &str, after: &str, max: usize, granted: Granted) -> Members {
        granted.use_for(Right::Presence);
        let state = self.state.lock();
        match self.is_clustered && state.gathered.is_ready(channel) {
            true => state.gathered.members(channel, (after, max), &state.table),
            false => state.table.members(channel, after, max),
        }
    }

    /// The members of a channel on this node of a cluster.
    pub(crate) fn members_here(&self, channel: &str, after: &str, max: usize, granted: Granted) -> Members {
        granted.use_for(Right::Presence);
        self.state.lock().table.members(channel, after, max)
    }

    /// The first subscribers to announcements have come, or the last ones have left: the channels and patterns of the announcements.
    /// `others`: see [`Presence::for_nodes`].
    pub(crate) fn want(&self, names: Vec<(Box<str>, bool)>, others: Option<&[u64]>, now: Now) {
        let names: Vec<_> =
            names.iter().filter_map(|(name, is_wanted)| Some((announced_by(name)?, *is_wanted))).collect();
        // Shards get the lock in between.
        for names in names.chunks(NAMES_AT_ONCE) {
            let mut state = self.state.lock();
            state.set_nodes(others, now);
            let State { table, gathered, .. } = &mut *state;
            names.iter().for_each(|(name, is_wanted)| gathered.want(name, *is_wanted, table, now.ms));
            self.wake_all(&mut state);
        }
    }

    /// One more who waits until the members of a channel are gathered, with so many bytes. None: there are too many, or its share is used
    /// up.
    pub(crate) fn waiter(&self, owner: Option<SessionOwner>, bytes: usize) -> Option<Waiter> {
        let (budget, amount) = (Budget::new(WAITING_MAX, WAITING_BYTES_MAX), Amount { count: 1, bytes });
        let share = self.waiting.lock().take(&budget, owner, amount, Urgency::Common).ok()?;
        Some(Waiter { shares: self.waiting.clone(), share: Some(share) })
    }

    /// Somebody asks for the members of a channel on all nodes. False: the asker has too many such channels. `others`: see
    /// [`Presence::for_nodes`].
    pub(crate) fn ask(&self, channel: &str, owner: Option<SessionOwner>, others: Option<&[u64]>, now: Now) -> bool {
        let mut state = self.state.lock();
        state.set_nodes(others, now);
        let State { table, gathered, .. } = &mut *state;
        let is_asked = gathered.ask(channel, owner, table, now.ms);
        self.wake_all(&mut state);
        is_asked
    }

    /// Wakes the thread, which may have to start, the task, and those who wait.
    fn wake_all(&self, state: &mut State) {
        self.wake_waiting(state);
        self.start(state);
        self.changed.notify_one();
        self.to_nodes.notify_one();
    }

    /// Wakes those who wait if members of a channel have been gathered.
    fn wake_waiting(&self, state: &mut State) {
        if state.gathered.take_gathered() {
            self.gathered.notify_waiters();
        }
    }

    /// True if the members of a channel are gathered, and the number of nodes that have not reported.
    pub(crate) fn is_gathered(&self, channel: &str) -> (bool, usize) {
        let state = self.state.lock();
        (state.gathered.is_ready(channel), state.gathered.missing(channel))
    }

    /// The news for the other nodes, and the time of the next call. `others`: the nodes that are there; None: the engine is away.
    pub(crate) fn for_nodes(&self, others: Option<&[u64]>, now: Now, settings: &Settings) -> ForNodes {
        let terms = PresenceTerms::of(settings);
        let mut state = self.state.lock();
        state.terms = Some(terms);
        let before_ms = state.next_ms();
        state.set_nodes(others, now);
        self.has_changed(&mut state, before_ms);
        self.wake_waiting(&mut state);
        if others.is_none() {
            return ForNodes::default();
        }
        let State { table, gathered, reporter, .. } = &mut *state;
        let follows = gathered.take_follows(&terms, now.ms);
        let reports = reporter.take_reports(table, &terms, now.ms);
        ForNodes { follows, reports, next_ms: reporter.next_ms() }
    }

    /// Another node has learned what this one follows, or not. True: it has not for the first time.
    pub(crate) fn followed(&self, node: u64, stream: u64, is_taken: bool, now: Now) -> bool {
        let is_first = self.state.lock().gathered.followed(node, stream, is_taken, now.ms);
        self.to_nodes.notify_one();
        is_first
    }

    /// Another node has taken a report, or not.
    pub(crate) fn reported(&self, node: u64, stream: u64, is_taken: bool) {
        self.state.lock().reporter.answered(node, stream, is_taken);
        self.to_nodes.notify_one();
    }

    /// Another node follows channels and patterns: a page of the list of all, or further ones.
    pub(crate) fn follow(&self, from: (u64, u64), names: (Vec<Box<str>>, Option<FollowPage>), now: Now) {
        self.state.lock().reporter.follow(from, names, now.ms);
        self.to_nodes.notify_one();
    }

    /// Takes the report of another node. False if it is of no use.
    pub(crate) fn take_report(&self, (node, stream): (u64, u64), report: MembersReport) -> bool {
        let mut state = self.state.lock();
        // The terms are known before a channel is followed.
        let Some(terms) = state.terms else { return false };
        let before_ms = state.next_ms();
        let is_taken = state.gathered.take_report((node, stream), report, &terms);
        self.has_changed(&mut state, before_ms);
        self.wake_waiting(&mut state);
        is_taken
    }

    /// Publishes the next change, or waits for one. False if the server has stopped.
    pub(crate) fn announce(
        &self,
        now: Now,
        settings: &Settings,
        publish: impl Fn(&str, &str) -> Result<(), PublishError>,
    ) -> bool {
        let mut state = self.state.lock();
        if state.is_stopped {
            return false;
        }
        if state.unpublished.is_empty() {
            let terms = PresenceTerms::of(settings);
            if self.is_clustered {
                state.table.advance_quietly(now.ms);
                if state.spread() {
                    self.to_nodes.notify_one();
                }
                state.unpublished = state.gathered.advance(now.ms, &terms).into();
                self.wake_waiting(&mut state);
            } else {
                state.unpublished = state.table.advance(now.ms, &terms).into();
            }
            self.measure(&mut state);
        }
        let pause = match state.unpublished.front() {
            // Under the lock: what is published must not be there when the server ends.
            Some((channel, data)) => match publish(&name_for(channel), data) {
                Err(PublishError::Busy) => BUSY_PAUSE,
                outcome => {
                    if outcome.is_err() {
                        tracing::debug!(channel = &**channel, "a change of members is not announced");
                    }
                    state.unpublished.pop_front();
                    return true;
                }
            },
            None => {
                let next_ms = state.next_ms();
                let pause_ms = next_ms.map_or(PAUSE_MAX_MS, |next_ms| next_ms.saturating_sub(now.ms).max(1));
                Duration::from_millis(pause_ms.min(PAUSE_MAX_MS))
            }
        };
        let _woken = self.changed.wait_for(&mut state, pause);
        true
    }

    /// The metrics of a node of a cluster.
    pub(crate) fn cluster_metrics(&self) -> Vec<Metric> {
        let state = self.state.lock();
        let [members, bytes, names] = state.gathered.sizes();
        vec![
            Metric::gauge_of(
                "encke_cluster_presence_members",
                "Channels of other nodes that this node follows, each once for each node, and users in them.",
                members,
            ),
            Metric::gauge_of("encke_cluster_presence_bytes", "Bytes of these channels and users.", bytes),
            Metric::gauge_of(
                "encke_cluster_presence_names",
                "Channels and patterns whose members this node gathers from the others.",
                names,
            ),
            Metric::gauge_of(
                "encke_cluster_presence_followers",
                "Nodes that gather members from this one.",
                state.reporter.followers(),
            ),
        ]
    }

    fn measure(&self, state: &mut State) {
        self.metrics.presence_refused.add(state.gathered.take_refused() as usize);
        let [members, channels, bytes] = state.table.sizes();
        self.metrics.presence_members.set(members);
        self.metrics.presence_channels.set(channels);
        self.metrics.presence_bytes.set(bytes);
    }
}

impl State {
    /// Passes what has changed on this node to the nodes that follow it. True: there is something for other nodes.
    fn spread(&mut self) -> bool {
        let State { table, gathered, reporter, .. } = self;
        let touched = table.take_touched();
        if touched.is_empty() {
            return false;
        }
        gathered.touched(&touched, table);
        reporter.touched(&touched);
        reporter.next_ms().is_some()
    }

    fn set_nodes(&mut self, others: Option<&[u64]>, now: Now) {
        let terms = self.terms.get_or_insert_with(|| PresenceTerms::of(&Settings::default()));
        self.gathered.set_nodes(others, terms, now.ms);
    }

    fn next_ms(&self) -> Option<u64> {
        [self.table.next_ms(), self.gathered.next_ms()].into_iter().flatten().min()
    }
}

/// News for the other nodes of a cluster.
#[derive(Debug, Default)]
pub(crate) struct ForNodes {
    pub(crate) follows: Vec<ToFollow>,
    /// A node, its stream, and the report.
    pub(crate) reports: Vec<(u64, u64, MembersReport)>,
    /// The time of the next report. None: when something happens.
    pub(crate) next_ms: Option<u64>,
}

/// The channel on which changes of a channel's members are announced.
fn name_for(channel: &str) -> String {
    format!("{PRESENCE_CHANNEL}{}", ChannelName::known(channel).as_str())
}

/// The channel or pattern whose members are announced on this one. None: no channel that it covers has members.
fn announced_by(name: &str) -> Option<&str> {
    // A pattern of all channels is one of all announcements, too.
    let name = name.strip_prefix(PRESENCE_CHANNEL).unwrap_or(name);
    (ChannelName::known(name).kind() == ChannelKind::Broadcast).then_some(name)
}

/// Those who may wait until the members of channels are gathered, and the bytes of what they have asked for.
const WAITING_MAX: usize = 1_000;
const WAITING_BYTES_MAX: usize = 1024 * 1024;
/// Names of announcements that are looked at under one lock.
const NAMES_AT_ONCE: usize = 32;
/// The longest sleep of the thread, in milliseconds.
const PAUSE_MAX_MS: u64 = 60_000;
/// The pause before another attempt to publish.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_below_which_no_channel_has_members_are_not_followed() {
        assert_eq!(announced_by("/presence/a/*"), Some("/a/*"));
        assert_eq!(announced_by("/presence/**"), Some("/**"));
        assert_eq!(announced_by("/**"), Some("/**"));
        for name in ["/presence/service/x", "/presence/service/**", "/presence/meta/x", "/presence/meta/*"] {
            assert_eq!(announced_by(name), None, "{name}");
        }
    }

    #[test]
    fn those_who_wait_for_members_have_a_limit_and_shares() {
        let presence = Presence::new(Arc::default(), true);
        let (greedy, other) = (Some(SessionOwner::of(1)), Some(SessionOwner::of(2)));
        let mut waiters: Vec<Waiter> =
            std::iter::from_fn(|| presence.waiter(greedy, 10)).take(2 * WAITING_MAX).collect();
        assert!(waiters.len() < WAITING_MAX, "{}", waiters.len());
        waiters.extend(presence.waiter(other, 10));
        assert!(presence.waiter(other, 2 * WAITING_BYTES_MAX).is_none(), "bytes count, too");
        let before = waiters.len();
        waiters.truncate(before - 3);
        waiters.extend(presence.waiter(greedy, 10));
        assert_eq!(waiters.len(), before - 2, "who goes makes room");
    }
}
