//! Connections that break.

use std::time::Duration;

use encke_bench::run::{CrowdSpec, Transport};

use crate::{arrived, open, publish, server, spec, turn_until};

#[test]
fn all_sessions_come_back_after_a_cut_and_nothing_is_lost() {
    for transport in [Transport::Websocket, Transport::LongPolling] {
        let (server, target) = server();
        let spec = CrowdSpec { reconnect: true, ..spec(&target, transport, 30, 3) };
        let mut crowd = open(&spec).expect("open");
        let publisher = crowd.publishers().start;
        publish(&mut crowd, publisher, &[0, 1, 2]);
        assert!(arrived(&mut crowd, 0).none());
        crowd.cut();
        assert_eq!(crowd.counts().connected, 0);
        assert!(crowd.publish(publisher, &[], 50).is_err(), "away");
        // The sessions are still there, and what is published meanwhile waits for them.
        server.handle().publish("/bench/a/00001", "\"from elsewhere\"").expect("published");
        turn_until(&mut crowd, |crowd| crowd.counts().connected == 32);
        publish(&mut crowd, publisher, &[0, 1, 2]);
        let faults = arrived(&mut crowd, 0);
        assert_eq!((faults.lost, faults.doubled, faults.dropped_sessions), (0, 0, 0), "{transport:?}");
        assert_eq!(faults.misdelivered, 10, "what the crowd did not publish");
        assert_eq!((crowd.counts().dropped, server.handle().sessions()), (0, 32));
    }
}

#[test]
fn without_reconnect_a_broken_connection_is_a_fault() {
    let (_server, target) = server();
    let mut crowd = open(&spec(&target, Transport::Websocket, 5, 1)).expect("open");
    crowd.cut();
    assert_eq!((crowd.counts().connected, crowd.counts().dropped), (0, 7));
    assert_eq!(crowd.faults(&[]).dropped_sessions, 7);
    assert!(crowd.first_loss().is_some());
    crowd.begin(&[]);
    assert_eq!(crowd.faults(&[]).dropped_sessions, 0, "a new trial");
}

#[test]
fn a_server_that_stops_takes_its_sessions_along() {
    let (server, target) = server();
    let mut crowd = open(&spec(&target, Transport::Websocket, 5, 1)).expect("open");
    server.handle().drain();
    turn_until(&mut crowd, |crowd| crowd.counts().dropped == 7);
    assert!(crowd.first_loss().is_some());
}

#[test]
fn held_connects_go_on_for_longer_than_one_is_held() {
    for transport in [Transport::Websocket, Transport::LongPolling] {
        let (_server, target) = server();
        let mut crowd = open(&spec(&target, transport, 5, 1)).expect("open");
        // The server holds a connect for two seconds.
        let begin = std::time::Instant::now();
        turn_until(&mut crowd, |_| begin.elapsed() > Duration::from_secs(5));
        assert_eq!((crowd.counts().connected, crowd.counts().dropped), (7, 0));
        let publisher = crowd.publishers().start;
        publish(&mut crowd, publisher, &[0]);
        assert!(arrived(&mut crowd, 0).none());
    }
}
