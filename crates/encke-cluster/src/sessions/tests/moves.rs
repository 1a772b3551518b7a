//! Sessions that are served, moved and taken over, one thing at a time.

use encke_core::{Opener, ShardMessage};

use super::model::Cluster;
use super::shards::LARGE;
use super::{Answer, id, tag};
use crate::sessions::{RelayId, RelayOutput, RelayRequest};

/// A cluster of three nodes with a session that node 0 has opened, and whose record is written.
pub(super) fn opened() -> (Cluster, encke_core::Id) {
    let mut cluster = Cluster::new(3, 1);
    let session = id(1, 0);
    cluster.open(0, session);
    cluster.pass(1_000);
    (cluster, session)
}

/// The answer to a connect that comes to a node.
fn connect(cluster: &mut Cluster, node: usize, session: encke_core::Id) -> Option<Answer> {
    let number = cluster.request(node, session);
    cluster.pass(1_900);
    cluster.answer(number)
}

#[test]
fn requests_at_other_nodes_are_served_by_the_one_that_has_the_session() {
    let (mut cluster, session) = opened();
    for node in [1, 2, 0, 1] {
        assert_eq!(connect(&mut cluster, node, session), Some(Answer::By(0)));
    }
    assert_eq!(cluster.nodes_with(session), [0]);
    let counts = [0, 1, 2].map(|node: usize| cluster.members[node].sessions.counts());
    assert_eq!((counts[0].served, counts[1].forwarded, counts[2].forwarded), (3, 2, 1));
    assert_eq!(cluster.members[0].fates.len(), 3, "the fate of each response is reported");
    assert!(counts.iter().all(|counts| (counts.waiting, counts.serving) == (0, 0)));
}

#[test]
fn a_websocket_brings_its_session_with_what_waits_for_it() {
    let (mut cluster, session) = opened();
    cluster.members[0].here.insert(session, 7);
    let number = cluster.socket(1, session);
    cluster.pass(100);
    assert_eq!((cluster.answer(number), cluster.nodes_with(session)), (Some(Answer::By(1)), vec![1]));
    assert_eq!(cluster.members[1].here[&session], 7);
    // The node that has opened it tells where it is, before and after its record does.
    assert_eq!(connect(&mut cluster, 2, session), Some(Answer::By(1)));
    cluster.pass(5_000);
    assert_eq!(connect(&mut cluster, 0, session), Some(Answer::By(1)));
    assert_eq!(cluster.members[2].sessions.counts().taken_over, 0);
}

#[test]
fn a_request_that_moves_its_session_waits_for_one_that_has_just_moved() {
    for stays_ms in [1_000, 2_000] {
        let (mut cluster, session) = opened();
        let now_ms = cluster.now_ms;
        // The engine takes less than the request.
        cluster.members[1].sessions.connected(now_ms, 1_000);
        cluster.members[0].keeps_all = true;
        let large = cluster.request(1, session);
        cluster.pass(500);
        let other = cluster.socket(1, session);
        cluster.pass(10);
        assert_eq!(cluster.members[1].relayed, [(other, tag(0))], "others do not wait for it");
        cluster.pass(stays_ms - 510);
        cluster.members[0].keeps_all = false;
        assert_eq!(cluster.answer(large), (stays_ms > 1_500).then_some(Answer::Later));
        cluster.pass(500);
        assert_eq!(cluster.answer(large), Some(if stays_ms > 1_500 { Answer::Later } else { Answer::By(1) }));
    }
}

#[test]
fn a_session_whose_node_is_gone_goes_on_at_the_next_one_and_only_there() {
    let (mut cluster, session) = opened();
    cluster.kill(0);
    let (one, other) = (cluster.request(1, session), cluster.request(2, session));
    cluster.pass(1_900);
    let answers = [cluster.answer(one), cluster.answer(other)];
    let nodes = cluster.nodes_with(session);
    assert!(nodes.len() == 1 && answers == [Some(Answer::By(nodes[0])); 2], "{answers:?} {nodes:?}");
    let taken: u64 = [1, 2].iter().map(|node: &usize| cluster.members[*node].sessions.counts().taken_over).sum();
    assert_eq!(taken, 1);
}

