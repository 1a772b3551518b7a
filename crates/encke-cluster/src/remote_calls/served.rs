//! Calls of other nodes that this node serves. A call that must not run twice runs once, though the engine doubles it or its node sends it
//! again: its answer is stored until its node says that the call has ended, and the number counts as known from then on.
//!
//! Orders have half of the room at most, and the nodes that call share it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use encke_core::{Amount, Budget, Share, Shares, Urgency};
use foldhash::fast::RandomState;

use super::CallKind;
use super::message::Call;

/// The calls of other nodes.
pub(super) struct Served {
    callers: HashMap<u64, Caller, RandomState>,
    /// Calls that run, by their numbers here.
    running: HashMap<u64, Running, RandomState>,
    /// The times after which they are forgotten, in milliseconds, oldest first.
    until: VecDeque<(u64, u64)>,
    room: Room,
    last: u64,
}

/// The room of calls that run. The owners are the nodes that call.
struct Room {
    max: usize,
    orders: Shares<u64>,
    others: Shares<u64>,
}

/// A node that calls.
#[derive(Default)]
struct Caller {
    /// Calls below this number have ended.
    settled: u64,
    /// Its calls that run once.
    calls: BTreeMap<u64, State>,
    /// The number of its last call here.
    last: u64,
}

enum State {
    Runs(u64),
    Answered(Bytes),
}

struct Running {
    reply_to: String,
    /// The node and the number of a call that runs once.
    once: Option<(u64, u64)>,
    kind: CallKind,
    share: Share<u64>,
}

/// The result of [`Served::begin`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It runs, under this number.
    Runs(u64),
    /// It has run: this is its answer.
    Answered(Bytes),
    /// It runs already, or its node does not wait for it any more.
    Known,
    /// Too many run.
    Full,
}

impl Served {
    /// None. `running_max`: calls that run at once.
    pub(super) fn new(running_max: usize) -> Served {
        let (callers, running, until) = (HashMap::default(), HashMap::default(), VecDeque::new());
        let room = Room { max: running_max, orders: Shares::default(), others: Shares::default() };
        Served { callers, running, until, room, last: 0 }
    }

    /// A call has come.
    pub(super) fn begin(&mut self, now_ms: u64, reply_to: &str, call: &Call) -> Begun {
        let run = self.last + 1;
        let once = (call.kind != CallKind::Question).then_some((call.node, call.number));
        if once.is_some() {
            self.make_room(call.node);
            let caller = self.callers.entry(call.node).or_default();
            caller.settled = caller.settled.max(call.settled);
            caller.calls = caller.calls.split_off(&caller.settled);
            match caller.calls.get(&call.number) {
                _ if call.number < caller.settled => return Begun::Known,
                Some(State::Answered(answer)) => return Begun::Answered(answer.clone()),
                Some(State::Runs(run)) => {
                    // The answer goes to the one that waits now.
                    let running = self.running.get_mut(run);
                    running.into_iter().for_each(|running| running.reply_to = reply_to.into());
                    return Begun::Known;
                }
                None if caller.calls.len() >= self.room.remembered_max(call.kind) => return Begun::Full,
                None => {}
            }
        }
        let Some(share) = self.room.take(call.kind, call.node) else { return Begun::Full };
        if let Some(caller) = self.callers.get_mut(&call.node).filter(|_| once.is_some()) {
            caller.calls.insert(call.number, State::Runs(run));
            caller.last = run;
        }
        self.last = run;
        self.running.insert(run, Running { reply_to: reply_to.into(), once, kind: call.kind, share });
        self.until.push_back((now_ms + RUNS_MS, run));
        Begun::Runs(run)
    }

    /// A call has its answer. Returns the subject to which that goes.
    pub(super) fn end(&mut self, run: u64, answer: &Bytes) -> Option<String> {
        let Running { reply_to, once, kind, share } = self.running.remove(&run)?;
        self.room.give_back(kind, share);
        if let Some((node, number)) = once
            && let Some(state) = self.callers.get_mut(&node).and_then(|caller| caller.calls.get_mut(&number))
        {
            // The answers of calls that run once are counts.
            let is_short = answer.len() <= ANSWER_BYTES_MAX;
            *state = State::Answered(if is_short { answer.clone() } else { Bytes::new() });
        }
        Some(reply_to)
    }

    /// Forgets calls without an answer.
    pub(super) fn expire(&mut self, now_ms: u64) {
        while let Some((_, run)) = self.until.pop_front_if(|(until_ms, _)| *until_ms <= now_ms) {
            self.end(run, &Bytes::new());
        }
    }

    /// The calls that run.
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Forgets the node that has called least recently, if there are too many.
    fn make_room(&mut self, node: u64) {
        if self.callers.len() < CALLERS_MAX || self.callers.contains_key(&node) {
            return;
        }
        let oldest = self.callers.iter().min_by_key(|(_, caller)| caller.last).map(|(node, _)| *node);
        oldest.and_then(|oldest| self.callers.remove(&oldest));
    }
}

