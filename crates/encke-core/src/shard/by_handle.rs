//! Subscriptions that a handle of the server changes for a session. `from_shards` leads here. Nothing is decided about
//! them, and the client gets no message about them; the limits hold.

use bayeux::{ChannelKind, ChannelName};

use crate::events::{Changed, PublishToken, Report};
use crate::sessions::id::Id;
use crate::shard::Parts;

impl Parts {
    /// Subscribes a session to a channel or pattern, from now on.
    pub(super) fn subscribe_for_handle(&mut self, session: &Id, name: &str) -> Changed {
        let limits = self.limits.clone();
        let channel = ChannelName::parse(name, &limits).ok().filter(|channel| channel.kind() == ChannelKind::Broadcast);
        let known = self.hub.find(name);
        let key = self.sessions.find(session);
        let Some((key, session)) = key.and_then(|key| Some((key, self.sessions.get(key)?))) else {
            return Changed::SessionUnknown;
        };
        if session.protocol.is_ending() {
            return Changed::SessionUnknown;
        }
        if known.is_some_and(|known| session.subscriptions.iter().any(|other| other.channel == known)) {
            return Changed::Done;
        }
        let own = session.identity().and_then(|identity| identity.limits.subscriptions_max);
        let subscriptions_max = own.map_or(self.settings.subscriptions_max, |own| own as usize);
        let is_full = session.subscriptions.len() >= subscriptions_max
            || (known.is_none() && self.hub.channels() >= self.settings.channels_max);
        let Some(channel) = channel.filter(|_| !is_full) else {
            self.metrics.subscriptions_refused.add(1);
            return Changed::Full;
        };
        self.enlist(key, channel);
        Changed::Done
    }

    /// Ends the subscription of a session to a channel or pattern, if it has it.
    pub(super) fn unsubscribe_for_handle(&mut self, session: &Id, name: &str) -> Changed {
        let Some(key) = self.sessions.find(session) else { return Changed::SessionUnknown };
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
