//! Transports without faults: connects, publications, windows, connections, shards, the end
//! (Bayeux 1.0 §4, §5; the exchanges are CometD 9's, byte for byte where clients look).

use encke::{Actions, Call, ChannelRule, Data, Failure, Raw, Server, Settings, SlowConsumer};
use serde_json::{Value, json};

use crate::common::{Frame, Poller, TestServer, Ws, publications, reply, settings};

fn lazy(pattern: &str) -> Vec<ChannelRule> {
    vec![ChannelRule {
        pattern: pattern.into(),
        slow_consumer: SlowConsumer::Disconnect,
        lazy: true,
        lazy_timeout_ms: 0,
        ..ChannelRule::default()
    }]
}

#[test]
fn a_handshake_reply_has_the_expected_fields() {
    let server = TestServer::start(settings());
    let handshake =
        r#"[{"id":"1","channel":"/meta/handshake","version":"1.0","supportedConnectionTypes":["long-polling"]}]"#;
    let response = server.http().request("POST", "/cometd/handshake", &[], handshake.as_bytes());
    let cookie = response.header("set-cookie").expect("a cookie").replace("; Secure", "");
    assert!(cookie.starts_with("BAYEUX_BROWSER=") && cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{cookie}");
    let mut reply = response.messages()[0].take();
    assert_eq!(reply["clientId"].take().as_str().map(str::len), Some(32));
    let expected = json!({
        "id": "1", "channel": "/meta/handshake", "successful": true, "clientId": null,
        "version": "1.0", "minimumVersion": "1.0",
        "supportedConnectionTypes": ["websocket", "eventsource", "json-stream", "long-polling", "callback-polling"],
        "advice": {"interval": 0, "timeout": 120_000, "reconnect": "retry"},
    });
    assert_eq!(reply, expected);
}

#[test]
fn the_first_connect_is_answered_at_once_and_the_second_is_held_until_its_time() {
    let server = TestServer::start(Settings { timeout_ms: 400, ..settings() });
    let mut http = server.http();
    let id = http.handshake();
    let connect = |number: &str| json!({"id": number, "channel": "/meta/connect", "connectionType": "long-polling", "clientId": id});
    assert_eq!(http.call(connect("2")), json!({"id": "2", "channel": "/meta/connect", "successful": true}));
    http.send("POST", "/cometd/connect", &[], connect("3").to_string().as_bytes());
    server.wait_for_exactly("encke_held_connects", 1);
    let held = http.receive().messages();
    assert_eq!(held, [json!({"id": "3", "channel": "/meta/connect", "successful": true})]);
    assert_eq!(server.metric("encke_held_connects"), 0);
}

#[test]
fn a_connect_with_advice_is_answered_with_advice() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    let expected = json!({"interval": 0, "timeout": 120_000, "reconnect": "retry"});
    assert_eq!(poller.poll(json!({"advice": {"timeout": 0}}))[0]["advice"], expected);
    // The reply states the server's own timeout, not the client's request for one connect.
    let slower = json!({"interval": 7_000, "timeout": 120_000, "reconnect": "retry"});
    assert_eq!(poller.poll(json!({"advice": {"timeout": 100, "interval": 7_000}}))[0]["advice"], slower);
}

#[test]
fn a_held_connect_is_woken_by_a_publication() {
    let server = TestServer::start(settings());
    let (mut poller, mut publisher) = (server.poller(), server.session());
    poller.subscribe("/a");
    let id = poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    publisher.publish("/a", json!({"from": 2}));
    let expected = [
        json!({"channel": "/a", "data": {"from": 2}}),
        json!({"id": id, "channel": "/meta/connect", "successful": true}),
    ];
    assert_eq!(poller.end_poll(), expected);
}