impl Room {
    /// Takes room for a call of a node. None if there is none. One node alone may have 7 of 8 parts, which is as much as a node has for orders
    /// that wait, so that none of them comes late.
    fn take(&mut self, kind: CallKind, node: u64) -> Option<Share<u64>> {
        let (shares, max) = match kind {
            CallKind::Order => {
                let half = self.max.div_ceil(2);
                (&mut self.orders, half.min(self.max.saturating_sub(self.others.used().count)))
            }
            CallKind::Question | CallKind::Command => {
                (&mut self.others, self.max.saturating_sub(self.orders.used().count))
            }
        };
        // No part is for nodes without a call: it would be less than a node has for orders.
        shares.take(&Budget::new(max, usize::MAX), node, Amount::of(1), Urgency::Urgent).ok()
    }

    fn give_back(&mut self, kind: CallKind, share: Share<u64>) {
        match kind {
            CallKind::Order => self.orders.give_back(share),
            CallKind::Question | CallKind::Command => self.others.give_back(share),
        }
    }

    /// The calls of one node that are remembered. Orders leave half to others.
    fn remembered_max(&self, kind: CallKind) -> usize {
        if kind == CallKind::Order { self.max } else { self.max.saturating_mul(2) }
    }
}

/// The time after which a call that has no answer is forgotten, in milliseconds.
const RUNS_MS: u64 = 60_000;
/// The most bytes of an answer that is stored.
const ANSWER_BYTES_MAX: usize = 1_024;
/// Nodes whose calls are remembered.
const CALLERS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, settled: u64) -> Call {
        Call { node: 7, number, settled, kind: CallKind::Command, content: Bytes::new() }
    }

    #[test]
    fn a_call_runs_once_until_its_node_has_forgotten_it_and_after() {
        let mut served = Served::new(10);
        assert_eq!(served.begin(0, "one", &call(5, 5)), Begun::Runs(1));
        assert_eq!(served.begin(0, "two", &call(5, 5)), Begun::Known);
        assert_eq!(served.end(1, &Bytes::from_static(b"2")), Some("two".into()), "to the one that waits now");
        assert_eq!(served.begin(0, "three", &call(5, 5)), Begun::Answered(Bytes::from_static(b"2")));
        assert_eq!(served.begin(0, "four", &call(6, 6)), Begun::Runs(2));
        assert_eq!(served.begin(0, "five", &call(5, 5)), Begun::Known, "it has ended");
        assert_eq!(served.callers[&7].calls.len(), 1, "its answer is forgotten");
    }

    #[test]
    fn too_many_calls_are_refused_and_those_without_an_answer_are_forgotten() {
        let mut served = Served::new(3);
        assert_eq!(
            [5, 6, 7].map(|number| served.begin(0, "a", &call(number, 5))),
            [Begun::Runs(1), Begun::Runs(2), Begun::Full]
        );
        let read = Call { kind: CallKind::Question, ..call(8, 5) };
        assert_eq!(served.begin(0, "a", &read), Begun::Full);
        served.expire(RUNS_MS);
        assert_eq!((served.len(), served.begin(0, "a", &read)), (0, Begun::Runs(3)));
        assert_eq!(served.begin(0, "a", &read), Begun::Runs(4), "a read may run twice");
    }

    #[test]
    fn orders_leave_half_to_others_and_no_node_takes_all() {
        let mut served = Served::new(64);
        let mut last = 0;
        let mut fill = |served: &mut Served, kind: CallKind, node: u64| {
            let begins = |_: &u64| {
                last += 1;
                served.begin(0, "a", &Call { node, kind, ..call(last, 0) }) != Begun::Full
            };
            (0..100).take_while(begins).count()
        };
        assert_eq!(fill(&mut served, CallKind::Order, 1), 28, "seven of eight parts of a half");
        assert!(fill(&mut served, CallKind::Order, 2) > 0, "another node has its part");
        (3..10).for_each(|node| _ = fill(&mut served, CallKind::Order, node));
        assert!(served.len() <= 32, "{}", served.len());
        let commands = fill(&mut served, CallKind::Command, 1);
        assert!(commands >= 28, "{commands} of a node whose orders have their part");
        assert!(fill(&mut served, CallKind::Command, 2) > 0, "another node has its part");
        assert!(fill(&mut served, CallKind::Question, 3) > 0, "another node has its part");
        assert!(served.len() <= 64, "{}", served.len());
        served.expire(RUNS_MS);
        assert_eq!((served.room.orders.owners(), served.room.others.owners()), (0, 0));
    }

    #[test]
    fn answers_of_orders_that_are_stored_leave_room_for_commands() {
        let mut served = Served::new(8);
        let orders = (1..20).filter(|number| {
            let begun = served.begin(0, "a", &Call { kind: CallKind::Order, ..call(*number, 0) });
            matches!(begun, Begun::Runs(run) if served.end(run, &Bytes::new()).is_some())
        });
        assert_eq!(orders.count(), 8);
        assert_eq!(served.begin(0, "a", &call(20, 0)), Begun::Runs(9));
    }
}
