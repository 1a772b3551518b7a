//! Malformed requests: heads, framing of bodies, upgrades, paths, time-outs (RFC 9112, RFC 6455 §4.2; rows 3, 4, 5,
//! 8, 9 and 10 of `docs/contributing/bad-input.md`).

use encke::Settings;
use serde_json::json;

use crate::common::{Frame, TestServer, Ws, settings};

/// A handshake, as a body.
const HANDSHAKE: &str = r#"[{"id":"1","channel":"/meta/handshake","version":"1.0"}]"#;

/// Sends bytes on a new connection. Returns the status of the response, None if there is none.
fn status_of(server: &TestServer, bytes: impl AsRef<[u8]>) -> Option<u16> {
    let mut tcp = server.tcp();
    tcp.send(bytes);
    tcp.response().map(|response| response.status)
}

#[test]
fn heads_that_break_the_grammar_get_400() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let refused = server.metric("encke_requests_refused");
    let heads: [&[u8]; 10] = [
        b"GET /healthz HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\r\nx: a\rb\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\r\nx: a\r\n b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\r\nx y: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\r\nx : a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\r\nh\xc3\xa9: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: a\r\n: a\r\n\r\n",
        b"GET /health\0z HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nhost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
    ];
    for head in heads {
        let mut tcp = server.tcp();
        tcp.send(head);
        let status = tcp.response().map(|response| response.status);
        assert_eq!(status, Some(400), "{}", String::from_utf8_lossy(head));
        assert!(tcp.ends());
    }
    assert!(server.metric("encke_requests_refused") >= refused + heads.len() as u64);
    neighbour.lives(&server);
}

#[test]
fn a_header_value_that_is_not_ascii_is_no_harm() {
    let server = TestServer::start(settings());
    let head = b"GET /healthz HTTP/1.1\r\nhost: a\r\nx: \xff\xfe\xc3\xa9\r\nsec-websocket-protocol: \xff\r\n\r\n";
    assert_eq!(status_of(&server, head), Some(200));
}

#[test]
fn too_many_and_too_long_headers_get_431() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let refused = server.metric("encke_requests_refused");
    let many = "x: y\r\n".repeat(2_000);
    let long = format!("x: {}\r\n", "y".repeat(65_536));
    for headers in [many, long] {
        let mut tcp = server.tcp();
        // The server may answer and close before all of it is sent.
        let _cut = tcp.try_send(format!("GET /healthz HTTP/1.1\r\nhost: a\r\n{headers}\r\n"));
        assert_eq!(tcp.response().map(|response| response.status), Some(431));
    }
    assert_eq!(server.metric("encke_requests_refused"), refused + 2);
    neighbour.lives(&server);
}

#[test]
fn a_header_that_comes_byte_by_byte_is_cut_off_at_the_limit() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let mut tcp = server.tcp();
    tcp.send("GET /healthz HTTP/1.1\r\nhost: a\r\nx: ");
    let most = 10_000_000;
    let sent = (0..most).take_while(|_| tcp.try_send("y").is_ok()).count();
    assert!(sent < most, "the server read {sent} bytes of one header");
    neighbour.lives(&server);
}

#[test]
fn a_bad_websocket_handshake_is_refused_and_no_tunnel_is_left() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let good = String::from_utf8(Ws::request(server.address(), &[])).expect("ASCII");
    let key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let cases = [
        (good.replace("version: 13", "version: 8"), 426),
        (good.replace("version: 13", "version: 13\r\nsec-websocket-version: 8"), 426),
        (good.replace("sec-websocket-version: 13\r\n", ""), 426),
        (good.replace(key, ""), 400),
        (good.replace(key, "sec-websocket-key: short\r\n"), 400),
        (good.replace(key, &key.repeat(2)), 400),
        (good.replace("connection: Upgrade", "connection: keep-alive"), 400),
        (good.replace("\r\n\r\n", "\r\ncontent-length: 4\r\n\r\nabcd"), 400),
    ];
    for (request, status) in cases {
        let mut tcp = server.tcp();
        // Bytes that follow are read as a request: behind a proxy that believes the upgrade succeeded nothing else
        // may pass.
        tcp.send(format!("{request}GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"));
        let refusal = tcp.response().expect("a refusal");
        assert_eq!(refusal.status, status, "{request}");
        if status == 426 {
            assert_eq!(refusal.header("sec-websocket-version"), Some("13"));
            assert_eq!((refusal.header("upgrade"), refusal.header("connection")), (Some("websocket"), Some("upgrade")));
        }
        match refusal.header("connection") {
            Some("close") => assert!(tcp.ends()),
            _ => assert_eq!(tcp.response().expect("a response").text(), "ok\n"),
        }
    }
    let old = good.replace("HTTP/1.1", "HTTP/1.0");
    assert_eq!(status_of(&server, old), Some(400));
    neighbour.lives(&server);
}

