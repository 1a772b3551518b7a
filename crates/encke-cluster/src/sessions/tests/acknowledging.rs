//! Sessions of clients that acknowledge: the messages of all histories are one sequence of numbers, which comes to all nodes at once. A
//! node that goes on with a session sends it what is behind a mark; no message may be between the last one that its client has confirmed
//! and that mark.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use encke_core::{ForNodes, Id, SessionOwner, ShardMessage, Since};

use super::model::{Cluster, Faults};
use super::{id, tag};
use crate::sessions::confirming::Sabotage;

/// The clients, and the histories.
#[derive(Default)]
pub(super) struct Clients {
    /// The number of the last message that each has confirmed.
    pub(super) confirmed: BTreeMap<Id, u64>,
    /// The number of the last message.
    pub(super) last: u64,
    /// True if nodes name ticks that clients have not confirmed.
    is_early: bool,
    /// The sessions that went on, and those that did not.
    resumed: usize,
    refused: usize,
}

/// The part of a node.
#[derive(Default)]
pub(super) struct Acknowledging {
    /// The number of the last message before each tick. The first one is 1.
    ticks: Vec<u64>,
    since: BTreeMap<Id, Since>,
    /// True if it is killed before it reports the sessions that it has taken.
    is_slow: bool,
}

impl Acknowledging {
    pub(super) fn since(&self, id: &Id) -> Since {
        self.since.get(id).copied().unwrap_or_default()
    }

    fn at(&self, tick: u64) -> u64 {
        tick.checked_sub(1).map_or(0, |at| self.ticks[at as usize])
    }
}

impl Cluster {
    /// A node names a tick.
    pub(super) fn tick(&mut self, node: usize) {
        let last = self.clients.last;
        let member = &mut self.members[node];
        member.acknowledging.ticks.push(last);
        let tick = member.acknowledging.ticks.len() as u64;
        member.sessions.ticked(tick, Bytes::copy_from_slice(&last.to_le_bytes()));
        self.pass(0);
    }

    /// The shards of a node have got a tick.
    pub(super) fn confirm_tick(&mut self, node: usize, tick: u64) {
        let common = if self.clients.is_early { tick } else { tick - 1 };
        let here: Vec<Id> = self.members[node].here.keys().copied().collect();
        for id in here {
            let Some(confirmed) = self.clients.confirmed.get(&id).copied() else { continue };
            let own = &self.members[node].acknowledging;
            let since = if confirmed >= own.at(tick - 1) {
                Since::Common
            } else {
                Since::Tick((0..tick).rev().find(|tick| own.at(*tick) <= confirmed).unwrap_or(0))
            };
            // One that is late may stay reported as such.
            if since == own.since(&id) || (since == Since::Common && self.dice.random(2) == 0) {
                continue;
            }
            self.members[node].acknowledging.since.insert(id, since);
            self.report(node, id);
        }
        let has_late = self.members[node].acknowledging.since.values().any(|since| *since != Since::Common);
        for shard in 0..3 {
            self.tell(node, ShardMessage::ForNodes(ForNodes::Confirmed { shard, tick: common, has_late }));
        }
    }

    /// A node writes its mark, and the others see it.
    pub(super) fn pass_mark(&mut self, node: usize, tick: u64) {
        if tick == 0 || !self.members[node].is_connected {
            return;
        }
        let mark = Bytes::copy_from_slice(&self.members[node].acknowledging.at(tick).to_le_bytes());
        let unrecorded = self.members[node].sessions.unrecorded(self.now_ms);
        for other in (0..self.members.len()).filter(|other| *other != node) {
            // Some see it late.
            let is_late = self.faults.loses > 0 && self.dice.random(8) == 0;
            if self.members[other].is_connected && !is_late {
                self.members[other].sessions.note_report(tag(node as u64), mark.clone(), &unrecorded);
            }
        }
    }

    /// A node has taken a session.
    pub(super) fn resume(&mut self, node: usize, session: Id, has_mark: bool) {
        if !has_mark {
            return self.refuse(node, session);
        }
        self.members[node].acknowledging.since.insert(session, Since::Taken);
        if !self.members[node].acknowledging.is_slow {
            self.report(node, session);
        }
        let (owner, names, room) = (SessionOwner::default(), Vec::new(), (0, 0));
        self.tell(node, ShardMessage::ForNodes(ForNodes::Resumes { session, owner, names, room }));
    }

    fn refuse(&mut self, node: usize, session: Id) {
        self.members[node].here.remove(&session);
        self.clients.refused += 1;
        self.tell(node, ShardMessage::ForNodes(ForNodes::Ended { session, binds: false, reply: None }));
        self.tell(node, ShardMessage::ForNodes(ForNodes::Restored(session)));
    }

    /// A node reads what a session has missed.
    pub(super) fn read_missed(&mut self, node: usize, session: Id, mark: &[u8]) {
        let Ok(mark) = <[u8; 8]>::try_from(mark) else { return self.refuse(node, session) };
        let (mark, confirmed) = (u64::from_le_bytes(mark), self.clients.confirmed[&session]);
        assert!(mark <= confirmed, "{session:?} has confirmed {confirmed} and goes on behind {mark}");
        self.clients.resumed += 1;
        self.tell(node, ShardMessage::ForNodes(ForNodes::Restored(session)));
    }

