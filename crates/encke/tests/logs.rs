//! The contents of the logs at the most verbose level (row 39 of `docs/contributing/bad-input.md`). These tests have their own process, because the log
//! is global.

#[allow(dead_code, unused_imports)]
#[path = "wire/common/mod.rs"]
mod common;

use std::io::{self, Write};
use std::sync::{LazyLock, Mutex, PoisonError};

use common::{TestServer, Ws, settings};
use encke::{Access, Grant, RouteRequest, Server};
use serde_json::json;

/// The log of this process, in memory.
struct Log;

static TEXT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

impl Log {
    /// Switches the log on, once.
    fn start() {
        static STARTED: LazyLock<()> = LazyLock::new(|| {
            let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
            subscriber.with_writer(|| Log).init();
        });
        LazyLock::force(&STARTED);
    }

    fn text() -> String {
        String::from_utf8(TEXT.lock().unwrap_or_else(PoisonError::into_inner).clone()).expect("text")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TEXT.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A reader of the logs can neither take over a session nor read published data; a sender of names cannot write lines
/// into them.
#[test]
fn the_logs_contain_no_secrets_and_no_forged_lines() {
    Log::start();
    let panics = async |request: RouteRequest| request.hold().until(|_| panic!("as planned")).await.map(|_| "");
    let server = TestServer::of(Server::builder().settings(settings()).route("/panics", panics));

    let mut poller = server.poller();
    let cookie = poller.http.cookie.clone().expect("a cookie");
    poller.call(json!({"id": "1", "channel": "/a\nFORGED one", "data": "SECRET-data"}));
    poller.call(json!({"id": "2", "channel": "/meta/subscribe", "subscription": "/a\u{1b}[31m\r\nFORGED two"}));
    poller.call(json!({"id": "3", "channel": "/fine", "data": "SECRET-data", "ext": {"token": "SECRET-token"}}));
    let foreign = [("origin", "http://evil.example/\tFORGED"), ("authorization", "Bearer SECRET-header")];
    for _ in 0..3 {
        server.http().request("POST", "/cometd?token=SECRET-query", &foreign, b"[]");
    }
    server.http().request("GET", "/hold/a?timeout=0", &foreign, b"");
    server.http().post_raw(r#"[{"channel":"/meta/handshake","ext":{"password":"SECRET-password"}}]"#);
    let mut ws = Ws::connect(server.address(), &[]);
    ws.handshake();
    ws.send_raw(common::raw_frame(0x83, b"FORGED"));
    ws.closed();
    server.http().request("GET", "/cometd?jsonp=FORGED%0aFORGED()&message=x", &[], b"");
    let (poller_id, ws_id) = (poller.id.clone(), ws.id.clone());
    server.handle.disconnect(&poller_id);
    poller.poll(json!({}));
    assert_eq!(server.http().get("/panics").status, 500);
    server.stop();

    let text = Log::text();
    assert!(text.contains("session opened"), "the log is on:\n{text}");
    let settings_named = text.lines().filter(|line| line.contains("origin refused; allowed_origins")).count();
    assert_eq!(settings_named, 1, "the first refused origin is logged with the setting that would allow it:\n{text}");
    let refused = |path: &str| {
        let lines = text.lines().filter(|line| line.contains("origin refused") && line.contains("evil.example"));
        lines.filter(|line| line.contains("127.0.0.1") && line.contains(path)).count()
    };
    assert_eq!(
        (refused("\"/cometd\""), refused("\"/hold/a\"")),
        (3, 1),
        "one line for each, with address and path:\n{text}"
    );
    let panics = text.lines().filter(|line| line.contains("the condition of a held request has panicked")).count();
    assert_eq!(panics, 1, "a condition that panics is logged:\n{text}");
    for secret in [poller_id.as_str(), &ws_id, &cookie, "SECRET"] {
        assert!(!text.contains(secret), "{secret} in:\n{text}");
    }
    for line in text.lines() {
        assert!(line.starts_with("20"), "every line begins with its time: {line}");
        assert!(!line.contains(['\u{1b}', '\r', '\t']), "{line:?}");
    }
}

#[test]
fn a_start_warns_of_channels_below_those_of_authorizers() {
    Log::start();
    let warnings = |patterns: &[&str]| {
        let before = Log::text().len();
        let authorize = |builder: encke::Builder, pattern: &&str| builder.authorize(pattern, |_: &Access| Grant::Grant);
        TestServer::of(patterns.iter().fold(Server::builder().settings(settings()), authorize)).stop();
        let text = Log::text().split_off(before);
        text.lines().filter(|line| line.contains("nobody about those below")).map(String::from).collect::<Vec<_>>()
    };
    let holes = warnings(&["/room/*", "/a", "/b/*", "/b/**", "/c/*"]);
    assert!(holes.len() == 1 && holes[0].contains("/c/* /room/*") && !holes[0].contains("/b"), "{holes:?}");
    for closed in [&["/room/**"] as &[&str], &["/room/*", "/**"], &["/room/a"], &[]] {
        assert_eq!(warnings(closed), Vec::<String>::new(), "{closed:?}");
    }
}
