//! The latest message of a channel whose rule retains it: a new subscription that names no position begins with it. Sessions that replay
//! get it by a cursor. Others get it at once, and what of it is still on its way to their subscription is left out for them: from the
//! owner of the history, or until an interval is over.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bayeux::ChannelName;
use foldhash::fast::RandomState;

use crate::conflation::Conflation;
use crate::delivery::{FanOut, PAGE};
use crate::events::SessionKey;
use crate::history::Ring;
use crate::interval::Interval;
use crate::limits::sessions::SessionOwner;
use crate::limits::shares::{Amount, Budget, Share, Shares, Urgency};
use crate::shard::Machines;

/// A new subscription of a session that names no position.
struct Beginner {
    key: SessionKey,
    /// The other subscriptions that may bring the same channels, in ascending order.
    beside: Box<[u32]>,
    /// True if it replays its channels.
    replays: bool,
}

/// The outcome for a channel of a new subscription.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The session has its latest message now.
    Given,
    /// It gets none here.
    None,
    /// Its outbox has no room.
    NoRoom,
}

impl Machines {
    /// The other subscriptions of a session that may bring the channels of one, in ascending order.
    pub(super) fn subscriptions_beside(&self, key: SessionKey, list: u32) -> Box<[u32]> {
        let mut beside: Box<[u32]> = self.channels.overlapping(key.index, list).collect();
        beside.sort_unstable();
        self.env.count_steps(self.channels.count_of(key.index));
        beside
    }

    /// True if a session that names no position begins with the latest message of this channel. It has it if one of the subscriptions
    /// that it had before, which are in ascending order, brings the channel.
    pub(super) fn starts_retained(&mut self, channel: &str, beside: &[u32]) -> bool {
        let channel = ChannelName::known(channel);
        self.env.settings.retains(channel) && !self.channels.is_brought_by(beside, channel)
    }

    /// Gives a session the latest messages of the channels of its new subscription, as far as it does not replay them.
    pub(super) fn give_retained(&mut self, key: SessionKey, name: ChannelName<'_>, new: u32, interval: Interval) {
        let Some(session) = self.delivery.session(key) else { return };
        let replays = session.replays() && interval.is_none();
        if !self.env.settings.may_retain(name, replays) {
            return;
        }
        let beginner = Beginner { key, beside: self.subscriptions_beside(key, new), replays };
        let (mut given, mut is_complete) = (BTreeSet::new(), true);
        if name.is_pattern() {
            is_complete = self.give_retained_of_pattern(&beginner, name, &mut given);
        } else {
            match self.give_retained_of(&beginner, name.as_str()) {
                Outcome::Given => drop(given.insert(name.as_str().into())),
                Outcome::None => {}
                Outcome::NoRoom => is_complete = false,
            }
        }
        self.env.metrics.retained_incomplete.add(usize::from(!is_complete));
        self.note_had_of_rules(key, name, &given);
    }

    /// Does so page by page, and adds the channels of which the session has the latest message now. False if it does not get all.
    fn give_retained_of_pattern(
        &mut self,
        beginner: &Beginner,
        pattern: ChannelName<'_>,
        given: &mut BTreeSet<Box<str>>,
    ) -> bool {
        let mut behind: Option<Box<str>> = None;
        for _ in 0..PAGES_MAX {
            let mut channels = self.env.shared.histories.matching(pattern, behind.as_deref(), PAGE, |_| true);
            self.env.count_steps(channels.len());
            for channel in &channels {
                match self.give_retained_of(beginner, channel) {
                    Outcome::Given => drop(given.insert(channel.clone())),
                    Outcome::None => {}
                    Outcome::NoRoom => return false,
                }
            }
            if channels.len() < PAGE {
                return true;
            }
            behind = channels.pop();
        }
        self.env.shared.histories.matching(pattern, behind.as_deref(), 1, |_| true).is_empty()
    }

    fn give_retained_of(&mut self, beginner: &Beginner, channel: &str) -> Outcome {
        let key = beginner.key;
        if beginner.replays && !self.env.is_conflated(channel) || !self.starts_retained(channel, &beginner.beside) {
            return Outcome::None;
        }
        let histories = self.env.shared.histories.clone();
        let Some(ring) = histories.find(channel, 0).map(|position| position.ring) else { return Outcome::None };
        let (delivery, own) = (&self.delivery, self.delivery.id_of(Some(key)));
        let look = |ring: &Ring| {
            let latest = ring.from(0).next_back()?;
            // A session to which its own messages do not come back has them.
            let text = (latest.except.is_none() || latest.except.as_deref() != own.as_ref()).then_some(&latest.text);
            let has_room = text.is_none_or(|text| delivery.has_room(key, text.len() + FRAME_BYTES));
            Some((text.filter(|_| has_room).cloned(), has_room, ring.next()))
        };
        let Some((text, has_room, next)) = histories.with(ring, look).flatten() else { return Outcome::None };
        if !has_room {
            return Outcome::NoRoom;
        }
        if let Some(text) = text {
            let compresses = self.env.settings.compresses(ChannelName::known(channel));
            let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(text.as_bytes());
            let frames = self.delivery.encoder().publication(text.len(), compresses, write);
            self.deliver_frames_to(key, &frames);
        }
        // This shard fans out its own histories when it appends to them.
        if ring.owner() != self.env.index || histories.is_mirrored() {
            let given = Given { session: key, serial: ring.serial, next };
            let owner = self.clients.counted_for(key).unwrap_or_default();
            let dropped = self.env.retained.note(channel, given, owner, self.env.now.ms);
            self.env.metrics.retained_untracked.add(usize::from(dropped));
        }
        Outcome::Given
    }

