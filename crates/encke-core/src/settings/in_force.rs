//! The settings in force on a shard, with all that is prepared of them when they are read: the index of the rules for
//! channels, the limits of names and rates, the timing of the protocol.

use std::sync::Arc;

use bayeux::channel::overlap;
use bayeux::{ChannelName, Terms, ext};

use crate::channels::rules::Rules;
use crate::events::Peer;
use crate::limits::Capacity;
use crate::limits::rate::Rate;
use crate::limits::shares::Budget;
use crate::settings::{ChannelRule, HistoryTerms, Publishers, Settings, SlowConsumer};

/// The settings in force. Nothing outside of this file changes them.
pub(crate) struct InForce {
    settings: Arc<Settings>,
    /// The rules for channels, indexed.
    rules: Rules,
    /// A buffer to build pattern names in.
    spelling: String,
    limits: bayeux::Limits,
    terms: Terms,
    capacity: Capacity,
    rates: Rates,
    decisions_waiting: Budget,
    calls_waiting: Budget,
    has_rates: bool,
    rules_have_rates: bool,
    rules_have_publishers: bool,
    rules_have_subscribers: bool,
    rules_have_presence: bool,
    rules_compress: bool,
    rules_have_intervals: bool,
    /// The indices of the rules by which the latest message is retained.
    retaining: Box<[usize]>,
}

/// The rates of messages and of their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// The rates of a session.
    pub(crate) session: [Rate; 2],
    /// The rates of a user.
    pub(crate) user: [Rate; 2],
    /// The rates of an address.
    pub(crate) address: [Rate; 2],
    /// The rates of the whole server.
    pub(crate) server: [Rate; 2],
}

impl InForce {
    /// Prepares these settings.
    pub(crate) fn new(settings: Arc<Settings>) -> InForce {
        let pair = |messages: usize, bytes: usize| [Rate(messages as u64), Rate(bytes as u64)];
        let has = |is_set: fn(&ChannelRule) -> bool| settings.channels.iter().any(is_set);
        let rates = Rates {
            session: pair(settings.session_messages_per_s_max, settings.session_bytes_per_s_max),
            user: pair(settings.user_messages_per_s_max, settings.user_bytes_per_s_max),
            address: pair(settings.address_messages_per_s_max, settings.address_bytes_per_s_max),
            server: pair(settings.messages_per_s_max, settings.bytes_per_s_max),
        };
        let Rates { session, user, address, server } = &rates;
        let rules_have_rates = has(|rule| rule.messages_per_s_max + rule.bytes_per_s_max > 0);
        InForce {
            rules: Rules::new(&settings.channels),
            spelling: String::new(),
            limits: (&*settings).into(),
            terms: Terms {
                timeout_ms: settings.timeout_ms,
                interval_ms: settings.interval_ms,
                max_interval_ms: settings.max_interval_ms,
                client_max_ms: settings.client_interval_max_ms,
            },
            decisions_waiting: Budget::new(settings.decisions_waiting_max, settings.decisions_waiting_bytes_max),
            calls_waiting: Budget::new(settings.calls_waiting_max, settings.calls_waiting_bytes_max).with_urgent(),
            capacity: Capacity { messages_max: settings.outbox_messages_max, bytes_max: settings.outbox_bytes_max },
            has_rates: rules_have_rates
                || [session, user, address, server].into_iter().flatten().any(|rate| rate.is_on()),
            rates,
            rules_have_rates,
            rules_have_publishers: has(|rule| rule.publishers != Publishers::Anyone),
            rules_have_subscribers: has(|rule| rule.subscribers_max > 0),
            rules_have_presence: has(|rule| rule.presence),
            rules_compress: settings.compresses(),
            rules_have_intervals: has(|rule| rule.min_interval_ms > 0),
            retaining: (0..settings.channels.len()).filter(|rule| settings.channels[*rule].retain_last).collect(),
            settings,
        }
    }

