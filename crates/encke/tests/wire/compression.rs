//! Compressed messages on WebSockets (RFC 7692; row 15 of `docs/contributing/bad-input.md`), and compressed responses (RFC 9110 §8.4).

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use encke::{ChannelRule, Settings, SlowConsumer};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use websocket::deflate::{self, Deflater};
use websocket::{Compression, Opcode};

use crate::ack;
use crate::common::{
    Folder, Frame, Poller, Response, Tcp, TestServer, Ws, frame, publications, raw_frame, settings, wait_until,
};

/// Settings with channels that compress.
fn compressing() -> Settings {
    let rule = |pattern: &str| ChannelRule { pattern: pattern.into(), compress: true, ..ChannelRule::default() };
    Settings { channels: vec![rule("/packed/**")], ..settings() }
}

/// About a kilobyte of data with a number.
fn data(number: u64) -> Value {
    json!({ "number": number, "names": vec!["a name of a field"; 50] })
}

/// The same, of which half a kilobyte cannot be compressed.
fn mixed(number: u64) -> Value {
    let mut random = fastrand::Rng::with_seed(number);
    let letters: String = std::iter::repeat_with(|| random.alphanumeric()).take(500).collect();
    json!({ "number": number, "letters": letters, "more": "x".repeat(500) })
}

fn numbers(messages: &[Value]) -> Vec<u64> {
    publications(messages).iter().filter_map(|message| message["data"]["number"].as_u64()).collect()
}

fn compressed(server: &TestServer) -> Ws {
    Ws::compressed(server.tcp(), server.address())
}

fn session(server: &TestServer) -> Ws {
    let mut ws = compressed(server);
    ws.handshake();
    ws
}

/// The payload of a compressed message.
fn packed(text: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    Deflater::default().block(text, &mut payload);
    payload.truncate(payload.len() - 4);
    payload
}

/// The first byte of a frame with a whole compressed text.
const TEXT: u8 = 0xc1;

#[test]
fn an_offer_is_accepted_if_a_rule_compresses_and_the_offer_is_valid() {
    let with_rule = TestServer::start(compressing());
    let without = TestServer::start(settings());
    let answer = |server: &TestServer, offer: &str| {
        let mut tcp = server.tcp();
        tcp.send(Ws::request(server.address(), &[("sec-websocket-extensions", offer)]));
        let response = tcp.response().expect("a response");
        assert_eq!(response.status, 101, "{offer}");
        Ws::opened(tcp).handshake();
        response.header("sec-websocket-extensions").map(str::to_owned)
    };
    let bits = format!("{}; server_max_window_bits=10", Compression::OFFER);
    for (offer, accepted) in [
        ("permessage-deflate", Some(Compression::OFFER)),
        ("permessage-deflate; client_max_window_bits", Some(Compression::OFFER)),
        ("x-webkit-deflate-frame, permessage-deflate; server_max_window_bits=10", Some(bits.as_str())),
        ("permessage-deflate; server_max_window_bits=16, permessage-deflate", Some(Compression::OFFER)),
        ("permessage-deflate; server_max_window_bits=16", None),
        ("permessage-deflate; client_no_context_takeover=1", None),
        ("permessage-deflate; what", None),
        (", ;=\"", None),
    ] {
        assert_eq!(answer(&with_rule, offer).as_deref(), accepted, "{offer}");
        assert_eq!(answer(&without, offer), None, "{offer}");
    }
}

