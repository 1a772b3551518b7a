//! A gate: what an idle session may cost, and that memory comes back.
//!
//! Runs the program named by the environment variable `ENCKE_BIN`, an optimised build; without it there is nothing to
//! measure, and the test says so.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use benches::dialect::Dialect;
use benches::idle::{self, Cost, Options, Transport};
use benches::machine::{Process, allow_files};

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
    // The server inherits the limit.
    allow_files(2 * SESSIONS as u64).expect("enough open files");
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
    assert!(cost.kept_share() <= KEPT_SHARE_MAX, "memory does not come back: {cost:?}");
}

#[test]
fn an_idle_long_polling_session_is_small() {
    let Some(cost) = cost(Transport::LongPolling) else { return };
    assert!(cost.rss_bytes_per_session() <= LONG_POLLING_BYTES_MAX * MARGIN, "{cost:?}");
}

/// Few enough for a second's work, many enough that what is made once and tables that have just doubled do not count.
const SESSIONS: usize = 4000;
const WEBSOCKET_BYTES_MAX: f64 = 2048.0;
const LONG_POLLING_BYTES_MAX: f64 = 24.0 * 1024.0;
/// The limits are for 9,000 sessions on a quiet machine; a gate must not fail by chance.
const MARGIN: f64 = 1.25;
/// What an allocator may keep of the growth when all have left; a leak keeps all of it.
const KEPT_SHARE_MAX: f64 = 0.5;
