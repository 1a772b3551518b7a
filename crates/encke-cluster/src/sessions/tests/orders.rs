//! Ends of sessions that are ordered at any node.

use encke_core::{ForNodes, Id, Opener, SessionOwner, ShardMessage};

use super::model::{Cluster, Faults};
use super::{Answer, id, settings, tag};
use crate::command::Command;
use crate::sessions::message::{Question, Reply};
use crate::sessions::{Order, Ordered, Output, Sessions};

fn opened() -> (Cluster, Id) {
    let mut cluster = Cluster::new(3, 1);
    let session = id(1, 0);
    cluster.open(0, session);
    cluster.pass(3_000);
    (cluster, session)
}

fn ordered(cluster: &mut Cluster, node: usize, session: Id, is_known: bool) -> Option<Ordered> {
    let order = cluster.order(node, session, is_known);
    cluster.pass(900);
    cluster.outcome(order)
}

/// The answer to a connect that comes to a node, also when a take-over has to wait.
pub(super) fn connect(cluster: &mut Cluster, node: usize, session: Id) -> Option<Answer> {
    let number = cluster.request(node, session);
    cluster.pass(5_000);
    cluster.answer(number)
}

#[test]
fn a_session_of_a_node_that_is_gone_ends_by_an_order_and_is_taken_by_nobody() {
    let (mut cluster, session) = opened();
    cluster.kill(0);
    assert_eq!(ordered(&mut cluster, 1, session, false), Some(Ordered::Recorded));
    assert_eq!(connect(&mut cluster, 2, session), Some(Answer::Unknown));
    assert_eq!(ordered(&mut cluster, 2, session, false), Some(Ordered::Unknown), "it has ended before");
    assert_eq!(ordered(&mut cluster, 2, id(2, 0), false), Some(Ordered::Unknown));
    assert_eq!(ordered(&mut cluster, 2, id(3, 0), true), Some(Ordered::Recorded), "its node may be about to write");
}

#[test]
fn a_session_that_is_on_its_way_to_a_node_which_learns_of_an_order_ends_as_it_comes() {
    let (mut cluster, session) = opened();
    let number = cluster.socket(1, session);
    cluster.members[1].sessions.ends_if_it_comes(&session);
    cluster.pass(3_000);
    assert_eq!((cluster.answer(number), cluster.nodes_with(session)), (Some(Answer::Unknown), Vec::new()));
    assert_eq!(connect(&mut cluster, 2, session), Some(Answer::Unknown));
}

#[test]
fn a_node_that_has_a_session_against_an_order_finds_its_end() {
    let (mut cluster, session) = opened();
    let number = cluster.socket(1, session);
    cluster.pass(1);
    assert_eq!((cluster.answer(number), cluster.nodes_with(session)), (Some(Answer::By(1)), vec![1]));
    assert_eq!(ordered(&mut cluster, 2, session, false), Some(Ordered::Recorded));
    cluster.pass(2_000);
    assert_eq!(cluster.nodes_with(session), Vec::<usize>::new());
}

#[test]
fn an_order_that_cannot_be_recorded_says_so_in_time_and_is_recorded_later() {
    let (mut cluster, session) = opened();
    cluster.open(1, id(4, 1));
    cluster.pass(1_000);
    cluster.kill(0);
    cluster.has_keys = false;
    let order = cluster.order(1, session, false);
    cluster.pass(900);
    assert_eq!(cluster.outcome(order), None);
    cluster.pass(200);
    assert_eq!(cluster.outcome(order), Some(Ordered::Unrecorded));
    cluster.has_keys = true;
    cluster.pass(2_000);
    assert_eq!(connect(&mut cluster, 2, session), Some(Answer::Unknown));
    cluster.disconnect(1);
    let order = cluster.order(1, session, false);
    assert_eq!(cluster.outcome(order), Some(Ordered::Unrecorded), "at once");
}

