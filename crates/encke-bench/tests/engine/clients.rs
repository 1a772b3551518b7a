//! Sessions that publish and receive.

use encke::{ChannelRule, Settings};
use encke_bench::engine::{Clients, PlannedMessage};
use encke_bench::order::{ClientsSpec, Membership, Recovery, Replay, Transport};

use crate::{arrived, open, publish, server, server_with, spec, start, turn_until};

#[test]
fn everything_arrives_over_websocket() {
    rooms_and_publishers(Transport::Websocket);
}

#[test]
fn everything_arrives_over_long_polling() {
    rooms_and_publishers(Transport::LongPolling);
}

#[test]
fn everything_arrives_over_event_streams() {
    rooms_and_publishers(Transport::Eventsource);
}

#[test]
fn several_rooms_a_client_and_every_client_publishing() {
    let (_server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        let membership = Membership { channel: "/bench/b".into(), rooms: 10, per_client: 3, seed: 5, first: 0 };
        let mut clients =
            open(&ClientsSpec { membership, publishers: 0, ..spec(&target, transport, 20, 10) }).expect("open");
        for round in 0..10 {
            for session in clients.subscribers() {
                publish(&mut clients, session, &[(session as u32 + round) % 10]);
            }
        }
        let all = [clients.published().clone()];
        assert_eq!(clients.expected(&all), (20 * 10) * (20 * 3) / 10, "by seed 5, all rooms have as many members");
        let faults = arrived(&mut clients, 0);
        assert!(faults.none(), "{faults:?} {transport:?}");
        clients.disconnect();
    }
}

#[test]
fn answers_to_calls_come_to_the_caller() {
    let (_server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        let mut clients = open(&spec(&target, transport, 5, 1)).expect("open");
        clients.time_from(0, 1, u64::MAX);
        for _ in 0..10 {
            for session in 0..7 {
                clients.call(session, "/service/echo", Clients::clock_us(), 100).expect("called");
            }
        }
        assert_eq!(clients.expected(&[]), 70);
        let faults = arrived(&mut clients, 0);
        assert!(faults.none(), "{faults:?} {transport:?}");
        assert_eq!(clients.latencies().count(), 70);
        assert!(clients.latencies().max_us() > 0);
    }
}

#[test]
fn two_workers_receive_each_others_publications() {
    let (_server, target) = server();
    let spec = spec(&target, Transport::Websocket, 7, 3);
    let mut clients: Vec<_> =
        (0..2).map(|worker| Clients::open(&spec, worker, 2, &mut |_| true).expect("open")).collect();
    assert_eq!(clients.iter().map(|clients| clients.subscribers().len()).collect::<Vec<_>>(), [4, 3]);
    for _ in 0..20 {
        for clients in &mut clients {
            let publisher = clients.publishers().start;
            publish(clients, publisher, &[0, 1, 2]);
        }
    }
    let all: Vec<_> = clients.iter().map(|clients| clients.published().clone()).collect();
    for clients in &mut clients {
        let expected = clients.expected(&all);
        assert_eq!(expected, clients.subscribers().len() as u64 * 40);
        turn_until(clients, |clients| clients.counts().received >= expected);
        assert!(clients.faults(&all).none());
    }
    // A worker that does not know another's publications misses none of them, but receives too many.
    let (first, one) = (&clients[0], &all[..1]);
    assert!(first.expected(one) < first.counts().received);
}

#[test]
fn acknowledging_clients_receive_everything_once() {
    let (_server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        let recovery = Recovery { ack: true, ..Recovery::default() };
        let mut clients = open(&ClientsSpec { recovery, ..spec(&target, transport, 5, 2) }).expect("open");
        let publisher = clients.publishers().start;
        for round in 0..30 {
            publish(&mut clients, publisher, &[0, 1, 0, 0, 1]);
            // Some batches with one message, some with many.
            if round % 3 == 0 {
                assert!(arrived(&mut clients, 0).none());
            }
        }
        assert!(arrived(&mut clients, 0).none(), "{transport:?}");
        clients.disconnect();
    }
}

#[test]
fn compressed_clients_receive_everything_once_and_want_a_server_that_compresses() {
    let pattern = "/bench/**".into();
    let rule = ChannelRule { pattern, compress: true, ..ChannelRule::default() };
    let settings = Settings { channels: vec![rule], compress_bytes_min: 0, ..Settings::default() };
    let server = start(settings);
    let compressed =
        ClientsSpec { compress: true, ..spec(&format!("http://{}", server.address()), Transport::Websocket, 5, 2) };
    for ack in [false, true] {
        let recovery = Recovery { ack, ..Recovery::default() };
        let mut clients = open(&ClientsSpec { recovery, ..compressed.clone() }).expect("open");
        let publisher = clients.publishers().start;
        (0..20).for_each(|_| publish(&mut clients, publisher, &[0, 1, 0, 0, 1]));
        assert!(arrived(&mut clients, 0).none(), "ack: {ack}");
        clients.disconnect();
    }
    let (_server, target) = self::server();
    assert!(open(&ClientsSpec { target, ..compressed }).is_err());
}