    /// Notes that a session has what waits by the rules of these channels, which the name of its subscription matches.
    fn note_had_of_rules(&mut self, key: SessionKey, name: ChannelName<'_>, given: &BTreeSet<Box<str>>) {
        if given.is_empty() || self.conflation.len() == 0 {
            return;
        }
        let (waiting, steps) = self.conflation.waiting(Conflation::EVERYBODY, Some(name));
        self.env.count_steps(steps);
        let waiting: Vec<Box<str>> = waiting.into_iter().map(|(channel, _)| channel.into()).collect();
        // One note for all that waits, if the session has all of it.
        if !waiting.is_empty() && waiting.iter().all(|channel| given.contains(channel)) {
            return self.conflation.note_had(Conflation::EVERYBODY, key.index, name.as_str());
        }
        for channel in waiting.iter().filter(|channel| given.contains(*channel)) {
            self.conflation.note_had(Conflation::EVERYBODY, key.index, channel);
        }
    }

    /// False if no session has got one of these publications from the ring.
    #[inline]
    pub(super) fn may_have_got(&self, fan_out: &FanOut<'_>) -> bool {
        fan_out.position.is_some() && !self.env.retained.is_empty()
    }

    /// The sessions that have got the latest one of these publications from the ring, or a later one.
    #[cold]
    #[inline(never)]
    pub(super) fn have_got(&mut self, fan_out: &FanOut<'_>) -> Vec<u32> {
        let Some(position) = fan_out.position else { return Vec::new() };
        let end = position.first + u64::from(fan_out.messages);
        let Machines { env, delivery, .. } = self;
        env.retained.expire(env.now.ms);
        let late = env.retained.late(fan_out.channel.as_str(), position.ring.serial, (position.first, end));
        let late: Vec<u32> = late.filter(|session| delivery.has(*session)).map(|session| session.index).collect();
        env.count_steps(1 + late.len());
        late
    }
}

/// Latest messages that sessions have got from rings of other owners. Users or addresses share the room: one that has its part forgets its
/// own first.
#[derive(Default)]
pub(super) struct Retained {
    /// Those of each channel, in the order of time.
    channels: HashMap<Box<str>, BTreeMap<u64, Given>, RandomState>,
    /// The numbers, times and channels of those of each owner, in the order of time. Some may have been removed.
    owners: HashMap<SessionOwner, VecDeque<OfOwner>, RandomState>,
    /// The number of the first one of each owner.
    first: BTreeMap<u64, SessionOwner>,
    shares: Shares<SessionOwner>,
    /// The number of the next one.
    next: u64,
}

/// The number, the time and the channel of a message of an owner.
type OfOwner = (u64, u64, Box<str>);

/// A latest message that a session has got from a ring.
#[derive(Clone, Copy, Debug)]
struct Given {
    session: SessionKey,
    /// The serial of the ring.
    serial: u64,
    /// The offset of the next message.
    next: u64,
}

impl Retained {
    #[inline]
    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Notes that a session of this owner has got a message. True if an earlier one had to go for that.
    fn note(&mut self, channel: &str, given: Given, owner: SessionOwner, now_ms: u64) -> bool {
        self.expire(now_ms);
        let (budget, one) = (Budget::new(GIVEN_MAX, usize::MAX), Amount::of(1));
        let is_full = self.shares.admit(&budget, &owner, None, one, Urgency::Common).is_err();
        if is_full {
            let first = self.first.values().next().copied();
            let full = Some(owner).filter(|owner| self.owners.contains_key(owner)).or(first);
            full.into_iter().for_each(|owner| self.forget_first(owner));
        }
        let _share_of_one = self.shares.take_regardless(owner, None, one, Urgency::Common);
        let number = self.next;
        self.next += 1;
        let of_owner = self.owners.entry(owner).or_default();
        if of_owner.is_empty() {
            self.first.insert(number, owner);
        }
        of_owner.push_back((number, now_ms, channel.into()));
        self.channels.entry(channel.into()).or_default().insert(number, given);
        is_full
    }

