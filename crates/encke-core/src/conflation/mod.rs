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
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::rc::Rc;

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
    groups: HashMap<Group, Members, RandomState>,
}

/// A group that has members.
#[derive(Default)]
struct Members {
    /// The number of the last publication before it.
    since: u64,
    /// The members that get a channel by several subscriptions: they get messages up to this number by the group whatever their other
    /// subscriptions are, because those began later.
    overlaps: HashMap<u32, u64, RandomState>,
}

impl Conflation {
    /// The group of all subscribers without an interval, where the rule of a channel has one.
    pub(crate) const EVERYBODY: Group = u32::MAX;

    /// Nothing waits. What waits counts in this account.
    pub(crate) fn new(account: &Rc<Account>) -> Conflation {
        Conflation { table: Table::new(account), offered: 0, groups: HashMap::default() }
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
        self.table.bytes()
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

    /// The messages that wait, of all groups.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (Group, &str, &Waiting)> {
        self.table.waiting()
    }

    /// Takes all that waits, as if its time had come. No channel has an interval then.
    pub(crate) fn take_all(&mut self) -> Vec<Due> {
        self.table.take_all()
    }

    /// Notes that a member of a group has another subscription which may get messages of the same channels, since this publication.
    pub(crate) fn overlaps(&mut self, group: Group, session: u32, since: u64) {
        if let Some(members) = self.groups.get_mut(&group) {
            members.overlaps.entry(session).or_insert(since);
        }
    }

    /// Notes that a group has its first member.
    pub(crate) fn begins(&mut self, group: Group) {
        self.groups.insert(group, Members { since: self.offered, ..Members::default() });
    }

    /// Notes that a session has left a group, or that the group has ended with it.
    pub(crate) fn left(&mut self, group: Group, session: u32, has_ended: bool) {
        if has_ended {
            self.groups.remove(&group);
        } else if let Some(members) = self.groups.get_mut(&group) {
            members.overlaps.remove(&session);
        }
    }

    /// True if a publication with this number was offered to this group, and not to another one in its slot.
    pub(crate) fn was_offered(&self, group: Group, number: u64) -> bool {
        self.groups.get(&group).is_some_and(|members| members.since < number)
    }

    /// True if a channel of a group has an interval now.
    pub(crate) fn holds(&self, group: Group, channel: &str) -> bool {
        self.table.holds(group, channel)
    }

    /// The members of a group that may get the publication with this number by another subscription.
    pub(crate) fn shared(&self, group: Group, number: u64) -> impl Iterator<Item = u32> {
        let members = self.groups.get(&group).into_iter().flat_map(|members| &members.overlaps);
        members.filter(move |(_, since)| **since < number).map(|(session, _)| *session)
    }
}
