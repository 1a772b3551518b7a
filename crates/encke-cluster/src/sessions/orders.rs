//! Ends of sessions that somebody has ordered on any node, and replies that wait until an end is written. The record of a session is
//! where an order stands: who takes the session over finds its end there, and a node that has a copy finds it with its next write or look.
//!
//! ```text
//!   order ──▶ reads the record ── live ──▶ writes its end on this revision ──▶ recorded
//!                  ▲      │                        │
//!                  │      └── none, or ended       └── it has changed ──┐
//!                  └────────────────────────────────────────────────────┘
//! ```
//!
//! A session that is on its way to this node has no record that this node could end in time: its search learns of the order, and the session
//! ends as it comes.

use std::collections::{BTreeSet, HashMap};

use encke_core::{Amount, Budget, Id, NodeTag, SessionOwner, ShardMessage, Share, Shares, Urgency};
use foldhash::fast::RandomState;

use super::notices::Notice;
use super::own::KeyCommand;
use super::record::{Key, Record};
use super::{ENDED_TTL_MS, Output, Sent, Sessions};
use crate::command::{Command, Expected, KeyAnswer, KeyFailure, KeyReply};

/// An order to end a session.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The session.
    pub session: Id,
    /// True if a node has had it, and has ended it.
    pub is_known: bool,
    /// The one who has caused the order. None: the program, or the HTTP API.
    pub owner: Option<SessionOwner>,
    /// Comes back with [`Output::Ordered`]. None: nobody waits, and the node that has the session has time to end it by itself.
    pub waiter: Option<u64>,
}

/// The outcome of an [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// The end is in the record: no node goes on with the session.
    Recorded,
    /// No node has had the session, and it has no record, or one that says that it has ended.
    Unknown,
    /// The record could not be read or written in time. It is tried for a minute.
    Unrecorded,
}

/// The orders of one node that are on their way.
#[derive(Default)]
pub(super) struct Orders {
    all: HashMap<u64, Running, RandomState>,
    /// The times at which something is to be done, in milliseconds.
    due: BTreeSet<(u64, u64)>,
    shares: Shares<Option<SessionOwner>>,
    last: u64,
    /// True if a command about a key has not failed: the engine keeps keys.
    pub(super) has_keys: bool,
    /// Ends written, and orders that were given up or refused.
    pub(super) recorded: u64,
    pub(super) failed: u64,
}

/// An order that is on its way.
struct Running {
    order: Order,
    share: Share<Option<SessionOwner>>,
    step: Step,
    /// The time until which somebody waits, and that until which it is tried, in milliseconds.
    waits_until_ms: u64,
    until_ms: u64,
    /// The node that the record has named.
    node: Option<NodeTag>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Rests,
    Reads,
    Writes,
}

impl Orders {
    /// The time at which something is to be done, in milliseconds.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    fn take_due(&mut self, now_ms: u64) -> Option<u64> {
        let (due_ms, number) = *self.due.first().filter(|(due_ms, _)| *due_ms <= now_ms)?;
        self.due.remove(&(due_ms, number));
        Some(number)
    }
}

impl Sessions {
    /// Writes the end of a session into its record, and ends it if it comes to this node.
    pub fn order_end(&mut self, now_ms: u64, order: Order) {
        self.ends_if_it_comes(&order.session);
        let orders = &mut self.orders;
        let budget = Budget::new(ORDERS_MAX, usize::MAX);
        let Ok(share) = orders.shares.take(&budget, order.owner, Amount::of(1), Urgency::Common) else {
            orders.failed += 1;
            return self.outputs.extend(order.waiter.map(|waiter| Output::Ordered(waiter, Ordered::Unrecorded)));
        };
        orders.last += 1;
        let (number, waits_until_ms) = (orders.last, now_ms + self.settings.reply_delay_max_ms);
        let begins_ms = if order.waiter.is_some() { now_ms } else { now_ms + ORDER_DELAY_MS };
        orders.due.insert((begins_ms, number));
        orders.due.extend(order.waiter.map(|_| (waits_until_ms, number)));
        let until_ms = now_ms + ORDER_MAX_MS;
        let running = Running { order, share, step: Step::Rests, waits_until_ms, until_ms, node: None };
        orders.all.insert(number, running);
    }

    /// The time for which an order has to be known, in milliseconds. Nobody has a copy of a session for longer than a record lives, unless it waits
    /// on the disk of a node.
    pub fn order_ttl_ms(&self) -> u64 {
        self.settings.record_ttl_ms.max(ENDED_TTL_MS)
    }

    /// A session has ended by an order: if it is on its way to this node, it ends as it comes.
    pub fn ends_if_it_comes(&mut self, session: &Id) {
        self.searches.end(&Key::of(session));
    }

    /// Goes on with the orders whose time has come.
    pub(super) fn turn_orders(&mut self, now_ms: u64) {
        while let Some(number) = self.orders.take_due(now_ms) {
            let Some(running) = self.orders.all.get_mut(&number) else { continue };
            if now_ms >= running.waits_until_ms || !self.is_connected {
                let waiter = running.order.waiter.take();
                self.outputs.extend(waiter.map(|waiter| Output::Ordered(waiter, Ordered::Unrecorded)));
            }
            if running.step != Step::Rests {
                continue;
            }
            if now_ms >= running.until_ms {
                self.end_order(number, Ordered::Unrecorded);
            } else if self.is_connected {
                running.step = Step::Reads;
                let key = Key::of(&running.order.session);
                let command = self.number(Sent::Order(number));
                self.send_key_command(command, KeyCommand::Read(key));
            } else {
                self.orders.due.insert((now_ms + RETRY_MS, number));
            }
        }
    }

