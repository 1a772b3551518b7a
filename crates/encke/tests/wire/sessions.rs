//! Ownership of sessions, and connects that overlap or ask for too much (Bayeux 1.0 §4.2, §4.4; rows 23 and 24 of
//! `docs/contributing/bad-input.md`).

use std::time::Duration;

use encke::{Handshake, Refusal, Server, Settings};
use serde_json::json;

use crate::common::tls::scheme;
use crate::common::{TestServer, Ws, publications, settings};

/// Ids that were never issued: short, long, with foreign letters, of a missing shard.
fn guesses() -> Vec<String> {
    let mut guesses: Vec<String> = ["", "1", "null", "../../x", "' or 1=1 --", "\u{e9}"].map(String::from).to_vec();
    guesses.extend(["0".repeat(32), "v".repeat(32), format!("zz{}", "0".repeat(30)), "0".repeat(10_000)]);
    guesses
}

#[test]
fn a_guessed_client_id_is_unknown() {
    let server = TestServer::start(Settings { shards: 2, ..settings() });
    let mut neighbour = server.neighbour();
    let (mut http, mut ws) = (server.http(), server.websocket());
    let guesses = guesses();
    for id in &guesses {
        let batch = json!([
            {"id": "1", "channel": "/meta/connect", "connectionType": "long-polling", "clientId": id},
            {"id": "2", "channel": "/a", "data": 1, "clientId": id},
            {"id": "3", "channel": "/meta/disconnect", "clientId": id},
        ]);
        for replies in [json!(http.post(&batch).messages()), {
            ws.send_json(&batch);
            ws.next_json()
        }] {
            // Clients recover by this pair of error and advice (CometD 9).
            assert_eq!(replies[0]["advice"], json!({"interval": 0, "reconnect": "handshake"}), "{id:.40}");
            for reply in replies.as_array().expect("replies") {
                assert_eq!((&reply["successful"], &reply["error"]), (&json!(false), &json!("402::session_unknown")));
            }
            assert_eq!(replies[1].get("advice"), None);
        }
    }
    assert_eq!(server.metric("encke_sessions_unknown"), 6 * guesses.len() as u64);
    neighbour.lives(&server);
}

#[test]
fn messages_without_a_client_id_or_with_another_kind_of_value_are_unknown() {
    let server = TestServer::start(settings());
    let mut http = server.http();
    for id in [json!(null), json!(7), json!(["x"]), json!({"a": 1}), json!(true)] {
        let reply = http.call(json!({"id": "1", "channel": "/a", "data": 1, "clientId": id}));
        assert_eq!(reply["error"], "402::session_unknown", "{id}");
    }
    assert_eq!(http.call(json!({"id": "1", "channel": "/a", "data": 1}))["error"], "402::session_unknown");
}

/// Knowing a client id is not enough: another browser cannot use a session that a browser opened, on any transport.
#[test]
fn a_stolen_client_id_is_of_no_use_without_the_cookie() {
    let server = TestServer::start(settings());
    let mut victim = server.poller();
    victim.subscribe("/private");
    let other_browser = server.poller();
    let steal = json!([
        {"id": "1", "channel": "/meta/connect", "connectionType": "websocket", "clientId": victim.id},
        {"id": "2", "channel": "/meta/disconnect", "clientId": victim.id},
    ]);
    let cookie = format!("BAYEUX_BROWSER={}", other_browser.http.cookie.clone().expect("a cookie"));
    let mut replies = server.http().post(&steal).messages();
    replies.extend(other_browser.http.again().post(&steal).messages());
    let mut ws = Ws::connect(server.address(), &[("cookie", cookie.as_str())]);
    ws.send_json(&steal);
    replies.extend(ws.next_json().as_array().expect("replies").iter().cloned());
    assert_eq!(replies.len(), 6);
    assert!(replies.iter().all(|reply| reply["error"] == "402::session_unknown"), "{replies:?}");
    server.publish("/private", "1");
    assert_eq!(victim.poll(json!({}))[0], json!({"channel": "/private", "data": 1}));
}

