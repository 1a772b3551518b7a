//! Publish, publish many, deliver, disconnect, idempotency.

use std::collections::BTreeSet;

use encke::Settings;
use serde_json::{Value, json};

use super::{Api, KEY, answer, problem, serve};
use crate::common::{Frame, TestServer, Ws, publications, settings};

/// The data of the next publications that a session gets, `count` of them.
fn next_data(ws: &mut Ws, count: usize) -> Vec<Value> {
    let mut data = Vec::new();
    while data.len() < count {
        let messages = ws.next_json();
        data.extend(publications(messages.as_array().expect("messages")).iter().map(|message| message["data"].clone()));
    }
    data
}

#[test]
fn a_publication_reaches_subscribers_on_all_shards_unchanged() {
    let server = serve(Settings { shards: 3, ..settings() });
    let mut subscribers: Vec<Ws> = (0..6).map(|_| server.session()).collect();
    subscribers.iter_mut().for_each(|ws| ws.subscribe("/stock/*"));
    let body = r#"{"channel":"/stock/GOOG","data":{"n":1e400,"s":"\u00e4","x":[1,  2]}}"#;
    let published = answer(&Api::of(&server).request("POST", "/publish", &[], body));
    assert_eq!(published, json!({"published": 1, "positions": []}));
    for ws in &mut subscribers {
        let expected = r#"[{"channel":"/stock/GOOG","data":{"n":1e400,"s":"\u00e4","x":[1,  2]}}]"#;
        assert_eq!(ws.next_frame(), Frame::Text(expected.into()));
    }
    assert_eq!(server.metric("encke_api_requests"), 1);
}

#[test]
fn lazy_publications_wait_for_others() {
    let server = serve(Settings { shards: 2, lazy_timeout_max_ms: 3_600_000, ..settings() });
    let mut poller = server.poller();
    poller.subscribe("/a");
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    let mut api = Api::of(&server);
    api.post("/publish", &json!({"channel": "/a", "data": 1, "lazy": true}));
    api.post("/publish/batch", &json!({"messages": [{"channels": ["/a"], "data": 2, "lazy": true}]}));
    server.wait_for("encke_publications", 2);
    assert_eq!(server.metric("encke_held_connects"), 1, "nobody is woken for them");
    api.post("/publish", &json!({"channel": "/a", "data": 3, "lazy": false}));
    let received: Vec<Value> = publications(&poller.end_poll()).iter().map(|message| message["data"].clone()).collect();
    assert_eq!(received, [1, 2, 3]);
}

