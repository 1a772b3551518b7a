//! A fault of a server is reported as the right kind, with the exact count.

mod proxy;

use std::time::Duration;

use serde_json::Value;

use self::proxy::{Fault, Faulty};
use crate::program::{RUNS_MAX, Server, bench, each, keeping_up, report, text};

/// A server behind such a proxy, and the URL of the proxy.
fn proxied(fault: Fault, every: u64) -> (Server, Faulty, String) {
    let server = Server::with(&["--set", HISTORY]);
    let address = server.url.strip_prefix("http://").and_then(|address| address.parse().ok()).expect("an address");
    let proxy = Faulty::before(address, fault, every);
    let url = format!("http://{}", proxy.address);
    (server, proxy, url)
}

/// The report on a server behind such a proxy, the exit code, and the number of faults made.
fn seen(fault: Fault, every: u64, line: &str) -> (Value, Option<i32>, u64) {
    let (_server, proxy, url) = proxied(fault, every);
    let output = bench(&url, &format!("{line} --quiet --json")).output().expect("runs");
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    (report, output.status.code(), proxy.done())
}

/// Checks that only this fault is reported, with the right count, and that the run fails because of it.
fn check(fault: Fault, name: &str, line: &str) {
    // The run waits for a lost message until it would be late. On a busy machine others may be late, too: then it runs again.
    let mut last = seen(fault, 7, &format!("{line} --late-after 3s"));
    for _ in 1..RUNS_MAX {
        if last.0["trials"][0]["faults"]["late"] == 0 {
            break;
        }
        last = seen(fault, 7, &format!("{line} --late-after 3s"));
    }
    let (report, code, done) = last;
    assert!(done > 10, "{line}: the fault was made {done} times");
    let faults = report["trials"][0]["faults"].as_object().expect("faults");
    for (kind, count) in faults {
        assert_eq!(count.as_u64(), Some(if kind == name { done } else { 0 }), "{line}: {kind} in {faults:?}");
    }
    assert_eq!((code, &report["holds"]), (Some(1), &Value::Bool(false)), "{line}");
    let reasons = report["reasons"].to_string();
    assert!(reasons.contains(&done.to_string()), "{line}: {reasons}");
}

#[test]
fn the_proxy_itself_is_honest() {
    let (_server, proxy, url) = proxied(Fault::None, 1);
    let report = report(&url, BROADCAST);
    assert_eq!((&report["holds"], proxy.done()), (&Value::Bool(true), 0), "{report}");
}

#[test]
fn dropped_messages_are_reported_as_lost() {
    each(&[BROADCAST, CHAT, ROOMS], |line| check(Fault::Drop, "lost", line));
}

#[test]
fn duplicated_messages_are_reported_as_duplicates() {
    each(&[BROADCAST, CHAT, ROOMS], |line| check(Fault::Double, "doubled", line));
}

#[test]
fn faults_over_long_polling_and_in_replies_are_reported() {
    each(&[POLLED, CALLS], |line| {
        each(&[(Fault::Drop, "lost"), (Fault::Double, "doubled")], |(fault, name)| check(fault, name, line));
    });
}

#[test]
fn duplicates_dropped_by_clients_are_reported_if_no_connection_broke() {
    for with in ["--replay", "--replay --ack", "--ack"] {
        check(Fault::Double, "doubled", &format!("{UNBROKEN} {with}"));
    }
    let (report, _, done) = seen(Fault::Double, 7, &format!("{UNBROKEN} --replay --late-after 3s"));
    let figures = report["trials"][0]["figures"].as_array().expect("figures");
    let again = figures.iter().find(|figure| figure["name"] == "came again, dropped by the client");
    assert_eq!(again.map(|figure| figure["value"].as_f64()), Some(Some(done as f64)), "{figures:?}");
}

#[test]
fn swapped_messages_are_reported_as_out_of_order() {
    check(Fault::Swap, "reordered", BROADCAST);
}

#[test]
fn messages_of_two_publishers_may_overtake_each_other() {
    // Bayeux guarantees the order of one publisher on one channel: each of these publishes every 40 messages.
    let line = "chat --clients 40 --rate 400 --duration 1s --warm-up 0s";
    // A load that is late sends several messages of a publisher in a row.
    let measured = || {
        let (_server, proxy, url) = proxied(Fault::Swap, 7);
        (bench(&url, &format!("{line} --quiet --json")).output().expect("runs"), proxy.done())
    };
    let (output, done) = keeping_up(measured);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let reordered = report["trials"][0]["faults"]["reordered"].as_u64().expect("a count");
    assert!(done > 100 && reordered < done / 2, "{done} swapped, {reordered} reported");
    assert_eq!(report["trials"][0]["faults"]["lost"], 0);
}

#[test]
fn delayed_messages_are_reported_as_late_and_in_the_latency() {
    let line = format!("{BROADCAST} --late-after 300ms");
    let (report, code, done) = seen(Fault::Delay(Duration::from_millis(400)), 60, &line);
    let trial = &report["trials"][0];
    // Messages behind a delayed one on its connection are late as well.
    assert!(trial["faults"]["late"].as_u64() >= Some(done) && done > 0, "{done}: {trial}");
    assert!(trial["latency"]["max_us"].as_u64() >= Some(400_000), "{trial}");
    assert_eq!((trial["faults"]["lost"].as_u64(), code), (Some(0), Some(1)), "{trial}");
}

#[test]
fn trials_before_a_server_accepts_no_more_clients_are_reported() {
    // Lost messages make the first trial fail. In the next one three clients and a publisher fail to connect.
    let lines = [
        "broadcast --clients 3 --rate 100,200 --duration 500ms --warm-up 0s",
        "random-channel --clients 3 --rate 100,200 --duration 500ms --warm-up 0s",
        "broadcast --clients 3 --rate 100 --find-max --search-time 5s --duration 500ms --warm-up 0s",
    ];
    each(&lines, |line| {
        let server = Server::start();
        let address = server.url.strip_prefix("http://").and_then(|address| address.parse().ok()).expect("an address");
        let proxy = Faulty::for_connections(address, Fault::Drop, 7, 4);
        let url = format!("http://{}", proxy.address);
        let output = bench(&url, &format!("{line} --late-after 100ms --quiet --json")).output().expect("runs");
        let printed = text(&output.stderr);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{line}: {printed}"));
        assert_eq!(report["trials"].as_array().map(Vec::len), Some(1), "{line}: {report}");
        assert_eq!((output.status.code(), &report["holds"]), (Some(1), &Value::Bool(false)), "{line}");
        let reasons = report["reasons"].to_string();
        assert!(reasons.contains("cannot reach 127.0.0.1:"), "{line}: {reasons}");
    });
}

const BROADCAST: &str = "broadcast --clients 3 --rate 100 --duration 1s --warm-up 0s";
const POLLED: &str = "broadcast --clients 3 --rate 100 --duration 1s --warm-up 0s --transport long-polling";
const CALLS: &str = "request-reply --clients 5 --pause-min 5ms --pause-max 15ms --duration 1s --warm-up 0s";
/// Connections that would be cut only later.
const UNBROKEN: &str = "jitter --clients 3 --rate 100 --duration 1s --cut-every 10m";
const HISTORY: &str = r#"channels=[{pattern="/jitter/**",history_messages=1000}]"#;
const CHAT: &str = "chat --clients 4 --messages 60 --warm-up 0s";
const ROOMS: &str =
    "rooms --clients 6 --rooms 3 --rooms-per-client 2 --batches 20 --batch-size 5 --batch-pause 5ms --warm-up 0s";
