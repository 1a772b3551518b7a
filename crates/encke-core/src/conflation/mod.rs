//! Conflation: at most one message of a channel in an interval, the latest.
//!
//! ```text
//!   publication ── offer ──▶ Goes, if none has gone in the interval
//!                    └─────▶ Waits, in place of an older one ── take_due ──▶ goes when the interval is over
//! ```
//!
//! Receivers with the same interval share a group: the subscribers of a channel or pattern with an interval, or those without one where
//! the rule of the channel has one. The work for a publication is one step for each group, whatever the number of members.

mod message;
mod notes;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::rc::Rc;

use bayeux::ChannelName;
use foldhash::fast::RandomState;

pub(crate) use message::{Due, Group, Offer, Offered, Room, Waiting};

use crate::conflation::table::Table;
use crate::memory::Account;

/// The messages of a shard that wait for the interval of their channel and group.
///
/// Its owner calls [`Conflation::offer`] with each publication, sends those that go, and those that [`Conflation::take_due`] returns as time
/// passes. A message that has no room goes at once, and none that it replaces comes after it.
pub(crate) struct Conflation {
    table: Table,
    /// The number of publications that were offered.
    offered: u64,
    /// The members of groups that get a channel by several subscriptions: they get messages up to this number by the group whatever
    /// their other subscriptions are, because those began later.
    overlaps: HashMap<Group, HashMap<u32, u64, RandomState>, RandomState>,
    /// The number of all overlaps.
    overlaps_len: usize,
    account: Rc<Account>,
}

impl Conflation {
    /// The group of all subscribers without an interval, where the rule of a channel has one.
    pub(crate) const EVERYBODY: Group = u32::MAX;

    /// Nothing waits. What waits counts in this account.
    pub(crate) fn new(account: &Rc<Account>) -> Conflation {
        Conflation {
            table: Table::new(account),
            offered: 0,
            overlaps: HashMap::default(),
            overlaps_len: 0,
            account: account.clone(),
        }
    }

    /// The number of the last publication.
    pub(crate) fn number(&self) -> u64 {
        self.offered
    }

    /// The number of channels, one for each group, that have an interval now.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The bytes that count in the account.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.overlaps_bytes()
    }

    /// Numbers a publication, which is offered to groups next.
    pub(crate) fn number_next(&mut self) {
        self.offered += 1;
    }

    /// Offers a message to a group.
    pub(crate) fn offer(&mut self, offer: &Offer<'_>, now_ms: u64, room: Room) -> Offered {
        self.table.offer(offer, self.offered, now_ms, room)
    }

    /// The next message whose time has come. None if there is no further one.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Option<Due> {
        self.table.take_due(now_ms)
    }

    /// The messages of a group that wait, on the channels of a name if there is one, and the number of steps to find them.
    pub(crate) fn waiting(&self, group: Group, name: Option<ChannelName<'_>>) -> (Vec<(&str, &Waiting)>, usize) {
        self.table.waiting(group, name)
    }

    /// Ends all intervals: whatever waits is due now.
    pub(crate) fn end_intervals(&mut self) {
        self.table.end_intervals();
    }

    /// Drops what waits on a channel of a group, because a later message has gone.
    pub(crate) fn drop_waiting(&mut self, group: Group, channel: &str) {
        self.table.drop_waiting(group, channel);
    }

    /// Notes that a session has had all publications of the channels of this name: what waits for a group is not for it.
    pub(crate) fn note_had(&mut self, group: Group, session: u32, name: &str) {
        self.table.note_had(group, session, ChannelName::known(name), self.offered);
    }

    /// The sessions that have had a message that has waited for a group, and goes now. Forgets that they have. Also returns the number of
    /// steps.
    pub(crate) fn take_had(&mut self, group: Group, channel: ChannelName<'_>, number: u64) -> (Vec<u32>, usize) {
        self.table.take_had(group, channel, number)
    }

    /// True if a session has had a message which waits for a group.
    pub(crate) fn has_had(&self, group: Group, session: u32, channel: ChannelName<'_>, number: u64) -> bool {
        self.table.has_had(group, session, channel, number)
    }

    /// Notes that a member of a group has another subscription which may get messages of the same channels, since this publication.
    pub(crate) fn overlaps(&mut self, group: Group, session: u32, since: u64) {
        let before = self.overlaps_bytes();
        let members = self.overlaps.entry(group).or_default();
        self.overlaps_len += usize::from(!members.contains_key(&session));
        members.entry(session).or_insert(since);
        self.account.queue_changed(before, self.overlaps_bytes());
    }

    /// Notes that a session has left a group, or that the group has ended with it. Returns the number of steps.
    pub(crate) fn left(&mut self, group: Group, session: u32, has_ended: bool) -> usize {
        let before = self.overlaps_bytes();
        if let Some(members) = self.overlaps.get_mut(&group) {
            self.overlaps_len -= usize::from(members.remove(&session).is_some());
            if members.is_empty() {
                self.overlaps.remove(&group);
            }
        }
        self.account.queue_changed(before, self.overlaps_bytes());
        self.table.left(group, session);
        // Another group may take its slot.
        if has_ended { self.table.drop_group(group) } else { 0 }
    }

    fn overlaps_bytes(&self) -> usize {
        self.overlaps.len() * GROUP_BYTES + self.overlaps_len * OVERLAP_BYTES
    }

    /// True if a channel of a group has an interval now.
    pub(crate) fn holds(&self, group: Group, channel: &str) -> bool {
        self.table.holds(group, channel)
    }

    /// The members of a group that may get the publication with this number by another subscription.
    pub(crate) fn shared(&self, group: Group, number: u64) -> impl Iterator<Item = u32> {
        let members = self.overlaps.get(&group).into_iter().flatten();
        members.filter(move |(_, since)| **since < number).map(|(session, _)| *session)
    }

    /// True if a member of a group may get the publication with this number by another subscription.
    pub(crate) fn is_shared(&self, group: Group, session: u32, number: u64) -> bool {
        self.overlaps.get(&group).and_then(|members| members.get(&session)).is_some_and(|since| *since < number)
    }
}

/// The bytes of a group with overlaps.
const GROUP_BYTES: usize = 64;
/// The bytes of an overlap.
const OVERLAP_BYTES: usize = 24;
