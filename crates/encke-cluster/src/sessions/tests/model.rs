//! Nodes with shards that only know which sessions they have, and an engine that may delay, lose, double, and read old values.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use encke_core::{
    ExchangeId, ForNodes, HttpTransport, Id, NodeTag, Opener, Peer, Request, Searched, Searcher, SessionOwner,
    ShardMessage, SocketKey, StreamOpening,
};

use super::acknowledging::{Acknowledging, Clients};
use super::{Answer, BODY_BYTES_MAX, OLD_MS, saved, settings, subjects, tag};
use crate::command::{Command, KeyAnswer, KeyFailure, RequestFailure, VALUE_BYTES_MAX};
use crate::dice::Dice;
use crate::sessions::message::Question;
use crate::sessions::{Order, Ordered, Output, RelayOutput, RelayRequest, Resumption, Sessions, Visited};

pub(super) struct Member {
    pub(super) sessions: Sessions,
    /// The sessions here, with their waiting messages.
    pub(super) here: BTreeMap<Id, u64>,
    pub(super) is_alive: bool,
    pub(super) is_connected: bool,
    /// The outcomes of orders.
    pub(super) ordered: Vec<(u64, Ordered)>,
    /// True if its shards answer nothing.
    pub(super) holds: bool,
    /// The requests that its clients have sent.
    sent: Vec<u64>,
    /// The statuses of answered requests, and the outcomes of sockets.
    pub(super) answers: Vec<(u64, Answer)>,
    /// The fates of responses that other nodes have reported, and abandoned requests.
    pub(super) fates: Vec<(u64, Option<bool>)>,
    /// Sessions of responses whose fate nobody tells.
    pub(super) unsettled: Vec<Id>,
    /// Replies that have waited for the end of a session and leave.
    pub(super) left: Vec<u64>,
    /// The outputs for relays.
    pub(super) relays: Vec<RelayOutput>,
    /// True if its sessions stay.
    pub(super) keeps_all: bool,
    /// WebSockets that other nodes are to serve.
    pub(super) relayed: Vec<(u64, NodeTag)>,
    /// The outcomes of visitors.
    pub(super) visited: Vec<(u64, Visited)>,
    /// The reason for which its shards take no stream.
    pub(super) refusal: Option<StreamOpening>,
    /// True if it knows the questions of an older build only.
    pub(super) is_old: bool,
    /// Requests of HTTP/2 that its shards have got.
    pub(super) multiplexed: u64,
    pub(super) acknowledging: Acknowledging,
}

/// Something on its way.
enum Flight {
    Request { from: usize, number: u64, subject: String, body: Vec<u8> },
    Asked { to: usize, reply_to: String, body: Vec<u8> },
    Reply { reply_to: String, body: Bytes },
    Key { from: usize, command: Command },
    KeyReply { to: usize, number: u64, answer: Result<KeyAnswer, KeyFailure> },
}

/// Misbehaviour of the engine, each in this many of 1,000 cases.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) reorders: u64,
    pub(super) doubles: u64,
    pub(super) loses: u64,
    pub(super) reads_old: u64,
    pub(super) forgets_answer: u64,
}

/// The address of clients that come by HTTP/2.
pub(super) const HTTP2: u64 = 2;

pub(super) struct Cluster {
    pub(super) members: Vec<Member>,
    pub(super) now_ms: u64,
    pub(super) faults: Faults,
    pub(super) has_keys: bool,
    flights: VecDeque<Flight>,
    /// Requests that wait for an answer: the time until which, by the subject of the answer.
    waiting: BTreeMap<String, u64>,
    /// The values of each key, with their revisions, oldest first.
    keys: BTreeMap<String, Vec<(u64, Bytes)>>,
    /// The times of the last writes, in milliseconds.
    written: BTreeMap<String, u64>,
    /// The sessions that sockets have named.
    pub(super) sockets: BTreeMap<u64, Id>,
    /// Clients that acknowledge. The others have sessions of which nobody knows what they have confirmed.
    pub(super) clients: Clients,
    revision: u64,
    pub(super) dice: Dice,
    exchanges: u64,
}