#[test]
fn a_post_that_asks_for_a_websocket_is_a_post() {
    let server = TestServer::start(settings());
    let headers = [
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let response = server.http().request("POST", "/cometd", &headers, HANDSHAKE.as_bytes());
    assert_eq!((response.status, response.messages()[0]["successful"].as_bool()), (200, Some(true)));
}

#[test]
fn offered_extensions_are_not_accepted() {
    let server = TestServer::start(settings());
    let many = "permessage-deflate; client_max_window_bits=99; x, ".repeat(200);
    for (name, value) in [
        ("sec-websocket-extensions", "permessage-deflate; server_max_window_bits=16; server_max_window_bits=0"),
        ("sec-websocket-extensions", many.as_str()),
        ("sec-websocket-protocol", "bayeux, \u{e9}\u{e9}"),
        ("connection", "keep-alive, Upgrade, close, , ,"),
    ] {
        let mut tcp = server.tcp();
        tcp.send(Ws::request(server.address(), &[(name, value)]));
        let response = tcp.response().expect("a response");
        assert_eq!(response.status, 101, "{name}");
        assert_eq!(response.header("sec-websocket-extensions"), None);
        assert_eq!(response.header("sec-websocket-protocol"), None);
        Ws::opened(tcp).handshake();
    }
}

#[test]
fn frames_that_come_with_the_upgrade_request_are_read() {
    let server = TestServer::start(settings());
    let mut tcp = server.tcp();
    let mut bytes = Ws::request(server.address(), &[]);
    bytes.extend(crate::common::frame(websocket::Opcode::Text, HANDSHAKE.as_bytes()));
    tcp.send(bytes);
    assert_eq!(tcp.response().map(|response| response.status), Some(101));
    assert_eq!(Ws::opened(tcp).next_json()[0]["successful"], true);
}

#[test]
fn targets_in_absolute_form_and_other_methods_are_answered() {
    let server = TestServer::start(settings());
    let absolute = format!("http://{}/healthz", server.address());
    let mut http = server.http();
    assert_eq!(http.get(&absolute).status, 200);
    for method in ["PUT", "DELETE", "PATCH", "TRACE", "BREW"] {
        let response = http.request(method, "/cometd", &[], b"");
        assert_eq!((response.status, response.header("allow")), (405, Some("POST, GET, OPTIONS")), "{method}");
    }
    assert_eq!(http.request("POST", "/metrics", &[], b"").status, 405);
    assert_eq!(http.request("OPTIONS", "*", &[], b"").status, 404);
    let status = status_of(&server, "CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n");
    assert_eq!(status, Some(421), "no proxy here");
}

#[test]
fn a_body_whose_length_is_in_doubt_is_refused() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let post = |version: &str, headers: &str, body: &str| {
        format!("POST /cometd HTTP/{version}\r\nhost: {}\r\n{headers}\r\n\r\n{body}", server.address())
    };
    for request in [
        post("1.1", "content-length: 2\r\ncontent-length: 3", "[]"),
        post("1.1", "content-length: 2, 3", "[]"),
        post("1.1", "content-length: +2", "[]"),
        post("1.1", "content-length: -2", "[]"),
        post("1.1", "content-length: 2a", "[]"),
        post("1.1", "content-length: 18446744073709551616", "[]"),
        post("1.1", "transfer-encoding: chunked, identity", "0\r\n\r\n"),
        post("1.1", "transfer-encoding: xchunked", "0\r\n\r\n"),
        post("1.1", "transfer-encoding: chunked", "fffffffffffffffff\r\n[]\r\n0\r\n\r\n"),
        post("1.1", "transfer-encoding: chunked", "-2\r\n[]\r\n0\r\n\r\n"),
        post("1.1", "transfer-encoding: chunked", "2\r\n[]xx0\r\n\r\n"),
        post("1.1", "transfer-encoding: chunked", &format!("2;{}\r\n[]\r\n0\r\n\r\n", "x".repeat(100_000))),
        post("1.1", "transfer-encoding: chunked", &format!("2\r\n[]\r\n0\r\n{}\r\n", "x: y\r\n".repeat(20_000))),
        post("1.0", "transfer-encoding: chunked", "2\r\n[]\r\n0\r\n\r\n"),
    ] {
        let mut tcp = server.tcp();
        let _cut = tcp.try_send(&request);
        let status = tcp.response().map(|response| response.status);
        assert!(matches!(status, Some(400 | 431)), "{status:?} to {}", &request[..request.len().min(200)]);
        assert!(tcp.ends());
    }
    neighbour.lives(&server);
}

