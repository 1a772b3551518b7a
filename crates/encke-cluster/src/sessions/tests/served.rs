//! Requests that another node serves: the facts that go with them, and when that node counts as gone.

use super::Answer;
use super::model::HTTP2;
use super::moves::opened;

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
