//! `encke bench avalanche`: messages that survive a restart, and losses that are detected.

use serde_json::Value;

use crate::program::{bench, each, report, text};
use crate::proxy::{LateReplies, LateSubscribes, Proxy};

#[test]
fn a_clean_stop_loses_nothing_and_sessions_continue_with_a_connect() {
    each(&["--ack", "--replay --transport long-polling"], |with| {
        let trial = report(UNREACHABLE, &format!("{LOAD} --kill term {with}"))["trials"][0].take();
        assert_eq!((figure(&trial, "back with a handshake"), figure(&trial, "gaps reported")), (0.0, 0.0), "{trial}");
        assert_eq!(figure(&trial, "back with a connect"), 30.0, "{trial}");
        assert!(figure(&trial, "messages confirmed") > 5.0, "{trial}");
        assert_eq!(trial["expected"], figure(&trial, "messages confirmed") as u64 * 30);
    });
}

#[test]
fn confirmations_after_the_last_publication_are_waited_for_with_their_deliveries() {
    let proxy = Proxy::start(LateReplies::default());
    let server = server_on(proxy.server_port);
    let load = LOAD.replace("--clients 30", "--clients 1");
    let line = format!("{load} --kill term --replay --transport long-polling --port {} --quiet --json", proxy.port);
    let output = bench(UNREACHABLE, &line).args(["--server", &server]).output().expect("runs");
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let trial = &report["trials"][0];
    assert_eq!((&trial["faults"]["lost"], figure(trial, "gaps reported")), (&Value::from(0), 0.0), "{trial}");
    // Publications that waited for the answer to another one were answered. One that was on its way at the stop need not be.
    assert!(figure(trial, "messages without an answer") < figure(trial, "messages confirmed"), "{trial}");
}

#[test]
fn a_killed_server_loses_nothing_confirmed_and_clients_handshake_again() {
    each(&["--replay", "--replay --ack --transport long-polling"], |with| {
        let trial = report(UNREACHABLE, &format!("{LOAD} --kill kill {with}"))["trials"][0].take();
        assert_eq!((figure(&trial, "back with a connect"), figure(&trial, "gaps reported")), (0.0, 0.0), "{trial}");
        assert_eq!(figure(&trial, "back with a handshake"), 30.0, "{trial}");
        assert!(figure(&trial, "50 % back after") <= figure(&trial, "100 % back after"), "{trial}");
    });
}

#[test]
fn a_server_that_forgets_its_sessions_is_detected_and_clients_detect_gaps() {
    // They acknowledge, but do not replay: messages published while they are away do not reach them. Half of the clients come back
    // only after some. One more client looks at the beginning whether the server supports what the load needs.
    let proxy = Proxy::start(LateSubscribes::after(1 + 30 + 15));
    let line = format!("{LOAD} --kill kill --ack --transport long-polling --port {} --quiet --json", proxy.port);
    let server = server_on(proxy.server_port);
    let output = bench(UNREACHABLE, &line).args(["--server", &server]).output().expect("runs");
    let mut report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!((output.status.code(), &report["holds"]), (Some(1), &Value::Bool(false)));
    let trial = report["trials"][0].take();
    assert_eq!((figure(&trial, "back with a handshake"), figure(&trial, "gaps reported")), (30.0, 30.0), "{trial}");
    let faults = &trial["faults"];
    assert_eq!((&faults["doubled"], &faults["reordered"]), (&Value::from(0), &Value::from(0)), "{faults}");
    assert!(faults["lost"].as_u64() > Some(0), "{faults}");
    let reasons = report["reasons"].to_string();
    assert!(reasons.contains("that were confirmed never arrived") && reasons.contains(": --replay"), "{reasons}");
}

#[test]
fn a_server_that_does_not_start_is_an_error_of_one_line() {
    let output =
        bench(UNREACHABLE, LOAD).args(["--quiet", "--server", "sh -c 'echo no such luck >&2; exit 3'"]).output();
    let output = output.expect("runs");
    let printed = text(&output.stderr);
    assert_eq!((output.status.code(), printed.lines().count()), (Some(1), 1), "{printed}");
    assert!(printed.contains("ended instead of listening") && printed.contains("no such luck"), "{printed}");
}

/// The command of a server with a history, behind a proxy.
fn server_on(port: u16) -> String {
    let program = env!("CARGO_BIN_EXE_encke");
    format!(
        "{program} serve --log warn --port {port} --data {{data}} \
         --set 'channels=[{{pattern=\"/avalanche/**\",history_messages=1000}}]'"
    )
}

fn figure(trial: &Value, name: &str) -> f64 {
    let figures = trial["figures"].as_array().expect("figures");
    figures.iter().find(|figure| figure["name"] == name).expect(name)["value"].as_f64().expect("a number")
}

/// The scenario starts its own server.
const UNREACHABLE: &str = "http://127.0.0.1:9";
const LOAD: &str = "avalanche --clients 30 --rate 20 --around 400ms --back-within 60s";
