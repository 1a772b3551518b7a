//! WebSocket framing (RFC 6455 §5, §7; rows 11 to 16 of `docs/contributing/bad-input.md`). The Autobahn suite tests the same
//! codec; the cases here concern the server around it.

use encke::Settings;
use serde_json::json;
use websocket::Opcode;

use crate::common::{Frame, Tcp, TestServer, Ws, close_frame, frame, raw_frame, settings, wait_until};

/// A frame with any length in the 64-bit form, and no payload.
fn announcing(length: u64) -> Vec<u8> {
    let mut bytes = vec![0x81, 0xff];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

#[test]
fn frames_that_violate_the_protocol_close_their_socket_with_a_code_and_a_reason() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let long = vec![b'a'; 126];
    let mut minimal = vec![0x81, 0xfe, 0, 5, 1, 2, 3, 4];
    minimal.extend_from_slice(b"abcde");
    let cases: Vec<(Vec<u8>, u16, &str)> = vec![
        (b"\x81\x02hi".to_vec(), 1002, "frame without a mask"),
        (raw_frame(0xc1, b"x"), 1002, "reserved bit set"),
        (raw_frame(0xa1, b"x"), 1002, "reserved bit set"),
        (raw_frame(0x91, b"x"), 1002, "reserved bit set"),
        (raw_frame(0x83, b"x"), 1002, "reserved opcode"),
        (raw_frame(0x8f, b"x"), 1002, "reserved opcode"),
        (raw_frame(0x09, b"x"), 1002, "fragmented control frame"),
        (raw_frame(0x89, &long), 1002, "control frame too long"),
        (raw_frame(0x80, b"x"), 1002, "continuation without a message"),
        ([raw_frame(0x01, b"x"), raw_frame(0x81, b"y")].concat(), 1002, "new message inside a message"),
        (minimal, 1002, "length not minimal"),
        (announcing(5), 1002, "length not minimal"),
        (announcing(1 << 63), 1002, "length out of range"),
        (announcing(u64::MAX), 1002, "length out of range"),
        (announcing((1 << 63) - 1), 1009, "message too big"),
        (announcing(1024 * 1024 + 1), 1009, "message too big"),
        (frame(Opcode::Close, b"x"), 1002, "close frame too short"),
        (close_frame(999, ""), 1002, "invalid close code"),
        (close_frame(1005, ""), 1002, "invalid close code"),
        (close_frame(1006, ""), 1002, "invalid close code"),
        (frame(Opcode::Close, b"\x03\xe8\xff"), 1007, "invalid UTF-8"),
        (frame(Opcode::Text, b"\xff"), 1007, "invalid UTF-8"),
        (frame(Opcode::Text, b"\xed\xa0\x80"), 1007, "invalid UTF-8"),
        ([raw_frame(0x01, b"\xc3"), raw_frame(0x80, b"\x28")].concat(), 1007, "invalid UTF-8"),
        ([raw_frame(0x01, b"\xf0\x9f"), raw_frame(0x80, b"\x98")].concat(), 1007, "invalid UTF-8"),
        (frame(Opcode::Binary, b"x"), 1003, "text messages only"),
    ];
    let counted = cases.len() as u64 - 1;
    for (bytes, code, reason) in cases {
        let mut ws = server.session();
        ws.send_raw(&bytes);
        assert_eq!(ws.closed(), (code, reason.to_owned()), "{bytes:?}");
        assert!(ws.ends());
    }
    // Binary is no violation of RFC 6455; the server only does not accept it.
    assert_eq!(server.metric("encke_websocket_errors"), counted);
    neighbour.lives(&server);
}

