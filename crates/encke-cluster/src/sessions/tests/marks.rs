//! Users whose sessions have ended by an order.

use encke_core::{ForNodes, Id, ShardMessage};

use super::model::Cluster;
use super::orders::connect;
use super::{Answer, id};

/// A cluster with a session of ann on node 0, which knew this mark of hers; 0: none.
fn opened(mark: u64) -> (Cluster, Id) {
    let mut cluster = Cluster::new(3, 1);
    let session = id(1, 0);
    mark_user(&mut cluster, 0, "ann", mark);
    cluster.open(0, session);
    cluster.pass(3_000);
    (cluster, session)
}

fn mark_user(cluster: &mut Cluster, node: usize, user: &str, mark: u64) -> bool {
    let now_ms = cluster.now_ms;
    cluster.members[node].sessions.mark_user(now_ms, user, mark)
}

#[test]
fn a_session_from_before_the_mark_of_its_user_is_taken_over_by_nobody() {
    for (user, mark, expected) in [("ann", 7, Answer::Unknown), ("bob", 7, Answer::By(1)), ("ann", 0, Answer::By(1))] {
        let (mut cluster, session) = opened(0);
        cluster.kill(0);
        mark_user(&mut cluster, 1, user, mark);
        assert_eq!(connect(&mut cluster, 1, session), Some(expected), "{user} {mark}");
        // The other node has not learned of the mark, and finds the end.
        assert_eq!(connect(&mut cluster, 2, session), Some(expected), "{user} {mark}");
    }
}

#[test]
fn a_session_from_after_the_mark_goes_on_until_there_is_a_later_one() {
    let (mut cluster, session) = opened(7);
    for node in [1, 2] {
        assert!(mark_user(&mut cluster, node, "ann", 7) && !mark_user(&mut cluster, node, "ann", 7));
    }
    cluster.kill(0);
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::By(1)));
    cluster.pass(3_000);
    cluster.kill(1);
    assert!(mark_user(&mut cluster, 2, "ann", 8));
    assert_eq!(connect(&mut cluster, 2, session), Some(Answer::Unknown));
}

#[test]
fn a_session_that_moves_to_a_node_with_a_mark_ends_unless_it_was_opened_after_that() {
    let (mut cluster, session) = opened(0);
    mark_user(&mut cluster, 1, "ann", 7);
    let number = cluster.socket(1, session);
    cluster.pass(3_000);
    assert_eq!((cluster.answer(number), cluster.nodes_with(session)), (Some(Answer::Unknown), Vec::new()));
    // One that has no record yet.
    let (mut cluster, _) = opened(7);
    mark_user(&mut cluster, 1, "ann", 7);
    let session = id(2, 0);
    cluster.members[0].here.insert(session, 0);
    let number = cluster.socket(1, session);
    cluster.pass(3_000);
    assert_eq!((cluster.answer(number), cluster.nodes_with(session)), (Some(Answer::By(1)), vec![1]));
}

#[test]
fn a_node_that_was_cut_off_ends_sessions_from_before_the_mark() {
    for (known, is_here) in [(0, false), (7, true)] {
        let (mut cluster, session) = opened(known);
        mark_user(&mut cluster, 0, "ann", 7);
        cluster.members[0].sessions.end_older(&session, 7);
        cluster.members[0].sessions.end_older(&id(2, 0), 7);
        cluster.pass(3_000);
        assert_eq!(cluster.nodes_with(session), if is_here { vec![0] } else { vec![] });
    }
}

#[test]
fn a_session_that_comes_back_with_its_node_has_its_mark_from_its_record() {
    for (known, is_here) in [(0, false), (7, true)] {
        let (mut cluster, session) = opened(known);
        cluster.restart(0);
        mark_user(&mut cluster, 0, "ann", 7);
        // It cannot be known yet.
        cluster.members[0].sessions.end_older(&session, 7);
        cluster.tell(0, ShardMessage::ForNodes(ForNodes::Loaded(vec![session])));
        cluster.members[0].sessions.end_older(&session, 7);
        cluster.report(0, session);
        cluster.pass(3_000);
        assert_eq!(cluster.nodes_with(session), if is_here { vec![0] } else { vec![] }, "{known}");
        cluster.kill(0);
        mark_user(&mut cluster, 1, "ann", 7);
        let expected = if is_here { Answer::By(1) } else { Answer::Unknown };
        assert_eq!(connect(&mut cluster, 1, session), Some(expected), "{known}");
    }
}

#[test]
fn a_mark_is_known_for_as_long_as_a_record_lives() {
    let (mut cluster, _) = opened(7);
    assert_eq!(cluster.members[0].sessions.counts().user_marks, 1);
    let ttl_ms = cluster.members[0].sessions.order_ttl_ms();
    cluster.pass(ttl_ms);
    mark_user(&mut cluster, 0, "bob", 8);
    assert_eq!(cluster.members[0].sessions.counts().user_marks, 1);
}

#[test]
fn many_marks_of_one_user_do_not_make_others_forgotten() {
    let (mut cluster, session) = opened(0);
    cluster.kill(0);
    mark_user(&mut cluster, 1, "ann", 7);
    assert!((1..300_000).all(|mark| mark_user(&mut cluster, 1, "mallory", mark)));
    let counts = cluster.members[1].sessions.counts();
    assert_eq!((counts.user_marks, counts.user_marks_dropped), (2, 0));
    assert_eq!(connect(&mut cluster, 1, session), Some(Answer::Unknown));
}
