//! The service that answers who is on a channel. `batch` leads here for each call.

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message};

use crate::application::{Answer, Decision, Subscribing};
use crate::events::{Effect, PRESENCE_SERVICE, PresenceEvent, SessionKey};
use crate::protocol::batch::Batch;
use crate::shard::Parts;

impl Parts {
    /// True if a service channel is that of presence.
    pub(super) fn serves_presence(&self, channel: ChannelName<'_>) -> bool {
        self.settings.rules_have_presence && channel.as_str() == PRESENCE_SERVICE
    }

    /// Handles a call of the presence service: `{"channel":…,"after":…,"limit":…}`.
    pub(super) fn ask_presence(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        self.active(key);
        let member = |name| message.data.filter(|data| data.is_object()).and_then(|data| data.member(name));
        let text = |name| member(name).and_then(|value| value.text());
        let channel = text("channel").unwrap_or_default();
        let limits = self.settings.limits.clone();
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
