//! TLS: its handshake, large and many messages in both directions, certificates and their change, tickets.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use encke::{Server, Settings, TlsPair};
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore};
use serde_json::{Value, json};

use crate::common::tls::{Socket, connect, insecure, insecure_config};
use crate::common::{Folder, Frame, Http, Tcp, TestServer, Ws, wait_until};

/// Settings without TLS, whatever the other tests speak.
pub fn settings() -> Settings {
    Settings { dev_tls: false, ..crate::common::settings() }
}

pub fn with_tls() -> Settings {
    Settings { dev_tls: true, ..settings() }
}

/// A client with TLS, for requests.
fn http(server: &TestServer) -> Http {
    Http::on(Tcp::of(connect(server.address(), insecure(), "localhost").expect("a handshake")), server.address())
}

/// A WebSocket with a session over TLS.
pub fn session(server: &TestServer) -> Ws {
    let tcp = Tcp::of(connect(server.address(), insecure(), "localhost").expect("a handshake"));
    let mut ws = Ws::upgrade(tcp, server.address(), &[]);
    ws.handshake();
    ws
}

/// A metric, by a client with TLS.
pub fn metric(server: &TestServer, name: &str) -> u64 {
    let page = http(server).get("/metrics").text();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect(name);
    line.parse().expect("a number")
}

/// Writes a certificate for these names, signed by itself, with its key.
fn write_pair(folder: &Path, file: &str, names: &[&str]) -> TlsPair {
    let made = rcgen::generate_simple_self_signed(names.iter().map(ToString::to_string).collect::<Vec<_>>());
    let made = made.expect("a certificate");
    write(folder, file, &made.cert.pem(), &made.signing_key)
}

fn write(folder: &Path, file: &str, cert: &str, key: &KeyPair) -> TlsPair {
    let name = |ending: &str| folder.join(format!("{file}.{ending}")).display().to_string();
    let pair = TlsPair { cert: name("pem"), key: name("key") };
    fs::write(&pair.key, key.serialize_pem()).expect("a key");
    fs::write(&pair.cert, cert).expect("a certificate");
    pair
}

fn with_pair(pair: &TlsPair) -> Settings {
    Settings { tls_cert: pair.cert.clone(), tls_key: pair.key.clone(), ..settings() }
}

/// The certificate that a server presents to a client that asks for this name.
fn presented(server: &TestServer, name: &str) -> Vec<u8> {
    let socket = connect(server.address(), insecure(), name).expect("a handshake");
    socket.session().peer_certificates().expect("certificates")[0].to_vec()
}

fn der(pair: &TlsPair) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::from_pem_file(&pair.cert).expect("a certificate").to_vec()
}

/// All that a server sends to a client that sends these bytes.
pub fn answer_to(server: &TestServer, bytes: &[u8]) -> Vec<u8> {
    let mut tcp = TcpStream::connect(server.address()).expect("a connection");
    tcp.set_read_timeout(Some(crate::common::TIMEOUT)).expect("a timeout");
    tcp.write_all(bytes).expect("the server reads");
    let mut answer = Vec::new();
    // A reset may follow what was sent.
    let _end = tcp.read_to_end(&mut answer);
    answer
}

/// A fatal alert (RFC 8446 §6) as a whole record.
fn alert(description: u8) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, description]
}

#[test]
fn a_client_speaks_tls_1_2_or_1_3_and_http_1_1_or_2() {
    let server = TestServer::start(with_tls());
    for (version, expected) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let mut config = insecure_config(&[version]);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let socket = connect(server.address(), Arc::new(config.clone()), "localhost").expect("a handshake");
        assert_eq!(socket.session().protocol_version(), Some(expected));
        assert_eq!(socket.session().alpn_protocol(), Some(&b"http/1.1"[..]));
        let mut http = Http::on(Tcp::of(socket), server.address());
        assert_eq!(http.get("/healthz").status, 200);
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
        let socket = connect(server.address(), Arc::new(config.clone()), "localhost").expect("a handshake");
        assert_eq!(socket.session().alpn_protocol(), Some(&b"h2"[..]), "the server prefers it");
        // no_application_protocol (RFC 7301 §3.2)
        config.alpn_protocols = vec![b"h3".to_vec()];
        let error = connect(server.address(), Arc::new(config), "localhost").err().expect("another protocol");
        assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    }
    assert_eq!(metric(&server, "encke_tls_handshakes_open"), 0);
}

