//! Presence: reports who is on a channel, for the table outside of the core. `subscribe` and `channels` lead here for each
//! change, `batch` for the service, and `from_shards` when the rules change.

use std::collections::HashSet;

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message};

use crate::application::{Answer, Decision, Subscribing};
use crate::events::{Effect, PRESENCE_SERVICE, PresenceEvent, SessionKey};
use crate::protocol::batch::Batch;
use crate::shard::Parts;
use crate::shard::rules::is_announcement;

/// Members of channels: the session and the name of the channel.
pub(super) type Memberships = HashSet<(SessionKey, Box<str>)>;

impl Parts {
    /// Reports that a session has subscribed to a channel. `is_new`: false if it was a member before.
    pub(super) fn joined(&mut self, key: SessionKey, name: &str, is_new: bool) {
        if self.has_presence(name)
            && let Some(session) = self.sessions.get(key)
        {
            let user = session.caller().user().into();
            let joined = PresenceEvent::Joined { channel: name.into(), session: session.id, user, is_new };
            self.effects.push(Effect::Presence(Box::new(joined)));
        }
    }

    /// Reports that a session no longer subscribes to a channel.
    pub(super) fn left(&mut self, key: SessionKey, name: &str) {
        if self.has_presence(name) {
            self.report_left(key, name);
        }
    }

    fn report_left(&mut self, key: SessionKey, name: &str) {
        let Some(session) = self.sessions.get(key) else { return };
        let user = session.caller().user().into();
        let left = PresenceEvent::Left { channel: name.into(), session: session.id, user };
        self.effects.push(Effect::Presence(Box::new(left)));
    }

    /// True if a channel has presence by its rule. Patterns and the channels of announcements have none.
    fn has_presence(&mut self, name: &str) -> bool {
        if !self.configured.rules_have_presence || is_announcement(name) {
            return false;
        }
        let channel = ChannelName::known(name);
        !channel.is_pattern() && self.rule_of(channel).is_some_and(|rule| self.settings.channels[rule].presence)
    }

    /// All members by the rules in force.
    pub(super) fn memberships(&mut self) -> Memberships {
        let mut members = Memberships::new();
        if !self.configured.rules_have_presence {
            return members;
        }
        for key in self.sessions.keys() {
            let Some(session) = self.sessions.get(key) else { continue };
            let names = session.subscriptions.iter().map(|subscription| Box::from(self.hub.name(subscription.channel)));
            let names: Vec<Box<str>> = names.collect();
            members.extend(names.into_iter().filter(|name| self.has_presence(name)).map(|name| (key, name)));
        }
        members
    }

    /// Reports who is a member and was none by the rules before, and the other way round.
    pub(super) fn restate_presence(&mut self, before: &Memberships) {
        let after = self.memberships();
        for (key, name) in before.difference(&after) {
            self.report_left(*key, name);
        }
        for (key, name) in after.difference(before) {
            self.joined(*key, name, false);
        }
    }

    /// True if a service channel is that of presence.
    pub(super) fn serves_presence(&self, channel: ChannelName<'_>) -> bool {
        self.configured.rules_have_presence && channel.as_str() == PRESENCE_SERVICE
    }

    /// Handles a call of the presence service: `{"channel":…,"after":…,"limit":…}`.
    pub(super) fn ask_presence(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        self.active(key);
        let member = |name| message.data.filter(|data| data.is_object()).and_then(|data| data.member(name));
        let text = |name| member(name).and_then(|value| value.text());
        let channel = text("channel").unwrap_or_default();
        let limits = self.limits.clone();
        let name = match ChannelName::parse(&channel, &limits) {
            Ok(name) if name.kind() == ChannelKind::Broadcast => name,
            Ok(_) => return self.refuse(batch, message, BayeuxError::SubscribeDenied.as_str()),
            Err(error) => return self.refuse(batch, message, error.error()),
        };
        if !self.has_presence(name.as_str()) {
            return self.refuse(batch, message, &BayeuxError::SubscribeDenied.because("no_presence"));
        }
        if !self.may_see(key, name.as_str()) {
            return self.refuse(batch, message, BayeuxError::SubscribeDenied.as_str());
        }
        let Some(session) = self.sessions.get(key) else { return };
        let asked = PresenceEvent::Asked {
            channel: name.as_str().into(),
            session: session.id,
            id: message.id.clone().map(bayeux::Id::into_owned),
            after: text("after").unwrap_or_default().into(),
            limit: member("limit")
                .and_then(|limit| limit.integer())
                .map_or(100, |limit| limit.clamp(1, 1_000) as usize),
        };
        self.effects.push(Effect::Presence(Box::new(asked)));
        self.accept(batch, message);
    }

    /// True if a session subscribes to a channel, or may. A decision that would have to wait counts as no.
    fn may_see(&self, key: SessionKey, name: &str) -> bool {
        let Some(session) = self.sessions.get(key) else { return false };
        let known = self.hub.find(name);
        if known.is_some_and(|known| session.subscriptions.iter().any(|subscription| subscription.channel == known)) {
            return true;
        }
        let subscribing = Subscribing { caller: session.caller(), channel: name, ext: None };
        session.identity().is_none_or(|identity| identity.may_subscribe(name))
            && matches!(self.shared.application.subscribe(&subscribing), Answer::Now(Decision::Allow))
    }
}
