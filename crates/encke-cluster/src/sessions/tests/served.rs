//! Requests that another node serves: the facts that go with them, and when that node counts as gone.

use super::fates::{answer, held};
use super::model::{Cluster, HTTP2};
use super::moves::opened;
use super::{Answer, tag};
use crate::command::RequestFailure;

#[test]
fn the_node_of_a_session_learns_that_a_request_has_come_by_http2() {
    let (mut cluster, session) = opened();
    for (origin, multiplexed) in [(1, 0), (HTTP2, 1)] {
        let number = cluster.request_of(1, session, true, origin);
        cluster.pass(100);
        assert_eq!((cluster.answer(number), cluster.members[0].multiplexed), (Some(Answer::By(0)), multiplexed));
    }
    assert_eq!(cluster.members[0].fates.len(), 2, "the fate of each response is reported");
    assert_eq!(cluster.members[0].sessions.counts().serving, 0);
}

#[test]
fn a_node_that_is_not_there_for_a_moment_is_not_gone() {
    for holds in [false, true] {
        let (mut cluster, session) = opened();
        cluster.members[0].holds = holds;
        let held = holds.then(|| cluster.request(1, session));
        // While it comes back to another server of the engine, nobody listens for it. Its own requests would fail.
        cluster.pass(450);
        cluster.members[0].is_connected = false;
        let searches = [cluster.request_of(1, session, false, 3), cluster.socket(2, session)];
        cluster.pass(100);
        cluster.members[0].is_connected = true;
        cluster.members[0].holds = false;
        cluster.pass(1_900);
        let answers = searches.map(|number| cluster.answer(number));
        assert!(answers[0].is_some() && answers[1] == Some(Answer::By(2)), "{answers:?}");
        assert_eq!(cluster.nodes_with(session), [2]);
        assert!(held.is_none_or(|held| cluster.answer(held).is_none()), "its node has it");
        let counts = [1, 2].map(|node: usize| cluster.members[node].sessions.counts());
        assert!(counts.iter().all(|counts| (counts.taken_over, counts.nodes_gone) == (0, 0)), "{counts:?}");
    }
}

#[test]
fn a_node_that_serves_a_request_is_there_though_it_was_silent_before() {
    let (mut cluster, session, connect) = held();
    let is_silent = |cluster: &mut Cluster| {
        let question = pinged(cluster, 1);
        not_answered(cluster, 1, question)
    };
    assert_eq!(is_silent(&mut cluster), 0);
    cluster.members[0].holds = false;
    let publish = cluster.request_of(1, session, false, 1);
    cluster.pass(100);
    assert_eq!((cluster.answer(connect), cluster.answer(publish)), (None, Some(Answer::By(0))));
    assert_eq!(
        (is_silent(&mut cluster), is_silent(&mut cluster)),
        (0, 1),
        "it is gone when it is silent twice in a row"
    );
}

/// The number of the question of a node if node 0 is there.
fn pinged(cluster: &mut Cluster, node: usize) -> u64 {
    let due_ms = cluster.now_ms + 500;
    let sessions = &mut cluster.members[node].sessions;
    sessions.ping(due_ms);
    sessions.servers[&tag(0)].pinged.expect("a question")
}

/// Node 0 does not answer this question. Returns how many nodes count as gone.
fn not_answered(cluster: &mut Cluster, node: usize, question: u64) -> u64 {
    let now_ms = cluster.now_ms;
    let sessions = &mut cluster.members[node].sessions;
    sessions.ping_answered(now_ms, (tag(0), question), Some(RequestFailure::TimedOut));
    sessions.counts().nodes_gone
}

#[test]
fn a_question_from_before_says_nothing_about_those_that_wait_now() {
    let (mut cluster, session, first) = held();
    let question = pinged(&mut cluster, 1);
    answer(&mut cluster);
    cluster.pass(100);
    assert_eq!(cluster.answer(first), Some(Answer::By(0)));
    cluster.request(1, session);
    cluster.pass(100);
    assert_eq!(not_answered(&mut cluster, 1, question), 0);
    let question = pinged(&mut cluster, 1);
    assert_eq!(not_answered(&mut cluster, 1, question), 0, "it was silent once");
}
