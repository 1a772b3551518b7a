//! Backends that are down, slow, late or wrong: a decision has an outcome in time, and other sessions go on undisturbed.

use encke_client::Client;
use encke_webhooks::{Decide, EventKind, WebhookSettings, WhenDown};
use serde_json::{Value, json};

use crate::common::{Answer, Backend, Gate, World, soon, webhook};

/// A webhook for publishes that does not wait long.
fn hurried(backend: &Backend) -> WebhookSettings {
    let settings = webhook(backend.address, &[EventKind::Publish, EventKind::Service]);
    WebhookSettings { request_timeout_ms: 200, decision_timeout_ms: 300, call_timeout_ms: 300, ..settings }
}

async fn publish(client: &Client) -> Result<(), String> {
    soon(client.publish("/hooked/a", &json!({}))).await.map(drop).map_err(|error| error.to_string())
}

/// Publishes, and expects the refusal of a backend without an answer. The session lives on, and so does another one.
async fn expect_refusal(world: &World) {
    let mut witness = world.witness().await;
    let client = world.client("ann").await.expect("a session");
    let refused = client.start_publish("/hooked/a", &json!({})).await.expect("sent");
    witness.lives().await;
    let refused = soon(refused).await.expect_err("no decision").to_string();
    assert!(refused.contains("403:backend_unavailable:publish_denied"), "{refused}");
    witness.lives().await;
    soon(client.publish("/other", &json!({}))).await.expect("the session lives");
    assert_eq!(world.metric("encke_webhook_undecided_total").await, 1);
}

#[tokio::test]
async fn a_backend_that_is_down_means_what_the_settings_say() {
    for (when_down, is_allowed) in [(Decide::Deny, false), (Decide::Allow, true), (Decide::Queue, false)] {
        let backend = Backend::start(|_| Answer::Status(200));
        let mut settings = hurried(&backend);
        backend.stop();
        settings.events = vec![EventKind::Handshake, EventKind::Subscribe, EventKind::Publish, EventKind::Service];
        settings.when_down.handshake = Decide::Allow;
        settings.when_down.subscribe = when_down;
        settings.when_down.publish = when_down;
        settings.when_down.service = when_down;
        let world = World::start(&[settings]);
        let mut witness = world.witness().await;
        let client = world.client("ann").await.expect("a session");
        assert_eq!(soon(client.subscribe("/hooked/a")).await.is_ok(), is_allowed);
        assert_eq!(publish(&client).await.is_ok(), is_allowed);
        if !is_allowed {
            let failure = soon(client.request("/service/add", &json!(null))).await.expect_err("failed").to_string();
            assert!(failure.contains("backend_unavailable"), "{failure}");
        }
        witness.lives().await;
    }
}

