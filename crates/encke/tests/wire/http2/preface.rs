//! The beginning of a connection shows if it speaks HTTP/2.

use std::time::Duration;

use encke::Settings;

use super::settings;
use crate::common::http2::{SETTINGS, frame};
use crate::common::tls::Socket;
use crate::common::{Tcp, TestServer};

#[test]
fn http2_off_is_http_1_only() {
    let server = TestServer::start(Settings { http2: false, dev_tls: false, ..settings() });
    let mut tcp = Tcp::of(Socket::Plain(std::net::TcpStream::connect(server.address()).expect("a connection")));
    tcp.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(tcp.response().is_none(), "the connection ends");
}

/// The preface may arrive byte by byte, and requests that begin like it are none.
#[test]
fn a_preface_arrives_in_parts_and_put_is_no_preface() {
    let server = TestServer::start(Settings { dev_tls: false, ..settings() });
    let plain = || std::net::TcpStream::connect(server.address()).expect("a connection");
    let mut tcp = Tcp::of(Socket::Plain(plain()));
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" {
        tcp.send([*byte]);
        std::thread::sleep(Duration::from_millis(1));
    }
    tcp.send(frame(SETTINGS, 0, 0, &[]));
    assert_eq!(tcp.read_some()[3], SETTINGS);
    for method in ["PUT", "PRX", "P"] {
        let mut tcp = Tcp::of(Socket::Plain(plain()));
        for byte in format!("{method} /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes() {
            tcp.send([byte]);
        }
        assert_eq!(tcp.response().map(|response| response.status), Some(405), "{method}");
    }
}
