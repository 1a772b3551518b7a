//! Subscriptions that a handle of the server changes for a session. Nothing is decided about
//! them, and the client gets no message about them; the limits hold.

use bayeux::{ChannelKind, ChannelName};

use crate::events::{Changed, PublishToken, Report};
use crate::id::Id;
use crate::protocol::replay_request::ReplayRequest;
use crate::rights::table::ServerEntry;
use crate::shard::Machines;

impl Machines {
    /// Subscribes a session to a channel or pattern, from now on.
    pub(super) fn subscribe_for_handle(&mut self, session: &Id, name: &str) -> Changed {
        let session = self.delivery.find(session).and_then(|key| Some((key, self.delivery.session(key)?)));
        let Some((key, session)) = session.filter(|(_, session)| !session.is_ending()) else {
            return Changed::SessionUnknown;
        };
        let replays = session.replays();
        if self.subscribes(key, name) {
            return Changed::Done;
        }
        let limits = self.env.settings.limits().clone();
        let channel = ChannelName::parse(name, &limits).ok().filter(|channel| channel.kind() == ChannelKind::Broadcast);
        let Some(channel) = channel else {
            self.env.metrics.subscriptions_refused.add(1);
            return Changed::Full;
        };
        // A session with replay begins at the end of the history: messages that are on their way already are older.
        let mut latest = replays.then(ReplayRequest::latest);
        let granted = ServerEntry::SessionSubscribe.may();
        let added =
            self.check_room(key, name).and_then(|()| self.add_subscription(key, channel, granted, latest.as_mut()));
        added.map_or(Changed::Full, |()| Changed::Done)
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