#[test]
fn replaying_clients_receive_earlier_messages() {
    let (_server, target) = server_with(vec![ChannelRule {
        pattern: "/bench/**".into(),
        history_messages: 1_000,
        ..ChannelRule::default()
    }]);
    let mut first = open(&spec(&target, Transport::Websocket, 0, 1)).expect("open");
    let publisher = first.publishers().start;
    let mut informed = open(&ClientsSpec {
        recovery: Recovery { replay: Replay::Live, ..Recovery::default() },
        publishers: 0,
        ..spec(&target, Transport::Websocket, 2, 1)
    })
    .expect("open");
    for _ in 0..100 {
        publish(&mut first, publisher, &[0, 0, 0]);
    }
    let all = [first.published().clone()];
    turn_until(&mut informed, |clients| clients.counts().received == 600);
    assert!(informed.faults(&all).none());
    let recovery = Recovery { replay: Replay::Stored, ..Recovery::default() };
    let late = ClientsSpec { recovery, publishers: 0, ..spec(&target, Transport::Websocket, 3, 1) };
    let mut late = open(&late).expect("open");
    turn_until(&mut late, |late| late.counts().received == 900);
    assert!(late.faults(&all).none());
}

#[test]
fn a_new_trial_starts_from_nothing() {
    let (_server, target) = server();
    let mut clients = open(&spec(&target, Transport::Websocket, 4, 2)).expect("open");
    let publisher = clients.publishers().start;
    for _ in 0..5 {
        publish(&mut clients, publisher, &[0, 1, 1]);
        assert!(arrived(&mut clients, 0).none());
    }
    let (all, received) = ([clients.published().clone()], clients.counts().received);
    assert_eq!(received, 5 * 3 * 2);
    clients.begin(&all);
    assert_eq!(clients.expected(&all), 0);
    let nowhere = PlannedMessage { room: 2, planned_us: 0 };
    assert!(clients.publish(publisher, &[nowhere], 50).is_err(), "there is no such room");
    publish(&mut clients, publisher, &[1]);
    assert!(arrived(&mut clients, received).none());
    assert_eq!(clients.counts().received - received, 2);
}

#[test]
fn messages_longer_than_a_frame_of_sixteen_bits_arrive() {
    let (_server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        let mut clients = open(&spec(&target, transport, 3, 1)).expect("open");
        let publisher = clients.publishers().start;
        let batch = [PlannedMessage { room: 0, planned_us: Clients::clock_us() }; 2];
        clients.publish(publisher, &batch, 30_000).expect("published");
        assert!(arrived(&mut clients, 0).none());
        assert!(clients.counts().received_bytes > 3 * 2 * 30_000);
    }
}

#[test]
fn disconnect_ends_all_sessions() {
    let (server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        let mut clients = open(&spec(&target, transport, 20, 1)).expect("open");
        assert_eq!((clients.counts().connected, server.handle().sessions()), (22, 22));
        clients.disconnect();
        assert_eq!((clients.counts().connected, clients.counts().dropped), (0, 0));
        assert_eq!(server.handle().sessions(), 0);
    }
}

#[test]
fn opening_is_paced_and_can_be_stopped() {
    let (_server, target) = server();
    let spec = ClientsSpec { opens_per_s: Some(50.0), ..spec(&target, Transport::Websocket, 1000, 1) };
    let mut reported = Vec::new();
    let clients = Clients::open(&spec, 0, 1, &mut |open| {
        reported.push(open);
        reported.len() < 3
    });
    let mut clients = clients.expect("stopped, not failed");
    assert!(reported.is_sorted() && clients.counts().connected < 1000, "{reported:?}");
    assert!(clients.publish(999, &[], 50).is_err(), "that session was not opened");
    clients.disconnect();
}

fn rooms_and_publishers(transport: Transport) {
    let (_server, target) = server();
    let mut clients = open(&spec(&target, transport, 9, 3)).expect("open");
    assert_eq!((clients.subscribers(), clients.publishers(), clients.counts().connected), (0..9, 9..11, 11));
    clients.time_from(0, 1, 60_000_000);
    for round in 0..30 {
        for publisher in clients.publishers() {
            publish(&mut clients, publisher, &[round % 3, (round + 1) % 3]);
        }
        clients.turn(std::time::Duration::ZERO).expect("turned");
    }
    let faults = arrived(&mut clients, 0);
    let counts = clients.counts();
    // 30 rounds of 2 publishers and 2 publications to 3 members each.
    assert_eq!((counts.sent, counts.sent_batches, counts.received), (120, 60, 360));
    assert!(faults.none(), "{faults:?}");
    assert_eq!(clients.latencies().count(), 360);
}

#[test]
fn a_publication_counts_as_unanswered_until_its_reply_or_the_end_of_its_connection() {
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        let (server, target) = server();
        let membership = Membership { channel: "/bench/c".into(), rooms: 1, per_client: 1, seed: 0, first: 0 };
        let spec = ClientsSpec { membership, publishers: 1, reconnect: true, ..spec(&target, transport, 1, 1) };
        let mut clients = open(&spec).expect("open");
        clients.note_confirmations();
        let publisher = clients.publishers().start;
        for _ in 0..10 {
            publish(&mut clients, publisher, &[0]);
        }
        assert_eq!((clients.unanswered(), clients.confirmed()), (10, 0), "{transport:?}");
        turn_until(&mut clients, |clients| clients.unanswered() == 0);
        assert_eq!(clients.confirmed(), 10, "{transport:?}");
        // The server may take these or not. In the end none waits.
        publish(&mut clients, publisher, &[0, 0]);
        assert_eq!(clients.unanswered(), 2, "{transport:?}");
        drop(server);
        turn_until(&mut clients, |clients| clients.unanswered() == 0);
    }
}
