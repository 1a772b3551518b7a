//! A session changes its transport while messages flow, and a client sleeps: nothing is lost, doubled or out of
//! order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use encke::{ChannelRule, Settings, SlowConsumer};
use serde_json::{Value, json};
use websocket::Opcode;

use crate::ack;
use crate::common::{Frame, Poller, TestServer, Ws, frame, publications, settings, wait_until};
use crate::replay::client;

/// The number of transport changes of a session.
const SWITCHES: usize = 20;

/// Publishes rising numbers on a thread until it is stopped.
#[derive(Default)]
struct Publisher {
    published: AtomicU64,
    is_over: AtomicBool,
}

impl Publisher {
    fn run(&self, server: &TestServer) {
        while !self.is_over.load(Ordering::Relaxed) {
            let number = self.published.load(Ordering::Relaxed);
            if server.handle.publish("/a", &number.to_string()).is_ok() {
                self.published.store(number + 1, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until some more numbers have been published, however slowly the publisher runs.
    fn wait_for_more(&self) {
        let before = self.published.load(Ordering::Relaxed);
        wait_until("more numbers are published", || self.published.load(Ordering::Relaxed) >= before + 5);
    }
}

/// Ends the publisher, also when the test fails.
struct Stop<'a>(&'a Publisher);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

/// The numbers that a session has received, in parts as they came.
#[derive(Default)]
struct Received {
    count: usize,
    /// Each with the way it came by.
    parts: Vec<(&'static str, Vec<u64>)>,
}

impl Received {
    fn add(&mut self, way: &'static str, numbers: Vec<u64>) {
        self.count += numbers.len();
        self.parts.push((way, numbers));
    }
}

/// Publishes rising numbers on `/a` until `listen` returns. Then checks that `listen` received them all, in order.
fn while_numbers_come(server: &TestServer, listen: impl FnOnce(&Publisher) -> Received) {
    let publisher = Publisher::default();
    std::thread::scope(|scope| {
        let _stop = Stop(&publisher);
        scope.spawn(|| publisher.run(server));
        let received = listen(&publisher);
        assert!(received.count > 0, "no message came");
        let mut expected = 0..;
        let is_whole =
            received.parts.iter().flat_map(|(_, numbers)| numbers).all(|number| Some(*number) == expected.next());
        assert!(is_whole, "messages are lost, doubled or out of order: {:?}", received.parts);
    });
}

/// The numbers in a frame.
fn numbers(frame: &Frame) -> Vec<u64> {
    match frame {
        Frame::Text(text) => ack::data(&serde_json::from_str::<Vec<Value>>(text).expect("messages")),
        _ => Vec::new(),
    }
}

/// The remaining messages on a WebSocket that no longer carries the session, and how they end.
fn rest(ws: &mut Ws) -> (&'static str, Vec<u64>) {
    let mut all_received = Vec::new();
    if ws.tcp.try_send(frame(Opcode::Ping, b"the end")).is_err() {
        return ("nothing, as the WebSocket is closed", all_received);
    }
    loop {
        match ws.next_frame() {
            Frame::Pong(_) => return ("the rest of the WebSocket", all_received),
            Frame::End => return ("the rest of a WebSocket that ends", all_received),
            frame => all_received.extend(numbers(&frame)),
        }
    }
}

#[test]
fn a_session_that_switches_in_the_middle_of_messages_receives_each_once_and_in_order() {
    for shards in [1, 2] {
        let server = TestServer::start(Settings { shards, ..settings() });
        let mut poller = server.poller();
        poller.subscribe("/a");
        while_numbers_come(&server, |_| {
            let mut received = Received::default();
            for _ in 0..SWITCHES {
                let mut ws = server.websocket();
                ws.id.clone_from(&poller.id);
                ws.start_connect();
                let wanted = received.count + 5;
                while received.count < wanted {
                    let frame = ws.next_frame();
                    assert_ne!(frame, Frame::End, "the WebSocket carries the session");
                    received.add("a WebSocket", numbers(&frame));
                }
                // Back to HTTP: messages already sent on the WebSocket are read first.
                let next = poller.poll(json!({ "advice": { "timeout": 0 } }));
                let (end, numbers) = rest(&mut ws);
                received.add(end, numbers);
                received.add("a request", ack::data(&next));
                received.add("a held request", ack::data(&poller.poll(json!({}))));
            }
            received
        });
    }
}

#[test]
fn an_acknowledging_session_switches_even_if_its_last_messages_are_lost() {
    for shards in [1, 2] {
        let server = TestServer::start(Settings { shards, trust_client_session: true, ..settings() });
        let mut poller = ack::poller(&server);
        while_numbers_come(&server, |publisher| {
            let (mut received, mut acknowledged) = (Received::default(), 0);
            let mut take = |messages: Vec<Value>| {
                received.add("a connect", ack::data(&messages));
                ack::batch(&messages)
            };
            for round in 0..SWITCHES {
                publisher.wait_for_more();
                let mut ws = server.websocket();
                ws.id.clone_from(&poller.id);
                acknowledged = take(ack::connect(&mut ws, acknowledged));
                acknowledged = take(ack::connect(&mut ws, acknowledged));
                // A batch that is never read: the connection breaks, or stays open.
                ack::start_connect(&mut ws, acknowledged, json!({ "timeout": 0 }));
                if round % 2 == 0 {
                    ws.tcp.reset();
                }
                acknowledged = take(ack::poll(&mut poller, acknowledged));
                acknowledged = take(ack::poll(&mut poller, acknowledged));
                let lost = json!({ "ext": { "ack": acknowledged }, "advice": { "timeout": 0 } });
                poller.start_poll(lost);
                if round % 2 == 0 {
                    let polls = poller.http.again();
                    std::mem::replace(&mut poller.polls, polls).tcp.reset();
                } else {
                    poller.end_poll();
                }
            }
            received
        });
    }
}

/// A client that requests its own grace at the handshake.
fn patient(server: &TestServer, max_interval: Value) -> (Poller, Value) {
    let mut http = server.http();
    let handshake = json!([{ "id": "h", "channel": "/meta/handshake", "version": "1.0",
        "supportedConnectionTypes": ["long-polling"], "advice": { "maxInterval": max_interval } }]);
    let mut reply = http.post(&handshake).messages().remove(0);
    let poller = Poller::of(reply["clientId"].as_str().expect("a session").to_owned(), http);
    (poller, reply["advice"]["maxInterval"].take())
}

/// Subscribes with a session that does not end before.
fn subscribe(sleeper: &mut Poller) {
    sleeper.subscribe("/a");
    sleeper.poll(json!({}));
}

#[test]
fn a_sleeping_laptop_retains_its_session_and_its_messages() {
    let server = TestServer::start(Settings { max_interval_ms: 300, client_interval_max_ms: 60_000, ..settings() });
    let (mut sleeper, granted_ms) = patient(&server, json!(50_000));
    assert_eq!(granted_ms, 50_000);
    subscribe(&mut sleeper);
    let (_, granted_ms) = patient(&server, json!(1e15));
    assert_eq!(granted_ms, 60_000, "not more than clients may ask for");
    let (mut hasty, granted_ms) = patient(&server, json!(1));
    assert_eq!(granted_ms, 300, "nor less than everybody has");
    let (_, granted_ms) = patient(&server, json!(-5));
    assert_eq!(granted_ms, Value::Null);
    server.http().handshake();
    // Longer than the others live.
    server.wait_for("encke_sessions_expired", 3);
    assert_eq!(hasty.poll(json!({}))[0]["error"], "402::session_unknown");
    (0..3).for_each(|number| client::publish(&server, "/a", number));
    server.wait_for("encke_publications", 3);
    assert_eq!(ack::data(&sleeper.poll(json!({}))), [0, 1, 2]);
}

#[test]
fn a_client_that_sleeps_beyond_the_limit_loses_its_session() {
    let server = TestServer::start(Settings { max_interval_ms: 300, client_interval_max_ms: 600, ..settings() });
    let (mut sleeper, granted_ms) = patient(&server, json!(i64::MAX));
    assert_eq!(granted_ms, 600);
    server.wait_for("encke_sessions_expired", 1);
    assert_eq!(sleeper.poll(json!({}))[0]["error"], "402::session_unknown");
}

#[test]
fn messages_for_a_sleeping_client_have_the_usual_limits() {
    for (slow_consumer, expected) in
        [(SlowConsumer::DropOldest, Some((10..20).collect::<Vec<u64>>())), (SlowConsumer::Disconnect, None)]
    {
        let rule = ChannelRule { pattern: "/a".into(), slow_consumer, ..ChannelRule::default() };
        let server = TestServer::start(Settings { outbox_messages_max: 10, channels: vec![rule], ..settings() });
        let (mut sleeper, _) = patient(&server, json!(600_000));
        subscribe(&mut sleeper);
        (0..20).for_each(|number| client::publish(&server, "/a", number));
        server.wait_for("encke_publications", 20);
        let messages = sleeper.poll(json!({}));
        match expected {
            Some(expected) => assert_eq!(ack::data(&publications(&messages)), expected),
            None => assert_eq!(messages[0]["error"], "402::session_unknown"),
        }
    }
}
