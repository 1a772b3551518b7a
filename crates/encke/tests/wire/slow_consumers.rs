//! Clients that read slowly or not at all, and publishers that never stop (rows 16 and 40 of `docs/contributing/bad-input.md`).

use std::io::{ErrorKind, Read};

use encke::{ChannelRule, Settings, SlowConsumer};
use serde_json::{Value, json};

use crate::common::{Frame, Tcp, TestServer, Ws, publications, settings, wait_until};

/// About 64 KB of data with a number.
fn big(number: u64) -> String {
    json!({"number": number, "text": "x".repeat(64_000)}).to_string()
}

fn number(message: &Value) -> u64 {
    message[0]["data"]["number"].as_u64().expect("a number")
}

/// A session that subscribes to a channel and whose kernel buffer takes only a few kilobytes.
fn slow(server: &TestServer, channel: &str) -> Ws {
    let mut ws = Ws::upgrade(Tcp::narrow(server.address()), server.address(), &[]);
    ws.handshake();
    ws.subscribe(channel);
    ws
}

fn rule(slow_consumer: SlowConsumer) -> Vec<ChannelRule> {
    let pattern = "/fire/**".into();
    vec![ChannelRule { pattern, slow_consumer, lazy: false, lazy_timeout_ms: 0, ..ChannelRule::default() }]
}

/// Publishes until a metric shows a full outbox. Returns the number of publications.
fn flood(server: &TestServer, channel: &str, metric: &str) -> u64 {
    let mut published = 0;
    wait_until(metric, || {
        for _ in 0..16 {
            if server.handle.publish(channel, &big(published)).is_ok() {
                published += 1;
            }
        }
        server.metric(metric) > 0
    });
    published
}

#[test]
fn a_client_that_never_reads_loses_its_session_and_nobody_else_anything() {
    let server = TestServer::start(Settings { outbox_bytes_max: 1024 * 1024, ..settings() });
    let mut neighbour = server.neighbour();
    let mut slow = slow(&server, "/fire/hose");
    let published = flood(&server, "/fire/hose", "encke_slow_consumers_disconnected");
    neighbour.lives(&server);
    server.wait_for_exactly("encke_websockets", 1);
    assert_eq!(server.metric("encke_sessions"), 1);
    // The messages in the kernel's buffer arrive in order and without a gap; then the connection ends.
    let mut expected = 0;
    while let Frame::Text(text) = slow.next_frame() {
        assert_eq!(number(&serde_json::from_str(&text).expect("JSON")), expected);
        expected += 1;
    }
    assert!(expected < published);
    // Its client's next message gets the error that requires a new handshake.
    let mut ws = server.websocket();
    ws.id = slow.id.clone();
    let reply = ws.call(json!({"id": "1", "channel": "/meta/connect"}));
    assert_eq!((&reply["error"], &reply["advice"]["reconnect"]), (&json!("402::session_unknown"), &json!("handshake")));
}

#[test]
fn with_drop_oldest_the_newest_messages_arrive() {
    let channels = rule(SlowConsumer::DropOldest);
    let server = TestServer::start(Settings { outbox_bytes_max: 1024 * 1024, channels, ..settings() });
    let mut slow = slow(&server, "/fire/hose");
    let published = flood(&server, "/fire/hose", "encke_slow_consumers_messages_dropped");
    let mut last = None;
    while last != Some(published - 1) {
        let next = number(&slow.next_json());
        assert!(last.is_none_or(|last| next > last), "in order, nothing twice");
        last = Some(next);
    }
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 0);
    slow.subscribe("/the/session/lives");
}

#[test]
fn with_keep_latest_each_channel_ends_with_its_latest_message() {
    let channels = rule(SlowConsumer::KeepLatest);
    let server = TestServer::start(Settings { outbox_bytes_max: 1024 * 1024, channels, ..settings() });
    let mut slow = slow(&server, "/fire/**");
    server.publish("/fire/other", &big(4_711));
    let published = flood(&server, "/fire/hose", "encke_slow_consumers_messages_dropped");
    let (mut last, mut other) = (None, None);
    while last != Some(published - 1) {
        let message = slow.next_json();
        let slot = if message[0]["channel"] == "/fire/other" { &mut other } else { &mut last };
        *slot = Some(number(&message));
    }
    assert_eq!(other, Some(4_711));
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 0);
}

