//! Remote calls: commands and questions of one node that other nodes answer, such as the end of all sessions of a user. [`RemoteCalls`] is a
//! deterministic machine like [`Node`](crate::Node), on the same engine. It does not know what the calls say.
//!
//! ```text
//!   call ──▶ RemoteCalls ── a request to each node ──▶ engine ──▶ RemoteCalls of the other ── Asked ──▶ its server
//!    ▲           │                                                     ▲
//!    └── Done ───┴───────────────── answers ───── engine ◀─────────────┴─── answer
//! ```
//!
//! The contract:
//!
//! - Each call is done once, with the answers that have come: at the latest after [`RemoteCallsSettings::wait_ms`], at once while the engine
//!   is away.
//! - A call that must not run twice runs at most once on each node, though it is sent again while its answer is missing.
//! - Orders, of which clients cause as many as they like, leave at least half of the room to what somebody waits for, and no client takes
//!   the room of the others' orders, or of the orders that end sessions.
//! - A node is called if it has said within seconds that it is there. A node for which nobody listens is gone, and is not waited for.

mod message;
mod peers;
mod served;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use encke_core::{Amount, Budget, NodeTag, SessionOwner, Share, Shares, Urgency};
use foldhash::fast::RandomState;

use crate::command::{Command, RequestFailure};
use crate::subject::Subjects;
use message::{Call, HEAD_BYTES, Message};
use peers::Peers;
use served::{Begun, Served};

/// The settings of [`RemoteCalls`].
#[derive(Clone, Debug)]
pub struct RemoteCallsSettings {
    /// A random number that no other node and start has.
    pub node: u64,
    /// The name of this node in the ids of its sessions.
    pub tag: NodeTag,
    /// The subjects of the cluster.
    pub subjects: Subjects,
    /// The longest wait for the answers to a call, in milliseconds.
    pub wait_ms: u64,
    /// Calls of this node that wait for answers, and as many of other nodes that run here. Orders may be half of them.
    pub calls_max: usize,
    /// Bytes of the calls of this node that wait. Orders may have half of them.
    pub bytes_max: usize,
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// It may run twice, and somebody waits for the answers.
    Question,
    /// It must not run twice, and somebody waits for the answers.
    Command,
    /// It must not run twice, and nobody waits for the answers. Clients cause it, by hooks and services.
    Order,
}

/// The nodes that are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// All others.
    All,
    /// The one with this number.
    Node(u64),
    /// The one with this name in the ids of its sessions.
    Tagged(NodeTag),
}

/// The answers to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The number of nodes that were called.
    pub nodes: usize,
    /// Those that have answered, with their answers.
    pub answers: Vec<(u64, Bytes)>,
}

/// Something to be done for [`RemoteCalls`].
#[derive(Debug, PartialEq, Eq)]
pub enum RemoteCallOutput {
    /// Run this command.
    Engine(Command),
    /// Run this call of another node, and answer by [`RemoteCalls::answer`].
    Asked {
        /// Names the call.
        run: u64,
        /// The call.
        content: Bytes,
        /// The most bytes of the answer.
        bytes_max: usize,
    },
    /// The call with this number is done.
    Done(u64, Answers),
}

/// The counts of [`RemoteCalls`] since its start, and its sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteCallCounts {
    /// The nodes of the cluster that are there, with this one.
    pub nodes: usize,
    /// Calls of this node that wait for answers.
    pub waiting: usize,
    /// Their bytes.
    pub waiting_bytes: usize,
    /// Calls of other nodes that run here.
    pub serving: usize,
    /// Calls of this node.
    pub called: u64,
    /// Answers that did not come in time.
    pub unanswered: u64,
    /// Calls of other nodes that were run.
    pub served: u64,
    /// Calls of this node that were not sent, and calls of others that were not run, because there were too many; and calls that are too
    /// large for the engine.
    pub refused: u64,
    /// Messages that are none of a node.
    pub rejected: u64,
}

/// The remote calls of one node.
pub struct RemoteCalls {
    settings: RemoteCallsSettings,
    peers: Peers,
    served: Served,
    /// Calls that wait for answers.
    waiting: BTreeMap<u64, Waiting>,
    /// Their room.
    shares: Shares<CallKind>,
    /// The room of orders, by those who have caused them. None: the program.
    orders: Shares<Option<SessionOwner>>,
    /// The call and the node of each request on its way.
    sent: HashMap<u64, (u64, u64), RandomState>,
    last_call: u64,
    last_request: u64,
    is_connected: bool,
    listens: bool,
    /// The most bytes of a message.
    body_bytes_max: usize,
    outputs: Vec<RemoteCallOutput>,
    counts: RemoteCallCounts,
}

