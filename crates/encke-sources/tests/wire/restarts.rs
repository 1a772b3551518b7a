//! Starts, restarts and stops of sources.

use serde_json::json;

use crate::common::{TestServer, parsed};

fn source(name: &str, script: &str) -> String {
    format!(
        "[[source]]\nkind = \"command\"\nname = \"{name}\"\nchannel = \"/{name}\"\nrestart_pause_ms = 1\nrestart_pause_max_ms = 2\ncommand = [\"sh\", \"-c\", \"{script}\"]\n"
    )
}

#[tokio::test]
async fn a_source_that_fails_does_not_disturb_another() {
    let missing = "[[source]]\nkind = \"command\"\nname = \"bad\"\nrestart_pause_ms = 1\nrestart_pause_max_ms = 2\ncommand = [\"/nowhere/program\"]\n";
    let (server, mut messages) = TestServer::with(
        "/good",
        &(missing.to_string() + &source("good", "while read x </dev/zero; do :; done; echo 1; sleep 1000")),
    )
    .await;
    server.wait_for("errors", "bad", 5).await;
    assert!(server.metric("restarts", "bad") >= 4);
    server.reload(&(missing.to_string() + &source("good", "echo 2; sleep 1000")));
    assert_eq!(messages.data().await, json!(2));
}

#[tokio::test]
async fn a_new_configuration_starts_and_stops_only_what_differs() {
    let server = TestServer::start(None).await;
    let mut messages = server.messages("/*").await;
    let (stays, changes) = (source("stays", "echo 1; sleep 1000"), source("changes", "echo 2; sleep 1000"));
    let first = server.sources.reload(parsed(&(stays.clone() + &changes + &source("goes", "echo 3; sleep 1000"))));
    assert_eq!(first.added, ["stays", "changes", "goes"]);
    let mut all = [messages.data().await, messages.data().await, messages.data().await].map(|data| data.as_u64());
    all.sort();
    assert_eq!(all, [Some(1), Some(2), Some(3)]);
    let next = stays + &source("changes", "echo 4; sleep 1000") + &source("comes", "echo 5; sleep 1000");
    let changes = server.sources.reload(parsed(&next));
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        (changes.added, changes.removed, changes.changed),
        (names(&["comes"]), names(&["goes"]), names(&["changes"]))
    );
    let mut both = [messages.data().await, messages.data().await].map(|data| data.as_u64());
    both.sort();
    assert_eq!(both, [Some(4), Some(5)]);
    assert_eq!((server.metric("runs", "stays"), server.metric("running", "stays")), (1, 1));
    assert!(!server.metrics().contains("source=\"goes\""));
    assert_eq!(server.sources.reload(parsed(&next)), encke_sources::Changes::default());
}

#[tokio::test]
async fn sources_end_when_they_are_stopped_also_while_they_wait_for_their_next_start() {
    let waits = "[[source]]\nkind = \"command\"\nname = \"waits\"\nrestart_pause_ms = 80000000\nrestart_pause_max_ms = 80000000\ncommand = [\"false\"]\n";
    let (server, _messages) = TestServer::with("/x", waits).await;
    server.wait_for("errors", "waits", 1).await;
    assert_eq!(server.metric("running", "waits"), 0);
    server.stop();
    assert!(!server.metrics().contains("source=\"waits\""));
}
