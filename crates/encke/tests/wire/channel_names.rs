//! Names of channels, patterns and subscriptions (Bayeux 1.0 "Channels"; rows 19 to 22 and 27 of `docs/contributing/bad-input.md`).

use encke::{Access, ChannelRule, Grant, Operation, Publishing, Server, Settings, Verdict};
use serde_json::json;

use crate::common::{TestServer, Ws, settings};

/// The error of a publish, or None.
fn publish(ws: &mut Ws, channel: &str) -> Option<String> {
    ws.call(json!({"id": "p", "channel": channel, "data": 1}))["error"].as_str().map(String::from)
}

/// The error of a subscribe, or None.
fn subscribe(ws: &mut Ws, channel: &str) -> Option<String> {
    let reply = ws.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": channel}));
    assert_eq!(reply["subscription"], channel, "it comes back as it was sent");
    reply["error"].as_str().map(String::from)
}

/// Row 20: the same names are refused everywhere. Among them are names with a meaning for other brokers.
#[test]
fn an_invalid_channel_name_gets_405() {
    let server = TestServer::start(settings());
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    for name in [
        "/",
        "//",
        "/a/",
        "/a//b",
        "//a",
        "/**/a",
        "/a/*/b",
        "/a*",
        "/*a",
        "/***",
        "/a/***",
        "/*/**",
        "/a/**/",
        "/a%2fb",
        "/a\\b",
        "/a>",
        "/a/>",
        "/a<b",
        "/a?b=c",
        "/a&b",
        "/a,b",
        "/a;b",
        "/a'b",
        "/a\"b",
        "/a\0b",
        "/a\u{7f}",
        "/\u{e9}",
        "/\u{202e}abc",
        "/a\u{200b}",
        "/\u{ff0f}a",
        "/a|b",
        "/a^b",
        "/a`b",
        "/a=b",
        "/[a]",
        "/a:b",
    ] {
        assert_eq!(publish(&mut ws, name).as_deref(), Some("405::channel_invalid"), "publish to {name:?}");
        assert_eq!(subscribe(&mut ws, name).as_deref(), Some("405::channel_invalid"), "subscribe to {name:?}");
    }
    for name in ["", "a", "*", "a/b", "meta/subscribe", "\u{0}/a"] {
        assert_eq!(publish(&mut ws, name).as_deref(), Some("405::channel_invalid"), "{name:?}");
        assert_eq!(subscribe(&mut ws, name).as_deref(), Some("403::subscription_invalid"), "{name:?}");
    }
    assert_eq!(server.metric("encke_channels"), 1, "only the neighbour's");
    neighbour.lives(&server);
}

#[test]
fn unusual_names_are_ordinary_channel_names() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    for name in [
        "/..",
        "/../etc/passwd",
        "/a.b",
        "/a b",
        "/$SYS",
        "/#",
        "/+",
        "/{a}~@!",
        "/__proto__",
        "/constructor",
        "/meta",
        "/service",
    ] {
        let mut one = server.session();
        assert_eq!(subscribe(&mut one, name), None, "{name}");
        assert_eq!(publish(&mut ws, name), None, "{name}");
        assert_eq!(one.next_json(), json!([{"channel": name, "data": 1}]));
    }
}

/// Row 19: channel names are compared as a whole (CVE-2020-11020: a prefix was enough).
#[test]
fn a_name_that_only_begins_like_a_meta_channel_is_no_meta_channel() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    for name in [
        "/meta/subscribe/x",
        "/meta/x",
        "/meta/connect/y",
        "/meta/*",
        "/meta/**",
        "/meta/subscribe.",
        "/meta/Subscribe",
    ] {
        let reply = ws.call(json!({"id": "1", "channel": name, "subscription": "/secret", "data": 1}));
        assert_eq!(reply["error"], "403:denied_by_security_policy:channel_create_denied", "{name}");
    }
    for name in ["/meta//subscribe", "/meta/subscribe/", "meta/subscribe", "//meta/subscribe", "/meta/subscribe/*/x"] {
        let reply = ws.call(json!({"id": "1", "channel": name, "subscription": "/secret"}));
        assert_eq!(reply["error"], "405::channel_invalid", "{name}");
    }
    // A different name: an ordinary channel.
    assert_eq!(publish(&mut ws, "/META/subscribe"), None);
    assert_eq!(server.metric("encke_subscriptions"), 0);
}

