//! The exact behaviour that clients and suites for CometD and Salesforce expect.

use encke::Settings;
use serde_json::{Value, json};

use crate::common::tls::scheme;
use crate::common::{Poller, TestServer, Ws, publications, reply, settings};
use crate::replay::client::{publish, stored, wait_stored, with};

/// The messages of jsforce: no offer in the handshake, `ext.replay` only with the subscribe.
fn subscribe_as_jsforce(channel: &str, position: i64) -> Value {
    json!({"id": "s", "channel": "/meta/subscribe", "subscription": channel, "ext": {"replay": {channel: position}}})
}

fn replay_ids(messages: &[Value]) -> Vec<u64> {
    let id = |message: &Value| message["data"]["event"]["replayId"].as_u64();
    publications(messages).iter().map(|message| id(message).unwrap_or_else(|| panic!("no id: {message}"))).collect()
}

#[test]
fn a_position_in_a_subscribe_is_an_offer_to_replay_over_long_polling() {
    let server = TestServer::start(with(stored(100)));
    for number in 0..5 {
        publish(&server, "/h/a", number);
    }
    wait_stored(&server, 5);
    let mut poller = server.poller();
    let answer = poller.call(subscribe_as_jsforce("/h/a", -2))["ext"]["replay"]["/h/a"].clone();
    let first = answer["from"].as_u64().unwrap_or_else(|| panic!("not replayed: {answer}"));
    assert_eq!(replay_ids(&poller.poll(json!({}))), (first..first + 5).collect::<Vec<_>>());
    publish(&server, "/h/a", 5);
    assert_eq!(replay_ids(&poller.poll(json!({}))), [first + 5]);
    // The next session resumes after the last message of this one.
    let mut next = server.poller();
    next.call(subscribe_as_jsforce("/h/a", first as i64 + 3));
    assert_eq!(replay_ids(&next.poll(json!({}))), [first + 4, first + 5]);
}

#[test]
fn a_position_in_a_subscribe_is_an_offer_to_replay_over_websocket() {
    for shards in [1, 3] {
        let server = TestServer::start(Settings { shards, ..with(stored(100)) });
        publish(&server, "/h/a", 0);
        wait_stored(&server, 1);
        let mut ws = server.session();
        let message = ws.mine(subscribe_as_jsforce("/h/a", -2));
        ws.send_json(&json!([message]));
        let mut messages = Vec::new();
        while publications(&messages).is_empty() || messages.len() < 2 {
            messages.extend(ws.next_json().as_array().expect("messages").clone());
        }
        let first = reply(&messages, "s")["ext"]["replay"]["/h/a"]["from"].as_u64().expect("replayed");
        assert_eq!(replay_ids(&messages), [first]);
        publish(&server, "/h/a", 1);
        assert_eq!(replay_ids(ws.next_json().as_array().expect("messages")), [first + 1]);
    }
}

/// Earlier subscriptions replay from the offer on, and queued messages without a position do not arrive twice.
#[test]
fn a_late_offer_to_replay_applies_to_earlier_subscriptions_without_duplicates() {
    let server = TestServer::start(with(stored(100)));
    let mut poller = server.poller();
    poller.subscribe("/h/a");
    poller.subscribe("/h/b");
    publish(&server, "/h/a", 1);
    publish(&server, "/h/b", 2);
    wait_stored(&server, 2);
    poller.call(subscribe_as_jsforce("/h/a", -2));
    let messages = publications(&poller.poll(json!({})));
    let of = |channel: &str| messages.iter().filter(|message| message["channel"] == channel).collect::<Vec<_>>();
    assert_eq!(of("/h/a").len(), 1, "{messages:?}");
    assert!(of("/h/a")[0]["data"]["event"]["replayId"].is_u64());
    assert_eq!(of("/h/b"), [&json!({"channel": "/h/b", "data": 2})]);
    publish(&server, "/h/b", 3);
    assert_eq!(replay_ids(&poller.poll(json!({}))).len(), 1);
    // Its end removes from the lists as much as was added.
    poller.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    assert_eq!(server.metric("encke_subscriptions"), 0);
}