#[test]
fn queued_messages_are_delivered_with_the_next_connect_in_order() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    poller.subscribe("/a");
    for number in 0..5 {
        server.publish("/a", &number.to_string());
    }
    server.wait_for("encke_publications", 5);
    let messages = poller.poll(json!({}));
    let data: Vec<_> = publications(&messages).iter().map(|message| message["data"].clone()).collect();
    assert_eq!(json!(data), json!([0, 1, 2, 3, 4]));
    assert_eq!(messages[5]["channel"], "/meta/connect");
}

#[test]
fn a_connect_that_is_not_alone_in_its_request_is_answered_at_once() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    let mut batch = poller.connect_message("1", json!({}));
    let subscribe = json!({"id": "2", "channel": "/meta/subscribe", "clientId": poller.id, "subscription": "/a"});
    batch.as_array_mut().expect("messages").push(subscribe);
    let replies = poller.http.post(&batch).messages();
    assert_eq!((&replies[0]["id"], &replies[1]["id"]), (&json!("1"), &json!("2")));
}

#[test]
fn a_publisher_gets_its_own_message_before_the_reply() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    poller.subscribe("/a");
    let publish = json!([{"id": "1", "channel": "/a", "clientId": poller.id, "data": 1}]);
    let expected = [json!({"channel": "/a", "data": 1}), json!({"id": "1", "channel": "/a", "successful": true})];
    assert_eq!(poller.http.post(&publish).messages(), expected);
    let mut ws = server.session();
    ws.subscribe("/b");
    ws.send_json(&json!([
        ws.mine(json!({"id": "1", "channel": "/b", "data": 1})),
        ws.mine(json!({"id": "2", "channel": "/b", "data": 2})),
    ]));
    assert_eq!(ws.next_json(), json!([{"channel": "/b", "data": 1}]));
    assert_eq!(ws.next_json(), json!([{"channel": "/b", "data": 2}]));
    assert_eq!(ws.next_json().as_array().map(Vec::len), Some(2), "the replies together");
}