#[test]
fn a_publication_is_compressed_once_for_all_that_take_it() {
    let server = TestServer::start(compressing());
    let mut all: Vec<Ws> = (0..10).map(|nth| if nth == 0 { server.session() } else { session(&server) }).collect();
    all.iter_mut().for_each(|ws| ws.subscribe("/packed/a"));
    all.iter_mut().for_each(|ws| ws.subscribe("/plain"));
    let read: Vec<usize> = all.iter().map(|ws| ws.read).collect();
    for number in 0..3 {
        server.publish("/packed/a", &data(number).to_string());
        server.publish("/packed/a", "\"short\"");
        server.publish("/plain", &data(number).to_string());
    }
    for ws in &mut all {
        let messages: Vec<Value> = (0..9).map(|_| ws.next_json()[0].take()).collect();
        let on = |channel: &str| -> Vec<&Value> {
            messages.iter().filter(|message| message["channel"] == channel).map(|message| &message["data"]).collect()
        };
        let short = json!("short");
        assert_eq!(on("/packed/a"), [&data(0), &short, &data(1), &short, &data(2), &short]);
        assert_eq!(on("/plain"), [&data(0), &data(1), &data(2)]);
    }
    server.wait_for_exactly("encke_messages_compressed", 3);
    let bytes: Vec<usize> = all.iter().zip(read).map(|(ws, read)| ws.read - read).collect();
    assert!(bytes[1..].iter().all(|compressed| *compressed < bytes[0] * 6 / 10), "{bytes:?}");
}

#[test]
fn batches_with_acknowledgements_are_made_of_the_same_compressed_messages() {
    let server = TestServer::start(compressing());
    let mut all: Vec<Ws> = (0..3)
        .map(|_| {
            let mut ws = compressed(&server);
            ws.send_json(&json!([{ "channel": "/meta/handshake", "version": "1.0", "id": "1", "ext": { "ack": true },
                "supportedConnectionTypes": ["websocket"] }]));
            ws.id = ws.next_json()[0]["clientId"].as_str().expect("a session").to_owned();
            ws.subscribe("/packed/a");
            ack::connect(&mut ws, 0);
            ws
        })
        .collect();
    (0..20).for_each(|number| server.publish("/packed/a", &data(number).to_string()));
    for ws in &mut all {
        let (read, messages) = (ws.read, ack::connect(ws, 0));
        assert_eq!(numbers(&messages), (0..20).collect::<Vec<_>>());
        assert!(ws.read - read < 10_000, "{}", ws.read - read);
    }
    server.wait_for_exactly("encke_messages_compressed", 20);
}

#[test]
fn compressed_messages_of_a_client_are_read_in_any_fragments() {
    let server = TestServer::start(compressing());
    let mut ws = session(&server);
    ws.subscribe("/a");
    for (number, pieces) in [(0, 1), (1, 2), (2, 7), (3, 100)] {
        let message = ws.mine(json!({ "id": "p", "channel": "/a", "data": data(number) }));
        let payload = packed(json!([message]).to_string().as_bytes());
        assert!(payload.len() < 300);
        let mut bytes = Vec::new();
        let size = payload.len().div_ceil(pieces);
        for (nth, piece) in payload.chunks(size).enumerate() {
            let first = if nth == 0 { 0x41 } else { 0 } | if (nth + 1) * size >= payload.len() { 0x80 } else { 0 };
            bytes.extend(frame(Opcode::Ping, b"between"));
            bytes.extend(raw_frame(first, piece));
        }
        ws.send_raw(bytes);
        let mut texts = Vec::new();
        while texts.len() < 2 {
            match ws.next_frame() {
                Frame::Text(text) => texts.push(text),
                Frame::Pong(payload) => assert_eq!(payload, b"between"),
                other => panic!("{other:?}"),
            }
        }
        assert!(texts[0].contains(&format!("\"number\":{number}")), "{texts:?}");
    }
    // Both kinds may follow each other, and a message may be as long as the limit.
    let message = ws.mine(json!({ "id": "p", "channel": "/b", "data": "x".repeat(1_000_000) }));
    ws.send_raw(raw_frame(TEXT, &packed(json!([message]).to_string().as_bytes())));
    assert_eq!(ws.next_json()[0]["successful"], true);
    ws.publish("/b", json!(1));
}

