//! Rights over real sockets: nobody gets by one way in what another refuses.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use encke::{
    Access, Builder, ChannelRule, Grant, Handshake, Identity, Operation, Patterns, Raw, Refusal, Server, Settings,
};
use serde_json::{Value, json};

use crate::common::{Folder, TestServer, Ws, settings};

/// Knows users by a header. The user `nobody` has no rights.
async fn by_header(handshake: Handshake) -> Result<Identity, Refusal> {
    let user = handshake.header("x-user").unwrap_or_default();
    let none = (user == "nobody").then(Patterns::default);
    Ok(Identity { subscribe: none.clone(), publish: none, ..Identity::of_user(user) })
}

fn server() -> Builder {
    let presence = |pattern: &str| ChannelRule {
        pattern: pattern.into(),
        presence: true,
        history_messages: 10,
        ..ChannelRule::default()
    };
    let channels = vec![presence("/room/*"), presence("/secret")];
    Server::builder().settings(Settings { channels, ..settings() }).authenticate(by_header)
}

/// A session of a user.
fn session(server: &TestServer, user: &str) -> Ws {
    let mut ws = Ws::connect(server.address(), &[("x-user", user)]);
    ws.handshake();
    ws
}

/// The error of a message, or nothing.
fn error(reply: &Value) -> String {
    assert_eq!(reply["successful"], json!(reply.get("error").is_none()), "{reply}");
    reply["error"].as_str().unwrap_or_default().to_owned()
}

/// The errors of a message on all transports.
fn errors(server: &TestServer, user: &str, message: &Value) -> Vec<String> {
    let mut ws = session(server, user);
    let over_websocket = error(&ws.call(message.clone()));
    let mut http = server.http();
    let headers = [("x-user", user), ("content-type", "application/json")];
    let mut post = |messages: Value| {
        let response = http.request("POST", "/cometd", &headers, messages.to_string().as_bytes());
        response.messages()[0].clone()
    };
    let id = post(json!([{"channel": "/meta/handshake", "version": "1.0"}]))["clientId"].clone();
    let mut message = message.clone();
    message["clientId"] = id;
    let over_long_polling = error(&post(json!([message])));
    let text = json!([message]).to_string();
    let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let response = http.request("GET", &format!("/cometd?jsonp=f&message={encoded}"), &headers, b"");
    let text = response.text();
    let inner = text.trim_start_matches("/**/").trim_start_matches("f(").trim_end().trim_end_matches([')', ';']);
    let replies: Value = serde_json::from_str(inner).unwrap_or_else(|_| panic!("{text}"));
    let over_callback_polling = error(&replies[0]);
    vec![over_websocket, over_long_polling, over_callback_polling]
}

/// The errors of a subscribe on all transports, and the status of a held request.
fn subscribed(server: &TestServer, user: &str, name: &str) -> (Vec<String>, u16, u16) {
    let subscribe = json!({"id": "s", "channel": "/meta/subscribe", "subscription": name});
    let held = |query: &str| {
        server.http().request("GET", &format!("/hold{name}?timeout=0{query}"), &[("x-user", user)], b"").status
    };
    (errors(server, user, &subscribe), held(""), held("&after=earliest"))
}

fn refused(error: &str) -> (Vec<String>, u16, u16) {
    (vec![error.to_owned(); 3], 403, 403)
}

fn allowed() -> (Vec<String>, u16, u16) {
    (vec![String::new(); 3], 200, 200)
}

/// Grants all to administrators.
fn only_for_root(access: &Access<'_>) -> Grant {
    if access.user() == "root" { Grant::Grant } else { Grant::deny("no") }
}

#[test]
fn a_pattern_is_up_to_the_authorizers_of_all_channels_that_it_reaches() {
    let later = async |access: Access<'static>| {
        tokio::task::yield_now().await;
        only_for_root(&access)
    };
    for server in [server().authorize("/room/*", only_for_root), server().authorize_async("/room/*", later)] {
        let server = TestServer::of(server.authorize("/free/*", |_: &Access| Grant::Grant));
        for pattern in ["/room/*", "/room/**", "/**", "/room/a"] {
            assert_eq!(subscribed(&server, "ann", pattern), refused("403:no:subscribe_denied"), "{pattern}");
        }
        for name in ["/room", "/*", "/room/a/b", "/room/a/**", "/free/**"] {
            assert_eq!(subscribed(&server, "ann", name), allowed(), "{name}");
        }
        for pattern in ["/room/**", "/**"] {
            assert_eq!(subscribed(&server, "root", pattern), allowed(), "{pattern}");
        }
    }
}

#[test]
fn each_name_with_authorizers_that_a_pattern_reaches_has_to_grant() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str, grant: fn() -> Grant| {
        let asked = asked.clone();
        move |access: &Access<'_>| {
            if access.operation() == Operation::Subscribe {
                asked.lock().expect("no panic").push(format!("{name} about {}", access.channel()));
            }
            grant()
        }
    };
    let server = server()
        .authorize("/**", note("/**", || Grant::Grant))
        .authorize("/a/b", note("/a/b", || Grant::Ignore))
        .authorize("/a/*", note("/a/*", || Grant::Grant));
    let server = TestServer::of(server);
    let mut ws = session(&server, "ann");
    let mut subscribe =
        |name: &str| error(&ws.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": name})));
    assert_eq!(subscribe("/a/**"), "403:denied_by_not_granting:subscribe_denied", "/a/b has no opinion");
    let taken = || std::mem::take(&mut *asked.lock().expect("no panic"));
    assert_eq!(taken(), ["/** about /a/**", "/a/* about /a/**", "/a/b about /a/**"]);
    assert_eq!(subscribe("/a/c"), "");
    assert_eq!(taken(), ["/** about /a/c", "/a/* about /a/c"]);
}