#[test]
fn subscriptions_to_meta_and_service_channels_are_refused() {
    let server = TestServer::of(Server::builder().settings(settings()).service("/service/x", async || ()));
    let mut ws = server.session();
    for name in ["/meta/connect", "/meta/handshake", "/meta/x"] {
        let error = subscribe(&mut ws, name);
        assert_eq!(error.as_deref(), Some("403:denied_by_security_policy:subscribe_denied"), "{name}");
    }
    for name in ["/meta/*", "/meta/**"] {
        assert_eq!(subscribe(&mut ws, name).as_deref(), Some("403:denied_by_security_policy:create_denied"), "{name}");
    }
    for name in ["/service/x", "/service/*", "/service/**", "/**", "/*"] {
        assert_eq!(subscribe(&mut ws, name), None, "{name}");
    }
    let mut caller = server.session();
    assert_eq!(publish(&mut caller, "/service/x"), None);
    // The caller of a service that nobody offers does not wait for its answer.
    for name in ["/service/y", "/service/x/y", "/service/*", "/service/auth/refresh"] {
        assert_eq!(publish(&mut caller, name).as_deref(), Some("404::service_unknown"), "{name}");
    }
    caller.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    // Only the broadcast arrives, and only once, though two patterns match.
    server.publish("/seen", "1");
    assert_eq!(ws.next_json(), json!([{"channel": "/seen", "data": 1}]));
    assert_eq!(server.metric("encke_subscriptions"), 2);
}

#[test]
fn a_publication_to_a_pattern_reaches_subscribers_of_the_same_pattern_only() {
    let server = TestServer::start(settings());
    let mut exact = server.session();
    let mut wide = server.session();
    exact.subscribe("/c/*");
    wide.subscribe("/c/**");
    wide.subscribe("/c/x");
    let mut publisher = server.session();
    publisher.publish("/c/*", json!(1));
    publisher.publish("/c/x", json!(2));
    assert_eq!(exact.next_json(), json!([{"channel": "/c/*", "data": 1}]));
    assert_eq!(exact.next_json(), json!([{"channel": "/c/x", "data": 2}]));
    assert_eq!(wide.next_json(), json!([{"channel": "/c/x", "data": 2}]), "once, and not the pattern");
}

/// Row 21: the work of a publication depends on the depth of its channel, not on the number of patterns.
#[test]
fn many_patterns_do_not_slow_others_down() {
    let server = TestServer::start(Settings { subscriptions_max: 10_000, ..settings() });
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    for hundred in 0..50 {
        let names: Vec<String> = (0..100).map(|number| format!("/a/b/c/d/{hundred}/{number}/**")).collect();
        let reply = ws.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": names}));
        assert_eq!(reply["successful"], true);
    }
    let mut globs: Vec<Ws> = (0..20).map(|_| server.session()).collect();
    globs.iter_mut().for_each(|ws| ws.subscribe("/**"));
    let mut publisher = server.session();
    for number in 0..200 {
        publisher.publish("/a/b/c/d/49/99/e/f/g/h", json!(number));
    }
    for ws in globs.iter_mut().chain([&mut ws]) {
        for number in 0..200 {
            assert_eq!(ws.next_json()[0]["data"], number);
        }
    }
    assert_eq!(server.metric("encke_subscriptions"), 1 + 5_000 + 20);
    neighbour.lives(&server);
}

#[test]
fn an_array_of_subscriptions_stops_at_the_first_that_is_refused() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    let names = json!(["/one", "/two/**", "/meta/connect", "/three"]);
    let reply = ws.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": names}));
    assert_eq!(reply["error"], "403:denied_by_security_policy:subscribe_denied");
    assert_eq!(reply["subscription"], names);
    assert_eq!(server.metric("encke_subscriptions"), 2, "those before it stand");
}

#[test]
fn subscriptions_of_the_wrong_kind_have_their_errors() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    for (subscription, error) in [
        (json!(null), "403::subscription_missing"),
        (json!([]), "403::subscription_missing"),
        (json!(3), "403::subscription_invalid"),
        (json!({"a": 1}), "403::subscription_invalid"),
        (json!(["/a", 3]), "403::subscription_invalid"),
        (json!([["/a"]]), "403::subscription_invalid"),
        (json!(true), "403::subscription_invalid"),
    ] {
        for channel in ["/meta/subscribe", "/meta/unsubscribe"] {
            let reply = ws.call(json!({"id": "1", "channel": channel, "subscription": subscription}));
            assert_eq!(reply["error"], error, "{channel} {subscription}");
        }
    }
    let reply = ws.call(json!({"id": "1", "channel": "/meta/subscribe"}));
    assert_eq!(reply["error"], "403::subscription_missing");
    assert_eq!(server.metric("encke_subscriptions"), 0);
}

