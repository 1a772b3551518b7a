//! Requests that wait for long leave hyper. Their clients notice nothing: answers, pipelined requests, connections that
//! stay or close are as before.

use encke::Settings;
use serde_json::json;

use crate::common::{Poller, TestServer, settings};

/// A subscribed long-polling session whose connect has left hyper.
fn held(server: &TestServer) -> Poller {
    let mut poller = server.poller();
    poller.subscribe("/a");
    hold(server, &mut poller);
    poller
}

fn hold(server: &TestServer, poller: &mut Poller) {
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_requests", 1);
}

#[test]
fn a_held_connect_is_answered_and_its_connection_goes_on() {
    for shards in [1, 2] {
        let server = TestServer::start(Settings { shards, ..settings() });
        let mut poller = held(&server);
        for number in 0..5 {
            server.publish("/a", &number.to_string());
            let response = poller.polls.receive();
            let names: Vec<_> = response.headers.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(
                names,
                ["content-type", "cache-control", "x-content-type-options", "content-length", "date"],
                "the head of a response that did not wait"
            );
            assert_eq!(response.messages()[0]["data"], number);
            // On the same connection.
            hold(&server, &mut poller);
        }
        assert_eq!(server.metric("encke_deliveries"), 5, "each message was confirmed");
    }
}

/// Requests that a client sends while another one waits are answered after it, in order, also if there are more than the
/// server reads ahead.
#[test]
fn pipelined_requests_are_answered_after_the_held_one() {
    for (count, length) in [(3, 10), (200, 100)] {
        let server = TestServer::start(settings());
        let mut poller = held(&server);
        for number in 0..count {
            poller.polls.send("GET", &format!("/nothing/{number}/{}", "x".repeat(length)), &[], b"");
        }
        poller.polls.send("GET", "/healthz", &[], b"");
        server.publish("/a", "1");
        assert_eq!(poller.end_poll()[0]["data"], 1);
        for _ in 0..count {
            assert_eq!(poller.polls.receive().status, 404);
        }
        assert_eq!(poller.polls.receive().status, 200);
    }
}

/// The message waits for the next connect if the client has left before it came.
#[test]
fn a_client_that_leaves_is_held_no_longer_and_loses_nothing() {
    let server = TestServer::start(settings());
    let mut poller = held(&server);
    assert_eq!(server.metric("encke_held_connects"), 1);
    poller.polls = poller.http.again();
    server.wait_for_exactly("encke_held_requests", 0);
    server.wait_for_exactly("encke_held_connects", 0);
    server.publish("/a", "1");
    assert_eq!(poller.poll(json!({}))[0]["data"], 1);
    // A reset, while the response is on its way.
    hold(&server, &mut poller);
    let again = poller.http.again();
    std::mem::replace(&mut poller.polls, again).tcp.reset();
    server.wait_for_exactly("encke_held_requests", 0);
    server.publish("/a", "2");
    assert_eq!(poller.poll(json!({}))[0]["data"], 2);
}

#[test]
fn a_request_for_one_response_only_is_closed_after_its_answer() {
    for (version, connection, closes) in [
        ("HTTP/1.1", "close", true),
        ("HTTP/1.1", "Keep-Alive , Close", true),
        ("HTTP/1.0", "x", true),
        ("HTTP/1.0", "keep-alive", false),
        ("HTTP/1.1", "x", false),
    ] {
        let server = TestServer::start(settings());
        let mut poller = server.poller();
        poller.subscribe("/a");
        let body = poller.connect_message("c", json!({})).to_string();
        let cookie = poller.http.cookie.clone().expect("a cookie");
        let request = format!(
            "POST /cometd {version}\r\nhost: {}\r\ncookie: BAYEUX_BROWSER={cookie}\r\nconnection: {connection}\r\n\
             content-length: {}\r\n\r\n{body}",
            server.address(),
            body.len()
        );
        let mut tcp = server.tcp();
        tcp.send(request);
        server.wait_for_exactly("encke_held_requests", 1);
        server.publish("/a", "1");
        let response = tcp.response().expect("a response");
        assert_eq!(response.messages()[0]["data"], 1, "{version} {connection}");
        let close = response.header("connection").map(|value| value == "close");
        match (closes, version) {
            (true, _) => assert!(close.is_none_or(|close| close) && tcp.ends()),
            (false, "HTTP/1.0") => assert_eq!(response.header("connection"), Some("keep-alive")),
            (false, _) => assert_eq!(close, None),
        }
        if !closes {
            tcp.send(format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", server.address()));
            assert_eq!(tcp.response().map(|response| response.status), Some(200));
        }
    }
}

#[test]
fn held_requests_are_answered_when_the_server_drains() {
    let server = TestServer::start(Settings { drain_timeout_ms: 20_000, ..settings() });
    let mut poller = held(&server);
    server.handle.drain();
    let response = poller.polls.receive();
    assert_eq!(response.messages()[0]["successful"], true, "{response:?}");
    assert_eq!(response.header("connection"), Some("close"));
    assert!(poller.polls.tcp.ends());
    server.stop();
}

/// A client that sends without an end while its request waits is read up to a limit; its answer still comes.
#[test]
fn a_flood_behind_a_held_request_waits_in_the_kernel() {
    let server = TestServer::start(settings());
    let mut poller = held(&server);
    poller.polls.tcp.stream.tcp().set_nonblocking(true).expect("a mode");
    let mut sent = 0;
    while let Ok(()) = poller.polls.tcp.try_send([b'x'; 4096]) {
        sent += 4096;
        assert!(sent < 64 << 20, "the server reads and reads");
    }
    poller.polls.tcp.stream.tcp().set_nonblocking(false).expect("a mode");
    server.publish("/a", "1");
    assert_eq!(poller.end_poll()[0]["data"], 1);
    // Not a request, and too long.
    assert_eq!(poller.polls.tcp.response().map(|response| response.status), Some(431));
}
