//! The rule for a channel, and what it says about publishing and delivery.

use bayeux::ChannelName;

use crate::events::{PRESENCE_CHANNEL, SessionKey};
use crate::outbox::Capacity;
use crate::settings::{ChannelRule, Publishers, SlowConsumer};
use crate::shard::Parts;

impl Parts {
    /// The index of the first rule that matches a channel.
    pub(super) fn rule_of(&mut self, channel: ChannelName<'_>) -> Option<usize> {
        self.rules.first(&self.settings.channels, channel, &mut self.spelling)
    }

    pub(super) fn returns_to_publisher(&self, rule: Option<usize>) -> bool {
        let own = rule.and_then(|rule| self.settings.channels[rule].broadcast_to_publisher);
        own.unwrap_or(self.settings.broadcast_to_publisher)
    }

    pub(super) fn lazy_due_ms(&self, rule: &ChannelRule) -> Option<u64> {
        let most = self.settings.lazy_timeout_max_ms;
        let wait_ms = if rule.lazy_timeout_ms == 0 { most } else { rule.lazy_timeout_ms.min(most) };
        rule.lazy.then_some(self.now.ms + wait_ms)
    }

    /// The policy for sessions that are too slow for a channel with this rule.
    pub(super) fn policy(&self, rule: Option<usize>) -> SlowConsumer {
        rule.map(|rule| self.settings.channels[rule].slow_consumer).unwrap_or_default()
    }

    /// The room in an outbox up to which the policy drops nothing: the whole outbox, or less by the channel's rule.
    pub(super) fn room_of(&self, rule: Option<usize>) -> Capacity {
        let bytes = match rule.map(|rule| &self.settings.channels[rule]) {
            Some(rule) if rule.slow_consumer != SlowConsumer::Disconnect && rule.slow_consumer_bytes > 0 => {
                rule.slow_consumer_bytes
            }
            _ => usize::MAX,
        };
        Capacity { bytes_max: self.capacity.bytes_max.min(bytes), ..self.capacity }
    }

    /// True if the rule for a channel lets this session publish there.
    pub(super) fn may_publish(&mut self, channel: ChannelName<'_>, key: SessionKey) -> bool {
        if self.configured.rules_have_presence && is_announcement(channel.as_str()) {
            return false;
        }
        if !self.configured.rules_have_publishers {
            return true;
        }
        let publishers =
            self.rule_of(channel).map_or(Publishers::Anyone, |rule| self.settings.channels[rule].publishers);
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