/// A call that waits for answers.
struct Waiting {
    content: Bytes,
    kind: CallKind,
    share: Share<CallKind>,
    order: Option<Share<Option<SessionOwner>>>,
    /// The nodes that have not answered.
    missing: BTreeMap<u64, Missing>,
    answers: Answers,
    until_ms: u64,
}

/// A node that has not answered.
struct Missing {
    /// The time of the next request to it, in milliseconds. None: one is on its way.
    due_ms: Option<u64>,
    /// Times in a row that nobody has listened.
    absences: u32,
}

impl RemoteCalls {
    /// The number from which on requests are those of [`RemoteCalls`], up to those of [`Histories`](crate::Histories).
    pub const NUMBERS_FROM: u64 = 1 << 61;
    /// The keys of its subscriptions: what comes to all nodes, and to this one.
    pub const LISTENS_BY: [u64; 2] = [3, 4];

    /// The calls of a node whose engine is away.
    pub fn new(settings: RemoteCallsSettings) -> RemoteCalls {
        RemoteCalls {
            peers: Peers::default(),
            served: Served::new(settings.calls_max),
            waiting: BTreeMap::new(),
            shares: Shares::default(),
            orders: Shares::default(),
            sent: HashMap::default(),
            last_call: 0,
            last_request: RemoteCalls::NUMBERS_FROM,
            is_connected: false,
            listens: false,
            body_bytes_max: 0,
            outputs: Vec::new(),
            counts: RemoteCallCounts::default(),
            settings,
        }
    }

    /// True if a request with this number is one of [`RemoteCalls`].
    pub fn has_sent(number: u64) -> bool {
        (RemoteCalls::NUMBERS_FROM..RemoteCalls::NUMBERS_FROM * 2).contains(&number)
    }

    /// The engine is there, and takes messages of at most so many bytes.
    pub fn connected(&mut self, now_ms: u64, body_bytes_max: usize) {
        self.body_bytes_max = body_bytes_max;
        if std::mem::replace(&mut self.is_connected, true) {
            return;
        }
        if !std::mem::replace(&mut self.listens, true) {
            let subjects = &self.settings.subjects;
            let subjects = [subjects.of_all_nodes(), subjects.of_remote_calls(self.settings.node)];
            for (key, subject) in RemoteCalls::LISTENS_BY.into_iter().zip(subjects) {
                self.outputs.push(RemoteCallOutput::Engine(Command::Listen { key, subject }));
            }
        }
        self.peers.resume(now_ms);
    }

    /// The engine is away: calls are done with what has come.
    pub fn disconnected(&mut self) {
        self.is_connected = false;
        while let Some((call, _)) = self.waiting.first_key_value() {
            self.end(*call);
        }
    }

    /// Calls other nodes. Returns the number of the call, which [`RemoteCallOutput::Done`] names.
    pub fn call(&mut self, now_ms: u64, callee: Callee, kind: CallKind, content: Bytes) -> u64 {
        self.begin(now_ms, callee, (kind, None, Urgency::Common), content)
    }

    /// Calls all other nodes with an order that this owner has caused. None: the program. An urgent one, such as the end of the owner's own
    /// sessions, finds room beside all his others.
    pub fn order(&mut self, now_ms: u64, (owner, urgency): (Option<SessionOwner>, Urgency), content: Bytes) {
        self.begin(now_ms, Callee::All, (CallKind::Order, owner, urgency), content);
    }

    fn begin(
        &mut self,
        now_ms: u64,
        callee: Callee,
        (kind, owner, urgency): (CallKind, Option<SessionOwner>, Urgency),
        content: Bytes,
    ) -> u64 {
        self.last_call += 1;
        let call = self.last_call;
        let nodes: Vec<u64> = match callee {
            Callee::All => self.peers.all().collect(),
            Callee::Node(node) => Some(node).filter(|node| self.peers.has(*node)).into_iter().collect(),
            Callee::Tagged(tag) => self.peers.tagged(tag).into_iter().collect(),
        };
        self.counts.called += u64::from(!nodes.is_empty());
        let amount = Amount::one(content.len() + ENTRY_BYTES);
        let is_full =
            !self.has_room(kind, (owner, urgency), amount) || content.len() + HEAD_BYTES > self.body_bytes_max;
        let answers = Answers { nodes: nodes.len(), answers: Vec::new() };
        if nodes.is_empty() || is_full || !self.is_connected {
            self.counts.refused += u64::from(is_full && self.is_connected && !nodes.is_empty());
            self.outputs.push(RemoteCallOutput::Done(call, answers));
            return call;
        }
        let share = self.shares.take_regardless(kind, None, amount, Urgency::Common);
        let order = (kind == CallKind::Order).then(|| self.orders.take_regardless(owner, None, amount, urgency));
        let missing = nodes.iter().map(|node| (*node, Missing { due_ms: Some(now_ms), absences: 0 })).collect();
        let until_ms = now_ms + self.settings.wait_ms;
        self.waiting.insert(call, Waiting { content, kind, share, order, missing, answers, until_ms });
        nodes.into_iter().for_each(|node| self.send(now_ms, call, node));
        call
    }

