//! Clients that want streams of sessions that stay on their node.

use encke_core::{Format, Id, Opener, StreamOpening};

use super::model::Cluster;
use super::moves::opened;
use super::tag;
use crate::sessions::{RelayOutput, RelayRequest, Visited, Visitor};

/// The same as [`opened`], with sessions that stay on their nodes.
fn opened_to_stay() -> (Cluster, Id) {
    let (mut cluster, session) = opened();
    cluster.members.iter_mut().for_each(|member| member.keeps_all = true);
    (cluster, session)
}

/// The outcome for a client that comes to node 1, after this time.
fn visit(cluster: &mut Cluster, session: Id, ms: u64) -> Option<Visited> {
    let number = cluster.visit(1, session);
    cluster.pass(ms);
    let counts = cluster.members[1].sessions.counts();
    let outcome = cluster.members[1].visited.iter().find(|(of, _)| *of == number).map(|(_, outcome)| *outcome);
    assert!(outcome.is_none() || counts.waiting == 0, "{counts:?}");
    outcome
}

#[test]
fn the_node_of_a_session_that_stays_takes_a_stream_unless_it_refuses() {
    let (mut cluster, session) = opened_to_stay();
    let expected = [
        (None, Visited::Stays(tag(0))),
        (Some(StreamOpening::TooMany), Visited::TooMany),
        (Some(StreamOpening::Draining), Visited::Later),
    ];
    for (refusal, outcome) in expected {
        cluster.members[0].refusal = refusal;
        assert_eq!(visit(&mut cluster, session, 10), Some(outcome));
    }
    assert_eq!(cluster.nodes_with(session), [0]);
    // One that does not stay moves.
    cluster.members[0].keeps_all = false;
    assert_eq!(visit(&mut cluster, session, 10), Some(Visited::Searched));
    assert_eq!(cluster.nodes_with(session), [1]);
}

#[test]
fn a_stream_goes_on_at_its_new_node_if_its_home_is_killed_before_it_has_answered() {
    let (mut cluster, session) = opened_to_stay();
    cluster.members[0].is_old = true;
    assert_eq!(visit(&mut cluster, session, 100), None);
    cluster.kill(0);
    cluster.pass(2_900);
    assert_eq!(cluster.members[1].visited.pop().map(|(_, outcome)| outcome), Some(Visited::Searched));
    assert_eq!(cluster.nodes_with(session), [1]);
}

#[test]
fn a_node_of_an_older_build_keeps_its_session_and_the_client_comes_back() {
    let (mut cluster, session) = opened_to_stay();
    cluster.members[0].is_old = true;
    assert_eq!(visit(&mut cluster, session, 2_500), Some(Visited::Later));
    assert_eq!(cluster.nodes_with(session), [0]);
    assert_eq!(cluster.members[1].sessions.counts().taken_over, 0);
}

#[test]
fn clients_come_back_if_one_of_both_nodes_carries_as_much_as_it_may() {
    for full in [0, 1] {
        let (mut cluster, session) = opened_to_stay();
        // To the third node, which takes as many.
        for number in 0..16 {
            let now_ms = cluster.now_ms;
            let visitor = Visitor { session, opener: Opener::Page, address: None, is_multiplexed: false };
            let request = RelayRequest::Stream(visitor, Format::Lines);
            let relay = cluster.members[full].sessions.open_relay(now_ms, tag(2), request);
            assert_eq!(cluster.members[full].sessions.counts().relays, number + 1, "{relay:?}");
        }
        cluster.pass(10);
        let opened = |output: &&RelayOutput| matches!(output, RelayOutput::Open(_, RelayRequest::Stream(..)));
        assert_eq!(cluster.members[2].relays.iter().filter(opened).count(), 16);
        assert_eq!(visit(&mut cluster, session, 10), Some(Visited::Later), "node {full} is full");
        assert_eq!(cluster.members[full].sessions.counts().refused, 1);
    }
}
