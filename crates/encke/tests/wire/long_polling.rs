//! Polls that are many, doubled, never read or broken: one is held, and none of them loses the waiting messages (rows
//! 31 and 32 of `docs/contributing/bad-input.md`).

use std::time::Duration;

use encke::Settings;
use serde_json::{Value, json};

use crate::common::{Http, Poller, Tcp, TestServer, publications, settings};

/// The numbers in publications.
fn numbers(messages: &[Value]) -> Vec<u64> {
    publications(messages).iter().filter_map(|message| message["data"].as_u64()).collect()
}

#[test]
fn only_the_last_of_many_polls_of_one_session_is_held() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let mut poller = server.poller();
    poller.subscribe("/a");
    let polls: Vec<Http> = (0..100)
        .map(|number| {
            let mut http = poller.http.again();
            let body = poller.connect_message(&number.to_string(), json!({})).to_string();
            http.send("POST", "/cometd", &[], body.as_bytes());
            http
        })
        .collect();
    server.wait_for("encke_requests_refused", 99);
    assert_eq!(server.metric("encke_held_connects"), 1);
    server.publish("/a", "1");
    let responses: Vec<_> = polls.into_iter().map(|mut http| http.receive()).collect();
    assert_eq!(responses.iter().filter(|response| response.status == 409).count(), 99);
    let answered: Vec<_> = responses.iter().filter(|response| response.status == 200).collect();
    assert_eq!(answered.len(), 1);
    assert_eq!(numbers(&answered[0].messages()), [1]);
    neighbour.lives(&server);
}

#[test]
fn many_parked_sessions_are_all_woken() {
    let server = TestServer::start(Settings { shards: 2, ..settings() });
    let mut parked: Vec<Poller> = (0..200)
        .map(|_| {
            let mut poller = server.poller();
            poller.subscribe("/all");
            poller.start_poll(json!({}));
            poller
        })
        .collect();
    server.wait_for_exactly("encke_held_connects", 200);
    server.publish("/all", "7");
    for poller in &mut parked {
        assert_eq!(numbers(&poller.end_poll()), [7]);
    }
    assert_eq!(server.metric("encke_held_connects"), 0);
}

