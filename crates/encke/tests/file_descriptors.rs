//! File descriptors run out (row 40 of `docs/contributing/bad-input.md`). This test has its own process, because the limit is per
//! process.

#[allow(dead_code, unused_imports)]
#[path = "wire/common/mod.rs"]
mod common;

use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::tls::Socket;
use common::{Folder, Http, Tcp, TestServer, settings, wait_until};
use encke::{Server, Settings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn metric(scraper: &mut Http, name: &str) -> u64 {
    let page = scraper.get("/metrics").text();
    let line = page.lines().find(|line| line.starts_with(name)).expect("the metric");
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

/// The limit is per process: one test at a time.
static LIMIT: Mutex<()> = Mutex::new(());

#[test]
fn a_start_without_enough_file_descriptors_is_an_error_and_loses_no_session() {
    let _alone = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let settings = Settings { data: folder.name(), shards: 4, ..settings() };
    let server = TestServer::start(settings.clone());
    server.session();
    server.stop();
    let mut refused = Vec::new();
    let before = getrlimit(Resource::Nofile);
    let started = (3..100).find_map(|files| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..before }).expect("a lower limit");
        let started = Server::builder().settings(settings.clone()).start();
        setrlimit(Resource::Nofile, before).expect("the limit of before");
        started.map_err(|error| refused.push(error.to_string())).ok()
    });
    let running = started.expect("with enough files it starts");
    assert_eq!(running.handle().sessions(), 1, "{refused:?}");
    assert!(refused.iter().any(|error| error.starts_with("cannot start a thread: ")), "{refused:?}");
    running.handle().drain();
    running.join();
}

/// The accept loop waits instead of spinning. Connected clients are served, and waiting ones are accepted when there
/// is room.
#[test]
fn without_a_free_file_descriptor_only_accepting_stops() {
    let _alone = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let mut scraper = server.http();
    assert_eq!(metric(&mut scraper, "encke_accept_failures_total"), 0);
    let waiting: Vec<socket2::Socket> = (0..20)
        .map(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket"))
        .collect();

    let before = getrlimit(Resource::Nofile);
    let open = std::fs::read_dir("/proc/self/fd").expect("a list").flatten();
    let highest = open.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max();
    let limit = Rlimit { current: highest.map(|highest| highest + 1), ..before };
    setrlimit(Resource::Nofile, limit).expect("a lower limit");
    let fill: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    for socket in &waiting {
        socket.connect(&server.address().into()).expect("the kernel lets it wait");
    }
    wait_until("an accept fails", || metric(&mut scraper, "encke_accept_failures_total") > 0);
    std::thread::sleep(Duration::from_millis(1_000));
    let failures = metric(&mut scraper, "encke_accept_failures_total");
    assert!(failures < 100, "{failures} tries in a second");
    neighbour.lives(&server);

    drop(fill);
    setrlimit(Resource::Nofile, before).expect("the limit of before");
    for socket in waiting {
        let mut http = Http::on(Tcp::of(Socket::of(socket.into())), server.address());
        assert_eq!(http.get("/healthz").status, 200);
    }
    neighbour.lives(&server);
}