#[test]
fn a_message_cut_into_bytes_with_pings_between_them_is_whole() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    ws.subscribe("/big");
    let text = json!([ws.mine(json!({"id": "p", "channel": "/big", "data": "é".repeat(100_000)}))]).to_string();
    let mut bytes = Vec::new();
    let mut pings = 0;
    for (at, byte) in text.as_bytes().iter().enumerate() {
        let last = at + 1 == text.len();
        bytes.extend(raw_frame(if at == 0 { 0x01 } else { 0 } | if last { 0x80 } else { 0 }, &[*byte]));
        if at % 10_000 == 5 {
            bytes.extend(frame(Opcode::Ping, format!("ping {pings}").as_bytes()));
            pings += 1;
        }
    }
    ws.send_raw(bytes);
    for ping in 0..pings {
        assert_eq!(ws.next_frame(), Frame::Pong(format!("ping {ping}").into_bytes()));
    }
    assert_eq!(ws.next_json()[0]["data"].as_str().map(str::len), Some(200_000));
    assert_eq!(ws.next_json()[0]["successful"], true);
}

#[test]
fn a_million_empty_fragments_affect_only_their_sender() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    ws.send_raw(raw_frame(0x01, b"["));
    let empty = raw_frame(0x00, b"").repeat(10_000);
    for round in 0..100 {
        ws.send_raw(&empty);
        if round % 25 == 0 {
            neighbour.lives(&server);
        }
    }
    ws.send_raw(raw_frame(0x80, b"]"));
    assert_eq!(ws.next_json(), json!([{"successful": false, "error": "400::batch_empty"}]));
}

/// Row 16: pongs do not accumulate for a client that sends pings and does not read.
#[test]
fn a_flood_of_pings_whose_pongs_are_not_read_leaves_the_latest_pong() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    for with_session in [false, true] {
        let mut ws = Ws::upgrade(Tcp::narrow(server.address()), server.address(), &[]);
        if with_session {
            ws.handshake();
        }
        let pings = frame(Opcode::Ping, &[b'x'; 125]).repeat(1_000);
        let rounds = 100;
        (0..rounds).for_each(|_| ws.tcp.send(&pings));
        ws.send_raw(frame(Opcode::Ping, b"the last"));
        neighbour.lives(&server);
        // The server has read all pings when it has read what comes after them. It answers that with a text.
        let batches = server.metric("encke_batches");
        ws.send_json(&json!([{"channel": "/after", "data": 1}]));
        wait_until("the pings are read", || server.metric("encke_batches") > batches);
        let (mut pongs, mut next) = (0, ws.next_frame());
        while next != Frame::Pong(b"the last".to_vec()) {
            assert!(matches!(next, Frame::Pong(_) | Frame::Text(_)), "{next:?}");
            pongs += 1;
            next = ws.next_frame();
        }
        assert!(pongs < rounds * 1_000 / 10, "{pongs}");
    }
}

#[test]
fn a_silent_socket_is_closed() {
    let server =
        TestServer::start(Settings { handshake_timeout_ms: 1_000, websocket_idle_timeout_ms: 2_000, ..settings() });
    let mut without = server.websocket();
    let mut with = server.session();
    assert_eq!(without.closed(), (1008, "no session".into()));
    assert!(without.ends());
    assert_eq!(with.closed(), (1001, "idle".into()));
    assert!(with.ends());
    assert_eq!(server.metric("encke_timeouts"), 2);
    assert_eq!(server.metric("encke_sessions"), 1, "the session waits for another socket");
}

#[test]
fn pings_and_pongs_of_the_client_are_signs_of_life() {
    let server = TestServer::start(Settings { websocket_idle_timeout_ms: 2_000, ..settings() });
    let mut ws = server.session();
    for round in 0..8 {
        std::thread::sleep(std::time::Duration::from_millis(300));
        if round % 2 == 0 {
            ws.send_raw(frame(Opcode::Pong, b"unasked"));
        } else {
            ws.send_raw(frame(Opcode::Ping, b"alive"));
            assert_eq!(ws.next_frame(), Frame::Pong(b"alive".to_vec()));
        }
    }
    ws.subscribe("/still/here");
}

#[test]
fn a_close_is_answered_with_its_code_and_nothing_after_it_counts() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    let late = json!([ws.mine(json!({"channel": "/neighbour/late", "data": "after the end"}))]).to_string();
    let bytes = [
        close_frame(4321, "mine"),
        frame(Opcode::Text, late.as_bytes()),
        frame(Opcode::Ping, b"x"),
        b"\xff\xff\xff".to_vec(),
    ];
    ws.send_raw(bytes.concat());
    assert_eq!(ws.next_frame(), Frame::Close(4321, String::new()));
    assert!(ws.ends());
    neighbour.lives(&server);
    assert_eq!(server.metric("encke_websocket_errors"), 0);
}

