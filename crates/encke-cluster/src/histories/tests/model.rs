//! Nodes, and an engine that may delay, lose, double and reorder messages, forget answers about keys, and report keys late.

mod keys;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use encke_core::{NodeTag, Now, PublishToken, Side};

use super::PARTITIONS;
use super::absence::Absence;
use super::clients::Client;
use super::journals::Journals;
use super::rings::{ModelRings, Truth};
use crate::command::{Command, Expected, KeyAnswer, KeyFailure, KeyReply};
use crate::dice::Dice;
use crate::envelope::tests::frame_of;
use crate::histories::context::Sabotage;
use crate::histories::{Content, Histories, HistoriesSettings, HistoryCounts, HistoryOutput, Submission};
use crate::subject::Subjects;

pub(super) struct Member {
    node: u64,
    pub(super) histories: Histories,
    pub(super) rings: ModelRings,
    pub(super) client: Client,
    pub(super) is_alive: bool,
    pub(super) is_connected: bool,
    /// It does nothing until then, in milliseconds.
    pub(super) paused_ms: u64,
    /// The time of its next turn, if nothing arrives before, in milliseconds.
    pub(super) due_ms: u64,
    /// The time since when it has been dead, cut off or paused, and until when, in milliseconds.
    absence: Absence,
    /// The difference of its time of day.
    skew_ms: u64,
    subjects: Vec<String>,
    watches: bool,
    /// Arrivals that it has not processed.
    inbox: VecDeque<Arrival>,
    /// The tokens of publications that are stored, and of those that were refused.
    pub(super) settled: BTreeMap<u64, bool>,
}

/// A revision, and the value that was written.
type Written = (u64, Bytes);

/// Keys, each with the value before.
type Keys = BTreeMap<String, (u64, Bytes, Option<Written>)>;

/// Something that arrives at a node.
#[derive(Clone)]
enum Arrival {
    Message(Arc<[u8]>),
    Answer(u64, KeyReply),
    WatchBegins,
    WatchComplete,
    Key(String, u64, Option<Bytes>),
}

/// Something on its way.
struct Flight {
    at_ms: u64,
    /// Grows with each flight.
    order: u64,
    what: What,
}

enum What {
    ToNode { node: usize, life: u64, arrival: Arrival },
    Put { node: usize, life: u64, number: u64, key: String, value: Option<Bytes>, expected: Expected },
    Get { node: usize, life: u64, number: u64, key: String },
    Append { node: usize, life: u64, number: u64, journal: String, value: Bytes, after: u64 },
    Read { node: usize, life: u64, number: u64, journal: String, from: u64 },
}

/// Misbehaviour of the engine, each in this many of 1,000 cases.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) loses: u64,
    pub(super) doubles: u64,
    pub(super) delays: u64,
    /// Answers about keys that are lost, though the key was written.
    pub(super) forgets_answer: u64,
    /// Changes of keys that are reported up to two seconds late.
    pub(super) reports_late: u64,
    /// Watches that begin with old values.
    pub(super) reads_old: u64,
}

pub(super) struct Cluster {
    pub(super) members: Vec<Member>,
    pub(super) now_ms: u64,
    pub(super) faults: Faults,
    pub(super) truth: Rc<RefCell<Truth>>,
    flights: Vec<Flight>,
    /// The time of the last flight of each stream, which later ones do not overtake.
    streams: BTreeMap<(usize, usize, bool), u64>,
    /// The revision, the value and the one before of each key.
    keys: Keys,
    /// The keys of some times before, with the time, in milliseconds, and the revision of the engine.
    saved: VecDeque<(u64, u64, Keys)>,
    /// The keys that have come back with older values, until their partition goes on.
    rolled_back: BTreeSet<String>,
    pub(super) journals: Journals,
    revision: u64,
    order: u64,
    pub(super) dice: Dice,
    tokens: u64,
    lives: Vec<u64>,
    sabotage: Option<Sabotage>,
}

impl Cluster {
    pub(super) fn new(nodes: usize, seed: u64, sabotage: Option<Sabotage>) -> Cluster {
        Cluster::of(nodes, seed, sabotage, Journals::default())
    }

    /// A cluster with or without journals.
    pub(super) fn of(nodes: usize, seed: u64, sabotage: Option<Sabotage>, journals: Journals) -> Cluster {
        let mut cluster = Cluster {
            members: Vec::new(),
            now_ms: 1_000_000,
            faults: Faults::default(),
            truth: Rc::default(),
            flights: Vec::new(),
            streams: BTreeMap::new(),
            keys: BTreeMap::new(),
            saved: VecDeque::new(),
            rolled_back: BTreeSet::new(),
            journals,
            revision: 0,
            order: 0,
            dice: Dice::new(seed),
            tokens: 0,
            lives: Vec::new(),
            sabotage,
        };
        (0..nodes).for_each(|_| _ = cluster.join());
        cluster
    }

