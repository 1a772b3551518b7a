//! Clients that break the rules of TLS or let it work for nothing: each gets an answer that says so, and ends, and a neighbour notices
//! nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use ::ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use encke::Settings;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, ConnectionTrafficSecrets, ProtocolVersion, StreamOwned, SupportedProtocolVersion};
use serde_json::json;

use crate::common::tls::{Socket, connect, insecure, insecure_config};
use crate::common::{TIMEOUT, Tcp, TestServer, Ws, wait_until};
use crate::tls::{answer_to, metric, session, with_tls};

/// A client that encrypts any content as a record.
struct Records {
    tcp: TcpStream,
    key: LessSafeKey,
    iv: [u8; 12],
    number: u64,
    version: ProtocolVersion,
}

impl Records {
    /// After a handshake.
    fn open(server: &TestServer, version: &'static SupportedProtocolVersion) -> Records {
        let mut config = insecure_config(&[version]);
        config.enable_secret_extraction = true;
        let socket = connect(server.address(), Arc::new(config), "localhost").expect("a handshake");
        let Socket::Tls(tls) = socket else { panic!("no TLS") };
        let StreamOwned { conn, sock: tcp } = *tls;
        let version = conn.protocol_version().expect("a version");
        let (number, secrets) = conn.dangerous_extract_secrets().expect("secrets").tx;
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { panic!("another cipher") };
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).expect("a key"));
        tcp.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        Records { tcp, key, iv: iv.as_ref().try_into().expect("twelve bytes"), number, version }
    }

    /// A record with this type of content.
    fn record(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let number = self.number.to_be_bytes();
        self.number += 1;
        let (mut nonce, mut sealed) = (self.iv, content.to_vec());
        if self.version == ProtocolVersion::TLSv1_2 {
            // RFC 5288 §3: the second part of the nonce is in the record.
            nonce[4..].copy_from_slice(&number);
            let length = (content.len() as u16).to_be_bytes();
            let aad = [&number[..], &[kind, 3, 3], &length].concat();
            let nonce = Nonce::assume_unique_for_key(nonce);
            self.key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed).expect("a record");
            let length = (sealed.len() as u16 + 8).to_be_bytes();
            return [&[kind, 3, 3], &length[..], &number, &sealed].concat();
        }
        // RFC 8446 §5.2: the type of the content is behind it.
        nonce[4..].iter_mut().zip(number).for_each(|(byte, of_number)| *byte ^= of_number);
        sealed.push(kind);
        let length = (sealed.len() as u16 + 16).to_be_bytes();
        let head = [23, 3, 3, length[0], length[1]];
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(head), &mut sealed).expect("a record");
        [&head[..], &sealed].concat()
    }

    fn send(&mut self, kind: u8, content: &[u8]) {
        let record = self.record(kind, content);
        self.tcp.write_all(&record).expect("the server reads");
    }

    /// The types of the records that the server sends until it ends the connection.
    fn types_until_the_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset may follow what was sent.
        if let Err(error) = self.tcp.read_to_end(&mut bytes) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it does not end");
        }
        let (mut rest, mut types) = (&bytes[..], Vec::new());
        while let [kind, _, _, high, low, ..] = *rest {
            types.push(kind);
            rest = rest.get(5 + usize::from(u16::from_be_bytes([high, low]))..).unwrap_or_default();
        }
        types
    }
}

/// The bytes of a client's first message.
fn hello() -> Vec<u8> {
    let mut tls =
        ClientConnection::new(insecure(), ServerName::try_from("localhost").expect("a name")).expect("a client");
    let mut bytes = Vec::new();
    tls.write_tls(&mut bytes).expect("memory");
    bytes
}

fn assert_undisturbed(neighbour: &mut Ws) {
    assert_eq!(neighbour.call(json!({"id": "1", "channel": "/service/x"}))["id"], "1");
}

#[test]
fn a_handshake_that_does_not_go_on_is_ended() {
    let server = TestServer::start(Settings { tls_handshake_timeout_ms: 200, ..with_tls() });
    assert_eq!(answer_to(&server, b""), b"", "nothing was sent");
    assert_eq!(answer_to(&server, &[22, 3, 1, 2, 0, 1]), b"", "a part of a record");
    // The server has answered, and its client says nothing more.
    assert_eq!(answer_to(&server, &hello())[0], 22);
    // Bytes that still come do not prolong it.
    let mut slow = TcpStream::connect(server.address()).expect("a connection");
    let mut hello = hello().into_iter();
    wait_until("it is ended", || {
        std::thread::sleep(Duration::from_millis(20));
        hello.next().is_none_or(|byte| slow.write_all(&[byte]).is_err())
    });
    assert!(hello.next().is_some(), "it was ended before all bytes were sent");
    wait_until("all have failed", || metric(&server, "encke_tls_handshakes_failed_total") == 4);
    wait_until("none is open", || metric(&server, "encke_tls_handshakes_open") == 0);
}

#[test]
fn a_client_that_sends_records_without_data_is_cut_off() {
    let server = TestServer::start(with_tls());
    let mut neighbour = session(&server);
    for version in [&TLS12, &TLS13] {
        let mut client = Records::open(&server, version);
        let records: Vec<u8> = (0..1_000).flat_map(|_| client.record(23, b"")).collect();
        // The server may end it early.
        let _end = client.tcp.write_all(&records);
        client.types_until_the_end();
    }
    assert_undisturbed(&mut neighbour);
}

