//! Leases on an engine in memory, which delays, loses and forgets. The clocks of the nodes are an hour apart.

use std::collections::VecDeque;

use super::*;
use crate::command::KeyFailure;
use crate::dice::Dice;

struct Member {
    leases: Leases,
    is_alive: bool,
    is_connected: bool,
    /// The time until which it does nothing, in milliseconds.
    paused_ms: u64,
    /// The time until which it holds the lease, by the time of all.
    holds_ms: u64,
    clock_ms: u64,
    /// Events on their way to it.
    events: VecDeque<Event>,
}

#[derive(Clone)]
enum Event {
    Begins,
    Changed(u64, Option<Bytes>),
    Complete,
    Answer(u64, KeyReply),
}

struct Cluster {
    members: Vec<Member>,
    /// The last revision, and the value.
    revision: u64,
    value: Option<(u64, Bytes)>,
    now_ms: u64,
    dice: Dice,
    /// Lost answers and delays in this many of 1,000 cases.
    faults: u64,
    /// The node that held it last.
    last: Option<usize>,
    /// Changes of the holder.
    changes: usize,
}

const NAME: &str = "sources/a";

impl Cluster {
    fn new(nodes: u64, seed: u64) -> Cluster {
        let member = |node: u64| Member {
            leases: Leases::new(node + 1, "test".into()),
            is_alive: true,
            is_connected: false,
            paused_ms: 0,
            holds_ms: 0,
            clock_ms: node * 3_600_000,
            events: VecDeque::new(),
        };
        let mut cluster = Cluster {
            members: (0..nodes).map(member).collect(),
            revision: 0,
            value: None,
            now_ms: 1_000_000,
            dice: Dice::new(seed),
            faults: 0,
            last: None,
            changes: 0,
        };
        for node in 0..nodes as usize {
            let now_ms = cluster.now_ms + cluster.members[node].clock_ms;
            cluster.members[node].leases.want(now_ms, NAME);
            cluster.connect(node);
        }
        cluster
    }

    fn connect(&mut self, node: usize) {
        let (now_ms, member) = (self.now_ms, &mut self.members[node]);
        member.is_connected = true;
        member.leases.connected(now_ms + member.clock_ms);
        self.watch_again(node);
    }

    fn watch_again(&mut self, node: usize) {
        let value = self.value.clone();
        let events = &mut self.members[node].events;
        events.push_back(Event::Begins);
        events.extend(value.map(|(revision, value)| Event::Changed(revision, Some(value))));
        events.push_back(Event::Complete);
    }

    fn disconnect(&mut self, node: usize) {
        let member = &mut self.members[node];
        member.is_connected = false;
        member.leases.disconnected();
        // A watch brings nothing more; answers have failed.
        member.events.retain(|event| matches!(event, Event::Answer(..)));
    }

    /// The engine loses its keys.
    fn forget(&mut self) {
        (self.value, self.revision) = (None, 0);
        for node in 0..self.members.len() {
            if self.members[node].is_connected {
                self.watch_again(node);
            }
        }
    }

