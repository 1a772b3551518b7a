//! One contract over every transport: each test here runs in each cell of the table [`TRANSPORTS`] × [`WAYS`].

mod client;

use encke::{ChannelRule, Server, Settings};
use serde_json::{Value, json};

use crate::common::{Folder, TestServer, Way, settings, wait_until, with_way};
use crate::replay::client::{offer, reported};
use client::{Client, Transport};

/// The transports of sessions.
const TRANSPORTS: [Transport; 5] = [
    Transport::WebSocket,
    Transport::LongPolling,
    Transport::CallbackPolling,
    Transport::EventStream,
    Transport::JsonLines,
];

/// The ways to a server.
const WAYS: [Way; 4] = [
    Way { tls: false, http2: false },
    Way { tls: true, http2: false },
    Way { tls: false, http2: true },
    Way { tls: true, http2: true },
];

/// Says in which cell a test fails.
struct Cell(Transport, Way);

impl Drop for Cell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the cell {:?}, {:?}", self.0, self.1);
        }
    }
}

/// Runs a test in all cells.
fn in_each_cell(test: impl Fn(Transport)) {
    for (transport, way) in TRANSPORTS.into_iter().flat_map(|transport| WAYS.map(|way| (transport, way))) {
        let _cell = Cell(transport, way);
        with_way(way, || test(transport));
    }
}

/// A client that acknowledges, subscribed to `/a`.
fn subscriber(server: &TestServer, transport: Transport) -> Client {
    let mut client = Client::open(server, transport, json!({"ack": true}));
    client.subscribe("/a");
    client
}

fn publish(server: &TestServer, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| server.publish("/a", &number.to_string()));
}

/// Publishes numbers, which a client then gets, once and in order.
#[track_caller]
fn receives(client: &mut Client, server: &TestServer, numbers: std::ops::Range<u64>) {
    publish(server, numbers.clone());
    assert_eq!(client.data((numbers.end - numbers.start) as usize), expected(numbers));
}

/// A client that has the first five of ten messages and is away.
fn away(server: &TestServer, transport: Transport) -> Client {
    let mut client = subscriber(server, transport);
    receives(&mut client, server, 0..5);
    client.settle();
    client.break_off();
    publish(server, 5..10);
    server.wait_for("encke_publications", 10);
    client
}

fn expected(numbers: std::ops::Range<u64>) -> Vec<Value> {
    numbers.map(Value::from).collect()
}

#[test]
fn messages_arrive_once_and_in_order() {
    in_each_cell(|transport| {
        let server = TestServer::start(settings());
        let mut client = subscriber(&server, transport);
        for round in 0..4 {
            receives(&mut client, &server, round * 50..round * 50 + 50);
        }
        client.settle();
    });
}

#[test]
fn a_client_that_comes_back_has_missed_nothing() {
    in_each_cell(|transport| {
        let server = TestServer::start(settings());
        let mut client = subscriber(&server, transport);
        for round in 0..5 {
            receives(&mut client, &server, round * 20..round * 20 + 10);
            client.settle();
            client.break_off();
            publish(&server, round * 20 + 10..round * 20 + 20);
            client.come_back(&server);
            assert_eq!(client.data(10), expected(round * 20 + 10..round * 20 + 20));
        }
        client.settle();
    });
}

/// A client does not know what of a broken connection arrived: it reports what it has acknowledged.
#[test]
fn messages_that_nobody_acknowledged_are_sent_again_before_newer_ones() {
    in_each_cell(|transport| {
        let server = TestServer::start(settings());
        let mut client = subscriber(&server, transport);
        receives(&mut client, &server, 0..5);
        client.settle();
        let acknowledged = client.acknowledged;
        receives(&mut client, &server, 5..8);
        client.break_off();
        client.acknowledged = acknowledged;
        publish(&server, 8..10);
        client.come_back(&server);
        assert_eq!(client.data(5), expected(5..10));
        client.settle();
    });
}

#[test]
fn a_replay_begins_after_the_last_position_and_goes_on_with_what_is_new() {
    let rule = ChannelRule { pattern: "/h/**".into(), history_messages: 100, ..ChannelRule::default() };
    in_each_cell(|transport| {
        let server = TestServer::start(Settings { channels: vec![rule.clone()], ..settings() });
        (0..20).for_each(|number: u64| server.publish("/h/a", &number.to_string()));
        server.wait_for_exactly("encke_history_messages", 20);
        let mut first = Client::open(&server, transport, json!({"replay": offer()}));
        first.subscribe_from("/h/a", json!(-2));
        let received: Vec<_> = first.messages(20).iter().map(reported).collect();
        assert_eq!(received.iter().map(|one| one.data.clone()).collect::<Vec<_>>(), expected(0..20));
        // Another session goes on where this one has read to.
        let mut second = Client::open(&server, transport, json!({"replay": offer()}));
        second.subscribe_from("/h/a", json!(received[11].id));
        (20..25).for_each(|number: u64| server.publish("/h/a", &number.to_string()));
        let received: Vec<_> = second.messages(13).iter().map(|message| reported(message).data).collect();
        assert_eq!(received, expected(12..25));
    });
}