    /// A command of an order has its result.
    pub(super) fn order_answered(&mut self, now_ms: u64, number: u64, answer: &KeyReply) {
        self.orders.has_keys |= !matches!(answer, Err(KeyFailure::Failed(_)));
        let Some(running) = self.orders.all.get_mut(&number) else { return };
        let (step, is_known) = (running.step, running.order.is_known || running.node.is_some());
        running.step = Step::Rests;
        match (step, answer) {
            (Step::Reads, Ok(KeyAnswer::Found(found))) => {
                let found = found.as_ref().map(|(revision, value)| (*revision, Record::read(value)));
                match found {
                    Some((revision, Some(Record::Live { node, .. }))) => {
                        running.node = Some(node);
                        self.write_end(number, Expected::Revision(revision));
                    }
                    Some((revision, Some(Record::Ended))) if is_known => self.is_recorded(number, revision),
                    None if is_known => self.write_end(number, Expected::Absent),
                    Some((_, Some(Record::Ended))) | None => self.end_order(number, Ordered::Unknown),
                    // Of another version.
                    Some((revision, None)) => self.write_end(number, Expected::Revision(revision)),
                }
            }
            (Step::Writes, Ok(KeyAnswer::Written(revision))) => self.is_recorded(number, *revision),
            (Step::Writes, Err(KeyFailure::Conflict)) => _ = self.orders.due.insert((now_ms + CONFLICT_MS, number)),
            // An engine without keys: nobody takes a session over.
            _ if !self.orders.has_keys => {
                self.end_order(number, if is_known { Ordered::Unrecorded } else { Ordered::Unknown });
            }
            _ => _ = self.orders.due.insert((now_ms + RETRY_MS, number)),
        }
    }

    fn write_end(&mut self, number: u64, expected: Expected) {
        let Some(running) = self.orders.all.get_mut(&number) else { return };
        running.step = Step::Writes;
        let key = Key::of(&running.order.session).text();
        let number = self.number(Sent::Order(number));
        let ttl_ms = Some(self.order_ttl_ms());
        let (bucket, value) = (self.settings.bucket.clone(), Record::Ended.write());
        self.outputs.push(Output::Engine(Command::Put { number, bucket, key, value, expected, ttl_ms }));
    }

    /// The end of a session has this revision.
    fn is_recorded(&mut self, number: u64, revision: u64) {
        let Some(running) = self.orders.all.get(&number) else { return };
        let (key, node) = (Key::of(&running.order.session), running.node);
        match node {
            Some(node) if node == self.settings.node => self.records.may_be_taken(key, revision),
            // It is gone, or it may have the session still.
            Some(node) => self.tell_taken(Notice::of_end(key, node, revision)),
            None => {}
        }
        self.end_order(number, Ordered::Recorded);
    }

    fn end_order(&mut self, number: u64, outcome: Ordered) {
        let Some(Running { order, share, .. }) = self.orders.all.remove(&number) else { return };
        self.orders.shares.give_back(share);
        self.orders.recorded += u64::from(outcome == Ordered::Recorded);
        self.orders.failed += u64::from(outcome == Ordered::Unrecorded);
        self.outputs.extend(order.waiter.map(|waiter| Output::Ordered(waiter, outcome)));
    }

    /// A session has ended. `binds`: also where another node has a copy. `reply`: the number of a reply that waits until no node can go on
    /// with it.
    pub(super) fn ended(&mut self, now_ms: u64, id: &Id, binds: bool, reply: Option<u64>) {
        let (has_record, key) = (self.records.ended(id, binds), Key::of(id));
        self.confirming.written(&key);
        let Some(reply) = reply else { return };
        self.ends.entry(key).or_insert_with(|| (*id, Vec::new())).1.push(reply);
        if has_record && self.is_connected && !self.records.fails {
            self.ends_until.push_back((now_ms + self.settings.reply_delay_max_ms, key));
        } else {
            self.has_ended(&key);
        }
    }

    /// Lets the replies leave that have waited for the end of a session.
    pub(super) fn has_ended(&mut self, key: &Key) {
        if let Some((id, replies)) = self.ends.remove(key) {
            self.outputs.push(Output::Shard(self.shard_of(&id), ShardMessage::InterestKnown(replies)));
        }
    }
}

/// Orders of a node that are on their way, of some 200 bytes each. Those who have caused them share this room.
const ORDERS_MAX: usize = 4_096;
/// The time that the node with a session has to end it by itself, if nobody waits, in milliseconds.
const ORDER_DELAY_MS: u64 = 1_000;
/// The time for which an order is tried, in milliseconds.
const ORDER_MAX_MS: u64 = 60_000;
/// The pause after another node was first, and that after a failure, in milliseconds.
const CONFLICT_MS: u64 = 20;
const RETRY_MS: u64 = 1_000;
