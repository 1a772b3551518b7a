//! Sessions whose requests and connections reach other nodes, whose node is killed or cut off, and that have logged out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use encke_client::{Client, Subscription, Transport};
use serde_json::{Value, json};

use crate::nats::{Keeping, Nats};
use crate::node::{Node, SHARDS_MAX};
use crate::proxy::Proxy;
use crate::{EVENT_MAX, connect, data, run, wait_until, wait_until_async};

/// A session by long-polling, with the cookie of its browser.
pub(crate) struct Polling {
    pub(crate) id: String,
    pub(crate) cookie: String,
}

/// Sends messages of a session to a node, each request on its own connection. The status, and the replies.
pub(crate) fn post(node: &Node, session: &Polling, messages: &Value) -> (u16, Value) {
    let (body, cookie) = (messages.to_string(), &session.cookie);
    let head = "POST /cometd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let head = format!("{head}Cookie: {cookie}\r\nContent-Length: {}\r\n\r\n", body.len());
    exchange(node, &(head + &body))
}

fn exchange(node: &Node, request: &str) -> (u16, Value) {
    let (status, _, body) = respond(node, request);
    let body = body.strip_prefix("/**/cb(").and_then(|body| body.strip_suffix(");")).unwrap_or(&body);
    (status, serde_json::from_str(body).unwrap_or_default())
}

/// The status, the head and the body of the response to a request.
fn respond(node: &Node, request: &str) -> (u16, String, String) {
    let address = node.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("the node listens");
    stream.set_read_timeout(Some(EVENT_MAX)).expect("a time limit");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (status, head.to_owned(), body.to_owned())
}

/// Opens a session by long-polling.
pub(crate) fn handshake(node: &Node) -> Polling {
    handshake_with(node, &json!({}))
}

/// The same with this `ext`.
pub(crate) fn handshake_with(node: &Node, ext: &Value) -> Polling {
    let types = ["long-polling", "callback-polling", "websocket"];
    let shake =
        json!([{"channel": "/meta/handshake", "version": "1.0", "ext": ext, "supportedConnectionTypes": types}])
            .to_string();
    let head = "POST /cometd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let request = format!("{head}Content-Length: {}\r\n\r\n{shake}", shake.len());
    let (status, head, body) = respond(node, &request);
    assert_eq!(status, 200);
    let replies: Value = serde_json::from_str(&body).expect("JSON");
    let cookie = head.lines().find_map(|line| line.to_lowercase().starts_with("set-cookie: ").then(|| &line[12..]));
    let cookie = cookie.expect("a cookie").split(';').next().expect("its value").to_owned();
    Polling { id: replies[0]["clientId"].as_str().expect("an id").to_owned(), cookie }
}

/// A connect that is not held.
pub(crate) fn poll(node: &Node, session: &Polling) -> (u16, Value) {
    let (id, advice) = (&session.id, json!({"timeout": 0}));
    let connect =
        json!([{"channel": "/meta/connect", "clientId": id, "connectionType": "long-polling", "advice": advice}]);
    post(node, session, &connect)
}

pub(crate) fn subscribe(node: &Node, session: &Polling, channel: &str) {
    let subscribe = json!([{"channel": "/meta/subscribe", "clientId": session.id, "subscription": channel}]);
    let (_, replies) = post(node, session, &subscribe);
    assert_eq!(replies[0]["successful"], true, "{replies}");
}

/// The data of the messages on a channel, and true if the connect among the replies succeeded.
fn messages(replies: &Value, channel: &str) -> (Vec<u64>, bool) {
    let all = replies.as_array().expect("a batch");
    let of_channel = all.iter().filter(|message| message["channel"] == channel && message.get("data").is_some());
    let connects = |message: &Value| message["channel"] == "/meta/connect" && message["successful"] == true;
    (of_channel.filter_map(|message| message["data"].as_u64()).collect(), all.iter().any(connects))
}

/// Waits until the records of a node's sessions are written as they are now.
pub(crate) fn wait_for_records(node: &Node, sessions: u64) {
    wait_until("the records are written", || {
        let metric = |name: &str| node.metric(&format!("encke_cluster_{name}"));
        metric("sessions_recorded") == sessions && metric("session_records_waiting") == 0
    });
    // A change is reported within a quarter of a second, and a record comes after the next one. Each shard reports by itself: connections,
    // and sessions with them, go to the shards in turn.
    let written = node.metric("encke_cluster_session_records_written");
    let markers: Vec<Polling> = (0..SHARDS_MAX).map(|_| handshake(node)).collect();
    markers.iter().for_each(|marker| _ = poll(node, marker));
    wait_until("later records are written", || {
        node.metric("encke_cluster_session_records_written") >= written + SHARDS_MAX
            && node.metric("encke_cluster_sessions_recorded") == sessions + SHARDS_MAX
    });
}

