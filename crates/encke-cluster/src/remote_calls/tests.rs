//! Remote calls on an engine in memory, which delays, loses and doubles.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::dice::Dice;
use crate::remote_calls::peers::GONE_MS;
use crate::sessions::tests::tag;

/// The most bytes of a message of the engine.
const BODY_BYTES_MAX: usize = 10_000;
const WAIT_MS: u64 = 5_000;

struct Member {
    calls: RemoteCalls,
    is_alive: bool,
    /// The contents of the calls that have run.
    ran: Vec<Bytes>,
    /// Calls that run and are not answered yet.
    held: Vec<u64>,
    holds: bool,
    done: BTreeMap<u64, Answers>,
}

enum Flight {
    /// To a subject, and the address of the answer.
    Message(String, Option<String>, Vec<u8>),
    Answer(String, Vec<u8>),
}

struct Cluster {
    members: Vec<Member>,
    flights: VecDeque<Flight>,
    /// The times until which requests wait, by the addresses of their answers.
    waiting: BTreeMap<String, u64>,
    now_ms: u64,
    dice: Dice,
    /// Losses, doubles and delays in this many of 1,000 cases.
    loses: u64,
    doubles: u64,
    delays: u64,
}

fn settings(node: u64) -> RemoteCallsSettings {
    RemoteCallsSettings {
        node,
        tag: tag(node),
        subjects: Subjects::of("test").expect("a valid name"),
        wait_ms: WAIT_MS,
        calls_max: 8,
        bytes_max: 20_000,
    }
}

impl Cluster {
    fn new(nodes: u64, seed: u64) -> Cluster {
        let member = |node| Member {
            calls: RemoteCalls::new(settings(node)),
            is_alive: true,
            ran: Vec::new(),
            held: Vec::new(),
            holds: false,
            done: BTreeMap::new(),
        };
        let mut cluster = Cluster {
            members: (0..nodes).map(member).collect(),
            flights: VecDeque::new(),
            waiting: BTreeMap::new(),
            now_ms: 1_000_000,
            dice: Dice::new(seed),
            loses: 0,
            doubles: 0,
            delays: 0,
        };
        (0..nodes as usize).for_each(|node| cluster.connect(node));
        cluster.pass(100);
        cluster
    }

    fn connect(&mut self, node: usize) {
        self.members[node].calls.connected(self.now_ms, BODY_BYTES_MAX);
        self.turn(node);
    }

    fn call(&mut self, node: usize, content: &'static str) -> u64 {
        self.call_of(CallKind::Command, node, content)
    }

    fn call_of(&mut self, kind: CallKind, node: usize, content: &'static str) -> u64 {
        let content = Bytes::from_static(content.as_bytes());
        let call = self.members[node].calls.call(self.now_ms, Callee::All, kind, content);
        self.turn(node);
        call
    }

