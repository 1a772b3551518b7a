//! Presence: reports who is on a channel, for the table outside of the core, and the service that answers it.

use std::collections::BTreeSet;

use bayeux::{BayeuxError, ChannelKind, ChannelName, Message};

use crate::events::{Effect, PRESENCE_SERVICE, PresenceEvent, SessionKey};
use crate::protocol::batch::Batch;
use crate::rights::table::Entry;
use crate::rights::{May, Wish, announced_on};
use crate::shard::Machines;

/// Members of channels: the session and the name of the channel. Sorted, so that changes are reported in one order.
pub(super) type Memberships = BTreeSet<(SessionKey, Box<str>)>;

impl Machines {
    /// Reports that a session has subscribed to a channel. `is_new`: false if it was a member before.
    pub(super) fn joined(&mut self, key: SessionKey, name: &str, is_new: bool) {
        if self.has_presence(name)
            && let Some(session) = self.delivery.id_of(Some(key))
        {
            let user = self.clients.identity(key).map_or("", |identity| &identity.user).into();
            let joined = PresenceEvent::Joined { channel: name.into(), session, user, is_new };
            self.emit(Effect::Presence(Box::new(joined)));
        }
    }

    /// Reports that a session no longer subscribes to a channel.
    pub(super) fn left(&mut self, key: SessionKey, name: &str) {
        if self.has_presence(name) {
            self.report_left(key, name);
        }
    }

    fn report_left(&mut self, key: SessionKey, name: &str) {
        let Some(session) = self.delivery.id_of(Some(key)) else { return };
        let user = self.clients.identity(key).map_or("", |identity| &identity.user).into();
        let left = PresenceEvent::Left { channel: name.into(), session, user };
        self.emit(Effect::Presence(Box::new(left)));
    }

    /// True if a channel has presence by its rule. Patterns and the channels of announcements have none.
    pub(super) fn has_presence(&mut self, name: &str) -> bool {
        if !self.env.settings.rules_have_presence() || announced_on(name).is_some() {
            return false;
        }
        let channel = ChannelName::known(name);
        !channel.is_pattern()
            && self.env.settings.rule_of(channel).is_some_and(|rule| self.env.settings.given().channels[rule].presence)
    }

    /// All members by the rules in force.
    pub(super) fn memberships(&mut self) -> Memberships {
        let mut members = Memberships::new();
        if !self.env.settings.rules_have_presence() {
            return members;
        }
        for key in self.delivery.keys() {
            self.env.count_steps(1 + self.channels.count_of(key.index));
            let names: Vec<Box<str>> = self.channels.names_of(key.index).map(Box::from).collect();
            members.extend(names.into_iter().filter(|name| self.has_presence(name)).map(|name| (key, name)));
        }
        members
    }

    /// Reports who is a member and was none by the rules before, and the other way round.
    pub(super) fn restate_presence(&mut self, before: &Memberships) {
        let after = self.memberships();
        self.env.count_steps(before.len() + after.len());
        for (key, name) in before.difference(&after) {
            self.report_left(*key, name);
        }
        for (key, name) in after.difference(before) {
            self.joined(*key, name, false);
        }
    }

    /// True if a service channel is that of presence.
    pub(super) fn serves_presence(&self, channel: ChannelName<'_>) -> bool {
        self.env.settings.rules_have_presence() && channel.as_str() == PRESENCE_SERVICE
    }

    /// Handles a call of the presence service: `{"channel":…,"after":…,"limit":…}`.
    pub(super) fn ask_presence(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        self.delivery.aside().active(key);
        let member = |name| message.data.filter(|data| data.is_object()).and_then(|data| data.member(name));
        let text = |name| member(name).and_then(|value| value.text());
        let channel = text("channel").unwrap_or_default();
        let limits = self.env.settings.limits().clone();
        let name = match ChannelName::parse(&channel, &limits) {
            Ok(name) if name.kind() == ChannelKind::Broadcast => name,
            Ok(_) => return self.beside().refuse(batch, message, BayeuxError::SubscribeDenied.as_str()),
            Err(error) => return self.beside().refuse(batch, message, error.error()),
        };
        if !self.has_presence(name.as_str()) {
            return self.beside().refuse(batch, message, &BayeuxError::SubscribeDenied.because("no_presence"));
        }
        let wish = Wish { is_held: self.subscribes(key, name.as_str()), ..Wish::of(name.as_str()) };
        let granted = match self.beside().may(Entry::PresenceService, key, &wish, batch.decided()) {
            May::Granted(granted) => granted,
            May::Denied(denial) => return self.beside().refuse(batch, message, &denial.error()),
            May::Later(later) => return self.beside().ask(batch, message, later, 0),
        };
        let Some(session) = self.delivery.id_of(Some(key)) else { return };
        let limit = member("limit").and_then(|limit| limit.integer());
        let limit = limit.map_or(LIMIT, |limit| limit.clamp(1, LIMIT_MAX) as usize);
        batch.members_asked += limit;
        if batch.members_asked > MEMBERS_OF_BATCH_MAX {
            return self.beside().refuse(batch, message, BayeuxError::CallsWaitingMax.as_str());
        }
        let asked = PresenceEvent::Asked {
            channel: name.as_str().into(),
            session,
            id: message.id.clone().map(bayeux::Id::into_owned),
            after: text("after").unwrap_or_default().into(),
            limit,
            owner: self.clients.counted_for(key),
            granted,
        };
        self.emit(Effect::Presence(Box::new(asked)));
        self.env.accept(batch, message);
    }
}

/// The members that a call asks for, if it names no number, and at most.
const LIMIT: usize = 100;
const LIMIT_MAX: i64 = 1_000;
/// The members that the calls of one batch ask for together. One batch is processed at once.
const MEMBERS_OF_BATCH_MAX: usize = 10_000;