    /// The settings as they were given.
    pub(crate) fn given(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// The connects and streams that a browser may hold, where the next one comes from here. None for no limit.
    pub(crate) fn browser_sessions_max(&self, peer: &Peer) -> Option<usize> {
        let Settings { browser_sessions_max, http2_browser_sessions_max, .. } = &*self.settings;
        usize::try_from(if peer.is_multiplexed { *http2_browser_sessions_max } else { *browser_sessions_max }).ok()
    }

    /// The limits of channel names and of JSON.
    #[inline]
    pub(crate) fn limits(&self) -> &bayeux::Limits {
        &self.limits
    }

    /// The timing of the Bayeux protocol.
    #[inline]
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// The capacity of an outbox.
    #[inline]
    pub(crate) fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The rates by which each message is checked.
    #[inline]
    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    /// The budget of batches that wait for decisions.
    pub(crate) fn decisions_waiting(&self) -> Budget {
        self.decisions_waiting
    }

    /// The budget of calls that wait for answers.
    pub(crate) fn calls_waiting(&self) -> Budget {
        self.calls_waiting
    }

    /// True if any rate is set, also in a rule.
    #[inline]
    pub(crate) fn has_rates(&self) -> bool {
        self.has_rates
    }

    /// True if the rule for a channel may have a rate.
    #[inline]
    pub(crate) fn rules_have_rates(&self) -> bool {
        self.rules_have_rates
    }

    /// True if the rule for a channel may say who publishes.
    #[inline]
    pub(crate) fn rules_have_publishers(&self) -> bool {
        self.rules_have_publishers
    }

    /// True if the rule for a channel may limit its subscribers.
    pub(crate) fn rules_have_subscribers(&self) -> bool {
        self.rules_have_subscribers
    }

    /// True if a channel may have presence.
    pub(crate) fn rules_have_presence(&self) -> bool {
        self.rules_have_presence
    }

    /// True if the rule for a channel may have an interval.
    #[inline]
    pub(crate) fn rules_have_intervals(&self) -> bool {
        self.rules_have_intervals
    }

    /// The least time between two messages of a channel with this rule, in milliseconds; 0 for none.
    pub(crate) fn min_interval_ms(&self, rule: Option<usize>) -> u32 {
        rule.map_or(0, |rule| self.settings.channels[rule].min_interval_ms)
    }

    /// True if a new subscription to this channel gets its latest message.
    pub(crate) fn retains(&mut self, channel: ChannelName<'_>) -> bool {
        !self.retaining.is_empty() && self.rule_of(channel).is_some_and(|rule| self.settings.channels[rule].retain_last)
    }

    /// False if that is so for no channel that this name matches. A pattern may match some. With `paced` only rules with an interval count.
    pub(crate) fn may_retain(&mut self, name: ChannelName<'_>, paced: bool) -> bool {
        if self.retaining.is_empty() {
            return false;
        }
        let counts = |rule: &ChannelRule| rule.retain_last && (!paced || rule.min_interval_ms > 0);
        if !name.is_pattern() {
            return self.rule_of(name).is_some_and(|rule| counts(&self.settings.channels[rule]));
        }
        let mut rules = self.retaining.iter().map(|rule| &self.settings.channels[*rule]);
        rules.any(|rule| counts(rule) && overlap(&rule.pattern, name.as_str()))
    }

    /// True if messages on this channel are compressed.
    #[inline]
    pub(crate) fn compresses(&mut self, channel: ChannelName<'_>) -> bool {
        self.rules_compress && self.rule_of(channel).is_some_and(|rule| self.settings.channels[rule].compress)
    }

    /// True if this message is compressed, which may be alone in its array.
    pub(crate) fn compresses_message(&mut self, message: &[u8]) -> bool {
        self.rules_compress && ext::channel_of(message).is_some_and(|name| self.compresses(ChannelName::known(&name)))
    }

    /// The index of the first rule that matches a channel.
    pub(crate) fn rule_of(&mut self, channel: ChannelName<'_>) -> Option<usize> {
        self.rules.first(&self.settings.channels, channel, &mut self.spelling)
    }

    /// The rules that limit publications on this name: the first one that matches a channel. A publication on a pattern reaches those who
    /// subscribe to this pattern, beside what comes from the channels below it. So all rules hold that have a channel in common with it.
    pub(crate) fn publication_rules(&mut self, name: ChannelName<'_>) -> impl Iterator<Item = &ChannelRule> {
        let first = if name.is_pattern() { None } else { self.rule_of(name) };
        let rules = &self.settings.channels;
        let reached = if name.is_pattern() { &rules[..] } else { &[] };
        let reached = reached.iter().filter(move |rule| overlap(&rule.pattern, name.as_str()));
        first.map(|rule| &rules[rule]).into_iter().chain(reached)
    }

    /// The history of a channel, without a buffer, for lists.
    pub(crate) fn seen_history(&self, channel: ChannelName<'_>) -> Option<HistoryTerms> {
        self.history(channel, self.rules.first(&self.settings.channels, channel, &mut String::new()))
    }

    /// The history of a channel with this rule. None if it has none, as all patterns.
    pub(crate) fn history(&self, channel: ChannelName<'_>, rule: Option<usize>) -> Option<HistoryTerms> {
        self.settings.channels[rule.filter(|_| !channel.is_pattern())?].history()
    }

    /// True if the publisher on a channel with this rule gets its own messages.
    pub(crate) fn returns_to_publisher(&self, rule: Option<usize>) -> bool {
        let own = rule.and_then(|rule| self.settings.channels[rule].broadcast_to_publisher);
        own.unwrap_or(self.settings.broadcast_to_publisher)
    }

    /// The time by which messages of now leave, in milliseconds, if they are lazy, or those of a channel with this rule.
    pub(crate) fn lazy_due_ms(&self, rule: Option<usize>, are_lazy: bool, now_ms: u64) -> Option<u64> {
        let rule = rule.map(|rule| &self.settings.channels[rule]);
        if !are_lazy && !rule.is_some_and(|rule| rule.lazy) {
            return None;
        }
        let most = self.settings.lazy_timeout_max_ms;
        let own = rule.map_or(0, |rule| rule.lazy_timeout_ms);
        Some(now_ms + if own == 0 { most } else { own.min(most) })
    }

    /// The policy for sessions that are too slow for a channel with this rule.
    pub(crate) fn policy(&self, rule: Option<usize>) -> SlowConsumer {
        rule.map(|rule| self.settings.channels[rule].slow_consumer).unwrap_or_default()
    }

    /// The room in an outbox up to which the policy drops nothing: the whole outbox, or less by the channel's rule.
    pub(crate) fn room_of(&self, rule: Option<usize>) -> Capacity {
        let bytes = match rule.map(|rule| &self.settings.channels[rule]) {
            Some(rule) if rule.slow_consumer != SlowConsumer::Disconnect && rule.slow_consumer_bytes > 0 => {
                rule.slow_consumer_bytes
            }
            _ => usize::MAX,
        };
        Capacity { bytes_max: self.capacity.bytes_max.min(bytes), ..self.capacity }
    }
}