    /// Lets time pass.
    fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            while let Some(flight) = self.flights.pop_front() {
                self.arrive(flight);
            }
            self.now_ms += 20;
            let late: Vec<String> =
                self.waiting.iter().filter(|(_, until)| **until <= self.now_ms).map(|(to, _)| to.clone()).collect();
            late.iter().for_each(|to| self.end_request(to, Err(RequestFailure::TimedOut)));
            (0..self.members.len()).for_each(|node| self.turn(node));
        }
    }

    fn turn(&mut self, node: usize) {
        let member = &mut self.members[node];
        if !member.is_alive {
            return;
        }
        member.calls.turn(self.now_ms);
        for output in member.calls.take_outputs() {
            match output {
                RemoteCallOutput::Engine(Command::Send { subject, body }) => {
                    self.flights.push_back(Flight::Message(subject, None, body));
                }
                RemoteCallOutput::Engine(Command::Request { number, subject, body, timeout_ms }) => {
                    let to = format!("{node}:{number}");
                    self.waiting.insert(to.clone(), self.now_ms + timeout_ms);
                    self.flights.push_back(Flight::Message(subject, Some(to), body));
                }
                RemoteCallOutput::Engine(Command::Answer { reply_to, body }) => {
                    self.flights.push_back(Flight::Answer(reply_to, body.to_vec()));
                }
                RemoteCallOutput::Engine(_) => {}
                RemoteCallOutput::Asked { run, content, .. } => {
                    member.ran.push(content);
                    if member.holds {
                        member.held.push(run);
                    } else {
                        member.calls.answer(run, b"1");
                    }
                }
                RemoteCallOutput::Done(call, answers) => {
                    assert!(member.done.insert(call, answers).is_none(), "a call is done twice");
                }
            }
        }
        for output in member.calls.take_outputs() {
            if let RemoteCallOutput::Engine(Command::Answer { reply_to, body }) = output {
                self.flights.push_back(Flight::Answer(reply_to, body.to_vec()));
            }
        }
    }

    fn arrive(&mut self, flight: Flight) {
        if self.dice.happens(self.loses) {
            return;
        }
        if self.dice.happens(self.delays) {
            return self.flights.push_back(flight);
        }
        let copies = 1 + u64::from(self.dice.happens(self.doubles));
        match flight {
            Flight::Answer(to, body) => self.end_request(&to, Ok(body.into())),
            Flight::Message(subject, reply_to, body) => {
                let body = Bytes::from(body);
                let own = |node: usize| settings(0).subjects.of_remote_calls(node as u64);
                let all = settings(0).subjects.of_all_nodes();
                let receivers = (0..self.members.len()).filter(|node| subject == all || subject == own(*node));
                let receivers: Vec<usize> = receivers.filter(|node| self.members[*node].is_alive).collect();
                if receivers.is_empty()
                    && let Some(to) = &reply_to
                {
                    self.end_request(to, Err(RequestFailure::NoResponders));
                }
                for node in receivers {
                    for _ in 0..copies {
                        self.members[node].calls.received(self.now_ms, reply_to.as_deref(), &body);
                        self.turn(node);
                    }
                }
            }
        }
    }

    fn end_request(&mut self, to: &str, answer: Result<Bytes, RequestFailure>) {
        // Of two answers the first counts.
        if self.waiting.remove(to).is_none() {
            return;
        }
        let (node, number) = to.split_once(':').expect("an address");
        let (node, number): (usize, u64) = (node.parse().expect("a node"), number.parse().expect("a number"));
        self.members[node].calls.answered(self.now_ms, number, answer);
        self.turn(node);
    }

    /// The number of nodes that were called, and that have answered.
    fn done(&self, node: usize, call: u64) -> Option<(usize, usize)> {
        self.members[node].done.get(&call).map(|answers| (answers.nodes, answers.answers.len()))
    }
}

#[test]
fn all_nodes_answer_a_call() {
    let mut cluster = Cluster::new(4, 1);
    assert_eq!(cluster.members[2].calls.counts().nodes, 4, "nodes learn of each other at once");
    let call = cluster.call(2, "a");
    cluster.pass(100);
    assert_eq!(cluster.done(2, call), Some((3, 3)));
    assert_eq!(cluster.members.iter().map(|member| member.ran.len()).collect::<Vec<_>>(), [1, 1, 0, 1]);
    assert_eq!(cluster.members[2].calls.counts().waiting_bytes, 0);
}

#[test]
fn a_call_may_go_to_one_node_alone() {
    let mut cluster = Cluster::new(3, 1);
    let now_ms = cluster.now_ms;
    let calls = &mut cluster.members[0].calls;
    let one = [Callee::Tagged(tag(1)), Callee::Node(2), Callee::Tagged(tag(9)), Callee::Node(0)]
        .map(|callee| calls.call(now_ms, callee, CallKind::Question, Bytes::from_static(b"a")));
    cluster.turn(0);
    cluster.pass(100);
    assert_eq!(one.map(|call| cluster.done(0, call).expect("done")), [(1, 1), (1, 1), (0, 0), (0, 0)]);
    assert_eq!((cluster.members[1].ran.len(), cluster.members[2].ran.len()), (1, 1));
}