#[test]
fn frames_that_violate_the_extension_close_their_socket() {
    let server = TestServer::start(compressing());
    let mut neighbour = server.neighbour();
    let bomb = packed(&vec![b' '; 50_000_000]);
    let limit = packed(&vec![b' '; 1024 * 1024 + 1]);
    let latin = packed(b"[\"\xe9\"]");
    let half = &packed(data(1).to_string().as_bytes())[..50];
    let mut stored = Vec::new();
    deflate::stored(b"[]", &mut stored);
    let first = [raw_frame(0x41, &stored), raw_frame(0xc0, &[deflate::END])].concat();
    let cases: Vec<(Vec<u8>, u16, &str)> = vec![
        (raw_frame(TEXT, &bomb), 1009, "message too big"),
        (raw_frame(TEXT, &limit), 1009, "message too big"),
        (raw_frame(TEXT, b"\xff\xff\xff"), 1007, "invalid compressed data"),
        (raw_frame(TEXT, b""), 1007, "invalid compressed data"),
        (raw_frame(TEXT, half), 1007, "invalid compressed data"),
        (raw_frame(TEXT, &latin), 1007, "invalid UTF-8"),
        (raw_frame(0xc2, &packed(b"x")), 1003, "text messages only"),
        (first, 1002, "reserved bit set"),
        (raw_frame(0xc9, b"ping"), 1002, "reserved bit set"),
        (raw_frame(0xc8, b""), 1002, "reserved bit set"),
        (raw_frame(0xe1, &stored), 1002, "reserved bit set"),
    ];
    for (bytes, code, reason) in cases {
        let mut ws = session(&server);
        ws.send_raw(&bytes);
        assert_eq!(ws.closed(), (code, reason.to_owned()));
    }
    // Without an agreement the bit is reserved, as ever.
    let mut ws = server.session();
    ws.send_raw(raw_frame(TEXT, &packed(b"[]")));
    assert_eq!(ws.closed(), (1002, "reserved bit set".to_owned()));
    neighbour.lives(&server);
}

#[test]
fn many_large_messages_in_few_bytes_do_not_hold_up_others() {
    let server = TestServer::start(compressing());
    let mut neighbour = server.neighbour();
    let mut ws = session(&server);
    // Each is a kilobyte that becomes a megabyte of no JSON.
    let spaces = raw_frame(TEXT, &packed(&vec![b' '; 1_000_000]));
    ws.send_raw(spaces.repeat(40));
    neighbour.lives(&server);
    for _ in 0..40 {
        assert_eq!(ws.next_json()[0]["successful"], false);
    }
}

#[test]
fn a_slow_client_gets_whole_messages_in_order_and_the_newest() {
    let mut wanted = compressing();
    wanted.channels[0].slow_consumer = SlowConsumer::DropOldest;
    let server = TestServer::start(Settings { outbox_bytes_max: 256 * 1024, ..wanted });
    let mut ws = Ws::compressed(Tcp::narrow(server.address()), server.address());
    ws.handshake();
    ws.subscribe("/packed/a");
    let mut published = 0;
    while server.metric("encke_slow_consumers_messages_dropped") < 100 {
        (0..50).for_each(|nth| server.publish("/packed/a", &mixed(published + nth).to_string()));
        published += 50;
    }
    let mut last = None;
    while last != Some(published - 1) {
        let message = ws.next_json();
        let number = message[0]["data"]["number"].as_u64().expect("a number");
        assert_eq!(message[0]["data"], mixed(number));
        assert!(last.is_none_or(|last| number > last), "in order, nothing twice");
        last = Some(number);
    }
}

