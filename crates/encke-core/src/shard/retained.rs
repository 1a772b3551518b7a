//! The latest message of a channel whose rule retains it: a new subscription that names no position begins with it. Sessions that replay
//! get it by a cursor. Others get it at once, and what of it is still on its way from the owner of the history is left out for them.

use std::collections::{HashMap, VecDeque};

use bayeux::ChannelName;
use bayeux::ext::ReplayFrom;
use foldhash::fast::RandomState;

use crate::delivery::{FanOut, PAGE};
use crate::events::SessionKey;
use crate::interval::Interval;
use crate::shard::Machines;

impl Machines {
    /// The point at which a session that replays begins at a channel if it names no position. None if that is not its latest message.
    /// `new`: the index of the subscription. Who gets the channel by another one has that message.
    pub(super) fn retained_start(
        &mut self,
        key: SessionKey,
        channel: &str,
        new: Option<u32>,
    ) -> Option<ReplayFrom<'static>> {
        let is_retained = self.env.settings.retains(ChannelName::known(channel));
        let starts = is_retained && !self.channels.receives_beside(key.index, channel, new);
        starts.then_some(ReplayFrom::Last(1))
    }

    /// Gives a session the latest messages of the channels of its new subscription, as far as it does not replay them.
    pub(super) fn give_retained(&mut self, key: SessionKey, name: ChannelName<'_>, new: u32, interval: Interval) {
        let Some(session) = self.delivery.session(key) else { return };
        let replays = session.replays() && interval.is_none();
        let settings = &self.env.settings;
        if !(if replays { settings.may_retain_with_interval(name) } else { settings.may_retain(name) }) {
            return;
        }
        if !name.is_pattern() {
            return self.give_retained_of(key, name.as_str(), new, (interval, replays));
        }
        let channels = self.env.shared.histories.matching(name, None, PAGE + 1, |_| true);
        self.env.count_steps(channels.len());
        if channels.len() > PAGE {
            self.env.metrics.retained_left_out.add(1);
            return;
        }
        channels.iter().for_each(|channel| self.give_retained_of(key, channel, new, (interval, replays)));
    }

    fn give_retained_of(&mut self, key: SessionKey, channel: &str, new: u32, (interval, replays): (Interval, bool)) {
        let is_conflated = self.env.is_conflated(channel);
        if replays && !is_conflated || self.retained_start(key, channel, Some(new)).is_none() {
            return;
        }
        let histories = self.env.shared.histories.clone();
        let Some(ring) = histories.find(channel, 0).map(|position| position.ring) else { return };
        let id = self.delivery.id_of(Some(key));
        let latest = histories.with(ring, |ring| {
            let latest = ring.from(0).next_back().filter(|entry| entry.except.as_deref() != id.as_ref())?;
            Some((latest.text.clone(), ring.next()))
        });
        let Some((text, next)) = latest.flatten() else { return };
        if self.clients.has_lost_its_rights(key) {
            return;
        }
        let compresses = self.env.settings.compresses(ChannelName::known(channel));
        let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(text.as_bytes());
        let frames = self.delivery.encoder().publication(text.len(), compresses, write);
        self.admission.spend(1, frames.bytes(), frames.bytes() as u64);
        if !self.delivery.deliver_with_room(key, &frames) {
            self.env.metrics.retained_left_out.add(1);
            return;
        }
        // This shard fans out its own histories when it appends to them.
        let is_here = ring.owner() == self.env.index && !histories.is_mirrored();
        if !is_here && interval.is_none() && !is_conflated {
            let given = Given { session: key, serial: ring.serial, next, at_ms: self.env.now.ms };
            let dropped = self.env.retained.note(channel, given);
            self.env.metrics.retained_untracked.add(usize::from(dropped));
        }
    }

    /// Leaves sessions out of the next fan-out that have got a later message of its channel, or the same, from the ring.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_out_given(&mut self, fan_out: &FanOut<'_>) {
        let Some(position) = fan_out.position else { return };
        let end = position.first + u64::from(fan_out.messages);
        let Machines { env, delivery, .. } = self;
        let late = env.retained.late(fan_out.channel.as_str(), position.ring.serial, (position.first, end));
        let mut steps = 0;
        for session in late.filter(|session| delivery.has(*session)).collect::<Vec<_>>() {
            steps += 1;
            delivery.pass_by(session.index);
        }
        env.count_steps(steps);
    }
}