#[test]
fn a_killed_node_is_not_waited_for() {
    let mut cluster = Cluster::new(3, 1);
    cluster.members[1].is_alive = false;
    let call = cluster.call(0, "a");
    cluster.pass(1_000);
    assert_eq!(cluster.done(0, call), Some((1, 1)), "nobody listens for it");
    assert_eq!(cluster.members[0].calls.counts().nodes, 2);
}

#[test]
fn a_node_that_does_not_answer_is_counted_and_is_gone_when_it_stays_silent() {
    let mut cluster = Cluster::new(3, 1);
    cluster.members[1].holds = true;
    let call = cluster.call(0, "a");
    cluster.pass(WAIT_MS - 200);
    assert_eq!(cluster.done(0, call), None);
    cluster.pass(300);
    assert_eq!(cluster.done(0, call), Some((2, 1)));
    assert_eq!(cluster.members[1].ran.len(), 1, "it was sent again, and runs once");
    assert_eq!(cluster.members[0].calls.counts().unanswered, 1);
    cluster.members[1].is_alive = false;
    cluster.pass(GONE_MS);
    assert_eq!(cluster.members[0].calls.counts().nodes, 2);
}

#[test]
fn without_the_engine_a_call_is_done_at_once_and_names_the_nodes_it_missed() {
    let mut cluster = Cluster::new(3, 1);
    cluster.members[1].holds = true;
    let first = cluster.call(0, "a");
    cluster.members[0].calls.disconnected();
    let second = cluster.call(0, "b");
    assert_eq!([first, second].map(|call| cluster.done(0, call)), [Some((2, 0)); 2]);
    cluster.pass(GONE_MS + 1_000);
    assert_eq!(cluster.members[0].calls.counts().nodes, 3, "it does not forget them while it cannot see them");
    cluster.members[1].holds = false;
    cluster.connect(0);
    cluster.pass(100);
    let third = cluster.call(0, "c");
    cluster.pass(100);
    assert_eq!(cluster.done(0, third), Some((2, 2)));
}

#[test]
fn calls_and_their_bytes_have_a_bound() {
    let mut cluster = Cluster::new(2, 1);
    cluster.members[1].holds = true;
    let calls: Vec<u64> = (0..10).map(|_| cluster.call(0, "a")).collect();
    cluster.pass(100);
    let done = calls.iter().filter(|call| cluster.done(0, **call) == Some((1, 0))).count();
    assert_eq!((done, cluster.members[0].calls.counts().refused), (2, 2), "eight wait");
    cluster.pass(WAIT_MS);
    let now_ms = cluster.now_ms;
    let calls = &mut cluster.members[0].calls;
    let large = Bytes::from(vec![b'x'; 9_000]);
    (0..3).for_each(|_| _ = calls.call(now_ms, Callee::All, CallKind::Command, large.clone()));
    calls.call(now_ms, Callee::All, CallKind::Command, Bytes::from(vec![b'x'; BODY_BYTES_MAX]));
    assert_eq!((calls.counts().waiting, calls.counts().refused), (2, 4), "bytes, and one too large for the engine");
    assert_eq!(cluster.members[1].calls.counts().refused, 5, "one node has seven of eight parts: each try of one");
}

#[test]
fn orders_that_wait_for_a_silent_node_leave_room_for_commands() {
    let mut cluster = Cluster::new(3, 1);
    cluster.members[1].holds = true;
    (0..50).for_each(|_| _ = cluster.call_of(CallKind::Order, 0, "a"));
    let orders = cluster.members[0].calls.counts().waiting;
    assert!((1..=4).contains(&orders), "{orders} of eight");
    let call = cluster.call(0, "b");
    cluster.pass(WAIT_MS + 100);
    assert_eq!(cluster.done(0, call), Some((2, 1)), "the node that is well has it");
    let has_it = |node: usize| cluster.members[node].ran.iter().filter(|ran| *ran == "b").count();
    assert_eq!((has_it(1), has_it(2)), (1, 1));
    // Bytes likewise.
    let now_ms = cluster.now_ms;
    let (calls, large) = (&mut cluster.members[0].calls, Bytes::from(vec![b'x'; 4_000]));
    (0..8).for_each(|_| _ = calls.call(now_ms, Callee::All, CallKind::Order, large.clone()));
    assert!(calls.counts().waiting_bytes <= 10_000, "{}", calls.counts().waiting_bytes);
    let waiting = calls.counts().waiting;
    calls.call(now_ms, Callee::All, CallKind::Command, large);
    assert_eq!(calls.counts().waiting, waiting + 1);
}