    /// Lets time pass. At each moment one node at most holds the lease.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 50 {
            self.now_ms += 50;
            for node in 0..self.members.len() {
                self.turn(node);
            }
            let now_ms = self.now_ms;
            let holds = |member: &Member| member.is_alive && member.holds_ms > now_ms;
            let holders: Vec<usize> = (0..self.members.len()).filter(|node| holds(&self.members[*node])).collect();
            assert!(holders.len() <= 1, "{holders:?} hold it at once");
            if let [holder] = holders[..]
                && self.last.replace(holder) != Some(holder)
            {
                self.changes += 1;
            }
        }
    }

    fn turn(&mut self, node: usize) {
        if !self.members[node].is_alive || self.members[node].paused_ms > self.now_ms {
            return;
        }
        let member = &mut self.members[node];
        let now_ms = self.now_ms + member.clock_ms;
        let key = key_of(NAME);
        while !member.events.is_empty() && !self.dice.happens(self.faults) {
            match member.events.pop_front() {
                Some(Event::Begins) => member.leases.watch_begins(),
                Some(Event::Changed(revision, value)) => {
                    member.leases.key_changed(now_ms, &key, revision, value.as_ref())
                }
                Some(Event::Complete) => member.leases.watch_is_complete(now_ms),
                Some(Event::Answer(number, answer)) => member.leases.key_answered(now_ms, number, &answer),
                None => {}
            }
        }
        member.leases.turn(now_ms);
        for output in member.leases.take_outputs() {
            match output {
                LeaseOutput::Holds(_, until_ms) => {
                    self.members[node].holds_ms = until_ms.map_or(0, |until_ms| until_ms - self.members[node].clock_ms);
                }
                LeaseOutput::Engine(Command::Put { number, value, expected, .. }) => {
                    self.put(node, number, value, expected);
                }
                LeaseOutput::Engine(_) => {}
            }
        }
    }

    fn put(&mut self, node: usize, number: u64, value: Bytes, expected: Expected) {
        let is_lost = !self.members[node].is_connected || self.dice.happens(self.faults / 3);
        let last = self.value.as_ref().map_or(0, |(revision, _)| *revision);
        let answer = match (is_lost, expected.allows(last)) {
            (true, _) => Err(KeyFailure::Failed("lost".into())),
            (false, false) => Err(KeyFailure::Conflict),
            (false, true) => {
                self.revision += 1;
                self.value = Some((self.revision, value.clone()));
                let change = Event::Changed(self.revision, Some(value));
                let watching = self.members.iter_mut().filter(|member| member.is_connected);
                watching.for_each(|member| member.events.push_back(change.clone()));
                let is_forgotten = self.dice.happens(self.faults / 3);
                if is_forgotten {
                    Err(KeyFailure::Failed("no answer".into()))
                } else {
                    Ok(KeyAnswer::Written(self.revision))
                }
            }
        };
        self.members[node].events.push_back(Event::Answer(number, answer));
    }

    fn holder(&self) -> Option<usize> {
        (0..self.members.len()).find(|node| self.members[*node].is_alive && self.members[*node].holds_ms > self.now_ms)
    }
}

#[test]
fn one_node_holds_a_lease_and_goes_on() {
    let mut cluster = Cluster::new(3, 1);
    cluster.pass(GONE_MS + 500);
    assert!(cluster.holder().is_some());
    cluster.pass(60_000);
    assert_eq!(cluster.changes, 1);
}

#[test]
fn another_node_holds_it_within_ten_seconds_when_the_holder_is_killed() {
    let mut cluster = Cluster::new(3, 2);
    cluster.pass(10_000);
    let holder = cluster.holder().expect("a holder");
    cluster.members[holder].is_alive = false;
    cluster.pass(10_000);
    assert!(cluster.holder().is_some_and(|other| other != holder));
}

#[test]
fn a_holder_that_stops_passes_it_on_at_once() {
    let mut cluster = Cluster::new(3, 3);
    cluster.pass(10_000);
    let holder = cluster.holder().expect("a holder");
    cluster.members[holder].leases.end();
    cluster.pass(500);
    assert!(cluster.members[holder].leases.has_ended());
    assert!(cluster.holder().is_some_and(|other| other != holder), "the others do not wait");
}

#[test]
fn a_paused_holder_does_not_go_on_with_what_another_has() {
    let mut cluster = Cluster::new(2, 4);
    cluster.pass(10_000);
    let holder = cluster.holder().expect("a holder");
    cluster.members[holder].paused_ms = cluster.now_ms + 30_000;
    cluster.pass(60_000);
    assert_eq!((cluster.holder(), cluster.changes), (Some(1 - holder), 2));
}

