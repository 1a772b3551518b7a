//! Histories that are written and read, and partitions that move, one thing at a time.

use encke_core::history::partition_of;
use encke_core::{PublishToken, SessionOwner, Side};

use super::faults::channels;
use super::journals::Journals;
use super::model::Cluster;
use crate::envelope::tests::frame_of;
use crate::histories::entry::NodeId;
use crate::histories::{Content, Submission};

/// A cluster of three nodes, and a channel.
fn cluster() -> (Cluster, String) {
    let mut cluster = Cluster::new(3, 1, None);
    cluster.settle();
    (cluster, channels().remove(0))
}

/// Publishes on each node in turn.
fn publish(cluster: &mut Cluster, channel: &str, count: usize) {
    for number in 0..count {
        let alive = cluster.alive();
        cluster.publish(alive[number % alive.len()], channel);
        cluster.pass(10);
    }
}

/// The messages of a channel, which all nodes have.
fn texts(cluster: &Cluster, channel: &str) -> Vec<String> {
    let alive = cluster.alive();
    let texts = cluster.members[alive[0]].rings.texts(channel);
    for node in alive {
        assert_eq!(cluster.members[node].rings.texts(channel), texts, "on {node}");
    }
    texts
}

/// The node that owns the partition of a channel.
fn owner(cluster: &Cluster) -> usize {
    cluster.alive().into_iter().find(|node| owns(cluster, *node)).expect("an owner")
}

fn owns(cluster: &Cluster, node: usize) -> bool {
    cluster.members[node].histories.partitions[0].state(NodeId(0)).is_owned
}

#[test]
fn all_nodes_have_one_order_and_each_publisher_gets_its_reply() {
    let (mut cluster, channel) = cluster();
    publish(&mut cluster, &channel, 30);
    cluster.pass(200);
    assert_eq!(texts(&cluster, &channel).len(), 30);
    let settled: Vec<usize> = cluster.members.iter().map(|member| member.settled.len()).collect();
    assert_eq!(settled, [10, 10, 10]);
    assert!(cluster.members.iter().all(|member| member.rings.live.len() == 30));
}

#[test]
fn another_node_goes_on_when_the_owner_is_killed() {
    let (mut cluster, channel) = cluster();
    publish(&mut cluster, &channel, 10);
    let dead = owner(&cluster);
    let seed = cluster.members[dead].rings.seed_of(&channel);
    cluster.kill(dead);
    publish(&mut cluster, &channel, 10);
    cluster.settle();
    assert_eq!(texts(&cluster, &channel).len(), 20);
    assert!(cluster.alive().iter().all(|node| cluster.members[*node].rings.seed_of(&channel) == seed));
}

#[test]
fn a_node_that_joins_gets_all_messages_and_delivers_only_new_ones() {
    let (mut cluster, channel) = cluster();
    publish(&mut cluster, &channel, 10);
    cluster.pass(200);
    let late = cluster.join();
    cluster.settle();
    publish(&mut cluster, &channel, 8);
    cluster.pass(200);
    assert_eq!((texts(&cluster, &channel).len(), cluster.members[late].rings.live.len()), (18, 8));
}

#[test]
fn a_node_that_was_cut_off_gets_what_it_has_missed() {
    let (mut cluster, channel) = cluster();
    let cut = owner(&cluster);
    cluster.disconnect(cut);
    let waiting = cluster.publish(cut, &channel);
    for _ in 0..5 {
        let other = (cut + 1) % 3;
        cluster.publish(other, &channel);
        cluster.pass(3_000);
    }
    assert_eq!(cluster.members[cut].settled.get(&waiting), None, "it waits for the engine");
    cluster.connect(cut);
    cluster.settle();
    assert_eq!(texts(&cluster, &channel).len(), 6);
    assert_eq!(cluster.members[cut].settled.get(&waiting), Some(&true));
    assert_eq!(cluster.members[cut].rings.live.len(), 6);
}

