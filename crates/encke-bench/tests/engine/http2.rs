//! WebSockets over HTTP/2, several on a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use encke::Settings;
use encke_bench::engine::{Clients, PlannedMessage};
use encke_bench::order::{ClientsSpec, Cuts, Recovery, Transport};
use encke_bench::problem::Problem;
use websocket::{Opcode, frame};

use crate::{arrived, open, publish, server, spec, start, turn_until};

fn streams(target: &str, streams: u32, clients: u32, rooms: u32) -> ClientsSpec {
    ClientsSpec { streams_per_connection: Some(streams), ..spec(target, Transport::Websocket, clients, rooms) }
}

/// A metric of a server without TLS.
fn metric(address: SocketAddr, name: &str) -> u64 {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("read");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
}

#[test]
fn sessions_share_connections_and_each_receives_its_messages_once_and_in_order() {
    for (per_connection, connections) in [(1, 11), (4, 3 + 1), (100, 2)] {
        let server = start(Settings::default());
        let mut clients = open(&streams(&format!("http://{}", server.address()), per_connection, 9, 3)).expect("open");
        let found = ["encke_http2_connections", "encke_http2_streams_total"].map(|name| metric(server.address(), name));
        assert_eq!(found, [connections, 11], "publishers share none with subscribers");
        clients.time_from(0, 1, 60_000_000);
        for round in 0..30 {
            for publisher in clients.publishers() {
                publish(&mut clients, publisher, &[round % 3, (round + 1) % 3]);
            }
            clients.turn(std::time::Duration::ZERO).expect("turned");
        }
        let faults = arrived(&mut clients, 0);
        assert!(faults.none(), "{faults:?}");
        assert_eq!((clients.counts().sent, clients.counts().received, clients.latencies().count()), (120, 360, 360));
        clients.disconnect();
        assert_eq!((clients.counts().connected, clients.counts().dropped, server.handle().sessions()), (0, 0, 0));
    }
}

#[test]
fn everything_arrives_over_tls_and_http2() {
    let server = start(Settings { dev_tls: true, ..Settings::default() });
    let mut clients = open(&streams(&format!("wss://{}", server.address()), 4, 6, 3)).expect("open");
    for data_bytes in [50, 5_000, 60_000] {
        for publisher in clients.publishers() {
            let planned_us = Clients::clock_us();
            let batch: Vec<_> = (0..12).map(|at| PlannedMessage { room: at % 3, planned_us }).collect();
            batch.chunks(4).for_each(|batch| clients.publish(publisher, batch, data_bytes).expect("published"));
        }
    }
    let faults = arrived(&mut clients, 0);
    assert!(faults.none(), "{faults:?}");
    assert_eq!(clients.counts().received, 3 * 2 * 12 * 2);
}

#[test]
fn more_bytes_arrive_than_all_windows_have_room_for() {
    let (_server, target) = server();
    let mut clients = open(&streams(&target, 3, 3, 1)).expect("open");
    let publisher = clients.publishers().start;
    // 9 MB to each, of which a stream's window has room for 6 MiB, and the connection's for 15 MiB of 27 MB. What is published has more than
    // the server's windows have room for, too.
    for _ in 0..15 {
        let batch = [PlannedMessage { room: 0, planned_us: Clients::clock_us() }];
        (0..10).for_each(|_| clients.publish(publisher, &batch, 60_000).expect("published"));
        assert!(arrived(&mut clients, 0).none());
    }
    assert!(clients.counts().received_bytes > 27_000_000);
}

#[test]
fn acknowledging_sessions_come_back_when_their_connections_are_cut() {
    for tls in [false, true] {
        let server = start(Settings { dev_tls: tls, ..Settings::default() });
        let target = format!("{}://{}", if tls { "https" } else { "http" }, server.address());
        let recovery = Recovery { ack: true, ..Recovery::default() };
        let spec = ClientsSpec { reconnect: true, recovery, ..streams(&target, 5, 30, 1) };
        let mut clients = open(&spec).expect("open");
        let publisher = clients.publishers().start;
        clients.cut();
        assert_eq!(clients.counts().connected, 0);
        turn_until(&mut clients, |clients| clients.counts().connected == 32);
        let cuts = Cuts { every_us: 100_000, offline_us: 20_000, seed: 7 };
        clients.begin_cuts(cuts, Clients::clock_us());
        while clients.breaks().cut < 40 {
            publish(&mut clients, publisher, &[0]);
            clients.turn(std::time::Duration::from_millis(5)).expect("turned");
        }
        clients.end_cuts();
        // Five sessions are lost with each connection.
        assert!(clients.breaks().resumed > clients.breaks().cut, "{:?}", clients.breaks());
        turn_until(&mut clients, |clients| clients.counts().connected == 32);
        let faults = arrived(&mut clients, 0);
        assert_eq!((faults.lost, faults.doubled, faults.reordered, faults.dropped_sessions), (0, 0, 0, 0));
    }
}