/// Row 32: polls that overtake each other while messages arrive. Each message arrives exactly once.
#[test]
fn repeated_polls_deliver_nothing_twice_and_lose_nothing() {
    let server = TestServer::start(Settings { timeout_ms: 200, ..settings() });
    let mut poller = server.poller();
    poller.subscribe("/a");
    let handle = server.handle.clone();
    let publisher = std::thread::spawn(move || {
        for number in 0..500 {
            while handle.publish("/a", &number.to_string()).is_err() {
                std::thread::yield_now();
            }
            if number % 5 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let mut all_received = Vec::new();
    let mut connections: Vec<Http> = (0..2).map(|_| poller.http.again()).collect();
    while all_received.len() < 500 {
        let body = poller.connect_message("same", json!({})).to_string();
        for http in &mut connections {
            http.send("POST", "/cometd", &[], body.as_bytes());
        }
        for http in &mut connections {
            let response = http.receive();
            assert!(matches!(response.status, 200 | 409), "{}", response.status);
            if response.status == 200 {
                all_received.extend(numbers(&response.messages()));
            }
        }
    }
    publisher.join().expect("no surprise");
    all_received.sort_unstable();
    assert_eq!(all_received, (0..500).collect::<Vec<u64>>());
}

#[test]
fn an_aborted_poll_loses_no_message() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let mut poller = server.poller();
    poller.subscribe("/a");
    let mut all_received = Vec::new();
    for number in 0..50_u64 {
        let mut torn = poller.http.again();
        let body = poller.connect_message("torn", json!({})).to_string();
        torn.send("POST", "/cometd", &[], body.as_bytes());
        if number % 2 == 0 {
            server.wait_for_exactly("encke_held_connects", 1);
        }
        torn.tcp.reset();
        server.wait_for_exactly("encke_held_connects", 0);
        server.publish("/a", &number.to_string());
        all_received.extend(numbers(&poller.poll(json!({}))));
    }
    assert_eq!(all_received, (0..50).collect::<Vec<u64>>());
    neighbour.lives(&server);
}

/// More than the kernel buffers for a client that reads nothing: 15 messages of 900 KB on `/big`.
fn publish_much(server: &TestServer) {
    let text = "x".repeat(900_000);
    for number in 0..15 {
        let data = json!({"number": number, "text": text}).to_string();
        server.publish("/big", &data);
    }
    // All of them wait for the session: a publication counts before it is delivered, and heavy ones may be delayed.
    server.wait_for("encke_frame_bytes", 15 * 900_000);
}

fn received_numbers(messages: &[Value]) -> Vec<u64> {
    publications(messages).iter().filter_map(|message| message["data"]["number"].as_u64()).collect()
}

/// Settings with which [`publish_much`] is one response.
fn roomy() -> Settings {
    Settings { response_bytes_max: 64 * 1024 * 1024, ..settings() }
}

/// The server gives up a response that its client never reads, and its messages wait for the next connect.
#[test]
fn a_response_that_is_not_read_is_not_delivered() {
    for connection in ["keep-alive", "close"] {
        let server = TestServer::start(Settings { response_timeout_ms: 500, ..roomy() });
        let mut poller = server.poller();
        poller.subscribe("/big");
        publish_much(&server);
        let mut unread = poller.http.again();
        unread.tcp = Tcp::narrow(server.address());
        let body = poller.connect_message("unread", json!({})).to_string();
        unread.send("POST", "/cometd", &[("connection", connection)], body.as_bytes());
        server.wait_for("encke_timeouts", 1);
        // A client that reads may be slow.
        assert!(server.handle.reload(roomy()).expect("good settings").is_empty());
        poller.polls = poller.http.again();
        let messages = poller.poll(json!({}));
        assert_eq!(received_numbers(&messages), (0..15).collect::<Vec<u64>>(), "{connection}");
        drop(unread);
    }
}

/// The client has abandoned a response and connects again on another connection: it gets no empty replies meanwhile.
#[test]
fn a_connect_waits_for_the_outcome_of_the_response_before_it() {
    let server = TestServer::start(roomy());
    let mut poller = server.poller();
    poller.subscribe("/big");
    publish_much(&server);
    let mut unread = poller.http.again();
    unread.tcp = Tcp::narrow(server.address());
    let body = poller.connect_message("unread", json!({})).to_string();
    unread.send("POST", "/cometd", &[], body.as_bytes());
    // The first bytes have arrived: the response is on its way.
    unread.tcp.read_ahead(1);
    server.publish("/big", r#"{"number":15}"#);
    server.wait_for("encke_publications", 16);
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    unread.tcp.reset();
    let mut received = received_numbers(&poller.end_poll());
    assert!(!received.is_empty(), "an empty answer");
    while received.len() < 16 {
        received.extend(received_numbers(&poller.poll(json!({}))));
    }
    assert_eq!(received, (0..16).collect::<Vec<u64>>());
}

/// On a connection that stays open, and on one that closes after it.
#[test]
fn a_large_response_arrives_whole_however_slowly_it_is_read() {
    std::thread::scope(|scope| {
        for connection in ["keep-alive", "close"] {
            scope.spawn(move || {
                let server = TestServer::start(Settings { response_timeout_ms: 5_000, ..roomy() });
                let mut poller = server.poller();
                poller.subscribe("/big");
                publish_much(&server);
                let mut slow = poller.http.again();
                slow.tcp = Tcp::narrow(server.address());
                let body = poller.connect_message("slow", json!({})).to_string();
                slow.send("POST", "/cometd", &[("connection", connection)], body.as_bytes());
                // The total exceeds the time-out of a stalled connection. Each pause is much shorter, so that a busy
                // machine does not reach the time-out.
                for _ in 0..16 {
                    std::thread::sleep(Duration::from_millis(350));
                    slow.tcp.read_ahead(800_000);
                }
                assert_eq!(received_numbers(&slow.receive().messages()), (0..15).collect::<Vec<u64>>(), "{connection}");
                server.wait_for("encke_deliveries", 15);
            });
        }
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = TestServer::start(Settings { timeout_ms: 300, ..settings() });
    let mut poller = server.poller();
    let connect = poller.connect_message("1", json!({})).to_string();
    let publish = json!([{"id": "2", "channel": "/a", "clientId": poller.id, "data": 1}]).to_string();
    for body in [&connect, &publish, &connect, &publish] {
        poller.polls.send("POST", "/cometd", &[], body.as_bytes());
    }
    for id in ["1", "2", "1", "2"] {
        assert_eq!(poller.polls.receive().messages()[0]["id"], id);
    }
}

#[test]
fn a_client_that_half_closes_its_connection_is_gone() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    poller.polls.tcp.shutdown_write();
    server.wait_for_exactly("encke_held_connects", 0);
}
