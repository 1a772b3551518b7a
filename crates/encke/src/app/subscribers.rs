//! The shards with subscribers of each channel with an authorizer or a listener.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// The shards with subscribers of a channel, a bit each. A channel without any has no entry. Clients cannot make it large: it has
/// one entry for each channel with a subscription, which `subscriptions_max` limits.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    hasher: RandomState,
    stripes: [Mutex<HashMap<Box<str>, u64, RandomState>>; STRIPES],
}

impl Subscribers {
    /// Notes that a shard has subscribers. `on_first` runs if no other one has, before anyone else can change that: so the
    /// events of a channel come in order, from whatever shard.
    pub(crate) fn add(&self, channel: &str, shard: usize, on_first: impl FnOnce()) {
        let mut stripe = self.stripe(channel).lock();
        match stripe.get_mut(channel) {
            Some(shards) => *shards |= 1 << shard,
            None => {
                stripe.insert(channel.into(), 1 << shard);
                on_first();
            }
        }
    }

    /// Notes that a shard has none any more. `on_last` runs if it was the last one that had.
    pub(crate) fn remove(&self, channel: &str, shard: usize, on_last: impl FnOnce()) {
        let mut stripe = self.stripe(channel).lock();
        if let Some(shards) = stripe.get_mut(channel) {
            *shards &= !(1 << shard);
            if *shards == 0 {
                stripe.remove(channel);
                if stripe.capacity() > ROOM_RETAINED && stripe.len() < stripe.capacity() / 4 {
                    let room = stripe.len() * 2;
                    stripe.shrink_to(room);
                }
                on_last();
            }
        }
    }

    /// True if a channel has a subscriber.
    pub(crate) fn has(&self, channel: &str) -> bool {
        self.stripe(channel).lock().contains_key(channel)
    }

    fn stripe(&self, channel: &str) -> &Mutex<HashMap<Box<str>, u64, RandomState>> {
        &self.stripes[self.hasher.hash_one(channel) as usize % STRIPES]
    }
}

/// The number of locks: shards that count different channels rarely meet.
const STRIPES: usize = 16;
/// A map is not shrunk below this capacity.
const ROOM_RETAINED: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::*;

    #[test]
    fn only_the_first_and_the_last_are_events() {
        let subscribers = Subscribers::default();
        let mut events = Vec::new();
        subscribers.add("/a", 0, || events.push("first"));
        subscribers.add("/a", 0, || events.push("no"));
        subscribers.add("/a", 3, || events.push("no"));
        subscribers.remove("/a", 0, || events.push("no"));
        subscribers.remove("/a", 1, || events.push("no"));
        subscribers.remove("/b", 0, || events.push("no"));
        subscribers.remove("/a", 3, || events.push("last"));
        subscribers.add("/a", 0, || events.push("first"));
        assert_eq!(events, ["first", "last", "first"]);
    }

    #[test]
    fn the_events_of_a_channel_alternate_over_threads() {
        let (subscribers, state) = (&Subscribers::default(), &AtomicI32::new(0));
        std::thread::scope(|scope| {
            for shard in 0..4 {
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        subscribers.add("/a", shard, || assert_eq!(state.swap(1, Ordering::Relaxed), 0));
                        subscribers.remove("/a", shard, || assert_eq!(state.swap(0, Ordering::Relaxed), 1));
                    }
                });
            }
        });
        assert_eq!(state.load(Ordering::Relaxed), 0);
        assert!(subscribers.stripes.iter().all(|stripe| stripe.lock().is_empty()));
    }
}