/// Row 22.
#[test]
fn repeated_subscribes_and_unknown_unsubscribes_change_nothing() {
    let server = TestServer::start(settings());
    let mut ws = server.session();
    let mut other = server.session();
    other.subscribe("/known");
    let many = vec![ws.mine(json!({"id": "s", "channel": "/meta/subscribe", "subscription": "/again"})); 1_000];
    for _ in 0..20 {
        ws.send_json(&json!(many));
        let replies = ws.next_json();
        assert!(replies.as_array().expect("replies").iter().all(|reply| reply["successful"] == true));
    }
    assert_eq!(server.metric("encke_subscriptions"), 2);
    let mut unsubscribe = |name: &str| {
        let reply = ws.call(json!({"id": "u", "channel": "/meta/unsubscribe", "subscription": name}));
        reply["error"].as_str().map(String::from)
    };
    assert_eq!(unsubscribe("/known"), None, "known, but not ours");
    assert_eq!(unsubscribe("/unheard/of"), None, "what nobody subscribes to is like what we do not");
    assert_eq!(unsubscribe("/meta/connect").as_deref(), Some("400::channel_missing"));
    assert_eq!(unsubscribe("/again"), None);
    assert_eq!(server.metric("encke_subscriptions"), 1);
    server.publish("/known", "1");
    assert_eq!(other.next_json(), json!([{"channel": "/known", "data": 1}]));
}

#[test]
fn two_sessions_that_subscribe_and_leave_one_channel_leave_nothing_behind() {
    let server = TestServer::start(Settings { shards: 2, ..settings() });
    let mut neighbour = server.neighbour();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut ws = server.session();
            std::thread::spawn(move || {
                for _ in 0..200 {
                    ws.send_json(&json!([
                        ws.mine(
                            json!({"id": "1", "channel": "/meta/subscribe", "subscription": ["/x", "/x/*", "/**"]})
                        ),
                        ws.mine(
                            json!({"id": "2", "channel": "/meta/unsubscribe", "subscription": ["/x", "/**", "/x/*"]})
                        ),
                    ]));
                    // Publications of the others may arrive between.
                    while ws.next_json()[0]["id"] != "1" {}
                }
                ws
            })
        })
        .collect();
    let ended: Vec<Ws> = threads.into_iter().map(|thread| thread.join().expect("no surprise")).collect();
    assert_eq!(server.metric("encke_subscriptions"), 1);
    drop(ended);
    neighbour.lives(&server);
}

/// Grants the literal name `/open/**`, and below `/rooms` each session its own channel only.
fn rights(access: &Access) -> Grant {
    let is_own = || access.channel() == format!("/rooms/{}", access.caller().session());
    match access.operation() {
        Operation::Subscribe if !access.channel().starts_with("/open/") => Grant::deny("not_yours"),
        Operation::Publish if access.channel().starts_with("/rooms/") && !is_own() => Grant::deny("not_yours"),
        _ => Grant::Grant,
    }
}

/// Row 27: a right to a channel does not grant a pattern that covers it, nor publishing.
#[test]
fn rights_are_checked_for_every_exact_name() {
    let server = Server::builder().settings(settings()).authorize("/**", rights);
    let server = TestServer::of(server.filter("/open/swallowed", |_: &Publishing| Verdict::Delete));
    let mut ws = server.session();
    let mut other = server.session();
    assert_eq!(subscribe(&mut ws, "/open/x"), None);
    for name in ["/**", "/*", "/rooms/**", "/rooms/*", "/rooms/a", "/open"] {
        assert_eq!(subscribe(&mut ws, name).as_deref(), Some("403:not_yours:subscribe_denied"), "{name}");
    }
    let (own, others) = (format!("/rooms/{}", ws.id), format!("/rooms/{}", other.id));
    assert_eq!(publish(&mut ws, &own), None);
    for name in [others.as_str(), "/rooms/*", "/rooms/**"] {
        assert_eq!(publish(&mut ws, name).as_deref(), Some("403:not_yours:publish_denied"), "{name}");
    }
    assert_eq!(publish(&mut other, "/open/swallowed").as_deref(), Some("404::message_deleted"));
    other.publish("/open/x", json!(2));
    assert_eq!(ws.next_json(), json!([{"channel": "/open/x", "data": 2}]), "nothing refused was delivered");
}

/// Its limits come from the settings, not from the defaults.
#[test]
fn a_rule_for_a_channel_deeper_than_the_default_limit_applies() {
    let deep = "/deep".repeat(20);
    let rule = ChannelRule { pattern: deep.clone(), broadcast_to_publisher: Some(false), ..ChannelRule::default() };
    let server = TestServer::start(Settings { channel_segments_max: 20, channels: vec![rule], ..settings() });
    let mut ws = server.session();
    ws.subscribe("/deep/**");
    // The next message is the reply, not the publication.
    ws.publish(&deep, json!(1));
}
