//! Retries, order and limits.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use encke_webhooks::{EventKind, Notify};
use serde_json::{Value, json};

use crate::common::{Answer, Backend, Gate, World, soon, webhook};

#[tokio::test]
async fn a_notification_is_posted_again_with_its_id_until_the_backend_takes_it() {
    let requests = AtomicUsize::new(0);
    let backend = Backend::start(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::Status(500),
        1 => Answer::Raw(Vec::new()),
        2 => Answer::Status(503),
        _ => Answer::Json(Value::Null),
    });
    let world = World::start(&[webhook(backend.address, &[EventKind::Opened, EventKind::Ended])]);
    let client = world.client("ann").await.expect("a session");
    soon(client.disconnect()).await.expect("a disconnect");
    let seen = backend.wait_for(5).await;
    let kinds: Vec<&str> = seen.iter().map(|seen| seen.kind.as_str()).collect();
    assert_eq!(kinds, ["opened", "opened", "opened", "opened", "ended"], "the next event waits for all retries");
    let ids: HashSet<&str> = seen.iter().map(|seen| seen.id.as_str()).collect();
    assert_eq!(ids.len(), 2);
    assert!(seen.iter().all(|seen| seen.is_signed), "each try is signed");
    assert_eq!(world.metric("encke_webhook_retries_total").await, 3);
}

#[tokio::test]
async fn a_notification_that_no_request_delivers_is_dropped_and_counted() {
    let backend = Backend::start(|_| Answer::Status(500));
    let mut settings = webhook(backend.address, &[EventKind::Opened, EventKind::Ended]);
    settings.notification_attempts_max = 3;
    settings.breaker_failures = 1_000;
    let world = World::start(&[settings]);
    let _client = world.client("ann").await.expect("a session");
    world.wait_for_metric("encke_webhook_notifications_dropped_total", 1).await;
    assert_eq!(backend.kinds(), ["opened", "opened", "opened"]);
}

/// Names users, and answers everything else when the gate is open.
fn gated(gate: &Gate) -> Backend {
    let held = gate.clone();
    Backend::start(move |seen| match seen.kind.as_str() {
        "handshake" => Answer::Json(json!({ "allow": true, "user": seen.data["ext"]["name"] })),
        _ => Answer::After(held.clone(), json!({ "allow": true })),
    })
}

#[tokio::test]
async fn sessions_are_served_in_parallel_up_to_a_limit_and_each_in_order() {
    let gate = Gate::default();
    let backend = gated(&gate);
    let mut settings = webhook(backend.address, &[EventKind::Handshake, EventKind::Publish]);
    settings.requests_in_flight_max = 2;
    let world = World::start(&[settings]);
    let mut clients = Vec::new();
    for name in ["a", "b", "c", "d"] {
        clients.push(world.client(name).await.expect("a session"));
    }
    let mut pending = Vec::new();
    for client in &clients {
        for n in 0..2 {
            pending.push(client.start_publish("/hooked/a", &json!({ "n": n })).await.expect("sent"));
        }
    }
    backend.wait_for(4 + 2).await;
    world.wait_for_metric("encke_webhook_queue_messages", 4).await;
    assert_eq!(backend.seen().len(), 4 + 2, "requests_in_flight_max");
    gate.open();
    for reply in pending {
        soon(reply).await.expect("allowed");
    }
    assert_eq!(backend.busy_max(), 2);
    let mut numbers: HashMap<String, Vec<Value>> = HashMap::new();
    for seen in backend.seen().iter().filter(|seen| seen.kind == "publish") {
        numbers.entry(seen.data["session"].to_string()).or_default().push(seen.data["data"]["n"].clone());
    }
    assert_eq!(numbers.len(), 4);
    assert!(numbers.values().all(|numbers| *numbers == [0, 1]), "{numbers:?}");
}

#[tokio::test]
async fn a_full_queue_refuses_decisions_and_drops_notifications() {
    let gate = Gate::default();
    let backend = gated(&gate);
    let mut settings = webhook(backend.address, &[EventKind::Handshake, EventKind::Publish, EventKind::Ended]);
    settings.queue_messages_max = 2;
    let world = World::start(&[settings]);
    let mut clients = Vec::new();
    for name in ["a", "b", "c"] {
        clients.push(world.client(name).await.expect("a session"));
    }
    let held = [
        clients[0].start_publish("/hooked/a", &json!({})).await.expect("sent"),
        clients[1].start_publish("/hooked/a", &json!({})).await.expect("sent"),
    ];
    backend.wait_for(3 + 2).await;
    let refused = clients[2].publish("/hooked/a", &json!({})).await.expect_err("no room").to_string();
    assert!(refused.contains("backend_unavailable"), "{refused}");
    soon(clients[2].disconnect()).await.expect("a disconnect");
    world.wait_for_metric("encke_webhook_notifications_dropped_total", 1).await;
    gate.open();
    for reply in held {
        soon(reply).await.expect("allowed");
    }
    assert_eq!(world.metric("encke_webhook_undecided_total").await, 1);
}

#[tokio::test]
async fn bytes_of_waiting_events_have_a_limit() {
    let gate = Gate::default();
    let held = gate.clone();
    let backend = Backend::start(move |_| Answer::After(held.clone(), json!({ "allow": true })));
    let mut settings = webhook(backend.address, &[EventKind::Publish]);
    settings.queue_bytes_max = 8 * 1024;
    let world = World::start(&[settings]);
    let (small, large) = (world.client("a").await.expect("a session"), world.client("b").await.expect("a session"));
    let waiting = small.start_publish("/hooked/a", &json!({})).await.expect("sent");
    backend.wait_for(1).await;
    let text = "x".repeat(8 * 1024);
    let refused = large.publish("/hooked/a", &json!({ "text": text })).await.expect_err("no room").to_string();
    assert!(refused.contains("backend_unavailable"), "{refused}");
    assert!(world.metric("encke_webhook_queue_bytes").await > 0);
    gate.open();
    soon(waiting).await.expect("allowed");
}

#[tokio::test]
async fn a_notification_is_dropped_while_the_backend_is_down_if_so_configured() {
    let mut settings = webhook(Backend::nowhere(), &[EventKind::Opened]);
    settings.when_down.opened = Notify::Drop;
    settings.breaker_failures = 1;
    settings.breaker_pause_ms = 60_000;
    settings.breaker_pause_ms_max = 60_000;
    let world = World::start(&[settings]);
    for name in ["a", "b", "c"] {
        world.client(name).await.expect("a session");
    }
    world.wait_for_metric("encke_webhook_notifications_dropped_total", 3).await;
    assert_eq!(world.metric("encke_webhook_breaker_open").await, 1);
    assert_eq!(world.metric("encke_webhook_queue_messages").await, 0);
}
