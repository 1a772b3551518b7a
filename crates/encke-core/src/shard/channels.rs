//! Subscriptions of sessions, as all machines know them: who subscribes, what the application and the other shards hear of
//! it, what counts. A handle of the server may change them, too: nothing is decided about that, and the client gets no
//! message about it, but the limits hold.

use bayeux::ext::PositionForm;
use bayeux::{ChannelKind, ChannelName};

use crate::channels::{LastReceived, Subscribed};
use crate::conflation::Conflation;
use crate::events::{Changed, PublishToken, Report, SessionKey};
use crate::id::Id;
use crate::interval::Interval;
use crate::protocol::replay_request::ReplayRequest;
use crate::rights::table::{Granted, Right, ServerEntry};
use crate::shard::Machines;

impl Machines {
    /// Lets a session use replay from now on that has not offered it in its handshake, as Salesforce's clients do. Messages of
    /// all channels with a history that it subscribes to then carry their position.
    pub(super) fn start_replaying(&mut self, key: SessionKey) {
        self.delivery.start_replaying(key, PositionForm::Mixed);
        self.channels.follow(key.index);
    }

    /// Closes the cursors of channels that a session no longer receives, after it has given up a subscription.
    pub(super) fn forget_cursors(&mut self, key: SessionKey, name: &str) {
        let limits = self.env.settings.limits();
        let Ok(name) = ChannelName::parse(name, limits) else { return };
        for channel in self.delivery.replayed(key, name, limits) {
            if !self.channels.receives(key.index, &channel) {
                self.delivery.end_replay(key, &channel);
            }
        }
        if name.is_pattern() {
            self.forget_pattern(key, name);
        }
    }

    /// Subscribes again after a restart.
    pub(super) fn resubscribe(&mut self, key: SessionKey, name: &str, interval: Interval, granted: Granted) {
        let limits = self.env.settings.limits().clone();
        let Ok(channel) = ChannelName::parse(name, &limits) else { return };
        // It was within the limits before the restart.
        let _counted = self.beside().count_subscription(key, channel, false);
        if self.enlist(key, channel, interval, granted).is_none() {
            return;
        }
        // All messages of the history were fanned out before the restart. A session with an empty queue is at the end
        // of the ring. In a cluster the newest ones may be on their way.
        let has_positions = interval.is_none() && !self.env.is_conflated(name);
        let histories = &self.env.shared.histories;
        let has_positions = has_positions && !histories.is_mirrored();
        let end = histories.find(name, 0).filter(|_| has_positions).and_then(|position| {
            let next = histories.with(position.ring, |ring| ring.next())?;
            Some(LastReceived { serial: position.ring.serial, epoch: position.epoch, offset: next.checked_sub(1)? })
        });
        if let Some(end) = end {
            self.channels.note_received(name, end);
        }
        self.joined(key, name, false);
    }

    /// Adds a session to the subscribers of a channel with this interval, to which it must not subscribe yet. Returns the channel's
    /// index in the hub, or None if the session is gone.
    pub(super) fn enlist(
        &mut self,
        key: SessionKey,
        channel: ChannelName<'_>,
        interval: Interval,
        granted: Granted,
    ) -> Option<u32> {
        granted.use_for(Right::Subscribe);
        let name = channel.as_str();
        let follows = self.delivery.session(key)?.replays();
        let Subscribed { channel, is_first, begins } = self.channels.subscribe(key.index, name, interval, follows);
        if !interval.is_none() {
            // The messages that wait are older.
            self.conflation.note_had(channel, key.index, name);
        }
        self.note_overlaps(key, channel);
        self.note_subscriptions(key);
        self.env.shared.application.subscribed(&self.caller(key)?, name);
        if is_first {
            self.env.shared.application.first_subscribed(name, self.env.index);
        }
        if is_first && self.env.shared.notes_interest() {
            self.env.shared.interest.add(name, self.env.index);
        }
        if begins && interval.is_none() {
            self.set_older(channel);
        }
        Some(channel)
    }

    /// Notes which bursts are older than a channel or pattern that has its first subscriber without an interval.
    pub(super) fn set_older(&mut self, channel: u32) {
        // Also for a plain channel: if the session already receives it by a pattern, it has no cursor that keeps older messages out.
        let has_histories = || self.env.settings.given().channels.iter().any(|rule| rule.history().is_some());
        if self.env.shared.notes_interest() && has_histories() {
            self.channels.set_older(channel, self.env.shared.histories.bursts());
        }
    }