#[test]
fn a_server_that_stops_and_one_that_accepts_fewer_streams_are_reported() {
    let server = start(Settings { http2_streams_max: 3, ..Settings::default() });
    let target = format!("http://{}", server.address());
    let problem = open(&streams(&target, 4, 8, 1)).expect_err("too many");
    assert!(problem.to_string().contains("--streams-per-connection may be 3 at most"), "{problem}");
    let mut clients = open(&streams(&target, 3, 8, 1)).expect("open");
    server.handle().drain();
    turn_until(&mut clients, |clients| clients.counts().dropped == 10);
    assert!(clients.first_loss().is_some());
}

#[test]
fn a_server_without_http2_is_reported() {
    for tls in [false, true] {
        let server = start(Settings { http2: false, dev_tls: tls, ..Settings::default() });
        let target = format!("{}://{}", if tls { "https" } else { "http" }, server.address());
        let problem = open(&streams(&target, 1, 2, 1)).expect_err("no HTTP/2");
        assert!(matches!(problem, Problem::NotBayeux { .. }), "{problem:?}");
        let words = if tls { "offers no HTTP/2 over TLS" } else { "closed the connection before it spoke HTTP/2" };
        assert!(problem.to_string().contains(words), "{problem}");
    }
}

/// The bytes of a frame.
fn bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = &(payload.len() as u32).to_be_bytes()[1..];
    [length, &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The kind, flags, stream and payload of the next frame.
fn next(stream: &mut TcpStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let [a, b, c, kind, flags, d, e, f, g] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((kind, flags, u32::from_be_bytes([d, e, f, g]), payload))
}

/// A server that sends these bytes after the preface, and others when the request of a stream has come. Then it answers nothing, until it has
/// received `until`, a kind of frame.
fn scripted(first: Vec<u8>, then: Vec<u8>, until: u8) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        stream.read_exact(&mut [0; 24]).expect("a preface");
        stream.write_all(&first).expect("sent");
        while let Some((kind, flags, _, payload)) = next(&mut stream) {
            if kind == HEADERS {
                stream.write_all(&then).expect("sent");
            }
            let is_pong = kind != DATA || payload.first() == Some(&0x8A);
            if kind == until && is_pong && (kind != SETTINGS || flags == ACK) {
                let mut close = Vec::new();
                frame::close(1001, "as scripted", &mut close);
                let _ = stream.write_all(&bytes(DATA, 0, 1, &close));
            }
        }
    });
    address
}

/// A session that speaks bare lines is lost for this reason, possibly while it opens.
fn assert_lost(address: SocketAddr, reason: &str) {
    let spec = ClientsSpec { publishers: 0, transport: Transport::Raw, ..streams(&format!("ws://{address}"), 1, 1, 1) };
    match open(&spec) {
        Ok(mut clients) => {
            turn_until(&mut clients, |clients| clients.counts().dropped == 1);
            assert_eq!(clients.first_loss(), Some(reason));
        }
        Err(problem) => assert!(problem.to_string().contains(reason), "{problem}"),
    }
}