#[test]
fn nobody_who_has_the_messages_is_left_so_epochs_begin_again() {
    let (mut cluster, channel) = cluster();
    publish(&mut cluster, &channel, 5);
    let seed = cluster.members[0].rings.seed_of(&channel);
    (0..3).for_each(|node| cluster.kill(node));
    let node = cluster.join();
    cluster.settle();
    publish(&mut cluster, &channel, 5);
    cluster.pass(200);
    assert_eq!(texts(&cluster, &channel).len(), 5);
    assert_ne!(cluster.members[node].rings.seed_of(&channel), seed);
}

#[test]
fn a_journal_with_a_gap_gives_what_stands_behind_it_in_the_same_epoch() {
    let mut cluster = Cluster::of(3, 1, None, Journals::used(0));
    cluster.settle();
    let channel = channels().remove(0);
    for _ in 0..6 {
        publish(&mut cluster, &channel, 1);
        cluster.pass(200);
    }
    let (seed, before) = (cluster.members[0].rings.seed_of(&channel), texts(&cluster, &channel));
    (0..3).for_each(|node| cluster.kill(node));
    // The values are that of the owner without entries, and one for each message.
    cluster.journals.lose_one(3);
    let node = cluster.join();
    cluster.settle();
    assert_eq!(cluster.members[node].rings.seed_of(&channel), seed);
    assert_eq!(texts(&cluster, &channel), before[3..]);
    publish(&mut cluster, &channel, 2);
    cluster.pass(500);
    assert_eq!(texts(&cluster, &channel).len(), 5);
}

// The machine of the engine has lost power. Nobody can know of the lost messages, so their offsets are not given again.
#[test]
fn offsets_of_messages_that_a_journal_has_lost_at_its_end_are_not_given_again() {
    let mut cluster = Cluster::of(1, 1, None, Journals::used(0));
    cluster.settle();
    let channel = channels().remove(0);
    let (mut node, mut highest, mut messages) = (0, None, 0);
    let seed = cluster.members[node].rings.seed_of(&channel);
    for lost in [3, 1, 2] {
        for _ in 0..4 {
            publish(&mut cluster, &channel, 1);
            cluster.pass(200);
            messages += 1;
            let last = cluster.members[node].rings.last_offset(&channel);
            assert!(last > highest, "{last:?} comes after {highest:?}");
            highest = last;
        }
        cluster.kill(node);
        (0..lost).for_each(|_| cluster.journals.lose_last());
        node = cluster.join();
        cluster.settle();
        messages -= lost;
        let rings = &cluster.members[node].rings;
        assert_eq!((rings.seed_of(&channel), texts(&cluster, &channel).len()), (seed, messages));
    }
}

#[test]
fn a_rolling_restart_loses_nothing() {
    let (mut cluster, channel) = cluster();
    let seed = cluster.members[0].rings.seed_of(&channel);
    for node in 0..3 {
        publish(&mut cluster, &channel, 5);
        cluster.members[node].histories.end();
        for _ in 0..200 {
            cluster.pass(10);
            if cluster.members[node].histories.has_ended() {
                break;
            }
        }
        assert!(cluster.members[node].histories.has_ended());
        cluster.pass(50);
        cluster.kill(node);
        cluster.join();
        publish(&mut cluster, &channel, 5);
        cluster.settle();
    }
    assert_eq!(texts(&cluster, &channel).len(), 30);
    assert!(cluster.alive().iter().all(|node| cluster.members[*node].rings.seed_of(&channel) == seed));
}

#[test]
fn the_owner_writes_claims_again_that_the_engine_has_lost() {
    let (mut cluster, channel) = cluster();
    let seed = cluster.members[0].rings.seed_of(&channel);
    publish(&mut cluster, &channel, 6);
    cluster.lose_keys();
    publish(&mut cluster, &channel, 6);
    cluster.settle();
    assert_eq!((texts(&cluster, &channel).len(), cluster.members[0].rings.seed_of(&channel)), (12, seed));
}

