//! The clients of a simulated cluster. Each has one request under way, at any node, and goes on at another one when it fails.

use std::collections::{BTreeMap, BTreeSet};

use encke_core::Id;

use super::plan::Kind;
use crate::rng::Rng;

/// One client.
pub(super) struct Client {
    pub(super) kind: Kind,
    /// The channels and patterns that it wants.
    pub(super) wanted: BTreeSet<&'static str>,
    pub(super) session: Option<Id>,
    pub(super) browser: Option<Id>,
    pub(super) asked: Option<Asked>,
    /// The last batch that it has received, if its session acknowledges.
    pub(super) ack: Option<i64>,
    /// Its subscriptions in this session, with the time at which it knew, in milliseconds. None: the node that has granted it may have been
    /// killed before a record had it, so no message is promised.
    pub(super) granted: BTreeMap<&'static str, Option<u64>>,
    /// Its positions, if it replays.
    pub(super) tracks: BTreeMap<String, Track>,
    /// The channels and positions of subscribes of this session that it has given up. One may come late from a node that was paused, and the
    /// session goes back to its position then.
    pub(super) given_up: Vec<(&'static str, u64)>,
    /// The names of unsubscribes of this session that it has given up. One may come late from a node that was paused, so no message is promised.
    pub(super) unsure: BTreeSet<&'static str>,
    /// The time of its last failure, in milliseconds.
    pub(super) broken_ms: u64,
    /// The time at which the last connect that was answered was sent, in milliseconds.
    pub(super) polled_ms: u64,
    /// The time of its next publication, in milliseconds.
    pub(super) publishes_ms: u64,
    /// The messages that its next connect confirms.
    pub(super) unconfirmed: Vec<usize>,
    /// The node that it prefers.
    pub(super) prefers: Option<usize>,
}

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) exchange: u64,
    pub(super) node: usize,
    pub(super) life: u64,
    pub(super) shard: u16,
    /// The time at which it was sent, in milliseconds.
    pub(super) sent_ms: u64,
    pub(super) purpose: Purpose,
}

/// The purpose of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Handshake,
    Subscribe(Vec<&'static str>),
    Unsubscribe(&'static str),
    Publish(usize),
    Connect,
    Disconnect,
}

/// The position of a client in a channel.
#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    pub(super) epoch: String,
    /// The first offset that it has to get.
    pub(super) begin: u64,
    /// All before this offset it has, or had a report that it does not get it.
    pub(super) next: u64,
    pub(super) seen: BTreeSet<u64>,
    /// Offsets that were reported as lost, first and last.
    pub(super) lost: Vec<(u64, u64)>,
}

impl Track {
    /// The offsets of these that it should have and has not, if there are some: the first one.
    pub(super) fn missing(&self, mut required: impl Iterator<Item = u64>) -> Option<u64> {
        let is_lost = |id: u64| self.lost.iter().any(|(from, to)| (*from..=*to).contains(&id));
        required.find(|id| *id >= self.begin && !self.seen.contains(id) && !is_lost(*id))
    }
}

impl Client {
    pub(super) fn new(rng: &mut Rng, kind: Kind) -> Client {
        let mut wanted = BTreeSet::new();
        for name in PAST.into_iter().chain(LIVE) {
            if rng.chance(500) {
                wanted.insert(name);
            }
        }
        if !kind.replays() {
            wanted.extend(PATTERNS.into_iter().filter(|_| rng.chance(200)));
        }
        Client {
            kind,
            wanted,
            session: None,
            browser: None,
            asked: None,
            ack: None,
            granted: BTreeMap::new(),
            tracks: BTreeMap::new(),
            given_up: Vec::new(),
            unsure: BTreeSet::new(),
            broken_ms: 0,
            polled_ms: 0,
            publishes_ms: 0,
            unconfirmed: Vec::new(),
            prefers: rng.chance(300).then(|| rng.below(8)),
        }
    }

    /// True if a message with this offset comes again because of a subscribe that it has given up. Each goes back once.
    pub(super) fn goes_back(&mut self, channel: &str, offset: u64) -> bool {
        let at = self.given_up.iter().position(|(name, next)| *name == channel && *next <= offset);
        at.map(|at| self.given_up.swap_remove(at)).is_some()
    }

    /// True if it waits for this request at this node.
    pub(super) fn awaits(&self, exchange: u64, node: usize, life: u64) -> bool {
        self.asked.as_ref().is_some_and(|asked| (asked.exchange, asked.node, asked.life) == (exchange, node, life))
    }

    /// The request for which it waits at a node.
    pub(super) fn waits_at(&self, node: usize, life: u64) -> Option<u64> {
        let asked = self.asked.as_ref().filter(|asked| (asked.node, asked.life) == (node, life));
        asked.map(|asked| asked.exchange)
    }
}

/// True if the channels of this name have a history.
pub(super) fn has_history(name: &str) -> bool {
    name.starts_with("/past/")
}

/// Channels with a history.
pub(super) const PAST: [&str; 3] = ["/past/a", "/past/b", "/past/c"];
/// Channels without one.
pub(super) const LIVE: [&str; 3] = ["/live/a", "/live/b", "/other/c"];
/// Patterns.
pub(super) const PATTERNS: [&str; 4] = ["/past/*", "/live/*", "/live/**", "/**"];