    /// True if one more call may wait. Orders may have as much as is free, and so half, which their owners share. A part of it is for urgent ones.
    fn has_room(&self, kind: CallKind, (owner, urgency): (Option<SessionOwner>, Urgency), amount: Amount) -> bool {
        let RemoteCallsSettings { calls_max, bytes_max, .. } = self.settings;
        let used = self.shares.used();
        if used.count >= calls_max || used.bytes + amount.bytes > bytes_max {
            return false;
        }
        let budget = Budget::new(calls_max, bytes_max).with_alpha(1);
        // As much as all orders may have.
        let part = |max: usize| (max.saturating_mul(7) / 16).max(1);
        let of_orders = Budget::new(part(calls_max), part(bytes_max)).with_urgent();
        kind != CallKind::Order
            || (self.shares.admit(&budget, &kind, None, amount, Urgency::Common).is_ok()
                && self.orders.admit(&of_orders, &owner, None, amount, urgency).is_ok())
    }

    /// Answers a call of another node.
    pub fn answer(&mut self, run: u64, content: &[u8]) {
        let body = message::write_answer(content);
        if let Some(reply_to) = self.served.end(run, &Bytes::copy_from_slice(content))
            && body.len() <= self.body_bytes_max
        {
            self.outputs.push(RemoteCallOutput::Engine(Command::Answer { reply_to, body: body.into() }));
        }
    }

    /// A message of another node has come; `reply_to`: where its answer goes.
    pub fn received(&mut self, now_ms: u64, reply_to: Option<&str>, body: &Bytes) {
        match (Message::read(body), reply_to) {
            (Some(Message::Hello(node, tag)), None) if node != self.settings.node => {
                if self.peers.seen(now_ms, node, tag) && self.is_connected {
                    self.greet(self.settings.subjects.of_remote_calls(node));
                }
            }
            (Some(Message::Call(call)), Some(reply_to)) => self.serve(now_ms, reply_to, call),
            (Some(Message::Hello(..)), None) => {}
            _ => self.counts.rejected += 1,
        }
    }

    /// A request is answered, or has failed.
    pub fn answered(&mut self, now_ms: u64, number: u64, answer: Result<Bytes, RequestFailure>) {
        let Some((call, node)) = self.sent.remove(&number) else { return };
        let Some(waiting) = self.waiting.get_mut(&call) else { return };
        let Some(missing) = waiting.missing.get_mut(&node) else { return };
        match answer.map(|bytes| message::read_answer(&bytes)) {
            Ok(Some(content)) => {
                waiting.missing.remove(&node);
                waiting.answers.answers.push((node, content));
            }
            Ok(None) => {
                self.counts.rejected += 1;
                missing.due_ms = Some(now_ms + ABSENT_MS);
            }
            // NATS servers learn of a node one after another: once may be too early.
            Err(RequestFailure::NoResponders) if missing.absences > 0 => {
                waiting.missing.remove(&node);
                waiting.answers.nodes -= 1;
                self.peers.left(node);
            }
            Err(RequestFailure::NoResponders) => {
                *missing = Missing { due_ms: Some(now_ms + ABSENT_MS), absences: missing.absences + 1 };
            }
            Err(RequestFailure::TimedOut | RequestFailure::Away) => missing.due_ms = Some(now_ms),
        }
        if waiting.missing.is_empty() {
            self.end(call);
        }
    }

