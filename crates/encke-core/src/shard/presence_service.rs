//! The service that answers who is on a channel. `batch` leads here for each call.

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message};

use crate::events::{Effect, PRESENCE_SERVICE, PresenceEvent, SessionKey};
use crate::protocol::batch::Batch;
use crate::rights::table::Entry;
use crate::rights::{May, Wish};
use crate::shard::Parts;

impl Parts {
    /// True if a service channel is that of presence.
    pub(super) fn serves_presence(&self, channel: ChannelName<'_>) -> bool {
        self.settings.rules_have_presence() && channel.as_str() == PRESENCE_SERVICE
    }

    /// Handles a call of the presence service: `{"channel":…,"after":…,"limit":…}`.
    pub(super) fn ask_presence(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        self.active(key);
        let member = |name| message.data.filter(|data| data.is_object()).and_then(|data| data.member(name));
        let text = |name| member(name).and_then(|value| value.text());
        let channel = text("channel").unwrap_or_default();
        let limits = self.settings.limits().clone();
        let name = match ChannelName::parse(&channel, &limits) {
            Ok(name) if name.kind() == ChannelKind::Broadcast => name,
            Ok(_) => return self.refuse(batch, message, BayeuxError::SubscribeDenied.as_str()),
            Err(error) => return self.refuse(batch, message, error.error()),
        };
        if !self.has_presence(name.as_str()) {
            return self.refuse(batch, message, &BayeuxError::SubscribeDenied.because("no_presence"));
        }
        let wish = Wish { is_held: self.subscribes(key, name.as_str()), ..Wish::of(name.as_str()) };
        let granted = match self.may(Entry::PresenceService, key, &wish, batch.decided()) {
            May::Granted(granted) => granted,
            May::Denied(denial) => return self.refuse(batch, message, &denial.error()),
            May::Later(later) => return self.ask(batch, message, later, 0),
        };
        let Some(session) = self.sessions.get(key) else { return };
        let asked = PresenceEvent::Asked {
            channel: name.as_str().into(),
            session: session.id,
            id: message.id.clone().map(bayeux::Id::into_owned),
            after: text("after").unwrap_or_default().into(),
            limit: member("limit")
                .and_then(|limit| limit.integer())
                .map_or(100, |limit| limit.clamp(1, 1_000) as usize),
            granted,
        };
        self.effects.push(Effect::Presence(Box::new(asked)));
        self.accept(batch, message);
    }
}
