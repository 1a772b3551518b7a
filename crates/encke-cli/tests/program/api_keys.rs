//! The keys of the HTTP API in the program: from the file, and revoked with a signal.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{Folder, Server, TIMEOUT};

/// The status of a request for the server's information with this key.
fn status(address: &str, key: &str) -> u16 {
    let mut tcp = TcpStream::connect(address).expect("connects");
    let head = format!("GET /api/v1/info HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {key}\r\nConnection: close\r\n\r\n");
    tcp.write_all(head.as_bytes()).expect("writes");
    let mut response = String::new();
    tcp.read_to_string(&mut response).expect("an answer");
    response.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

/// The document has the operations of the server and of all crates beside it.
#[test]
fn the_committed_document_of_the_api_is_current() {
    let server = Server::start(&[]);
    let address = server.url.strip_prefix("http://").expect("a URL");
    let mut tcp = TcpStream::connect(address).expect("connects");
    let head = format!("GET /api/v1/openapi.json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    tcp.write_all(head.as_bytes()).expect("writes");
    let mut response = String::new();
    tcp.read_to_string(&mut response).expect("an answer");
    let (_, document) = response.split_once("\r\n\r\n").expect("a body");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    if std::env::var_os("ENCKE_WRITE_OPENAPI").is_some() {
        std::fs::write(path, document).expect("written");
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    let again = "run: ENCKE_WRITE_OPENAPI=1 cargo test -p encke-cli --test program the_committed_document_of_the_api";
    assert!(stored == document, "docs/openapi.json is not current; {again}");
}

#[test]
fn a_key_that_leaves_the_file_is_revoked_with_a_hangup() {
    let folder = Folder::new();
    let file = |keys: &[&str]| {
        let key =
            |key: &&str| format!("[[api_keys]]\nname = \"{key}\"\nkey = \"{key}-0123456789\"\nscopes = [\"read\"]\n");
        folder.write("encke.toml", &keys.iter().map(key).collect::<String>())
    };
    let path = file(&["first-key", "second-key"]);
    let server = Server::start(&["--config", &path, "--shards", "1"]);
    let address = server.url.trim_start_matches("http://");
    let statuses = || ["first-key-0123456789", "second-key-0123456789"].map(|key| status(address, key));
    assert_eq!(statuses(), [200, 200]);
    file(&["second-key"]);
    server.signal(Signal::HUP);
    let started = Instant::now();
    while statuses()[0] != 401 {
        assert!(started.elapsed() < TIMEOUT, "the key is still valid");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(statuses(), [401, 200]);
}
