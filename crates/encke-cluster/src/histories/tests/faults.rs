//! Seeds: publishers on all nodes, nodes that are killed, paused, cut off and started, and an engine that delays, loses, doubles, forgets
//! answers and reports keys late. The rings check each message that any node applies; at the end nothing that was confirmed is missing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::clients::{self, Outcomes};
use super::journals::Journals;
use super::model::{Cluster, Faults};
use crate::histories::context::Sabotage;

/// Two channels of each partition of the model.
pub(super) fn channels() -> Vec<String> {
    let of = |partition| {
        let names = (0..).map(|number| format!("/c/{number}"));
        names.filter(move |name| encke_core::history::partition_of(name) == partition).take(2)
    };
    (0..super::PARTITIONS).flat_map(of).collect()
}

const NODES: usize = 3;
const STEPS: usize = 50;

/// The disruptions of a run, each in this many of 100 steps.
#[derive(Clone, Copy, Default)]
struct Disruptions {
    kills: u64,
    pauses: u64,
    cuts: u64,
    /// The engine loses its keys.
    losses: u64,
    /// The engine has older keys again.
    restores: u64,
    /// All nodes are killed.
    ends: u64,
    /// The journals are full for a while.
    fills: u64,
    /// A node is disrupted only while all are level.
    is_careful: bool,
}

fn run(seed: u64, faults: Faults, disruptions: Disruptions, sabotage: Option<Sabotage>) -> Outcomes {
    run_on(Cluster::new(NODES, seed, sabotage), faults, disruptions)
}

/// Runs a cluster, and checks what its nodes have at the end.
fn run_on(mut cluster: Cluster, faults: Faults, disruptions: Disruptions) -> Outcomes {
    let mut outcomes = Outcomes::default();
    cluster.settle();
    cluster.faults = faults;
    let channels = channels();
    for _ in 0..STEPS {
        disrupt(&mut cluster, disruptions);
        for _ in 0..cluster.dice.random(4) {
            let alive = cluster.alive();
            let node = alive[cluster.dice.random(alive.len() as u64) as usize];
            let channel = &channels[cluster.dice.random(channels.len() as u64) as usize];
            cluster.publish(node, channel);
        }
        let ms = if cluster.dice.random(10) == 0 { cluster.dice.random(9_000) } else { cluster.dice.random(200) };
        cluster.pass(ms);
        let Outcomes { taken, refused } = clients::check(&cluster, &channels);
        outcomes = Outcomes { taken: outcomes.taken + taken, refused: outcomes.refused + refused };
    }
    cluster.faults = Faults::default();
    for node in cluster.alive() {
        cluster.members[node].paused_ms = cluster.members[node].paused_ms.min(1);
        if !cluster.members[node].is_connected {
            cluster.connect(node);
        }
    }
    cluster.settle();
    check(&cluster, &channels);
    clients::check(&cluster, &channels);
    outcomes
}

fn disrupt(cluster: &mut Cluster, disruptions: Disruptions) {
    let alive = cluster.alive();
    let node = alive[cluster.dice.random(alive.len() as u64) as usize];
    let Disruptions { kills, pauses, cuts, losses, restores, ends, fills, is_careful } = disruptions;
    if fills > 0 && cluster.dice.random(100) < fills {
        let until_ms = cluster.now_ms + cluster.dice.random(20_000);
        cluster.journals.fill(until_ms);
    }
    if restores > 0 {
        cluster.save_keys();
    }
    let chance = cluster.dice.random(100);
    if !cluster.members[node].is_connected {
        if cluster.dice.random(3) == 0 {
            cluster.connect(node);
        }
        return;
    }
    if is_careful && !cluster.is_level() {
        return;
    }
    if chance < kills {
        cluster.kill(node);
        if cluster.alive().len() < 2 || cluster.dice.random(2) == 0 {
            cluster.join();
        }
    } else if chance < kills + pauses {
        let ms = 500 + cluster.dice.random(12_000);
        cluster.pause(node, ms);
    } else if chance < kills + pauses + cuts {
        cluster.disconnect(node);
    } else if chance < kills + pauses + cuts + losses {
        cluster.lose_keys();
    } else if chance < kills + pauses + cuts + losses + ends {
        alive.iter().for_each(|node| cluster.kill(*node));
        let lost = if cluster.journals.lose_ends { cluster.dice.random(4) } else { 0 };
        (0..lost).for_each(|_| cluster.journals.lose_last());
        (0..NODES).for_each(|_| _ = cluster.join());
    } else if chance < kills + pauses + cuts + losses + ends + restores {
        let savings = 1 + cluster.dice.random(10) as usize;
        cluster.restore_keys(savings);
    } else if alive.len() < NODES && cluster.dice.random(4) == 0 {
        cluster.join();
    }
}

