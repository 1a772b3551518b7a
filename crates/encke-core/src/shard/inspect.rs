//! Reads a shard for lists: sessions, channels, settings of a channel. Nothing changes.

use std::sync::Arc;

use bayeux::ChannelName;

use crate::events::SessionKey;
use crate::sessions::id::Id;
use crate::sessions::session::Session;
use crate::shard::{Parts, Shard, Shared};
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
        let parts = self.parts();
        Page::read(slot, parts.sessions.slots(), max, |slot| {
            parts.schedule.count_steps(1);
            let session = parts.sessions.seen_in_slot(slot)?;
            Some(parts.view(session.key(slot as u32), session))
        })
    }

    /// The ids of the sessions of an owner.
    pub fn sessions_of(&self, owner: &Owner) -> Vec<Id> {
        let keys = match owner {
            Owner::User(user) => self.parts().clients.of_user(user),
            Owner::Token(token_id) => self.parts().clients.of_token(token_id),
        };
        keys.into_iter().filter_map(|key| Some(self.parts().sessions.get(key)?.id)).collect()
    }

    /// A session, with the channels and patterns that it subscribes to. None if it is unknown.
    pub fn session(&self, id: &Id) -> Option<(SessionView, Vec<Box<str>>)> {
        let parts = self.parts();
        let key = parts.sessions.find(id)?;
        let channels: Vec<_> = parts.channels.names_of(key.index).map(Box::from).collect();
        Some((parts.view(key, parts.sessions.get(key)?), channels))
    }

    /// The channels and patterns with subscribers from this slot of the table on, at most `max` of those that are
    /// wanted.
    pub fn channels_from(&self, slot: usize, max: usize, is_wanted: impl Fn(&str) -> bool) -> Page<ChannelView> {
        let parts = self.parts();
        Page::read(slot, parts.channels.slots(), max, |slot| {
            parts.schedule.count_steps(1);
            let (name, subscribers) = parts.channels.in_slot(slot).filter(|(name, _)| is_wanted(name))?;
            Some(ChannelView { name: name.into(), subscribers })
        })
    }

    /// The number of subscribers of exactly this channel or pattern on this shard.
    pub fn subscribers_of(&self, name: &str) -> usize {
        self.parts().channels.subscribers_of(name)
    }
}

impl Parts {
    fn view(&self, key: SessionKey, session: &Session) -> SessionView {
        SessionView {
            id: session.id,
            user: self.clients.identity(key).map(|identity| identity.user.clone()).unwrap_or_default(),
            is_connected: !session.is_away(),
            subscriptions: self.channels.count_of(key.index),
            waiting_messages: session.outbox.messages(),
            waiting_bytes: session.outbox.bytes(),
        }
    }
}