pub(crate) fn sum(nodes: &[&Node], metric: &str) -> u64 {
    nodes.iter().map(|node| node.metric(metric)).sum()
}

#[test]
fn each_request_of_a_session_may_go_to_another_node() {
    run(async {
        let nats = Keeping::start("requests");
        let nodes = ["a", "b", "c"].map(|name| Node::start(&nats.nats, name, ""));
        let publisher = nodes[2].client().await;
        for first in 0..3 {
            let at = |number: usize| &nodes[(first + number) % 3];
            let id = handshake(at(0));
            assert!(messages(&poll(at(1), &id).1, "").1, "its first connect");
            let channel = format!("/x/{first}");
            subscribe(at(2), &id, &channel);
            for number in 0..60 {
                publisher.publish(&channel, &number).await.expect("published");
            }
            let (mut got, mut number) = (Vec::new(), 0);
            while got.len() < 60 {
                number += 1;
                let replies = if number % 2 == 0 {
                    poll(at(number), &id).1
                } else {
                    let message = json!({"channel": "/meta/connect", "clientId": id.id, "connectionType": "callback-polling", "advice": {"timeout": 0}});
                    let escaped: String = message.to_string().bytes().map(|byte| format!("%{byte:02x}")).collect();
                    let request = format!(
                        "GET /cometd?jsonp=cb&message={escaped} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: {}\r\n\r\n",
                        id.cookie
                    );
                    exchange(at(number), &request).1
                };
                let (more, is_connected) = messages(&replies, &channel);
                assert!(is_connected, "{replies}");
                got.extend(more);
            }
            assert_eq!(got, (0..60).collect::<Vec<_>>(), "lost, doubled or out of order");
            // Its own publications, from anywhere.
            let mut subscription = at(1).subscribe("/own").await;
            let publication = json!([{"channel": "/own", "clientId": id.id, "data": first}]);
            assert_eq!(post(at(1), &id, &publication).1[0]["successful"], true);
            assert_eq!(data(&mut subscription, 1).await, [first.to_string()]);
        }
        let nodes: Vec<&Node> = nodes.iter().collect();
        assert!(sum(&nodes, "encke_cluster_requests_forwarded") > 10);
        assert_eq!(sum(&nodes, "encke_cluster_sessions_moved"), 0, "requests move no session");
        assert_eq!(sum(&nodes, "encke_sessions_unknown"), 0);
    });
}

/// A client by WebSocket that reaches the next node with each connection, and its subscription.
async fn wanderer(proxy: &Proxy, ack: bool) -> (Client, Subscription) {
    let builder = Client::builder().transport(Transport::WebSocket).reply_timeout(EVENT_MAX).ack(ack);
    let builder = builder.backoff(Duration::from_millis(20), Duration::from_millis(200));
    let client = builder.connect(&format!("http://{}", proxy.address())).await.expect("a session");
    let subscription = client.subscribe("/w").await.expect("a subscription");
    (client, subscription)
}

#[test]
fn a_websocket_that_reaches_another_node_brings_its_session() {
    run(async {
        let nats = Keeping::start("websockets");
        let nodes = ["a", "b", "c"].map(|name| Node::start(&nats.nats, name, ""));
        let proxy = Proxy::to(nodes.iter().map(|node| node.url.trim_start_matches("http://").to_owned()).collect());
        let (client, mut subscription) = wanderer(&proxy, false).await;
        let id = client.connected().expect("it is connected").client_id;
        let publisher = connect(&nodes[0].url, Transport::WebSocket).await;
        let all: Vec<&Node> = nodes.iter().collect();
        for round in 0..6_u64 {
            publisher.publish("/w", &round).await.expect("published");
            assert_eq!(data(&mut subscription, 1).await, [round.to_string()], "lost, doubled or out of order");
            proxy.cut_once();
            if round == 0 {
                wait_until_async("it has moved", || sum(&all, "encke_sessions_taken") == 1).await;
            }
            // Its first reply there comes when publications arrive. A session that has moved within the last second is carried.
            while client.publish("/other", &1).await.is_err() {
                tokio::task::yield_now().await;
            }
            wait_until_async("it is connected", || client.connected().is_some_and(|now| now.client_id == id)).await;
        }
        assert_eq!(sum(&all, "encke_sessions_given"), sum(&all, "encke_sessions_taken"));
        assert_eq!(sum(&all, "encke_sessions_unknown"), 0);
    });
}

