//! The channels that exist although nobody subscribes to them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use encke_core::ChannelRule;
use encke_core::history::Histories;
use foldhash::fast::RandomState;

/// Finds the channels that have a history, or a rule that names them. Nothing is locked while there are none.
#[derive(Debug)]
pub(crate) struct KnownChannels {
    histories: Arc<Histories>,
    /// The channels and patterns of the rules.
    named: RwLock<HashSet<Box<str>, RandomState>>,
    /// The number of these names. Written while they are locked.
    named_len: AtomicUsize,
}

impl KnownChannels {
    pub(crate) fn new(histories: Arc<Histories>, rules: &[ChannelRule]) -> KnownChannels {
        let known = KnownChannels { histories, named: RwLock::default(), named_len: AtomicUsize::new(0) };
        known.set_rules(rules);
        known
    }

    /// Replaces the rules.
    pub(crate) fn set_rules(&self, rules: &[ChannelRule]) {
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        *named = rules.iter().map(|rule| rule.pattern.as_str().into()).collect();
        self.named_len.store(named.len(), Ordering::Release);
    }

    /// True if a channel has a history or a rule names it.
    pub(crate) fn has(&self, channel: &str) -> bool {
        let is_named = || self.named.read().unwrap_or_else(PoisonError::into_inner).contains(channel);
        (self.named_len.load(Ordering::Acquire) > 0 && is_named()) || self.histories.has(channel)
    }
}
