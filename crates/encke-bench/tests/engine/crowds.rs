//! Sessions that publish and receive.

use encke::ChannelRule;
use encke_bench::engine::{Crowd, Publication};
use encke_bench::run::{CrowdSpec, Membership, Recovery, Replay, Transport};

use crate::{arrived, open, publish, server, server_with, spec, turn_until};

#[test]
fn everything_arrives_over_websocket() {
    rooms_and_publishers(Transport::Websocket);
}

#[test]
fn everything_arrives_over_long_polling() {
    rooms_and_publishers(Transport::LongPolling);
}

#[test]
fn several_rooms_a_client_and_every_client_publishing() {
    let (_server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling] {
        let membership = Membership { channel: "/bench/b".into(), rooms: 10, per_client: 3, seed: 5, first: 0 };
        let mut crowd =
            open(&CrowdSpec { membership, publishers: 0, ..spec(&target, transport, 20, 10) }).expect("open");
        for round in 0..10 {
            for session in crowd.clients() {
                publish(&mut crowd, session, &[(session as u32 + round) % 10]);
            }
        }
        let all = [crowd.published().clone()];
        assert_eq!(crowd.expected(&all), (20 * 10) * (20 * 3) / 10, "by seed 5, all rooms have as many members");
        let faults = arrived(&mut crowd, 0);
        assert!(faults.none(), "{faults:?} {transport:?}");
        crowd.leave();
    }
}

#[test]
fn answers_to_calls_come_to_the_caller() {
    let (_server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling] {
        let mut crowd = open(&spec(&target, transport, 5, 1)).expect("open");
        crowd.time_from(0, 1, u64::MAX);
        for _ in 0..10 {
            for session in 0..7 {
                crowd.call(session, "/service/echo", Crowd::clock_us(), 100).expect("called");
            }
        }
        assert_eq!(crowd.expected(&[]), 70);
        let faults = arrived(&mut crowd, 0);
        assert!(faults.none(), "{faults:?} {transport:?}");
        let (latencies, max_us) = crowd.latencies_us();
        assert_eq!(latencies.iter().map(|(_, count)| count).sum::<u64>(), 70);
        assert!(max_us > 0);
    }
}

#[test]
fn two_workers_see_what_the_other_publishes() {
    let (_server, target) = server();
    let spec = spec(&target, Transport::Websocket, 7, 3);
    let mut crowds: Vec<_> = (0..2).map(|worker| Crowd::open(&spec, worker, 2, &mut |_| true).expect("open")).collect();
    assert_eq!(crowds.iter().map(|crowd| crowd.clients().len()).collect::<Vec<_>>(), [4, 3]);
    for _ in 0..20 {
        for crowd in &mut crowds {
            let publisher = crowd.publishers().start;
            publish(crowd, publisher, &[0, 1, 2]);
        }
    }
    let all: Vec<_> = crowds.iter().map(|crowd| crowd.published().clone()).collect();
    for crowd in &mut crowds {
        let expected = crowd.expected(&all);
        assert_eq!(expected, crowd.clients().len() as u64 * 40);
        turn_until(crowd, |crowd| crowd.counts().received >= expected);
        assert!(crowd.faults(&all).none());
    }
    // Whoever is told of no other worker's publications misses nothing of them, but has too much.
    let (first, one) = (&crowds[0], &all[..1]);
    assert!(first.expected(one) < first.counts().received);
}

#[test]
fn those_who_acknowledge_get_everything_once() {
    let (_server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling] {
        let recovery = Recovery { ack: true, ..Recovery::default() };
        let mut crowd = open(&CrowdSpec { recovery, ..spec(&target, transport, 5, 2) }).expect("open");
        let publisher = crowd.publishers().start;
        for round in 0..30 {
            publish(&mut crowd, publisher, &[0, 1, 0, 0, 1]);
            // Some batches with one message, some with many.
            if round % 3 == 0 {
                assert!(arrived(&mut crowd, 0).none());
            }
        }
        assert!(arrived(&mut crowd, 0).none(), "{transport:?}");
        crowd.leave();
    }
}

