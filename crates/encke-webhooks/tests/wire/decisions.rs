//! Events that a backend decides about or answers.

use std::collections::HashMap;

use encke_client::{Client, Error};
use encke_webhooks::EventKind;
use serde_json::{Value, json};

use crate::common::{Answer, Backend, World, soon, webhook};

/// A backend that answers all events.
fn application() -> Backend {
    Backend::start(|seen| {
        let channel = seen.data["channel"].as_str().unwrap_or_default();
        Answer::Json(match (seen.kind.as_str(), channel) {
            ("handshake", _) if seen.data["ext"]["name"] == "nobody" => {
                json!({ "allow": false, "code": 401, "reason": "who_are_you" })
            }
            ("handshake", _) => {
                json!({ "allow": true, "user": seen.data["ext"]["name"], "claims": { "role": "tester" } })
            }
            ("subscribe", "/hooked/secret" | "/**") => json!({ "allow": false, "reason": "not_yours" }),
            ("subscribe", _) => json!({ "allow": true }),
            ("publish", "/hooked/denied") => json!({ "allow": false, "reason": "quiet" }),
            ("publish", "/hooked/dropped") => json!({ "allow": true, "drop": true }),
            ("publish", "/hooked/changed") => {
                json!({ "allow": true, "data": { "by": seen.data["user"], "was": seen.data["data"] } })
            }
            ("publish", _) => json!({ "allow": true }),
            ("service", "/service/add") => json!({ "reply": { "sum": sum(&seen.data["data"]) } }),
            ("service", "/service/fail") => json!({ "failure": { "why": "it fails" } }),
            ("service", "/service/spread") => json!({ "reply": "done", "actions": [
                { "publish": { "channel": "/hooked/news", "data": { "from": "backend" } } },
                { "deliver": { "session": seen.data["session"], "channel": "/hooked/only", "data": 1 } },
                { "deliver": { "user": "ann", "channel": "/hooked/only", "data": 2 } },
            ]}),
            ("service", "/service/ban") => json!({ "reply": "done", "actions": [{ "disconnect": { "user": "bob" } }] }),
            ("service", "/service/leave") => {
                json!({ "actions": [{ "disconnect": { "session": seen.data["session"] } }] })
            }
            ("ended", _) => {
                json!({ "actions": [{ "publish": { "channel": "/hooked/left", "data": seen.data["user"] } }] })
            }
            _ => Value::Null,
        })
    })
}

fn sum(numbers: &Value) -> i64 {
    numbers.as_array().into_iter().flatten().filter_map(Value::as_i64).sum()
}

fn error<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("refused").to_string()
}

#[tokio::test]
async fn a_backend_names_users_and_its_refusal_reaches_the_client() {
    let backend = application();
    let world = World::start(&[webhook(backend.address, EventKind::ALL)]);
    let client = world.client("ann").await.expect("a session");
    let refused = error(world.client("nobody").await);
    assert!(refused.contains("401:who_are_you:handshake_denied"), "{refused}");
    client.subscribe("/hooked/a").await.expect("allowed");
    let seen = backend.seen();
    let handshake = seen.iter().find(|seen| seen.kind == "handshake").expect("a handshake");
    assert_eq!(handshake.data["transport"], "websocket");
    assert_eq!(handshake.data["peer"], "127.0.0.1");
    assert!(handshake.data["headers"]["host"].as_str().is_some_and(|host| host.starts_with("127.0.0.1:")));
    let subscribe = seen.iter().find(|seen| seen.kind == "subscribe").expect("a subscribe");
    assert_eq!(subscribe.data["user"], "ann");
    assert_eq!(subscribe.data["claims"], json!({ "role": "tester" }));
}

#[tokio::test]
async fn subscribes_and_publishes_are_allowed_denied_changed_or_dropped() {
    let backend = application();
    let world = World::start(&[webhook(backend.address, EventKind::ALL)]);
    let client = world.client("ann").await.expect("a session");
    let denied = error(client.subscribe("/hooked/secret").await);
    assert!(denied.contains("403:not_yours:subscribe_denied"), "{denied}");
    let mut messages = client.subscribe("/hooked/*").await.expect("allowed");

    client.publish("/hooked/plain", &json!({ "n": 1 })).await.expect("allowed");
    let denied = error(client.publish("/hooked/denied", &json!({ "n": 2 })).await);
    assert!(denied.contains("403:quiet:publish_denied"), "{denied}");
    let dropped = error(client.publish("/hooked/dropped", &json!({ "n": 3 })).await);
    assert!(dropped.contains("404::message_deleted"), "{dropped}");
    client.publish("/hooked/changed", &json!({ "n": 4 })).await.expect("allowed");

    for expected in [json!({ "n": 1 }), json!({ "by": "ann", "was": { "n": 4 } })] {
        let message = soon(messages.next()).await.expect("a message").expect("no gap");
        assert_eq!(message.json::<Value>().expect("JSON"), expected);
    }
}

