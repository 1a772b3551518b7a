//! Nodes with random subscriptions on an engine in memory: the subscriptions that they make and the envelopes that reach them, beside what the
//! model computes. The nodes are those of the server.

use std::collections::HashMap;
use std::sync::Arc;

use bayeux::Limits;
use encke_cluster::{Command, Node, NodeLimits, Subjects};
use encke_core::{EncodedPublications, Interest, MailboxAccount, Side, message_frame};

use super::model::{number, part_that_wants};

/// A cluster, and what is published in it.
pub struct Case {
    pub name: &'static str,
    pub nodes: usize,
    pub sessions: usize,
    /// The subscribers of a channel, on average. 1: each session has a channel for itself alone.
    pub subscribers: usize,
    /// See `shared_from` in `[cluster]`.
    pub shared_from: usize,
}

pub const CASES: [Case; 6] = [
    Case { name: "rooms", nodes: 3, sessions: 3_000, subscribers: 100, shared_from: 4_096 },
    Case { name: "rooms", nodes: 30, sessions: 30_000, subscribers: 100, shared_from: 4_096 },
    Case { name: "rooms", nodes: 300, sessions: 30_000, subscribers: 100, shared_from: 4_096 },
    Case { name: "rooms, shared", nodes: 300, sessions: 30_000, subscribers: 100, shared_from: 16 },
    Case { name: "private", nodes: 30, sessions: 3_000, subscribers: 1, shared_from: 4_096 },
    Case { name: "private, shared", nodes: 30, sessions: 3_000, subscribers: 1, shared_from: 16 },
];

const PUBLICATIONS: usize = 3_000;
/// Rooms of each session.
const ROOMS_PER_SESSION: usize = 2;
/// Longer than a subscription that is replaced goes on.
const SETTLED_MS: u64 = 10_000;

/// Figures of a case, for each node and publication.
pub struct Figures {
    pub subscriptions: f64,
    pub reached: f64,
    pub unwanted: f64,
}

impl Case {
    fn channels(&self) -> usize {
        if self.subscribers == 1 { self.sessions } else { self.sessions * ROOMS_PER_SESSION / self.subscribers }
    }

    /// As the model computes them.
    pub fn computed(&self) -> Figures {
        let (nodes, channels) = (self.nodes as f64, self.channels() as f64);
        let wants = part_that_wants(self.subscribers as f64, nodes);
        let wanted = channels * wants;
        let others = 1.0 - 1.0 / nodes;
        let is_shared = wanted > self.shared_from as f64;
        Figures {
            subscriptions: if is_shared { 1.0 } else { wanted },
            reached: if is_shared { others } else { others * wants },
            unwanted: if is_shared { others * (1.0 - wants) } else { 0.0 },
        }
    }

    /// As the nodes of the server do it.
    pub fn simulated(&self) -> Figures {
        let mut random = Random(self.nodes as u64);
        let mut members: Vec<Member> = (0..self.nodes).map(|index| Member::new(index, self.shared_from)).collect();
        for session in 0..self.sessions {
            let node = random.below(self.nodes);
            if self.subscribers == 1 {
                members[node].interest.add(&channel(session), 0);
            } else {
                (0..ROOMS_PER_SESSION)
                    .for_each(|_| members[node].interest.add(&channel(random.below(self.channels())), 0));
            }
        }
        members.iter_mut().for_each(Member::settle);
        let engine = Engine::of(&members);
        for _ in 0..PUBLICATIONS {
            let (from, channel) = (random.below(self.nodes), channel(random.below(self.channels())));
            for (subject, envelope) in members[from].publish(&channel) {
                engine.nodes(&subject).filter(|node| *node != from).for_each(|node| members[node].receive(&envelope));
            }
        }
        let all = |count: fn(&Member) -> u64| members.iter().map(count).sum::<u64>() as f64 / self.nodes as f64;
        let unwanted = all(|member| member.node.counts().unwanted) / PUBLICATIONS as f64;
        let wanted = all(|member| member.node.counts().publications_in) / PUBLICATIONS as f64;
        Figures { subscriptions: all(|member| member.subscriptions.len() as u64), reached: wanted + unwanted, unwanted }
    }
}

fn channel(number: usize) -> String {
    format!("/room/{number}")
}

/// A node, and the engine's side of it.
struct Member {
    node: Node,
    interest: Interest,
    subscriptions: HashMap<u64, String>,
    account: Arc<MailboxAccount>,
}