/// The connection breaks in the middle of compressed messages, and the session goes on over HTTP, and back.
#[test]
fn a_session_that_acknowledges_gets_each_message_once_over_breaks_and_switches() {
    for shards in [1, 2] {
        let server = TestServer::start(Settings { shards, trust_client_session: true, ..compressing() });
        let mut poller = ack::poller(&server);
        poller.subscribe("/packed/a");
        let (published, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let publisher = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let number = published.load(Ordering::Relaxed);
                    server.publish("/packed/a", &mixed(number).to_string());
                    published.store(number + 1, Ordering::Relaxed);
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            let (mut received, mut acknowledged) = (Vec::new(), 0);
            for _ in 0..10 {
                let before = published.load(Ordering::Relaxed);
                wait_until("more is published", || published.load(Ordering::Relaxed) >= before + 5);
                let mut ws = Ws::compressed(Tcp::narrow(server.address()), server.address());
                ws.id.clone_from(&poller.id);
                for _ in 0..5 {
                    let messages = ack::connect(&mut ws, acknowledged);
                    received.extend(numbers(&messages));
                    acknowledged = ack::batch(&messages);
                }
                ack::start_connect(&mut ws, acknowledged, json!({ "timeout": 0 }));
                ws.tcp.read_some();
                ws.tcp.reset();
                for _ in 0..2 {
                    let messages = ack::poll(&mut poller, acknowledged);
                    received.extend(numbers(&messages));
                    acknowledged = ack::batch(&messages);
                }
            }
            is_over.store(true, Ordering::Relaxed);
            publisher.join().expect("no panic");
            let published = published.load(Ordering::Relaxed);
            while received.last() != Some(&(published - 1)) {
                let messages = ack::poll(&mut poller, acknowledged);
                received.extend(numbers(&messages));
                acknowledged = ack::batch(&messages);
            }
            assert_eq!(received, (0..published).collect::<Vec<_>>());
        });
        server.wait_for("encke_messages_compressed", 1);
    }
}

/// Its second message is read before it moves, together with the first.
#[test]
fn a_compressed_websocket_moves_to_the_shard_of_its_session() {
    let server = TestServer::start(Settings { shards: 4, ..compressing() });
    // Connections go to the shards in turn. The second one of each session is the seventh behind the first: on another shard.
    let sessions: Vec<Ws> = (0..7).map(|_| session(&server)).collect();
    for mut first in sessions {
        first.subscribe("/packed/a");
        let mut ws = compressed(&server);
        ws.id.clone_from(&first.id);
        let connect = json!({ "id": "c", "channel": "/meta/connect", "connectionType": "websocket",
            "advice": { "timeout": 0 } });
        let publish = json!({ "id": "p", "channel": "/b", "data": data(0) });
        let both = [connect, publish]
            .map(|message| raw_frame(TEXT, &packed(json!([ws.mine(message)]).to_string().as_bytes())));
        ws.send_raw(both.concat());
        // Until the connect arrives the session belongs to the first WebSocket, which would get the message.
        for id in ["c", "p"] {
            let reply = ws.next_json();
            assert_eq!((&reply[0]["id"], &reply[0]["successful"]), (&json!(id), &json!(true)), "{reply}");
        }
        server.publish("/packed/a", &data(1).to_string());
        let read = ws.read;
        assert_eq!(ws.next_json()[0]["data"], data(1));
        assert!(ws.read - read < 500);
    }
}

/// The data of the next publication.
#[track_caller]
fn next_data(ws: &mut Ws) -> Value {
    publications(ws.next_json().as_array().expect("an array"))[0]["data"].take()
}

/// Reads a publication for each of these numbers. They come compressed.
#[track_caller]
fn read_compressed(ws: &mut Ws, wanted: std::ops::Range<u64>) {
    let (read, count) = (ws.read, (wanted.end - wanted.start) as usize);
    for number in wanted {
        assert_eq!(next_data(ws), data(number));
    }
    assert!(ws.read - read < count * 500, "{}", ws.read - read);
}