impl Cluster {
    pub(super) fn new(nodes: u64, seed: u64) -> Cluster {
        let member = |number| Member {
            sessions: Sessions::new(settings(number)),
            here: BTreeMap::new(),
            is_alive: true,
            is_connected: false,
            ordered: Vec::new(),
            holds: false,
            sent: Vec::new(),
            answers: Vec::new(),
            fates: Vec::new(),
            unsettled: Vec::new(),
            left: Vec::new(),
            relays: Vec::new(),
            keeps_all: false,
            relayed: Vec::new(),
            visited: Vec::new(),
            refusal: None,
            is_old: false,
            multiplexed: 0,
            acknowledging: Acknowledging::default(),
        };
        let mut cluster = Cluster {
            members: (0..nodes).map(member).collect(),
            now_ms: 1_000_000,
            faults: Faults::default(),
            has_keys: true,
            flights: VecDeque::new(),
            waiting: BTreeMap::new(),
            keys: BTreeMap::new(),
            written: BTreeMap::new(),
            sockets: BTreeMap::new(),
            clients: Clients::default(),
            revision: 0,
            dice: Dice::new(seed),
            exchanges: 0,
        };
        (0..nodes as usize).for_each(|node| cluster.connect(node));
        cluster.pass(10_000);
        cluster
    }

    pub(super) fn connect(&mut self, node: usize) {
        self.members[node].is_connected = true;
        self.members[node].sessions.connected(self.now_ms, BODY_BYTES_MAX);
        self.turn(node);
    }

    /// Cuts a node off from the engine. What waits for answers there fails.
    pub(super) fn disconnect(&mut self, node: usize) {
        self.members[node].is_connected = false;
        self.members[node].sessions.disconnected();
        let own = format!("{node}:");
        let gone: Vec<String> = self.waiting.keys().filter(|address| address.starts_with(&own)).cloned().collect();
        for address in gone {
            self.end_request(&address, Err(RequestFailure::Away));
        }
        self.turn(node);
    }

    /// Kills a node.
    pub(super) fn kill(&mut self, node: usize) {
        let member = &mut self.members[node];
        (member.is_alive, member.is_connected) = (false, false);
        member.here.clear();
    }

    /// A node ends and starts again, with the sessions that it has saved.
    pub(super) fn restart(&mut self, node: usize) {
        self.disconnect(node);
        self.members[node].sessions = Sessions::new(settings(node as u64));
        self.connect(node);
    }

    /// Lets the shards of a node hold all requests of other nodes.
    pub(super) fn hold_all(&mut self, node: usize) {
        self.members[node].holds = true;
    }

    /// True if the node of a request was killed.
    pub(super) fn was_killed_with(&self, number: u64) -> bool {
        self.members.iter().any(|member| !member.is_alive && member.sent.contains(&number))
    }

    /// A client opens a session, and connects.
    pub(super) fn open(&mut self, node: usize, id: Id) {
        self.members[node].here.insert(id, 0);
        self.report(node, id);
    }

    /// Reports a session as changed.
    pub(super) fn report(&mut self, node: usize, id: Id) {
        self.report_change(node, id, false);
    }

    /// The client of a session subscribes to something.
    pub(super) fn subscribe(&mut self, node: usize, id: Id) {
        self.members[node].here.entry(id).and_modify(|waiting| *waiting += 1);
        self.report_change(node, id, true);
    }

    fn report_change(&mut self, node: usize, id: Id, has_subscribed: bool) {
        let Some(waiting) = self.members[node].here.get(&id) else { return };
        let since = self.members[node].acknowledging.since(&id);
        let (owner, saved) = (SessionOwner::default(), Box::new(saved(id, *waiting)));
        let message = ForNodes::Changed { session: id, owner, saved, since, has_subscribed };
        self.tell(node, ShardMessage::ForNodes(message));
    }

