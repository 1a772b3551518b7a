//! The channels that exist although nobody subscribes to them.

use std::collections::HashSet;
use std::sync::Arc;

use encke_core::ChannelRule;
use encke_core::history::Histories;
use foldhash::fast::RandomState;
use parking_lot::RwLock;

/// Finds the channels that have a history, or a rule that names them.
#[derive(Debug)]
pub(crate) struct KnownChannels {
    histories: Arc<Histories>,
    /// The channels and patterns of the rules.
    named: RwLock<HashSet<Box<str>, RandomState>>,
}

impl KnownChannels {
    pub(crate) fn new(histories: Arc<Histories>, rules: &[ChannelRule]) -> KnownChannels {
        let known = KnownChannels { histories, named: RwLock::default() };
        known.set_rules(rules);
        known
    }

    /// Replaces the rules.
    pub(crate) fn set_rules(&self, rules: &[ChannelRule]) {
        let named = rules.iter().map(|rule| rule.pattern.as_str().into()).collect();
        *self.named.write() = named;
    }

    /// True if a channel has a history or a rule names it.
    pub(crate) fn has(&self, channel: &str) -> bool {
        self.named.read().contains(channel) || self.histories.has(channel)
    }
}