    /// A client whose session is on a node confirms some messages.
    fn acknowledge(&mut self, session: Id) {
        if !self.nodes_with(session).is_empty() {
            let confirmed = self.clients.confirmed[&session];
            let more = self.dice.random(self.clients.last - confirmed + 1);
            self.clients.confirmed.insert(session, confirmed + more);
        }
    }
}

const NODES: u64 = 3;
const SESSIONS: u64 = 9;

/// One run. Returns the sessions that went on, and those that did not.
fn run(seed: u64, faults: Faults, (is_early, sabotage): (bool, Option<Sabotage>)) -> (usize, usize) {
    let mut cluster = Cluster::new(NODES, seed);
    (cluster.faults, cluster.clients.is_early) = (faults, is_early);
    for member in &mut cluster.members {
        member.sessions.confirming.sabotage = sabotage;
        // Records wait for those before them.
        member.sessions.records.writes_per_s_max = 1;
    }
    let sessions: Vec<Id> = (0..SESSIONS).map(|number| id(seed * SESSIONS + number, number % NODES)).collect();
    for (number, session) in sessions.iter().enumerate() {
        cluster.clients.confirmed.insert(*session, 0);
        cluster.open(number % NODES as usize, *session);
    }
    for _ in 0..3 {
        (0..NODES as usize).for_each(|node| cluster.tick(node));
        cluster.pass(700);
    }
    for step in 0..60 {
        let (node, session) = (cluster.dice.random(NODES) as usize, cluster.dice.random(SESSIONS) as usize);
        let (is_alive, is_connected) = (cluster.members[node].is_alive, cluster.members[node].is_connected);
        match cluster.dice.random(30) {
            0 if is_connected && faults.loses > 0 => cluster.disconnect(node),
            0..=2 if is_alive && !is_connected => cluster.connect(node),
            3 if step > 20 && cluster.members.iter().filter(|member| member.is_alive).count() > 2 => {
                cluster.kill(node);
            }
            4..=9 if is_alive => _ = cluster.request(node, sessions[session]),
            10..=14 => cluster.clients.last += 1,
            15..=20 => cluster.acknowledge(sessions[session]),
            _ if is_alive => cluster.tick(node),
            _ => {}
        }
        let ms = cluster.dice.random(300);
        cluster.pass(ms);
    }
    (cluster.clients.resumed, cluster.clients.refused)
}

const BAD: Faults = Faults { reorders: 300, doubles: 100, loses: 50, reads_old: 200, forgets_answer: 50 };

#[test]
fn a_session_goes_on_behind_nothing_that_its_client_has_not_confirmed() {
    let outcomes: Vec<_> = (0..400).map(|seed| run(seed, Faults::default(), (false, None))).collect();
    let resumed: usize = outcomes.iter().map(|of| of.0).sum();
    let refused: usize = outcomes.iter().map(|of| of.1).sum();
    assert!(resumed > 4 * refused && resumed > 100, "{resumed} sessions went on, {refused} did not");
}

#[test]
fn an_engine_that_misbehaves_loses_no_message_of_a_session() {
    (0..600).for_each(|seed| _ = run(seed, BAD, (false, None)));
}

/// True if a seed shows that a rule is broken.
fn is_found(broken: (bool, Option<Sabotage>)) -> bool {
    (0..2_000).any(|seed| catch_unwind(AssertUnwindSafe(|| run(seed, BAD, broken))).is_err())
}

#[test]
fn marks_that_are_recorded_too_early_are_found() {
    assert!(is_found((true, None)), "the current tick");
    assert!(is_found((false, Some(Sabotage::WaitsForNoRecord))), "before the records of late sessions are written");
}

#[test]
fn a_session_that_is_taken_twice_goes_on_from_the_first_mark_until_its_client_has_confirmed_more() {
    for (confirms, is_slow) in [(false, false), (false, true), (true, false)] {
        let mut cluster = Cluster::new(NODES, 1);
        cluster.members[1].acknowledging.is_slow = is_slow;
        let session = id(1, 0);
        cluster.clients.confirmed.insert(session, 0);
        cluster.open(0, session);
        let ticks = |cluster: &mut Cluster| {
            for node in (0..12).map(|number| number % NODES as usize).filter(|node| *node != 0 || confirms) {
                if cluster.members[node].is_alive {
                    cluster.tick(node);
                }
                cluster.pass(200);
            }
        };
        (0..2).for_each(|_| cluster.tick(0));
        cluster.pass(1_000);
        cluster.clients.last = 5;
        ticks(&mut cluster);
        cluster.kill(0);
        cluster.request(1, session);
        cluster.pass(3_000);
        assert_eq!((cluster.nodes_with(session), cluster.clients.resumed), (vec![1], 1));
        if confirms {
            cluster.clients.confirmed.insert(session, 5);
            cluster.clients.last = 9;
            ticks(&mut cluster);
            assert_eq!(cluster.members[1].acknowledging.since(&session), Since::Tick(4), "it has confirmed the fifth");
        }
        cluster.kill(1);
        cluster.request(2, session);
        cluster.pass(3_000);
        assert_eq!((cluster.nodes_with(session), cluster.clients.resumed), (vec![2], 2));
    }
}
