//! Presence: who is on a channel.
//!
//! Shards report subscriptions to channels with presence, and their ends, as effects. The table of members is one for all
//! shards, behind a lock that no publication takes. A thread announces changes on `/presence/CHANNEL` and lets the grace
//! time of users end. It starts with the first member.
//!
//! A change is announced once it is published. So the end of a server that saves its sessions finds what is left, and
//! [`Presence::finish`] returns it: the next process knows the members only from the saved sessions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::error::PublishError;
use bayeux::ChannelName;
use encke_core::{
    Granted, Id, Metrics, Now, PRESENCE_CHANNEL, PRESENCE_SERVICE, PresenceEvent, Right, Settings, ShardMessage,
    message_frame,
};
use encke_local::{MemberTable, Members, PresenceTerms};
use parking_lot::{Condvar, Mutex};
use serde::Serialize;

/// The members of all channels with presence, and the thread that announces changes.
pub(crate) struct Presence {
    state: Mutex<State>,
    changed: Condvar,
    /// Written while the state is locked.
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    table: MemberTable,
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
    pub(crate) fn new(metrics: Arc<Metrics>) -> Presence {
        Presence { state: Mutex::default(), changed: Condvar::new(), metrics }
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
    }

    /// Ends the thread and all grace times. Returns what is left to announce: channels, and the data.
    pub(crate) fn finish(&self) -> Vec<(String, String)> {
        self.stop();
        let State { table, unpublished, .. } = &mut *self.state.lock();
        unpublished.extend(table.finish());
        unpublished.drain(..).map(|(channel, data)| (name_for(&channel), data)).collect()
    }

    /// Handles an event of a shard. Returns the message that answers it.
    pub(crate) fn take(&self, event: PresenceEvent, now: Now, settings: &Settings) -> Option<(Id, ShardMessage)> {
        let terms = PresenceTerms::of(settings);
        let mut state = self.state.lock();
        let before_ms = state.table.next_ms();
        match event {
            PresenceEvent::Joined { channel, session, user, is_new } => {
                if !state.table.join(&channel, &session, &user, is_new, now.ms, &terms) {
                    self.metrics.presence_refused.add(1);
                    tracing::debug!(
                        channel,
                        "a session is not listed: presence_members_max or presence_bytes_max reached"
                    );
                }
                if let Some(starter) = state.starter.take() {
                    // Without the thread the members are known, and changes are not announced.
                    if let Err(error) = std::thread::Builder::new().name("presence".into()).spawn(starter) {
                        tracing::error!(%error, "changes of members are not announced");
                    }
                }
            }
            PresenceEvent::Left { channel, session, user } => {
                state.table.leave(&channel, &session, &user, now.ms, &terms);
            }
            PresenceEvent::Asked { channel, session, id, after, limit, granted } => {
                drop(state);
                let members = self.members(&channel, &after, limit, granted);
                let answer = serde_json::to_string(&Answer { channel: &channel, members: &members });
                let frame = message_frame(PRESENCE_SERVICE, &answer.unwrap_or_default(), id.as_ref(), Some(true));
                return Some((session, ShardMessage::Deliver(session, frame.into(), None)));
            }
        }
        self.measure(&state);
        // The thread sleeps until the time that was the next one before.
        let next_ms = state.table.next_ms();
        if next_ms.is_some_and(|next_ms| before_ms.is_none_or(|before_ms| next_ms < before_ms)) {
            self.changed.notify_one();
        }
        None
    }

    /// Members of a channel: see [`Handle::presence`](crate::Handle::presence).
    pub(crate) fn members(&self, channel: &str, after: &str, max: usize, granted: Granted) -> Members {
        granted.use_for(Right::Presence);
        self.state.lock().table.members(channel, after, max)
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
            state.unpublished = state.table.advance(now.ms, &PresenceTerms::of(settings)).into();
            self.measure(&state);
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
                let next_ms = state.table.next_ms();
                let pause_ms = next_ms.map_or(PAUSE_MAX_MS, |next_ms| next_ms.saturating_sub(now.ms).max(1));
                Duration::from_millis(pause_ms.min(PAUSE_MAX_MS))
            }
        };
        let _woken = self.changed.wait_for(&mut state, pause);
        true
    }

    fn measure(&self, state: &State) {
        let [members, channels, bytes] = state.table.sizes();
        self.metrics.presence_members.set(members);
        self.metrics.presence_channels.set(channels);
        self.metrics.presence_bytes.set(bytes);
    }
}

/// The channel on which changes of a channel's members are announced.
fn name_for(channel: &str) -> String {
    format!("{PRESENCE_CHANNEL}{}", ChannelName::known(channel).as_str())
}

/// The longest sleep of the thread, in milliseconds.
const PAUSE_MAX_MS: u64 = 60_000;
/// The pause before another attempt to publish.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
