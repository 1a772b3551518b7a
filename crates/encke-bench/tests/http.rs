//! `encke bench http` against Encke, and against servers that misbehave.

#[path = "http_common/mod.rs"]
mod common;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Encke, figure, run, run_at, send, server, unused_address};
use encke::Settings;
use encke_bench::problem::Problem;
use encke_bench::report::Report;

/// A directory with the three files, which goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("encke-bench-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

#[test]
fn three_files_are_measured_over_keep_alive_connections() {
    let folder = Folder::new("files");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let encke = Encke::start(Settings { files: folder.name().into(), ..Settings::default() });
    let arguments = ["--files", folder.name(), "--requests", "200", "--connections", "20"];
    let report = run("http", encke.address(), &arguments).expect("measured");
    assert!(report.holds, "{:?}", report.reasons);
    assert_eq!(report.trials.len(), 3);
    for (trial, bytes) in report.trials.iter().zip([2_000, 14_000, 954_000]) {
        assert_eq!((trial.expected, trial.incoming.messages), (200, 200), "{}", trial.name);
        assert_eq!(trial.incoming.bytes, 200 * bytes);
        assert_eq!(figure(trial, "connections reused"), 100.0);
        let latency = trial.latency.as_ref().expect("timed");
        assert_eq!(latency.count, 200);
    }
    let table = report.table.expect("a table");
    assert_eq!(table.rows.len(), 3);
    assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    assert!(report.transcript[0].starts_with("closed loop"), "{:?}", report.transcript);
}

/// With TLS by ALPN, without it by prior knowledge.
#[test]
fn files_are_measured_over_http2() {
    let folder = Folder::new("http2");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    for dev_tls in [false, true] {
        let encke = Encke::start(Settings { files: folder.name().into(), dev_tls, ..Settings::default() });
        let target = format!("{}://{}", if dev_tls { "https" } else { "http" }, encke.address());
        let arguments = ["--files", folder.name(), "--requests", "100", "--connections", "10", "--http2"];
        let report = run_at("http", &target, &arguments).expect("measured");
        assert!(report.holds, "{:?}", report.reasons);
        for (trial, bytes) in report.trials.iter().zip([2_000, 14_000, 954_000]) {
            assert_eq!((trial.incoming.messages, trial.incoming.bytes), (100, 100 * bytes), "{}", trial.name);
            assert_eq!(figure(trial, "connections reused"), 100.0);
        }
    }
    let address = server(|_, _, tcp| {
        send(tcp, OK);
        true
    });
    let Err(Problem::Server(text)) = run("http", address, &["--path", "/", "--http2"]) else { panic!("no problem") };
    assert_eq!(text, "does not speak HTTP/2");
}

#[test]
fn a_missing_file_fails_before_anything_is_measured() {
    let encke = Encke::start(Settings::default());
    let Err(Problem::Server(text)) = run("http", encke.address(), &[]) else { panic!("no problem") };
    assert!(text.starts_with("answers GET /2kB.bin with 404 Not Found; encke bench http --files DIR"), "{text}");
    let Err(Problem::Server(text)) = run("http", encke.address(), &["--path", "/none"]) else { panic!("no problem") };
    assert_eq!(text, "answers GET /none with 404 Not Found");
}