// A server of the engine was restored from a copy, or its disk has lost the last writes.
#[test]
fn the_owner_goes_on_though_the_engine_has_an_older_claim_again() {
    let (mut cluster, channel) = cluster();
    let (before, seed) = (owner(&cluster), cluster.members[0].rings.seed_of(&channel));
    publish(&mut cluster, &channel, 3);
    cluster.pass(200);
    cluster.save_keys();
    succeeded(&mut cluster, &channel);
    let after = (0..3).filter(|node| *node != before).find(|node| owns(&cluster, *node)).expect("another owner");
    cluster.connect(before);
    cluster.settle();
    cluster.pass(5_000);
    cluster.roll_back(1);
    publish(&mut cluster, &channel, 3);
    cluster.settle();
    let owners: Vec<usize> = cluster.alive().into_iter().filter(|node| owns(&cluster, *node)).collect();
    assert_eq!((owners, texts(&cluster, &channel).len()), (vec![after], 8));
    assert_eq!(cluster.members[before].rings.seed_of(&channel), seed, "epochs go on");
}

/// An owner is cut off and succeeded, and comes back when the engine has its claim again. Returns the seed and the channel.
fn comes_back_to_its_claim(others_come: bool) -> (Cluster, String, Option<u64>) {
    let (mut cluster, channel) = cluster();
    let seed = cluster.members[0].rings.seed_of(&channel);
    publish(&mut cluster, &channel, 3);
    cluster.pass(200);
    cluster.save_keys();
    // It has seen writes that are lost.
    cluster.pass(2_000);
    let first = succeeded(&mut cluster, &channel);
    let others: Vec<usize> = (0..3).filter(|node| *node != first).collect();
    cluster.roll_back(1);
    others.iter().for_each(|node| cluster.disconnect(*node));
    cluster.connect(first);
    cluster.publish(first, &channel);
    cluster.pass(if others_come { 500 } else { 20_000 });
    others.iter().for_each(|node| cluster.connect(*node));
    cluster.settle();
    (cluster, channel, seed)
}

#[test]
fn an_owner_that_was_succeeded_does_not_go_on_by_its_claim_that_the_engine_has_again() {
    let (cluster, channel, seed) = comes_back_to_its_claim(true);
    assert_eq!((texts(&cluster, &channel).len(), cluster.members[0].rings.seed_of(&channel)), (6, seed));
    // Then nobody knows if it was succeeded.
    let (cluster, channel, seed) = comes_back_to_its_claim(false);
    assert_eq!(texts(&cluster, &channel).len(), 1);
    assert_ne!(cluster.members[0].rings.seed_of(&channel), seed);
}

/// Cuts the owner off for so long that another node goes on, and lets the others publish. Returns the one that was cut off.
fn succeeded(cluster: &mut Cluster, channel: &str) -> usize {
    let cut = owner(cluster);
    cluster.disconnect(cut);
    cluster.pass(8_000);
    for node in cluster.alive().into_iter().filter(|node| *node != cut) {
        cluster.publish(node, channel);
        cluster.pass(10);
    }
    cluster.pass(1_000);
    cut
}

#[test]
fn an_owner_that_was_cut_off_follows_the_next_one_though_the_engine_has_lost_its_keys() {
    let (mut cluster, channel) = cluster();
    publish(&mut cluster, &channel, 3);
    let cut = succeeded(&mut cluster, &channel);
    // The next owner writes its claim again, with a lower revision than that of the first one.
    cluster.lose_keys();
    cluster.pass(1_000);
    cluster.connect(cut);
    cluster.settle();
    assert_eq!(texts(&cluster, &channel).len(), 5);
}

/// The owner is succeeded, comes back first after the engine has lost its keys, and publishes; the others come back so much later.
fn comes_back_first(others_ms: u64) -> (Cluster, String, Option<u64>) {
    let (mut cluster, channel) = cluster();
    let seed = cluster.members[0].rings.seed_of(&channel);
    publish(&mut cluster, &channel, 3);
    cluster.pass(200);
    let first = succeeded(&mut cluster, &channel);
    let others: Vec<usize> = cluster.alive().into_iter().filter(|node| *node != first).collect();
    others.iter().for_each(|node| cluster.disconnect(*node));
    cluster.lose_keys();
    cluster.connect(first);
    cluster.publish(first, &channel);
    cluster.pass(others_ms);
    others.iter().for_each(|node| cluster.connect(*node));
    cluster.settle();
    (cluster, channel, seed)
}

