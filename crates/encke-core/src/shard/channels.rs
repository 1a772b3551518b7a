//! The table of subscriptions: who subscribes to a channel, and how far it has been fanned out. Most other chapters call
//! these methods; no event leads here directly.

use bayeux::ChannelName;

use crate::channels::hub::{LastReceived, Moved, Subscriber};
use crate::events::SessionKey;
use crate::fanout::delivery::Delivery;
use crate::history::{Position, RingKey};
use crate::protocol::replay_request::Start;
use crate::rights::table::{Granted, Right};
use crate::shard::Parts;

impl Parts {
    /// The number of subscriptions to which a publication on a channel goes.
    pub(super) fn subscribers(&mut self, channel: &str) -> usize {
        // The sender has checked the name: by the limits that held there, and not by those that hold now.
        let lists = self.hub.route(ChannelName::known(channel));
        let subscribers = lists.iter().map(|list| self.hub.subscribers(*list).len()).sum();
        self.hub.reuse(lists);
        subscribers
    }

    /// Notes at the channel itself up to which position it has been fanned out.
    pub(super) fn note_last_received(&mut self, lists: &[u32], delivery: &Delivery<'_>, position: &Position) {
        let Some(own) = lists.first().filter(|list| self.hub.name(**list) == delivery.channel.as_str()) else { return };
        let id = position.first + u64::from(delivery.messages) - 1;
        self.hub
            .set_last_received(*own, LastReceived { serial: position.ring.serial, epoch: position.epoch.clone(), id });
    }

    /// Lets a session use replay from now on. Messages of all channels with a history that it subscribes to then carry
    /// their position.
    pub(super) fn start_replaying(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.replay = Some(Box::default());
        for subscription in &session.subscriptions {
            self.hub.add_position_subscriber(subscription.channel);
        }
    }

    pub(super) fn note_position(&mut self, channel: &str, ring: RingKey, start: &Start) {
        if let Some(known) = self.hub.find(channel) {
            let received = LastReceived { serial: ring.serial, epoch: start.epoch.clone(), id: start.next - 1 };
            self.hub.set_last_received(known, received);
        }
    }

    /// True if a session receives a channel by a subscription other than `but`.
    pub(super) fn receives(&mut self, key: SessionKey, channel: &str, but: Option<u32>) -> bool {
        let Ok(channel) = ChannelName::parse(channel, self.settings.limits()) else { return false };
        let lists = self.hub.route(channel);
        let receives = self.sessions.get(key).is_some_and(|session| {
            let mut lists = lists.iter().filter(|list| Some(**list) != but);
            lists.any(|list| session.subscriptions.iter().any(|subscription| subscription.channel == *list))
        });
        self.hub.reuse(lists);
        receives
    }

    /// Prepares the end of a subscription. Messages published before it ends reach the session through its other
    /// subscriptions, even if those are younger.
    pub(super) fn hand_over(&mut self, key: SessionKey, channel: u32) {
        let Parts { sessions, hub, .. } = self;
        for other in sessions.get(key).into_iter().flat_map(|session| &session.subscriptions) {
            hub.hand_over(channel, other.channel);
        }
    }

    /// Closes the cursors of channels that a session no longer receives, after it has given up a subscription.
    pub(super) fn forget_cursors(&mut self, key: SessionKey, name: &str) {
        let Some(replay) = self.sessions.get(key).and_then(|session| session.replay.as_ref()) else { return };
        let Ok(name) = ChannelName::parse(name, self.settings.limits()) else { return };
        for channel in replay.cursors.covered(name, self.settings.limits()) {
            if !self.receives(key, &channel, None)
                && let Some(replay) = self.sessions.get_mut(key).and_then(|session| session.replay.as_mut())
            {
                replay.cursors.close(&channel, self.index);
            }
        }
    }

    /// Subscribes again after a restart.
    pub(super) fn resubscribe(&mut self, key: SessionKey, name: &str, granted: Granted) {
        let limits = self.settings.limits().clone();
        let Ok(channel) = ChannelName::parse(name, &limits) else { return };
        // It was within the limits before the restart.
        let _counted = self.count_subscription(key, channel, false);
        let Some(listed) = self.enlist(key, channel, granted) else { return };
        // All messages of the history were fanned out before the restart. A session with an empty queue is at the end
        // of the ring.
        let end = self.shared.histories.find(name, 0).and_then(|position| {
            let next = self.shared.histories.with(position.ring, |ring| ring.next())?;
            Some(LastReceived { serial: position.ring.serial, epoch: position.epoch, id: next.checked_sub(1)? })
        });
        if let Some(end) = end {
            self.hub.set_last_received(listed, end);
        }
        self.joined(key, name, false);
    }

    /// Adds a session to the subscribers of a channel, to which it must not subscribe yet. Returns the channel's index
    /// in the hub, or None if the session is gone.
    pub(super) fn enlist(&mut self, key: SessionKey, channel: ChannelName<'_>, granted: Granted) -> Option<u32> {
        granted.use_for(Right::Subscribe);
        let name = channel.as_str();
        let session = self.sessions.get_mut(key)?;
        let (slot, follows) = (session.subscriptions.len() as u32, session.replay.is_some());
        let bytes_before = self.hub.bytes();
        let (subscription, first) = self.hub.subscribe(name, Subscriber { session: key.index, slot }, follows);
        session.subscriptions.push(subscription);
        self.fanout.encoder.account().queue_changed(bytes_before, self.hub.bytes());
        self.shared.application.subscribed(&session.caller(), name);
        if first && self.shared.shards > 1 {
            self.shared.interest.add(name, self.index);
            // Also for a plain channel: if the session already receives it by a pattern, it has no cursor that keeps
            // older messages out.
            if self.settings.given().channels.iter().any(|rule| rule.history().is_some()) {
                self.hub.set_older(subscription.channel, self.shared.histories.bursts());
            }
        }
        Some(subscription.channel)
    }

    /// Removes all subscriptions of a session.
    pub(super) fn drop_subscriptions(&mut self, key: SessionKey) {
        while let Some(slot) = self.sessions.get(key).and_then(|session| session.subscriptions.len().checked_sub(1)) {
            self.drop_subscription(key, slot);
        }
    }

    /// Removes the subscription at `slot` of a session. The last subscription takes its slot.
    pub(super) fn drop_subscription(&mut self, key: SessionKey, slot: usize) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let subscription = session.subscriptions.swap_remove(slot);
        if let Some(shifted) = session.subscriptions.get(slot) {
            self.hub.set_slot(*shifted, slot as u32);
        }
        self.shared.application.unsubscribed(&session.caller(), self.hub.name(subscription.channel));
        let follows = session.replay.is_some();
        let is_watched = self.settings.rules_have_subscribers() || self.settings.rules_have_presence();
        let name = is_watched.then(|| self.hub.name(subscription.channel).to_string());
        let bytes_before = self.hub.bytes();
        let (moved, gone) = self.hub.unsubscribe(subscription, follows);
        self.fanout.encoder.account().queue_changed(bytes_before, self.hub.bytes());
        if let Some(Moved { session, slot, position }) = moved {
            self.sessions.at(session).subscriptions[slot as usize].position = position;
        }
        if let Some(name) = gone
            && self.shared.shards > 1
        {
            self.shared.interest.remove(&name, self.index);
        }
        self.uncount_subscription(key);
        if let Some(name) = name {
            self.has_lost_subscriber(&name);
            self.left(key, &name);
        }
    }
}