    /// Somebody orders at a node that a session ends. Returns the number of the order, which a node has had if `is_known`.
    pub(super) fn order(&mut self, node: usize, session: Id, is_known: bool) -> u64 {
        self.exchanges += 1;
        let order = Order { session, is_known, owner: None, waiter: Some(self.exchanges) };
        self.members[node].sessions.order_end(self.now_ms, order);
        self.turn(node);
        self.exchanges
    }

    /// The outcome of an order.
    pub(super) fn outcome(&self, order: u64) -> Option<Ordered> {
        let mut all = self.members.iter().flat_map(|member| &member.ordered);
        all.find(|(of, _)| *of == order).map(|(_, outcome)| *outcome)
    }

    /// A session ends on its node.
    pub(super) fn end(&mut self, node: usize, id: Id) {
        if self.members[node].here.remove(&id).is_some() {
            self.tell(node, ShardMessage::ForNodes(ForNodes::Ended { session: id, binds: false, reply: None }));
        }
    }

    /// A client sends a connect to a node. Returns the number of the request.
    pub(super) fn request(&mut self, node: usize, session: Id) -> u64 {
        self.request_of(node, session, true, 1)
    }

    /// A client with this address sends a request.
    pub(super) fn request_of(&mut self, node: usize, session: Id, is_connect: bool, origin: u64) -> u64 {
        self.send(node, session, origin, |number| {
            let request = Request {
                exchange: ExchangeId { shard: 0, number },
                transport: HttpTransport::LongPolling,
                browser: None,
                // Clients with this address come by HTTP/2.
                peer: Peer { is_multiplexed: origin == HTTP2, ..Peer::default() },
                head: None,
                // The shards of the model read the id only.
                body: session.as_str().into(),
                searched: Searched::Nobody,
            };
            Searcher::Request { request: Box::new(request), is_connect }
        })
    }

    /// A client sends its first message on a WebSocket.
    pub(super) fn socket(&mut self, node: usize, session: Id) -> u64 {
        let key = |number| SocketKey { index: number as u32, generation: 1 };
        self.send(node, session, 1, |number| Searcher::Socket(key(number), Opener::Program))
    }

    /// A client asks a node for a stream.
    pub(super) fn visit(&mut self, node: usize, session: Id) -> u64 {
        self.send(node, session, 1, |number| Searcher::Visitor(number, Opener::Program))
    }

    /// A client sends something to a node, which answers or searches for the session. Returns its number.
    fn send(&mut self, node: usize, session: Id, origin: u64, waiting: impl FnOnce(u64) -> Searcher) -> u64 {
        self.exchanges += 1;
        let (number, member) = (self.exchanges, &mut self.members[node]);
        member.sent.push(number);
        if member.here.contains_key(&session) {
            member.answers.push((number, Answer::By(node)));
            return number;
        }
        let waiting = waiting(number);
        if let Searcher::Socket(..) = waiting {
            self.sockets.insert(number, session);
        }
        self.tell(node, ShardMessage::ForNodes(ForNodes::Search { session, origins: [0, origin], waiting }));
        number
    }

    pub(super) fn tell(&mut self, node: usize, message: ShardMessage) {
        if self.members[node].is_alive {
            let now_ms = self.now_ms;
            self.members[node].sessions.from_shard(now_ms, message);
            self.turn(node);
        }
    }

    /// The result of a request or socket.
    pub(super) fn answer(&self, number: u64) -> Option<Answer> {
        let all = self.members.iter().flat_map(|member| &member.answers);
        let found: Vec<Answer> = all.filter(|(of, _)| *of == number).map(|(_, answer)| *answer).collect();
        assert!(found.len() <= 1, "one answer for each: {found:?}");
        found.first().copied()
    }

    /// The nodes that have a session.
    pub(super) fn nodes_with(&self, id: Id) -> Vec<usize> {
        let has = |(node, member): (usize, &Member)| member.here.contains_key(&id).then_some(node);
        self.members.iter().enumerate().filter_map(has).collect()
    }

