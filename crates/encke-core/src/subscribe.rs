//! `/meta/subscribe` and `/meta/unsubscribe` (Bayeux 1.0 §4.5, §4.6).

use std::collections::HashSet;

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message, RawJson, Reply, subscription_names};
use foldhash::fast::RandomState;

use super::Shard;
use super::batch::{Batch, ext_of};
use super::effect::SessionKey;
use super::hub::{Moved, Subscriber};
use super::positions::Course;
use crate::Decision;

/// The error text of a refused subscription.
type Refusal = std::borrow::Cow<'static, str>;

impl Shard {
    pub(super) fn subscribe(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        let mut course = match self.course(batch, key, message) {
            Ok(course) => course,
            Err(error) => return self.refuse(batch, message, error.as_str()),
        };
        let raw = self.each_name(batch, message, key, |shard, name| shard.subscribe_to(key, name, course.as_mut()));
        let replay = course.and_then(|course| course.end(batch));
        if let Some(raw) = raw {
            self.accept_names(batch, message, raw, replay);
        }
    }

    pub(super) fn unsubscribe(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        if let Some(raw) = self.each_name(batch, message, key, |shard, name| shard.unsubscribe_from(key, name)) {
            self.accept_names(batch, message, raw, None);
        }
    }

    /// Does something with every name of the `subscription` field. At the first failure the rest is left: those
    /// before it stand, and the one reply carries the error (CometD 9).
    /// Returns the field if none failed.
    fn each_name<'m>(
        &mut self,
        batch: &mut Batch,
        message: &Message<'m>,
        key: SessionKey,
        mut each: impl FnMut(&mut Shard, &str) -> Result<(), Refusal>,
    ) -> Option<RawJson<'m>> {
        self.active(key);
        let Some(raw) = message.subscription else {
            self.refuse(batch, message, BayeuxError::SubscriptionMissing.as_str());
            return None;
        };
        let names = match subscription_names(raw, &self.limits) {
            Ok(names) => names,
            Err(error) => {
                self.refuse(batch, message, error.error());
                return None;
            }
        };
        let mut known = HashSet::with_hasher(RandomState::default());
        for name in &names {
            // What stands there twice is done once.
            if names.len() > 1 && !known.insert(&**name) {
                continue;
            }
            if let Err(error) = each(self, name) {
                self.refuse(batch, message, &error);
                return None;
            }
        }
        Some(raw)
    }

    fn accept_names(&self, batch: &mut Batch, message: &Message<'_>, raw: RawJson<'_>, replay: Option<String>) {
        let (ext, timestamp) = (ext_of([replay, self.timesync(message)]), self.timestamp());
        batch.reply(&Reply {
            id: message.id.as_ref(),
            subscription: Some(raw),
            successful: Some(true),
            ext: ext.as_deref().map(RawJson::trusted),
            timestamp: timestamp.as_deref(),
            ..Reply::new(message.channel.as_deref().unwrap_or_default())
        });
    }

    fn subscribe_to(&mut self, key: SessionKey, name: &str, course: Option<&mut Course<'_>>) -> Result<(), Refusal> {
        let channel = parse(name, &self.limits)?;
        match channel.kind() {
            ChannelKind::Broadcast => {}
            // Services answer whoever calls them; there is nothing to subscribe to, and no harm in trying (CometD 9).
            ChannelKind::Service => return Ok(()),
            _ if channel.is_pattern() => return Err(BayeuxError::CreateDenied.as_str().into()),
            _ => return Err(BayeuxError::SubscribeDenied.as_str().into()),
        }
        let known = self.hub.find(name);
        let Some(session) = self.sessions.get_mut(key) else { return Ok(()) };
        if known.is_some_and(|known| session.subscriptions.iter().any(|s| s.channel == known)) {
            return course.map_or(Ok(()), |course| self.follow(key, channel, None, course));
        }
        if session.subscriptions.len() >= self.settings.subscriptions_max {
            self.metrics.subscriptions_refused.add(1);
            return Err(BayeuxError::SubscriptionsMax.as_str().into());
        }
        if known.is_none() && self.hub.channels() >= self.settings.channels_max {
            self.metrics.subscriptions_refused.add(1);
            return Err(BayeuxError::ChannelsMax.as_str().into());
        }
        if let Decision::Deny(reason) = self.shared.application.subscribe(session.id.as_str(), name) {
            return Err(BayeuxError::SubscribeDenied.because(reason).into());
        }
        let slot = session.subscriptions.len();
        // Before the reply leaves: who publishes after seeing it reaches this session.
        let Some(listed) = self.enlist(key, channel) else { return Ok(()) };
        // Only then: what is published from now on comes, and what was before is in the history.
        let followed = course.map_or(Ok(()), |course| self.follow(key, channel, Some(listed), course));
        if followed.is_err() {
            self.drop_subscription(key, slot);
            self.forget_tails(key, name);
        }
        followed
    }

    /// Puts a session on the list of a channel that it is not on yet. Returns the channel's index in the hub; None if the session is
    /// gone.
    pub(super) fn enlist(&mut self, key: SessionKey, channel: ChannelName<'_>) -> Option<u32> {
        let name = channel.as_str();
        let session = self.sessions.get_mut(key)?;
        let (slot, follows) = (session.subscriptions.len() as u32, session.replay.is_some());
        let (subscription, first) = self.hub.subscribe(name, Subscriber { session: key.index, slot }, follows);
        session.subscriptions.push(subscription);
        if first && self.shared.shards > 1 {
            self.shared.interest.add(name, self.index);
            // A channel, too: where a session hears it by a pattern already, no tail keeps out what is older.
            if self.settings.channels.iter().any(|rule| rule.history().is_some()) {
                self.hub.set_older(subscription.channel, self.shared.histories.bursts());
            }
        }
        Some(subscription.channel)
    }

    fn unsubscribe_from(&mut self, key: SessionKey, name: &str) -> Result<(), Refusal> {
        let channel = parse(name, &self.limits)?;
        if channel.kind() == ChannelKind::Service {
            return Ok(());
        }
        if channel.kind() != ChannelKind::Broadcast {
            return Err(BayeuxError::ChannelMissing.as_str().into());
        }
        // There may be no subscriber any more: what is asked for holds all the same (CometD 9).
        let Some(known) = self.hub.find(name) else { return Ok(()) };
        let Some(session) = self.sessions.get(key) else { return Ok(()) };
        let follows = session.replay.is_some();
        if let Some(slot) = session.subscriptions.iter().position(|s| s.channel == known) {
            if follows {
                self.hand_over(key, known);
            }
            self.drop_subscription(key, slot);
            self.forget_tails(key, name);
        }
        Ok(())
    }

    /// A session subscribes to nothing any more.
    pub(super) fn drop_subscriptions(&mut self, key: SessionKey) {
        while let Some(slot) = self.sessions.get(key).and_then(|session| session.subscriptions.len().checked_sub(1)) {
            self.drop_subscription(key, slot);
        }
    }

    /// Takes the subscription at `slot` of a session away; the last one takes its slot.
    pub(super) fn drop_subscription(&mut self, key: SessionKey, slot: usize) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let subscription = session.subscriptions.swap_remove(slot);
        if let Some(shifted) = session.subscriptions.get(slot) {
            self.hub.set_slot(*shifted, slot as u32);
        }
        let follows = session.replay.is_some();
        let (moved, gone) = self.hub.unsubscribe(subscription, follows);
        if let Some(Moved { session, slot, place }) = moved {
            self.sessions.at(session).subscriptions[slot as usize].place = place;
        }
        if let Some(name) = gone
            && self.shared.shards > 1
        {
            self.shared.interest.remove(&name, self.index);
        }
    }
}

/// A channel to subscribe to. What does not even begin like one is called invalid in CometD's words.
fn parse<'n>(name: &'n str, limits: &bayeux::Limits) -> Result<ChannelName<'n>, Refusal> {
    if !name.starts_with('/') {
        return Err(BayeuxError::SubscriptionInvalid.as_str().into());
    }
    ChannelName::parse(name, limits).map_err(|error| error.error().into())
}