/// RFC 9112 §6.1: an unsupported coding gets 501. A body whose last coding is not `chunked` has no end and gets 400,
/// as above.
#[test]
fn bodies_with_other_transfer_codings_than_chunked_get_501() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    for codings in [
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: identity, chunked",
        "transfer-encoding: gzip\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
    ] {
        for target in ["/cometd", "/healthz"] {
            let mut tcp = server.tcp();
            let head = format!("POST {target} HTTP/1.1\r\nhost: {}\r\n{codings}\r\n\r\n", server.address());
            tcp.send(format!("{head}2\r\n[]\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"));
            let response = tcp.response().expect("a response");
            assert_eq!((response.status, response.header("connection")), (501, Some("close")), "{codings}");
            assert!(tcp.ends());
        }
    }
    neighbour.lives(&server);
}

/// Row 31: refused by its declared length, before a byte of it is read.
#[test]
fn a_body_with_too_large_a_content_length_gets_413_at_once() {
    let server = TestServer::start(Settings { message_bytes_max: 2_000, ..settings() });
    let mut neighbour = server.neighbour();
    for (expect, length, status) in [
        ("expect: 100-continue\r\n", "2001", 413),
        ("", "2001", 413),
        ("", "9223372036854775808", 413),
        ("", "18446744073709551613", 413),
        // hyper reserves these two numbers, and refuses them by itself.
        ("", "18446744073709551614", 431),
        ("", "18446744073709551615", 431),
    ] {
        let mut tcp = server.tcp();
        let host = server.address();
        tcp.send(format!("POST /cometd HTTP/1.1\r\nhost: {host}\r\n{expect}content-length: {length}\r\n\r\n"));
        // The final response comes first, with no 100 before it.
        let response = tcp.response().expect("a response");
        assert_eq!((response.status, response.header("connection")), (status, Some("close")), "{expect}{length}");
        assert!(tcp.ends());
    }
    let mut tcp = server.tcp();
    let (host, length) = (server.address(), HANDSHAKE.len());
    let expect = "expect: 100-continue";
    tcp.send(format!("POST /cometd HTTP/1.1\r\nhost: {host}\r\n{expect}\r\ncontent-length: {length}\r\n\r\n"));
    assert_eq!(tcp.response().map(|response| response.status), Some(100), "what fits is asked for");
    tcp.send(HANDSHAKE);
    assert_eq!(tcp.response().expect("a response").messages()[0]["successful"], true);
    neighbour.lives(&server);
}

