//! The table of subscriptions: who subscribes to a channel, and how far it has been fanned out. Most other chapters call
//! these methods; no event leads here directly.

use bayeux::ChannelName;

use crate::channels::{LastReceived, Subscribed};
use crate::events::SessionKey;
use crate::fanout::delivery::Delivery;
use crate::history::{Position, RingKey};
use crate::protocol::replay_request::Start;
use crate::rights::table::{Granted, Right};
use crate::shard::Parts;

impl Parts {
    /// Notes at the channel itself up to which position it has been fanned out.
    pub(super) fn note_last_received(&mut self, lists: &[u32], delivery: &Delivery<'_>, position: &Position) {
        self.channels.note_fanned_out(lists, delivery.channel.as_str(), || LastReceived {
            serial: position.ring.serial,
            epoch: position.epoch.clone(),
            id: position.first + u64::from(delivery.messages) - 1,
        });
    }

    /// Lets a session use replay from now on. Messages of all channels with a history that it subscribes to then carry
    /// their position.
    pub(super) fn start_replaying(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.replay = Some(Box::default());
        self.channels.follow(key.index);
    }

    pub(super) fn note_position(&mut self, channel: &str, ring: RingKey, start: &Start) {
        let received = LastReceived { serial: ring.serial, epoch: start.epoch.clone(), id: start.next - 1 };
        self.channels.note_received(channel, received);
    }

    /// True if a session receives a channel by a subscription other than `but`.
    pub(super) fn receives(&mut self, key: SessionKey, channel: &str, but: Option<u32>) -> bool {
        let Ok(channel) = ChannelName::parse(channel, self.settings.limits()) else { return false };
        self.sessions.get(key).is_some() && self.channels.receives(key.index, channel, but)
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
        if self.enlist(key, channel, granted).is_none() {
            return;
        }
        // All messages of the history were fanned out before the restart. A session with an empty queue is at the end
        // of the ring.
        let end = self.shared.histories.find(name, 0).and_then(|position| {
            let next = self.shared.histories.with(position.ring, |ring| ring.next())?;
            Some(LastReceived { serial: position.ring.serial, epoch: position.epoch, id: next.checked_sub(1)? })
        });
        if let Some(end) = end {
            self.channels.note_received(name, end);
        }
        self.joined(key, name, false);
    }

    /// Adds a session to the subscribers of a channel, to which it must not subscribe yet. Returns the channel's index
    /// in the hub, or None if the session is gone.
    pub(super) fn enlist(&mut self, key: SessionKey, channel: ChannelName<'_>, granted: Granted) -> Option<u32> {
        granted.use_for(Right::Subscribe);
        let name = channel.as_str();
        let follows = self.sessions.get(key)?.replay.is_some();
        let Subscribed { channel, is_first } = self.channels.subscribe(key.index, name, follows);
        self.shared.application.subscribed(&self.caller(key)?, name);
        if is_first && self.shared.shards > 1 {
            self.shared.interest.add(name, self.index);
            // Also for a plain channel: if the session already receives it by a pattern, it has no cursor that keeps
            // older messages out.
            if self.settings.given().channels.iter().any(|rule| rule.history().is_some()) {
                self.channels.set_older(channel, self.shared.histories.bursts());
            }
        }
        Some(channel)
    }

    /// Removes all subscriptions of a session.
    pub(super) fn drop_subscriptions(&mut self, key: SessionKey) {
        while self.sessions.get(key).is_some()
            && let Some(slot) = self.channels.count_of(key.index).checked_sub(1)
        {
            self.drop_subscription(key, slot);
        }
    }

    /// Removes the subscription at `slot` of a session. The last subscription takes its slot.
    pub(super) fn drop_subscription(&mut self, key: SessionKey, slot: usize) {
        let (Some(session), Some(caller)) = (self.sessions.get(key), self.caller(key)) else { return };
        let (name, _) = self.channels.at(key.index, slot);
        self.shared.application.unsubscribed(&caller, name);
        let is_watched = self.settings.rules_have_subscribers() || self.settings.rules_have_presence();
        let name = is_watched.then(|| name.to_string());
        let gone = self.channels.unsubscribe(key.index, slot, session.replay.is_some());
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
