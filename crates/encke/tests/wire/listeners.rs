//! Further addresses: with TLS, without, and Unix sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use encke::{Builder, ListenerSettings, Running, Server, Settings};

use crate::common::tls::{connect, insecure};
use crate::common::{Folder, Http, Tcp};

fn settings(listeners: Vec<ListenerSettings>) -> Settings {
    Settings { dev_tls: true, listeners, ..crate::common::settings() }
}

fn at(address: impl Into<String>, tls: bool) -> ListenerSettings {
    ListenerSettings { address: address.into(), tls, ..ListenerSettings::default() }
}

fn start(settings: Settings) -> Running {
    Server::builder().settings(settings).start().expect("starts")
}

fn stop(running: Running) {
    running.handle().drain();
    running.join();
}

/// The address of the first further listener.
fn further(running: &Running) -> SocketAddr {
    let socket = running.further_listeners().expect("sockets").remove(0);
    TcpListener::from(socket).local_addr().expect("an address")
}

/// The response to a request on a Unix socket.
fn get(path: &str, target: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("a connection");
    let request = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the server reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("text");
    response
}

#[test]
fn one_server_listens_with_tls_without_and_on_a_unix_socket() {
    let folder = Folder::new();
    let path = format!("{}/encke.sock", folder.name());
    let running = start(settings(vec![at("127.0.0.1:0", false), at(format!("unix:{path}"), false)]));
    let address = running.address();
    let mut tls = Http::on(Tcp::of(connect(address, insecure(), "localhost").expect("a handshake")), address);
    let plain = TcpStream::connect(further(&running)).expect("a connection");
    let mut plain = Http::on(Tcp::of(crate::common::tls::Socket::Plain(plain)), further(&running));
    assert_eq!((tls.get("/readyz").status, plain.get("/readyz").status), (200, 200));
    // One table of sessions. The cookie of TLS is not for the other address.
    let id = plain.handshake();
    assert_eq!(running.handle().sessions(), 1);
    tls.cookie.clone_from(&plain.cookie);
    let connect =
        serde_json::json!({"channel": "/meta/connect", "clientId": id, "id": "1", "connectionType": "long-polling"});
    assert_eq!(tls.call(connect)["successful"], true);
    assert!(get(&path, "/readyz").starts_with("HTTP/1.1 200 "));
    // A client without an address is no program on this machine.
    assert!(get(&path, "/metrics").starts_with("HTTP/1.1 403 "));
    stop(running);
}

#[test]
fn the_file_of_a_unix_socket_is_replaced_unless_a_server_answers_there() {
    let folder = Folder::new();
    let path = format!("{}/encke.sock", folder.name());
    let listeners = || settings(vec![at(format!("unix:{path}"), false)]);
    stop(start(listeners()));
    assert!(std::fs::exists(&path).expect("a folder"));
    let running = start(listeners());
    let error = Server::builder().settings(listeners()).start().expect_err("in use").to_string();
    assert!(error.starts_with(&format!("cannot listen on unix:{path}: ")), "{error}");
    assert!(get(&path, "/healthz").starts_with("HTTP/1.1 200 "));
    stop(running);
}

#[test]
fn the_sockets_of_one_server_serve_the_next_one() {
    let folder = Folder::new();
    let path = format!("{}/encke.sock", folder.name());
    let first = start(settings(vec![at("127.0.0.1:0", false), at(format!("unix:{path}"), false)]));
    let address = further(&first);
    let (listener, sockets) = (first.listener().expect("a socket"), first.further_listeners().expect("sockets"));
    let next = settings(vec![at(format!("unix:{path}"), false), at(address.to_string(), false)]);
    let builder: Builder = Server::builder().settings(next).listener(listener).further_listeners(sockets);
    first.handle().stop_accepting();
    // The addresses are in use, so the next server can only have them by these sockets.
    let next = builder.start().expect("starts");
    stop(first);
    assert_eq!(next.further_listeners().expect("sockets").len(), 2);
    assert!(get(&path, "/healthz").starts_with("HTTP/1.1 200 "));
    let plain = TcpStream::connect(address).expect("a connection");
    let mut http = Http::on(Tcp::of(crate::common::tls::Socket::Plain(plain)), address);
    assert_eq!(http.get("/healthz").status, 200);
    stop(next);
}

#[test]
fn an_address_that_does_not_fit_is_refused_by_name() {
    let refused = |settings: Settings| {
        let error = Server::builder().settings(settings).start().expect_err("refused").to_string();
        error.split(" = ").next().expect("a name").to_owned()
    };
    let long = format!("unix:/{}", "x".repeat(107));
    for address in ["", "8080", "localhost:8080", "unix:", "127.0.0.1", long.as_str()] {
        assert_eq!(refused(settings(vec![at(address, false)])), "listeners[0].address", "{address}");
    }
    let without = Settings { dev_tls: false, ..settings(vec![at("127.0.0.1:0", true)]) };
    assert_eq!(refused(without), "listeners[0].tls");
    assert_eq!(refused(settings(vec![at("127.0.0.1:0", false); 32])), "listeners");
}
