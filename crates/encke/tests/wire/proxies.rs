//! Proxies in front of the server: what trusted ones say about their clients, and the PROXY protocol (rows 10 and 34 of
//! `docs/contributing/bad-input.md`).

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use encke::{ListenerSettings, RouteRequest, Server, Settings, TrustedProxy};
use serde_json::json;

use crate::common::tls::{Socket, insecure};
use crate::common::{Folder, Http, Tcp, TestServer, Ws};

const V1: &str = "PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n";
/// `PROXY`, TCP over IPv4, 192.0.2.7 to 192.0.2.1, and a field that says that the client speaks TLS.
const V2_TLS: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x14\xc0\0\x02\x07\xc0\0\x02\x01\x13\x88\0\x50\x20\0\x05\x01\0\0\0\0";
/// `LOCAL`, as for a health check.
const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

/// Settings without TLS, whatever the other tests speak, for a server that trusts these proxies.
fn trusting(proxies: &[&str]) -> Settings {
    let trusted_proxies = proxies.iter().map(|text| text.parse::<TrustedProxy>().expect("a proxy")).collect();
    Settings { trusted_proxies, dev_tls: false, ..crate::common::settings() }
}

/// A server whose route `/who` tells the address of the client.
fn server(settings: Settings) -> TestServer {
    let who = async |request: RouteRequest| request.peer().map_or("nobody".into(), |address| address.to_string());
    TestServer::of(Server::builder().settings(settings).route("/who", who))
}

/// The settings with a further listener that begins with PROXY heads.
fn with_proxy_protocol(settings: Settings, address: &str, tls: bool) -> Settings {
    let listener =
        ListenerSettings { address: address.into(), tls, proxy_protocol: true, ..ListenerSettings::default() };
    Settings { listeners: vec![listener], ..settings }
}

/// The address of the further listener.
fn further(server: &TestServer) -> SocketAddr {
    let socket = server.further_listeners().remove(0);
    TcpListener::from(socket).local_addr().expect("an address")
}

/// A connection to the further listener, after these bytes.
fn after(server: &TestServer, head: impl AsRef<[u8]>) -> Http {
    let address = further(server);
    let mut tcp = Tcp::of(Socket::Plain(TcpStream::connect(address).expect("a connection")));
    tcp.send(head);
    Http::on(tcp, address)
}

fn status(http: &mut Http, target: &str, headers: &[(&str, &str)]) -> u16 {
    http.request("GET", target, headers, b"").status
}

#[test]
fn a_trusted_proxy_names_the_client_of_each_request_and_a_stranger_names_nobody() {
    let (trusting, strict) = (server(trusting(&["127.0.0.0/8"])), server(trusting(&["10.0.0.0/8"])));
    for (fields, named) in [
        (&[("x-forwarded-for", "192.0.2.7")][..], "192.0.2.7"),
        (&[("x-forwarded-for", "1.1.1.1, 192.0.2.8")], "192.0.2.8"),
        (&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "[2001:db8::9]:5000, 127.0.0.9")], "2001:db8::9"),
        (&[("forwarded", "for=1.1.1.1, for=\"192.0.2.9:5000\";proto=https")], "192.0.2.9"),
        (&[("forwarded", "for=1.1.1.1"), ("x-forwarded-for", "192.0.2.7")], "192.0.2.7"),
        (&[("forwarded", "for=1.1.1.1, for=_hidden")], "127.0.0.1"),
    ] {
        assert_eq!(trusting.http().request("GET", "/who", fields, b"").text(), named, "{fields:?}");
        assert_eq!(strict.http().request("GET", "/who", fields, b"").text(), "127.0.0.1", "{fields:?}");
    }
}

#[test]
fn scheme_and_host_of_a_trusted_proxy_decide_about_cookies_and_origins() {
    let named = |settings: Settings| Settings { allowed_hosts: vec!["push.example".into()], ..settings };
    let (trusting, strict) = (server(named(trusting(&["127.0.0.1"]))), server(named(trusting(&[]))));
    let handshake =
        json!([{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}]);
    let post = |server: &TestServer, origin: &str, fields: &[(&str, &str)]| {
        let fields = [&[("origin", origin)], fields].concat();
        let response = server.http().request("POST", "/cometd", &fields, handshake.to_string().as_bytes());
        (response.status, response.header("set-cookie").is_some_and(|cookie| cookie.contains("; Secure")))
    };
    let https = [("x-forwarded-proto", "https"), ("x-forwarded-host", "push.example")];
    let forwarded = [("forwarded", "for=192.0.2.7;proto=https;host=push.example")];
    for fields in [&https[..], &forwarded] {
        assert_eq!(post(&trusting, "https://push.example", fields), (200, true), "{fields:?}");
        assert_eq!(post(&trusting, "http://push.example", fields).0, 403, "{fields:?}");
        assert_eq!(post(&trusting, "https://evil.example", fields).0, 403, "{fields:?}");
        // Nobody believes a stranger: the page is of another host.
        assert_eq!(post(&strict, "https://push.example", fields).0, 403, "{fields:?}");
        let own = format!("http://{}", strict.address());
        assert_eq!(post(&strict, &own, fields), (200, false), "{fields:?}");
    }
    let http = [("x-forwarded-proto", "http"), ("x-forwarded-host", "push.example")];
    assert_eq!(post(&trusting, "http://push.example", &http), (200, false));
    // All names are checked: a page whose name leads here cannot name another one.
    assert_eq!(post(&trusting, "https://push.example", &[https[0], ("x-forwarded-host", "evil.example")]).0, 421);
    let foreign = [https[0], https[1], ("host", "evil.example")];
    assert_eq!(post(&trusting, "https://push.example", &foreign).0, 421);
    assert_eq!(post(&trusting, "https://push.example", &[https[0], ("x-forwarded-host", "a b")]).0, 400);
}