fn not_the_secret(access: &Access<'_>) -> Grant {
    if access.channel() == "/room/secret" { Grant::deny("secret") } else { Grant::Grant }
}

/// Refuses the channel `/room/secret`, at once or later.
fn secretive() -> [Builder; 2] {
    let later = async |access: Access<'static>| {
        tokio::task::yield_now().await;
        not_the_secret(&access)
    };
    [server().authorize("/room/*", not_the_secret), server().authorize_async("/room/*", later)]
}

#[test]
fn who_may_not_subscribe_does_not_learn_who_is_there() {
    for server in secretive() {
        let server = TestServer::of(server);
        assert_eq!(subscribed(&server, "ann", "/presence/room/secret"), refused("403:secret:subscribe_denied"));
        assert_eq!(subscribed(&server, "ann", "/presence/room/open"), allowed());
        let ask = |channel: &str| json!({"id": "p", "channel": "/service/presence", "data": {"channel": channel}});
        assert_eq!(errors(&server, "ann", &ask("/room/secret")), ["403:secret:subscribe_denied"; 3]);
        assert_eq!(errors(&server, "ann", &ask("/room/open")), [""; 3]);
        assert_eq!(errors(&server, "nobody", &ask("/room/open")), ["403::subscribe_denied"; 3]);
    }
    let server = TestServer::of(server().authorize("/secret", only_for_root));
    for pattern in ["/presence/**", "/presence/*", "/**"] {
        assert_eq!(subscribed(&server, "ann", pattern), refused("403:no:subscribe_denied"), "{pattern}");
    }
}

#[test]
fn an_identity_without_rights_gets_nothing_by_any_way() {
    let calls = Arc::new(AtomicUsize::new(0));
    let called = calls.clone();
    let server = TestServer::of(server().service("/service/x", move || {
        called.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Raw("\"called\"".to_owned()))
    }));
    server.publish("/room/a", "1");
    for name in ["/room/a", "/presence/room/a", "/room/*", "/**", "/other"] {
        assert_eq!(subscribed(&server, "nobody", name), refused("403::subscribe_denied"), "{name}");
    }
    for (user, of_publish) in [("nobody", "403::publish_denied"), ("ann", "")] {
        assert_eq!(errors(&server, user, &json!({"id": "p", "channel": "/room/a", "data": 1})), [of_publish; 3]);
    }
    assert_eq!(
        errors(&server, "nobody", &json!({"id": "c", "channel": "/service/x", "data": 1})),
        ["403::publish_denied"; 3]
    );
    assert_eq!(calls.load(Ordering::Relaxed), 0, "a service was called");
    let mut ws = session(&server, "nobody");
    // The server's side may subscribe it. That is no right to what was before.
    let (handle, id) = (server.handle.clone(), ws.id.clone());
    let subscribed = crate::common::wait(async move { handle.subscribe_session(&id, "/room/a").await });
    subscribed.expect("a subscription");
    let replay =
        json!({"id": "r", "channel": "/meta/subscribe", "subscription": "/room/a", "ext": {"replay": {"/room/a": -2}}});
    assert_eq!(error(&ws.call(replay)), "403::subscribe_denied");
}

#[test]
fn a_call_that_authorizers_refuse_does_not_reach_the_service() {
    let later = async |access: Access<'static>| {
        tokio::task::yield_now().await;
        only_for_root(&access)
    };
    for server in [server().authorize("/service/**", only_for_root), server().authorize_async("/service/x", later)] {
        let calls = Arc::new(AtomicUsize::new(0));
        let called = calls.clone();
        let server = TestServer::of(server.service("/service/x", move || {
            called.fetch_add(1, Ordering::Relaxed);
            std::future::ready(())
        }));
        let call = json!({"id": "c", "channel": "/service/x", "data": 1});
        assert_eq!(errors(&server, "ann", &call), ["403:no:publish_denied"; 3]);
        assert_eq!(calls.load(Ordering::Relaxed), 0, "a service was called");
        assert_eq!(errors(&server, "root", &call), [""; 3]);
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }
}

#[test]
fn sessions_of_another_policy_are_not_restored() {
    type Change = fn(Builder) -> Builder;
    let plain: Change = |builder| builder;
    let cases: [(&str, Change, Change, u64); 5] = [
        ("the same", plain, plain, 1),
        ("authentication since", plain, |builder| builder.authenticate(by_header), 0),
        ("authentication no more", |builder| builder.authenticate(by_header), plain, 0),
        (
            "an authorizer since that denies",
            plain,
            |builder| builder.authorize("/a", |_: &Access| Grant::deny("no")),
            0,
        ),
        ("an authorizer since that grants", plain, |builder| builder.authorize("/a", |_: &Access| Grant::Grant), 1),
    ];
    for (name, before, after, restored) in cases {
        let folder = Folder::new();
        let keeping = || Server::builder().settings(Settings { data: folder.name(), ..settings() });
        let server = TestServer::of(before(keeping()));
        let mut ws = server.session();
        ws.subscribe("/a");
        server.stop();
        let server = TestServer::of(after(keeping()));
        let metrics = [server.metric("encke_sessions_restored"), server.metric("encke_sessions_not_restored")];
        assert_eq!(metrics, [restored, 1 - restored], "{name}");
        let mut again = server.websocket();
        again.id.clone_from(&ws.id);
        let reply = again.call(json!({"id": "1", "channel": "/b", "data": 1}));
        assert_eq!(error(&reply), if restored == 1 { "" } else { "402::session_unknown" }, "{name}");
    }
}