/// Latest messages that sessions have got from rings of other owners.
#[derive(Default)]
pub(super) struct Retained {
    /// Those of each channel, in the order of time.
    channels: HashMap<Box<str>, VecDeque<Given>, RandomState>,
    /// The times and channels of all of them, in the order of time. Some may have been removed.
    order: VecDeque<(u64, Box<str>)>,
}

/// A latest message that a session has got from a ring.
#[derive(Clone, Copy, Debug)]
struct Given {
    session: SessionKey,
    /// The serial of the ring.
    serial: u64,
    /// The offset of the next message.
    next: u64,
    /// The time, in milliseconds.
    at_ms: u64,
}

impl Retained {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Notes that a session has got a message. True if an earlier one had to go for that.
    fn note(&mut self, channel: &str, given: Given) -> bool {
        let is_full = self.order.len() >= GIVEN_MAX;
        if is_full {
            self.forget_first();
        }
        self.order.push_back((given.at_ms, channel.into()));
        self.channels.entry(channel.into()).or_default().push_back(given);
        is_full
    }

    /// The sessions that have got messages of a channel up to these offsets, or later ones. Forgets those for which nothing is on its way
    /// any more.
    fn late(&mut self, channel: &str, serial: u64, (first, end): (u64, u64)) -> impl Iterator<Item = SessionKey> {
        let of_channel = self.channels.get_mut(channel);
        of_channel.into_iter().flat_map(move |given| {
            given.retain(|given| (given.serial, given.next) > (serial, first));
            given.iter().filter(move |given| (given.serial, given.next) >= (serial, end)).map(|given| given.session)
        })
    }

    /// Forgets what was given so long ago that nothing of it is on its way.
    pub(super) fn expire(&mut self, now_ms: u64) {
        while self.order.front().is_some_and(|(at_ms, _)| at_ms + ON_ITS_WAY_MS <= now_ms) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((at_ms, channel)) = self.order.pop_front() else { return };
        let Some(given) = self.channels.get_mut(&channel) else { return };
        if given.front().is_some_and(|given| given.at_ms <= at_ms) {
            given.pop_front();
        }
        if given.is_empty() {
            self.channels.remove(&channel);
        }
    }
}

/// The longest time that a message takes from the owner of its history to another shard: one that is further behind may deliver a
/// latest message twice.
const ON_ITS_WAY_MS: u64 = 60_000;
/// The number of latest messages that a shard remembers, in some 150 bytes each.
const GIVEN_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    fn given(at_ms: u64, next: u64) -> Given {
        Given { session: SessionKey { index: 1, generation: 1 }, serial: 1, next, at_ms }
    }

    #[test]
    fn it_forgets_the_oldest_above_its_limit_and_all_after_a_minute() {
        let mut retained = Retained::default();
        let dropped = (0..GIVEN_MAX as u64 + 3).filter(|at| retained.note(&format!("/{at}"), given(*at, 5))).count();
        assert_eq!(dropped, 3);
        let mut is_late = |channel: &str| retained.late(channel, 1, (4, 5)).count() == 1;
        assert_eq!([is_late("/2"), is_late("/3")], [false, true]);
        retained.expire(ON_ITS_WAY_MS + 10);
        assert_eq!([retained.late("/10", 1, (4, 5)).count(), retained.late("/11", 1, (4, 5)).count()], [0, 1]);
        retained.expire(2 * ON_ITS_WAY_MS);
        assert!(retained.is_empty() && retained.channels.is_empty());
    }

    #[test]
    fn a_message_behind_the_given_one_is_not_late() {
        let mut retained = Retained::default();
        retained.note("/a", given(0, 5));
        assert_eq!(retained.late("/a", 0, (90, 91)).count(), 1, "of an earlier ring");
        assert_eq!(retained.late("/a", 1, (1, 3)).count(), 1);
        assert_eq!(retained.late("/a", 1, (5, 6)).count(), 0);
        assert_eq!(retained.late("/a", 1, (1, 3)).count(), 0, "those before have come");
    }
}