    /// The sessions that have got messages of a channel up to these offsets, or later ones. Forgets those for which nothing is on its way
    /// any more.
    fn late(&mut self, channel: &str, serial: u64, (first, end): (u64, u64)) -> impl Iterator<Item = SessionKey> {
        let of_channel = self.channels.get_mut(channel);
        of_channel.into_iter().flat_map(move |given| {
            given.retain(|_, given| (given.serial, given.next) > (serial, first));
            given.values().filter(move |given| (given.serial, given.next) >= (serial, end)).map(|given| given.session)
        })
    }

    /// Forgets what was given so long ago that nothing of it is on its way.
    fn expire(&mut self, now_ms: u64) {
        let is_old = |(_, at_ms, _): &OfOwner| at_ms + ON_ITS_WAY_MS <= now_ms;
        while let Some(owner) = self.first.values().next().copied()
            && self.owners.get(&owner).and_then(VecDeque::front).is_some_and(is_old)
        {
            self.forget_first(owner);
        }
    }

    /// Forgets the first one of an owner.
    fn forget_first(&mut self, owner: SessionOwner) {
        let Some(of_owner) = self.owners.get_mut(&owner) else { return };
        let Some((number, _, channel)) = of_owner.pop_front() else { return };
        self.first.remove(&number);
        if let Some((next, ..)) = of_owner.front() {
            self.first.insert(*next, owner);
        } else {
            self.owners.remove(&owner);
        }
        self.shares.give_back(Share::of_one(owner));
        let Some(given) = self.channels.get_mut(&channel) else { return };
        given.remove(&number);
        if given.is_empty() {
            self.channels.remove(&channel);
        }
    }
}

/// The longest time that a message takes from the owner of its history to another shard: one that is further behind may deliver a
/// latest message twice.
const ON_ITS_WAY_MS: u64 = 60_000;
/// The number of latest messages that a shard remembers, in some 200 bytes each.
const GIVEN_MAX: usize = 16_384;
/// The pages of channels of a pattern whose latest messages a session without replay gets: it gets them at once.
const PAGES_MAX: usize = 16;
/// The most bytes that a frame adds to a message.
const FRAME_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: Given = Given { session: SessionKey { index: 1, generation: 1 }, serial: 1, next: 5 };

    fn owner(number: u64) -> SessionOwner {
        SessionOwner::of(number)
    }

    fn is_late(retained: &mut Retained, channel: &str) -> bool {
        retained.late(channel, 1, (4, 5)).count() == 1
    }

    #[test]
    fn an_owner_above_its_part_forgets_its_own_oldest_and_all_are_forgotten_after_a_minute() {
        let mut retained = Retained::default();
        retained.note("/other", GIVEN, owner(2), 0);
        let many = 2 * GIVEN_MAX as u64;
        let dropped = (0..many).filter(|at| retained.note(&format!("/{at}"), GIVEN, owner(1), *at / many)).count();
        let part = many as usize - dropped;
        assert!(part < GIVEN_MAX && part > GIVEN_MAX / 2, "{part}");
        assert!(is_late(&mut retained, "/other"), "it is another one's");
        assert!(!retained.note("/third", GIVEN, owner(3), 1), "there is room for others");
        let of_part = [dropped - 1, dropped, 2 * GIVEN_MAX - 1].map(|at| is_late(&mut retained, &format!("/{at}")));
        assert_eq!(of_part, [false, true, true]);
        retained.note("/last", GIVEN, owner(1), 10);
        retained.expire(ON_ITS_WAY_MS + 9);
        assert_eq!((retained.shares.used().count, is_late(&mut retained, "/last")), (1, true));
        retained.expire(2 * ON_ITS_WAY_MS);
        assert!(retained.is_empty() && retained.channels.is_empty() && retained.owners.is_empty());
        assert_eq!((retained.shares.used().count, retained.shares.owners()), (0, 0));
    }

    #[test]
    fn many_owners_together_have_a_bound() {
        let mut retained = Retained::default();
        for number in 0..2 * GIVEN_MAX as u64 {
            retained.note("/a", GIVEN, owner(number), 0);
        }
        assert_eq!((retained.shares.used().count, retained.late("/a", 1, (4, 5)).count()), (GIVEN_MAX, GIVEN_MAX));
    }

    #[test]
    fn a_message_behind_the_given_one_is_not_late() {
        let mut retained = Retained::default();
        retained.note("/a", GIVEN, owner(1), 0);
        assert_eq!(retained.late("/a", 0, (90, 91)).count(), 1, "of an earlier ring");
        assert_eq!(retained.late("/a", 1, (1, 3)).count(), 1);
        assert_eq!(retained.late("/a", 1, (5, 6)).count(), 0);
        assert_eq!(retained.late("/a", 1, (1, 3)).count(), 0, "those before have come");
    }
}
