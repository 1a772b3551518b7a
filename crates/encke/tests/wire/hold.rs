//! `GET /hold/CHANNEL`: requests that wait for a message.

use encke::{Access, Builder, ChannelRule, Grant, Handshake, Identity, Patterns, Refusal, Server, Settings};
use serde_json::{Value, json};

use crate::common::{Http, Response, TestServer, settings, wait_until};

fn with_history(shards: usize) -> Settings {
    let rule = ChannelRule { pattern: "/stored/**".into(), history_messages: 100, ..ChannelRule::default() };
    Settings { shards, channels: vec![rule], ..settings() }
}

/// Sends a request, and waits until it is held.
#[track_caller]
fn hold(server: &TestServer, target: &str) -> Http {
    let held = server.metric("encke_in_process_subscriptions");
    let mut http = server.http();
    http.send("GET", target, &[], b"");
    server.wait_for("encke_in_process_subscriptions", held + 1);
    http
}

/// The target of the request that continues.
fn next(response: &Response) -> String {
    let link = response.header("link").expect("a link");
    let target = link.strip_prefix('<').and_then(|link| link.strip_suffix(r#">; rel="next""#));
    target.unwrap_or_else(|| panic!("{link}")).to_owned()
}

fn json_of(response: &Response) -> Value {
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")), "{response:?}");
    serde_json::from_slice(&response.body).expect("JSON")
}

#[test]
fn a_message_releases_every_request_that_waits_for_it() {
    for shards in [1, 2] {
        let server = TestServer::start(Settings { shards, ..settings() });
        let mut waiting: Vec<Http> = (0..5).map(|_| hold(&server, "/hold/news/today?timeout=60")).collect();
        waiting.push(hold(&server, "/hold/news/*"));
        waiting.push(hold(&server, "/hold/news/%2a%2A?timeout=60&unknown=1"));
        let mut other = hold(&server, "/hold/other");
        server.wait_for_exactly("encke_held_requests", 8);
        server.publish("/news/today", r#"{"big":12345678901234567890}"#);
        for http in &mut waiting {
            let response = http.receive();
            assert_eq!(response.text(), r#"[{"channel":"/news/today","data":{"big":12345678901234567890}}]"#);
            assert_eq!(response.header("cache-control"), Some("no-store"));
            // The connection goes on.
            assert_eq!(http.get("/healthz").status, 200);
        }
        server.publish("/other", "1");
        assert_eq!(json_of(&other.receive()), json!([{"channel": "/other", "data": 1}]));
        server.wait_for_exactly("encke_in_process_subscriptions", 0);
    }
}

#[test]
fn an_empty_array_comes_when_the_time_is_over() {
    let server = TestServer::start(settings());
    let response = server.http().get("/hold/a?timeout=0");
    assert_eq!(json_of(&response), json!([]));
    assert_eq!(next(&response), "/hold/a?after=none&timeout=0");
}

/// A client that follows the links gets every message once, in order, also those published between two requests.
#[test]
fn a_client_that_follows_the_links_loses_nothing() {
    for target in ["/hold/stored/a?timeout=20", "/hold/stored/**?timeout=20"] {
        let server = TestServer::start(with_history(2));
        let handle = server.handle.clone();
        let (mut http, mut target) = (server.http(), target.to_owned());
        let mut received = Vec::new();
        // At the end of its time, before there is a history.
        let response = http.get(&target.replace("20", "0"));
        assert_eq!(json_of(&response), json!([]));
        target = next(&response).replace("timeout=0", "timeout=20");
        let publisher = std::thread::spawn(move || {
            for number in 0..90 {
                handle.publish("/stored/a", &number.to_string()).expect("taken");
                if number % 7 == 0 {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        });
        while received.len() < 90 {
            let response = http.get(&target);
            for message in json_of(&response).as_array().expect("messages") {
                assert!(message["position"].is_string(), "{message}");
                received.push(message["data"].as_u64().expect("a number"));
            }
            target = next(&response);
        }
        assert!(received.into_iter().eq(0..90));
        publisher.join().expect("it publishes");
        // The position of a message is one to begin after.
        let all = json_of(&http.get("/hold/stored/a?after=earliest"));
        let position = all[87]["position"].as_str().expect("a position").to_owned();
        let rest = json_of(&http.get(&format!("/hold/stored/a?after={position}")));
        assert_eq!(
            (rest[0]["data"].clone(), rest[1]["data"].clone(), rest[2].clone()),
            (json!(88), json!(89), json!(null))
        );
    }
}

#[test]
fn messages_that_are_gone_are_reported() {
    let server = TestServer::start(with_history(1));
    server.publish("/stored/a", "1");
    server.wait_for("encke_history_messages", 1);
    let response = server.http().get("/hold/stored/a?after=0123abcd-17");
    let items = json_of(&response);
    assert_eq!(items[0], json!({"gap": "gone", "channel": "/stored/a"}));
    assert_eq!(items[1]["data"], 1);
    assert_eq!(json_of(&server.http().get(&format!("{}&timeout=0", next(&response)))), json!([]));
}

#[test]
fn requests_that_cannot_be_held_are_refused() {
    let server = TestServer::start(settings());
    for (target, status) in [
        ("/hold", 404),
        ("/holdup/a", 404),
        ("/hold/", 400),
        ("/hold/a/", 400),
        ("/hold/meta/connect", 400),
        ("/hold/service/x", 400),
        ("/hold/a/*/b", 400),
        ("/hold/%ff", 400),
        ("/hold/a?timeout=x", 400),
        ("/hold/a?timeout=-1", 400),
        ("/hold/a?timeout=1.5", 400),
        ("/hold/a?after=17", 400),
        ("/hold/a?after=%ff", 400),
        ("/hold/a/*?after=e-1", 400),
        ("/hold/a?after=/b:e-1", 400),
    ] {
        let mut http = server.http();
        assert_eq!(http.get(target).status, status, "{target}");
        assert_eq!(http.get("/healthz").status, 200);
    }
    let long = format!("/hold/{}", "a".repeat(300));
    assert_eq!(server.http().get(&long).status, 400);
    assert_eq!(server.http().request("DELETE", "/hold/a", &[], b"").status, 405);
    assert_eq!(server.http().request("POST", "/hold/a", &[], b"x").status, 405);
    assert_eq!(server.http().request("GET", "/hold/a", &[], b"x").status, 400);
    let foreign = [("origin", "https://evil.example")];
    assert_eq!(server.http().request("GET", "/hold/a", &foreign, b"").status, 403);
    let foreign = [("sec-fetch-site", "cross-site")];
    assert_eq!(server.http().request("GET", "/hold/a", &foreign, b"").status, 403);
    assert_eq!(server.metric("encke_in_process_subscriptions"), 0);
}

#[test]
fn an_allowed_origin_may_read_the_answer_and_its_link() {
    let server = TestServer::start(Settings { allowed_origins: vec!["https://a.example".into()], ..settings() });
    let response = server.http().request("GET", "/hold/a?timeout=0", &[("origin", "https://a.example")], b"");
    assert_eq!(response.header("access-control-allow-origin"), Some("https://a.example"));
    assert_eq!(response.header("access-control-expose-headers"), Some("link"));
}

#[test]
fn an_empty_path_holds_nothing() {
    let server = TestServer::start(Settings { hold_path: String::new(), ..settings() });
    assert_eq!(server.http().get("/hold/a?timeout=0").status, 404);
    let server = TestServer::start(Settings { hold_path: "/wait/for".into(), ..settings() });
    assert_eq!(json_of(&server.http().get("/wait/for/a?timeout=0")), json!([]));
}

/// Knows users by a header, and allows each its own channels; both answers take a moment.
pub fn doors() -> Builder {
    Server::builder()
        .settings(settings())
        .authenticate(async |handshake: Handshake| {
            tokio::task::yield_now().await;
            let user = handshake.header("x-user").ok_or(Refusal::new(401, "who"))?;
            let mut identity = Identity::of_user(user);
            if user == "narrow" {
                identity.subscribe = Patterns::new(["/own/narrow/a"]).ok();
            }
            Ok(identity)
        })
        .authorize_async("/**", async |access: Access| {
            tokio::task::yield_now().await;
            let is_own = access.channel().starts_with(&format!("/own/{}/", access.user()));
            if is_own { Grant::Grant } else { Grant::deny("not_yours") }
        })
}

#[test]
fn the_application_decides_like_about_a_subscribe() {
    let server = TestServer::of(doors());
    for (user, channel, status) in [
        (None, "/own/a/x", 401),
        (Some("a"), "/own/a/x", 200),
        (Some("a"), "/own/b/x", 403),
        (Some("a"), "/own/**", 403),
        (Some("narrow"), "/own/narrow/a", 200),
        (Some("narrow"), "/own/narrow/b", 403),
    ] {
        let headers: Vec<_> = user.map(|user| ("x-user", user)).into_iter().collect();
        let response = server.http().request("GET", &format!("/hold{channel}?timeout=0"), &headers, b"");
        assert_eq!(response.status, status, "{user:?} {channel}");
    }
}

/// Knows tokens by a header. `short` has ended.
fn tokens() -> Builder {
    Server::builder()
        .settings(Settings { address_handshakes_per_s_max: 4, ..settings() })
        .authenticate(async |handshake: Handshake| {
            let token = handshake.header("x-token").ok_or(Refusal::new(401, "who"))?;
            let expires_ms = (token == "short").then_some(1);
            Ok(Identity { token_id: Some(token.into()), expires_ms, ..Identity::of_user("ann") })
        })
        .authorize("/**", |_: &Access| Grant::Grant)
}

#[test]
fn a_request_whose_token_is_revoked_or_has_ended_gets_no_message() {
    let server = TestServer::of(tokens());
    let held = |token: &str| {
        let mut http = server.http();
        http.send("GET", "/hold/a", &[("x-token", token)], b"");
        http
    };
    let (mut revoked, mut valid) = (held("one"), held("two"));
    server.wait_for("encke_in_process_subscriptions", 2);
    assert!(server.revoke("one", u64::MAX));
    server.publish("/a", "1");
    assert_eq!((revoked.receive().status, valid.receive().status), (401, 200));
    assert_eq!([held("one"), held("short")].map(|mut http| http.receive().status), [401, 401]);
}

#[test]
fn requests_are_authenticated_at_the_rate_of_handshakes() {
    let server = TestServer::of(tokens());
    let statuses: Vec<u16> = (0..200).map(|_| server.http().get("/hold/a?timeout=0").status).collect();
    assert_eq!(statuses[0], 401, "{statuses:?}");
    assert!(statuses.contains(&429), "{statuses:?}");
    assert!(server.metric("encke_address_rates_exceeded") > 0);
}

#[test]
fn a_client_that_leaves_is_forgotten() {
    let server = TestServer::start(settings());
    let http = hold(&server, "/hold/a");
    server.wait_for_exactly("encke_held_requests", 1);
    drop(http);
    server.wait_for_exactly("encke_held_requests", 0);
    server.wait_for_exactly("encke_in_process_subscriptions", 0);
    hold(&server, "/hold/a").tcp.reset();
    server.wait_for_exactly("encke_in_process_subscriptions", 0);
}

#[test]
fn a_drain_answers_held_requests() {
    let server = TestServer::start(Settings { drain_timeout_ms: 20_000, ..settings() });
    let mut http = hold(&server, "/hold/a");
    server.wait_for_exactly("encke_held_requests", 1);
    let handle = server.handle.clone();
    handle.drain();
    let response = http.receive();
    assert_eq!((json_of(&response), response.header("connection")), (json!([]), Some("close")));
    assert!(http.tcp.ends());
    wait_until("the connection is gone", || server.handle.subscribe("/a").is_ok());
}