/// Sessions sleep, and as many channels as each outbox may hold messages have one for them. Further ones supersede these.
#[test]
fn with_keep_latest_many_sleepers_wait_for_as_many_channels_as_their_outboxes_may_hold_messages() {
    const CHANNELS: usize = 1_500;
    let channels = rule(SlowConsumer::KeepLatest);
    let server = TestServer::start(Settings { outbox_messages_max: CHANNELS, channels, ..settings() });
    let mut neighbour = server.neighbour();
    let mut sleepers: Vec<_> = (0..20).map(|_| server.poller()).collect();
    sleepers.iter_mut().for_each(|sleeper| sleeper.subscribe("/fire/**"));
    for number in 0..3 * CHANNELS {
        let channel = format!("/fire/{}", number % CHANNELS);
        server.publish(&channel, &number.to_string());
    }
    server.wait_for("encke_publications", 3 * CHANNELS as u64);
    // A response under way counts until it has arrived: what comes meanwhile could be too much.
    server.wait_for_exactly("encke_arrivals", 0);
    neighbour.lives(&server);
    for sleeper in &mut sleepers {
        let mut latest = std::collections::BTreeMap::new();
        while latest.values().filter(|number| **number >= 2 * CHANNELS as u64).count() < CHANNELS {
            for message in publications(&sleeper.poll(json!({"advice": {"timeout": 0}}))) {
                let number = message["data"].as_u64().expect("a number");
                let before = latest.insert(message["channel"].to_string(), number);
                assert!(before.is_none_or(|before| before < number), "in order");
            }
        }
    }
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 0);
}

#[test]
fn many_slow_consumers_share_one_copy_of_their_messages() {
    let server = TestServer::start(Settings { outbox_bytes_max: 8 * 1024 * 1024, ..settings() });
    let mut neighbour = server.neighbour();
    let _slow: Vec<Ws> = (0..50).map(|_| slow(&server, "/fire/hose")).collect();
    for number in 0..100 {
        server.publish("/fire/hose", &big(number));
    }
    neighbour.lives(&server);
    let frames = server.metric("encke_frame_bytes");
    assert!(frames < 2 * 100 * 65_000, "{frames} bytes for 100 messages of 64 KB to 50 sessions");
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 0);
}

#[test]
fn a_slow_client_that_still_reads_gets_everything_in_order() {
    let server = TestServer::start(Settings { outbox_bytes_max: 64 * 1024 * 1024, ..settings() });
    let mut slow = slow(&server, "/fire/hose");
    for number in 0..300 {
        server.publish("/fire/hose", &big(number));
    }
    for expected in 0..300 {
        assert_eq!(number(&slow.next_json()), expected);
    }
}

/// A publisher at line rate: its subscribers get everything in order, and others are served meanwhile.
#[test]
fn a_publisher_that_never_stops_starves_nobody() {
    let server = TestServer::start(Settings { shards: 2, ..settings() });
    let mut neighbour = server.neighbour();
    let mut listener = server.session();
    listener.subscribe("/line/rate");
    let mut publisher = server.session();
    let writer = std::thread::spawn(move || {
        for batch in 0..100 {
            let messages: Vec<_> = (0..500)
                .map(|at| publisher.mine(json!({"id": "p", "channel": "/line/rate", "data": batch * 500 + at})))
                .collect();
            publisher.send_json(&json!(messages));
        }
        for _ in 0..100 {
            assert_eq!(publisher.next_json().as_array().map(Vec::len), Some(500));
        }
    });
    for expected in 0..50_000 {
        assert_eq!(listener.next_json()[0]["data"], expected);
        if expected % 10_000 == 0 {
            neighbour.lives(&server);
        }
    }
    writer.join().expect("every publication is answered");
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 0);
}

#[test]
fn socket_send_buffer_bytes_bounds_what_the_system_holds_for_a_client_that_does_not_read() {
    let server = TestServer::start(Settings { socket_send_buffer_bytes: 64 * 1024, ..settings() });
    let _slow = slow(&server, "/fire/hose");
    for number in 0..100 {
        server.publish("/fire/hose", &big(number));
    }
    server.wait_for("encke_publications", 100);
    let taken = server.metric("encke_deliveries");
    assert!(taken < 10, "{taken} messages of 64 KB");
}

/// A reset instead of an orderly close: the system frees the client's buffer.
#[test]
fn the_connection_of_an_ended_slow_consumer_is_reset() {
    let server = TestServer::start(Settings { outbox_bytes_max: 1024 * 1024, ..settings() });
    let mut slow = slow(&server, "/fire/hose");
    flood(&server, "/fire/hose", "encke_slow_consumers_disconnected");
    server.wait_for_exactly("encke_websockets", 0);
    let mut bytes = [0; 65_536];
    let end = std::iter::from_fn(|| Some(slow.tcp.stream.read(&mut bytes))).find(|read| !matches!(read, Ok(1..)));
    assert_eq!(end.and_then(Result::err).map(|error| error.kind()), Some(ErrorKind::ConnectionReset));
}

#[test]
fn a_client_that_never_reads_its_replies_is_ended() {
    let server = TestServer::start(Settings { outbox_bytes_max: 256 * 1024, ..settings() });
    let mut neighbour = server.neighbour();
    let mut ws = Ws::upgrade(Tcp::narrow(server.address()), server.address(), &[]);
    ws.handshake();
    let name = format!("/{}", "n".repeat(200));
    let ask = vec![ws.mine(json!({"id": "s", "channel": "/meta/subscribe", "subscription": name})); 500];
    let batch = crate::common::frame(websocket::Opcode::Text, json!(ask).to_string().as_bytes());
    ws.tcp.flood(&batch);
    assert_eq!(server.metric("encke_slow_consumers_disconnected"), 1);
    neighbour.lives(&server);
}