/// A browser sends its cookie with a WebSocket, or it is another browser.
#[test]
fn a_page_without_the_cookie_cannot_use_a_session_of_a_browser_over_a_websocket() {
    let server = TestServer::start(Settings { shards: 2, ..settings() });
    let mut victim = server.poller();
    victim.subscribe("/private");
    let own = format!("{}://{}", scheme(), server.address());
    let origin = ("origin", own.as_str());
    let headers: [&[(&str, &str)]; 4] = [
        &[origin],
        &[origin, ("cookie", "a=b")],
        &[origin, ("cookie", "BAYEUX_BROWSER=x")],
        &[("cookie", "BAYEUX_BROWSER=\u{e4}")],
    ];
    for headers in headers {
        // Its first message moves the WebSocket to the shard of the session.
        let mut ws = Ws::connect(server.address(), headers);
        ws.send_json(&json!([{"id": "1", "channel": "/meta/disconnect", "clientId": victim.id}]));
        assert_eq!(ws.next_json()[0]["error"], "402::session_unknown", "{headers:?}");
        // Such a page may open a session.
        let mut ws = Ws::connect(server.address(), headers);
        ws.handshake();
        ws.subscribe("/own");
    }
    server.publish("/private", "1");
    assert_eq!(victim.poll(json!({}))[0], json!({"channel": "/private", "data": 1}));
    let cookie = format!("BAYEUX_BROWSER={}", victim.http.cookie.clone().expect("a cookie"));
    let mut ws = Ws::connect(server.address(), &[origin, ("cookie", &cookie)]);
    ws.send_json(&json!([{"id": "1", "channel": "/meta/disconnect", "clientId": victim.id}]));
    assert_eq!(ws.next_json()[0]["successful"], true);
}

/// Faye's client in Node opens a session over HTTP and its WebSocket without the cookie.
#[test]
fn a_program_continues_over_a_websocket_without_a_cookie() {
    let server = TestServer::start(settings());
    let poller = server.poller();
    let mut ws = Ws::connect(server.address(), &[]);
    ws.send_json(&json!([{"id": "1", "channel": "/a", "data": 1, "clientId": poller.id}]));
    assert_eq!(ws.next_json()[0]["successful"], true);
}

#[test]
fn settings_may_trust_the_client_id_alone() {
    let server = TestServer::start(Settings { trust_client_session: true, ..settings() });
    let poller = server.poller();
    let reply = server.http().call(json!({"id": "1", "channel": "/a", "data": 1, "clientId": poller.id}));
    assert_eq!(reply["successful"], true);
}

/// As in CometD, a WebSocket acts only for the session it carries.
#[test]
fn a_websocket_with_a_session_cannot_act_for_another_one() {
    for shards in [1, 2] {
        let server = TestServer::start(Settings { shards, ..settings() });
        // With two shards, two of three live on the same one and two on different ones.
        let mut sessions: Vec<_> = (0..3).map(|_| server.session()).collect();
        let ids: Vec<_> = sessions.iter().map(|ws| ws.id.clone()).collect();
        sessions.iter_mut().for_each(|ws| ws.subscribe("/own"));
        for (own, ws) in sessions.iter_mut().enumerate() {
            for other in ids.iter().filter(|id| **id != ids[own]) {
                for (channel, advice) in [
                    ("/meta/connect", json!({"reconnect": "handshake", "interval": 0})),
                    ("/meta/subscribe", json!(null)),
                    ("/meta/disconnect", json!(null)),
                    ("/own", json!(null)),
                ] {
                    ws.send_json(&json!([{"id": "1", "channel": channel, "clientId": other, "subscription": "/a",
                        "connectionType": "websocket", "data": 1}]));
                    let reply = ws.next_json()[0].take();
                    assert_eq!(
                        (&reply["error"], &reply["advice"]),
                        (&json!("402::session_unknown"), &advice),
                        "{channel}"
                    );
                }
            }
            assert_eq!(
                ws.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": "/b"}))["successful"],
                true
            );
        }
        // All of them live on, with their subscriptions. A WebSocket without a session may take over any.
        sessions[0].call(json!({"id": "d", "channel": "/meta/disconnect"}));
        let mut free = sessions.remove(0);
        free.id.clone_from(&ids[1]);
        free.start_connect();
        server.wait_for_exactly("encke_held_connects", 1);
        server.publish("/own", "1");
        for ws in [&mut free, &mut sessions[1]] {
            assert_eq!(ws.next_json(), json!([{"channel": "/own", "data": 1}]));
        }
    }
}

