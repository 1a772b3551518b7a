//! Several processes in one run.

use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::program::{Server, TIMEOUT, bench, report, text};

/// The ids of a process's children.
fn children(id: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("a list").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // The fields after the name in brackets: state, parent.
    let parent = |id: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()
    };
    ids.filter(|child| parent(*child) == Some(id)).collect()
}

#[test]
fn workers_share_clients_and_messages_and_add_up() {
    let server = Server::start();
    let report = report(&server.url, "chat --clients 31 --messages 100 --workers 3 --warm-up 100ms");
    let trial = &report["trials"][0];
    assert_eq!(trial["outgoing"]["messages"], 100);
    assert_eq!(trial["expected"], 3100);
    assert_eq!(trial["incoming"]["messages"], 3100);
}

#[test]
fn workers_without_a_publisher_expect_the_publications_of_others() {
    let server = Server::start();
    let report =
        report(&server.url, "broadcast --clients 20 --rate 100 --duration 1s --warm-up 100ms --workers 4 --core 0");
    let trial = &report["trials"][0];
    assert_eq!(trial["expected"], 2200);
    assert!(trial["latency"]["count"].as_u64() >= Some(1900), "{trial}");
    assert!(trial["server"]["cores"].as_f64() > Some(0.0), "{trial}");
    assert!(!trial["samples"].as_array().expect("samples").is_empty());
}

#[test]
fn a_worker_that_dies_is_one_clear_error_and_ends_the_others() {
    let server = Server::start();
    let mut command = bench(&server.url, "broadcast --clients 10 --duration 60s --workers 2 --quiet");
    let master = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let began = Instant::now();
    let mut workers = children(master.id());
    while workers.len() < 2 && began.elapsed() < TIMEOUT {
        workers = children(master.id());
    }
    let victim = Pid::from_raw(workers[1]).expect("a process");
    kill_process(victim, Signal::KILL).expect("is there");
    let output = master.wait_with_output().expect("ends");
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.starts_with("encke: worker ") && printed.contains("of 2 died: ") && printed.lines().count() == 1,
        "{printed}"
    );
    let other = Pid::from_raw(workers[0]).expect("a process");
    assert!(kill_process(other, Signal::TERM).is_err(), "the other worker is still there");
}

#[test]
fn a_worker_that_cannot_connect_ends_the_run_with_its_reason() {
    let (code, shown, printed) = crate::program::run("http://127.0.0.1:1", "chat --clients 10 --workers 2 --quiet");
    assert_eq!((code, shown.as_str()), (Some(3), ""));
    assert!(printed.starts_with("encke: cannot reach 127.0.0.1:1: ") && printed.lines().count() == 1, "{printed}");
}

#[test]
fn workers_that_lose_their_master_end() {
    let server = Server::start();
    let mut command = bench(&server.url, "broadcast --clients 10 --duration 60s --workers 2 --quiet");
    let mut master = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let began = Instant::now();
    let mut workers = children(master.id());
    while workers.len() < 2 && began.elapsed() < TIMEOUT {
        workers = children(master.id());
    }
    master.kill().expect("is there");
    let _ = master.wait();
    for worker in workers {
        let id = Pid::from_raw(worker).expect("a process");
        while rustix::process::test_kill_process(id).is_ok() && !is_zombie(worker) {
            assert!(began.elapsed() < TIMEOUT, "a worker outlives its master");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// True if the process has ended and was not reaped.
fn is_zombie(id: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}