#[test]
fn a_handshake_against_the_rules_ends_with_the_alert_that_says_so() {
    let server = TestServer::start(with_tls());
    let mut neighbour = session(&server);
    // decode_error: the hello is cut inside its record.
    assert_eq!(answer_to(&server, &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0]), alert(50));
    // unexpected_message: application data before a handshake.
    assert_eq!(answer_to(&server, &[23, 3, 3, 0, 1, 0]), alert(10));
    // A record that is longer than any may be, and no record at all.
    for junk in [&[22, 3, 1, 255, 255, 1][..], &[0; 64], &[255; 64]] {
        let answer = answer_to(&server, junk);
        assert_eq!((answer.len(), answer[0]), (7, 21), "{answer:?}");
    }
    wait_until("all are counted", || metric(&server, "encke_tls_handshakes_failed_total") == 5);
    assert_eq!(neighbour.call(json!({"id": "1", "channel": "/service/x"}))["id"], "1");
}

#[test]
fn plain_http_on_a_port_of_tls_gets_a_400_that_says_why() {
    let server = TestServer::start(with_tls());
    let answer = String::from_utf8(answer_to(&server, b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")).expect("text");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    assert_eq!(body, "this port speaks TLS: use https:// or wss://\n");
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
}

#[test]
fn a_connection_above_the_limit_of_its_address_gets_an_alert() {
    let server = TestServer::start(Settings { address_connections_max: 1, ..with_tls() });
    let mut first = http(&server);
    assert_eq!(answer_to(&server, b""), alert(80));
    assert_eq!(first.get("/healthz").status, 200);
}

#[test]
fn large_messages_arrive_in_both_directions() {
    let server = TestServer::start(Settings { message_bytes_max: 4 << 20, ..with_tls() });
    let mut subscriber = session(&server);
    subscriber.subscribe("/large");
    let text: String = (0..300_000).map(|number| format!("{number:06} ")).collect();
    let mut publisher = session(&server);
    publisher.publish("/large", json!(text));
    assert_eq!(subscriber.next_json()[0]["data"], text);
    // The same in a request, and in the response of a held connect.
    let mut poller = crate::common::Poller::of(String::new(), http(&server));
    poller.id = poller.http.handshake();
    poller.polls = http(&server);
    poller.polls.cookie = poller.http.cookie.clone();
    poller.poll(json!({"advice": {"timeout": 0}}));
    poller.subscribe("/large");
    let mut publisher = http(&server);
    let id = publisher.handshake();
    let reply = publisher.call(json!({"channel": "/large", "clientId": id, "id": "p", "data": text}));
    assert_eq!(reply["successful"], true, "{reply}");
    assert_eq!(poller.poll(json!({}))[0]["data"], text);
    assert_eq!(subscriber.next_json()[0]["data"], text);
}

#[test]
fn gathered_messages_arrive_in_order() {
    let server = TestServer::start(with_tls());
    let mut subscriber = session(&server);
    subscriber.subscribe("/many");
    let mut expected = 0;
    for burst in [1, 3, 200, 5_000, 1] {
        for number in expected..expected + burst {
            server.publish("/many", &number.to_string());
        }
        for number in expected..expected + burst {
            assert_eq!(subscriber.next_json()[0]["data"], number);
        }
        expected += burst;
    }
}

/// The kernel takes records in part, at any byte; nothing is lost, doubled or out of order.
#[test]
fn a_slow_reader_gets_every_message_once() {
    let server = TestServer::start(with_tls());
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    socket.connect(&server.address().into()).expect("a connection");
    let tls = Socket::tls(socket.into(), insecure(), "localhost").expect("a handshake");
    let mut slow = Ws::upgrade(Tcp::of(tls), server.address(), &[]);
    slow.handshake();
    slow.subscribe("/slow");
    let text = "x".repeat(997);
    let message =
        |number: u64| json!({"number": number, "text": &text[..usize::try_from(number % 997).expect("small")]});
    for number in 0..10_000 {
        server.publish("/slow", &message(number).to_string());
    }
    for number in 0..10_000 {
        assert_eq!(slow.next_json()[0]["data"], message(number));
    }
    assert_eq!(slow.call(json!({"id": "1", "channel": "/service/x"}))["id"], "1");
}

#[test]
fn the_bytes_before_a_close_arrive_even_if_their_reader_is_slow() {
    let server = TestServer::start(Settings { drain_timeout_ms: 20_000, ..with_tls() });
    let mut ws = session(&server);
    ws.subscribe("/last");
    let large = json!("x".repeat(900_000));
    for _ in 0..8 {
        server.publish("/last", &large.to_string());
    }
    ws.send_raw(crate::common::close_frame(1000, ""));
    let frames: Vec<Frame> =
        std::iter::from_fn(|| Some(ws.next_frame()).filter(|frame| *frame != Frame::End)).collect();
    // The reply to the close is behind all that was written before it.
    let (last, before) = frames.split_last().expect("frames");
    assert_eq!(last, &Frame::Close(1000, String::new()));
    for frame in before {
        let Frame::Text(text) = frame else { panic!("no text but {frame:?}") };
        assert_eq!(serde_json::from_str::<Value>(text).expect("JSON")[0]["data"], large);
    }
    assert!(!before.is_empty());
}

#[test]
fn a_websocket_moves_to_the_shard_of_its_session() {
    let server = TestServer::start(Settings { shards: 2, ..with_tls() });
    // Connections are dealt out in turn, so one of two is on another shard than the session.
    let mut first = session(&server);
    first.subscribe("/a");
    for _ in 0..2 {
        let tcp = Tcp::of(connect(server.address(), insecure(), "localhost").expect("a handshake"));
        let mut next = Ws::upgrade(tcp, server.address(), &[]);
        next.id = first.id.clone();
        let reply = next.call(json!({"id": "c", "channel": "/meta/connect", "connectionType": "websocket",
            "advice": {"timeout": 0}}));
        assert_eq!(reply["successful"], true, "{reply}");
        server.publish("/a", "1");
        assert_eq!(next.next_json()[0]["data"], 1);
        first = next;
    }
}

#[test]
fn a_client_that_asks_for_a_name_gets_its_certificate() {
    let folder = Folder::new();
    let default = write_pair(folder.path(), "default", &["example.com", "127.0.0.1"]);
    let other = write_pair(folder.path(), "other", &["push.example.org", "*.wild.example"]);
    let server = TestServer::start(Settings { tls: vec![other.clone()], ..with_pair(&default) });
    for (name, pair) in [
        ("example.com", &default),
        ("127.0.0.1", &default),
        ("unknown.example", &default),
        ("push.example.org", &other),
        ("a.wild.example", &other),
        ("a.b.wild.example", &default),
    ] {
        assert_eq!(presented(&server, name), der(pair), "{name}");
    }
    // A client that trusts only this certificate, and checks the name.
    let mut roots = RootCertStore::empty();
    roots.add(der(&other).into()).expect("a root");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
    assert!(connect(server.address(), config.clone(), "push.example.org").is_ok());
    assert!(connect(server.address(), config, "example.com").is_err());
}

#[test]
fn changed_certificates_are_used_by_new_connections_and_broken_ones_are_not() {
    let folder = Folder::new();
    let pair = write_pair(folder.path(), "a", &["localhost"]);
    let first = der(&pair);
    let server = TestServer::start(with_pair(&pair));
    let mut open = session(&server);
    // The files change, first the one, then the other. Between, they do not fit each other.
    write_pair(folder.path(), "a", &["localhost", "a.example"]);
    let second = der(&pair);
    wait_until("the new certificate is presented", || presented(&server, "localhost") == second);
    assert_ne!(first, second);
    // A reload finds the same files; one that does not fit is refused with all its settings.
    let other = write_pair(folder.path(), "b", &["localhost"]);
    let wrong = TlsPair { cert: other.cert.clone(), key: pair.key.clone() };
    let error = server.handle.reload(with_pair(&wrong)).expect_err("keys that do not match").to_string();
    assert_eq!(error, format!("tls_key = {}: the private key of the first certificate in tls_cert", pair.key));
    assert_eq!(presented(&server, "localhost"), second);
    assert_eq!(server.handle.reload(with_pair(&other)).expect("good settings"), [""; 0]);
    assert_eq!(presented(&server, "localhost"), der(&other));
    // TLS stays on until a restart.
    assert_eq!(server.handle.reload(settings()).expect("good settings"), ["tls_cert"]);
    assert_eq!(presented(&server, "localhost"), der(&other));
    // The connection from before lives.
    assert_eq!(open.call(json!({"id": "1", "channel": "/service/x"}))["id"], "1");
}

#[test]
fn settings_of_tls_that_do_not_fit_are_refused_by_name() {
    let folder = Folder::new();
    let pair = write_pair(folder.path(), "a", &["localhost"]);
    let junk = folder.path().join("junk").display().to_string();
    fs::write(&junk, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").expect("a file");
    let missing = folder.path().join("missing").display().to_string();
    let refused = |change: &dyn Fn(&mut Settings)| {
        let mut settings = with_pair(&pair);
        change(&mut settings);
        let error = Server::builder().settings(settings).start().expect_err("refused").to_string();
        error.split(" = ").next().expect("a name").to_owned()
    };
    assert_eq!(refused(&|settings| settings.tls_cert = missing.clone()), "tls_cert");
    assert_eq!(refused(&|settings| settings.tls_cert = junk.clone()), "tls_cert");
    assert_eq!(refused(&|settings| settings.tls_cert = pair.key.clone()), "tls_cert");
    assert_eq!(refused(&|settings| settings.tls_cert = String::new()), "tls_key", "alone");
    assert_eq!(refused(&|settings| settings.tls_key = missing.clone()), "tls_key");
    assert_eq!(refused(&|settings| settings.tls_key = pair.cert.clone()), "tls_key");
    assert_eq!(refused(&|settings| settings.tls_key = String::new()), "tls_cert", "alone");
    assert_eq!(refused(&|settings| settings.dev_tls = true), "dev_tls");
    let further = || TlsPair { cert: missing.clone(), key: pair.key.clone() };
    assert_eq!(refused(&|settings| settings.tls = vec![further()]), "tls_cert");
    let alone = Settings { tls: vec![further()], ..settings() };
    assert_eq!(refused(&|settings| *settings = alone.clone()), "tls.cert");
    assert_eq!(refused(&|settings| settings.acme = vec!["push.example".into()]), "acme", "without data");
}

#[test]
fn a_certificate_that_has_expired_is_still_presented() {
    let folder = Folder::new();
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let certificate = params.self_signed(&key).expect("a certificate");
    let pair = write(folder.path(), "old", &certificate.pem(), &key);
    let server = TestServer::start(with_pair(&pair));
    assert_eq!(presented(&server, "localhost"), der(&pair));
}

#[test]
fn a_session_is_resumed_on_any_shard_and_by_the_process_that_takes_over() {
    let server = TestServer::start(Settings { shards: 2, ..with_tls() });
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(insecure_config(&[version]));
        let visit = |server: &TestServer| {
            let socket = connect(server.address(), config.clone(), "localhost").expect("a handshake");
            let mut http = Http::on(Tcp::of(socket), server.address());
            // Tickets of TLS 1.3 come after the handshake.
            assert_eq!(http.get("/healthz").status, 200);
            http.tcp.stream.session().handshake_kind()
        };
        assert_eq!(visit(&server), Some(HandshakeKind::Full));
        assert_eq!([visit(&server), visit(&server)], [Some(HandshakeKind::Resumed); 2]);
        let next = TestServer::of(Server::builder().settings(with_tls()).ticket_keys(server.handle.ticket_keys()));
        assert_eq!(visit(&next), Some(HandshakeKind::Resumed));
        let stranger = TestServer::start(with_tls());
        assert_eq!(visit(&stranger), Some(HandshakeKind::Full));
    }
    assert_eq!(metric(&server, "encke_tls_handshakes_resumed_total"), 4);
}

#[test]
fn a_cookie_of_tls_is_secure_and_its_pages_are_those_of_https() {
    let server = TestServer::start(with_tls());
    let mut http = http(&server);
    http.handshake();
    let handshake =
        json!([{"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}]);
    let mut status = |scheme: &str| {
        let origin = format!("{scheme}://{}", server.address());
        http.cookie = None;
        let response =
            http.request("POST", "/cometd", &[("origin", origin.as_str())], handshake.to_string().as_bytes());
        let is_secure = response.header("set-cookie").is_some_and(|cookie| cookie.contains("; Secure"));
        (response.status, is_secure)
    };
    assert_eq!(status("https"), (200, true));
    assert_eq!(status("http").0, 403);
}