#[test]
fn a_client_that_reads_nothing_loses_its_session_and_nobody_else_anything() {
    in_each_cell(|transport| {
        let server = TestServer::start(Settings { outbox_bytes_max: 256 * 1024, ..settings() });
        let mut neighbour = server.neighbour();
        let mut client = Client::open(&server, transport, json!({})).narrow(&server);
        client.subscribe("/a");
        client.start();
        let big = |number: u64| json!([number, "x".repeat(64_000)]).to_string();
        let mut published = 0;
        wait_until("a full outbox", || {
            server.publish("/a", &big(published));
            published += 1;
            server.metric("encke_slow_consumers_disconnected") > 0
        });
        neighbour.lives(&server);
        client.break_off();
        client.connect_again(&server);
        let reply = client.connect();
        assert_eq!(reply["error"], "402::session_unknown", "{reply}");
        assert_eq!(reply["advice"]["reconnect"], "handshake");
        neighbour.lives(&server);
    });
}

#[test]
fn a_refused_message_leaves_the_session_as_it_was() {
    in_each_cell(|transport| {
        let server = TestServer::start(Settings { subscriptions_max: 2, ..settings() });
        let mut client = subscriber(&server, transport);
        client.subscribe("/b");
        let third = client.call(json!({"channel": "/meta/subscribe", "subscription": "/c"}));
        assert_eq!(third["successful"], false);
        assert_eq!(third["error"], "413::subscriptions_max");
        let nameless = client.call(json!({"channel": "a", "data": 1}));
        assert_eq!(nameless["successful"], false);
        receives(&mut client, &server, 0..3);
        client.settle();
    });
}

#[test]
fn every_character_arrives_as_it_was_sent() {
    let texts = [
        "plain",
        "é ü ß",
        "日本語",
        "🦀 👩‍👩‍👧",
        "\u{2028}\u{2029}",
        "\u{0}\u{1}\u{7f}",
        "\r\n\t",
        "\"\\/",
        "עִבְרִית",
        "\u{feff}\u{fffd}\u{10ffff}",
        "</script>",
        "data: x\n\nid: 7\n\n",
    ];
    in_each_cell(|transport| {
        let server = TestServer::start(settings());
        let mut client = subscriber(&server, transport);
        for text in texts {
            let data = json!({text: [text, {"text": text}]});
            assert_eq!(client.call(json!({"channel": "/a", "data": data}))["successful"], true);
            assert_eq!(client.data(1), [data]);
        }
        // As an application wrote it, with escapes that Rust's libraries would not write.
        server.publish("/a", r#"["\ud83e\udd80\u00e9\/\u2028", 0.10, 12345678901234567890123]"#);
        let message = client.messages(1).remove(0).to_string();
        assert!(message.contains("🦀é/\u{2028}"), "{message}");
    });
}

#[test]
fn sessions_go_on_after_a_restart() {
    in_each_cell(|transport| {
        let folder = Folder::new();
        let durable = || Settings { data: folder.name(), ..settings() };
        let server = TestServer::start(durable());
        let mut client = away(&server, transport);
        server.stop();
        let server = TestServer::start(durable());
        publish(&server, 10..15);
        client.come_back(&server);
        assert_eq!(client.data(10), expected(5..15));
        client.settle();
    });
}

/// The next server has the socket of the one before: no client is refused meanwhile.
#[test]
fn sessions_go_on_with_the_server_that_takes_over() {
    in_each_cell(|transport| {
        let folder = Folder::new();
        let durable = || Settings { data: folder.name(), ..settings() };
        let server = TestServer::start(durable());
        let (address, listener) = (server.address(), server.listener());
        let mut client = away(&server, transport);
        server.stop();
        let server = TestServer::of(Server::builder().settings(durable()).listener(listener));
        assert_eq!(server.address(), address);
        client.come_back(&server);
        publish(&server, 10..15);
        assert_eq!(client.data(10), expected(5..15));
        client.settle();
    });
}