#[test]
fn messages_of_a_history_and_to_a_single_session_are_compressed_by_the_same_rule() {
    let mut wanted = compressing();
    wanted.channels[0].history_messages = 100;
    wanted.channels.push(ChannelRule { pattern: "/h/**".into(), history_messages: 100, ..ChannelRule::default() });
    let server = TestServer::start(Settings { shards: 2, ..wanted });
    for number in 0..3 {
        ["/packed/a", "/h/a"].iter().for_each(|channel| server.publish(channel, &data(number).to_string()));
    }
    server.wait_for_exactly("encke_history_messages", 6);
    let mut ws = compressed(&server);
    ws.send_json(&json!([{ "channel": "/meta/handshake", "version": "1.0", "id": "1", "ext": { "replay": { "positions": "ext" } },
        "supportedConnectionTypes": ["websocket"] }]));
    ws.id = ws.next_json()[0]["clientId"].as_str().expect("a session").to_owned();
    let subscribe = |ws: &mut Ws, channel: &str| {
        let ext = json!({ "replay": { channel: -2 } });
        ws.call(json!({ "id": "s", "channel": "/meta/subscribe", "subscription": channel, "ext": ext }));
    };
    ws.call(json!({ "id": "c", "channel": "/meta/connect", "connectionType": "websocket" }));
    subscribe(&mut ws, "/packed/a");
    read_compressed(&mut ws, 0..3);
    server.wait_for_exactly("encke_messages_compressed", 3);
    subscribe(&mut ws, "/h/a");
    (0..3).for_each(|number| assert_eq!(next_data(&mut ws), data(number)));
    for channel in ["/packed/mine", "/h/mine"] {
        assert!(server.handle.deliver(&ws.id, channel, &data(3).to_string()).expect("taken"));
    }
    (0..2).for_each(|_| assert_eq!(next_data(&mut ws), data(3)));
    // Of those of `/h`, whose rule does not compress, none.
    server.wait_for_exactly("encke_messages_compressed", 4);
}

#[test]
fn messages_that_wait_over_a_restart_are_compressed_by_the_same_rule() {
    let folder = Folder::new();
    let wanted = Settings { data: folder.name(), ..compressing() };
    let server = TestServer::start(wanted.clone());
    let mut ws = session(&server);
    ws.subscribe("/packed/a");
    let id = ws.id.clone();
    ws.tcp.reset();
    server.wait_for_exactly("encke_websockets", 0);
    (0..3).for_each(|number| server.publish("/packed/a", &data(number).to_string()));
    server.wait_for_queued([&id], 3);
    server.stop();
    let server = TestServer::start(wanted);
    let mut ws = compressed(&server);
    ws.id = id;
    ws.start_connect();
    read_compressed(&mut ws, 0..3);
}

/// The text of a response, after it is decompressed.
fn text_of(response: &Response) -> String {
    let mut text = String::new();
    match response.header("content-encoding") {
        Some("gzip") => GzDecoder::new(&response.body[..]).read_to_string(&mut text).expect("gzip"),
        None => (&response.body[..]).read_to_string(&mut text).expect("text"),
        other => panic!("{other:?}"),
    };
    text
}

/// The response to a connect of a client that accepts these codings.
fn poll(poller: &mut Poller, accepted: &str) -> Response {
    let body = poller.connect_message("c", json!({ "advice": { "timeout": 0 } })).to_string();
    poller.polls.send("POST", "/cometd", &[("accept-encoding", accepted)], body.as_bytes());
    poller.polls.receive()
}