#[test]
fn a_websocket_whose_session_was_promised_each_message_is_served_by_its_node() {
    run(async {
        let nats = Keeping::start("relays");
        let nodes = ["a", "b", "c"].map(|name| Node::start(&nats.nats, name, ""));
        let proxy = Proxy::to(nodes.iter().map(|node| node.url.trim_start_matches("http://").to_owned()).collect());
        let (client, mut subscription) = wanderer(&proxy, true).await;
        let id = client.connected().expect("it is connected").client_id;
        let publisher = connect(&nodes[0].url, Transport::WebSocket).await;
        for round in 0..6_u64 {
            publisher.publish("/w", &(100 * round)).await.expect("published");
            proxy.cut_once();
            for number in 1..100 {
                publisher.publish("/w", &(100 * round + number)).await.expect("published");
            }
            let expected: Vec<String> = (100 * round..100 * round + 100).map(|number| number.to_string()).collect();
            assert_eq!(data(&mut subscription, 100).await, expected, "lost, doubled or out of order");
        }
        // A message that goes in several pieces.
        let large = "x".repeat(200_000);
        client.publish("/w", &large).await.expect("published");
        assert_eq!(data(&mut subscription, 1).await, [format!("\"{large}\"")]);
        assert_eq!(client.connected().expect("it is connected").client_id, id, "the session goes on");
        let nodes: Vec<&Node> = nodes.iter().collect();
        assert!(sum(&nodes, "encke_cluster_connections_relayed") >= 3);
        assert_eq!((sum(&nodes, "encke_sessions_given"), sum(&nodes, "encke_sessions_unknown")), (0, 0));
        client.disconnect().await.expect("it ends");
        wait_until("no relay is left", || sum(&nodes, "encke_cluster_relays") == 0);
    });
}

#[test]
fn a_session_goes_on_elsewhere_when_its_node_is_killed() {
    run(async {
        let nats = Keeping::start("kill");
        let [a, b, c] = ["a", "b", "c"].map(|name| Node::start(&nats.nats, name, ""));
        let id = handshake(&a);
        poll(&a, &id);
        subscribe(&b, &id, "/k");
        wait_for_records(&a, 1);
        std::thread::scope(|scope| {
            // Held by its node, for another one.
            let held = scope.spawn(|| {
                let connect =
                    json!([{"channel": "/meta/connect", "clientId": id.id, "connectionType": "long-polling"}]);
                post(&b, &id, &connect)
            });
            wait_until("it is held", || a.metric("encke_held_connects") == 1);
            drop(a);
            wait_until("it is held by the node that has read it", || b.metric("encke_held_connects") == 1);
            assert_eq!(sum(&[&b, &c], "encke_cluster_sessions_taken_over"), 1);
            // Without a history what is published before NATS knows of the new subscription is not delivered.
            wait_until("messages come to that node", || nats.nats.subjects("b") == ["k"]);
            // The first message comes with the connect that was sent before the kill.
            let publisher = handshake(&c);
            let publication = json!([{"channel": "/k", "clientId": publisher.id, "data": 1}]);
            assert_eq!(post(&c, &publisher, &publication).1[0]["successful"], true);
            let (status, replies) = held.join().expect("no panic");
            assert_eq!((status, messages(&replies, "/k")), (200, (vec![1], true)), "{replies}");
        });
        // Its id still names the node that is gone.
        for node in [&c, &b, &c] {
            assert!(messages(&poll(node, &id).1, "/k").1);
        }
        assert_eq!(sum(&[&b, &c], "encke_cluster_sessions_taken_over"), 1);
    });
}

#[test]
fn of_two_nodes_that_claim_a_session_one_gets_it() {
    run(async {
        let nats = Keeping::start("claims");
        let [a, b, c] = ["a", "b", "c"].map(|name| Node::start(&nats.nats, name, ""));
        let ids: Vec<Polling> = (0..20).map(|_| handshake(&a)).collect();
        ids.iter().for_each(|id| _ = poll(&a, id));
        wait_for_records(&a, 20);
        drop(a);
        for id in &ids {
            let at_once = std::thread::scope(|scope| {
                let both = [&b, &c].map(|node| scope.spawn(move || poll(node, id)));
                both.map(|one| one.join().expect("no panic"))
            });
            for (status, replies) in at_once {
                assert!(status == 200 && messages(&replies, "").1, "{status} {replies}");
            }
        }
        assert_eq!(sum(&[&b, &c], "encke_cluster_sessions_taken_over"), 20);
        assert_eq!(sum(&[&b, &c], "encke_sessions"), 20);
    });
}

#[test]
fn a_session_that_has_logged_out_does_not_come_back() {
    run(async {
        let nats = Keeping::start("logout");
        let [a, b, c] = ["a", "b", "c"].map(|name| Node::start(&nats.nats, name, ""));
        let id = handshake(&a);
        poll(&a, &id);
        wait_for_records(&a, 1);
        let (_, replies) = post(&b, &id, &json!([{"channel": "/meta/disconnect", "clientId": id.id}]));
        assert_eq!(replies[0]["successful"], true, "{replies}");
        wait_until("its end is written", || a.metric("encke_cluster_sessions_recorded") == SHARDS_MAX);
        drop(a);
        for node in [&b, &c] {
            let (_, replies) = poll(node, &id);
            assert_eq!(replies[0]["error"], "402::session_unknown", "{replies}");
            assert_eq!(replies[0]["advice"]["reconnect"], "handshake");
        }
        assert_eq!(sum(&[&b, &c], "encke_cluster_sessions_taken_over"), 0);
    });
}