#[test]
fn a_client_id_is_dead_after_its_disconnect_even_in_the_same_batch() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    ws.send_json(&json!([
        ws.mine(json!({"id": "1", "channel": "/meta/disconnect"})),
        ws.mine(json!({"id": "2", "channel": "/a", "data": 1})),
    ]));
    let replies = ws.next_json();
    assert_eq!((&replies[0]["successful"], &replies[1]["error"]), (&json!(true), &json!("402::session_unknown")));
    assert_eq!(ws.call(json!({"id": "3", "channel": "/meta/connect"}))["error"], "402::session_unknown");
    assert_eq!(server.metric("encke_sessions_disconnected"), 1);
}

/// Session fixation: a client cannot choose the id of its session, nor can a link choose it for a user.
#[test]
fn clients_cannot_choose_an_id() {
    let server = TestServer::start(settings());
    let wish = "0".repeat(32);
    let body = json!([{"id": "1", "channel": "/meta/handshake", "version": "1.0", "clientId": wish}]).to_string();
    let target = format!("/cometd?clientId={wish}&BAYEUX_BROWSER={wish}");
    let response = server.http().request("POST", &target, &[], body.as_bytes());
    assert_eq!(response.messages()[0]["successful"], true);
    assert_ne!(response.messages()[0]["clientId"], json!(wish));
    assert!(!response.header("set-cookie").expect("a cookie").contains(&wish));
}

#[test]
fn a_handshake_with_the_id_of_another_session_does_not_affect_it() {
    let server = TestServer::start(settings());
    let mut victim = server.session();
    victim.subscribe("/a");
    let body = json!([{"id": "1", "channel": "/meta/handshake", "version": "1.0", "clientId": victim.id}]);
    let mut ws = server.websocket();
    ws.send_json(&body);
    assert_ne!(ws.next_json()[0]["clientId"], json!(victim.id));
    server.publish("/a", "1");
    assert_eq!(victim.next_json(), json!([{"channel": "/a", "data": 1}]));
}

/// Cookie tossing: a neighbouring site can add cookies of the same name, but none that is valid.
#[test]
fn invalid_cookies_are_ignored() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    let own = poller.http.cookie.take().expect("a cookie");
    let publish = json!([{"id": "1", "channel": "/a", "clientId": poller.id, "data": 1}]).to_string();
    let far = format!("vv{}", "0".repeat(30));
    for (cookie, successful) in [
        (format!("BAYEUX_BROWSER=x; BAYEUX_BROWSER={own}"), true),
        (format!("BAYEUX_BROWSER=\"{own}\""), true),
        (format!(";;=;BAYEUX_BROWSER; a=b=c; BAYEUX_BROWSER={own}"), true),
        (format!("bayeux_browser={own}"), false),
        (format!("XBAYEUX_BROWSER={own}"), false),
        (format!("BAYEUX_BROWSER={far}; BAYEUX_BROWSER={own}"), false),
        (format!("BAYEUX_BROWSER={}", "x".repeat(4_000)), false),
    ] {
        let response = poller.http.request("POST", "/cometd", &[("cookie", &cookie)], publish.as_bytes());
        assert_eq!(response.messages()[0]["successful"], successful, "{cookie:.60}");
    }
}