    /// Does what has to be done at a time. Call it after events, before [`RemoteCalls::take_outputs`].
    pub fn turn(&mut self, now_ms: u64) {
        self.served.expire(now_ms);
        if !self.is_connected {
            return;
        }
        self.peers.expire(now_ms);
        if self.peers.is_due(now_ms) {
            self.greet(self.settings.subjects.of_all_nodes());
        }
        let ended: Vec<u64> =
            self.waiting.iter().filter(|(_, waiting)| waiting.until_ms <= now_ms).map(|(call, _)| *call).collect();
        ended.into_iter().for_each(|call| self.end(call));
        let is_due = |missing: &Missing| missing.due_ms.is_some_and(|due_ms| due_ms <= now_ms);
        let mut due = Vec::new();
        for (call, waiting) in &self.waiting {
            due.extend(waiting.missing.iter().filter(|(_, it)| is_due(it)).map(|(node, _)| (*call, *node)));
        }
        due.into_iter().for_each(|(call, node)| self.send(now_ms, call, node));
    }

    /// The time at which [`RemoteCalls::turn`] has something to do, if nothing happens before.
    pub fn next_ms(&self) -> Option<u64> {
        let of_call = |waiting: &Waiting| {
            let due_ms = waiting.missing.values().filter_map(|missing| missing.due_ms).min();
            due_ms.map_or(waiting.until_ms, |due_ms| due_ms.min(waiting.until_ms))
        };
        let calls = self.waiting.values().map(of_call).min();
        self.is_connected.then(|| calls.map_or(self.peers.next_ms(), |calls_ms| calls_ms.min(self.peers.next_ms())))
    }

    /// Takes what has to be done, in order.
    pub fn take_outputs(&mut self) -> Vec<RemoteCallOutput> {
        std::mem::take(&mut self.outputs)
    }

    /// The number of this node, and those of the others that are there, in their order.
    pub fn nodes(&self) -> (u64, impl Iterator<Item = u64>) {
        (self.settings.node, self.peers.all())
    }

    /// Its counts and sizes.
    pub fn counts(&self) -> RemoteCallCounts {
        let (nodes, waiting) = (1 + self.peers.len(), self.waiting.len());
        let (waiting_bytes, serving) = (self.shares.used().bytes, self.served.len());
        RemoteCallCounts { nodes, waiting, waiting_bytes, serving, ..self.counts }
    }

    /// Says that this node is there.
    fn greet(&mut self, subject: String) {
        let body = Message::Hello(self.settings.node, self.settings.tag).write();
        self.outputs.push(RemoteCallOutput::Engine(Command::Send { subject, body }));
    }

    /// Sends a call to a node.
    fn send(&mut self, now_ms: u64, call: u64, node: u64) {
        let settled = self.waiting.first_key_value().map_or(call, |(first, _)| *first);
        let Some(waiting) = self.waiting.get_mut(&call) else { return };
        let Some(missing) = waiting.missing.get_mut(&node) else { return };
        missing.due_ms = None;
        self.last_request += 1;
        let number = self.last_request;
        let own = self.settings.node;
        let (kind, content) = (waiting.kind, waiting.content.clone());
        let body = Message::Call(Call { node: own, number: call, settled, kind, content }).write();
        let timeout_ms = RETRY_MS.min(waiting.until_ms.saturating_sub(now_ms)).max(1);
        let subject = self.settings.subjects.of_remote_calls(node);
        self.sent.insert(number, (call, node));
        self.outputs.push(RemoteCallOutput::Engine(Command::Request { number, subject, body, timeout_ms }));
    }

    /// A call is done.
    fn end(&mut self, call: u64) {
        let Some(waiting) = self.waiting.remove(&call) else { return };
        self.shares.give_back(waiting.share);
        waiting.order.into_iter().for_each(|order| self.orders.give_back(order));
        self.counts.unanswered += waiting.missing.len() as u64;
        self.outputs.push(RemoteCallOutput::Done(call, waiting.answers));
    }

    fn serve(&mut self, now_ms: u64, reply_to: &str, call: Call) {
        match self.served.begin(now_ms, reply_to, &call) {
            Begun::Runs(run) => {
                self.counts.served += 1;
                let bytes_max = self.body_bytes_max.saturating_sub(1);
                self.outputs.push(RemoteCallOutput::Asked { run, content: call.content, bytes_max });
            }
            Begun::Answered(answer) => {
                let body = message::write_answer(&answer);
                self.outputs
                    .push(RemoteCallOutput::Engine(Command::Answer { reply_to: reply_to.into(), body: body.into() }));
            }
            Begun::Known => {}
            Begun::Full => self.counts.refused += 1,
        }
    }
}

/// The time after which a call is sent again, in milliseconds.
const RETRY_MS: u64 = 1_000;
/// The pause before a node is called again for which nobody has listened, in milliseconds.
const ABSENT_MS: u64 = 200;
/// The bytes of a call that waits, beside its content.
const ENTRY_BYTES: usize = 512;