#[test]
fn a_target_that_is_not_there_or_speaks_no_http_gets_one_line() {
    let Err(Problem::Unreachable { reason, .. }) = run("http", unused_address(), &[]) else { panic!("no problem") };
    assert_eq!(reason, "Connection refused");
    let address = server(|_, _, tcp| {
        send(tcp, "SSH-2.0-OpenSSH_9.2\r\n");
        false
    });
    let Err(Problem::Server(text)) = run("http", address, &["--path", "/"]) else { panic!("no problem") };
    assert!(text.starts_with("does not speak HTTP: \"SSH-2.0"), "{text}");
    let Err(Problem::Usage(text)) = run("http", address, &["--path", "a b"]) else { panic!("no problem") };
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn a_server_without_keep_alive_is_measured_and_reported() {
    for response in
        ["HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello", "HTTP/1.0 200 OK\r\n\r\nhello"]
    {
        let address = server(move |_, _, tcp| {
            send(tcp, response);
            false
        });
        let arguments = ["--path", "/", "--requests", "50", "--connections", "5"];
        let report = run("http", address, &arguments).expect("measured");
        assert!(report.holds, "{:?}", report.reasons);
        assert_eq!(report.trials[0].incoming.messages, 50);
        assert_eq!(figure(&report.trials[0], "connections reused"), 0.0);
    }
}

#[test]
fn wrong_answers_are_errors_with_their_reason() {
    let address = server(|before, _, tcp| {
        // The first request is the probe before the measurement.
        let response = match before {
            1 => "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
            2 => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhe",
            3 => return false,
            _ => OK,
        };
        send(tcp, response);
        true
    });
    let report = run("http", address, &["--path", "/", "--requests", "30", "--connections", "3"]).expect("measured");
    let trial = &report.trials[0];
    assert!(!report.holds);
    assert_eq!((trial.expected, trial.incoming.messages), (30, 27));
    assert_eq!((figure(trial, "errors"), trial.faults.dropped_sessions), (3.0, 1));
    let reasons = report.reasons.join("; ");
    for reason in [
        "1 of 30 requests: 500 Internal Server Error",
        "1 of 30 requests: 2 bytes in place of 5",
        "1 of 30 requests: closed before the answer",
    ] {
        assert!(reasons.contains(reason), "{reasons}");
    }
}

/// No coordinated omission: a request that waited for the only connection counts from its planned time.
#[test]
fn in_an_open_loop_latency_counts_from_the_planned_time() {
    let measured = || {
        let address = server(|before, _, tcp| {
            if before == 1 {
                std::thread::sleep(Duration::from_millis(400));
            }
            send(tcp, OK);
            true
        });
        let arguments =
            ["--path", "/", "--rate", "100", "--connections", "1", "--warm-up", "0s", "--duration", "500ms"];
        run("http", address, &arguments).expect("measured").trials.remove(0)
    };
    // On a busy machine the time is over before all 50 planned are sent.
    let trial = (0..RUNS_MAX).map(|_| measured()).find(|trial| trial.expected >= 40).expect("most planned were sent");
    let latency = trial.latency.as_ref().expect("timed");
    assert_eq!(latency.count, trial.expected);
    // A closed loop would have counted one slow answer; half of the plan was behind it.
    assert!(latency.p50_us >= 100_000, "{latency:?}");
}

/// The other threads of the process, which other tests keep busy, too, do not count as the load.
#[test]
fn users_are_counted_up_to_the_bound_and_the_bound_is_named() {
    let address = server(|_, _, tcp| {
        send(tcp, OK);
        true
    });
    let report = beside_busy_threads(|| users(address, "50ms", &["--users-start", "8", "--users-max", "16"]));
    let best = &report.trials[report.result.expect("a result")];
    assert_eq!(best.clients, 16);
    assert!(best.load_cores < 0.3, "{best:?}");
    assert!(report.holds, "{:?}", report.reasons);
    assert!(report.transcript[0].starts_with("16 users that think 50 ms"), "{:?}", report.transcript);
    assert!(report.transcript[1].contains("16 is --users-max; the server may hold more"), "{:?}", report.transcript);
    assert_eq!(report.table.expect("a table").rows.len(), report.trials.len());
}

/// A window without a single answer would show nothing about the server.
#[test]
fn a_window_of_users_lasts_until_a_request_is_answered() {
    let address = server(|before, _, tcp| {
        // The first request is the probe before the measurement. An answer takes longer than a window.
        std::thread::sleep(Duration::from_millis(if before > 0 { 400 } else { 0 }));
        send(tcp, OK);
        true
    });
    let report = users(address, "10ms", &["--users-start", "1", "--users-max", "1"]);
    assert!(report.holds, "{:?}", report.reasons);
    let trial = &report.trials[report.result.expect("a result")];
    assert!(trial.incoming.messages > 0 && trial.latency.as_ref().expect("timed").p50_us >= 400_000, "{trial:?}");
}

/// Searches in windows of 200 ms, with a bound on the latency that no machine exceeds by accident.
fn users(address: SocketAddr, think: &str, bounds: &[&str]) -> Report {
    let arguments = ["--path", "/", "--users", "--think", think, "--p90", "9s", "--duration", "200ms"];
    run("http", address, &[&arguments, bounds].concat()).expect("measured")
}

/// Returns the result of `measure`, while two other threads of this process use all the time they get.
fn beside_busy_threads<T>(measure: impl FnOnce() -> T) -> T {
    let is_over = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let is_over = is_over.clone();
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
    }
    let measured = measure();
    is_over.store(true, Ordering::Relaxed);
    measured
}

#[test]
fn a_server_too_slow_for_a_single_user_holds_none() {
    let address = server(|before, _, tcp| {
        if before > 0 {
            std::thread::sleep(Duration::from_millis(60));
        }
        send(tcp, OK);
        true
    });
    let arguments =
        ["--path", "/", "--users", "--think", "20ms", "--p90", "20ms", "--duration", "1s", "--users-start", "2"];
    let report = run("http", address, &arguments).expect("measured");
    assert!(!report.holds && report.result.is_none());
    assert!(report.reasons.iter().any(|reason| reason.contains("not even")), "{:?}", report.reasons);
    assert!(report.trials[0].reasons[0].starts_with("p90 is "), "{:?}", report.trials[0].reasons);
}

/// The number of runs before the machine counts as broken.
const RUNS_MAX: usize = 3;