#[tokio::test]
async fn a_pattern_that_reaches_into_the_channels_of_a_backend_is_decided_by_it() {
    let backend = application();
    let world = World::start(&[webhook(backend.address, &[EventKind::Subscribe, EventKind::Publish])]);
    let client = world.client("ann").await.expect("a session");
    let denied = error(client.subscribe("/**").await);
    assert!(denied.contains("403:not_yours:subscribe_denied"), "{denied}");
    client.subscribe("/other/**").await.expect("not the backend's");
    client.publish("/hooked/a/**", &1).await.expect("allowed");
    client.publish("/**", &1).await.expect("allowed");
    client.publish("/other/**", &1).await.expect("not the backend's");
    assert_eq!(backend.kinds(), ["subscribe", "publish", "publish"]);
}

#[tokio::test]
async fn a_backend_decides_about_the_announcements_of_its_channels() {
    let backend = application();
    let world = World::start(&[webhook(backend.address, &[EventKind::Subscribe])]);
    let client = world.client("ann").await.expect("a session");
    for name in ["/presence/hooked/secret", "/presence/**"] {
        let denied = error(client.subscribe(name).await);
        assert!(denied.contains("403:not_yours:subscribe_denied"), "{name}: {denied}");
    }
    client.subscribe("/presence/hooked/open").await.expect("allowed");
    client.subscribe("/presence/other").await.expect("not the backend's");
    let asked: Vec<String> = backend.seen().iter().map(|seen| seen.data["channel"].to_string()).collect();
    assert_eq!(asked, [r#""/hooked/secret""#, r#""/**""#, r#""/hooked/open""#]);
}

#[tokio::test]
async fn service_calls_are_answered_by_the_backend_with_its_actions() {
    let backend = application();
    let world = World::start(&[webhook(backend.address, EventKind::ALL)]);
    let client = world.client("ann").await.expect("a session");
    let mut news = client.subscribe("/hooked/news").await.expect("allowed");
    let mut only = client.listen("/hooked/only").await.expect("local");

    let reply = soon(client.request("/service/add", &json!([1, 2, 39]))).await.expect("a reply");
    assert_eq!(reply.json::<Value>().expect("JSON"), json!({ "sum": 42 }));
    let failure = error(soon(client.request("/service/fail", &json!(null))).await);
    assert!(failure.contains(r#"{"why":"it fails"}"#), "{failure}");

    soon(client.request("/service/spread", &json!(null))).await.expect("a reply");
    let message = soon(news.next()).await.expect("a message").expect("no gap");
    assert_eq!(message.json::<Value>().expect("JSON"), json!({ "from": "backend" }));
    let mut delivered = Vec::new();
    for _ in 0..2 {
        let message = soon(only.next()).await.expect("a message").expect("no gap");
        delivered.push(message.data().as_str().to_string());
    }
    delivered.sort();
    assert_eq!(delivered, ["1", "2"]);

    let bob = Client::builder().reconnect(false);
    let bob = world.client_with("bob", bob).await.expect("a session");
    soon(client.request("/service/ban", &json!(null))).await.expect("a reply");
    assert!(soon(bob.closed()).await.is_err(), "the server has ended it");
}

#[tokio::test]
async fn the_end_of_a_session_is_an_event_whose_answer_may_publish() {
    let backend = application();
    let world = World::start(&[webhook(backend.address, EventKind::ALL)]);
    let stays = world.client("stays").await.expect("a session");
    let mut left = stays.subscribe("/hooked/left").await.expect("allowed");
    let leaves = world.client("leaves").await.expect("a session");
    soon(leaves.disconnect()).await.expect("a disconnect");
    let message = soon(left.next()).await.expect("a message").expect("no gap");
    assert_eq!(message.data().as_str(), "\"leaves\"");
    let kicked = world.client("kicked").await.expect("a session");
    kicked.publish("/service/leave", &json!(null)).await.expect("accepted");
    let message = soon(left.next()).await.expect("a message").expect("no gap");
    assert_eq!(message.data().as_str(), "\"kicked\"");
    let reasons: Vec<Value> = backend
        .seen()
        .into_iter()
        .filter(|seen| seen.kind == "ended")
        .map(|seen| seen.data["reason"].clone())
        .collect();
    assert_eq!(reasons, ["disconnected", "kicked"]);
}

#[tokio::test]
async fn every_request_is_signed_and_a_session_has_its_events_in_order() {
    let backend = application();
    let world = World::start(&[webhook(backend.address, EventKind::ALL)]);
    let client = world.client("ann").await.expect("a session");
    let _messages = client.subscribe("/hooked/a").await.expect("allowed");
    for n in 0..5 {
        client.publish("/hooked/a", &json!({ "n": n })).await.expect("allowed");
    }
    soon(client.disconnect()).await.expect("a disconnect");
    let seen = backend.wait_for(11).await;
    let kinds: Vec<&str> = seen.iter().map(|seen| seen.kind.as_str()).collect();
    let expected = [&["handshake", "opened", "subscribe", "subscribed"][..], &["publish"; 5], &kinds[9..]].concat();
    assert_eq!(kinds, expected);
    let mut last = kinds[9..].to_vec();
    last.sort_unstable();
    assert_eq!(last, ["ended", "unsubscribed"]);
    assert!(seen.iter().all(|seen| seen.is_signed), "{seen:?}");
    let ids: HashMap<&str, usize> = seen.iter().enumerate().map(|(index, seen)| (seen.id.as_str(), index)).collect();
    assert_eq!(ids.len(), seen.len(), "each event has another id");
    let numbers: Vec<&Value> = seen[4..9].iter().map(|seen| &seen.data["data"]["n"]).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn several_backends_share_the_channels_and_all_of_them_decide() {
    let tagging = |tag: &'static str| {
        Backend::start(move |seen| {
            let mut data = seen.data["data"].clone();
            data[tag] = json!(true);
            Answer::Json(if data["deny"] == tag {
                json!({ "allow": false })
            } else {
                json!({ "allow": true, "data": data })
            })
        })
    };
    let (first, second) = (tagging("first"), tagging("second"));
    let mut both = [first.address, second.address].map(|address| webhook(address, &[EventKind::Publish]));
    both[0].name = "first".into();
    both[1].channels = vec!["/hooked/both".into()];
    let world = World::start(&both);
    let client = world.client("ann").await.expect("a session");
    let mut messages = client.subscribe("/hooked/*").await.expect("allowed");
    client.publish("/hooked/both", &json!({})).await.expect("allowed");
    client.publish("/hooked/one", &json!({})).await.expect("allowed");
    error(client.publish("/hooked/both", &json!({ "deny": "second" })).await);
    error(client.publish("/hooked/both", &json!({ "deny": "first" })).await);
    for expected in [json!({ "first": true, "second": true }), json!({ "first": true })] {
        let message = soon(messages.next()).await.expect("a message").expect("no gap");
        assert_eq!(message.json::<Value>().expect("JSON"), expected);
    }
    assert_eq!(second.seen().len(), 2, "the first one's refusal is enough");
}

#[tokio::test]
async fn a_backend_adds_to_the_replies_of_handshakes_and_to_the_ext_of_messages() {
    let backend = Backend::start(|seen| {
        Answer::Json(match seen.kind.as_str() {
            "handshake" if seen.data["ext"]["name"] == "nobody" => {
                json!({ "allow": false, "ext": { "login": { "attempts": 2 } }, "fields": { "help": "/login" } })
            }
            "handshake" => json!({ "allow": true, "ext": { "login": seen.data["fields"]["colour"] } }),
            "publish" => json!({ "allow": true, "ext": { "signature": seen.data["data"] } }),
            _ => json!({ "reply": 1, "actions": [
                { "publish": { "channel": "/hooked/news", "data": 2, "ext": { "a": 1 } } },
                { "deliver": { "session": seen.data["session"], "channel": "/hooked/only", "data": 3, "ext": { "b": 2 } } },
            ] }),
        })
    });
    let kinds = [EventKind::Handshake, EventKind::Publish, EventKind::Service];
    let world = World::start(&[webhook(backend.address, &kinds)]);
    let reply = world
        .post(
            r#"[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["long-polling"],"colour":"red"}]"#,
        )
        .await;
    assert_eq!((&reply[0]["successful"], &reply[0]["ext"]), (&json!(true), &json!({ "login": "red" })), "{reply}");
    let reply = world
        .post(
            r#"[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["long-polling"],"ext":{"name":"nobody"}}]"#,
        )
        .await;
    assert_eq!((&reply[0]["error"], &reply[0]["help"]), (&json!("403:denied:handshake_denied"), &json!("/login")));
    assert_eq!(reply[0]["ext"], json!({ "login": { "attempts": 2 } }));

    let client = world.client("ann").await.expect("a session");
    let mut messages = client.subscribe("/hooked/*").await.expect("subscribes");
    let mut only = client.listen("/hooked/only").await.expect("listens");
    client.publish("/hooked/a", &7).await.expect("allowed");
    soon(client.request("/service/x", &1)).await.expect("answered");
    for (channel, ext) in [("/hooked/a", r#"{"signature":7}"#), ("/hooked/news", r#"{"a":1}"#)] {
        let message = soon(messages.next()).await.expect("a message").expect("no gap");
        assert_eq!((&*message.channel, message.ext().map(|ext| ext.as_str().to_owned())), (channel, Some(ext.into())));
    }
    let message = soon(only.next()).await.expect("a message").expect("no gap");
    assert_eq!(message.ext().map(|ext| ext.as_str().to_owned()).as_deref(), Some(r#"{"b":2}"#));
}

#[tokio::test]
async fn a_backend_gives_sessions_terms_and_attributes_and_sees_these_in_later_events() {
    let backend = Backend::start(|seen| {
        let set = |attributes: Value| json!([{ "set_attributes": { "session": seen.data["session"], "attributes": attributes } }]);
        Answer::Json(match seen.kind.as_str() {
            "handshake" => json!({ "allow": true, "terms": { "timeout_ms": 7_000, "broadcast_to_publisher": false } }),
            "opened" => json!({ "actions": set(json!({ "seat": 7 })) }),
            "service" => {
                json!({ "reply": { "seen": seen.data["attributes"] }, "actions": set(json!({ "cart": seen.data["data"], "seat": null })) })
            }
            _ => Value::Null,
        })
    });
    let kinds = [EventKind::Handshake, EventKind::Opened, EventKind::Service, EventKind::Ended];
    let world = World::start(&[webhook(backend.address, &kinds)]);
    let reply = world
        .post(r#"[{"channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["long-polling"]}]"#)
        .await;
    assert_eq!(reply[0]["advice"]["timeout"], 7_000);
    let client = world.client("ann").await.expect("a session");
    backend.wait_for(4).await;
    let call = async |data: Value| {
        let reply = soon(client.request("/service/cart", &data)).await.expect("answered");
        reply.json::<Value>().expect("JSON")["seen"].clone()
    };
    // The answer to `opened` may come later than the first call.
    let mut seen = call(json!(["tea"])).await;
    if seen.is_null() {
        seen = call(json!(["tea"])).await;
    }
    assert!(seen == json!({ "seat": 7 }) || seen == json!({ "cart": ["tea"] }), "{seen}");
    assert_eq!(call(json!(["tea", "cups"])).await["cart"], json!(["tea"]));
    assert_eq!(call(json!(1)).await, json!({ "cart": ["tea", "cups"] }));
    soon(client.disconnect()).await.expect("disconnects");
    let ended = async || loop {
        let all = backend.seen();
        if let Some(ended) = all.iter().find(|seen| seen.kind == "ended") {
            break ended.data["attributes"].clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(soon(ended()).await, json!({ "cart": 1 }));
}

#[tokio::test]
async fn a_backend_learns_of_subscriptions_to_its_channels_and_of_their_ends() {
    let backend = Backend::start(|_| Answer::Json(Value::Null));
    let world = World::start(&[webhook(backend.address, &[EventKind::Subscribed, EventKind::Unsubscribed])]);
    let client = world.client("ann").await.expect("a session");
    let first = client.subscribe("/hooked/a").await.expect("subscribes");
    let _other = client.subscribe("/other").await.expect("subscribes");
    let _all = client.subscribe("/**").await.expect("subscribes");
    first.unsubscribe().await.expect("unsubscribes");
    soon(client.disconnect()).await.expect("disconnects");
    let seen = backend.wait_for(4).await;
    let events: Vec<_> = seen.iter().map(|seen| (&*seen.kind, seen.data["channel"].as_str().unwrap_or(""))).collect();
    let expected =
        [("subscribed", "/hooked/a"), ("subscribed", "/**"), ("unsubscribed", "/hooked/a"), ("unsubscribed", "/**")];
    assert_eq!(events, expected);
}