#[test]
fn a_surplus_window_that_is_refused_is_refused_with_its_first_connect() {
    let server = TestServer::start(Settings { browser_surplus_interval_ms: 0, ..settings() });
    let mut first = server.poller();
    first.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    let mut http = first.http.again();
    let mut second = Poller::of(http.handshake(), http);
    let reply = second.poll(json!({"advice": {"timeout": 0}}))[0].clone();
    assert_eq!(
        (&reply["successful"], &reply["advice"]),
        (&json!(false), &json!({"multiple-clients": true, "reconnect": "none"}))
    );
    assert_eq!(server.metric("encke_surplus_connects"), 1);
}

/// CometD's Java client treats an empty channel as a channel.
#[test]
fn the_reply_to_a_message_without_a_channel_has_none() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    let message = ws.mine(json!({"id": "7"}));
    ws.send_json(&json!([message]));
    let expected = json!([{"id": "7", "successful": false, "error": "400::channel_missing"}]);
    assert_eq!(ws.next_json(), expected);
    assert_eq!(json!(server.http().post(&json!([message])).messages()), expected);
}

#[test]
fn a_subscribe_of_an_unknown_session_is_answered_with_its_subscription() {
    let server = TestServer::start(settings());
    for channel in ["/meta/subscribe", "/meta/unsubscribe"] {
        for subscription in [json!("/a"), json!(["/a", "/b/*"])] {
            let message = json!({"id": "1", "channel": channel, "clientId": "gone", "subscription": subscription});
            let replies = server.http().post(&json!([message])).messages();
            let expected = json!([{"id": "1", "channel": channel, "successful": false,
                "error": "402::session_unknown", "subscription": subscription}]);
            assert_eq!(json!(replies), expected);
        }
    }
}

#[test]
fn unsubscribing_twice_succeeds_twice() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    ws.subscribe("/a");
    for _ in 0..2 {
        let reply = ws.call(json!({"id": "u", "channel": "/meta/unsubscribe", "subscription": "/a"}));
        assert_eq!((&reply["successful"], reply.get("error")), (&json!(true), None));
    }
    assert_eq!(server.metric("encke_subscriptions"), 0);
}

