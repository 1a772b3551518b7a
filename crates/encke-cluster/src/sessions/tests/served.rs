//! Requests that another node serves: the facts that go with them.

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