#[test]
fn a_client_may_change_its_keys_but_not_for_nothing() {
    let server = TestServer::start(with_tls());
    let mut neighbour = session(&server);
    let update = |ws: &mut Ws| {
        let Socket::Tls(tls) = &mut ws.tcp.stream else { panic!("no TLS") };
        tls.conn.refresh_traffic_keys().expect("TLS 1.3");
        tls.flush()
    };
    let mut client = session(&server);
    for _ in 0..100 {
        update(&mut client).expect("the server reads");
        assert_undisturbed(&mut client);
    }
    // More than 32 without data between them.
    wait_until("it is cut off", || update(&mut client).is_err());
    assert_undisturbed(&mut neighbour);
}

#[test]
fn a_renegotiation_is_refused_and_the_second_one_ends_the_connection() {
    let server = TestServer::start(with_tls());
    let mut neighbour = session(&server);
    let mut client = Records::open(&server, &TLS12);
    // The message without the head of its record.
    let hello = hello()[5..].to_vec();
    client.send(22, &hello);
    // no_renegotiation (RFC 5246 §7.2.2), encrypted.
    let mut first = [0; 31];
    client.tcp.read_exact(&mut first).expect("an answer");
    assert_eq!((first[0], u16::from_be_bytes([first[3], first[4]])), (21, 26));
    client.send(22, &hello);
    assert_eq!(client.types_until_the_end(), [0; 0]);
    assert_undisturbed(&mut neighbour);
}

#[test]
fn early_data_is_not_accepted() {
    let server = TestServer::start(with_tls());
    let mut neighbour = session(&server);
    let data = [&[23, 3, 3, 0, 32], &[7; 32][..]].concat();
    let answer = answer_to(&server, &[hello(), data].concat());
    // The server's part of the handshake, and then nothing but alerts.
    assert_eq!(answer[0], 22, "{answer:?}");
    wait_until("it has failed", || metric(&server, "encke_tls_handshakes_failed_total") == 1);
    assert_undisturbed(&mut neighbour);
}

#[test]
fn alerts_without_end_end_the_connection() {
    let server = TestServer::start(with_tls());
    let mut neighbour = session(&server);
    // Warnings, before a handshake and after it.
    assert_eq!(answer_to(&server, &[21, 3, 3, 0, 2, 1, 90].repeat(100)), b"");
    for version in [&TLS12, &TLS13] {
        let mut client = Records::open(&server, version);
        let records: Vec<u8> = (0..100).flat_map(|_| client.record(21, &[1, 90])).collect();
        // The server may end it early.
        let _end = client.tcp.write_all(&records);
        client.types_until_the_end();
    }
    assert_undisturbed(&mut neighbour);
}

#[test]
fn a_record_that_nobody_has_encrypted_ends_its_connection() {
    let server = TestServer::start(with_tls());
    let mut neighbour = session(&server);
    for version in [&TLS12, &TLS13] {
        let mut client = Records::open(&server, version);
        client.tcp.write_all(&[&[23, 3, 3, 0, 64], &[7; 64][..]].concat()).expect("the server reads");
        // An alert, encrypted.
        let types = client.types_until_the_end();
        assert!(types.last().is_some_and(|kind| [21, 23].contains(kind)), "{types:?}");
    }
    assert_undisturbed(&mut neighbour);
}

#[test]
fn many_handshakes_at_once_are_all_completed() {
    let server = TestServer::start(Settings { address_connections_max: 1_000, ..with_tls() });
    let mut neighbour = session(&server);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let address = server.address();
            std::thread::spawn(move || {
                let sockets = (0..20).map(|_| connect(address, insecure(), "localhost").expect("a handshake"));
                sockets.map(Tcp::of).count()
            })
        })
        .collect();
    let completed: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!(completed, 160);
    assert_undisturbed(&mut neighbour);
}

#[test]
fn a_client_that_falls_back_from_tls_1_3_is_refused() {
    let server = TestServer::start(with_tls());
    // The last cipher suite of a first message becomes the mark of a fallback (RFC 7507).
    let marked = |versions: &[&'static SupportedProtocolVersion]| {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut client = ClientConnection::new(Arc::new(insecure_config(versions)), name).expect("a client");
        let mut hello = Vec::new();
        client.write_tls(&mut hello).expect("a first message");
        let suites = 44 + usize::from(hello[43]);
        let end = suites + 2 + usize::from(u16::from_be_bytes([hello[suites], hello[suites + 1]]));
        if !versions.contains(&&TLS13) {
            // rustls names those of TLS 1.3 all the same; clients that fall back do not.
            hello[suites + 2..end]
                .chunks_exact_mut(2)
                .filter(|suite| suite[0] == 0x13)
                .for_each(|suite| suite[0] = 0xc0);
        }
        hello[end - 2..end].copy_from_slice(&[0x56, 0x00]);
        hello
    };
    assert_eq!(answer_to(&server, &marked(&[&TLS12])), [21, 3, 3, 0, 2, 2, 86], "inappropriate_fallback");
    let mut tcp = TcpStream::connect(server.address()).expect("a connection");
    tcp.write_all(&marked(&[&TLS12, &TLS13])).expect("the server reads");
    let mut answer = [0; 6];
    tcp.read_exact(&mut answer).expect("an answer");
    assert_eq!((answer[0], answer[5]), (22, 2), "its newest version: a ServerHello");
}