#[test]
fn a_close_without_a_code_is_answered() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    ws.send_raw(frame(Opcode::Close, b""));
    assert_eq!(ws.next_frame(), Frame::Close(1000, String::new()));
    assert!(ws.ends());
}

/// RFC 6455 §5.5.1: after its close frame an endpoint sends nothing more, whatever the peer sends.
#[test]
fn nothing_follows_the_servers_close_frame() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    ws.subscribe("/own");
    let publish = json!([ws.mine(json!({"id": "p", "channel": "/own", "data": 1}))]).to_string();
    let bytes =
        [frame(Opcode::Binary, b"x"), frame(Opcode::Ping, b"y"), frame(Opcode::Text, publish.as_bytes())].concat();
    ws.send_raw(bytes);
    assert_eq!(ws.next_frame(), Frame::Close(1003, "text messages only".into()));
    assert!(ws.ends());
}

#[test]
fn a_client_that_never_closes_its_side_is_disconnected() {
    let server = TestServer::start(settings());
    let connections = server.metric("encke_connections");
    let mut ws = server.websocket();
    ws.send_raw(raw_frame(0x83, b""));
    assert_eq!(ws.closed().0, 1002);
    // The socket stays open on this side; the server keeps it only for a moment.
    server.wait_for_exactly("encke_connections", connections);
    server.wait_for_exactly("encke_websockets", 0);
}

/// The session outlives its socket, and messages published meanwhile wait for the next one (CometD 9 §2.7).
#[test]
fn a_reset_in_the_middle_of_a_frame_loses_the_socket_and_nothing_else() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    ws.subscribe("/news");
    let id = ws.id.clone();
    ws.send_raw(&frame(Opcode::Text, &[b'x'; 5_000])[..1_000]);
    let sockets = server.metric("encke_websockets");
    ws.tcp.reset();
    server.wait_for_exactly("encke_websockets", sockets - 1);
    server.publish("/news", "1");
    server.publish("/news", "2");
    let mut next = server.websocket();
    next.id = id;
    next.start_connect();
    assert_eq!(next.next_json(), json!([{"channel": "/news", "data": 1}]));
    assert_eq!(next.next_json(), json!([{"channel": "/news", "data": 2}]));
    neighbour.lives(&server);
}

#[test]
fn text_that_is_no_bayeux_gets_an_error_and_the_socket_stays() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    for (text, error) in [
        ("", "400::json_invalid"),
        ("hello", "400::json_invalid"),
        ("[]", "400::batch_empty"),
        ("7", "400::message_not_object"),
    ] {
        ws.send_text(text);
        assert_eq!(ws.next_json(), json!([{"successful": false, "error": error}]), "{text}");
    }
    ws.subscribe("/still/here");
    assert_eq!(server.metric("encke_batches_refused"), 4);
}

/// Each takes one turn, and what was read behind it waits for the next.
#[test]
fn handshakes_that_arrive_together_are_answered_in_order_and_so_is_what_follows() {
    const HANDSHAKES: usize = 200;
    let server = TestServer::start(settings());
    let mut ws = server.websocket();
    let handshake =
        |id: usize| json!([{"id": id.to_string(), "channel": "/meta/handshake", "version": "1.0"}]).to_string();
    let mut bytes: Vec<u8> = (0..HANDSHAKES).flat_map(|id| frame(Opcode::Text, handshake(id).as_bytes())).collect();
    bytes.extend(frame(Opcode::Text, br#"[{"id":"last","channel":"/meta/connect","clientId":"0"}]"#));
    ws.send_raw(bytes);
    let ids: Vec<_> = (0..=HANDSHAKES).map(|_| ws.next_json()[0]["id"].clone()).collect();
    assert_eq!(ids, (0..HANDSHAKES).map(|id| json!(id.to_string())).chain([json!("last")]).collect::<Vec<_>>());
    assert_eq!(server.metric("encke_handshakes"), HANDSHAKES as u64);
}