/// A cookie that names a missing shard opens a session like any other.
#[test]
fn a_cookie_of_an_unknown_shard_is_harmless() {
    let server = TestServer::start(Settings { shards: 2, ..settings() });
    let mut neighbour = server.neighbour();
    let mut http = server.http();
    http.cookie = Some(format!("vv{}", "0".repeat(30)));
    let id = http.handshake();
    assert_eq!(http.call(json!({"id": "1", "channel": "/a", "clientId": id, "data": 1}))["successful"], true);
    neighbour.lives(&server);
}

/// Row 24: the older of two connects ends with a status, so that its client does not wait for it.
#[test]
fn the_older_of_two_connects_ends_with_a_status() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    poller.subscribe("/a");
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    let mut second = poller.http.again();
    let connect = poller.connect_message("second", json!({})).to_string();
    second.send("POST", "/cometd", &[], connect.as_bytes());
    assert_eq!(poller.polls.receive().status, 409);
    server.publish("/a", "1");
    let messages = second.receive().messages();
    assert_eq!((messages.len(), &messages[0]["data"], &messages[1]["id"]), (2, &json!(1), &json!("second")));
}

#[test]
fn on_a_websocket_the_older_of_two_connects_gets_no_reply() {
    let server = TestServer::start(Settings { timeout_ms: 400, ..settings() });
    let mut ws = server.session();
    ws.start_connect();
    let second = ws.start_connect();
    let reply = ws.next_json();
    assert_eq!((&reply[0]["id"], &reply[0]["successful"]), (&json!(second), &json!(true)));
    ws.subscribe("/nothing/came/between");
}

#[test]
fn no_connect_is_held_longer_than_the_limit() {
    let server = TestServer::start(Settings { client_interval_max_ms: 300, timeout_ms: 300, ..settings() });
    let mut poller = server.poller();
    for timeout in ["1e12", "9223372036854775807", "99999999999999999999999", "1e400", "300.7"] {
        let body = poller.connect_message("c", json!({})).to_string();
        let body = body.replace("\"channel\"", &format!("\"advice\":{{\"timeout\":{timeout}}},\"channel\""));
        let messages = poller.http.post_raw(body).messages();
        assert_eq!(messages[0]["successful"], true, "{timeout}");
        assert_eq!(messages[0]["advice"], json!({"interval": 0, "timeout": 300, "reconnect": "retry"}), "{timeout}");
    }
    for timeout in ["-1", "-1e400", "0", "0.9"] {
        let body = poller.connect_message("c", json!({})).to_string();
        let body = body.replace("\"channel\"", &format!("\"advice\":{{\"timeout\":{timeout}}},\"channel\""));
        assert_eq!(poller.http.post_raw(body).messages()[0]["successful"], true, "{timeout}");
    }
}

#[test]
fn an_interval_lengthens_a_session_only_up_to_the_limit() {
    let server = TestServer::start(Settings { client_interval_max_ms: 200, max_interval_ms: 1_000, ..settings() });
    let mut poller = server.poller();
    let messages = poller.poll(json!({"advice": {"timeout": 0, "interval": 1e15}}));
    assert_eq!(messages[0]["advice"]["interval"], 200);
    server.wait_for("encke_sessions_expired", 1);
    assert_eq!(poller.poll(json!({}))[0]["error"], "402::session_unknown");
}

#[test]
fn many_connects_at_once_are_answered_one_by_one() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    let storm: Vec<_> = (0..1_000)
        .map(|number| ws.mine(json!({"id": number, "channel": "/meta/connect", "advice": {"timeout": 0}})))
        .collect();
    for _ in 0..5 {
        ws.send_json(&json!(storm));
        let replies = ws.next_json();
        assert_eq!(replies.as_array().map(Vec::len), Some(1_000));
        assert_eq!(replies[999]["id"], "999");
    }
    let mut poller = server.poller();
    for _ in 0..200 {
        assert_eq!(poller.poll(json!({"advice": {"timeout": 0}}))[0]["successful"], true);
    }
    neighbour.lives(&server);
}