#[test]
fn without_the_engine_the_holder_gives_up_and_when_its_keys_are_lost_it_goes_on() {
    let mut cluster = Cluster::new(3, 5);
    cluster.pass(10_000);
    cluster.forget();
    cluster.pass(20_000);
    assert_eq!((cluster.changes, cluster.holder().is_some()), (1, true));
    (0..3).for_each(|node| cluster.disconnect(node));
    cluster.pass(HOLDS_MS + 100);
    assert_eq!(cluster.holder(), None);
    (0..3).for_each(|node| cluster.connect(node));
    cluster.pass(10_000);
    assert!(cluster.holder().is_some());
}

#[test]
fn whatever_fails_two_nodes_never_hold_a_lease_at_once_and_one_does_afterwards() {
    for seed in 0..300 {
        let mut cluster = Cluster::new(3, seed);
        cluster.faults = 300;
        for _ in 0..20 {
            let node = cluster.dice.random(3) as usize;
            match cluster.dice.random(6) {
                0 if cluster.members[node].is_connected => cluster.disconnect(node),
                1 if !cluster.members[node].is_connected => cluster.connect(node),
                2 => cluster.members[node].paused_ms = cluster.now_ms + cluster.dice.random(15_000),
                3 if cluster.dice.happens(300) => cluster.forget(),
                _ => {}
            }
            let ms = cluster.dice.random(6_000);
            cluster.pass(ms);
        }
        cluster.faults = 0;
        (0..3)
            .filter(|node| !cluster.members[*node].is_connected)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|node| cluster.connect(node));
        cluster.pass(30_000);
        assert!(cluster.holder().is_some(), "seed {seed}");
    }
}

#[test]
fn revisions_that_begin_again_are_believed_when_a_watch_begins_again() {
    let mut leases = Leases::new(1, "test".into());
    leases.want(0, NAME);
    leases.connected(0);
    for revision in [57, 2] {
        leases.watch_begins();
        leases.key_changed(0, &key_of(NAME), revision, Some(&write(Some(9))));
        leases.watch_is_complete(0);
    }
    leases.take_outputs();
    leases.turn(GONE_MS);
    let outputs = leases.take_outputs();
    let [LeaseOutput::Engine(Command::Put { expected, .. })] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(*expected, Expected::Revision(2));
}

#[test]
fn a_node_that_wants_a_lease_later_knows_who_holds_it() {
    let claims = |leases: &mut Leases, now_ms| {
        leases.turn(now_ms);
        let outputs = leases.take_outputs();
        let put = |output| match output {
            LeaseOutput::Engine(Command::Put { number, expected, .. }) => Some((number, expected)),
            _ => None,
        };
        outputs.into_iter().find_map(put)
    };
    let mut leases = Leases::new(1, "test".into());
    leases.want(0, "another");
    leases.connected(0);
    leases.watch_begins();
    leases.key_changed(0, &key_of(NAME), 7, Some(&write(Some(9))));
    leases.watch_is_complete(0);
    leases.give_up("another");
    leases.want(5_000, NAME);
    assert_eq!(claims(&mut leases, GONE_MS - 1), None);
    let (number, expected) = claims(&mut leases, GONE_MS).expect("its holder has been silent since before");
    assert_eq!(expected, Expected::Revision(7));
    leases.key_answered(GONE_MS + 1, number, &Ok(KeyAnswer::Written(8)));
    leases.give_up(NAME);
    let (number, _) = claims(&mut leases, GONE_MS + 2).expect("it gives it up");
    leases.key_answered(GONE_MS + 2, number, &Ok(KeyAnswer::Written(9)));
    assert_eq!(claims(&mut leases, GONE_MS + 3), None);
    leases.want(GONE_MS + 4, NAME);
    let (_, expected) = claims(&mut leases, GONE_MS + 4).expect("a claim at once");
    assert_eq!(expected, Expected::Revision(9));
}