    /// A node begins. Returns its index.
    pub(super) fn join(&mut self) -> usize {
        let index = self.members.len();
        let node = self.dice.random(u64::MAX >> 16) * 64 + index as u64;
        let settings = HistoriesSettings {
            node,
            tag: tag(index),
            subjects: Subjects::of("test").expect("a name"),
            bucket: "test".into(),
            has_journal: self.journals.are_used,
            names: bayeux::Limits::default(),
            pending_bytes_max: 64 * 1024,
        };
        let mut histories = Histories::with(settings, PARTITIONS);
        histories.wire.sabotage = self.sabotage;
        let skew_ms = self.dice.random(3) * 3_600_000;
        self.members.push(Member {
            node,
            histories,
            rings: ModelRings::new(self.truth.clone()),
            client: Client::default(),
            is_alive: true,
            is_connected: false,
            paused_ms: 0,
            due_ms: 0,
            absence: Absence::default(),
            skew_ms,
            subjects: Vec::new(),
            watches: false,
            inbox: VecDeque::new(),
            settled: BTreeMap::new(),
        });
        self.lives.push(0);
        self.connect(index);
        index
    }

    pub(super) fn connect(&mut self, node: usize) {
        let now_ms = self.now_ms;
        let member = &mut self.members[node];
        (member.is_connected, member.due_ms) = (true, 0);
        if member.paused_ms <= now_ms {
            member.absence.ends(now_ms);
        }
        self.lives[node] += 1;
        self.members[node].histories.connected(BYTES_MAX);
        if self.members[node].watches {
            self.begin_watch(node);
        }
    }

    /// Cuts a node off from the engine. Commands on their way fail.
    pub(super) fn disconnect(&mut self, node: usize) {
        let now_ms = self.now_ms;
        let member = &mut self.members[node];
        member.is_connected = false;
        member.absence.begins(now_ms);
        member.histories.disconnected();
        self.lives[node] += 1;
        let mut numbers = Vec::new();
        for flight in &self.flights {
            match &flight.what {
                What::Put { node: of, number, .. }
                | What::Get { node: of, number, .. }
                | What::Append { node: of, number, .. }
                | What::Read { node: of, number, .. }
                    if *of == node =>
                {
                    numbers.push(*number);
                }
                What::ToNode { node: of, arrival: Arrival::Answer(number, _), .. } if *of == node => {
                    numbers.push(*number);
                }
                _ => {}
            }
        }
        // A write that is on its way may still be executed; its answer is lost.
        self.flights.retain(|flight| !matches!(&flight.what, What::ToNode { node: of, .. } if *of == node));
        for number in numbers {
            let failed = Err(KeyFailure::Failed("away".into()));
            self.members[node].histories.key_answered(now_ms, number, &failed);
        }
    }

    /// Kills a node.
    pub(super) fn kill(&mut self, node: usize) {
        self.lives[node] += 1;
        let (now_ms, nodes) = (self.now_ms, self.members.len());
        let member = &mut self.members[node];
        member.client.nodes = nodes;
        (member.is_alive, member.is_connected) = (false, false);
        member.absence.begins(now_ms);
    }

    /// Stops a node for a while. Its connection stays.
    pub(super) fn pause(&mut self, node: usize, ms: u64) {
        self.members[node].paused_ms = self.now_ms + ms;
        let now_ms = self.now_ms;
        self.members[node].absence.begins(now_ms);
    }

    /// The engine loses all keys.
    pub(super) fn lose_keys(&mut self) {
        self.keys.clear();
        self.journals.lose();
        self.revision = 0;
        self.saved.clear();
        self.break_connections();
    }

    /// A publisher of a node publishes. Returns its token.
    pub(super) fn publish(&mut self, node: usize, channel: &str) -> u64 {
        self.tokens += 1;
        let frames = frame_of(&format!("\"{node} {}\"", self.tokens)).into();
        let content = Content::Publications { side: Side::Client, except: None, messages: 1, frames };
        self.submit(node, Submission { channel: channel.into(), content }, self.tokens);
        self.tokens
    }

    pub(super) fn submit(&mut self, node: usize, submission: Submission, number: u64) {
        let member = &mut self.members[node];
        member.histories.publish(submission, Some(PublishToken { shard: 0, number }), None);
        member.due_ms = 0;
    }