#[test]
fn frames_that_end_a_stream_or_a_connection_are_reported() {
    let settings = || bytes(SETTINGS, 0, 0, &CONNECT);
    let answered = || bytes(HEADERS, END_HEADERS, 1, &[0x88]);
    for (first, then, reason) in [
        (bytes(SETTINGS, 0, 0, &[]), vec![], "accepts no WebSockets over HTTP/2"),
        (
            settings(),
            bytes(HEADERS, END_HEADERS, 1, b"\x08\x03403"),
            "did not open a WebSocket over HTTP/2 but answered 403",
        ),
        (settings(), bytes(RST_STREAM, 0, 1, &[0, 0, 0, 7]), "reset the stream: REFUSED_STREAM"),
        (settings(), [answered(), bytes(DATA, END_STREAM, 1, &[])].concat(), "closed the stream"),
        (
            settings(),
            bytes(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\x0bslowly"),
            "ended the HTTP/2 connection: ENHANCE_YOUR_CALM slowly",
        ),
        (settings(), bytes(GOAWAY, 0, 0, &[0; 8]), "ended the HTTP/2 connection before the stream"),
        (settings(), bytes(DATA, 0, 3, b"x"), "sent a frame of stream 3, which is not open"),
        (settings(), bytes(WINDOW_UPDATE, 0, 1, &[0x7F, 0xFF, 0xFF, 0xFF]), "gave a window over 2147483647 bytes"),
        (settings(), vec![1, 0, 0, DATA, 0, 0, 0, 0, 1], "sent a frame of 65536 bytes; 16384 are allowed"),
        (
            settings(),
            [bytes(HEADERS, 0, 1, &[]), bytes(DATA, 0, 1, b"x")].concat(),
            "sent a frame within a list of fields",
        ),
        (bytes(PING, 0, 0, &[0; 8]), vec![], "does not speak HTTP/2"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), vec![], "does not speak HTTP/2: \"HTTP/1.1 400 Bad Request"),
    ] {
        assert_lost(scripted(first, then, u8::MAX), reason);
    }
}

#[test]
fn a_ping_and_settings_are_answered() {
    let ping = [bytes(SETTINGS, 0, 0, &CONNECT), bytes(PING, 0, 0, b"8 bytes!")].concat();
    for until in [PING, SETTINGS] {
        assert_lost(
            scripted(ping.clone(), bytes(HEADERS, END_HEADERS, 1, &[0x88]), until),
            "closed the WebSocket: 1001 as scripted",
        );
    }
}

#[test]
fn a_message_in_many_padded_frames_with_fields_in_parts_is_put_together() {
    let mut text = Vec::new();
    frame::message(Opcode::Text, b"+00000", &mut text);
    frame::message(Opcode::Ping, b"?", &mut text);
    // The status comes in a second frame of its list; further fields before it and after it mean nothing.
    let mut then = [bytes(HEADERS, 0, 1, &[0x20]), bytes(CONTINUATION, END_HEADERS, 1, &[0x88])].concat();
    then.extend(bytes(99, 0, 0, b"unknown"));
    text.iter().for_each(|byte| then.extend(bytes(DATA, PADDED, 1, &[2, *byte, 0, 0])));
    // It closes after the pong.
    let address = scripted(bytes(SETTINGS, 0, 0, &CONNECT), then, DATA);
    assert_lost(address, "closed the WebSocket: 1001 as scripted");
}

#[test]
fn publications_wait_for_the_windows_of_their_stream_and_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let target = format!("ws://{}", listener.local_addr().expect("address"));
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        stream.read_exact(&mut [0; 24]).expect("a preface");
        // 100 bytes on each stream.
        stream.write_all(&bytes(SETTINGS, 0, 0, &[&CONNECT[..], &[0, 4, 0, 0, 0, 100]].concat())).expect("sent");
        let (mut sizes, mut received) = (Vec::new(), 0);
        while received < 80_000 {
            let (kind, _, _, payload) = next(&mut stream).expect("open");
            match kind {
                HEADERS => {
                    let mut joined = Vec::new();
                    frame::message(Opcode::Text, b"+00000", &mut joined);
                    let answer = [bytes(HEADERS, END_HEADERS, 1, &[0x88]), bytes(DATA, 0, 1, &joined)].concat();
                    stream.write_all(&answer).expect("sent");
                }
                DATA => {
                    received += payload.len();
                    sizes.push(payload.len());
                    if received == 100 {
                        // A window of the stream that only new settings give, and more than the connection's.
                        let more = bytes(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]);
                        stream.write_all(&[more, bytes(WINDOW_UPDATE, 0, 1, &[0, 1, 0, 0])].concat()).expect("sent");
                    } else if received == 65_535 {
                        stream.write_all(&bytes(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0])).expect("sent");
                    }
                }
                _ => {}
            }
        }
        sizes
    });
    let spec = ClientsSpec { publishers: 0, transport: Transport::Raw, ..streams(&target, 1, 1, 1) };
    let mut clients = open(&spec).expect("open");
    let batch = [PlannedMessage { room: 0, planned_us: 0 }];
    (0..90).for_each(|_| clients.publish(0, &batch, 1000).expect("published"));
    turn_until(&mut clients, |_| served.is_finished());
    let sizes = served.join().expect("no panic");
    assert!(sizes.iter().all(|size| *size <= 16_384), "{sizes:?}");
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
/// WebSockets are accepted (RFC 8441 §3).
const CONNECT: [u8; 6] = [0, 8, 0, 0, 0, 1];
