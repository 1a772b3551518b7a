//! Targets that are no suitable servers; each gets its own error.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use encke_bench::order::{ClientsSpec, Transport};
use encke_bench::problem::Problem;

use crate::{open, server, spec};

/// A server that answers everything with the same bytes, and then closes.
fn answering(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

fn failure(target: &str, transport: Transport) -> Problem {
    open(&spec(target, transport, 3, 1)).expect_err("no server")
}

#[test]
fn a_closed_port_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let address = listener.local_addr().expect("address");
    drop(listener);
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource, Transport::Raw] {
        let problem = failure(&format!("http://{address}"), transport);
        assert_eq!(problem.to_string(), format!("cannot reach {address}: Connection refused"));
        assert!(matches!(problem, Problem::Unreachable { .. }));
    }
}

#[test]
fn a_server_of_other_things_is_no_bayeux_server() {
    for (answer, shown) in [
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answered 404 Not Found"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP: \"SSH-2.0-OpenSSH_9.2"),
        ("", "connection"),
    ] {
        let address = answering(answer);
        for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
            let problem = failure(&format!("http://{address}/cometd"), transport);
            let text = problem.to_string();
            assert!(matches!(problem, Problem::NotBayeux { .. }), "{problem:?}");
            assert!(text.starts_with(&format!("no Bayeux server at {address}/cometd: it ")), "{text}");
            assert!(text.contains(shown) && !text.contains('\n'), "{text}");
        }
    }
}

#[test]
fn another_path_of_a_bayeux_server_is_none() {
    let (_server, target) = server();
    for transport in [Transport::Websocket, Transport::LongPolling, Transport::Eventsource] {
        let problem = failure(&format!("{target}/elsewhere"), transport);
        assert!(matches!(&problem, Problem::NotBayeux { reason, .. } if reason.contains("404")), "{problem:?}");
    }
}

#[test]
fn something_else_than_bayeux_in_json_is_shown() {
    let address = answering("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"a\":\"json\"");
    let problem = failure(&format!("http://{address}"), Transport::LongPolling);
    assert!(matches!(&problem, Problem::NotBayeux { reason, .. } if reason.contains("json")), "{problem:?}");
}

#[test]
fn a_refused_subscription_is_the_servers_word() {
    let (_server, target) = server();
    let mut spec = spec(&target, Transport::Websocket, 3, 1);
    spec.membership.channel = "/meta/no".into();
    let problem = open(&spec).expect_err("refused");
    assert!(matches!(&problem, Problem::Server(text) if text.contains("refused a subscription: 403")), "{problem:?}");
}

#[test]
fn wrong_urls_and_too_many_sessions_fail_before_anything_is_opened() {
    let other = failure("ftp://127.0.0.1:1/", Transport::Websocket);
    assert!(matches!(&other, Problem::Usage(text) if text.contains("is not a URL to measure")), "{other:?}");
    let spec = ClientsSpec { clients: 250_000_000, ..spec("http://127.0.0.1:1/", Transport::Websocket, 0, 1) };
    let problem = open(&spec).expect_err("too many");
    assert!(matches!(&problem, Problem::Machine(text) if text.contains("open files")), "{problem:?}");
}
