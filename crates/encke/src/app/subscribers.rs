//! The numbers of subscribers of channels with a listener, over all shards.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// Counts subscribers. A channel without any has no entry. Clients cannot make it large: it has one entry for each
/// channel with a subscription, which `subscriptions_max` limits.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    hasher: RandomState,
    stripes: [Mutex<HashMap<Box<str>, usize, RandomState>>; STRIPES],
}

impl Subscribers {
    /// Counts one more. `on_first` runs if it is the first, before anyone else can change the number: so the events of a
    /// channel come in order, from whatever shard.
    pub(crate) fn add(&self, channel: &str, on_first: impl FnOnce()) {
        let mut stripe = self.stripe(channel).lock();
        match stripe.get_mut(channel) {
            Some(count) => *count += 1,
            None => {
                stripe.insert(channel.into(), 1);
                on_first();
            }
        }
    }

    /// Counts one less. `on_last` runs if it was the last.
    pub(crate) fn remove(&self, channel: &str, on_last: impl FnOnce()) {
        let mut stripe = self.stripe(channel).lock();
        if let Some(count) = stripe.get_mut(channel) {
            *count -= 1;
            if *count == 0 {
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

    fn stripe(&self, channel: &str) -> &Mutex<HashMap<Box<str>, usize, RandomState>> {
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
        subscribers.add("/a", || events.push("first"));
        subscribers.add("/a", || events.push("no"));
        subscribers.remove("/a", || events.push("no"));
        subscribers.remove("/b", || events.push("no"));
        subscribers.remove("/a", || events.push("last"));
        subscribers.add("/a", || events.push("first"));
        assert_eq!(events, ["first", "last", "first"]);
    }

    #[test]
    fn the_events_of_a_channel_alternate_over_threads() {
        let (subscribers, state) = (Subscribers::default(), AtomicI32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        subscribers.add("/a", || assert_eq!(state.swap(1, Ordering::Relaxed), 0));
                        subscribers.remove("/a", || assert_eq!(state.swap(0, Ordering::Relaxed), 1));
                    }
                });
            }
        });
        assert_eq!(state.into_inner(), 0);
        assert!(subscribers.stripes.iter().all(|stripe| stripe.lock().is_empty()));
    }
}
