//! Presence: reports who is on a channel, for the table outside of the core. `subscribe` and `channels` lead here for each
//! change, and `from_shards` when the rules change.

use std::collections::BTreeSet;

use bayeux::ChannelName;

use crate::events::{Effect, PresenceEvent, SessionKey};
use crate::rights::announced_on;
use crate::shard::Parts;

/// Members of channels: the session and the name of the channel. Sorted, so that changes are reported in one order.
pub(super) type Memberships = BTreeSet<(SessionKey, Box<str>)>;

impl Parts {
    /// Reports that a session has subscribed to a channel. `is_new`: false if it was a member before.
    pub(super) fn joined(&mut self, key: SessionKey, name: &str, is_new: bool) {
        if self.has_presence(name)
            && let Some(session) = self.sessions.get(key)
        {
            let user = self.clients.identity(key).map_or("", |identity| &identity.user).into();
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
        let user = self.clients.identity(key).map_or("", |identity| &identity.user).into();
        let left = PresenceEvent::Left { channel: name.into(), session: session.id, user };
        self.effects.push(Effect::Presence(Box::new(left)));
    }

    /// True if a channel has presence by its rule. Patterns and the channels of announcements have none.
    pub(super) fn has_presence(&mut self, name: &str) -> bool {
        if !self.settings.rules_have_presence() || announced_on(name).is_some() {
            return false;
        }
        let channel = ChannelName::known(name);
        !channel.is_pattern()
            && self.settings.rule_of(channel).is_some_and(|rule| self.settings.given().channels[rule].presence)
    }

    /// All members by the rules in force.
    pub(super) fn memberships(&mut self) -> Memberships {
        let mut members = Memberships::new();
        if !self.settings.rules_have_presence() {
            return members;
        }
        for key in self.sessions.keys() {
            self.schedule.count_steps(1 + self.channels.count_of(key.index));
            let names: Vec<Box<str>> = self.channels.names_of(key.index).map(Box::from).collect();
            members.extend(names.into_iter().filter(|name| self.has_presence(name)).map(|name| (key, name)));
        }
        members
    }

    /// Reports who is a member and was none by the rules before, and the other way round.
    pub(super) fn restate_presence(&mut self, before: &Memberships) {
        let after = self.memberships();
        self.schedule.count_steps(before.len() + after.len());
        for (key, name) in before.difference(&after) {
            self.report_left(*key, name);
        }
        for (key, name) in after.difference(before) {
            self.joined(*key, name, false);
        }
    }
}
