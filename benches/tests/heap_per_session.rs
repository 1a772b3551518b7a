//! A gate: what an idle session may cost, and that memory comes back.
//!
//! Runs the program named by the environment variable `ENCKE_BIN`, an optimised build; without it there is nothing to
//! measure, and the test says so.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use benches::dialect::Dialect;
use benches::idle::{self, Cost, Options, Transport};
use benches::machine::Process;

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(program: &str) -> Self {
        let mut child = Command::new(program)
            .args(["serve", "--port", "0", "--shards", "1"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("ready line");
        let address = line.trim().strip_prefix("encke listening on http://").and_then(|address| address.parse().ok());
        Server { child, address: address.unwrap_or_else(|| panic!("no ready line but {line:?}")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cost(transport: Transport) -> Option<Cost> {
    let Ok(program) = std::env::var("ENCKE_BIN") else {
        println!("skipped: ENCKE_BIN names no program to measure");
        return None;
    };
    let server = Server::start(&program);
    let process = Process::watch(server.child.id()).expect("the server's process");
    let options = Options { sessions: SESSIONS, transport, own_channels: false };
    let cost = idle::measure(server.address, Dialect::Bayeux, process, &options).expect("idle sessions");
    println!("{transport:?}: {:.0} bytes of RSS per session, {:?}", cost.rss_bytes_per_session(), cost.memory);
    Some(cost)
}

#[test]
fn an_idle_websocket_session_is_small() {
    let Some(cost) = cost(Transport::Websocket) else { return };
    assert!(cost.rss_bytes_per_session() <= WEBSOCKET_BYTES_MAX * MARGIN, "{cost:?}");
    assert!(cost.kept_bytes() <= KEPT_BYTES_MAX, "memory does not come back: {cost:?}");
}

#[test]
fn an_idle_long_polling_session_is_small() {
    let Some(cost) = cost(Transport::LongPolling) else { return };
    assert!(cost.rss_bytes_per_session() <= LONG_POLLING_BYTES_MAX * MARGIN, "{cost:?}");
}

/// Few enough for a second's work, many enough that a page more or less does not count.
const SESSIONS: usize = 1000;
const WEBSOCKET_BYTES_MAX: f64 = 2048.0;
const LONG_POLLING_BYTES_MAX: f64 = 24.0 * 1024.0;
/// The limits hold for 9,000 sessions. With 1,000, tables that have just doubled and pages half full weigh more: they come
/// to some 500 KiB, hence half as much again.
const MARGIN: f64 = 1.5;
/// What may stay when all have left: an allocator's own reserve.
const KEPT_BYTES_MAX: u64 = 1024 * 1024;