#[test]
fn the_orders_of_one_client_leave_room_for_those_of_others() {
    let mut cluster = Cluster::new(2, 1);
    cluster.members[1].holds = true;
    let (now_ms, calls) = (cluster.now_ms, &mut cluster.members[0].calls);
    let mut waiting = |owner: u64| {
        calls.order(now_ms, (Some(SessionOwner::of(owner)), Urgency::Common), Bytes::from_static(b"a"));
        calls.counts().waiting
    };
    let of_one = (0..50).map(|_| waiting(1)).max();
    assert_eq!(of_one, Some(2), "of eight, three are for orders");
    assert_eq!((waiting(2), waiting(1)), (3, 3), "another one finds room");
}

#[test]
fn the_orders_of_a_client_do_not_delay_his_end_nor_that_of_others() {
    let mut cluster = Cluster::new(2, 1);
    cluster.members[1].holds = true;
    let (now_ms, calls) = (cluster.now_ms, &mut cluster.members[0].calls);
    (calls.settings.calls_max, calls.settings.bytes_max) = (64, 1 << 20);
    let mut orders = |owner: u64, urgency: Urgency, count: usize| {
        let before = calls.counts().waiting;
        (0..count).for_each(|_| {
            calls.order(now_ms, (Some(SessionOwner::of(owner)), urgency), Bytes::from_static(b"a"));
        });
        calls.counts().waiting - before
    };
    assert!((15..28).contains(&orders(1, Urgency::Common, 100)), "of 28 that are for orders");
    assert_eq!((orders(1, Urgency::Common, 1), orders(1, Urgency::Urgent, 1)), (0, 1));
    (2..50).for_each(|owner| _ = orders(owner, Urgency::Common, 10));
    assert_eq!(orders(50, Urgency::Common, 1), 0, "all have their part");
    assert_eq!(orders(50, Urgency::Urgent, 1), 1);
}

#[test]
fn bytes_that_are_no_message_are_counted() {
    let mut cluster = Cluster::new(2, 1);
    let calls = &mut cluster.members[0].calls;
    calls.received(0, None, &Bytes::from_static(b"nothing"));
    calls.received(0, Some("a"), &Message::Hello(1, tag(1)).write().into());
    assert_eq!(calls.counts().rejected, 2);
}

#[test]
fn lost_and_doubled_messages_run_no_call_twice_and_lose_none_that_was_answered() {
    for seed in 0..200 {
        let mut cluster = Cluster::new(3, seed);
        (cluster.loses, cluster.doubles, cluster.delays) = (150, 200, 300);
        let mut calls = Vec::new();
        for _ in 0..12 {
            let node = cluster.dice.random(3) as usize;
            calls.push((node, cluster.call(node, ["x", "y", "z"][node])));
            let ms = cluster.dice.random(2_000);
            cluster.pass(ms);
        }
        cluster.pass(WAIT_MS + 1_000);
        for (node, call) in &calls {
            let (nodes, answered) = cluster.done(*node, *call).expect("each call is done");
            assert!(answered <= nodes && nodes <= 2, "seed {seed}: {answered} of {nodes}");
        }
        for (index, member) in cluster.members.iter().enumerate() {
            for (caller, content) in ["x", "y", "z"].iter().enumerate() {
                let ran = member.ran.iter().filter(|ran| *ran == content).count();
                let of_caller = calls.iter().filter(|(node, _)| *node == caller);
                let done = of_caller.clone().filter_map(|(node, call)| cluster.members[*node].done.get(call));
                let answered = done.filter(|done| done.answers.iter().any(|(node, _)| *node == index as u64)).count();
                assert!(ran <= of_caller.count(), "seed {seed}: a call has run twice");
                assert!(ran >= answered, "seed {seed}: a call was answered and has not run");
            }
        }
    }
}
