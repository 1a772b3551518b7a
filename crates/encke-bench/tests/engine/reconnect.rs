//! Connections that break.

use std::time::Duration;

use encke_bench::order::{ClientsSpec, Transport};

use crate::{arrived, open, publish, server, spec, turn_until};

#[test]
fn all_sessions_come_back_after_a_cut_and_nothing_is_lost() {
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        let (server, target) = server();
        let spec = ClientsSpec { reconnect: true, ..spec(&target, transport, 30, 3) };
        let mut clients = open(&spec).expect("open");
        let publisher = clients.publishers().start;
        publish(&mut clients, publisher, &[0, 1, 2]);
        assert!(arrived(&mut clients, 0).none());
        clients.cut();
        assert_eq!(clients.counts().connected, 0);
        assert!(clients.publish(publisher, &[], 50).is_err(), "away");
        // The sessions still exist, and messages published meanwhile wait for them.
        server.handle().publish("/bench/a/00001", "\"from elsewhere\"").expect("published");
        turn_until(&mut clients, |clients| clients.counts().connected == 32);
        publish(&mut clients, publisher, &[0, 1, 2]);
        let faults = arrived(&mut clients, 0);
        assert_eq!((faults.lost, faults.doubled, faults.dropped_sessions), (0, 0, 0), "{transport:?}");
        assert_eq!(faults.misdelivered, 10, "published by others");
        assert_eq!((clients.counts().dropped, server.handle().sessions()), (0, 32));
    }
}

#[test]
fn without_reconnect_a_broken_connection_is_a_fault() {
    let (_server, target) = server();
    let mut clients = open(&spec(&target, Transport::Websocket, 5, 1)).expect("open");
    clients.cut();
    assert_eq!((clients.counts().connected, clients.counts().dropped), (0, 7));
    assert_eq!(clients.faults(&[]).dropped_sessions, 7);
    assert!(clients.first_loss().is_some());
    clients.begin(&[]);
    assert_eq!(clients.faults(&[]).dropped_sessions, 0, "a new trial");
}

#[test]
fn a_server_that_stops_takes_its_sessions_along() {
    let (server, target) = server();
    let mut clients = open(&spec(&target, Transport::Websocket, 5, 1)).expect("open");
    server.handle().drain();
    turn_until(&mut clients, |clients| clients.counts().dropped == 7);
    assert!(clients.first_loss().is_some());
}

#[test]
fn held_connects_go_on_for_longer_than_one_is_held() {
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        let (_server, target) = server();
        let mut clients = open(&spec(&target, transport, 5, 1)).expect("open");
        // The server holds a connect for two seconds.
        let begin = std::time::Instant::now();
        turn_until(&mut clients, |_| begin.elapsed() > Duration::from_secs(5));
        assert_eq!((clients.counts().connected, clients.counts().dropped), (7, 0));
        let publisher = clients.publishers().start;
        publish(&mut clients, publisher, &[0]);
        assert!(arrived(&mut clients, 0).none());
    }
}