#[test]
fn a_batch_publishes_each_message_on_each_of_its_channels_in_order() {
    let server = serve(Settings { shards: 2, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/a");
    let mut other = server.session();
    other.subscribe("/b");
    let messages: Vec<_> = (0..50).map(|number| json!({"channels": ["/a", "/b"], "data": number})).collect();
    let published = Api::of(&server).post("/publish/batch", &json!({ "messages": messages }));
    assert_eq!(published["published"], 100);
    let expected: Vec<Value> = (0..50).map(Value::from).collect();
    assert_eq!(next_data(&mut ws, 50), expected);
    assert_eq!(next_data(&mut other, 50), expected);
}

#[test]
fn the_data_of_a_batch_on_all_its_channels_is_limited() {
    let server = serve(Settings { mailbox_bytes_max: 10_000, message_bytes_max: 10_000, ..settings() });
    let (mut api, mut neighbour) = (Api::of(&server), server.neighbour());
    let batch = |channels: usize| {
        let channels: Vec<String> = (0..channels).map(|number| format!("/a/{number}")).collect();
        json!({"messages": [{"channels": channels, "data": "x".repeat(998)}]})
    };
    assert_eq!(api.post("/publish/batch", &batch(10))["published"], 10);
    let problem = api.problem("POST", "/publish/batch", &batch(11).to_string());
    assert_eq!((&problem["status"], &problem["errors"][0]["pointer"]), (&json!(400), &json!("#/messages")));
    neighbour.lives(&server);
}

#[test]
fn requests_on_several_connections_publish_in_the_order_of_their_answers() {
    let server = serve(Settings { shards: 4, ..settings() });
    let mut subscribers: Vec<Ws> = (0..4).map(|_| server.session()).collect();
    subscribers.iter_mut().for_each(|ws| ws.subscribe("/a"));
    let mut connections: Vec<Api> = (0..8).map(|_| Api::of(&server)).collect();
    for number in 0..400 {
        connections[number % 8].post("/publish", &json!({"channel": "/a", "data": number}));
    }
    let expected: Vec<Value> = (0..400).map(Value::from).collect();
    subscribers.iter_mut().for_each(|ws| assert_eq!(next_data(ws, 400), expected));
}

#[test]
fn a_batch_with_an_invalid_message_publishes_nothing() {
    let server = serve(settings());
    let mut ws = server.session();
    ws.subscribe("/**");
    let mut api = Api::of(&server);
    let batch = json!({"messages": [{"channels": ["/a"], "data": 1}, {"channels": ["/b", "/c/*"], "data": 2}]});
    let problem = api.problem("POST", "/publish/batch", &batch.to_string());
    assert_eq!(
        (&problem["status"], &problem["errors"][0]["pointer"]),
        (&json!(400), &json!("#/messages/1/channels/1"))
    );
    api.post("/publish", &json!({"channel": "/last", "data": 3}));
    assert_eq!(ws.next_json(), json!([{"channel": "/last", "data": 3}]));
}

#[test]
fn a_message_is_delivered_to_one_session_without_a_subscription() {
    let server = serve(Settings { shards: 2, ..settings() });
    let (mut one, mut other) = (server.session(), server.session());
    let id = one.id.clone();
    let mut api = Api::of(&server);
    let reached = api.post("/deliver", &json!({"session": id, "channel": "/service/news", "data": [1]}));
    assert_eq!(reached, json!({"sessions": 1}));
    assert_eq!(one.next_json(), json!([{"channel": "/service/news", "data": [1]}]));
    other.subscribe("/x");
    let unknown = json!({"session": "0".repeat(32), "channel": "/a", "data": 1});
    assert_eq!(api.problem("POST", "/deliver", &unknown.to_string())["status"], 404);
}

#[test]
fn a_session_is_disconnected_once() {
    let server = serve(settings());
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    let body = json!({"session": ws.id});
    let mut api = Api::of(&server);
    assert_eq!(api.post("/disconnect", &body), json!({"sessions": 1}));
    assert_eq!(ws.next_json()[0]["channel"], "/meta/disconnect");
    assert_eq!(api.problem("POST", "/disconnect", &body.to_string())["status"], 404);
    neighbour.lives(&server);
}

fn publish_with(api: &mut Api, key: &str, data: &str) -> crate::common::Response {
    let body = format!(r#"{{"channel":"/a","data":{data}}}"#);
    api.request("POST", "/publish", &[("idempotency-key", key)], &body)
}

#[test]
fn a_repeated_request_gets_the_first_answer_and_publishes_nothing() {
    let server = serve(settings());
    let mut ws = server.session();
    ws.subscribe("/a");
    let mut api = Api::of(&server);
    let first = publish_with(&mut api, "k1", "1");
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, None));
    // Also on another connection.
    let again = publish_with(&mut Api::of(&server), "k1", "1");
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(again.body, first.body);
    let other = publish_with(&mut api, "k1", "2");
    assert_eq!((other.status, &problem(&other)["type"]), (422, &json!("urn:encke:problem:idempotency-key-reused")));
    // The field is the same as the header.
    let field = json!({"channel": "/a", "data": 3, "idempotency_key": "k2"});
    api.post("/publish", &field);
    api.post("/publish", &field);
    assert_eq!(publish_with(&mut api, "k3", "4").status, 200);
    assert_eq!(next_data(&mut ws, 3), [1, 3, 4]);
    assert_eq!(server.metric("encke_api_repeated_requests"), 2);
}

#[test]
fn a_key_is_forgotten_after_its_time_and_a_refused_request_is_not_remembered() {
    let server = serve(Settings { idempotency_ms: 0, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/a");
    let mut api = Api::of(&server);
    publish_with(&mut api, "k", "1");
    publish_with(&mut api, "k", "2");
    assert_eq!(next_data(&mut ws, 2), [1, 2]);
    let server = serve(settings());
    let mut api = Api::of(&server);
    assert_eq!(publish_with(&mut api, "k", "1,").status, 400);
    assert_eq!(publish_with(&mut api, "k", "1").status, 200);
}

#[test]
fn idempotency_bytes_max_forgets_the_oldest_answers() {
    let server = serve(Settings { idempotency_bytes_max: 2_000, ..settings() });
    let mut api = Api::of(&server);
    for number in 0..100 {
        assert_eq!(publish_with(&mut api, &format!("k{number}"), "1").status, 200);
    }
    let metric = |name: &str| server.metric(name);
    assert!((1..=2_000).contains(&metric("encke_api_remembered_bytes")));
    assert!(metric("encke_api_remembered_evicted") > 80);
    assert_eq!(publish_with(&mut api, "k99", "1").header("idempotency-replayed"), Some("true"));
    assert_eq!(publish_with(&mut api, "k0", "1").header("idempotency-replayed"), None);
}

#[test]
fn keys_of_requests_are_checked() {
    let server = serve(settings());
    let mut api = Api::of(&server);
    let body = r#"{"channel":"/a","data":1}"#;
    for key in ["", "with space", &"x".repeat(256)] {
        assert_eq!(
            problem(&api.request("POST", "/publish", &[("idempotency-key", key)], body))["status"],
            400,
            "{key}"
        );
    }
    let two = [("idempotency-key", "a"), ("idempotency-key", "b")];
    assert_eq!(problem(&api.request("POST", "/publish", &two, body))["status"], 400);
    let differ = r#"{"channel":"/a","data":1,"idempotency_key":"b"}"#;
    assert_eq!(problem(&api.request("POST", "/publish", &[("idempotency-key", "a")], differ))["status"], 400);
}

#[test]
fn the_answer_of_a_key_belongs_to_the_holder_of_the_api_key() {
    let server = TestServer::start(settings());
    let other = "other-key-0123456789";
    let scopes = &encke::Scope::ALL;
    server.handle.set_api_keys(super::keys(&[("one", KEY, scopes), ("two", other, scopes)]));
    let mut api = Api::of(&server);
    let body = r#"{"channel":"/a","data":1}"#;
    let mut replayed = |key: &str| {
        let headers = [("x-api-key", key), ("content-type", "application/json"), ("idempotency-key", "k")];
        let response = api.0.request("POST", "/api/v1/publish", &headers, body.as_bytes());
        assert_eq!(response.status, 200);
        response.header("idempotency-replayed").is_some()
    };
    let outcomes: Vec<bool> = [KEY, other, KEY, other].into_iter().map(&mut replayed).collect();
    assert_eq!(outcomes, [false, false, true, true]);
}

#[test]
fn publications_of_many_clients_at_once_all_arrive() {
    let server = serve(Settings { shards: 2, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/a");
    std::thread::scope(|scope| {
        for client in 0..4 {
            let mut api = Api::of(&server);
            scope.spawn(move || {
                for number in 0..50 {
                    let messages: Vec<_> = (0..10)
                        .map(|at| json!({"channels": ["/a"], "data": client * 500 + number * 10 + at}))
                        .collect();
                    api.post("/publish/batch", &json!({ "messages": messages }));
                }
            });
        }
    });
    let data: BTreeSet<u64> = next_data(&mut ws, 2_000).iter().filter_map(Value::as_u64).collect();
    assert!(data.into_iter().eq(0..2_000));
}