    /// Lets time pass, and all happen that happens until then.
    pub(super) fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        (0..self.members.len()).for_each(|node| self.turn(node));
        loop {
            while self.fly() {}
            let member = |member: &Member| member.is_alive.then(|| member.sessions.next_ms(self.now_ms)).flatten();
            let due = self.members.iter().filter_map(member).chain(self.waiting.values().copied()).min();
            match due.filter(|due_ms| *due_ms <= until_ms) {
                Some(due_ms) => self.now_ms = self.now_ms.max(due_ms) + u64::from(due_ms <= self.now_ms),
                None => break,
            }
            self.time_out();
            (0..self.members.len()).for_each(|node| self.turn(node));
        }
        self.now_ms = self.now_ms.max(until_ms);
        (0..self.members.len()).for_each(|node| self.turn(node));
    }

    fn time_out(&mut self) {
        let now_ms = self.now_ms;
        let due: Vec<String> = self
            .waiting
            .iter()
            .filter(|(_, until_ms)| **until_ms <= now_ms)
            .map(|(address, _)| address.clone())
            .collect();
        due.iter().for_each(|address| self.end_request(address, Err(RequestFailure::TimedOut)));
    }

    fn end_request(&mut self, address: &str, answer: Result<Bytes, RequestFailure>) {
        if self.waiting.remove(address).is_none() {
            return;
        }
        let (node, number) = address.split_once(':').expect("an address");
        let (node, number): (usize, u64) = (node.parse().expect("a node"), number.parse().expect("a number"));
        if self.members[node].is_alive {
            let now_ms = self.now_ms;
            self.members[node].sessions.answered(now_ms, number, answer);
            self.turn(node);
        }
    }

    fn turn(&mut self, node: usize) {
        if !self.members[node].is_alive {
            return;
        }
        let now_ms = self.now_ms;
        self.members[node].sessions.turn(now_ms);
        for output in self.members[node].sessions.take_outputs() {
            match output {
                Output::Engine(command) => self.command(node, command),
                Output::Shard(_, message) => self.shard(node, message),
                Output::Ordered(waiter, outcome) => self.members[node].ordered.push((waiter, outcome)),
                Output::Visitor(number, visited) => self.members[node].visited.push((number, visited)),
                Output::Relay(RelayOutput::Open(relay, request, reply_to)) => {
                    let member = &mut self.members[node];
                    member.relays.push(RelayOutput::Open(relay, request, String::new()));
                    member.sessions.opened(relay, reply_to, member.refusal);
                    self.turn(node);
                }
                Output::Relay(output) => self.members[node].relays.push(output),
                Output::Missed(Resumption { session, mark, .. }) => self.read_missed(node, session, &mark),
                Output::Confirmed(tick, _) => self.pass_mark(node, tick),
                Output::Probed(..) => panic!("nobody probes"),
            }
        }
    }

    fn command(&mut self, node: usize, command: Command) {
        match command {
            Command::Listen { subject, .. } => assert_eq!(subject, subjects().of_node(tag(node as u64))),
            Command::Request { number, subject, body, timeout_ms } => {
                let until_ms = self.now_ms + timeout_ms;
                self.waiting.insert(format!("{node}:{number}"), until_ms);
                self.flights.push_back(Flight::Request { from: node, number, subject, body });
            }
            Command::Answer { reply_to, body } => self.flights.push_back(Flight::Reply { reply_to, body }),
            command @ (Command::Get { .. } | Command::Put { .. }) => {
                self.flights.push_back(Flight::Key { from: node, command });
            }
            other => panic!("sessions send no {other:?}"),
        }
    }

    /// Lets the next thing happen that is on its way, or, if the engine reorders, another one.
    fn fly(&mut self) -> bool {
        let count = self.flights.len() as u64;
        let at =
            if count > 1 && self.dice.happens(self.faults.reorders) { self.dice.random(count) as usize } else { 0 };
        let Some(flight) = self.flights.remove(at) else { return false };
        match flight {
            Flight::Request { from, number, subject, body } => self.fly_request(from, number, &subject, body),
            Flight::Asked { to, reply_to, body } => {
                let member = &mut self.members[to];
                let question = Question::read(&body.clone().into());
                let is_stream = matches!(question, Some(Question::Open(_, RelayRequest::Stream(..))));
                let is_known = !(member.is_old && is_stream);
                if member.is_alive && member.is_connected && is_known {
                    member.sessions.asked(self.now_ms, reply_to, &body.into());
                    self.turn(to);
                }
            }
            Flight::Reply { reply_to, body } => {
                if !self.dice.happens(self.faults.loses) {
                    self.end_request(&reply_to, Ok(body));
                }
            }
            Flight::Key { from, command } => self.fly_key(from, command),
            Flight::KeyReply { to, number, answer } => {
                if self.members[to].is_alive {
                    let now_ms = self.now_ms;
                    self.members[to].sessions.key_answered(now_ms, number, answer);
                    self.turn(to);
                }
            }
        }
        true
    }

    fn fly_request(&mut self, from: usize, number: u64, subject: &str, body: Vec<u8>) {
        let reply_to = format!("{from}:{number}");
        if !self.members[from].is_connected {
            return self.end_request(&reply_to, Err(RequestFailure::Away));
        }
        let is_it = |(node, member): (usize, &Member)| {
            (member.is_connected && subjects().of_node(tag(node as u64)) == subject).then_some(node)
        };
        let Some(to) = self.members.iter().enumerate().find_map(is_it) else {
            return self.end_request(&reply_to, Err(RequestFailure::NoResponders));
        };
        if self.dice.happens(self.faults.loses) {
            return;
        }
        if self.dice.happens(self.faults.doubles) {
            self.flights.push_back(Flight::Asked { to, reply_to: reply_to.clone(), body: body.clone() });
        }
        self.flights.push_back(Flight::Asked { to, reply_to, body });
    }

    fn fly_key(&mut self, from: usize, command: Command) {
        let number = match &command {
            Command::Get { number, .. } | Command::Put { number, .. } => *number,
            _ => return,
        };
        let is_away = !self.has_keys || !self.members[from].is_connected;
        let mut answer = if is_away { Err(KeyFailure::Failed("away".into())) } else { self.key(command) };
        if self.dice.happens(self.faults.forgets_answer) {
            answer = Err(KeyFailure::Failed("no answer".into()));
        }
        self.flights.push_back(Flight::KeyReply { to: from, number, answer });
    }

    fn key(&mut self, command: Command) -> Result<KeyAnswer, KeyFailure> {
        let reads_old = self.dice.happens(self.faults.reads_old);
        match command {
            Command::Get { key, .. } => {
                let values = self.keys.get(&key).map(Vec::as_slice).unwrap_or_default();
                // The last write may not have reached all servers of the engine yet.
                let is_new = self.written.get(&key).is_some_and(|ms| self.now_ms < ms + OLD_MS);
                let back = usize::from(reads_old && is_new);
                Ok(KeyAnswer::Found(values.len().checked_sub(1 + back).map(|at| values[at].clone())))
            }
            Command::Put { value, .. } if value.len() > VALUE_BYTES_MAX => Err(KeyFailure::TooLarge),
            Command::Put { key, value, expected, .. } => {
                let values = self.keys.entry(key.clone()).or_default();
                let last = values.last().map_or(0, |(revision, _)| *revision);
                if !expected.allows(last) {
                    return Err(KeyFailure::Conflict);
                }
                self.revision += 1;
                self.written.insert(key, self.now_ms);
                values.push((self.revision, value));
                Ok(KeyAnswer::Written(self.revision))
            }
            _ => Err(KeyFailure::Failed("no such command".into())),
        }
    }

    /// Loses all keys. Revisions begin again.
    pub(super) fn lose_keys(&mut self) {
        self.keys.clear();
        self.revision = 0;
    }
}
