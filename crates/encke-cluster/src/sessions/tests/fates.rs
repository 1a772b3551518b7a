//! The fates of requests of clients of other nodes, and of their responses.

use bytes::Bytes;
use encke_core::{ExchangeId, Id, OTHER_NODES, Response, ShardMessage};

use super::Answer;
use super::model::Cluster;
use super::moves::opened;

/// A request through node 1 that node 0 holds, with its session and its number.
pub(super) fn held() -> (Cluster, Id, u64) {
    let (mut cluster, session) = opened();
    cluster.hold_all(0);
    let number = cluster.request(1, session);
    cluster.pass(10);
    (cluster, session, number)
}

/// The shard of node 0 answers the first request.
pub(super) fn answer(cluster: &mut Cluster) {
    let response = Response { confirm: Some(0), body: "0".into(), ..Response::with_status(200) };
    cluster.tell(0, ShardMessage::Response(ExchangeId { shard: OTHER_NODES, number: 1 }, response));
}

/// A request that node 0 holds, and whose client is gone.
fn abandoned() -> Cluster {
    let (mut cluster, _, number) = held();
    cluster.tell(1, ShardMessage::Abandoned(ExchangeId { shard: 0, number }));
    cluster.pass(10);
    cluster
}

#[test]
fn abandoned_requests_are_abandoned_at_their_node() {
    assert_eq!(abandoned().members[0].fates, [(1, None)]);
}

#[test]
fn a_request_that_is_held_for_longer_than_its_node_waits_is_abandoned_at_the_node_that_holds_it() {
    let (mut cluster, _, number) = held();
    cluster.pass(60_000);
    assert_eq!(cluster.answer(number), Some(Answer::Later));
    assert_eq!(cluster.members[0].fates, [(1, None)]);
}

#[test]
fn a_response_that_crosses_the_end_of_its_request_was_not_taken() {
    let mut cluster = abandoned();
    // The shard has answered before it learns that the client is gone.
    answer(&mut cluster);
    assert_eq!(cluster.members[0].fates, [(1, None), (1, Some(false))]);
}

#[test]
fn a_response_whose_fate_nobody_tells_may_be_lost_with_its_node_or_with_the_engine() {
    for is_away in [false, true] {
        let (mut cluster, session, _) = held();
        cluster.kill(1);
        answer(&mut cluster);
        if is_away {
            cluster.disconnect(0);
        } else {
            cluster.pass(9_000);
            assert!(cluster.members[0].unsettled.is_empty(), "it may still come");
            cluster.pass(2_000);
        }
        let member = &cluster.members[0];
        assert_eq!((&member.unsettled[..], &member.fates[..]), (&[session][..], &[(1, Some(true))][..]), "{is_away}");
    }
}

#[test]
fn a_response_for_which_the_node_of_the_client_has_no_room_comes_again() {
    let (mut cluster, _, number) = held();
    let memory = cluster.members[1].sessions.settings.memory.clone();
    let others = memory.counted_part(Bytes::from(vec![0; 1 << 20]));
    answer(&mut cluster);
    cluster.pass(10);
    assert_eq!((cluster.answer(number), &cluster.members[0].fates[..]), (Some(Answer::Later), &[(1, Some(false))][..]));
    drop(others);
    assert_eq!(memory.body_bytes(), 0);
}
