//! `encke bench --http2`, without TLS and with it.

use crate::program::{Server, bench, each, report, text};

#[test]
fn everything_arrives_over_http2_with_one_and_with_several_streams_on_a_connection() {
    for options in [&[][..], &["--dev-tls"]] {
        let server = Server::with(options);
        for streams in ["", "--streams-per-connection 10"] {
            let line = "rooms --clients 30 --rooms 6 --rooms-per-client 3 --batches 50 --warm-up 100ms --http2";
            let report = report(&server.url, &format!("{line} {streams}"));
            let trial = &report["trials"][0];
            assert_eq!(trial["incoming"]["messages"], trial["expected"]);
            let settings = report["settings"].as_array().expect("settings");
            assert!(settings.iter().any(|setting| setting["name"] == "http2"), "{settings:?}");
        }
    }
}

#[test]
fn workers_reconnects_and_sessions_opened_one_after_another_go_over_http2() {
    let server = Server::start();
    let http2 = "--http2 --streams-per-connection 4";
    each(
        &[
            "broadcast --clients 20 --rate 100 --duration 500ms --warm-up 100ms --workers 2",
            "reconnect --clients 20 --rounds 2",
            "open --sessions 30",
        ],
        |line| drop(report(&server.url, &format!("{line} {http2}"))),
    );
}

#[test]
fn more_streams_than_the_server_accepts_are_refused_with_its_limit() {
    let server = Server::with(&["--http2-streams-max", "5"]);
    let line = "broadcast --clients 20 --http2 --streams-per-connection 6 --quiet";
    let output = bench(&server.url, line).output().expect("runs");
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("--streams-per-connection may be 5 at most") && printed.lines().count() == 1, "{printed}");
}
