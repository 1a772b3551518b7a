//! A panic of the store thread is visible from outside. This test has its own process, because it installs a global
//! log, and that log panics.

#[allow(dead_code, unused_imports)]
#[path = "wire/common/mod.rs"]
mod common;

use std::fs;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Folder, Http, Poller, Ws, settings, wait_until};
use encke::{ChannelRule, HistoryCommit, Server, Settings};
use serde_json::{Value, json};

/// A log that panics at its first line.
#[derive(Clone)]
struct Log;

static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(HAS_PANICKED.swap(true, Ordering::Relaxed), "the log panics");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error of the reply to a publication; null if the publication was stored.
fn publish(poller: &mut Poller, filler: &str) -> Value {
    poller.call(json!({ "id": "p", "channel": "/h/a", "data": filler }))["error"].clone()
}

/// The directory of the log is removed, so the store cannot create its next file. Its thread panics while logging
/// that.
#[test]
fn after_a_panic_of_the_store_readyz_fails_and_delivery_continues() {
    tracing_subscriber::fmt().with_max_level(tracing::Level::ERROR).with_writer(|| Log).init();
    let folder = Folder::new();
    let rule = ChannelRule { pattern: "/h/**".into(), history_messages: 1, ..ChannelRule::default() };
    let settings =
        Settings { data: folder.name(), history_commit: HistoryCommit::Always, channels: vec![rule], ..settings() };
    let filler = "x".repeat(settings.message_bytes_max - 1_000);
    let running = Server::builder().settings(settings).start().expect("the server starts");
    let status = || {
        let response = Http::connect(running.address()).get("/readyz");
        (response.status, response.text())
    };
    let mut poller = Poller::open(Http::connect(running.address()));
    assert_eq!(publish(&mut poller, &filler), Value::Null);
    assert_eq!(status(), (200, "ready\n".into()));

    fs::remove_dir_all(folder.path().join("history")).expect("it is there");
    let bytes_max = 128 << 20;
    let refused = (0..bytes_max / filler.len()).map(|_| publish(&mut poller, &filler)).find(|error| !error.is_null());
    assert_eq!(refused, Some(json!("507:/h/a:history_not_stored")), "a file of the log is full before that");
    wait_until("/readyz says no", || status() == (503, "histories are not stored\n".into()));
    assert_eq!(Http::connect(running.address()).get("/healthz").status, 200);
    assert!(Http::connect(running.address()).get("/metrics").text().contains("\nencke_history_store_panicked 1\n"));

    let mut subscriber = Ws::connect(running.address(), &[]);
    subscriber.handshake();
    subscriber.subscribe("/h/a");
    assert_eq!(publish(&mut poller, "last"), json!("507:/h/a:history_not_stored"));
    assert_eq!(subscriber.next_json()[0]["data"], "last");
    running.handle().drain();
    running.join();
}