#[test]
fn connects_that_wait_for_a_node_go_on_when_it_is_killed_and_other_requests_come_back() {
    let (mut cluster, session) = opened();
    // Its shard holds the connect: it does not answer.
    cluster.hold_all(0);
    let (connect, publish) = (cluster.request(1, session), cluster.request_of(1, session, false, 1));
    cluster.pass(300);
    assert_eq!((cluster.answer(connect), cluster.answer(publish)), (None, None));
    cluster.kill(0);
    cluster.pass(1_900);
    assert_eq!(cluster.answer(connect), Some(Answer::By(1)));
    assert_eq!(cluster.answer(publish), Some(Answer::Later), "it may have been processed");
    assert_eq!(cluster.members[1].sessions.counts().nodes_gone, 1);
}

#[test]
fn a_session_that_has_ended_does_not_come_back() {
    let (mut cluster, session) = opened();
    cluster.end(0, session);
    cluster.pass(100);
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::Unknown));
    cluster.kill(0);
    assert_eq!(connect(&mut cluster, 2, session), Some(Answer::Unknown));
    assert!(cluster.nodes_with(session).is_empty());
}

#[test]
fn the_reply_to_a_logout_waits_until_its_end_is_written_or_for_its_time() {
    let (mut cluster, session) = opened();
    let log_out = |cluster: &mut Cluster, session, reply| {
        cluster.members[0].here.remove(&session);
        let ended = encke_core::ForNodes::Ended { session, binds: true, reply: Some(reply) };
        cluster.tell(0, ShardMessage::ForNodes(ended));
        cluster.members[0].left.contains(&reply)
    };
    cluster.faults.forgets_answer = 1_000;
    assert!(!log_out(&mut cluster, session, 1));
    cluster.pass(900);
    assert!(cluster.members[0].left.is_empty());
    cluster.pass(200);
    assert_eq!(cluster.members[0].left, [1]);
    cluster.faults.forgets_answer = 0;
    cluster.pass(5_000);
    assert!(log_out(&mut cluster, session, 2), "it has no record any more");
    let other = id(2, 0);
    cluster.open(0, other);
    cluster.pass(1_000);
    assert!(!log_out(&mut cluster, other, 3));
    cluster.pass(10);
    assert_eq!(cluster.members[0].left, [1, 2, 3]);
}

#[test]
fn an_unknown_session_is_unknown_everywhere() {
    let mut cluster = Cluster::new(3, 1);
    // Of a node that never was, of another one, of this one.
    for session in [id(5, 9), id(6, 1), id(7, 0)] {
        assert_eq!(connect(&mut cluster, 0, session), Some(Answer::Unknown));
        let socket = cluster.socket(2, session);
        cluster.pass(1_000);
        assert_eq!(cluster.answer(socket), Some(Answer::Unknown));
    }
}

#[test]
fn a_node_that_was_cut_off_ends_the_sessions_that_others_have_taken() {
    let (mut cluster, session) = opened();
    let other = id(2, 0);
    cluster.open(0, other);
    cluster.pass(1_000);
    cluster.disconnect(0);
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(1)));
    assert_eq!(cluster.nodes_with(session), [0, 1], "it cannot know");
    cluster.connect(0);
    cluster.pass(1_000);
    assert_eq!((cluster.nodes_with(session), cluster.nodes_with(other)), (vec![1], vec![0]));
    assert_eq!(connect(&mut cluster, 0, session), Some(Answer::By(1)));
}