/// A node that reaches NATS by a pipe, which can be cut, and another one.
pub(crate) fn with_one_that_can_be_cut_off(name: &str) -> (Keeping, Proxy, Node, Node) {
    let nats = Keeping::start(name);
    let pipe = Proxy::to(vec![nats.nats.url().trim_start_matches("nats://").to_owned()]);
    let a = Node::begin_at(&format!("nats://{}", pipe.address()), "a", "");
    a.wait_for("encke_cluster_connected", 1);
    let b = Node::start(&nats.nats, "b", "");
    (nats, pipe, a, b)
}

#[test]
fn a_node_that_was_cut_off_ends_its_copy_of_a_session_that_another_has_taken() {
    run(async {
        let (_nats, pipe, a, b) = with_one_that_can_be_cut_off("cut");
        let (moved, other) = (handshake(&a), handshake(&a));
        [&moved, &other].iter().for_each(|id| _ = poll(&a, id));
        wait_for_records(&a, 2);
        pipe.cut();
        a.wait_for("encke_cluster_connected", 0);
        assert!(messages(&poll(&b, &moved).1, "").1);
        assert_eq!(b.metric("encke_cluster_sessions_taken_over"), 1);
        assert!(messages(&poll(&a, &other).1, "").1, "it serves its clients alone");
        pipe.mend();
        a.wait_for("encke_cluster_connected", 1);
        a.wait_for("encke_sessions_left", 1);
        // From now on it passes requests on to the node that has the session, and keeps the others.
        for node in [&a, &b] {
            assert!(messages(&poll(node, &moved).1, "").1 && messages(&poll(node, &other).1, "").1);
        }
        assert_eq!(
            (b.metric("encke_cluster_sessions_taken_over"), a.metric("encke_cluster_sessions_taken_over")),
            (1, 0)
        );
    });
}

#[test]
fn without_jetstream_requests_are_forwarded_and_sessions_of_killed_nodes_begin_again() {
    run(async {
        let nats = Nats::start(&[]);
        let [a, b] = ["a", "b"].map(|name| Node::start(&nats, name, ""));
        let id = handshake(&a);
        assert!(messages(&poll(&b, &id).1, "").1 && messages(&poll(&a, &id).1, "").1);
        drop(a);
        let (_, replies) = poll(&b, &id);
        assert_eq!(replies[0]["error"], "402::session_unknown", "{replies}");
    });
}

#[test]
fn a_stream_that_reaches_another_node_brings_its_session() {
    run(async {
        let nats = Keeping::start("streams");
        let [a, b] = ["a", "b"].map(|name| Node::start(&nats.nats, name, ""));
        let id = handshake(&a);
        poll(&a, &id);
        subscribe(&a, &id, "/s");
        let mut stream = TcpStream::connect(b.url.trim_start_matches("http://")).expect("the node listens");
        stream.set_read_timeout(Some(EVENT_MAX)).expect("a time limit");
        let head = format!(
            "GET /cometd/{} HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\nAccept: text/event-stream\r\n\r\n",
            id.id, id.cookie
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        b.wait_for("encke_sessions_taken", 1);
        a.client().await.publish("/s", &7).await.expect("published");
        let (mut text, mut buffer) = (String::new(), [0; 1024]);
        while !text.contains("\"data\":7") {
            let count = stream.read(&mut buffer).expect("bytes");
            assert!(count > 0, "the stream has ended: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        // A session that nobody has.
        let (status, _) =
            exchange(&b, &head.replace(&id.id, &"0".repeat(32)).replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
        assert_eq!(status, 404);
    });
}

#[test]
fn a_client_that_has_subscribed_at_a_node_that_was_cut_off_learns_that_its_session_went_on_without_that() {
    run(async {
        let (_nats, pipe, a, b) = with_one_that_can_be_cut_off("granted");
        let session = handshake(&a);
        poll(&a, &session);
        wait_for_records(&a, 1);
        pipe.cut();
        a.wait_for("encke_cluster_connected", 0);
        subscribe(&a, &session, "/granted");
        assert!(messages(&poll(&b, &session).1, "").1, "it goes on from its record");
        pipe.mend();
        a.wait_for("encke_cluster_connected", 1);
        for node in [&a, &b] {
            node.wait_for("encke_sessions_left", 1);
            let (_, replies) = poll(node, &session);
            assert_eq!(replies[0]["error"], "402::session_unknown", "{replies}");
        }
    });
}
