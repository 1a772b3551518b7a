//! The limits of the settings, prepared for the check of each message.

use crate::limits::rate::Rate;
use crate::settings::{Publishers, Settings};

/// The rates of messages and their bytes, and the kinds of limits that the rules for channels have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Configured {
    /// The rates of a session.
    pub session: [Rate; 2],
    /// The rates of a user.
    pub user: [Rate; 2],
    /// The rates of an address.
    pub address: [Rate; 2],
    /// The rates of the whole server.
    pub server: [Rate; 2],
    /// True if any rate is set.
    pub has_rates: bool,
    /// True if the rule for a channel may have a rate.
    pub rules_have_rates: bool,
    /// True if the rule for a channel may say who publishes.
    pub rules_have_publishers: bool,
    /// True if the rule for a channel may limit its subscribers.
    pub rules_have_subscribers: bool,
    /// True if a channel may have presence.
    pub rules_have_presence: bool,
}

impl Configured {
    /// Prepares the limits of these settings.
    pub fn new(settings: &Settings) -> Configured {
        let pair = |messages: usize, bytes: usize| [Rate(messages as u64), Rate(bytes as u64)];
        let has = |is_set: fn(&crate::ChannelRule) -> bool| settings.channels.iter().any(is_set);
        let configured = Configured {
            session: pair(settings.session_messages_per_s_max, settings.session_bytes_per_s_max),
            user: pair(settings.user_messages_per_s_max, settings.user_bytes_per_s_max),
            address: pair(settings.address_messages_per_s_max, settings.address_bytes_per_s_max),
            server: pair(settings.messages_per_s_max, settings.bytes_per_s_max),
            has_rates: false,
            rules_have_rates: has(|rule| rule.messages_per_s_max + rule.bytes_per_s_max > 0),
            rules_have_publishers: has(|rule| rule.publishers != Publishers::Anyone),
            rules_have_subscribers: has(|rule| rule.subscribers_max > 0),
            rules_have_presence: has(|rule| rule.presence),
        };
        let Configured { session, user, address, server, .. } = configured;
        let is_on = [session, user, address, server].iter().flatten().any(|rate| rate.is_on());
        Configured { has_rates: is_on || configured.rules_have_rates, ..configured }
    }
}
