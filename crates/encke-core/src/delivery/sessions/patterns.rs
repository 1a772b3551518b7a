//! Patterns that a session replays channel by channel, in the order of names and a page at a time: however many channels match,
//! only those of a page have cursors.
//!
//! ```text
//!   /p/a … /p/k   │   /p/l … /p/r   │   /p/s …
//!   live          │   cursors       │   withheld: the fan-out does not push them, the ring gives them when their page comes
//! ```

use std::collections::HashSet;

use bayeux::ChannelName;
use bayeux::channel::{covers, is_pattern};
use bayeux::ext::ReplayFrom;

use crate::history::{digest_of, order};

/// A pattern whose channels a session has not all begun to replay.
#[derive(Debug)]
pub(crate) struct PatternReplay {
    pub(crate) pattern: Box<str>,
    /// The point at which its channels begin. None while the client names further positions.
    pub(crate) from: Option<ReplayFrom<'static>>,
    /// True if channels that retain their latest message begin with that.
    pub(crate) with_retained: bool,
    /// Patterns by which the session gets channels already: these are none of its.
    pub(crate) beside: Vec<Box<str>>,
    /// The channels up to this one have begun.
    pub(crate) behind: Option<Box<str>>,
    /// The time when it was requested, in milliseconds.
    pub(crate) since_ms: u64,
    /// The index of the subscription to the pattern, if the session got it by this request.
    pub(crate) new: Option<u32>,
    /// The digests of channels that the client has named with a position, or has subscribed to before.
    pub(crate) named: HashSet<u128>,
}

/// The next channels of a pattern.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) pattern: Box<str>,
    pub(crate) from: ReplayFrom<'static>,
    pub(crate) with_retained: bool,
    pub(crate) since_ms: u64,
    pub(crate) new: Option<u32>,
    pub(crate) channels: Vec<Box<str>>,
}

impl PatternReplay {
    /// A pattern of which no channel has begun, at this time in milliseconds.
    pub(crate) fn new(pattern: &str, new: Option<u32>, since_ms: u64) -> PatternReplay {
        PatternReplay {
            pattern: pattern.into(),
            from: None,
            with_retained: false,
            beside: Vec::new(),
            behind: None,
            since_ms,
            new,
            named: HashSet::new(),
        }
    }

    /// True if the session gets the messages of this channel from the ring later.
    pub(crate) fn withholds(&self, channel: ChannelName<'_>) -> bool {
        let name = channel.as_str();
        let is_behind = self.behind.as_deref().is_some_and(|behind| order(name) <= order(behind));
        !is_behind && ChannelName::known(&self.pattern).matches(channel) && !self.names(name)
    }

    /// True if a channel is none of its: the client has named it with a position, or gets it by another subscription.
    pub(crate) fn names(&self, channel: &str) -> bool {
        !self.named.is_empty() && self.named.contains(&digest_of(channel))
            || self.beside.iter().any(|other| covers(other, channel))
    }

    /// Lets channels that retain their latest message begin with that, but for those that the session gets by these other names. Returns
    /// false if they are too many.
    pub(crate) fn begin_retained<'n>(&mut self, beside: impl Iterator<Item = &'n str>) -> bool {
        for name in beside {
            if is_pattern(name) {
                self.beside.push(name.into());
            } else {
                self.named.insert(digest_of(name));
            }
        }
        self.with_retained = self.beside.len() <= PATTERNS_MAX && self.named.len() <= NAMED_MAX;
        self.with_retained
    }
}

/// The number of channels of a pattern that begin together.
pub(crate) const PAGE: usize = 256;

/// The number of positions of the patterns of a session, in several subscribes: some 32 bytes for each.
pub(crate) const NAMED_MAX: usize = 20_000;

/// The number of patterns of a session whose channels have not all begun. Each costs a step in each delivery to the session.
pub(crate) const PATTERNS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_that_come_later_are_withheld_in_the_order_in_which_a_history_lists_them() {
        let withholds = |own: &PatternReplay, name: &str| own.withholds(ChannelName::known(name));
        let mut own = PatternReplay::new("/p/**", None, 0);
        assert!(withholds(&own, "/p/a") && !withholds(&own, "/q/a") && !withholds(&own, "/p"));
        own.behind = Some("/p/m".into());
        own.named.insert(digest_of("/p/x"));
        for (name, is_withheld) in
            [("/p/a", false), ("/p/m", false), ("/p/n", true), ("/p/a/b", true), ("/p/x", false), ("/q/z", false)]
        {
            assert_eq!(withholds(&own, name), is_withheld, "{name}");
        }
    }
}
