//! Helpers for the tests of `http` and `flood`: a scenario as the command line runs it, and servers with faults.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use encke::{Running, Server, Settings};
use encke_bench::problem::Problem;
use encke_bench::report::{Report, Trial};
use encke_bench::run::Interrupt;
use encke_bench::scenario;

/// Runs a scenario with a target and further arguments.
pub fn run(name: &str, address: SocketAddr, arguments: &[&str]) -> Result<Report, Problem> {
    run_at(name, &format!("http://{address}"), arguments)
}

/// Runs a scenario with a target's URL and further arguments.
pub fn run_at(name: &str, target: &str, arguments: &[&str]) -> Result<Report, Problem> {
    let start = ["bench", name, "--quiet", "--target", target];
    let matches = encke_bench::command().try_get_matches_from(start.iter().chain(arguments)).expect("arguments");
    let (found, matches) = matches.subcommand().expect("a scenario");
    let entry = scenario::ALL.iter().find(|entry| entry.name == found).expect("a scenario of this name");
    entry.run(matches, &Interrupt::default()).map(|(report, _)| report)
}

/// The value of a figure.
#[track_caller]
pub fn figure(trial: &Trial, name: &str) -> f64 {
    trial.figures.iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("no figure {name}")).value
}

/// Encke in this process.
pub struct Encke(Option<Running>);

impl Encke {
    pub fn start(settings: Settings) -> Encke {
        let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), shards: 1, drain_timeout_ms: 0, ..settings };
        Encke(Some(Server::builder().settings(settings).start().expect("the server starts")))
    }

    pub fn address(&self) -> SocketAddr {
        self.0.as_ref().expect("running").address()
    }
}

impl Drop for Encke {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.handle().drain();
            running.join();
        }
    }
}

/// A server that calls `serve` for each request, with the number of earlier requests on all connections and the
/// request's head. It returns true to keep the connection open.
pub fn server(serve: impl Fn(usize, &str, &mut TcpStream) -> bool + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let shared = Arc::new((serve, AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for tcp in listener.incoming() {
            let Ok(mut tcp) = tcp else { continue };
            let shared = shared.clone();
            std::thread::spawn(move || {
                while let Some(head) = head(&mut tcp) {
                    let before = shared.1.fetch_add(1, Ordering::Relaxed);
                    if !(shared.0)(before, &head, &mut tcp) {
                        break;
                    }
                }
            });
        }
    });
    address
}

/// Sends data that the other side may refuse.
pub fn send(tcp: &mut TcpStream, text: &str) {
    let _ = tcp.write_all(text.as_bytes());
}

/// A chunk of a response.
pub fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// An address without a listener.
pub fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("an address")
}

fn head(tcp: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match tcp.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    String::from_utf8(head).ok()
}