#[test]
fn settings_decide_if_and_when_own_messages_arrive() {
    let server = TestServer::start(Settings { broadcast_to_publisher: false, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/a");
    ws.publish("/a", json!(1));
    ws.publish("/a", json!(2));
    let server = TestServer::start(Settings { connect_deliver_only: true, ..settings() });
    let mut poller = server.poller();
    poller.subscribe("/a");
    let publish = json!([{"id": "1", "channel": "/a", "clientId": poller.id, "data": 1}]);
    assert_eq!(poller.http.post(&publish).messages(), [json!({"id": "1", "channel": "/a", "successful": true})]);
    assert_eq!(poller.poll(json!({}))[0], json!({"channel": "/a", "data": 1}));
}

/// Two windows of one browser: one waits, the other polls. When the first is gone, the other may wait.
#[test]
fn the_second_window_of_a_browser_polls_until_the_first_closes() {
    let server = TestServer::start(settings());
    let mut first = server.poller();
    let mut second = Poller::open(first.http.again());
    first.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    let reply = second.poll(json!({}))[0].clone();
    assert_eq!(reply["successful"], true);
    assert_eq!(reply["advice"], json!({"multiple-clients": true, "interval": 2_000, "reconnect": "retry"}));
    first.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    first.end_poll();
    second.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
}

#[test]
fn further_windows_can_be_refused() {
    let server = TestServer::start(Settings { browser_surplus_interval_ms: 0, ..settings() });
    let mut first = server.poller();
    let mut second = Poller::open(first.http.again());
    first.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    let reply = second.poll(json!({}))[0].clone();
    assert_eq!(
        (&reply["successful"], &reply["advice"]),
        (&json!(false), &json!({"multiple-clients": true, "reconnect": "none"}))
    );
}

#[test]
fn a_disconnect_answers_the_held_connect_first() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    let held = ws.start_connect();
    let disconnect = ws.mine(json!({"id": "d", "channel": "/meta/disconnect"}));
    ws.send_json(&json!([disconnect]));
    let connect = ws.next_json()[0].take();
    assert_eq!((&connect["id"], &connect["advice"]), (&json!(held), &json!({"reconnect": "none"})));
    assert_eq!(ws.next_json(), json!([{"id": "d", "channel": "/meta/disconnect", "successful": true}]));

    let mut poller = server.poller();
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    let reply = poller.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    assert_eq!(reply, json!({"id": "d", "channel": "/meta/disconnect", "successful": true}));
    assert_eq!(poller.end_poll()[0]["advice"], json!({"reconnect": "none"}));
}

#[test]
fn a_session_ended_by_the_server_gets_a_disconnect() {
    let server = TestServer::start(settings());
    let disconnect = json!({"channel": "/meta/disconnect", "successful": true});
    let (mut held, mut idle, mut ws) = (server.poller(), server.poller(), server.session());
    held.start_poll(json!({}));
    ws.start_connect();
    server.wait_for_exactly("encke_held_connects", 2);
    for id in [&held.id, &idle.id, &ws.id] {
        assert!(server.handle.disconnect(id));
    }
    // The disconnect without an id comes first, then the reply to the connect: at once where a connect is held,
    // otherwise with the next one.
    for messages in [held.end_poll(), idle.poll(json!({}))] {
        assert_eq!((&messages[0], &messages[1]["advice"]), (&disconnect, &json!({"reconnect": "none"})));
    }
    assert_eq!(ws.next_json(), json!([disconnect]));
    assert_eq!(ws.next_json()[0]["advice"], json!({"reconnect": "none"}));
    assert_eq!(ws.closed(), (1000, "session ended".into()));
    assert_eq!(server.metric("encke_sessions"), 0);
    assert_eq!(server.metric("encke_sessions_kicked"), 3);
}

/// CometD lets the other replies wait for the connect; Encke answers them at once.
#[test]
fn all_messages_of_a_mixed_frame_but_the_connect_are_answered_at_once() {
    let server = TestServer::start(Settings { timeout_ms: 400, ..settings() });
    let mut ws = server.session();
    ws.send_json(&json!([
        ws.mine(json!({"id": "1", "channel": "/meta/connect", "connectionType": "websocket"})),
        ws.mine(json!({"id": "2", "channel": "/meta/subscribe", "subscription": "/a"})),
        ws.mine(json!({"id": "3", "channel": "/b", "data": 1})),
    ]));
    let replies = ws.next_json();
    assert_eq!((&replies[0]["id"], &replies[1]["id"]), (&json!("2"), &json!("3")));
    assert_eq!(ws.next_json()[0]["id"], "1");
}

#[test]
fn a_websocket_gets_publications_with_and_without_a_held_connect() {
    let server = TestServer::start(Settings { timeout_ms: 400, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/a");
    server.publish("/a", "1");
    assert_eq!(ws.next_json(), json!([{"channel": "/a", "data": 1}]));
    let held = ws.start_connect();
    server.wait_for_exactly("encke_held_connects", 1);
    server.publish("/a", "2");
    assert_eq!(ws.next_json(), json!([{"channel": "/a", "data": 2}]));
    assert_eq!(ws.next_json(), json!([{"id": held, "channel": "/meta/connect", "successful": true}]));
}

/// Faye opens a session over HTTP and continues it over a WebSocket.
#[test]
fn a_session_moves_from_http_to_a_websocket_and_back_without_a_gap() {
    for shards in [1, 2] {
        let server = TestServer::start(Settings { shards, ..settings() });
        let mut poller = server.poller();
        poller.subscribe("/a");
        poller.start_poll(json!({}));
        server.wait_for_exactly("encke_held_connects", 1);
        let cookie = format!("BAYEUX_BROWSER={}", poller.http.cookie.clone().expect("a cookie"));
        let mut ws = Ws::connect(server.address(), &[("cookie", &cookie)]);
        ws.id = poller.id.clone();
        ws.start_connect();
        // The held request ends: the WebSocket carries the session now.
        assert_eq!(poller.polls.receive().status, 409);
        server.publish("/a", "1");
        assert_eq!(ws.next_json(), json!([{"channel": "/a", "data": 1}]));
        ws.tcp.reset();
        server.wait_for_exactly("encke_websockets", 0);
        server.publish("/a", "2");
        assert_eq!(poller.poll(json!({}))[0], json!({"channel": "/a", "data": 2}), "{shards} shards");
        poller.subscribe("/b");
        assert_eq!(server.metric("encke_sessions"), 1);
    }
}

#[test]
fn a_newer_websocket_takes_the_session_over() {
    let server = TestServer::start(Settings { shards: 2, ..settings() });
    let mut old = server.session();
    old.subscribe("/a");
    old.start_connect();
    server.wait_for_exactly("encke_held_connects", 1);
    for round in 0..4 {
        let mut new = server.websocket();
        new.id = old.id.clone();
        new.start_connect();
        server.wait_for_exactly("encke_held_connects", 1);
        // While the socket moves, two connects may be held. The publication shows where the session is.
        crate::common::wait_until("the session has moved", || server.handle.publish("/a", &round.to_string()).is_ok());
        assert_eq!(new.next_json(), json!([{"channel": "/a", "data": round}]));
        old = new;
    }
}

#[test]
fn publications_reach_subscribers_of_every_shard_and_transport() {
    let server = TestServer::start(Settings { shards: 3, ..settings() });
    // Connections go to the shards in turn.
    let mut sockets: Vec<Ws> = (0..6).map(|_| server.session()).collect();
    let mut pollers: Vec<Poller> = (0..3).map(|_| server.poller()).collect();
    for ws in &mut sockets {
        ws.subscribe("/a/**");
        ws.subscribe("/a/b");
    }
    for poller in &mut pollers {
        poller.subscribe("/a/*");
        poller.start_poll(json!({}));
    }
    server.wait_for_exactly("encke_held_connects", 3);
    let mut publisher = server.session();
    publisher.publish("/a/b", json!("once each"));
    let expected = json!({"channel": "/a/b", "data": "once each"});
    for ws in &mut sockets {
        assert_eq!(ws.next_json(), json!([expected]));
        ws.subscribe("/nothing/came/twice");
    }
    for poller in &mut pollers {
        assert_eq!(publications(&poller.end_poll()), std::slice::from_ref(&expected));
    }
    assert_eq!(server.metric("encke_deliveries"), 9);
}

#[test]
fn a_session_is_served_through_connections_of_any_shard() {
    let server = TestServer::start(Settings { shards: 4, ..settings() });
    let mut poller = server.poller();
    poller.subscribe("/a");
    for number in 0..8 {
        // Each connection belongs to another shard; requests are forwarded to the session's shard.
        let mut http = poller.http.again();
        let publish = json!([{"id": "1", "channel": "/a", "clientId": poller.id, "data": number}]);
        let mut messages = http.post(&publish).messages();
        assert_eq!(reply(&messages, "1")["successful"], true);
        poller.polls = http;
        // The session's own message comes with the reply, unless the previous response is still on its way.
        if publications(&messages).is_empty() {
            messages = poller.poll(json!({}));
        }
        assert_eq!(publications(&messages), [json!({"channel": "/a", "data": number})]);
        poller.start_poll(json!({}));
        server.wait_for_exactly("encke_held_connects", 1);
        server.publish("/a", "\"wake\"");
        assert_eq!(poller.end_poll()[0]["data"], "wake");
    }
}

#[test]
fn lazy_messages_wait_for_other_messages() {
    let server = TestServer::start(Settings { channels: lazy("/lazy/**"), lazy_timeout_max_ms: 60_000, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/lazy/x");
    ws.subscribe("/eager");
    let mut poller = server.poller();
    poller.subscribe("/lazy/x");
    poller.subscribe("/eager");
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    server.publish("/lazy/x", "1");
    server.wait_for("encke_publications", 1);
    assert_eq!(server.metric("encke_held_connects"), 1, "nobody is woken for it");
    server.publish("/eager", "2");
    let expected = [json!({"channel": "/lazy/x", "data": 1}), json!({"channel": "/eager", "data": 2})];
    assert_eq!([ws.next_json()[0].take(), ws.next_json()[0].take()], expected);
    assert_eq!(publications(&poller.end_poll()), expected);
}

#[test]
fn lazy_messages_are_sent_after_their_timeout() {
    let server = TestServer::start(Settings { channels: lazy("/lazy"), lazy_timeout_max_ms: 200, ..settings() });
    let mut poller = server.poller();
    poller.subscribe("/lazy");
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    server.publish("/lazy", "1");
    assert_eq!(poller.end_poll()[0], json!({"channel": "/lazy", "data": 1}));
}

/// Bayeux 1.0 §1.7: a form with `message` fields, whatever its declared type.
#[test]
fn forms_are_read_as_batches() {
    let server = TestServer::start(settings());
    let form = "message=%5B%7B%22id%22%3A%221%22%2C%22channel%22%3A%22%2Fmeta%2Fhandshake%22%2C%22version%22%3A%221.0%22%7D%5D";
    for kind in ["application/x-www-form-urlencoded; charset=UTF-8", "text/plain", "application/json"] {
        let response = server.http().request("POST", "/cometd", &[("content-type", kind)], form.as_bytes());
        assert_eq!(response.messages()[0]["successful"], true, "{kind}");
    }
    let several = format!("{form}&x=1&message=%7B%22id%22%3A%222%22%7D");
    let replies = server.http().request("POST", "/cometd", &[], several.as_bytes()).messages();
    assert_eq!(reply(&replies, "2")["error"], "400::channel_missing");
    for strange in ["message=", "message=%5B%22%ff%22%5D", "message=%ed%a0%80", "message=[{}]&message=]"] {
        assert_eq!(server.http().request("POST", "/cometd", &[], strange.as_bytes()).status, 400, "{strange}");
    }
}

#[test]
fn all_mounts_and_paths_below_them_answer() {
    let server = TestServer::start(settings());
    let handshake = br#"{"id":"1","channel":"/meta/handshake","version":"1.0"}"#;
    for path in ["/cometd", "/cometd/", "/cometd/handshake", "/cometd/cometd/connect", "/bayeux", "/faye", "/faye/x/y"]
    {
        let response = server.http().request("POST", path, &[], handshake);
        assert_eq!(response.messages()[0]["successful"], true, "{path}");
    }
}

#[test]
fn timesync_and_timestamps_are_answered() {
    let server = TestServer::start(Settings { timestamps: true, ..settings() });
    let mut ws = server.session();
    ws.subscribe("/a");
    let ask = json!({"id": "1", "channel": "/meta/connect", "advice": {"timeout": 0}, "ext": {"timesync": {"tc": 1, "l": 0, "o": 0}}});
    let reply = ws.call(ask);
    let timesync = &reply["ext"]["timesync"];
    assert_eq!((&timesync["tc"], timesync["p"].is_u64()), (&json!(1), true));
    assert_eq!(timesync["a"].as_i64(), timesync["ts"].as_i64().map(|ts| 1 - ts));
    assert!(reply["timestamp"].is_string());
    server.publish("/a", "1");
    assert!(ws.next_json()[0]["timestamp"].is_string());
    // Extreme clock values break nothing.
    for timesync in [json!({"tc": 1e300, "l": -1e300, "o": 1e300}), json!({"tc": "x"}), json!(7), json!({})] {
        let ask = json!({"id": "1", "channel": "/meta/subscribe", "subscription": "/b", "ext": {"timesync": timesync}});
        assert_eq!(ws.call(ask)["successful"], true);
    }
}

#[test]
fn a_service_answers_its_caller_only() {
    let server = Server::builder()
        .settings(Settings { shards: 2, ..settings() })
        .service("/service/echo", async |data: Raw| data)
        .service("/service/fail", async || Failure::json(&"no"))
        .service("/service/kick/me", async |call: Call| {
            let mut actions = Actions::default();
            actions.disconnect(call.session());
            actions
        })
        .service("/service/tell", async |Data(other): Data<String>| {
            let mut actions = Actions::default();
            actions.deliver(&other, "/sent", "1", None);
            actions
        });
    let server = TestServer::of(server);
    let (mut ws, mut other) = (server.session(), server.session());
    let call = ws.mine(json!({"id": "7", "channel": "/service/echo", "data": {"x": [1]}}));
    ws.send_json(&json!([call]));
    assert_eq!(
        ws.next_json(),
        json!([{"id": "7", "channel": "/service/echo", "data": {"x": [1]}, "successful": true}])
    );
    assert_eq!(ws.next_json(), json!([{"id": "7", "channel": "/service/echo", "successful": true}]));
    let call = ws.mine(json!({"id": "8", "channel": "/service/fail", "data": 1}));
    ws.send_json(&json!([call]));
    assert_eq!(ws.next_json()[0]["successful"], false);
    assert_eq!(ws.next_json()[0]["successful"], true, "the call arrived");
    ws.publish("/service/tell", json!(other.id));
    assert_eq!(other.next_json(), json!([{"channel": "/sent", "data": 1}]));
    ws.publish("/service/tell", json!("nobody"));
    let last = ws.mine(json!({"id": "9", "channel": "/service/kick/me"}));
    ws.send_json(&json!([last]));
    assert_eq!(ws.closed(), (1000, "session ended".into()));
}

#[test]
fn a_session_without_activity_ends_even_if_it_connects() {
    let server = TestServer::start(Settings { activity_timeout_ms: 300, timeout_ms: 100, ..settings() });
    let mut http = server.http();
    let mut poller = Poller::of(http.handshake(), http);
    let mut last = Value::Null;
    crate::common::wait_until("the session ends", || {
        last = json!(poller.poll(json!({})));
        last[0]["channel"] == "/meta/disconnect"
    });
    assert_eq!(last[1]["advice"], json!({"reconnect": "none"}));
}

#[test]
fn a_draining_server_disconnects_its_clients_and_accepts_no_new_ones() {
    let server = TestServer::start(Settings { drain_timeout_ms: 20_000, drain_spread_ms: 5_000, ..settings() });
    let mut poller = server.poller();
    let mut ws = server.session();
    let mut newcomer = server.http();
    assert_eq!(newcomer.get("/readyz").status, 200);
    poller.subscribe("/a");
    poller.start_poll(json!({}));
    ws.start_connect();
    server.wait_for_exactly("encke_held_connects", 2);
    server.handle.drain();
    let advice = poller.end_poll()[0]["advice"].clone();
    assert_eq!(advice["reconnect"], "retry");
    assert!(advice["interval"].as_u64().is_some_and(|ms| ms < 5_000), "each at its own time: {advice}");
    assert_eq!(ws.next_json()[0]["advice"]["reconnect"], "retry");
    assert_eq!(ws.next_frame(), Frame::Close(1001, "server going away".into()));
    assert!(newcomer.tcp.ends(), "a connection that waits for nothing ends at once");
    let reply = server.http().call(json!({"id": "1", "channel": "/meta/handshake", "version": "1.0"}));
    assert_eq!((&reply["error"], &reply["advice"]["reconnect"]), (&json!("503::server_draining"), &json!("handshake")));
    drop((poller, ws));
    server.stop();
}

#[test]
fn settings_can_change_while_it_runs() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let reloaded = Settings { batch_messages_max: 1, shards: 7, ..settings() };
    assert_eq!(server.handle.reload(reloaded).expect("good settings"), ["shards"]);
    crate::common::wait_until("the limit is in force", || server.http().post(&json!([{}, {}])).status == 413);
    assert!(server.handle.reload(Settings { batch_messages_max: 0, ..settings() }).is_err());
    assert_eq!(server.http().post(&json!([{}, {}])).status, 413, "the old ones stay");
    neighbour.lives(&server);
}
