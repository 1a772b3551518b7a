//! Limits of clients that are being served: each alone, and all together.

use encke::Settings;
use serde_json::json;

use super::message_of;
use crate::common::{Poller, Tcp, TestServer, publications, settings, wait_until};

#[test]
fn response_bytes_max_leaves_the_rest_to_the_next_connect() {
    let server = TestServer::start(Settings { response_bytes_max: 2_000, ..settings() });
    let mut poller = server.poller();
    poller.subscribe("/a");
    let text = "x".repeat(600);
    for _ in 0..10 {
        server.publish("/a", &json!(text).to_string());
    }
    server.wait_for("encke_publications", 10);
    let received: Vec<usize> = (0..4).map(|_| publications(&poller.poll(json!({}))).len()).collect();
    assert_eq!(received, [3, 3, 3, 1]);
}

/// One client takes nothing of a response that exceeds the limit of all responses together. Connects of the others
/// wait until the server gives up that response.
#[test]
fn responses_bytes_max_delays_connects_until_other_responses_are_done() {
    let server = TestServer::start(Settings { responses_bytes_max: 1 << 20, outbox_bytes_max: 1 << 26, ..settings() });
    let mut parked: Vec<Poller> = (0..8).map(|_| server.poller()).collect();
    let mut witness = server.poller();
    witness.subscribe("/big");
    for poller in &mut parked {
        poller.subscribe("/big");
        poller.polls.tcp = Tcp::narrow(server.address());
        poller.start_poll(json!({}));
    }
    server.wait_for_exactly("encke_held_connects", 8);
    for number in 0..3 {
        let text = "x".repeat(6_000_000);
        server.publish("/big", &json!({"number": number, "text": text}).to_string());
    }
    server.wait_for("encke_responses_delayed", 1);
    let mut received = Vec::new();
    while received.len() < 3 {
        received.extend(
            publications(&witness.poll(json!({}))).iter().filter_map(|message| message["data"]["number"].as_u64()),
        );
    }
    assert_eq!(received, [0, 1, 2]);
    assert!(server.metric("encke_timeouts") > 0);
}

/// Handshakes on one connection, and then on many of one address.
#[test]
fn unconnected_per_connection_max_ends_the_oldest() {
    let server = TestServer::start(Settings { unconnected_per_connection_max: 10, ..settings() });
    let mut neighbour = server.neighbour();
    let mut http = server.http();
    let ids: Vec<String> = (0..30).map(|_| http.handshake()).collect();
    server.wait_for_exactly("encke_sessions", 1 + 10);
    assert_eq!(server.metric("encke_sessions_unused_ended"), 20);
    for (id, error) in [(&ids[19], Some("402::session_unknown")), (&ids[20], None)] {
        let reply = http.call(json!({"id": "c", "channel": "/meta/connect", "clientId": id, "advice": {"timeout": 0}}));
        assert_eq!(reply["error"].as_str(), error);
    }
    neighbour.lives(&server);
}

#[test]
fn unconnected_per_address_max_ends_the_oldest() {
    let server = TestServer::start(Settings { unconnected_per_address_max: 10, ..settings() });
    let mut neighbour = server.neighbour();
    for _ in 0..30 {
        server.http().handshake();
    }
    server.wait_for_exactly("encke_sessions", 1 + 10);
    assert_eq!(server.metric("encke_sessions_unused_ended"), 20);
    neighbour.lives(&server);
}

#[test]
fn incomplete_bytes_max_discards_the_longest_stalled_messages() {
    // The smallest effective limit is two messages.
    let server =
        TestServer::start(Settings { message_bytes_max: 50_000, incomplete_bytes_max: 1, shards: 1, ..settings() });
    let mut neighbour = server.neighbour();
    let text = message_of(45_000);
    let frame = crate::common::frame(websocket::Opcode::Text, text.as_bytes());
    let (most, rest) = frame.split_at(44_000);
    let mut sockets: Vec<_> = (0..2).map(|_| server.websocket()).collect();
    for (nth, ws) in sockets.iter_mut().enumerate() {
        ws.send_raw(most);
        wait_until("it has come", || server.metric("encke_incomplete_bytes") >= (nth + 1) as u64 * 44_000);
    }
    // One more exceeds the limit.
    let mut http = server.tcp();
    let head = format!("POST /cometd HTTP/1.1\r\nhost: {}\r\ncontent-length: 45000\r\n\r\n", server.address());
    http.send([&head, &text[..44_000]].concat());
    let mut second = sockets.remove(1);
    assert_eq!(sockets.remove(0).closed(), (1013, "too many incomplete messages".into()));
    server.wait_for_exactly("encke_incomplete_given_up", 1);
    // A sender that continues is not among those given up.
    second.send_raw(rest);
    assert_eq!(second.next_json()[0]["error"], "402::session_unknown");
    let mut others: Vec<_> = (0..2).map(|_| server.websocket()).collect();
    others.iter_mut().for_each(|ws| ws.send_raw(most));
    let refused = http.response().expect("an answer");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    drop(others);
    server.wait_for_exactly("encke_incomplete_bytes", 0);
    neighbour.lives(&server);
}