/// CometD's `metaConnectDeliverOnly` holds for WebSockets, too.
#[test]
fn with_connect_deliver_only_a_websocket_gets_messages_with_connect_replies_only() {
    let server = TestServer::start(Settings { connect_deliver_only: true, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/a");
    for number in 1..=2 {
        server.publish("/a", &number.to_string());
    }
    server.wait_for("encke_publications", 2);
    // The reply to any other message overtakes them.
    ws.publish("/b", json!(0));
    let id = ws.start_connect();
    let mut messages = Vec::new();
    while messages.len() < 3 {
        messages.extend(ws.next_json().as_array().expect("messages").clone());
    }
    assert_eq!(messages[..2], [json!({"channel": "/a", "data": 1}), json!({"channel": "/a", "data": 2})]);
    assert_eq!((&messages[2]["channel"], &messages[2]["id"]), (&json!("/meta/connect"), &json!(id)));
    // An arriving message answers a held connect.
    let id = ws.start_connect();
    server.wait_for_exactly("encke_held_connects", 1);
    server.publish("/a", "3");
    assert_eq!(ws.next_json(), json!([{"channel": "/a", "data": 3}]));
    assert_eq!(ws.next_json()[0]["id"], json!(id));
}

#[test]
fn handshake_reconnect_advises_clients_when_to_handshake_by_themselves() {
    let server = TestServer::start(Settings { handshake_reconnect: true, max_interval_ms: 70_000, ..settings() });
    let handshake = json!([{"id": "h", "channel": "/meta/handshake", "version": "1.0"}]);
    let mut http = server.http();
    let reply = http.post(&handshake).messages().remove(0);
    assert_eq!(reply["advice"]["maxInterval"], 70_000);
    let mut poller = Poller::of(reply["clientId"].as_str().expect("an id").into(), http);
    assert_eq!(poller.poll(json!({"advice": {"timeout": 0}}))[0]["advice"]["maxInterval"], 70_000);
    let plain = TestServer::start(settings());
    assert_eq!(plain.http().post(&handshake).messages()[0]["advice"].get("maxInterval"), None);
}

#[test]
fn websocket_protocol_is_what_a_websocket_must_offer() {
    let named = TestServer::start(Settings { websocket_protocol: "bayeux/1.0".into(), ..settings() });
    // As clients of CometD offer it where its option `ws.protocol` says so.
    let mut ws = Ws::connect(named.address(), &[("sec-websocket-protocol", "bayeux/1.0")]);
    ws.handshake();
    let server = TestServer::start(Settings { websocket_protocol: "bayeux".into(), ..settings() });
    for (offered, status) in [(None, 400), (Some("other, Bayeux"), 400), (Some("other, bayeux"), 101)] {
        let mut tcp = server.tcp();
        let headers: Vec<_> = offered.map(|offered| ("sec-websocket-protocol", offered)).into_iter().collect();
        tcp.send(Ws::request(server.address(), &headers));
        let response = tcp.response().expect("a response");
        assert_eq!(response.status, status, "{offered:?}");
        assert_eq!(response.header("sec-websocket-protocol"), (status == 101).then_some("bayeux"));
    }
}

#[test]
fn message_bytes_max_may_be_a_few_bytes() {
    let server = TestServer::start(Settings { message_bytes_max: 300, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/a");
    assert_eq!(server.http().post_raw("x".repeat(301)).status, 413);
    let message = ws.mine(json!({"id": "p", "channel": "/a", "data": "x".repeat(300)}));
    ws.send_json(&json!([message]));
    assert_eq!(ws.closed().0, 1009);
}

#[test]
fn a_mount_may_be_the_root_or_a_deep_path() {
    let mounts = ["/", "/a/b.c/cometd"].map(String::from).to_vec();
    let server = TestServer::start(Settings { mounts, ..settings() });
    for path in ["/", "/handshake", "/a/b.c/cometd", "/a/b.c/cometd/handshake", "/anything"] {
        let body = br#"[{"id":"1","channel":"/meta/handshake","version":"1.0"}]"#;
        let response = server.http().request("POST", path, &[], body);
        assert_eq!((response.status, &response.messages()[0]["successful"]), (200, &json!(true)), "{path}");
    }
    let script = "/?jsonp=f&message=%5B%7B%22id%22%3A%221%22%2C%22channel%22%3A%22%2Fmeta%2Fhandshake%22%7D%5D";
    assert!(server.http().get(script).text().contains(r#""successful":true"#));
    let mut tcp = server.tcp();
    let upgrade = String::from_utf8(Ws::request(server.address(), &[])).expect("a text");
    tcp.send(upgrade.replace("GET /cometd ", "GET / "));
    assert_eq!(tcp.response().map(|response| response.status), Some(101));
    // Pages and metrics keep their paths.
    assert_eq!(server.http().get("/").status, 404);
    assert!(server.http().get("/metrics").text().contains("encke_"));
}

/// A page from `http://localhost:8080` may call `http://127.0.0.1:8080`: they are one server.
#[test]
fn the_names_of_loopback_are_one_origin_for_a_server_on_loopback() {
    let server = TestServer::start(settings());
    let port = server.address().port();
    let call = |origin: &str| {
        let body = br#"[{"id":"1","channel":"/meta/handshake","version":"1.0"}]"#;
        let headers = [("origin", origin), ("sec-fetch-site", "cross-site")];
        let response = server.http().request("POST", "/cometd", &headers, body);
        (response.status, response.header("access-control-allow-origin").map(String::from))
    };
    for name in ["localhost", "[::1]"] {
        let origin = format!("{}://{name}:{port}", scheme());
        assert_eq!(call(&origin), (200, Some(origin.clone())));
    }
    let other = if scheme() == "http" { "https" } else { "http" };
    let foreign =
        [format!("http://localhost:{}", port ^ 1), format!("{other}://localhost:{port}"), "http://localhost".into()];
    for origin in
        foreign.into_iter().chain([format!("http://evil.localhost:{port}"), format!("http://127.0.0.2:{port}")])
    {
        assert_eq!(call(&origin).0, 403, "{origin}");
    }
}