/// All nodes have the same messages, and all that was confirmed in the epochs that hold.
fn check(cluster: &Cluster, channels: &[String]) {
    cluster.truth.borrow().check();
    let drops = cluster.journals.are_used && cluster.journals.have_gaps();
    let alive = cluster.alive();
    for channel in channels {
        let texts = cluster.members[alive[0]].rings.texts(channel);
        let seed = cluster.members[alive[0]].rings.seed_of(channel);
        for node in &alive {
            let rings = &cluster.members[*node].rings;
            let of_node = rings.texts(channel);
            // A node that was there before the journal was read may have older ones.
            let is_same = of_node == texts || (drops && (of_node.ends_with(&texts) || texts.ends_with(&of_node)));
            assert!(rings.seed_of(channel) == seed && is_same, "{channel} on {node}: {of_node:?}, and {texts:?}");
            // Those that were there from the beginning have delivered each message.
            let is_missing = |text: &&String| !rings.live.contains(&(seed.unwrap_or_default(), text.to_string()));
            let missing: Vec<_> = texts.iter().filter(is_missing).collect();
            assert!(*node >= NODES || drops || missing.is_empty(), "{node} has lost {missing:?} on {channel}");
        }
        for (node, member) in cluster.members.iter().enumerate() {
            let is_here = |(of, on): &(u64, String)| Some(*of) == seed && on == channel;
            for (token, _) in member.rings.stored.iter().filter(|(_, stored)| is_here(stored)) {
                let text = format!("{node} {token}");
                assert!(drops || texts.contains(&text), "{text} was confirmed and is missing on {channel}");
            }
        }
    }
    for node in alive {
        let settled = &cluster.members[node].settled;
        assert!(settled.values().all(|is_stored| *is_stored), "there was room for all");
        assert_eq!(cluster.counts(node).pending_bytes, 0);
    }
}

const BAD_ENGINE: Faults =
    Faults { loses: 30, doubles: 30, delays: 100, forgets_answer: 50, reports_late: 50, reads_old: 200 };
/// One whose messages are on their way for long when a node is killed.
const SLOW_ENGINE: Faults =
    Faults { loses: 100, doubles: 0, delays: 500, forgets_answer: 0, reports_late: 0, reads_old: 0 };
/// Nodes that are killed while the journals are full.
const FILLS: Disruptions =
    Disruptions { kills: 15, pauses: 0, cuts: 0, losses: 0, restores: 0, ends: 10, fills: 40, is_careful: false };
/// Keys that come back with older values.
const RESTORES: Disruptions =
    Disruptions { kills: 2, pauses: 6, cuts: 12, losses: 0, restores: 6, ends: 0, fills: 0, is_careful: false };
const MANY: u64 = 200;

#[test]
fn nothing_is_lost_or_doubled_while_nodes_die_one_at_a_time() {
    let disruptions = Disruptions { kills: 15, is_careful: true, ..Disruptions::default() };
    let outcomes: Vec<_> = (0..MANY).map(|seed| run(seed, Faults::default(), disruptions, None)).collect();
    let sum = |of: fn(&Outcomes) -> usize| outcomes.iter().map(of).sum::<usize>();
    let (taken, refused) = (sum(|outcomes| outcomes.taken), sum(|outcomes| outcomes.refused));
    assert!(taken > 4 * refused, "{taken} channels of sessions went on, {refused} did not");
}

#[test]
fn an_engine_that_delays_loses_doubles_and_reads_old_values_breaks_no_promise() {
    (0..MANY).for_each(|seed| _ = run(seed, BAD_ENGINE, Disruptions::default(), None));
}

#[test]
fn nodes_that_are_cut_off_or_paused_break_no_promise() {
    let disruptions = Disruptions { pauses: 10, cuts: 10, ..Disruptions::default() };
    (0..MANY).for_each(|seed| _ = run(seed, Faults { delays: 100, ..Faults::default() }, disruptions, None));
}

#[test]
fn all_faults_together_break_no_promise() {
    let disruptions = Disruptions { kills: 8, pauses: 8, cuts: 8, ..Disruptions::default() };
    (0..MANY).for_each(|seed| _ = run(seed, BAD_ENGINE, disruptions, None));
}

#[test]
fn an_engine_that_loses_its_keys_breaks_no_promise() {
    let disruptions = Disruptions { kills: 2, pauses: 6, cuts: 12, losses: 6, ..Disruptions::default() };
    (0..MANY).for_each(|seed| _ = run(seed, Faults { delays: 100, ..Faults::default() }, disruptions, None));
    (0..MANY).for_each(|seed| _ = run(seed, BAD_ENGINE, disruptions, None));
}

#[test]
fn an_engine_whose_keys_come_back_with_an_older_state_breaks_no_promise() {
    (0..MANY).for_each(|seed| _ = run(seed, Faults { delays: 100, ..Faults::default() }, RESTORES, None));
    (0..MANY).for_each(|seed| _ = run(seed, BAD_ENGINE, RESTORES, None));
}

