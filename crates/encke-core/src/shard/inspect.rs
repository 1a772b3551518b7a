//! Reads a shard for lists: sessions, channels, settings of a channel. Nothing changes.

use std::sync::Arc;

use bayeux::ChannelName;

use crate::sessions::id::Id;
use crate::sessions::session::Session;
use crate::shard::{Shard, Shared};
use crate::views::{ChannelView, Owner, Page, SessionView};

impl Shard {
    /// The state that all shards share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.parts().shared
    }

    /// The limits of channel names and JSON.
    pub fn limits(&self) -> &bayeux::Limits {
        self.parts().settings.limits()
    }

    /// True if a rule gives this channel a history.
    pub fn has_history(&self, channel: ChannelName<'_>) -> bool {
        self.parts().settings.history(channel, self.parts().settings.seen_rule_of(channel)).is_some()
    }

    /// The sessions from this slot of the table on, at most `max`.
    pub fn sessions_from(&self, slot: usize, max: usize) -> Page<SessionView> {
        Page::read(slot, self.parts().sessions.slots(), max, |slot| {
            self.parts().schedule.count_steps(1);
            self.parts().sessions.seen_in_slot(slot).map(view)
        })
    }

    /// The ids of the sessions of an owner.
    pub fn sessions_of(&self, owner: &Owner) -> Vec<Id> {
        let keys = match owner {
            Owner::User(user) => self.parts().sessions.owners.of_user(user),
            Owner::Token(token_id) => self.parts().sessions.owners.of_token(token_id),
        };
        keys.into_iter().filter_map(|key| Some(self.parts().sessions.get(key)?.id)).collect()
    }

    /// A session, with the channels and patterns that it subscribes to. None if it is unknown.
    pub fn session(&self, id: &Id) -> Option<(SessionView, Vec<Box<str>>)> {
        let session = self.parts().sessions.get(self.parts().sessions.find(id)?)?;
        let channels =
            session.subscriptions.iter().map(|subscription| self.parts().hub.name(subscription.channel).into());
        Some((view(session), channels.collect()))
    }

    /// The channels and patterns with subscribers from this slot of the table on, at most `max` of those that are
    /// wanted.
    pub fn channels_from(&self, slot: usize, max: usize, is_wanted: impl Fn(&str) -> bool) -> Page<ChannelView> {
        Page::read(slot, self.parts().hub.slots(), max, |slot| {
            self.parts().schedule.count_steps(1);
            let name = Some(self.parts().hub.name(slot as u32)).filter(|name| !name.is_empty() && is_wanted(name))?;
            Some(ChannelView { name: name.into(), subscribers: self.parts().hub.subscribers(slot as u32).len() })
        })
    }

    /// The number of subscribers of exactly this channel or pattern on this shard.
    pub fn subscribers_of(&self, name: &str) -> usize {
        self.parts().hub.find(name).map_or(0, |channel| self.parts().hub.subscribers(channel).len())
    }
}

fn view(session: &Session) -> SessionView {
    SessionView {
        id: session.id,
        user: session.identity().map(|identity| identity.user.clone()).unwrap_or_default(),
        is_connected: !session.is_away(),
        subscriptions: session.subscriptions.len(),
        waiting_messages: session.outbox.messages(),
        waiting_bytes: session.outbox.bytes(),
    }
}