/// RFC 9112 §6.3: such a request ought to be handled as an error. Nothing behind its head is a request.
#[test]
fn a_length_beside_chunks_gets_400() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let (length, chunks) = ("Content-Length: 4\r\n", "transfer-Encoding: chunked\r\n");
    let body = format!("{:x}\r\n{HANDSHAKE}\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: a\r\n\r\n", HANDSHAKE.len());
    for fields in [format!("{length}{chunks}"), format!("{chunks}a: b\r\n{length}")] {
        for target in ["/cometd", "/healthz"] {
            let mut tcp = server.tcp();
            // Also as a later request of its connection.
            tcp.send(format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", server.address()));
            assert_eq!(tcp.response().map(|response| response.status), Some(200));
            let head = format!("POST {target} HTTP/1.1\r\nhost: {}\r\n", server.address());
            let (begin, end) = fields.split_at(9);
            tcp.send(format!("{head}{begin}"));
            tcp.send(format!("{end}\r\n{body}"));
            let response = tcp.response().expect("a response");
            assert_eq!((response.status, response.header("connection")), (400, Some("close")), "{fields}");
            assert!(tcp.ends());
        }
    }
    neighbour.lives(&server);
}

#[test]
fn valid_chunks_and_trailers_are_accepted() {
    let server = TestServer::start(settings());
    let mut tcp = server.tcp();
    let (one, two) = HANDSHAKE.split_at(9);
    tcp.send(format!(
        "POST /cometd HTTP/1.1\r\nhost: {}\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n\
         {:x}\r\n{one}\r\n{:x};ext=1\r\n{two}\r\n0\r\nx: y\r\n\r\nGET /healthz HTTP/1.1\r\nhost: a\r\n\r\n",
        server.address(),
        one.len(),
        two.len()
    ));
    assert_eq!(tcp.response().expect("a response").messages()[0]["successful"], true);
    assert_eq!(tcp.response().expect("a response").text(), "ok\n");
}

#[test]
fn bodies_that_are_not_plain_utf_8_are_refused() {
    let server = TestServer::start(settings());
    let json = ("content-type", "application/json");
    for (headers, body, status) in [
        (&[("content-type", "application/json;charset=utf-16")][..], HANDSHAKE.as_bytes(), 415),
        (&[("content-type", "application/json; charset=\"iso-8859-1\"")], HANDSHAKE.as_bytes(), 415),
        (&[json, ("content-encoding", "gzip")], b"\x1f\x8b\x08\x00", 415),
        (&[json, ("content-encoding", "deflate, br")], b"x", 415),
        (&[json], b"[{\"channel\":\"\xff\"}]", 400),
        (&[json], b"\xff\xfe[\0]\0", 400),
        (&[json], b"", 400),
    ] {
        let mut http = server.http();
        let response = http.request("POST", "/cometd", headers, body);
        assert_eq!(response.status, status, "{headers:?}");
        assert!(response.body.len() < 100, "short and neutral");
        // If the body was not read, the response announces the close; otherwise the connection stays open.
        match response.header("connection") {
            Some(connection) => assert!(connection == "close" && http.tcp.ends()),
            None => assert_eq!(http.post_raw(HANDSHAKE).status, 200),
        }
    }
}

#[test]
fn a_refusal_before_the_body_closes_the_connection() {
    let server = TestServer::start(settings());
    let foreign = ("origin", "http://evil.example");
    for (method, path, headers, status) in [
        ("POST", "/cometd", &[foreign][..], 403),
        ("PUT", "/cometd", &[], 405),
        ("POST", "/metrics", &[], 405),
        ("POST", "/nothing", &[], 404),
    ] {
        let mut http = server.http();
        let response = http.request(method, path, headers, HANDSHAKE.as_bytes());
        assert_eq!((response.status, response.header("connection")), (status, Some("close")), "{method} {path}");
        assert!(http.tcp.ends());
    }
}

/// Row 8: the time-out covers the whole head, not each byte.
#[test]
fn a_head_that_trickles_in_is_given_up() {
    let server = TestServer::start(Settings { request_timeout_ms: 300, ..settings() });
    let mut neighbour = server.neighbour();
    let mut tcp = server.tcp();
    tcp.send("GET /hea");
    for _ in 0..400 {
        std::thread::sleep(std::time::Duration::from_millis(20));
        if tcp.try_send("l").is_err() {
            break;
        }
    }
    assert!(tcp.try_send("l").is_err(), "the connection is closed");
    server.wait_for("encke_timeouts", 1);
    neighbour.lives(&server);
}

