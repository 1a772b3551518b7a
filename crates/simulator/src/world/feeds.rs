//! Feeds: many channels whose rule keeps the latest message for a client that sleeps. The server publishes on them.

use std::collections::BTreeMap;

use crate::checker::{Invariant, Published};
use crate::world::World;

impl World {
    /// The server publishes on some of the feeds.
    pub(super) fn feed(&mut self) {
        for _ in 0..=self.rng.below(FED_MAX) {
            let channel = format!("{FEED}{}", self.rng.below(self.scenario.feeds));
            self.publish_from_outside(&channel);
        }
    }

    /// Checks that no session misses the latest message of a feed. Older ones it need not get.
    pub(super) fn check_feeds(&mut self) {
        let is_fed = |publication: &Published| publication.channel.starts_with(FEED) && publication.from == usize::MAX;
        let of_feeds = self.checker.publications.iter().enumerate().filter(|(_, publication)| is_fed(publication));
        let latest: BTreeMap<String, usize> =
            of_feeds.map(|(number, publication)| (publication.channel.clone(), number)).collect();
        let mut missed = None;
        for (index, session) in self.checker.sessions.iter().enumerate() {
            for number in &session.expected {
                let channel = &self.checker.publications[*number].channel;
                match latest.get(channel) {
                    Some(latest) if latest == number => missed = Some((index, *number, channel.clone())),
                    Some(_) => self.checker.tally.superseded += 1,
                    None => {}
                }
            }
        }
        if let Some((session, number, channel)) = missed {
            let detail = format!("session {session} never got message {number}, the latest of {channel}");
            self.checker.fail(Invariant::LatestArrives, detail);
        }
    }
}

/// The names of feeds begin with it.
const FEED: &str = "/keep/feed";
/// The most messages at once.
const FED_MAX: usize = 6;