#[test]
fn an_owner_that_was_succeeded_does_not_go_on_though_it_comes_first_to_an_engine_without_keys() {
    for others_ms in [100, 3_000, 8_000] {
        let (cluster, channel, seed) = comes_back_first(others_ms);
        assert_eq!((texts(&cluster, &channel).len(), cluster.members[0].rings.seed_of(&channel)), (6, seed));
    }
    // Then nobody knows if it was succeeded.
    let (cluster, channel, seed) = comes_back_first(20_000);
    assert_eq!(texts(&cluster, &channel).len(), 1);
    assert_ne!(cluster.members[0].rings.seed_of(&channel), seed);
}

#[test]
fn a_node_in_sync_that_dies_while_the_engine_loses_its_keys_may_have_been_the_owner_so_epochs_begin_again() {
    let (mut cluster, channel) = cluster();
    let seed = cluster.members[0].rings.seed_of(&channel);
    publish(&mut cluster, &channel, 3);
    cluster.pass(200);
    let dead = (owner(&cluster) + 1) % 3;
    cluster.lose_keys();
    cluster.kill(dead);
    cluster.pass(9_000);
    let alive = cluster.alive();
    cluster.publish(alive[0], &channel);
    cluster.settle();
    assert_eq!(texts(&cluster, &channel).len(), 1);
    assert_ne!(cluster.members[alive[0]].rings.seed_of(&channel), seed);
}

#[test]
fn a_partition_that_has_begun_again_goes_on_though_the_owner_of_before_comes_first_to_an_engine_without_keys() {
    let mut cluster = Cluster::new(2, 1, None);
    cluster.settle();
    let channel = channels().remove(0);
    let before = owner(&cluster);
    let other = 1 - before;
    cluster.disconnect(other);
    publish(&mut cluster, &channel, 2);
    cluster.pass(8_000);
    cluster.disconnect(before);
    cluster.connect(other);
    cluster.pass(20_000);
    cluster.publish(other, &channel);
    cluster.pass(1_000);
    let seed = cluster.members[other].rings.seed_of(&channel);
    assert_ne!(seed, cluster.members[before].rings.seed_of(&channel), "the other one was not in sync");
    cluster.disconnect(other);
    cluster.lose_keys();
    cluster.connect(before);
    cluster.pass(500);
    cluster.connect(other);
    cluster.settle();
    assert!(cluster.alive().iter().all(|node| cluster.members[*node].rings.seed_of(&channel) == seed));
}

#[test]
fn an_owner_that_comes_back_later_than_others_to_an_engine_without_keys_goes_on() {
    let (mut cluster, channel) = cluster();
    let (late, seed) = (owner(&cluster), cluster.members[0].rings.seed_of(&channel));
    publish(&mut cluster, &channel, 6);
    // Breaks that follow one another are no reason to begin again, either.
    for _ in 0..4 {
        cluster.disconnect(late);
        cluster.lose_keys();
        cluster.pass(4_000);
        cluster.connect(late);
    }
    publish(&mut cluster, &channel, 6);
    cluster.settle();
    assert!(cluster.alive().iter().all(|node| cluster.members[*node].rings.seed_of(&channel) == seed));
    assert_eq!(texts(&cluster, &channel).len(), 12);
}

#[test]
fn without_the_engine_publications_wait_within_a_bound_and_further_ones_are_refused() {
    let (mut cluster, channel) = cluster();
    cluster.disconnect(0);
    let tokens: Vec<u64> = (0..1_000).map(|_| cluster.publish(0, &channel)).collect();
    cluster.pass(100);
    let refused = tokens.iter().filter(|token| cluster.members[0].settled.get(token) == Some(&false)).count();
    assert_eq!(cluster.counts(0).refused, refused as u64);
    assert!((500..1_000).contains(&refused) && cluster.counts(0).pending_bytes <= 64 * 1024, "{refused}");
    cluster.connect(0);
    cluster.settle();
    assert_eq!(texts(&cluster, &channel).len(), 1_000 - refused);
}

