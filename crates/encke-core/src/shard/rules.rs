//! The right to publish on a channel, by its rule.

use bayeux::ChannelName;

use crate::events::{PRESENCE_CHANNEL, SessionKey};
use crate::settings::Publishers;
use crate::shard::Parts;

impl Parts {
    /// True if the rule for a channel lets this session publish there.
    pub(super) fn may_publish(&mut self, channel: ChannelName<'_>, key: SessionKey) -> bool {
        if self.settings.rules_have_presence && is_announcement(channel.as_str()) {
            return false;
        }
        if !self.settings.rules_have_publishers {
            return true;
        }
        let publishers =
            self.settings.rule_of(channel).map_or(Publishers::Anyone, |rule| self.settings.channels[rule].publishers);
        match publishers {
            Publishers::Anyone => true,
            Publishers::Users => self.sessions.get(key).is_some_and(|session| !session.caller().user().is_empty()),
            Publishers::Server => false,
        }
    }
}

/// True for the channels on which presence is announced.
pub(super) fn is_announcement(name: &str) -> bool {
    name.strip_prefix(PRESENCE_CHANNEL).is_some_and(|rest| rest.starts_with('/'))
}