#[test]
fn a_body_that_does_not_arrive_gets_408() {
    let server = TestServer::start(Settings { request_timeout_ms: 300, ..settings() });
    let mut neighbour = server.neighbour();
    let mut tcp = server.tcp();
    tcp.send(format!("POST /cometd HTTP/1.1\r\nhost: {}\r\ncontent-length: 100\r\n\r\n[{{", server.address()));
    assert_eq!(tcp.response().map(|response| response.status), Some(408));
    assert!(tcp.ends());
    assert_eq!(server.metric("encke_timeouts"), 1);
    neighbour.lives(&server);
}

#[test]
fn an_idle_connection_is_closed_and_a_held_connect_is_not_idle() {
    let server = TestServer::start(Settings {
        keep_alive_timeout_ms: 500,
        request_timeout_ms: 500,
        timeout_ms: 1_000,
        ..settings()
    });
    let mut poller = server.poller();
    poller.start_poll(json!({}));
    let mut parked = server.tcp();
    assert!(parked.ends(), "parked without a word");
    let mut stored = server.http();
    assert_eq!(stored.get("/healthz").status, 200);
    assert!(stored.tcp.ends(), "parked after a request");
    assert_eq!(poller.end_poll()[0]["successful"], true);
    assert!(poller.polls.tcp.ends(), "parked after a connect that was held longer than the timeout");
    assert_eq!(server.metric("encke_timeouts"), 4, "the connection of the handshake, too");
}

/// Row 9: paths are compared as they arrive; no spelling of one reaches another.
#[test]
fn tricks_with_paths_find_nothing() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    for path in [
        "//cometd",
        "/%63ometd",
        "/cometd;jsessionid=1",
        "/cometd%00",
        "/cometd%2f",
        "/COMETD",
        "/./cometd",
        "/x/../cometd",
        "/..%2f..%2fetc/passwd",
        "/../../etc/passwd",
        "/metrics/",
        "/metrics%20",
    ] {
        assert_eq!(server.http().request("POST", path, &[], HANDSHAKE.as_bytes()).status, 404, "{path}");
    }
    let mut http = server.http();
    for path in ["/cometd/../metrics", "/cometd/%2e%2e/metrics", "/cometd/%00"] {
        let response = http.get(path);
        assert_eq!((response.status, response.text().as_str()), (400, "unknown Bayeux transport\n"), "{path}");
    }
    neighbour.lives(&server);
}

/// Row 10: the server ignores what a client states about proxies, except that their presence denies access to the
/// metrics.
#[test]
fn forwarded_headers_only_show_that_there_is_a_proxy() {
    let server = TestServer::start(settings());
    let list = "10.0.0.1, ".repeat(1_000);
    let headers = [("x-forwarded-for", list.as_str()), ("forwarded", "for=8.8.8.8;host=evil.example;proto=https")];
    let response = server.http().request("POST", "/cometd", &headers, HANDSHAKE.as_bytes());
    assert_eq!(response.status, 200);
    assert_eq!(server.http().request("GET", "/metrics", &headers, b"").status, 403);
}

#[test]
fn every_response_has_nosniff() {
    let server = TestServer::start(settings());
    let mut http = server.http();
    for path in ["/healthz", "/readyz", "/metrics", "/nothing", "/cometd"] {
        assert_eq!(http.get(path).header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    let response = http.post_raw(HANDSHAKE);
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
}

#[test]
fn a_client_that_disconnects_during_a_request_leaves_nothing_behind() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let connections = server.metric("encke_connections");
    for cut in ["POST /com", "POST /cometd HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n[{"] {
        let mut ended = server.tcp();
        ended.send(cut);
        ended.shutdown_write();
        let mut reset = server.tcp();
        reset.send(cut);
        reset.reset();
        assert!(ended.ends());
    }
    // The scrape's own connection is included, both times.
    server.wait_for_exactly("encke_connections", connections);
    neighbour.lives(&server);
}

#[test]
fn a_second_upgrade_on_a_websocket_is_treated_as_frames() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    ws.send_raw(Ws::request(server.address(), &[]));
    let (code, _) = ws.closed();
    assert_eq!(code, 1002);
    assert_eq!(ws.next_frame(), Frame::End);
}