#[test]
fn a_session_begins_again_if_its_client_has_subscribed_on_a_copy_that_ends() {
    for is_first in [true, false] {
        let (mut cluster, session) = opened();
        cluster.disconnect(0);
        if is_first {
            cluster.subscribe(0, session);
        }
        assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(1)));
        // The other node writes its record, too.
        cluster.report(1, session);
        if !is_first {
            cluster.subscribe(0, session);
        }
        cluster.connect(0);
        cluster.pass(3_000);
        assert!(cluster.nodes_with(session).is_empty(), "the client has to learn that a subscription is missing");
        for node in 0..3 {
            assert_eq!(connect(&mut cluster, node, session), Some(Answer::Unknown));
        }
        let counts = [0, 1].map(|node: usize| cluster.members[node].sessions.counts());
        assert!(counts.iter().all(|counts| counts.recorded == 0), "{counts:?}");
    }
}

#[test]
fn a_session_goes_on_if_a_record_has_what_its_client_has_subscribed_to() {
    // No other node has it.
    let (mut cluster, session) = opened();
    cluster.disconnect(0);
    cluster.subscribe(0, session);
    cluster.connect(0);
    cluster.pass(1_000);
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(0)));
    // The record was written before the node was cut off, and is what the other node goes on from.
    cluster.subscribe(0, session);
    cluster.pass(1_000);
    cluster.disconnect(0);
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(1)));
    cluster.connect(0);
    cluster.pass(3_000);
    assert_eq!(cluster.nodes_with(session), [1]);
}

#[test]
fn the_end_of_a_copy_ends_the_session_though_the_engine_loses_its_keys_or_the_notice() {
    for loses_keys in [true, false] {
        let (mut cluster, session) = opened();
        for _ in 0..10 {
            // Its revision is high.
            cluster.subscribe(0, session);
            cluster.pass(1_000);
        }
        cluster.disconnect(0);
        assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(1)));
        cluster.subscribe(0, session);
        if loses_keys {
            cluster.disconnect(1);
            cluster.lose_keys();
            cluster.connect(1);
            cluster.pass(2_000);
        } else {
            cluster.faults.loses = 1_000;
        }
        cluster.connect(0);
        cluster.pass(3_000);
        cluster.faults.loses = 0;
        cluster.pass(15_000);
        assert!(cluster.nodes_with(session).is_empty(), "keys: {loses_keys}");
    }
}

#[test]
fn an_end_on_a_copy_ends_the_session_if_it_binds() {
    for (binds, reply) in [(true, Some(1)), (true, None), (false, None)] {
        let (mut cluster, session) = opened();
        cluster.disconnect(0);
        assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(1)));
        cluster.members[0].here.remove(&session);
        cluster.tell(0, ShardMessage::ForNodes(encke_core::ForNodes::Ended { session, binds, reply }));
        cluster.connect(0);
        cluster.pass(3_000);
        assert_eq!(cluster.nodes_with(session).is_empty(), binds);
    }
}

#[test]
fn a_logout_while_its_first_node_was_cut_off_is_no_reason_to_write_the_record_again() {
    let (mut cluster, session) = opened();
    cluster.disconnect(0);
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(1)));
    cluster.end(1, session);
    cluster.pass(100);
    cluster.report(0, session);
    cluster.connect(0);
    cluster.pass(3_000);
    assert!(cluster.nodes_with(session).is_empty());
    assert_eq!(connect(&mut cluster, 2, session), Some(Answer::Unknown));
}

#[test]
fn a_node_that_does_not_answer_learns_that_its_session_was_taken() {
    let (mut cluster, session) = opened();
    cluster.faults.loses = 1_000;
    let socket = cluster.socket(1, session);
    cluster.pass(2_500);
    assert_eq!(cluster.answer(socket), Some(Answer::By(1)), "it was asked, and did not answer in time");
    cluster.faults.loses = 0;
    // The notice was lost, too, but its next write finds the other node.
    cluster.members[0].here.insert(session, 1);
    cluster.report(0, session);
    cluster.pass(2_000);
    assert_eq!(cluster.nodes_with(session), [1]);
}