    /// Removes all subscriptions of a session.
    pub(super) fn drop_subscriptions(&mut self, key: SessionKey) {
        while self.delivery.has(key)
            && let Some(slot) = self.channels.count_of(key.index).checked_sub(1)
        {
            self.drop_subscription(key, slot);
        }
    }

    /// Removes the subscription at `slot` of a session. The last subscription takes its slot.
    pub(super) fn drop_subscription(&mut self, key: SessionKey, slot: usize) {
        let (Some(session), Some(caller)) = (self.delivery.session(key), self.caller(key)) else { return };
        let (name, _) = self.channels.at(key.index, slot);
        self.env.shared.application.unsubscribed(&caller, name);
        let is_watched = self.env.settings.rules_have_subscribers() || self.env.settings.rules_have_presence();
        let name = is_watched.then(|| name.to_string());
        let group = self.channels.list_at(key.index, slot).filter(|(_, interval)| !interval.is_none());
        let gone = self.channels.unsubscribe(key.index, slot, session.replays());
        if let Some((group, _)) = group {
            self.has_left_group(key, group);
        }
        if self.channels.count_of(key.index) == 0 {
            self.conflation.left(Conflation::EVERYBODY, key.index, false);
        }
        self.note_subscriptions(key);
        if let Some(name) = gone {
            self.env.shared.application.last_unsubscribed(&name, self.env.index);
            if self.env.shared.notes_interest() {
                self.env.shared.interest.remove(&name, self.env.index);
            }
        }
        self.beside().uncount_subscription(key);
        if let Some(name) = name {
            self.has_lost_subscriber(&name);
            self.left(key, &name);
        }
    }

    /// Subscribes a session to a channel or pattern, from now on.
    pub(super) fn subscribe_for_handle(&mut self, session: &Id, name: &str) -> Changed {
        let session = self.delivery.find(session).and_then(|key| Some((key, self.delivery.session(key)?)));
        let Some((key, session)) = session.filter(|(_, session)| !session.is_ending()) else {
            return Changed::SessionUnknown;
        };
        let replays = session.replays();
        if self.subscribes(key, name) {
            self.is_by_server(key, name);
            return Changed::Done;
        }
        let limits = self.env.settings.limits().clone();
        let channel = ChannelName::parse(name, &limits).ok().filter(|channel| channel.kind() == ChannelKind::Broadcast);
        let Some(channel) = channel else {
            self.env.metrics.subscriptions_refused.add(1);
            return Changed::Full;
        };
        // A session with replay begins at the end of the history, or with its latest message: messages that are on their way already are older.
        let mut latest = replays.then(ReplayRequest::latest);
        let granted = ServerEntry::SessionSubscribe.may();
        let added = self
            .check_room(key, name)
            .and_then(|()| self.add_subscription(key, channel, Interval::NONE, granted, latest.as_mut()));
        if let Some(withdrawn) = latest.and_then(|mut latest| latest.begun.take_withdrawn()) {
            self.delivery.withdraw(key, withdrawn);
        }
        if added.is_ok() {
            self.is_by_server(key, name);
        }
        added.map_or(Changed::Full, |()| Changed::Done)
    }

    /// Notes that a subscription of a session is one by the server's side, which needs no right of the client.
    fn is_by_server(&mut self, key: SessionKey, name: &str) {
        if self.subscribes(key, name) {
            self.channels.is_by_server(key.index, name);
            self.note_subscriptions(key);
        }
    }

    /// Ends the subscription of a session to a channel or pattern, if it has it.
    pub(super) fn unsubscribe_for_handle(&mut self, session: &Id, name: &str) -> Changed {
        let Some(key) = self.delivery.find(session) else { return Changed::SessionUnknown };
        // A name that is no channel has no subscribers.
        let _unknown = self.unsubscribe_from(key, name);
        Changed::Done
    }

    /// Reports a change to the handle.
    pub(super) fn report_change(&mut self, token: PublishToken, changed: Changed) {
        self.report(Report::Changed(token.number, changed));
        self.settle_token(Some(token), true);
    }
}
