//! Replays of patterns with many channels: which channels come next, and which messages the fan-out leaves to them.

use std::collections::HashSet;

use bayeux::ChannelName;

use crate::delivery::Delivery;
use crate::delivery::sessions::patterns::{NAMED_MAX, PAGE, Page, PatternReplay};
use crate::events::SessionKey;
use crate::history::hash_of;

impl Delivery {
    /// Notes channels of a pattern that begin at their named positions, while further positions are to come. Returns false if they
    /// are too many.
    pub(crate) fn await_positions<'n>(
        &mut self,
        key: SessionKey,
        pattern: &str,
        new: Option<u32>,
        channels: impl Iterator<Item = &'n str>,
    ) -> bool {
        let now_ms = self.now.ms;
        let Some(patterns) = self.patterns_of(key) else { return true };
        let at = patterns.iter().position(|own| *own.pattern == *pattern).unwrap_or_else(|| {
            patterns.push(PatternReplay::new(pattern, new, now_ms));
            patterns.len() - 1
        });
        let own = &mut patterns[at];
        own.named.extend(channels.map(hash_of));
        own.named.len() <= NAMED_MAX
    }

    /// Forgets a pattern whose channels were to begin, and returns the hashes of those that began at named positions. With `all`
    /// it also forgets one whose pages have begun.
    pub(crate) fn take_named(&mut self, key: SessionKey, pattern: &str, all: bool) -> HashSet<u64> {
        let Some(patterns) = self.patterns_of(key) else { return HashSet::new() };
        let at = patterns.iter().position(|own| *own.pattern == *pattern && (all || own.from.is_none()));
        let own = at.map(|at| patterns.swap_remove(at)).filter(|own| own.from.is_none());
        own.map(|own| own.named).unwrap_or_default()
    }

    /// Lets a session replay the rest of a pattern page by page.
    pub(crate) fn replay_pattern(&mut self, key: SessionKey, pattern: PatternReplay) {
        if let Some(patterns) = self.patterns_of(key) {
            patterns.push(pattern);
        }
        self.replay_later(key);
    }

    /// Ends the replay of a pattern, unless other subscriptions share its channels. Its channels that have begun go on.
    pub(crate) fn end_pattern(&mut self, key: SessionKey, pattern: &str, is_shared: bool) {
        let Some(patterns) = self.patterns_of(key) else { return };
        if is_shared {
            let own = patterns.iter_mut().filter(|own| *own.pattern == *pattern);
            own.for_each(|own| own.new = None);
        } else {
            patterns.retain(|own| *own.pattern != *pattern);
        }
    }

    /// Notes that a channel has begun by itself: no page brings it.
    pub(crate) fn has_begun(&mut self, key: SessionKey, channel: &str) {
        for own in self.patterns_of(key).into_iter().flatten() {
            if own.withholds(ChannelName::known(channel)) && own.named.len() < NAMED_MAX {
                own.named.insert(hash_of(channel));
            }
        }
    }

    /// The next channels of a pattern at which a session may begin now. None if there are none, or if it has enough cursors that
    /// wait to be read.
    pub(crate) fn next_page(&self, key: SessionKey) -> Option<Page> {
        let session = self.sessions.get(key).filter(|session| !session.protocol.is_ending())?;
        let replay = session.replay.as_ref().filter(|replay| replay.cursors.ready() < PAGE)?;
        let (own, from) = replay.patterns.iter().find_map(|own| Some((own, own.from.as_ref()?)))?;
        let after = own.behind.as_deref();
        let channels =
            self.histories.matching(ChannelName::known(&own.pattern), after, PAGE, |channel| !own.names(channel));
        self.schedule.count_steps(1 + channels.len());
        let (pattern, from) = (own.pattern.clone(), from.clone());
        Some(Page { pattern, from, since_ms: own.since_ms, new: own.new, channels })
    }

    /// Notes that a session has begun at the first channels of a page, this many.
    pub(crate) fn end_page(&mut self, key: SessionKey, page: &Page, begun: usize) {
        let Some(patterns) = self.patterns_of(key) else { return };
        let Some(at) = patterns.iter().position(|own| own.pattern == page.pattern) else { return };
        if begun == page.channels.len() && begun < PAGE {
            patterns.swap_remove(at);
        } else if let Some(last) = begun.checked_sub(1).and_then(|last| page.channels.get(last)) {
            patterns[at].behind = Some(last.clone());
        }
    }

    fn patterns_of(&mut self, key: SessionKey) -> Option<&mut Vec<PatternReplay>> {
        self.sessions.get_mut(key).and_then(|session| session.replay.as_mut()).map(|replay| &mut replay.patterns)
    }
}
