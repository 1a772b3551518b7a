//! The limits of what a client may do to a server with HTTP/2.

use std::time::Duration;

use encke::Settings;
use serde_json::json;

use super::{Client, run, server_metric, settings};
use crate::common::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, connect,
    field, frame,
};
use crate::common::tls::scheme;
use crate::common::{TestServer, wait_until};

const ENHANCE_YOUR_CALM: Option<u32> = Some(11);
const NO_ERROR: Option<u32> = Some(0);

#[test]
fn http2_streams_max_refuses_further_streams() {
    let server = TestServer::start(Settings { http2_streams_max: 2, ..settings() });
    let mut client = Frames::open(server.address(), &[]);
    // Bodies that do not end.
    for stream in [1, 3, 5] {
        client.request(stream, "POST", "/cometd", &[("content-length", "9")], 0);
    }
    let refused = client.next_of(RST_STREAM);
    assert_eq!((refused.stream, refused.payload), (5, vec![0, 0, 0, 7]), "REFUSED_STREAM");
    assert_eq!(server.metric("encke_http2_resets"), 1);
    client.send(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
    client.request(7, "GET", "/healthz", &[], END_STREAM);
    assert_eq!(client.next_of(HEADERS).stream, 7);
}

#[test]
fn a_body_that_does_not_end_is_refused_in_time_and_the_stream_ends() {
    let server = TestServer::start(Settings { request_timeout_ms: 300, ..settings() });
    let mut client = Frames::open(server.address(), &[]);
    client.request(1, "POST", "/cometd", &[("content-length", "9")], 0);
    // The index of 400 is 12; 408 has none.
    let head = client.next_of(HEADERS);
    assert_eq!((head.stream, head.payload[0] & 0x80), (1, 0));
    assert_eq!(client.next_of(RST_STREAM).payload, [0, 0, 0, 0], "NO_ERROR: the response is whole (RFC 9113 §8.1)");
    assert_eq!(server.metric("encke_timeouts"), 1);
}

#[test]
fn header_bytes_max_limits_a_list_of_headers() {
    let server = TestServer::start(settings());
    let mut client = Frames::open(server.address(), &[]);
    client.request(1, "GET", "/healthz", &[("x", &"y".repeat(15_000))], END_STREAM);
    assert_eq!(client.next_of(HEADERS).payload[0], 0x88, "200");
    // Fields that the table repeats are small on the wire.
    let large = [field("x", &"y".repeat(8_000)), field("x", &"y".repeat(8_000))].concat();
    let pseudo = [(":method", "GET"), (":path", "/healthz"), (":scheme", scheme()), (":authority", "localhost")];
    let block: Vec<u8> = pseudo.iter().flat_map(|(name, value)| field(name, value)).collect();
    client.send(&frame(HEADERS, END_STREAM, 3, &[block, large].concat()));
    client.send(&frame(CONTINUATION, END_HEADERS, 3, &field("x", &"y".repeat(1_000))));
    let head = client.next_of(HEADERS);
    assert_eq!((head.stream, head.payload[0]), (3, 0x48), "431 stands as a literal");
    client.request(5, "GET", "/healthz", &[], END_STREAM);
    assert_eq!(client.next_of(HEADERS).payload[0], 0x88, "200");
}

/// CVE-2023-44487, CVE-2024-27316, CVE-2019-9512, -9514, -9515, -9518: one client sends frames that cost it nothing.
#[test]
fn floods_end_their_connection_and_disturb_nobody() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let head: Vec<u8> = [(":method", "GET"), (":path", "/healthz"), (":scheme", scheme()), (":authority", "localhost")]
        .iter()
        .flat_map(|(name, value)| field(name, value))
        .collect();
    for (before, kind) in [SETTINGS, PING, WINDOW_UPDATE, DATA, 99].into_iter().enumerate() {
        let mut client = Frames::open(server.address(), &[]);
        let bytes = match kind {
            SETTINGS => frame(SETTINGS, 0, 0, &[]),
            PING => frame(PING, 0, 0, &[7; 8]),
            // One byte at a time.
            WINDOW_UPDATE => frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            DATA => {
                client.request(1, "POST", "/cometd", &[], 0);
                frame(DATA, 0, 1, &[])
            }
            kind => frame(kind, 0, 0, &[]),
        };
        client.flood(&bytes);
        neighbour.lives(&server);
        wait_until("it is counted", || {
            server.metric("encke_http2_floods") + server.metric("encke_http2_errors") > before as u64
        });
    }
    // Rapid reset.
    let mut client = Frames::open(server.address(), &[]);
    for stream in (1..4_001).step_by(2) {
        client.send(
            &[frame(HEADERS, END_HEADERS | END_STREAM, stream, &head), frame(RST_STREAM, 0, stream, &[0; 4])].concat(),
        );
    }
    assert_ne!(client.goes_away(), NO_ERROR);
    neighbour.lives(&server);
    // A list of headers without an end.
    let mut client = Frames::open(server.address(), &[]);
    client.send(&frame(HEADERS, 0, 1, &head));
    client.flood(&frame(CONTINUATION, 0, 1, &[]));
    neighbour.lives(&server);
    server.wait_for_exactly("encke_http2_connections", 0);
    assert_eq!(server.metric("encke_websockets"), 1);
}