#[test]
fn responses_with_messages_of_such_channels_are_gzip_for_clients_that_take_it() {
    for shards in [1, 2] {
        let server = TestServer::start(Settings { shards, ..compressing() });
        let mut poller = server.poller();
        ["/packed/a", "/plain"].iter().for_each(|channel| poller.subscribe(channel));
        // Long bodies are compressed beside the shard.
        for messages in [1, 100] {
            for (channel, accepted, coding, varies) in [
                ("/packed/a", "gzip, deflate, br, zstd", Some("gzip"), true),
                ("/packed/a", "br;q=1.0, gzip;q=0.5, *;q=0", Some("gzip"), true),
                ("/packed/a", "*", Some("gzip"), true),
                ("/packed/a", "gzip;q=0", None, true),
                ("/packed/a", "identity, gzip;q=0.5", None, true),
                ("/packed/a", "br", None, true),
                ("/packed/a", "", None, true),
                ("/plain", "gzip", None, false),
            ] {
                (0..messages).for_each(|number| server.publish(channel, &data(number).to_string()));
                server.wait_for_queued([&poller.id], messages as usize);
                let response = poll(&mut poller, accepted);
                let found = (response.header("content-encoding"), response.header("vary").is_some());
                assert_eq!(found, (coding, varies), "{channel} {accepted}");
                let all: Vec<Value> = serde_json::from_str(&text_of(&response)).expect("JSON");
                assert_eq!(numbers(&all), (0..messages).collect::<Vec<_>>(), "{channel} {accepted}");
                assert!(coding.is_none() || response.body.len() < 500 * messages as usize);
            }
        }
        // Short messages stay as they are, and so does a response without messages.
        server.publish("/packed/a", "1");
        server.wait_for_queued([&poller.id], 1);
        assert_eq!(poll(&mut poller, "gzip").header("content-encoding"), None);
        let response = poll(&mut poller, "gzip");
        assert_eq!((response.header("content-encoding"), response.header("vary")), (None, None));
    }
}

#[test]
fn a_script_with_messages_of_such_channels_is_gzip() {
    let server = TestServer::start(compressing());
    let mut poller = server.poller();
    poller.subscribe("/packed/a");
    server.publish("/packed/a", &data(1).to_string());
    server.wait_for_queued([&poller.id], 1);
    let message = json!([{ "id": "c", "channel": "/meta/connect", "clientId": poller.id,
        "connectionType": "callback-polling", "advice": { "timeout": 0 } }]);
    let text: String = message.to_string().bytes().map(|byte| format!("%{byte:02x}")).collect();
    let target = format!("/cometd?jsonp=cb&message={text}");
    let response = poller.http.request("GET", &target, &[("accept-encoding", "gzip")], b"");
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    let script = text_of(&response);
    assert!(script.starts_with("/**/cb([") && script.contains("a name of a field"), "{script}");
}

/// A client that acknowledges breaks off in compressed responses.
#[test]
fn messages_of_compressed_responses_that_did_not_arrive_come_again() {
    let server = TestServer::start(Settings { trust_client_session: true, ..compressing() });
    let mut poller = ack::poller(&server);
    poller.subscribe("/packed/a");
    let connect = |poller: &mut Poller, acknowledged: i64| {
        let fields = json!({ "ext": { "ack": acknowledged }, "advice": { "timeout": 0 } });
        let body = poller.connect_message("c", fields).to_string();
        poller.polls.send("POST", "/cometd", &[("accept-encoding", "gzip")], body.as_bytes());
    };
    let (mut received, mut acknowledged) = (Vec::new(), 0);
    for round in 0..10 {
        (0..100).for_each(|nth| server.publish("/packed/a", &mixed(round * 100 + nth).to_string()));
        connect(&mut poller, acknowledged);
        let broken = std::mem::replace(&mut poller.polls, poller.http.again());
        broken.tcp.reset();
        connect(&mut poller, acknowledged);
        let response = poller.polls.receive();
        let messages: Vec<Value> = serde_json::from_str(&text_of(&response)).expect("JSON");
        received.extend(numbers(&messages));
        acknowledged = ack::batch(&messages);
    }
    while received.last() != Some(&999) {
        let messages = ack::poll(&mut poller, acknowledged);
        received.extend(numbers(&messages));
        acknowledged = ack::batch(&messages);
    }
    assert_eq!(received, (0..1_000).collect::<Vec<_>>());
}