#[test]
fn those_who_replay_get_what_was_there_before_them() {
    let (_server, target) = server_with(vec![ChannelRule {
        pattern: "/bench/**".into(),
        history_messages: 1_000,
        ..ChannelRule::default()
    }]);
    let mut first = open(&spec(&target, Transport::Websocket, 0, 1)).expect("open");
    let publisher = first.publishers().start;
    let mut told = open(&CrowdSpec {
        recovery: Recovery { replay: Replay::Live, ..Recovery::default() },
        publishers: 0,
        ..spec(&target, Transport::Websocket, 2, 1)
    })
    .expect("open");
    for _ in 0..100 {
        publish(&mut first, publisher, &[0, 0, 0]);
    }
    let all = [first.published().clone()];
    turn_until(&mut told, |told| told.counts().received == 600);
    assert!(told.faults(&all).none());
    let recovery = Recovery { replay: Replay::Kept, ..Recovery::default() };
    let late = CrowdSpec { recovery, publishers: 0, ..spec(&target, Transport::Websocket, 3, 1) };
    let mut late = open(&late).expect("open");
    turn_until(&mut late, |late| late.counts().received == 900);
    assert!(late.faults(&all).none());
}

#[test]
fn a_new_trial_starts_from_nothing() {
    let (_server, target) = server();
    let mut crowd = open(&spec(&target, Transport::Websocket, 4, 2)).expect("open");
    let publisher = crowd.publishers().start;
    for _ in 0..5 {
        publish(&mut crowd, publisher, &[0, 1, 1]);
        assert!(arrived(&mut crowd, 0).none());
    }
    let (all, received) = ([crowd.published().clone()], crowd.counts().received);
    assert_eq!(received, 5 * 3 * 2);
    crowd.begin(&all);
    assert_eq!(crowd.expected(&all), 0);
    let nowhere = Publication { room: 2, planned_us: 0 };
    assert!(crowd.publish(publisher, &[nowhere], 50).is_err(), "there is no such room");
    publish(&mut crowd, publisher, &[1]);
    assert!(arrived(&mut crowd, received).none());
    assert_eq!(crowd.counts().received - received, 2);
}

#[test]
fn messages_longer_than_a_frame_of_sixteen_bits_arrive() {
    let (_server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling] {
        let mut crowd = open(&spec(&target, transport, 3, 1)).expect("open");
        let publisher = crowd.publishers().start;
        let batch = [Publication { room: 0, planned_us: Crowd::clock_us() }; 2];
        crowd.publish(publisher, &batch, 30_000).expect("published");
        assert!(arrived(&mut crowd, 0).none());
        assert!(crowd.counts().received_bytes > 3 * 2 * 30_000);
    }
}

#[test]
fn a_crowd_says_goodbye() {
    let (server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling] {
        let mut crowd = open(&spec(&target, transport, 20, 1)).expect("open");
        assert_eq!((crowd.counts().connected, server.handle().sessions()), (22, 22));
        crowd.leave();
        assert_eq!((crowd.counts().connected, crowd.counts().dropped), (0, 0));
        assert_eq!(server.handle().sessions(), 0);
    }
}

#[test]
fn opening_is_paced_and_can_be_stopped() {
    let (_server, target) = server();
    let spec = CrowdSpec { opens_per_s: Some(50.0), ..spec(&target, Transport::Websocket, 1000, 1) };
    let mut told = Vec::new();
    let crowd = Crowd::open(&spec, 0, 1, &mut |open| {
        told.push(open);
        told.len() < 3
    });
    let mut crowd = crowd.expect("stopped, not failed");
    assert!(told.is_sorted() && crowd.counts().connected < 1000, "{told:?}");
    assert!(crowd.publish(999, &[], 50).is_err(), "that session was not opened");
    crowd.leave();
}

fn rooms_and_publishers(transport: Transport) {
    let (_server, target) = server();
    let mut crowd = open(&spec(&target, transport, 9, 3)).expect("open");
    assert_eq!((crowd.clients(), crowd.publishers(), crowd.counts().connected), (0..9, 9..11, 11));
    crowd.time_from(0, 1, 60_000_000);
    for round in 0..30 {
        for publisher in crowd.publishers() {
            publish(&mut crowd, publisher, &[round % 3, (round + 1) % 3]);
        }
        crowd.turn(std::time::Duration::ZERO).expect("turned");
    }
    let faults = arrived(&mut crowd, 0);
    let counts = crowd.counts();
    // 30 rounds of 2 publishers and 2 publications to 3 members each.
    assert_eq!((counts.sent, counts.sent_carriers, counts.received), (120, 60, 360));
    assert!(faults.none(), "{faults:?}");
    assert_eq!(crowd.latencies_us().0.iter().map(|(_, count)| count).sum::<u64>(), 360);
}