#[test]
fn each_client_of_a_proxy_has_its_own_limits() {
    let limits = |settings: Settings| Settings { held_requests_per_address_max: 1, ..settings };
    let server = server(limits(trusting(&["127.0.0.1"])));
    let hold = |client: &str, timeout: &str| {
        let mut http = server.http();
        http.send("GET", &format!("/hold/a?timeout={timeout}"), &[("x-forwarded-for", client)], b"");
        http
    };
    let _first = hold("192.0.2.7", "60");
    server.wait_for_exactly("encke_in_process_subscriptions", 1);
    assert_eq!(hold("192.0.2.7", "0").receive().status, 429);
    assert_eq!(hold("198.51.100.1, 192.0.2.7", "0").receive().status, 429, "whatever it claims");
    assert_eq!(hold("192.0.2.8", "0").receive().status, 200);
}

#[test]
fn unconnected_sessions_behind_a_proxy_count_for_their_addresses() {
    let limits =
        Settings { unconnected_per_connection_max: 1, unconnected_per_address_max: 2, ..trusting(&["127.0.0.1"]) };
    let server = server(limits);
    let mut shared = server.http();
    for client in ["192.0.2.7", "192.0.2.8", "192.0.2.7", "192.0.2.8"] {
        let handshake =
            json!([{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}]);
        let fields = [("x-forwarded-for", client)];
        assert_eq!(shared.request("POST", "/cometd", &fields, handshake.to_string().as_bytes()).status, 200);
    }
    assert_eq!(server.metric("encke_sessions"), 4);
    assert_eq!(server.metric("encke_sessions_unused_ended"), 0);
}

#[test]
fn a_proxy_on_this_machine_is_no_permission() {
    let settings = with_proxy_protocol(trusting(&["127.0.0.1"]), "127.0.0.1:0", false);
    let server = server(Settings { api_loopback: true, ..settings });
    assert_eq!(
        (status(&mut server.http(), "/metrics", &[]), status(&mut server.http(), "/api/v1/info", &[])),
        (200, 200)
    );
    let loopback = [("x-forwarded-for", "127.0.0.1")];
    for target in ["/metrics", "/api/v1/info"] {
        let refused = if target == "/metrics" { 403 } else { 401 };
        assert_eq!(status(&mut server.http(), target, &loopback), refused, "{target}");
        for head in [&b"PROXY TCP4 127.0.0.1 127.0.0.1 5000 80\r\n"[..], b"PROXY UNKNOWN\r\n", V2_LOCAL] {
            assert_eq!(status(&mut after(&server, head), target, &[]), refused, "{target} {}", head.escape_ascii());
        }
    }
}

#[test]
fn a_proxy_head_names_the_client_on_every_transport() {
    let server = server(with_proxy_protocol(trusting(&["127.0.0.1"]), "127.0.0.1:0", false));
    assert_eq!(after(&server, V1).get("/who").text(), "192.0.2.7");
    assert_eq!(after(&server, V2_TLS).get("/who").text(), "192.0.2.7");
    assert_eq!(after(&server, "PROXY TCP6 2001:db8::7 ::1 5000 80\r\n").get("/who").text(), "2001:db8::7");
    // The client is no trusted proxy, whatever it says. Neither is one that the proxy does not know.
    let said = [("x-forwarded-for", "198.51.100.1")];
    for own in [&b"PROXY UNKNOWN\r\n"[..], V2_LOCAL] {
        let who = after(&server, own).request("GET", "/who", &said, b"").text();
        assert_eq!(who, "127.0.0.1", "{}", own.escape_ascii());
    }
    assert_eq!(after(&server, V1).request("GET", "/who", &said, b"").text(), "192.0.2.7");
    // One that is: the head is of the proxy behind it.
    let two = "PROXY TCP4 127.0.0.1 127.0.0.1 5000 80\r\n";
    assert_eq!(after(&server, two).request("GET", "/who", &said, b"").text(), "198.51.100.1");

    let mut ws = Ws::upgrade(after(&server, V1).tcp, further(&server), &[]);
    ws.handshake();
    let secure = |head: &[u8]| {
        let mut http = after(&server, head);
        let handshake =
            json!([{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}]);
        let response = http.post(&handshake);
        response.header("set-cookie").expect("a cookie").contains("; Secure")
    };
    assert_eq!((secure(V2_TLS), secure(V1.as_bytes())), (true, false));
    assert_eq!(server.metric("encke_proxy_heads_refused"), 0);
}

