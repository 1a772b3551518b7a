//! `encke bench flood` against its target, against Encke, and against servers that misbehave.

#[path = "http_common/mod.rs"]
mod common;

use std::time::Duration;

use common::{Encke, chunk, figure, run, send, server, unused_address};
use encke::Settings;
use encke_bench::flood_target::{FloodTarget, Io, LogTo, TargetOptions};
use encke_bench::problem::Problem;

/// No chunk should be late, even on a machine that halts for a while.
const FEW: [&str; 10] =
    ["--connections", "40", "--rate", "400", "--chunk-every", "200ms", "--duration", "500ms", "--late-after", "4s"];
const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

/// The id in a request's target.
fn id(head: &str) -> &str {
    head.split(' ').nth(1).and_then(|target| target.split("id=").nth(1)).unwrap_or_default()
}

/// A stream whose chunks have these numbers, and which then ends or falls silent.
fn misnumbered(numbers: &'static [u64], ends: bool) -> std::net::SocketAddr {
    server(move |_, head, tcp| {
        let id = id(head);
        send(tcp, &format!("{HEAD}{}", chunk(&format!("Welcome! Your Id: {id}\n"))));
        for number in numbers {
            send(tcp, &chunk(&format!("Chunk {number} for Id: {id}\n")));
        }
        !ends
    })
}

#[test]
fn streams_from_one_thread_or_many_hold() {
    for io in [Io::Async, Io::Threads] {
        let chunk_every = Duration::from_millis(200);
        let options = TargetOptions { io, port: 0, chunk_every, connections_max: None, stack: 64 * 1024 };
        let target = FloodTarget::start(&options, LogTo::Nowhere).expect("a target");
        let report = run("flood", target.address, &FEW).expect("measured");
        assert!(report.holds, "{io:?}: {:?}", report.reasons);
        let trial = &report.trials[0];
        assert_eq!(figure(trial, "connections welcomed"), 40.0);
        assert!(trial.incoming.messages >= 80, "{}", trial.incoming.messages);
        assert!(trial.faults.none());
        assert_eq!(trial.latency.as_ref().expect("welcomes are timed").count, 40);
        let opened: u64 =
            report.table.expect("rates").rows.iter().map(|row| row[1].parse::<u64>().expect("a count")).sum();
        assert_eq!(opened, 40);
        assert_eq!(report.transcript[0], "streaming responses of GET /comet");
    }
}

#[test]
fn against_encke_each_connection_is_a_session_with_a_held_connect() {
    let encke = Encke::start(Settings::default());
    let report = run("flood", encke.address(), &FEW).expect("measured");
    assert!(report.holds, "{:?}", report.reasons);
    assert!(report.transcript[0].starts_with("long-polling"), "{:?}", report.transcript);
    let trial = &report.trials[0];
    assert_eq!(figure(trial, "connections welcomed"), 40.0);
    assert!(trial.incoming.messages >= 80, "{}", trial.incoming.messages);
}

#[test]
fn a_wrong_welcome_is_reported() {
    let address = server(|_, _, tcp| {
        send(tcp, &format!("{HEAD}{}", chunk("Hello!\n")));
        true
    });
    let report = run("flood", address, &FEW).expect("measured");
    assert!(!report.holds);
    assert_eq!(report.reasons, ["40 connections: no welcome: \"Hello!\" in place of a welcome"]);
    assert_eq!(report.trials[0].faults.dropped_sessions, 40);
}

#[test]
fn chunks_that_are_lost_doubled_or_out_of_order_are_reported() {
    let misnumberings = [
        (&[1, 2, 2, 3][..], "more than once"),
        (&[1, 3, 2, 4], "out of order"),
        (&[1, 2, 5, 6], "2 of 6 chunks never came"),
    ];
    // No further chunk is due, since the stream ends.
    let arguments = ["--connections", "1", "--chunk-every", "2s", "--late-after", "2s", "--duration", "1s"];
    std::thread::scope(|scope| {
        for (numbers, fault) in misnumberings {
            scope.spawn(move || {
                let reasons =
                    run("flood", misnumbered(numbers, true), &arguments).expect("measured").reasons.join("; ");
                assert!(reasons.contains(fault), "{numbers:?}: {reasons}");
            });
        }
    });
}

#[test]
fn a_stream_that_falls_silent_or_ends_is_reported() {
    let quick = ["--connections", "3", "--chunk-every", "200ms", "--late-after", "100ms", "--duration", "3s"];
    let report = run("flood", misnumbered(&[1], false), &quick).expect("measured");
    assert!(report.trials[0].faults.lost >= 3, "{:?}", report.trials[0].faults);
    assert!(report.reasons.iter().any(|reason| reason.contains("never came")), "{:?}", report.reasons);
    let address = server(|_, head, tcp| {
        send(tcp, &format!("{HEAD}{}0\r\n\r\n", chunk(&format!("Welcome! Your Id: {}\n", id(head)))));
        true
    });
    let report = run("flood", address, &quick).expect("measured");
    assert!(
        report.reasons.contains(&"3 connections: ended: the response came to an end".into()),
        "{:?}",
        report.reasons
    );
}

#[test]
fn a_target_that_is_not_there_or_speaks_no_bayeux_gets_one_line() {
    let Err(Problem::Unreachable { reason, .. }) = run("flood", unused_address(), &FEW) else { panic!("no problem") };
    assert_eq!(reason, "Connection refused");
    let address = server(|_, _, tcp| {
        send(tcp, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        true
    });
    let Err(Problem::NotBayeux { reason, .. }) = run("flood", address, &FEW) else { panic!("no problem") };
    assert_eq!(reason, "answered 404 Not Found");
}
