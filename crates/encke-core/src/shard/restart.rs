//! Saves the sessions of a stopping server and restores them in the next process. The server calls [`Shard::save`] when
//! all shards are at rest, and [`Shard::restore`] before it accepts any connection.

use std::sync::Arc;

use bayeux::ChannelName;

use crate::application::{Caller, EndReason};
use crate::attributes::Attributes;
use crate::clients::newcomers::Origins;
use crate::delivery::Frames;
use crate::events::SessionKey;
use crate::identity::Identity;
use crate::interval::Interval;
use crate::limits::sessions::SessionOwner;
use crate::node_messages::ForNodes;
use crate::now::Now;
use crate::rights::policy::Policy;
use crate::rights::table::{Entry, Granted, ServerEntry};
use crate::rights::{By, Client, Denial, May, Wish};
use crate::saved::{Saved, SavedSession, Stage};
use crate::shard::{Machines, Shard};

impl Shard {
    /// Returns everything that the sessions of this shard need to continue in the next process. Nothing may happen to
    /// the shard afterwards. Messages in a response that is on its way count as not delivered. Clients are not
    /// notified, and the sessions have not ended.
    pub fn save(&mut self, now: Now) -> Saved {
        self.settle_burst_at(now).save_all()
    }

    /// Restores the sessions of this shard. Call it on all shards before anything else happens to one of them.
    pub fn restore(&mut self, now: Now, saved: &Saved) {
        self.settle_burst_at(now).restore_all(saved);
    }
}

impl Machines {
    fn save_all(&mut self) -> Saved {
        // They go on with the sessions.
        self.send_all_waiting();
        let policy = self.clients.policy();
        let (messages, sessions) = self.delivery.save();
        // Without the messages that it has missed a session must not go on. Another node can take it from its record.
        let sessions = sessions.into_iter().filter(|(key, _)| !self.env.confirmed.resumes(*key));
        let sessions = sessions.map(|(key, session)| self.completed(key, session, policy)).collect();
        Saved { policy, messages, sessions }
    }

    /// A saved session with all that others than the delivery know of it. `policy`: the one that it need not name.
    pub(super) fn completed(&self, key: SessionKey, session: SavedSession, policy: Policy) -> SavedSession {
        SavedSession {
            identity: self.clients.identity(key).map(|identity| Identity::clone(identity)),
            attributes: self.clients.attributes(key).map(|attributes| Attributes::clone(attributes)),
            policy: Some(self.clients.policy_of(key)).filter(|own| *own != policy),
            subscriptions: self.channels.names_of(key.index).map(Box::from).collect(),
            intervals: self.saved_intervals(key),
            by_server: self.channels.slots_by_server(key.index),
            ..session
        }
    }

    /// The intervals of a session's subscriptions that have one.
    fn saved_intervals(&self, key: SessionKey) -> Vec<(u32, u32)> {
        if self.channels.has_no_groups() {
            return Vec::new();
        }
        let intervals = self.channels.intervals_of(key.index).enumerate();
        intervals.filter(|(_, interval)| !interval.is_none()).map(|(at, interval)| (at as u32, interval.ms())).collect()
    }

    fn restore_all(&mut self, saved: &Saved) {
        let mut frames = vec![None; saved.messages.len()];
        let index = self.env.index;
        let (mut lost, mut loaded) = (0, Vec::new());
        for session in saved.sessions.iter().filter(|session| session.id.shard() == index) {
            match self.may_restore(session, session.policy.unwrap_or(saved.policy)) {
                Ok(admitted) => {
                    // The address of its client is not known yet: without a user, all restored sessions have one owner.
                    let counted_for = self.env.session_owner(session.identity.as_ref(), UNKNOWN);
                    self.env.shared.sessions.add(counted_for);
                    self.restore_session(session, admitted, (counted_for, UNKNOWN), &saved.messages, &mut frames);
                    loaded.push(session.id);
                }
                Err(reason) => {
                    tracing::info!(session = ?session.id, reason, "session not restored");
                    lost += 1;
                }
            }
        }
        if lost > 0 {
            self.env.metrics.unrestored.add(lost);
            tracing::warn!(
                lost,
                "sessions not restored: the settings or the rights of today do not admit them; their clients must handshake again"
            );
        }
        if self.env.shared.is_clustered() {
            self.tell_nodes(ForNodes::Loaded(loaded));
        }
        self.update_gauges();
    }