#[test]
fn records_that_the_engine_has_lost_are_written_again() {
    let (mut cluster, session) = opened();
    cluster.disconnect(0);
    cluster.lose_keys();
    cluster.connect(0);
    cluster.pass(2_000);
    cluster.kill(0);
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(1)));
}

#[test]
fn of_two_copies_one_ends_though_the_engine_has_lost_its_keys_and_revisions_begin_again() {
    let (mut cluster, session) = opened();
    for waiting in 2..12 {
        cluster.members[0].here.insert(session, waiting);
        cluster.report(0, session);
        cluster.pass(1_000);
    }
    cluster.disconnect(0);
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(1)));
    cluster.disconnect(1);
    cluster.lose_keys();
    for node in [1, 0] {
        cluster.connect(node);
        cluster.pass(2_000);
    }
    assert_eq!(cluster.nodes_with(session), [1], "its revision is low, but it tells of one more take-over");
}

#[test]
fn without_keys_requests_are_served_and_sessions_of_dead_nodes_begin_again() {
    let mut cluster = Cluster::new(2, 1);
    cluster.has_keys = false;
    let session = id(1, 0);
    cluster.open(0, session);
    cluster.open(1, id(2, 1));
    cluster.pass(3_000);
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(0)));
    cluster.kill(0);
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::Unknown));
    let failed = cluster.members[1].sessions.counts().records_failed;
    cluster.pass(10_000);
    let later = cluster.members[1].sessions.counts().records_failed;
    assert!(later > failed && later < failed + 20, "it tries again, seldom: {}", later - failed);
}

#[test]
fn without_the_engine_clients_come_back_later() {
    let (mut cluster, session) = opened();
    cluster.disconnect(1);
    let (request, socket) = (cluster.request(1, session), cluster.socket(1, session));
    cluster.pass(100);
    assert_eq!((cluster.answer(request), cluster.answer(socket)), (Some(Answer::Later), Some(Answer::Later)));
}

#[test]
fn after_the_return_of_the_engine_nodes_wait_for_those_that_are_not_back() {
    let (mut cluster, session) = opened();
    (0..3).for_each(|node| cluster.disconnect(node));
    cluster.connect(1);
    let number = cluster.request(1, session);
    cluster.pass(400);
    assert_eq!(cluster.answer(number), None);
    cluster.connect(0);
    cluster.pass(400);
    assert_eq!((cluster.answer(number), cluster.nodes_with(session)), (Some(Answer::By(0)), vec![0]));
}

#[test]
fn one_address_leaves_room_for_others_and_the_rest_comes_back_later() {
    let (mut cluster, session) = opened();
    cluster.hold_all(0);
    let mine: Vec<u64> = (0..20).map(|_| cluster.request_of(1, session, true, 7)).collect();
    cluster.pass(10);
    let refused = mine.iter().filter(|number| cluster.answer(**number) == Some(Answer::Later)).count();
    assert!(refused >= 6, "{refused} of 20, with room for 16 in all");
    let other = cluster.request_of(1, session, true, 8);
    cluster.pass(10);
    assert_eq!(cluster.answer(other), None, "it waits");
    assert_eq!(cluster.members[1].sessions.counts().refused, refused as u64);
}

#[test]
fn records_are_written_at_their_rate_and_not_for_what_has_not_changed() {
    let mut cluster = Cluster::new(1, 1);
    for number in 0..500 {
        cluster.open(0, id(number, 0));
    }
    let counts = cluster.members[0].sessions.counts();
    assert!(counts.records_waiting > 300, "{counts:?}");
    cluster.pass(2_000);
    let counts = cluster.members[0].sessions.counts();
    assert_eq!((counts.records_written, counts.records_waiting, counts.recorded), (500, 0, 500));
    (0..500).for_each(|number| cluster.report(0, id(number, 0)));
    cluster.pass(2_000);
    assert_eq!(cluster.members[0].sessions.counts().records_written, 500);
    (0..500).for_each(|number| cluster.end(0, id(number, 0)));
    cluster.pass(2_000);
    assert_eq!(cluster.members[0].sessions.counts().recorded, 0);
}