#[test]
fn a_publisher_on_ever_new_channels_leaves_room_for_others() {
    let (mut cluster, channel) = cluster();
    cluster.disconnect(0);
    let publish = |cluster: &mut Cluster, user: u64, channel: &str, number: u64| {
        let content = Content::Publications {
            side: Side::Client,
            except: None,
            messages: 1,
            frames: frame_of(&format!("\"0 {number}\"")).into(),
        };
        let submission = Submission { channel: channel.into(), content };
        let (member, token) = (&mut cluster.members[0], PublishToken { shard: 0, number });
        member.histories.publish(submission, Some(token), Some(SessionOwner::of(user)));
        member.due_ms = 0;
    };
    let names = (0..).map(|number| format!("/new/{number}")).filter(|name| partition_of(name) < 2);
    (0..2_000).zip(names).for_each(|(number, name)| publish(&mut cluster, 1, &name, number));
    (2_000..2_020).for_each(|number| publish(&mut cluster, 2, &channel, number));
    // The greedy one is on the channel of the other as well.
    (3_000..3_020).for_each(|number| publish(&mut cluster, 1, &channel, number));
    cluster.pass(100);
    let refused = |numbers: std::ops::Range<u64>| {
        numbers.filter(|number| cluster.members[0].settled.get(number) == Some(&false)).count()
    };
    assert!(refused(0..2_000) > 1_000 && refused(3_000..3_020) == 20, "{}", refused(0..2_000));
    assert_eq!(refused(2_000..2_020), 0, "another user has its part");
    cluster.connect(0);
    cluster.settle();
    assert_eq!(texts(&cluster, &channel).len(), 20);
    assert_eq!(cluster.counts(0).pending_bytes, 0);
}

#[test]
fn what_is_too_large_for_the_engine_is_refused_and_what_is_large_is_divided() {
    let (mut cluster, channel) = cluster();
    let mut publish = |texts: &[String], number| {
        let frames: Vec<u8> = texts.iter().flat_map(|text| crate::envelope::tests::frame_of(text)).collect();
        let messages = texts.len() as u32;
        let content = Content::Publications { side: Side::Client, except: None, messages, frames: frames.into() };
        let submission = Submission { channel: channel.as_str().into(), content };
        cluster.submit(0, submission, number);
        cluster.pass(1_000);
        cluster.members[0].settled.get(&number).copied()
    };
    assert_eq!(publish(&[format!("\"0 1{}\"", " ".repeat(1 << 20))], 1), Some(false));
    let many: Vec<String> = (2..10).map(|number| format!("\"0 {number}\"{}", " ".repeat(200_000))).collect();
    assert_eq!(publish(&many, 2), Some(true));
}

#[test]
fn a_node_that_has_been_there_for_a_while_gets_its_partitions() {
    let mut cluster = Cluster::new(1, 5, None);
    cluster.settle();
    let (channels, mut owners) = (channels(), std::collections::BTreeSet::new());
    for _ in 0..8 {
        cluster.join();
    }
    for _ in 0..20 {
        cluster.pass(2_000);
        channels.iter().for_each(|channel| _ = cluster.publish(3, channel));
        let owned = cluster.alive().into_iter().filter(|node| cluster.counts(*node).owned > 0);
        owners.extend(owned);
    }
    cluster.settle();
    assert!(owners.len() > 1, "{owners:?}");
    assert!(channels.iter().all(|channel| texts(&cluster, channel).len() == 20));
}

#[test]
fn what_is_no_message_is_counted() {
    let (mut cluster, _) = cluster();
    cluster.members[0].histories.received(b"nothing");
    assert_eq!(cluster.counts(0).rejected, 1);
}