#[test]
fn a_proxy_head_may_arrive_in_pieces_and_stands_before_tls() {
    let settings = Settings { dev_tls: true, ..trusting(&["127.0.0.1"]) };
    let server = server(with_proxy_protocol(settings, "127.0.0.1:0", true));
    let address = further(&server);
    for head in [V1.as_bytes(), V2_TLS] {
        let mut tcp = TcpStream::connect(address).expect("a connection");
        tcp.set_nodelay(true).expect("no delay");
        for byte in head {
            tcp.write_all(&[*byte]).expect("the server reads");
        }
        let tls = Socket::tls(tcp, insecure(), "localhost").expect("a handshake");
        assert_eq!(Http::on(Tcp::of(tls), address).get("/who").text(), "192.0.2.7");
    }
}

#[test]
fn a_proxy_head_names_the_client_on_a_unix_socket() {
    let folder = Folder::new();
    let path = format!("{}/encke.sock", folder.name());
    let _server = server(with_proxy_protocol(trusting(&["unix:"]), &format!("unix:{path}"), false));
    for (head, named) in [(V1.as_bytes(), "192.0.2.7"), (V2_LOCAL, "nobody")] {
        let mut stream = UnixStream::connect(&path).expect("a connection");
        stream.write_all(head).expect("the server reads");
        stream
            .write_all(b"GET /who HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .expect("the server reads");
        let answer = std::io::read_to_string(stream).expect("text");
        assert!(answer.ends_with(&format!("\r\n\r\n{named}")), "{answer}");
    }
}

#[test]
fn a_connection_without_a_valid_proxy_head_is_closed_and_the_neighbour_does_not_notice() {
    let settings = Settings { request_timeout_ms: 500, ..trusting(&["127.0.0.1"]) };
    let server = server(with_proxy_protocol(settings, "127.0.0.1:0", false));
    let mut neighbour = server.neighbour();
    let long = [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x20\0".as_slice(), &[0; 8192]].concat();
    let late = "PROXY TCP4 192.0.2.7";
    let heads: [&[u8]; 6] =
        [b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", b"\x16\x03\x01", b"PROXY TCP4 a b 1 2\r\n", &long, late.as_bytes(), b""];
    for (head, refused) in heads.into_iter().zip(1..) {
        assert!(after(&server, head).tcp.ends(), "{}", head.escape_ascii());
        server.wait_for_exactly("encke_proxy_heads_refused", refused);
    }
    // A proxy that looks if the server is there says nothing.
    let mut silent = after(&server, "");
    silent.tcp.shutdown_write();
    assert!(silent.tcp.ends());
    assert_eq!(server.metric("encke_proxy_heads_refused"), 6);
    neighbour.lives(&server);
}

#[test]
fn only_a_trusted_proxy_may_send_a_proxy_head() {
    let server = server(with_proxy_protocol(trusting(&["10.0.0.0/8"]), "127.0.0.1:0", false));
    assert!(after(&server, V1).tcp.ends());
    server.wait_for_exactly("encke_proxy_heads_refused", 1);
    // Elsewhere a head is no HTTP.
    let mut tcp = server.tcp();
    tcp.send(V1);
    assert_eq!(tcp.response().map(|response| response.status), Some(400));
}

#[test]
fn connections_count_for_the_client_that_the_head_names() {
    let settings = Settings { address_connections_max: 1, ..trusting(&["127.0.0.1"]) };
    let server = server(with_proxy_protocol(settings, "127.0.0.1:0", false));
    let mut first = after(&server, V1);
    assert_eq!(first.get("/who").status, 200);
    assert_eq!(after(&server, V1).tcp.response().map(|response| response.status), Some(429));
    assert_eq!(server.metric("encke_address_connections_refused"), 1);
    assert_eq!(after(&server, "PROXY TCP4 192.0.2.8 192.0.2.1 5000 80\r\n").get("/who").status, 200);
}

#[test]
fn settings_of_proxies_that_cannot_work_are_refused_by_name() {
    let settings = with_proxy_protocol(trusting(&[]), "127.0.0.1:0", false);
    let error = Server::builder().settings(settings).start().expect_err("refused").to_string();
    assert!(error.starts_with("listeners[0].proxy_protocol = true: only with trusted_proxies"), "{error}");
}