#[test]
fn a_session_for_which_too_much_waits_to_move_is_served_by_its_node() {
    let (mut cluster, session) = opened();
    cluster.members[0].here.insert(session, LARGE);
    let socket = cluster.socket(1, session);
    cluster.pass(100);
    assert_eq!((&cluster.members[1].relayed[..], cluster.answer(socket)), (&[(socket, tag(0))][..], None));
    assert_eq!(cluster.nodes_with(session), [0]);
}

/// A WebSocket at node 1 whose session stays at node 0. Returns its relay.
fn relayed() -> (Cluster, RelayId) {
    let (mut cluster, session) = opened();
    cluster.members[0].keeps_all = true;
    let socket = cluster.socket(1, session);
    cluster.pass(10);
    assert_eq!(cluster.members[1].relayed, [(socket, tag(0))]);
    let request = RelayRequest::WebSocket { opener: Opener::Page, address: None, compression: 0, text: "hello".into() };
    let now_ms = cluster.now_ms;
    let relay = cluster.members[1].sessions.open_relay(now_ms, tag(0), request.clone());
    cluster.pass(10);
    let at_home = std::mem::take(&mut cluster.members[0].relays);
    assert!(
        matches!(&at_home[..], [RelayOutput::Open(one, of, _), RelayOutput::Read(other)] if *of == request && [*one, *other] == [relay; 2])
    );
    assert!(matches!(std::mem::take(&mut cluster.members[1].relays)[..], [RelayOutput::Read(of)] if of == relay));
    (cluster, relay)
}

#[test]
fn bytes_of_a_relay_are_read_when_the_last_ones_are_written() {
    let (mut cluster, relay) = relayed();
    for (from, to) in [(1, 0), (0, 1)] {
        cluster.members[from].sessions.carry(relay, b"bytes".to_vec());
        cluster.pass(10);
        let mut outputs = std::mem::take(&mut cluster.members[to].relays);
        let Some(RelayOutput::Write(_, bytes, reply_to)) = outputs.pop() else { panic!("{outputs:?}") };
        assert!(bytes == "bytes" && cluster.members[from].relays.is_empty());
        cluster.members[to].sessions.carried(reply_to);
        cluster.pass(10);
        assert!(matches!(std::mem::take(&mut cluster.members[from].relays)[..], [RelayOutput::Read(_)]));
    }
    cluster.members[0].sessions.end_relay(relay);
    cluster.pass(10);
    assert!(matches!(cluster.members[1].relays[..], [RelayOutput::End(of)] if of == relay));
    assert!(cluster.members.iter().all(|member| member.sessions.counts().relays == 0));
}

#[test]
fn a_relay_ends_when_the_other_node_is_gone_or_the_engine_is_away() {
    let (mut cluster, _) = relayed();
    cluster.kill(0);
    cluster.pass(1_900);
    assert!(matches!(cluster.members[1].relays[..], [RelayOutput::End(_)]));
    let (mut cluster, _) = relayed();
    cluster.kill(1);
    cluster.pass(1_900);
    assert!(matches!(cluster.members[0].relays[..], [RelayOutput::End(_)]));
    let (mut cluster, _) = relayed();
    cluster.disconnect(1);
    assert!(matches!(cluster.members[1].relays[..], [RelayOutput::End(_)]));
}

#[test]
fn what_is_no_question_is_counted() {
    let mut cluster = Cluster::new(1, 1);
    cluster.members[0].sessions.asked(1, "0:1".into(), &b"nothing"[..].into());
    assert_eq!(cluster.members[0].sessions.counts().rejected, 1);
}