    /// Asks for the rights of a session that another process has admitted, and for those to all subscriptions that its client has made. Otherwise
    /// returns the reason why it cannot be restored: without one of them it would miss messages, and its client would not
    /// be notified.
    pub(super) fn may_restore(&mut self, session: &SavedSession, saved: Policy) -> Result<Admitted, String> {
        let identity = session.identity.clone().map(Arc::new);
        let attributes = session.attributes.clone().map(Arc::new);
        let wish = Wish { saved: Some(saved), is_held: true, ..Wish::default() };
        let granted = |may, name: &str| match may {
            May::Granted(granted) => Ok(granted),
            May::Denied(Denial { by: By::Policy, .. }) if name.is_empty() => Err("other authentication".into()),
            May::Denied(denial) => Err(format!("{name}: {}", denial.error())),
            May::Later(_) => Err(format!("{name}: no decision")),
        };
        let client = Client::Newcomer(identity.as_deref());
        let own = granted(self.beside().may_as(Entry::RestoredSession, &client, &wish, None), "")?;
        let caller = Caller::new(session.id.as_str(), identity.as_ref()).with_attributes(attributes.as_ref());
        let client = Client::Session(caller);
        let mut subscriptions = Vec::with_capacity(session.subscriptions.len());
        for (at, name) in session.subscriptions.iter().enumerate() {
            if let Err(error) = ChannelName::parse(name, self.env.settings.limits()) {
                return Err(format!("{name}: {}", error.error()));
            }
            if session.is_by_server(at) {
                subscriptions.push(ServerEntry::SessionSubscribe.may());
                continue;
            }
            let wish = Wish { channel: name, ..wish };
            subscriptions.push(granted(self.beside().may_as(Entry::RestoredSubscription, &client, &wish, None), name)?);
        }
        Ok(Admitted { granted: own, identity, subscriptions })
    }

    /// Restores a session that may be restored, and that is counted for this owner. Its client has these origins.
    pub(super) fn restore_session(
        &mut self,
        saved: &SavedSession,
        admitted: Admitted,
        (counted_for, origins): (SessionOwner, Origins),
        messages: &[Box<str>],
        frames: &mut [Option<Frames>],
    ) {
        let Admitted { granted, identity, subscriptions } = admitted;
        let compresses = &mut |message: &[u8]| self.env.settings.compresses_message(message);
        let key = self.delivery.restore(saved, granted, messages, frames, compresses);
        self.clients.open(key, counted_for);
        self.env.metrics.restored.add(1);
        if saved.stage == Stage::New {
            self.is_new(key, origins);
        }
        if !self.delivery.has(key) {
            return;
        }
        if let Some(identity) = identity {
            // It was within the limits before the restart.
            let is_counted = self.env.count_session_of(&identity);
            self.set_owner(key, identity, is_counted, self.clients.policy().authentication);
        }
        self.clients.restore_buckets(key, saved.buckets_ms, self.env.now);
        if let Some(attributes) = &saved.attributes {
            self.clients.restore_attributes(key, attributes.clone());
        }
        for (at, (name, granted)) in saved.subscriptions.iter().zip(subscriptions).enumerate() {
            let interval = Interval::at_least(saved.interval_ms(at)).unwrap_or_default();
            self.resubscribe(key, name, interval, granted);
            if saved.is_by_server(at) {
                self.channels.is_by_server(key.index, name);
            }
        }
        self.delivery.arm(key);
        self.note_restored(key);
        // Its rights may have ended before it was saved, too.
        match &saved.identity {
            Some(identity) if self.env.shared.revoked.has(identity) => self.kick(key, EndReason::Revoked),
            Some(identity) if identity.has_expired(self.env.now.wall_ms) => self.kick(key, EndReason::TokenExpired),
            _ => {}
        }
    }
}

/// The origins of a client that is not there yet.
const UNKNOWN: Origins = [0; 2];

/// The rights of a session that is restored.
pub(super) struct Admitted {
    granted: Granted,
    identity: Option<Arc<Identity>>,
    /// In the order of its subscriptions.
    subscriptions: Vec<Granted>,
}