#[test]
fn a_silent_session_ends_with_its_messages() {
    let server = TestServer::start(Settings { max_interval_ms: 1_500, ..settings() });
    let mut never_connected = server.http();
    let forgotten = never_connected.handshake();
    let mut poller = server.poller();
    poller.subscribe("/a");
    for _ in 0..4 {
        server.publish("/a", &json!("x".repeat(100_000)).to_string());
    }
    server.wait_for("encke_frame_bytes", 400_000);
    server.wait_for("encke_sessions_expired", 2);
    assert_eq!(server.metric("encke_sessions"), 0);
    assert_eq!(server.metric("encke_subscriptions"), 0);
    assert!(server.metric("encke_frame_bytes") < 100_000, "only the messages of the next connect");
    let reply = never_connected.call(json!({"id": "1", "channel": "/meta/connect", "clientId": forgotten}));
    assert_eq!(reply["error"], "402::session_unknown");
}

#[test]
fn a_client_that_vanished_misses_nothing_until_it_expires() {
    let server = TestServer::start(settings());
    let mut poller = server.poller();
    poller.subscribe("/a");
    poller.start_poll(json!({}));
    server.wait_for_exactly("encke_held_connects", 1);
    let polls = poller.http.again();
    drop(std::mem::replace(&mut poller.polls, polls));
    server.wait_for_exactly("encke_held_connects", 0);
    for number in 0..3 {
        server.publish("/a", &number.to_string());
    }
    let messages = publications(&poller.poll(json!({})));
    let data: Vec<_> = messages.iter().map(|message| message["data"].clone()).collect();
    assert_eq!(data, [json!(0), json!(1), json!(2)]);
}

#[test]
fn a_denied_handshake_gets_the_reason_and_the_advice_not_to_retry() {
    let server = Server::builder().settings(settings());
    let closed = async |_: Handshake| Err(Refusal::new(403, "closed: \"ask later\""));
    let server = TestServer::of(server.authenticate(closed));
    let reply = server.http().call(json!({"id": "1", "channel": "/meta/handshake", "ext": {"token": "x"}}));
    let expected = json!({"id": "1", "channel": "/meta/handshake", "successful": false,
        "error": "403:closed_ _ask later_:handshake_denied", "advice": {"reconnect": "none"}});
    assert_eq!(reply, expected);
    assert_eq!((server.metric("encke_sessions"), server.metric("encke_sessions_refused")), (0, 1));
}

#[test]
fn disconnecting_an_unknown_session_does_nothing() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    for id in guesses() {
        server.handle.disconnect(&id);
    }
    std::thread::sleep(Duration::from_millis(20));
    neighbour.lives(&server);
    assert_eq!(server.metric("encke_sessions_kicked"), 0);
}

#[test]
fn a_client_that_asks_learns_its_limits_with_the_handshake() {
    let limited =
        Settings { message_bytes_max: 10_000, subscriptions_max: 7, session_messages_per_s_max: 50, ..settings() };
    let server = TestServer::start(limited);
    let mut ws = server.websocket();
    let mut handshake = |ext: serde_json::Value| {
        ws.send_json(&json!([{"channel": "/meta/handshake", "version": "1.0", "id": "h", "ext": ext}]));
        ws.next_json()[0]["ext"].clone()
    };
    let limits = json!({"message_bytes": 10_000, "batch_messages": 1_000, "channel_bytes": 256, "subscriptions": 7,
        "positions": 1_000, "messages_per_s": 50});
    assert_eq!(handshake(json!({"limits": true}))["limits"], limits);
    assert_eq!(handshake(json!({"limits": false})), json!(null));
}
