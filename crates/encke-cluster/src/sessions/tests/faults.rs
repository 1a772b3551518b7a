//! Seeds: clients that come to any node, nodes that are killed and cut off, and an engine that delays, loses, doubles and reads old
//! values. In the end each session is on one node at most, and one that has ended is on none.

use std::collections::BTreeSet;

use encke_core::Id;

use super::model::{Cluster, Faults};
use super::{Answer, id};
use crate::sessions::Ordered;
use crate::sessions::record::Key;

const NODES: u64 = 3;
const SESSIONS: u64 = 4;
const STEPS: usize = 60;

/// One run. `faults`: the engine misbehaves, too.
fn run(seed: u64, faults: Faults) {
    let mut cluster = Cluster::new(NODES, seed);
    cluster.faults = faults;
    let sessions: Vec<Id> = (0..SESSIONS).map(|number| id(seed * SESSIONS + number, number % NODES)).collect();
    for (number, session) in sessions.iter().enumerate() {
        cluster.open(number % NODES as usize, *session);
    }
    cluster.pass(2_000);
    let (mut ended, mut asked) = (BTreeSet::new(), Vec::new());
    for _ in 0..STEPS {
        let node = cluster.dice.random(NODES) as usize;
        let session = sessions[cluster.dice.random(SESSIONS) as usize];
        let (is_alive, is_connected) = (cluster.members[node].is_alive, cluster.members[node].is_connected);
        match cluster.dice.random(20) {
            0 if is_connected => cluster.disconnect(node),
            0 | 1 if is_alive && !is_connected => cluster.connect(node),
            2 if cluster.members.iter().filter(|member| member.is_alive).count() > 2 => cluster.kill(node),
            // A logout at the one node that has the session.
            3 if cluster.nodes_with(session) == [node] && is_connected => {
                cluster.end(node, session);
                cluster.pass(3_000);
                if cluster.members[node].sessions.records.id(&Key::of(&session)).is_none() {
                    ended.insert(session);
                }
            }
            4 => cluster.report(node, session),
            5 => cluster.subscribe(node, session),
            // Nodes have a second way to learn of an order, so one notice may be lost.
            9 if is_alive && is_connected && cluster.faults.loses == 0 => {
                let order = cluster.order(node, session, false);
                cluster.pass(1_100);
                if cluster.outcome(order) == Some(Ordered::Recorded) {
                    ended.insert(session);
                }
            }
            6..=8 if is_alive => asked.push(cluster.socket(node, session)),
            _ if is_alive => asked.push(cluster.request(node, session)),
            _ => {}
        }
        let ms = cluster.dice.random(700);
        cluster.pass(ms);
    }
    settle(&mut cluster, &sessions);
    for session in &sessions {
        let nodes = cluster.nodes_with(*session);
        assert!(nodes.len() <= 1, "seed {seed}: {session:?} is on the nodes {nodes:?}");
        assert!(nodes.is_empty() || !ended.contains(session), "seed {seed}: {session:?} has come back");
        for node in 0..NODES as usize {
            if cluster.members[node].is_alive {
                let number = cluster.request(node, *session);
                cluster.pass(4_000);
                let nodes = cluster.nodes_with(*session);
                let expected = nodes.first().map_or(Answer::Unknown, |node| Answer::By(*node));
                assert_eq!(cluster.answer(number), Some(expected), "seed {seed}: {session:?} at {node}");
                assert!(nodes.len() <= 1 && (nodes.is_empty() || !ended.contains(session)), "seed {seed}: {nodes:?}");
            }
        }
    }
    for number in asked {
        let unanswered = cluster.answer(number).is_none() && !cluster.was_killed_with(number);
        assert!(!unanswered, "seed {seed}: request {number} has no answer");
    }
    let waiting = |node: usize| cluster.members[node].sessions.counts();
    for node in (0..NODES as usize).filter(|node| cluster.members[*node].is_alive) {
        assert_eq!((waiting(node).waiting, waiting(node).serving), (0, 0), "seed {seed}");
    }
}

/// All faults end, all nodes that live are connected, and sessions are reported once more.
fn settle(cluster: &mut Cluster, sessions: &[Id]) {
    cluster.faults = Faults::default();
    for node in 0..NODES as usize {
        if cluster.members[node].is_alive && !cluster.members[node].is_connected {
            cluster.connect(node);
        }
    }
    cluster.pass(60_000);
    for session in sessions {
        for node in 0..NODES as usize {
            cluster.report(node, *session);
        }
    }
    cluster.pass(60_000);
}

#[test]
fn each_session_ends_on_one_node_at_most_whatever_nodes_do() {
    for seed in 0..400 {
        run(seed, Faults::default());
    }
}

#[test]
fn an_engine_that_delays_loses_doubles_and_reads_old_values_gives_no_session_two_nodes() {
    for seed in 0..800 {
        run(seed, Faults { reorders: 300, doubles: 100, loses: 50, reads_old: 200, forgets_answer: 50 });
    }
}