#[test]
fn without_keys_an_unknown_session_is_unknown_at_once() {
    let mut cluster = Cluster::new(2, 1);
    cluster.has_keys = false;
    for (is_known, outcome) in [(false, Ordered::Unknown), (true, Ordered::Unrecorded)] {
        let order = cluster.order(1, id(1, 0), is_known);
        cluster.pass(1);
        assert_eq!(cluster.outcome(order), Some(outcome));
    }
}

#[test]
fn a_recorded_order_holds_whoever_takes_the_session_meanwhile() {
    for seed in 0..300 {
        let mut cluster = Cluster::new(3, seed);
        let session = id(seed, 0);
        cluster.open(0, session);
        cluster.pass(3_000);
        cluster.faults = Faults { reads_old: 300, forgets_answer: 200, reorders: 500, ..Faults::default() };
        if seed % 3 > 0 {
            cluster.kill(0);
        }
        let number = if seed % 2 > 0 { cluster.request(1, session) } else { cluster.socket(1, session) };
        cluster.pass(seed % 7);
        let order = cluster.order(2, session, false);
        cluster.pass(1_100);
        cluster.faults = Faults::default();
        let outcome = cluster.outcome(order).expect("an outcome in time");
        cluster.pass(12_000);
        assert!(cluster.answer(number).is_some());
        // An old value may have hidden that the session was there: nobody learns that it is recorded.
        if outcome == Ordered::Recorded {
            assert_eq!(connect(&mut cluster, 1, session), Some(Answer::Unknown), "seed {seed}");
            assert_eq!(cluster.nodes_with(session), Vec::<usize>::new(), "seed {seed}");
        }
    }
}

#[test]
fn one_caller_leaves_room_for_the_orders_of_others() {
    let mut sessions = Sessions::new(settings(0));
    let order = |sessions: &mut Sessions, owner: u64, waiter| {
        let order =
            Order { session: id(1, 1), is_known: false, owner: Some(SessionOwner::of(owner)), waiter: Some(waiter) };
        sessions.order_end(1, order);
        let outputs = sessions.take_outputs();
        !outputs.iter().any(|output| matches!(output, Output::Ordered(..)))
    };
    let of_one = (0..10_000).take_while(|waiter| order(&mut sessions, 1, *waiter)).count();
    assert!((1_000..5_000).contains(&of_one), "{of_one}");
    assert!(order(&mut sessions, 2, 20_000));
    assert_eq!(sessions.counts().orders_failed, 1);
}

#[test]
fn a_session_that_comes_back_with_its_node_is_not_served_before_its_record_is_read() {
    let (mut cluster, session) = opened();
    cluster.restart(0);
    cluster.pass(100);
    assert_eq!(ordered(&mut cluster, 1, session, true), Some(Ordered::Recorded));
    let sessions = &mut cluster.members[0].sessions;
    sessions.from_shard(1, ShardMessage::ForNodes(ForNodes::Loaded(vec![session])));
    assert!(sessions.are_loading());
    let question = Question::Release { session, node: tag(1), bytes_max: 1, is_urgent: true, opener: Opener::Program };
    sessions.asked(1, String::new(), &question.write().into());
    let outputs = sessions.take_outputs();
    let is_busy = |output: &Output| matches!(output, Output::Engine(Command::Answer { body, .. }) if *body == Reply::Busy.write());
    assert!(matches!(&outputs[..], [only] if is_busy(only)), "{outputs:?}");
    let number = cluster.request(2, session);
    cluster.pass(3_000);
    assert_eq!((cluster.answer(number), cluster.nodes_with(session)), (Some(Answer::Unknown), Vec::new()));
    assert!(!cluster.members[0].sessions.are_loading());
}

#[test]
fn a_session_that_comes_back_is_served_if_its_record_cannot_be_read() {
    let (mut cluster, session) = opened();
    cluster.restart(0);
    cluster.has_keys = false;
    cluster.tell(0, ShardMessage::ForNodes(ForNodes::Loaded(vec![session])));
    let number = cluster.request(2, session);
    cluster.pass(1_000);
    assert_eq!(cluster.answer(number), Some(Answer::By(0)));
}
