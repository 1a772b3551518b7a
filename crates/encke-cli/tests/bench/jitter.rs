//! `encke bench jitter`: clients that lose nothing, and clients whose losses are detected.

use serde_json::Value;

use crate::program::{Server, bench, report, text};

#[test]
fn replaying_clients_lose_nothing() {
    for transport in TRANSPORTS {
        holds(&Server::with(&["--set", HISTORY]), &format!("--replay {transport}"));
    }
}

#[test]
fn acknowledging_clients_lose_nothing() {
    for transport in TRANSPORTS {
        holds(&Server::start(), &format!("--ack {transport}"));
    }
}

#[test]
fn sessions_that_are_forgotten_lose_nothing_with_a_history() {
    let server = Server::with(&["--set", HISTORY, "--max-interval-ms", FORGOTTEN_AFTER_MS]);
    for transport in TRANSPORTS {
        let trial = holds(&server, &format!("--replay --ack {transport}"));
        assert!(figure(&trial, "sessions renewed") > 0.0, "{trial}");
    }
}

#[test]
fn a_server_that_forgets_sessions_is_detected_and_each_gap_is_reported() {
    let server = Server::with(&["--max-interval-ms", FORGOTTEN_AFTER_MS]);
    let trial = loses(&server, "--ack");
    assert!(figure(&trial, "sessions renewed") > 0.0, "{trial}");
    assert_eq!(figure(&trial, "sessions renewed"), figure(&trial, "gaps reported"));
}

#[test]
fn clients_without_recovery_lose_messages_at_breaks() {
    let trial = loses(&Server::start(), "");
    assert!(figure(&trial, "delivered") < 100.0, "{trial}");
}

#[test]
fn a_server_without_a_history_fails_before_the_load() {
    let output = bench(&Server::start().url, &format!("{LOAD} --replay --quiet --json")).output().expect("runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), report["trials"].as_array().map(Vec::len)), (Some(1), Some(0)));
    let reason = report["reasons"][0].as_str().expect("a reason");
    assert!(
        reason.starts_with("the server stores no history of /jitter/00000") && reason.contains("--set"),
        "{reason}"
    );
}

/// Runs it; all messages must arrive although connections are cut. Returns the trial.
fn holds(server: &Server, with: &str) -> Value {
    let mut report = report(&server.url, &format!("{LOAD} {with}"));
    let trial = report["trials"][0].take();
    assert_eq!(
        trial["faults"],
        serde_json::json!({"lost": 0, "doubled": 0, "reordered": 0, "misdelivered": 0, "late": 0, "dropped_sessions": 0})
    );
    assert!(figure(&trial, "connections cut") > 20.0, "{trial}");
    assert_eq!(figure(&trial, "delivered"), 100.0);
    trial
}

/// Runs it; messages must be lost, and nothing else may fail. Returns the trial.
fn loses(server: &Server, with: &str) -> Value {
    let line = format!("{LOAD} {with} --late-after 1s --quiet --json");
    let output = bench(&server.url, &line).output().expect("runs");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!((output.status.code(), &report["holds"]), (Some(1), &Value::Bool(false)));
    let faults = &report["trials"][0]["faults"];
    assert!(faults["lost"].as_u64() > Some(0), "{faults}");
    assert_eq!((&faults["doubled"], &faults["reordered"]), (&Value::from(0), &Value::from(0)));
    report["trials"][0].clone()
}

fn figure(trial: &Value, name: &str) -> f64 {
    let figures = trial["figures"].as_array().expect("figures");
    figures.iter().find(|figure| figure["name"] == name).expect(name)["value"].as_f64().expect("a number")
}

const HISTORY: &str = r#"channels=[{pattern="/jitter/**",history_messages=1000}]"#;
const TRANSPORTS: [&str; 5] = [
    "--transport websocket",
    "--transport long-polling",
    "--transport eventsource",
    "--http2",
    "--http2 --streams-per-connection 3",
];
const LOAD: &str = "jitter --clients 30 --rate 40 --duration 1500ms --cut-every 600ms --offline 300ms";
/// Long enough for a busy machine to open the clients, and shorter than many are offline.
const FORGOTTEN_AFTER_MS: &str = "300";
