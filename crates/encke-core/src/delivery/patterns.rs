//! Replays of patterns with many channels: which channels come next, and which messages the fan-out leaves to them.

use std::collections::HashSet;

use bayeux::ChannelName;
use bayeux::ext::ReplayFrom;

use crate::delivery::Delivery;
use crate::delivery::sessions::patterns::{NAMED_MAX, PAGE, PATTERNS_MAX, Page, PatternReplay};
use crate::events::SessionKey;
use crate::history::digest_of;

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
        let known = patterns.iter().position(|own| *own.pattern == *pattern);
        if known.is_none() && patterns.len() >= PATTERNS_MAX {
            return false;
        }
        let at = known.unwrap_or_else(|| {
            patterns.push(PatternReplay::new(pattern, new, now_ms));
            patterns.len() - 1
        });
        patterns[at].named.extend(channels.map(digest_of));
        named_by(patterns) <= NAMED_MAX
    }

    /// Forgets a pattern whose channels were to begin, and returns the digests of those that began at named positions. With `all`
    /// it also forgets one whose pages have begun.
    pub(crate) fn take_named(&mut self, key: SessionKey, pattern: &str, all: bool) -> HashSet<u128> {
        let Some(patterns) = self.patterns_of(key) else { return HashSet::new() };
        let at = patterns.iter().position(|own| *own.pattern == *pattern && (all || own.from.is_none()));
        let own = at.map(|at| patterns.swap_remove(at)).filter(|own| own.from.is_none());
        own.map(|own| own.named).unwrap_or_default()
    }

    /// Lets a session replay the rest of a pattern page by page. Returns false if it replays too many patterns.
    pub(crate) fn replay_pattern(&mut self, key: SessionKey, pattern: PatternReplay) -> bool {
        if let Some(patterns) = self.patterns_of(key) {
            if patterns.len() >= PATTERNS_MAX {
                return false;
            }
            patterns.push(pattern);
        }
        self.replay_later(key);
        true
    }

    /// Ends the replay of a pattern, unless other subscriptions share its channels. Its channels that have begun go on. What was left
    /// to its pages while the client was to name further positions comes with pages from then on.
    pub(crate) fn end_pattern(&mut self, key: SessionKey, pattern: &str, is_shared: bool) {
        let Some(patterns) = self.patterns_of(key) else { return };
        if is_shared {
            for own in patterns.iter_mut().filter(|own| *own.pattern == *pattern) {
                own.new = None;
                own.from.get_or_insert(ReplayFrom::LastMs(0));
            }
            self.replay_later(key);
        } else {
            patterns.retain(|own| *own.pattern != *pattern);
        }
    }

    /// Notes that a channel has begun by itself: no page brings it.
    pub(crate) fn has_begun(&mut self, key: SessionKey, channel: &str) {
        let Some(patterns) = self.patterns_of(key).filter(|patterns| !patterns.is_empty()) else { return };
        let mut room = NAMED_MAX.saturating_sub(named_by(patterns));
        for own in patterns {
            if room > 0 && own.withholds(ChannelName::known(channel)) {
                own.named.insert(digest_of(channel));
                room -= 1;
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
        let PatternReplay { with_retained, since_ms, new, .. } = *own;
        Some(Page { pattern, from, with_retained, since_ms, new, channels })
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

/// The number of channels that these patterns name.
fn named_by(patterns: &[PatternReplay]) -> usize {
    patterns.iter().map(|own| own.named.len()).sum()
}