    /// Lets time pass, and all happen that happens until then.
    pub(super) fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.fly();
            for node in 0..self.members.len() {
                self.turn(node);
            }
            self.now_ms += STEP_MS;
        }
    }

    fn turn(&mut self, node: usize) {
        let now_ms = self.now_ms;
        let member = &mut self.members[node];
        if !member.is_alive || now_ms < member.paused_ms {
            return;
        }
        if member.paused_ms > 0 {
            member.paused_ms = 0;
            if member.is_connected {
                member.absence.ends(now_ms);
            }
        }
        if member.inbox.is_empty() && now_ms < member.due_ms {
            return;
        }
        for arrival in std::mem::take(&mut member.inbox) {
            let histories = &mut member.histories;
            match arrival {
                Arrival::Message(body) => histories.received(&body),
                Arrival::Answer(number, Ok(KeyAnswer::Values { values, last: Some((last, _)) }))
                    if self.sabotage == Some(Sabotage::AddsBehindLater) =>
                {
                    // It cannot know whose the last value is.
                    let answer = KeyAnswer::Values { values, last: Some((last, Bytes::new())) };
                    histories.key_answered(now_ms, number, &Ok(answer));
                }
                Arrival::Answer(number, answer) => histories.key_answered(now_ms, number, &answer),
                Arrival::WatchBegins => histories.watch_begins(),
                Arrival::WatchComplete => histories.watch_is_complete(now_ms),
                Arrival::Key(key, revision, value) => histories.key_changed(now_ms, &key, revision, value.as_ref()),
            }
        }
        let now = Now { ms: now_ms, wall_ms: 1_700_000_000_000 + now_ms - member.skew_ms };
        member.rings.now_ms = now_ms;
        member.histories.turn(now, &mut member.rings, &mut Bytes::new);
        member.confirm(&mut self.dice);
        member.due_ms = member.histories.next_ms(now_ms).unwrap_or(u64::MAX);
        for output in member.histories.take_outputs() {
            match output {
                HistoryOutput::Engine(command) => self.command(node, command),
                HistoryOutput::Settled(token, is_stored) => {
                    let before = self.members[node].settled.insert(token.number, is_stored);
                    assert_eq!(before, None, "one reply for each");
                }
                HistoryOutput::Tick(tick, _) => self.members[node].ticks(tick, self.sabotage),
                HistoryOutput::Report(report) => {
                    self.members[node].client.marks.insert(report.node, report.mark);
                }
            }
        }
    }

    fn command(&mut self, node: usize, command: Command) {
        match command {
            Command::Listen { subject, .. } => self.members[node].subjects.push(subject),
            Command::Watch { .. } => {
                self.members[node].watches = true;
                self.begin_watch(node);
            }
            Command::Send { subject, body } => self.send(node, &subject, body.into()),
            Command::Put { number, key, value, expected, .. } => {
                self.put(node, number, key, Some(value), expected);
            }
            Command::Delete { number, key, expected, .. } => self.put(node, number, key, None, expected),
            Command::Get { number, key, .. } => self.run(node, number, |life| What::Get { node, life, number, key }),
            Command::Append { number, journal, value, after } => {
                self.run(node, number, |life| What::Append { node, life, number, journal, value, after });
            }
            Command::ReadJournal { number, journal, from } => {
                self.run(node, number, |life| What::Read { node, life, number, journal, from });
            }
            other => panic!("histories send no {other:?}"),
        }
    }

    fn put(&mut self, node: usize, number: u64, key: String, value: Option<Bytes>, expected: Expected) {
        self.run(node, number, |life| What::Put { node, life, number, key, value, expected });
    }

    /// The engine gets a command soon, unless it is away.
    fn run(&mut self, node: usize, number: u64, what: impl FnOnce(u64) -> What) {
        if !self.members[node].is_connected {
            let failed = Err(KeyFailure::Failed("away".into()));
            return self.members[node].inbox.push_back(Arrival::Answer(number, failed));
        }
        let delay_ms = self.delay_ms();
        self.add(delay_ms, what(self.lives[node]));
    }

    fn delay_ms(&mut self) -> u64 {
        let most_ms = if self.dice.happens(self.faults.delays) { 400 } else { 10 };
        self.dice.random(most_ms)
    }

    fn add(&mut self, delay_ms: u64, what: What) {
        self.order += 1;
        self.flights.push(Flight { at_ms: self.now_ms + delay_ms, order: self.order, what });
    }

    /// Adds a flight that does not overtake those before it of the same stream.
    fn add_in_order(&mut self, stream: (usize, usize, bool), delay_ms: u64, what: What) {
        let at_ms = (self.now_ms + delay_ms).max(self.streams.get(&stream).copied().unwrap_or_default());
        self.streams.insert(stream, at_ms);
        self.add(at_ms - self.now_ms, what);
    }

    fn send(&mut self, from: usize, subject: &str, body: Arc<[u8]>) {
        let listens = |member: &Member| member.subjects.iter().any(|of| of == subject);
        for node in 0..self.members.len() {
            let member = &self.members[node];
            if node == from || !member.is_alive || !member.is_connected || !listens(member) {
                continue;
            }
            if self.dice.happens(self.faults.loses) {
                continue;
            }
            let life = self.lives[node];
            let arrival = Arrival::Message(body.clone());
            if self.dice.happens(self.faults.doubles) {
                let delay_ms = self.dice.random(3_000);
                self.add(delay_ms, What::ToNode { node, life, arrival: arrival.clone() });
            }
            let delay_ms = self.delay_ms();
            let stream = (from, node, subject.ends_with(".log"));
            self.add_in_order(stream, delay_ms, What::ToNode { node, life, arrival });
        }
    }

    /// Lets all happen that is due.
    fn fly(&mut self) {
        loop {
            let due = self.flights.iter().enumerate().filter(|(_, flight)| flight.at_ms <= self.now_ms);
            let Some((index, _)) = due.min_by_key(|(_, flight)| (flight.at_ms, flight.order)) else { return };
            match self.flights.swap_remove(index).what {
                What::ToNode { node, life, arrival } => {
                    if self.members[node].is_alive && self.lives[node] == life {
                        self.members[node].inbox.push_back(arrival);
                    }
                }
                What::Put { node, life, number, key, value, expected } => {
                    let answer = self.write(key, value, expected);
                    self.answer((node, life), number, answer);
                }
                What::Get { node, life, number, key } => {
                    let found = self.keys.get(&key).map(|(revision, value, _)| (*revision, value.clone()));
                    self.answer((node, life), number, Ok(KeyAnswer::Found(found)));
                }
                What::Append { node, life, number, journal, value, after } => {
                    let answer = self.journals.append(self.now_ms, &journal, value, after);
                    self.answer((node, life), number, answer);
                }
                What::Read { node, life, number, journal, from } => {
                    let answer = self.journals.read(self.now_ms, &journal, from);
                    self.answer((node, life), number, answer);
                }
            }
        }
    }

    fn answer(&mut self, (node, life): (usize, u64), number: u64, answer: KeyReply) {
        if self.lives[node] != life {
            return;
        }
        let forgets = self.dice.happens(self.faults.forgets_answer);
        let answer = if forgets { Err(KeyFailure::Failed("no answer".into())) } else { answer };
        let delay_ms = if forgets { 2_000 } else { self.delay_ms() };
        self.add(delay_ms, What::ToNode { node, life, arrival: Arrival::Answer(number, answer) });
    }

    /// The nodes that live.
    pub(super) fn alive(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|node| self.members[*node].is_alive).collect()
    }

    pub(super) fn counts(&self, node: usize) -> HistoryCounts {
        self.members[node].histories.counts()
    }

    /// True if all nodes that live have all partitions and are in sync.
    pub(super) fn is_level(&self) -> bool {
        let is_level = |node: usize| {
            let counts = self.counts(node);
            counts.in_sync == PARTITIONS && counts.level == PARTITIONS && counts.pending_bytes == 0
        };
        let owned: usize = self.alive().iter().map(|node| self.counts(*node).owned).sum();
        self.alive().into_iter().all(is_level) && owned == PARTITIONS
    }

    /// Lets time pass until all nodes are level.
    pub(super) fn settle(&mut self) {
        for _ in 0..200 {
            if self.is_level() {
                // All get what is committed.
                return self.pass(1_000);
            }
            self.pass(500);
        }
        let counts: Vec<_> = self.alive().iter().map(|node| self.counts(*node)).collect();
        panic!("the nodes do not agree: {counts:?}");
    }
}

/// The name of a node in the ids of sessions.
pub(super) fn tag(node: usize) -> NodeTag {
    NodeTag::parse(&format!("{node:04}")).expect("a tag")
}

/// The most bytes of a message.
const BYTES_MAX: usize = 1 << 20;
/// The time between two steps of the model, in milliseconds.
const STEP_MS: u64 = 10;
