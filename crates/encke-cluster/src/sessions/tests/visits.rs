//! Clients that want streams of sessions that stay on their node.

use encke_core::{Format, Id, Opener, StreamOpening};

use super::model::Cluster;
use super::moves::opened;
use super::tag;
use crate::sessions::{RelayId, RelayOutput, RelayRequest, Visited, Visitor};

/// The outcome for a client that comes to node 1.
fn visit(cluster: &mut Cluster, session: Id) -> Option<Visited> {
    let number = cluster.visit(1, session);
    cluster.pass(10);
    let outcome = cluster.members[1].visited.iter().find(|(of, _)| *of == number).map(|(_, outcome)| *outcome);
    assert_eq!(cluster.members[1].sessions.counts().waiting, 0);
    outcome
}

/// Relays a stream from a node to another one.
fn relay(cluster: &mut Cluster, from: usize, to: u64, session: Id) -> RelayId {
    let visitor = Visitor { session, opener: Opener::Page, address: None, is_multiplexed: false };
    let request = RelayRequest::Stream(visitor, Format::Lines);
    let now_ms = cluster.now_ms;
    cluster.members[from].sessions.open_relay(now_ms, tag(to), request)
}

#[test]
fn a_stream_of_a_session_that_stays_is_for_its_node_and_any_other_moves_its_session() {
    let (mut cluster, session) = opened();
    cluster.members[0].keeps_all = true;
    assert_eq!(visit(&mut cluster, session), Some(Visited::Stays(tag(0))));
    assert_eq!(cluster.nodes_with(session), [0]);
    cluster.members[0].keeps_all = false;
    assert_eq!(visit(&mut cluster, session), Some(Visited::Searched));
    assert_eq!(cluster.nodes_with(session), [1]);
    cluster.disconnect(2);
    let number = cluster.visit(2, session);
    assert_eq!(cluster.members[2].visited, [(number, Visited::Later)]);
}

#[test]
fn the_node_of_a_session_refuses_a_stream_with_its_reason() {
    let refusals = [StreamOpening::TooMany, StreamOpening::Unknown, StreamOpening::Draining];
    for refusal in [None].into_iter().chain(refusals.map(Some)) {
        let (mut cluster, session) = opened();
        cluster.members[0].refusal = refusal;
        let relay = relay(&mut cluster, 1, 0, session);
        cluster.pass(10);
        let [at_home, here] = [0, 1].map(|node: usize| std::mem::take(&mut cluster.members[node].relays));
        let is_expected = match refusal {
            None => matches!(here[..], [RelayOutput::Read(of)] if of == relay),
            Some(StreamOpening::TooMany) => {
                matches!(here[..], [RelayOutput::Refuse(of, StreamOpening::TooMany)] if of == relay)
            }
            Some(_) => matches!(here[..], [RelayOutput::End(of)] if of == relay),
        };
        assert!(is_expected, "{refusal:?}: {here:?}");
        let goes_on = matches!(at_home[..], [RelayOutput::Open(..), RelayOutput::Read(_)]);
        let ends = matches!(at_home[..], [RelayOutput::Open(..), RelayOutput::End(_)]);
        assert!(if refusal.is_none() { goes_on } else { ends }, "{at_home:?}");
        let relays = usize::from(refusal.is_none());
        assert!([0, 1].iter().all(|node: &usize| cluster.members[*node].sessions.counts().relays == relays));
    }
}

#[test]
fn a_node_of_an_older_build_keeps_its_session_and_a_stream_does_not_begin() {
    let (mut cluster, session) = opened();
    (cluster.members[0].is_old, cluster.members[0].keeps_all) = (true, true);
    assert_eq!(visit(&mut cluster, session), Some(Visited::Stays(tag(0))));
    let relay = relay(&mut cluster, 1, 0, session);
    cluster.pass(2_500);
    assert!(matches!(cluster.members[1].relays[..], [RelayOutput::End(of)] if of == relay));
    assert_eq!(cluster.nodes_with(session), [0]);
    assert_eq!(cluster.members[1].sessions.counts().taken_over, 0);
}

#[test]
fn a_stream_does_not_begin_if_one_of_both_nodes_carries_as_much_as_it_may() {
    for full in [0, 1] {
        let (mut cluster, session) = opened();
        (0..16).for_each(|_| _ = relay(&mut cluster, full, 2, session));
        cluster.pass(10);
        assert_eq!(cluster.members[2].sessions.counts().relays, 16, "it takes as many");
        cluster.members[1].relays.clear();
        let relay = relay(&mut cluster, 1, 0, session);
        cluster.pass(10);
        assert!(matches!(cluster.members[1].relays[..], [RelayOutput::End(of)] if of == relay), "node {full} is full");
        assert_eq!(cluster.members[full].sessions.counts().refused, 1);
    }
}