#[test]
fn http2_control_frames_per_s_max_ends_the_connection() {
    let server = TestServer::start(Settings { http2_control_frames_per_s_max: 5, ..settings() });
    let mut client = Frames::open(server.address(), &[]);
    // All in one second, or half of them in the next one.
    client.send(&frame(PING, 0, 0, &[7; 8]).repeat(20));
    assert_eq!(client.goes_away(), ENHANCE_YOUR_CALM);
    server.wait_for("encke_http2_floods", 1);
}

#[test]
fn http2_resets_per_s_max_ends_the_connection() {
    let server = TestServer::start(Settings { http2_resets_per_s_max: 2, ..settings() });
    let mut client = Frames::open(server.address(), &[]);
    for stream in (1..20).step_by(2) {
        client.request(stream, "POST", "/cometd", &[], 0);
        client.send(&frame(RST_STREAM, 0, stream, &[0; 4]));
    }
    assert_eq!(client.goes_away(), ENHANCE_YOUR_CALM);
    server.wait_for("encke_http2_floods", 1);
}

/// Streams without a window keep their responses; the memory is that of the responses, and a time-out ends it.
#[test]
fn a_response_without_a_window_is_given_up() {
    let server = TestServer::start(Settings { response_timeout_ms: 300, ..settings() });
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let mut client = Frames::open(server.address(), &[0, 4, 0, 0, 0, 0]);
    for stream in (1..41).step_by(2) {
        client.request(stream, "GET", "/", &[], END_STREAM);
    }
    for _ in 0..20 {
        assert_eq!(client.next_of(RST_STREAM).payload, [0, 0, 0, 8], "CANCEL");
    }
    assert_eq!(server.metric("encke_timeouts"), 20);
    client.request(41, "HEAD", "/", &[], END_STREAM);
    assert_eq!(client.next_of(HEADERS).stream, 41, "the connection lives");
}

#[test]
fn an_idle_connection_and_one_inside_a_frame_end_in_time() {
    let server = TestServer::start(Settings { keep_alive_timeout_ms: 300, request_timeout_ms: 200, ..settings() });
    assert_eq!(Frames::open(server.address(), &[]).goes_away(), NO_ERROR);
    let mut client = Frames::open(server.address(), &[]);
    client.send(&frame(HEADERS, END_HEADERS, 1, &[0; 9])[..12]);
    assert_eq!(client.goes_away(), NO_ERROR);
    server.wait_for("encke_timeouts", 2);
    server.wait_for_exactly("encke_http2_connections", 0);
}

/// Each stream of events waits for its own window only.
#[test]
fn a_stream_of_events_that_nobody_reads_is_ended_and_holds_no_other() {
    let server =
        TestServer::start(Settings { outbox_bytes_max: 100_000, socket_send_buffer_bytes: 4_096, ..settings() });
    run(async {
        let stream = connect(server.address()).await.expect("a connection");
        // The connection has room for both.
        let handshake = h2::client::Builder::new().initial_connection_window_size(1 << 20).handshake(stream).await;
        let (sender, connection) = handshake.expect("a server of HTTP/2");
        tokio::spawn(async move { _ = connection.await });
        let client = Client(sender);
        let _unread = client.get("/stream/unread").await;
        let mut read = client.get("/stream/read").await.into_body();
        server.wait_for_exactly("encke_streams", 2);
        let (long, mut number) = (json!("x".repeat(10_000)).to_string(), 0);
        while server.metric("encke_slow_consumers_disconnected") == 0 {
            server.publish("/unread", &long);
            server.publish("/read", &number.to_string());
            let (wanted, mut text) = (format!("\"data\":{number}}}\n\n"), String::new());
            while !text.ends_with(&wanted) {
                let data = read.data().await.expect("more").expect("no error");
                read.flow_control().release_capacity(data.len()).expect("an open stream");
                text += str::from_utf8(&data).expect("text");
            }
            number += 1;
            assert!(number < 100, "64 KiB of window, as much of h2, the buffer of the kernel, and the outbox");
        }
        server.wait_for_exactly("encke_streams", 1);
        // A client that resets its stream has left.
        drop(read);
        while server_metric(&client, "encke_sessions").await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}
