//! A gate for the memory of an idle session, and for its release.
//!
//! Runs the program named by the environment variable `ENCKE_BIN`, an optimised build. `cargo test` skips it, since it
//! needs that program; scripts/instructions.sh runs it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use encke_bench::report::Report;

struct Server {
    child: Child,
    url: String,
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
        let url = line.trim().strip_prefix("encke listening on ").map(str::to_owned);
        Server { child, url: url.unwrap_or_else(|| panic!("no ready line but {line:?}")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `encke bench idle` against its own server: bytes per session, and the percentage retained after all sessions
/// ended.
fn cost(transport: &str) -> (f64, f64) {
    let program = std::env::var("ENCKE_BIN").expect("ENCKE_BIN names the program to measure");
    let server = Server::start(&program);
    let bench = Command::new(&program)
        .args(["bench", "idle", "--quiet", "--json", "--sessions", SESSIONS, "--transport", transport])
        .args(["--target", &server.url, "--pid", &server.child.id().to_string()])
        .output()
        .expect("encke bench runs");
    let report: Report = serde_json::from_slice(&bench.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&bench.stderr)));
    let figure = |name| report.trials[0].figures.iter().find(|figure| figure.name == name).expect(name).value;
    let cost = (figure("resident memory per session"), figure("retained after all left"));
    println!(
        "{transport}: {:.0} bytes of RSS per session, {:.0} % of it retained after all sessions ended",
        cost.0, cost.1
    );
    cost
}

#[test]
fn an_idle_websocket_session_is_small() {
    let (bytes, retained_percent) = cost("websocket");
    assert!(bytes <= WEBSOCKET_BYTES_MAX, "{bytes} bytes");
    assert!(retained_percent <= RETAINED_PERCENT_MAX, "memory does not come back: {retained_percent} % stay");
}

#[test]
fn an_idle_long_polling_session_is_small() {
    let (bytes, _) = cost("long-polling");
    assert!(bytes <= LONG_POLLING_BYTES_MAX, "{bytes} bytes");
}

/// Few enough for a second's work, and enough to outweigh one-time allocations and tables that have just doubled.
const SESSIONS: &str = "4000";
/// A tenth more than a session took when this limit was set (1,280 bytes), so that the growth of any record, task or
/// buffer is noticed.
const WEBSOCKET_BYTES_MAX: f64 = 1_400.0;
/// A tenth more than the 4,830 bytes of that time, most of which belong to the connection.
const LONG_POLLING_BYTES_MAX: f64 = 5_300.0;
/// The share of the growth that an allocator may retain after all sessions ended; a leak retains all of it.
const RETAINED_PERCENT_MAX: f64 = 50.0;