impl Member {
    fn new(index: usize, shared_from: usize) -> Member {
        let limits = NodeLimits {
            pending_bytes_max: 1 << 20,
            incoming_bytes_max: 1 << 20,
            leave_delay_ms: 5_000,
            shared_from,
            subscriptions_max: 16_384,
            reply_delay_max_ms: 1_000,
            return_delay_ms: 0,
        };
        let subjects = Subjects::of("sizing").expect("a valid name");
        let mut node = Node::new(subjects, index as u64 + 1, limits, Limits::default());
        node.connected(0, 1 << 20);
        let interest = Interest::default();
        interest.set_on_change(|| {});
        let account = Arc::<MailboxAccount>::default();
        account.set_bytes_max(usize::MAX / 2);
        Member { node, interest, subscriptions: HashMap::new(), account }
    }

    /// Runs the node until its subscriptions are those that it needs.
    fn settle(&mut self) {
        for now_ms in [0, 0, SETTLED_MS, 2 * SETTLED_MS] {
            self.turn(now_ms);
        }
    }

    /// Runs the node once; returns what it publishes.
    fn turn(&mut self, now_ms: u64) -> Vec<(String, Vec<u8>)> {
        self.node.turn(now_ms, &self.interest);
        let mut published = Vec::new();
        for command in self.node.take_commands() {
            if let Command::Subscribe { key, subject } = command {
                self.subscriptions.insert(key, subject);
            } else if let Command::Unsubscribe { key } = command {
                self.subscriptions.remove(&key);
            } else if let Command::Confirm(number) = command {
                self.node.confirmed(number, &self.interest);
            } else if let Command::Publish { subject, envelope } = command {
                self.node.sent(envelope.len());
                published.push((subject, envelope));
            }
        }
        published
    }

    fn publish(&mut self, channel: &str) -> Vec<(String, Vec<u8>)> {
        let frames: Box<[u8]> = message_frame(channel, "1", None, None).into();
        self.node.publish(&EncodedPublications {
            charge: EncodedPublications::charge(&self.account, channel, &frames),
            channel: channel.into(),
            frames,
            messages: 1,
            side: Side::Server,
            is_lazy: false,
            except: None,
            position: None,
            token: None,
            publisher: None,
        });
        self.turn(2 * SETTLED_MS)
    }

    fn receive(&mut self, envelope: &[u8]) {
        self.node.received(envelope, &self.interest, &mut String::new()).expect("a valid envelope");
        while self.node.has_arrivals() {
            self.node.next_arrival(&self.account);
        }
    }
}

/// The nodes by the subjects that they subscribe to, as NATS has them.
struct Engine {
    exact: HashMap<String, Vec<usize>>,
    /// By the part of the subject before the wildcard.
    wildcards: Vec<(String, usize)>,
}

impl Engine {
    fn of(members: &[Member]) -> Engine {
        let mut engine = Engine { exact: HashMap::new(), wildcards: Vec::new() };
        for (index, member) in members.iter().enumerate() {
            for subject in member.subscriptions.values() {
                match subject.strip_suffix(['*', '>']) {
                    Some(prefix) => engine.wildcards.push((prefix.to_owned(), index)),
                    None => engine.exact.entry(subject.clone()).or_default().push(index),
                }
            }
        }
        engine
    }

    fn nodes(&self, subject: &str) -> impl Iterator<Item = usize> {
        let exact = self.exact.get(subject).into_iter().flatten().copied();
        let wildcards = self.wildcards.iter().filter(move |(prefix, _)| subject.starts_with(prefix.as_str()));
        exact.chain(wildcards.map(|(_, node)| *node)).collect::<Vec<_>>().into_iter()
    }
}

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

/// All cases, as a table in Markdown.
pub fn table(simulated: &[Figures]) -> String {
    let mut text = String::from(
        "| channels | nodes | sessions | subscriptions of a node: computed, simulated | publications that reach a node | of them unwanted |\n\
         | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (case, simulated) in CASES.iter().zip(simulated) {
        let computed = case.computed();
        text.push_str(&format!(
            "| {} | {} | {} | {:.1}, {:.1} | {:.1} %, {:.1} % | {:.1} %, {:.1} % |\n",
            case.name,
            case.nodes,
            number(case.sessions as f64),
            computed.subscriptions,
            simulated.subscriptions,
            100.0 * computed.reached,
            100.0 * simulated.reached,
            100.0 * computed.unwanted / computed.reached,
            100.0 * simulated.unwanted / simulated.reached,
        ));
    }
    text
}
