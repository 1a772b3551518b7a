//! Values that hooks take beside their subject, subscriptions of sessions, and what hooks add to the reply to a handshake.

use std::sync::{Arc, Mutex};

use encke::{
    Access, Actions, AppState, ChannelEvent, Data, Grant, Handle, Handshake, Identity, Operation, Publishing, Refusal,
    RouteRequest, SessionEvent, SubscriptionEvent, User, Verdict,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{error, server, subscribe};
use crate::common::{TestServer, Ws, data, wait_until};

type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, text: impl Into<String>) {
    log.lock().expect("no panic").push(text.into());
}

#[derive(Serialize, Deserialize)]
struct Price {
    cents: u64,
}

/// A user named in the `ext`; the others are refused.
async fn named(handshake: Handshake, AppState(log): AppState<Log>) -> Result<Identity, Refusal> {
    let ext: Value = serde_json::from_str(handshake.ext().unwrap_or("{}")).expect("JSON");
    note(&log, format!("handshake with {}", handshake.fields().unwrap_or("nothing")));
    match ext["user"].as_str() {
        Some(user) => Ok(Identity::of_user(user).reply_ext("login", r#"{"ok":true}"#).reply_field("motd", "\"hello\"")),
        None => Err(Refusal::new(401, "who").reply_ext("login", r#"{"attempts":2}"#).reply_field("help", "\"/login\"")),
    }
}

#[test]
fn all_hooks_take_states_data_and_users() {
    let log = Log::default();
    let server = server()
        .state(log.clone())
        .authenticate(named)
        .authorize("/a/**", |access: &Access, AppState(log): AppState<Log>, User(identity): User| {
            note(&log, format!("{:?} by {}", access.operation(), identity.user));
            Grant::Grant
        })
        .authorize_async("/b/**", async |access: Access<'static>, User(identity): User| match access.operation() {
            Operation::Publish if &*identity.user != "ann" => Grant::deny("only_ann"),
            _ => Grant::Grant,
        })
        .filter("/a/*", |_: &Publishing, Data(price): Data<Price>, handle: Handle| {
            handle.publish_json("/log", &price.cents).map_or(Verdict::Delete, |()| Verdict::Forward)
        })
        .filter_json("/b/typed", |price: Price| (price.cents > 0).then_some(Price { cents: price.cents * 2 }))
        .filter_async("/b/late", async |_: Publishing<'static>, Data(price): Data<Price>| {
            Verdict::from(Data([price.cents]))
        })
        .on_session(|event: &SessionEvent, actions: &mut Actions, AppState(log): AppState<Log>| {
            if let SessionEvent::Opened { caller } = event {
                note(&log, format!("opened by {}", caller.user()));
                actions.publish("/log", "\"opened\"");
            }
        })
        .on_channel("/a/x", |event: &ChannelEvent, _: &mut Actions, AppState(log): AppState<Log>| {
            note(&log, format!("{event:?}"));
        })
        .route("/log", async |_: RouteRequest, AppState(log): AppState<Log>| Data(log.lock().expect("no panic").len()));
    let server = TestServer::of(server);
    let mut reader = server.handle.subscribe("/log").expect("a channel");
    let open = |user: &str| {
        let mut ws = server.websocket();
        ws.send_json(&json!([{"id": "h", "channel": "/meta/handshake", "version": "1.0", "colour": "red",
            "supportedConnectionTypes": ["websocket"], "ext": {"user": user}}]));
        let reply = ws.next_json()[0].clone();
        assert_eq!((&reply["ext"]["login"]["ok"], &reply["motd"]), (&json!(true), &json!("hello")), "{reply}");
        ws.id = reply["clientId"].as_str().expect("an id").to_owned();
        ws
    };
    let (mut ann, mut bob) = (open("ann"), open("bob"));
    assert_eq!(data(&mut reader, 2), ["\"opened\""; 2]);
    ann.subscribe("/a/x");
    bob.publish("/a/x", json!({"cents": 5}));
    assert_eq!(ann.next_json()[0]["data"]["cents"], 5);
    assert_eq!(data(&mut reader, 1), ["5"]);
    let refused = |ws: &mut Ws, channel: &str, data: Value| {
        error(&ws.call(json!({"id": "p", "channel": channel, "data": data}))).to_owned()
    };
    assert_eq!(refused(&mut bob, "/a/x", json!("no price")), "403:invalid_data:publish_denied");
    assert_eq!(refused(&mut bob, "/b/x", json!(1)), "403:only_ann:publish_denied");
    let mut typed = server.handle.subscribe("/b/*").expect("a pattern");
    for (channel, received) in [("/b/typed", r#"{"cents":14}"#), ("/b/late", "[7]")] {
        ann.publish(channel, json!({"cents": 7}));
        assert_eq!(data(&mut typed, 1), [received], "{channel}");
    }
    assert_eq!(refused(&mut ann, "/b/typed", json!({"cents": 0})), "404::message_deleted");
    let noted = log.lock().expect("no panic").clone();
    for text in ["handshake with {\"colour\":\"red\"}", "opened by bob", "Publish by bob", "Create by ann"] {
        assert!(noted.iter().any(|line| line == text), "{text}: {noted:?}");
    }
    assert!(noted.iter().any(|line| line.starts_with("FirstSubscribed")), "{noted:?}");
    assert_eq!(server.http().get("/log").text(), noted.len().to_string());
}

#[test]
fn a_refused_handshake_says_what_the_hook_has_added() {
    let server = TestServer::of(server().state(Log::default()).authenticate(named));
    let mut ws = server.websocket();
    let reply = ws.call(json!({"id": "h", "channel": "/meta/handshake", "version": "1.0",
        "supportedConnectionTypes": ["websocket"]}));
    assert_eq!(error(&reply), "401:who:handshake_denied");
    assert_eq!((&reply["ext"], &reply["help"]), (&json!({"login": {"attempts": 2}}), &json!("/login")));
}

#[test]
fn a_program_learns_of_each_subscription_and_its_end() {
    let log = Log::default();
    let server = TestServer::of(server().state(log.clone()).on_subscription(
        "/c/**",
        |event: &SubscriptionEvent, actions: &mut Actions, AppState(log): AppState<Log>| {
            let (is_begin, caller, channel) = match event {
                SubscriptionEvent::Subscribed { caller, channel } => (true, caller, channel),
                SubscriptionEvent::Unsubscribed { caller, channel } => (false, caller, channel),
                _ => return,
            };
            actions.publish("/log", &format!("\"{channel}\""));
            note(&log, format!("{} {is_begin} {channel}", caller.session()));
        },
    ));
    let mut reader = server.handle.subscribe("/log").expect("a channel");
    let (mut one, mut two) = (server.session(), server.session());
    for ws in [&mut one, &mut two] {
        subscribe(ws, "/c/x");
        subscribe(ws, "/c/*");
        subscribe(ws, "/other");
    }
    assert_eq!(data(&mut reader, 4), ["\"/c/x\"", "\"/c/*\"", "\"/c/x\"", "\"/c/*\""]);
    one.call(json!({"id": "u", "channel": "/meta/unsubscribe", "subscription": "/c/x"}));
    two.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    wait_until("three have ended", || log.lock().expect("no panic").len() == 7);
    let count = |id: &str, rest: &str| {
        log.lock().expect("no panic").iter().filter(|line| **line == format!("{id} {rest}")).count()
    };
    for (id, rest) in [(&one.id, "false /c/x"), (&two.id, "false /c/x"), (&two.id, "false /c/*")] {
        assert_eq!(count(id, rest), 1, "{id} {rest}");
    }
    assert_eq!(count(&one.id, "true /c/x") + count(&two.id, "true /c/*"), 2);
}