// It still expects the revision of the lost write, and the watch has nothing new to report.
#[test]
fn an_owner_whose_last_claim_the_engine_has_lost_writes_its_next_one() {
    let mut cluster = Cluster::new(2, 1, None);
    cluster.settle();
    let third = cluster.join();
    cluster.settle();
    let publish = |cluster: &mut Cluster| channels().iter().for_each(|channel| _ = cluster.publish(0, channel));
    publish(&mut cluster);
    cluster.pass(1_000);
    cluster.lose_last_claims();
    cluster.kill(third);
    publish(&mut cluster);
    cluster.settle();
    assert_eq!(cluster.truth.borrow().seeds(), super::PARTITIONS, "no epoch has ended");
    check(&cluster, &channels());
}

/// Runs a cluster with journals, of which no epoch may end.
fn run_with_journals(seed: u64, faults: Faults, disruptions: Disruptions, sabotage: Option<Sabotage>) {
    let cluster = Cluster::of(NODES, seed, sabotage, Journals::used(0));
    let truth = cluster.truth.clone();
    run_on(cluster, faults, disruptions);
    let seeds = truth.borrow().seeds();
    assert!(seeds <= super::PARTITIONS, "a partition has begun again, though its journal has all");
}

#[test]
fn journals_keep_all_that_was_confirmed_when_all_nodes_are_killed() {
    let disruptions = Disruptions { ends: 10, ..Disruptions::default() };
    (0..MANY).for_each(|seed| run_with_journals(seed, Faults::default(), disruptions, None));
    let disruptions = Disruptions { kills: 8, pauses: 8, cuts: 8, ends: 5, ..Disruptions::default() };
    (0..MANY).for_each(|seed| run_with_journals(seed, BAD_ENGINE, disruptions, None));
    (0..MANY).for_each(|seed| run_with_journals(seed, SLOW_ENGINE, FILLS, None));
}

#[test]
fn journals_that_drop_their_oldest_values_or_are_lost_break_no_promise() {
    let disruptions = Disruptions { kills: 4, pauses: 4, cuts: 4, losses: 4, ends: 6, ..Disruptions::default() };
    for seed in 0..MANY {
        run_on(Cluster::of(NODES, seed, None, Journals::used(4)), BAD_ENGINE, disruptions);
        run_on(Cluster::of(NODES, seed, None, Journals::used(0)), BAD_ENGINE, disruptions);
    }
}

#[test]
fn journals_that_lose_their_last_values_give_no_offset_twice() {
    let disruptions = Disruptions { kills: 4, pauses: 4, cuts: 4, ends: 12, ..Disruptions::default() };
    for seed in 0..MANY {
        let mut cluster = Cluster::of(NODES, seed, None, Journals::used(0));
        cluster.journals.lose_ends = true;
        run_on(cluster, Faults::default(), disruptions);
    }
}

/// True if a seed shows that a rule is broken.
fn is_found(sabotage: Sabotage) -> bool {
    let disruptions = Disruptions { kills: 8, pauses: 8, cuts: 8, losses: 3, ..Disruptions::default() };
    let engine = Faults { loses: 100, forgets_answer: 300, ..BAD_ENGINE };
    let finds = |seed| catch_unwind(AssertUnwindSafe(|| run(seed, engine, disruptions, Some(sabotage)))).is_err();
    (0..2_000).any(finds)
}

#[test]
fn rules_of_journals_that_are_broken_are_found() {
    let disruptions = Disruptions { kills: 8, pauses: 12, cuts: 8, losses: 2, ends: 4, ..Disruptions::default() };
    let engine = Faults { delays: 100, reports_late: 200, ..Faults::default() };
    for (sabotage, disruptions, engine) in [
        (Sabotage::CommitsWithoutJournal, disruptions, engine),
        (Sabotage::AddsBehindLater, disruptions, engine),
        (Sabotage::ForgetsAbsence, disruptions, engine),
        (Sabotage::DropsAtFirstValue, FILLS, SLOW_ENGINE),
    ] {
        let run = |seed| run_on(Cluster::of(NODES, seed, Some(sabotage), Journals::used(0)), engine, disruptions);
        let finds = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed))).is_err();
        let found = (0..6_000).find(finds);
        println!("{sabotage:?}: {found:?}");
        assert!(found.is_some(), "{sabotage:?}");
    }
}

#[test]
fn a_rule_of_older_keys_that_is_broken_is_found() {
    let engine = Faults { delays: 100, ..Faults::default() };
    let run = |seed| run(seed, engine, RESTORES, Some(Sabotage::BelievesOlder));
    assert!((0..2_000).any(|seed| catch_unwind(AssertUnwindSafe(|| run(seed))).is_err()));
}

#[test]
fn rules_that_are_broken_are_found() {
    for sabotage in [
        Sabotage::CommitsEarly,
        Sabotage::SucceedsFromOutside,
        Sabotage::AddsLate,
        Sabotage::GoesOnAlone,
        Sabotage::TakesAllNumbers,
        Sabotage::MarksEarly,
        Sabotage::TrustsTimes,
    ] {
        assert!(is_found(sabotage), "{sabotage:?}");
    }
}
