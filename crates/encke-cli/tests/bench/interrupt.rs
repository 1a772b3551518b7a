//! Ctrl-C.

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::program::{Server, TIMEOUT, bench, run, text, wait};

fn start(url: &str, line: &str) -> Child {
    let mut command = bench(url, line);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
}

/// Reads the output of the load until a line contains `wanted`.
fn read_until(child: &mut Child, wanted: &str) {
    use std::io::{BufRead, BufReader};
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("a line"), 0, "no {wanted}");
    }
    // Later output must find a reader.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
}

fn interrupt(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("is there");
}

#[test]
fn ctrl_c_gives_the_report_so_far() {
    let server = Server::start();
    for (workers, signal) in [(1, Signal::INT), (2, Signal::TERM)] {
        let line = format!("broadcast --clients 10 --duration 600s --warm-up 0s --workers {workers} --json");
        let mut child = start(&server.url, &line);
        read_until(&mut child, "received/s");
        interrupt(&child, signal);
        let output = child.wait_with_output().expect("ends");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(output.status.code(), Some(0), "{report}");
        assert_eq!((&report["interrupted"], &report["holds"]), (&Value::from(true), &Value::from(true)), "{report}");
        assert!(report["trials"][0]["incoming"]["messages"].as_u64() > Some(0), "{report}");
        assert_eq!(report["trials"][0]["faults"]["lost"], 0, "what is under way is waited for");
    }
}

#[test]
fn ctrl_c_before_the_first_measurement_is_not_a_success() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("binds");
    let url = format!("http://{}", silent.local_addr().expect("bound"));
    let mut child = start(&url, "chat --clients 5 --quiet --json");
    // The first connection shows that the signal handlers are installed.
    let held = silent.accept().expect("a client");
    interrupt(&child, Signal::INT);
    assert_eq!(wait(&mut child), Some(1));
    drop(held);
    let output = child.wait_with_output().expect("ended");
    assert!(text(&output.stdout).contains("\"interrupted\": true"), "{}", text(&output.stdout));
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let server = Server::start();
    // Nobody answers there, so after the first signal the run still waits a second for replies.
    let mut child = start(&server.url, "request-reply --channel /service/none --duration 600s --warm-up 0s");
    read_until(&mut child, "sent/s");
    while child.try_wait().expect("waits").is_none() {
        interrupt(&child, Signal::INT);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(wait(&mut child), Some(130));
}

#[test]
fn ctrl_c_while_a_history_is_filled_is_an_interruption() {
    let server = Server::start();
    let mut child = start(&server.url, "replay --messages 50M --json");
    read_until(&mut child, "filling the history");
    interrupt(&child, Signal::INT);
    assert_eq!(wait(&mut child), Some(1));
    let printed = text(&child.wait_with_output().expect("ended").stdout);
    let report: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!((&report["interrupted"], &report["trials"]), (&Value::from(true), &serde_json::json!([])), "{printed}");
}

#[test]
fn a_server_that_ends_while_a_history_is_filled_is_an_error() {
    let server = Server::start();
    let mut command = bench(&server.url, "replay --messages 50M --quiet");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(server);
    assert!(matches!(wait(&mut child), Some(1 | 3)));
    let printed = text(&child.wait_with_output().expect("ended").stderr);
    assert!(printed.starts_with("encke: ") && printed.lines().count() == 1, "{printed}");
}

#[test]
fn ctrl_c_in_a_terminal_ends_an_avalanche_and_its_server_without_a_verdict() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let line = format!("avalanche --clients 10 --rate 20 --around 600s --port {port} --json");
    let mut command = bench("http://127.0.0.1:9", &line);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn().expect("starts");
    read_until(&mut child, "sending");
    // A terminal signals the whole process group.
    kill_process_group(Pid::from_child(&child), Signal::INT).expect("is there");
    assert_eq!(wait(&mut child), Some(1));
    let printed = text(&child.wait_with_output().expect("ended").stdout);
    let report: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!((&report["interrupted"], &report["trials"]), (&Value::from(true), &serde_json::json!([])), "{printed}");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the server is still there");
}

#[test]
fn a_second_ctrl_c_leaves_no_server_behind() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let line = format!("avalanche --clients 10 --around 600s --port {port}");
    let mut child = start("http://127.0.0.1:9", &line);
    read_until(&mut child, "sending");
    // Both at the same time, or the run would end before the second.
    [Signal::STOP, Signal::INT, Signal::TERM, Signal::CONT].into_iter().for_each(|signal| interrupt(&child, signal));
    assert!(matches!(wait(&mut child), Some(1 | 130)));
    let began = std::time::Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        assert!(began.elapsed() < TIMEOUT, "the server is still there");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn the_load_measures_itself_and_ends() {
    let began = std::time::Instant::now();
    let line = "self-test --clients 50 --wanted 20k --added-p99 10s --duration 500ms --warm-up 0s --json --quiet";
    let (code, shown, printed) = run("http://127.0.0.1:1", line);
    let report: Value = serde_json::from_str(&shown).unwrap_or_else(|_| panic!("{printed}"));
    // The speed of this machine does not matter here.
    assert!(matches!(code, Some(0 | 1)) && began.elapsed() < TIMEOUT, "{report}");
    let trials = report["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 3);
    for trial in trials {
        assert_eq!(
            (&trial["faults"]["lost"], &trial["faults"]["doubled"]),
            (&Value::from(0), &Value::from(0)),
            "{trial}"
        );
        assert!(trial["incoming"]["messages"].as_u64() > Some(0), "{trial}");
    }
}