/// `allow` is for a backend that is down. One that answers has not allowed anything.
#[tokio::test]
async fn an_answer_that_is_no_result_is_a_refusal_also_where_a_backend_that_is_down_allows() {
    for status in [413, 500, 503] {
        let backend = Backend::start(move |_| Answer::Status(status));
        let mut settings = hurried(&backend);
        settings.events = vec![EventKind::Handshake, EventKind::Subscribe, EventKind::Publish, EventKind::Service];
        settings.channels = vec!["/hooked/**".into(), "/service/**".into()];
        settings.breaker_failures = 1;
        let allow = Decide::Allow;
        settings.when_down =
            WhenDown { handshake: allow, subscribe: allow, publish: allow, service: allow, ..WhenDown::default() };
        let handshakes = WebhookSettings { events: vec![EventKind::Handshake], ..settings.clone() };
        let world = World::start(&[handshakes]);
        let refused = world.post(r#"[{"channel":"/meta/handshake","version":"1.0"}]"#).await;
        assert_eq!(refused[0]["error"], "503:backend_unavailable:handshake_denied", "{status}");
        settings.events.remove(0);
        let world = World::start(&[settings]);
        let client = world.client("ann").await.expect("a session");
        soon(client.subscribe("/hooked/a")).await.expect_err("no decision");
        assert!(publish(&client).await.expect_err("no decision").contains("backend_unavailable"), "{status}");
        soon(client.request("/service/add", &json!(null))).await.expect_err("no reply");
        assert_eq!(world.metric("encke_webhook_breaker_open").await, 0, "{status}: it is up");
    }
}

/// Messages that a backend answers with 500, one after the other, from one client.
#[tokio::test]
async fn messages_that_a_backend_fails_at_do_not_open_the_breaker_for_others() {
    let backend = Backend::start(|seen| match seen.data["data"]["poison"].as_str() {
        Some("500") => Answer::Status(500),
        Some(_) => Answer::Raw(Vec::new()),
        None => Answer::Json(json!({ "allow": true })),
    });
    let world = World::start(&[hurried(&backend)]);
    let client = world.client("ann").await.expect("a session");
    let hostile = world.client("mallory").await.expect("a session");
    for poison in ["500", "closes"] {
        for _ in 0..8 {
            let message = json!({ "poison": poison });
            soon(hostile.publish("/hooked/a", &message)).await.expect_err("no decision");
        }
        publish(&client).await.expect("the backend decides");
    }
    assert_eq!(world.metric("encke_webhook_breaker_opened_total").await, 0);
}

/// Clients that shake hands at a slow backend, all from one address.
#[tokio::test]
async fn handshakes_at_a_slow_backend_leave_room_for_the_events_of_sessions() {
    let gate = Gate::default();
    let held = gate.clone();
    let backend = Backend::start(move |seen| match seen.kind.as_str() {
        "handshake" if seen.data["ext"]["name"] == "stranger" => Answer::After(held.clone(), json!({ "allow": true })),
        "handshake" => Answer::Json(json!({ "allow": true, "user": seen.data["ext"]["name"] })),
        _ => Answer::Json(json!({ "allow": true })),
    });
    let settings = WebhookSettings {
        queue_messages_max: 24,
        requests_in_flight_max: 8,
        request_timeout_ms: 60_000,
        decision_timeout_ms: 60_000,
        ..webhook(backend.address, &[EventKind::Handshake, EventKind::Publish])
    };
    let world = World::start(&[settings]);
    let clients = [world.client("ann").await.expect("a session"), world.client("bob").await.expect("a session")];
    let handshake = r#"[{"channel":"/meta/handshake","version":"1.0","ext":{"name":"stranger"}}]"#;
    let strangers = async { futures(64, || world.post(handshake)).await };
    let witnesses = async {
        world.wait_for_metric("encke_webhook_undecided_total", 1).await;
        for _ in 0..35 {
            for client in &clients {
                publish(client).await.expect("it has room, and a request");
            }
        }
        gate.open();
    };
    let (replies, ()) = tokio::join!(strangers, witnesses);
    let admitted = replies.iter().filter(|reply| reply[0]["successful"] == true).count();
    assert!((1..24).contains(&admitted), "{admitted}");
}

/// The outputs of this many futures that run at the same time.
async fn futures<F: Future>(count: usize, make: impl Fn() -> F) -> Vec<F::Output> {
    let mut running: Vec<_> = (0..count).map(|_| Some(Box::pin(make()))).collect();
    let mut outputs = Vec::new();
    std::future::poll_fn(|context| {
        for one in &mut running {
            if let Some(std::task::Poll::Ready(output)) = one.as_mut().map(|one| one.as_mut().poll(context)) {
                outputs.push(output);
                *one = None;
            }
        }
        if running.iter().all(Option::is_none) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    outputs
}

#[tokio::test]
async fn a_handshake_without_a_backend_is_refused_with_the_advice_to_try_again() {
    let mut settings = webhook(Backend::nowhere(), &[EventKind::Handshake]);
    settings.decision_timeout_ms = 200;
    let world = World::start(&[settings]);
    let message = r#"[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["long-polling"]}]"#;
    let reply = world.post(message).await;
    assert_eq!(reply[0]["error"], "503:backend_unavailable:handshake_denied");
    assert_eq!(reply[0]["advice"]["reconnect"], "handshake");
    assert!(reply[0]["advice"]["interval"].as_u64().is_some_and(|interval| interval > 0), "{reply}");
}

#[tokio::test]
async fn a_slow_backend_delays_nobody_but_who_waits_for_it() {
    let gate = Gate::default();
    let held = gate.clone();
    let backend = Backend::start(move |_| Answer::After(held.clone(), json!({ "allow": true })));
    let settings = WebhookSettings {
        request_timeout_ms: 60_000,
        decision_timeout_ms: 60_000,
        ..webhook(backend.address, &[EventKind::Publish])
    };
    let world = World::start(&[settings]);
    let mut witness = world.witness().await;
    let client = world.client("ann").await.expect("a session");
    let waiting = client.start_publish("/hooked/a", &json!({})).await.expect("sent");
    backend.wait_for(1).await;
    // All of this happens before the backend answers.
    witness.lives().await;
    let other = world.client("bob").await.expect("a new session");
    soon(other.publish("/other", &json!({}))).await.expect("accepted");
    gate.open();
    soon(waiting).await.expect("allowed");
}

/// Held requests have no session whose events would have an order.
#[tokio::test]
async fn a_held_request_that_waits_for_the_backend_delays_no_other_one() {
    let gate = Gate::default();
    let held = gate.clone();
    let backend = Backend::start(move |seen| match seen.data["channel"].as_str() {
        Some("/hooked/slow") => Answer::After(held.clone(), json!({ "allow": true })),
        _ => Answer::Json(json!({ "allow": true })),
    });
    let world = World::start(&[webhook(backend.address, &[EventKind::Subscribe])]);
    let (slow, fast) = ("/hold/hooked/slow?timeout=0", "/hold/hooked/fast?timeout=0");
    let other = async {
        backend.wait_for(1).await;
        let response = world.get(fast).await;
        gate.open();
        response
    };
    let (_, other) = tokio::join!(world.get(slow), other);
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn an_answer_that_comes_late_answers_nothing() {
    let gate = Gate::default();
    let held = gate.clone();
    // The first answer allows, too late; the rest deny.
    let backend = Backend::start(move |seen| match seen.data["data"]["late"].as_bool() {
        Some(true) => Answer::After(held.clone(), json!({ "allow": true })),
        _ => Answer::Json(json!({ "allow": false, "reason": "quiet" })),
    });
    let world = World::start(&[hurried(&backend)]);
    let mut witness = world.witness().await;
    let client = world.client("ann").await.expect("a session");
    let late = soon(client.publish("/hooked/a", &json!({ "late": true }))).await.expect_err("no answer in time");
    assert!(late.to_string().contains("backend_unavailable"), "{late}");
    gate.open();
    for _ in 0..10 {
        let denied = publish(&client).await.expect_err("the answer of this request");
        assert!(denied.contains("403:quiet:publish_denied"), "{denied}");
    }
    witness.lives().await;
}

#[tokio::test]
async fn a_second_answer_to_one_request_does_not_answer_the_next_one() {
    let allow = r#"{"allow":true}"#;
    let ok = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{allow}", allow.len());
    let twice = format!("{ok}{ok}").into_bytes();
    let backend = Backend::start(move |seen| match seen.data["data"]["twice"].as_bool() {
        Some(true) => Answer::RawOpen(twice.clone()),
        _ => Answer::Json(json!({ "allow": false, "reason": "quiet" })),
    });
    let world = World::start(&[webhook(backend.address, &[EventKind::Publish])]);
    let mut witness = world.witness().await;
    let client = world.client("ann").await.expect("a session");
    for _ in 0..10 {
        soon(client.publish("/hooked/a", &json!({ "twice": true }))).await.expect("allowed once");
        let denied = publish(&client).await.expect_err("the answer of this request");
        assert!(denied.contains("403:quiet:publish_denied"), "{denied}");
    }
    witness.lives().await;
}

#[tokio::test]
async fn a_500_is_tried_again_but_a_service_call_that_it_may_have_served_is_not() {
    let backend = Backend::start(|_| Answer::Status(500));
    let settings = WebhookSettings { breaker_failures: 1_000, ..hurried(&backend) };
    let world = World::start(&[settings]);
    expect_refusal(&world).await;
    let tries = backend.seen().len();
    assert!(tries > 1, "it was tried again");
    let client = world.client("ann").await.expect("a session");
    let failure = soon(client.request("/service/order", &json!(null))).await.expect_err("failed").to_string();
    assert!(failure.contains("backend_unavailable"), "{failure}");
    assert_eq!(backend.seen().len(), tries + 1);
}

#[tokio::test]
async fn garbage_is_no_decision() {
    let with_body =
        |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes();
    let cases: [Vec<u8>; 7] = [
        b"\x16\x03\x01 this is not HTTP\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n{}".to_vec(),
        with_body("<html>welcome</html>"),
        with_body("{}"),
        with_body(r#"{"allow":"yes"}"#),
        with_body("{\"allow\":true,\"data\":\"\u{1}\"}"),
        [b"HTTP/1.1 200 OK\r\n".as_slice(), b"x: ".as_slice(), &[b'y'; 200_000], b"\r\n\r\n"].concat(),
    ];
    for case in cases {
        let backend = Backend::start(move |_| Answer::Raw(case.clone()));
        let world = World::start(&[hurried(&backend)]);
        expect_refusal(&world).await;
    }
}

#[tokio::test]
async fn a_response_of_a_gigabyte_is_not_read() {
    // The backend itself checks that nobody reads it to its end.
    let backend = Backend::start(|_| Answer::Endless);
    let mut settings = hurried(&backend);
    settings.request_timeout_ms = 60_000;
    settings.decision_timeout_ms = 60_000;
    let world = World::start(&[settings]);
    expect_refusal(&world).await;
    assert_eq!(backend.seen().len(), 1, "the same request would have the same response");
}

#[tokio::test]
async fn a_response_that_ends_in_the_middle_is_no_decision() {
    for part in ["HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"allow\":true}", "HTTP/1.1 20", ""] {
        let backend = Backend::start(move |_| Answer::Raw(part.into()));
        let world = World::start(&[hurried(&backend)]);
        expect_refusal(&world).await;
    }
}

#[tokio::test]
async fn the_http_api_lists_webhooks_with_their_breakers() {
    let backend = Backend::start(|_| Answer::Json(json!({ "allow": true })));
    let mut down = webhook(backend.address, &[EventKind::Opened]);
    (down.breaker_failures, down.breaker_pause_ms, down.breaker_pause_ms_max) = (1, 600_000, 600_000);
    down.url = format!("http://{}/encke?token=secret", backend.stop()).into();
    down.name = "down".into();
    let up = Backend::start(|_| Answer::Json(json!({ "allow": true })));
    let world = World::start(&[webhook(up.address, &[EventKind::Publish]), down]);
    let client = world.client("ann").await.expect("a session");
    world.wait_for_metric("encke_webhook_breaker_opened_total", 1).await;
    publish(&client).await.expect("the other one decides");
    let text = world.get("/api/v1/webhooks").await;
    let list: Value = serde_json::from_slice(text.body()).expect("JSON");
    assert_eq!(list["webhooks"].as_array().map(Vec::len), Some(2), "{list}");
    let (first, second) = (&list["webhooks"][0], &list["webhooks"][1]);
    assert_eq!(
        (&first["events"], &first["breaker"], &first["answered"]),
        (&json!(["publish"]), &json!("closed"), &json!(1))
    );
    assert_eq!(
        (&second["name"], &second["breaker"], &second["queue_messages"]),
        (&json!("down"), &json!("open"), &json!(1))
    );
    let url = second["url"].as_str().expect("a text");
    assert!(url.ends_with("/encke?***") && !list.to_string().contains("secret"), "{list}");
}

#[tokio::test]
async fn a_backend_that_comes_back_decides_again_and_gets_what_waited() {
    let backend = Backend::start(|_| Answer::Json(json!({ "allow": true })));
    let mut settings = webhook(backend.address, &[EventKind::Publish, EventKind::Opened]);
    settings.breaker_failures = 1;
    let address = backend.stop();
    let world = World::start(&[settings]);
    let client = world.client("ann").await.expect("a session");
    world.wait_for_metric("encke_webhook_breaker_opened_total", 1).await;
    publish(&client).await.expect_err("it is down");
    let backend = Backend::listen(address, |seen| match seen.kind.as_str() {
        "publish" => Answer::Json(json!({ "allow": true })),
        _ => Answer::Json(Value::Null),
    });
    let back = async { while publish(&client).await.is_err() {} };
    soon(back).await;
    assert_eq!(backend.kinds().iter().filter(|kind| *kind == "opened").count(), 1);
    assert_eq!(backend.kinds()[0], "opened", "the session's events keep their order");
    world.wait_for_metric("encke_webhook_requests_total", 2).await;
    assert_eq!(world.metric("encke_webhook_breaker_open").await, 0);
}
