//! The hooks of a program: what they may do, in which order, and what happens when they misbehave.

mod late;
mod running;
mod templates;
mod values;

use std::sync::{Arc, Mutex};

use encke::{
    Access, Actions, AppState, Builder, Call, ChannelEvent, ChannelRule, Data, Failure, Grant, Handshake, Identity,
    Operation, PublishError, Publishing, Raw, Refusal, RouteRequest, Server, SessionEvent, Settings, StartError, User,
    Verdict,
};
use serde_json::{Value, json};

use crate::common::{TestServer, Ws, settings, wait_until};

fn server() -> Builder {
    Server::builder().settings(settings())
}

/// The answer to a call, which comes before its acknowledgement or after it.
fn call(ws: &mut Ws, channel: &str, data: Value) -> Value {
    let message = ws.mine(json!({"id": "c", "channel": channel, "data": data}));
    ws.send_json(&json!([message]));
    let [mut answer, mut acknowledged] = [Value::Null, Value::Null];
    while answer.is_null() || acknowledged.is_null() {
        for message in ws.next_json().as_array().expect("messages") {
            let is_answer = message.get("data").is_some() || message["successful"] == false;
            let slot = if is_answer { &mut answer } else { &mut acknowledged };
            *slot = message.clone();
        }
    }
    answer
}

fn error(reply: &Value) -> &str {
    reply["error"].as_str().unwrap_or_default()
}

fn subscribe(ws: &mut Ws, channel: &str) -> Value {
    ws.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": channel}))
}

#[test]
fn a_channel_needs_one_grant_and_no_denial_of_all_its_authorizers() {
    let server = TestServer::of(
        server()
            .authorize("/room/**", |access: &Access| match access.channel() {
                "/room/open" | "/room/closed" => Grant::Grant,
                _ => Grant::Ignore,
            })
            .authorize("/room/closed", |_: &Access| Grant::deny("closed"))
            .authorize("/room/*", |_: &Access| Grant::Ignore),
    );
    let mut ws = server.session();
    assert_eq!(subscribe(&mut ws, "/room/open")["successful"], true);
    assert_eq!(subscribe(&mut ws, "/free")["successful"], true, "no authorizer, no limit");
    assert_eq!(error(&subscribe(&mut ws, "/room/closed")), "403:closed:subscribe_denied");
    assert_eq!(error(&subscribe(&mut ws, "/room/other")), "403:denied_by_not_granting:subscribe_denied");
    // As in CometD, the authorizers of /room/** are those of /room/*, too.
    assert_eq!(error(&subscribe(&mut ws, "/room/*")), "403:denied_by_not_granting:subscribe_denied");
    let refused = ws.call(json!({"channel": "/room/other", "data": 1}));
    assert_eq!(error(&refused), "403:denied_by_not_granting:publish_denied");
}

/// Those who subscribe to the pattern would take it for a message from one of its channels.
#[test]
fn a_publication_on_a_pattern_needs_the_grants_of_all_names_that_it_reaches() {
    let server = TestServer::of(server().authorize("/room/*", |access: &Access| match access.channel() {
        "/room/open" | "/room/*" => Grant::Grant,
        _ => Grant::Ignore,
    }));
    let mut ws = server.session();
    let mut publish = |channel: &str| ws.call(json!({"channel": channel, "data": 1}));
    for channel in ["/room/open", "/room/*", "/room/a/**", "/free/**"] {
        assert_eq!(publish(channel)["successful"], true, "{channel}");
    }
    for channel in ["/room/other", "/room/**", "/**"] {
        assert_eq!(error(&publish(channel)), "403:denied_by_not_granting:publish_denied", "{channel}");
    }
}

#[test]
fn creation_is_asked_about_until_a_channel_exists() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (seen, rule) = (asked.clone(), ChannelRule { pattern: "/a/known".into(), ..ChannelRule::default() });
    let server = TestServer::of(server().settings(Settings { channels: vec![rule], ..settings() }).authorize(
        "/a/**",
        move |access: &Access| {
            seen.lock().expect("no panic").push((access.operation(), access.channel().to_owned()));
            let may = access.operation() != Operation::Create || access.channel() != "/a/fixed";
            if may { Grant::Grant } else { Grant::deny("no_new_channels") }
        },
    ));
    let mut ws = server.session();
    let taken = || std::mem::take(&mut *asked.lock().expect("no panic"));
    use Operation::{Create, Publish, Subscribe};
    ws.call(json!({"channel": "/a/new", "data": 1}));
    let of = |operations: &[Operation], channel: &str| {
        operations.iter().map(|operation| (*operation, channel.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(taken(), of(&[Create, Publish], "/a/new"), "a publication makes no channel here");
    subscribe(&mut ws, "/a/new");
    assert_eq!(taken(), of(&[Create, Subscribe], "/a/new"));
    let mut other = server.session();
    subscribe(&mut other, "/a/new");
    assert_eq!(taken(), of(&[Subscribe], "/a/new"));
    other.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    ws.call(json!({"id": "u", "channel": "/meta/unsubscribe", "subscription": "/a/new"}));
    subscribe(&mut ws, "/a/new");
    assert_eq!(taken(), of(&[Create, Subscribe], "/a/new"), "it was gone");
    subscribe(&mut ws, "/a/known");
    assert_eq!(taken(), of(&[Subscribe], "/a/known"), "a rule names it");
    assert_eq!(error(&subscribe(&mut ws, "/a/fixed")), "403:no_new_channels:subscribe_denied");
}

/// JSON has many spellings of one channel.
#[test]
fn a_handshake_is_known_with_its_head_however_its_channel_is_written() {
    let server = TestServer::of(server().authenticate(async |handshake: Handshake| {
        handshake.header("x-user").map(Identity::of_user).ok_or(Refusal::new(401, "no_head"))
    }));
    let user = [("x-user", "ann")];
    for channel in [r"/meta/handshake", r"\/meta\/handshake", r"\u002fmeta/h\u0061ndshake"] {
        let message = format!(r#"[{{"channel":"{channel}","version":"1.0"}}]"#);
        let posted = server.http().request("POST", "/cometd", &user, message.as_bytes());
        assert_eq!(posted.messages()[0]["successful"], true, "{}", posted.text());
        let query: String = message.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let script = server.http().request("GET", &format!("/cometd?jsonp=f&message={query}"), &user, b"");
        assert!(script.text().contains(r#""successful":true"#), "{}", script.text());
        let mut ws = Ws::connect(server.address(), &user);
        ws.send_text(&message);
        let replies = ws.next_json();
        assert_eq!(replies[0]["successful"], true, "{replies}");
    }
}

#[test]
fn filters_change_a_message_in_turn_and_a_refusal_ends_it() {
    let append = |text: &'static str| {
        move |message: &Publishing| {
            let data = message.data().unwrap_or_default().trim_matches('"');
            if data.contains("stop") { Verdict::deny("stopped") } else { Verdict::Replace(format!("\"{data}{text}\"")) }
        }
    };
    let server = TestServer::of(
        server()
            .filter("/f/a", append("3"))
            .filter("/f/**", append("1"))
            .filter_async("/f/**", async |message: Publishing| {
                let data = message.data().unwrap_or_default().trim_matches('"').to_owned();
                Verdict::Replace(format!("\"{data}2\""))
            })
            .filter("/f/a", append("4"))
            .filter("/f/dropped", |_: &Publishing| Verdict::Delete),
    );
    let (mut ws, mut reader) = (server.session(), server.session());
    reader.subscribe("/f/**");
    ws.publish("/f/a", json!("x"));
    assert_eq!(reader.next_json()[0]["data"], "x1234", "the widest pattern first, then in their order");
    assert_eq!(error(&ws.call(json!({"channel": "/f/a", "data": "stop"}))), "403:stopped:publish_denied");
    assert_eq!(error(&ws.call(json!({"channel": "/f/dropped", "data": 1}))), "404::message_deleted");
    server.publish("/f/a", "\"own\"");
    assert_eq!(reader.next_json()[0]["data"], "own", "the program's own messages pass no filter");
}

#[test]
fn a_filter_that_returns_no_json_harms_nobody() {
    let server = TestServer::of(server().filter("/f", |_: &Publishing| Verdict::Replace("{\"broken\":".into())));
    let mut neighbour = server.neighbour();
    let mut ws = server.session();
    ws.subscribe("/f");
    assert_eq!(error(&ws.call(json!({"channel": "/f", "data": 1}))), "403:filter_error:publish_denied");
    neighbour.lives(&server);
}

#[derive(serde::Deserialize)]
struct Division {
    by: i64,
}

#[test]
fn services_have_typed_arguments_replies_and_failures() {
    let server = TestServer::of(
        server()
            .state(Arc::new(84_i64))
            .authenticate(async |handshake: Handshake| match handshake.ext() {
                Some(_) => Ok(Identity::of_user("ann")),
                None => Ok(Identity::default()),
            })
            .service("/service/divide", async |AppState(whole): AppState<Arc<i64>>, Data(division): Data<Division>| {
                whole.checked_div(division.by).map(Data).ok_or(Failure::new("division", "not by 0"))
            })
            .service("/service/me", async |User(identity): User| Data(identity.user.to_string()))
            .service("/service/quiet", async || ())
            .service("/service/any/*", async |call: Call| Data(call.channel().to_owned()))
            .service("/service/any/one", async |Raw(data): Raw| Raw(data))
            .service("/service/news", async |call: Call| {
                let mut news = Actions::default();
                news.publish("/news", call.data().unwrap_or("null"));
                (Data("published"), news)
            }),
    );
    let mut ws = server.session();
    let answer = call(&mut ws, "/service/divide", json!({"by": 2}));
    assert_eq!(answer, json!({"id": "c", "channel": "/service/divide", "data": 42, "successful": true}));
    let mut ask = |channel: &str, data: Value| {
        let answer = call(&mut ws, channel, data);
        (answer["data"].clone(), answer["successful"] == true)
    };
    assert_eq!(ask("/service/divide", json!({"by": 0})), (json!({"class": "division", "message": "not by 0"}), false));
    let (wrong, successful) = ask("/service/divide", json!({"by": "x"}));
    assert_eq!((&wrong["class"], successful), (&json!("invalid_data"), false));
    assert_eq!(ask("/service/me", json!(1)).0["class"], "anonymous");
    assert_eq!(ask("/service/any/two", json!(1)).0, "/service/any/two");
    assert_eq!(ask("/service/any/one", json!([1])).0, json!([1]), "the closest one answers");
    let mut reader = server.session();
    reader.subscribe("/news");
    assert_eq!(call(&mut ws, "/service/news", json!("x"))["data"], "published");
    assert_eq!(reader.next_json(), json!([{"channel": "/news", "data": "x"}]));
    let quiet = ws.call(json!({"id": "q", "channel": "/service/quiet"}));
    assert_eq!(quiet, json!({"id": "q", "channel": "/service/quiet", "successful": true}));
}

#[test]
fn authorizers_of_a_service_decide_about_its_calls() {
    let server = TestServer::of(
        server()
            .authorize("/service/admin/**", |access: &Access| match access.data() {
                Some("\"sesame\"") => Grant::Grant,
                _ => Grant::Ignore,
            })
            .service("/service/admin/stop", async || Data("stopped")),
    );
    let mut ws = server.session();
    let refused = ws.call(json!({"id": "c", "channel": "/service/admin/stop", "data": "x"}));
    assert_eq!(error(&refused), "403:denied_by_not_granting:publish_denied");
    assert_eq!(call(&mut ws, "/service/admin/stop", json!("sesame"))["data"], "stopped");
}

#[test]
fn listeners_learn_of_sessions_and_of_the_subscribers_of_all_shards() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let (of_sessions, of_channels) = (events.clone(), events.clone());
    let server = TestServer::of(
        Server::builder()
            .settings(Settings { shards: 2, ..settings() })
            .on_session(move |event: &SessionEvent, actions: &mut Actions| {
                let text = match event {
                    SessionEvent::Opened { .. } => "opened".to_owned(),
                    SessionEvent::Ended { reason, .. } => format!("ended: {}", reason.as_str()),
                    _ => return,
                };
                actions.publish("/events", &format!("\"{text}\""));
                of_sessions.lock().expect("no panic").push(text);
            })
            .on_channel("/c/**", move |event: &ChannelEvent, actions: &mut Actions| {
                let text = match event {
                    ChannelEvent::FirstSubscribed { channel } => format!("first of {channel}"),
                    ChannelEvent::LastUnsubscribed { channel } => format!("last of {channel}"),
                    _ => return,
                };
                actions.publish("/events", &format!("\"{text}\""));
                of_channels.lock().expect("no panic").push(text);
            }),
    );
    let mut watcher = server.session();
    watcher.subscribe("/events");
    let mut sessions: Vec<Ws> = (0..4).map(|_| server.session()).collect();
    for ws in &mut sessions {
        ws.subscribe("/c/x");
    }
    sessions[0].subscribe("/c/*");
    for ws in &mut sessions {
        ws.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    }
    wait_until("the last one is gone", || events.lock().expect("no panic").contains(&"last of /c/x".to_owned()));
    let count = |text: &str| events.lock().expect("no panic").iter().filter(|event| *event == text).count();
    assert_eq!((count("opened"), count("first of /c/x"), count("last of /c/x")), (5, 1, 1));
    assert_eq!((count("first of /c/*"), count("last of /c/*")), (1, 1));
    wait_until("all have ended", || count("ended: disconnected") == 4);
    let mut published = Vec::new();
    while published.len() < 12 {
        published.push(watcher.next_json()[0]["data"].clone());
    }
    assert!(published.contains(&json!("last of /c/*")), "{published:?}");
}

#[test]
fn mistakes_of_the_program_fail_the_start() {
    let start = |server: Builder| match server.start() {
        Err(StartError::Hook(error)) => error.to_string(),
        _ => panic!("it started"),
    };
    assert!(
        start(server().filter("/a/*/b", |_: &Publishing| Verdict::Forward)).contains("\"/a/*/b\" is not a channel")
    );
    assert!(start(server().service("/a", async || ())).contains("must begin with /service/"));
    let twice = server().service("/service/a", async || ()).service("/service/a", async || ());
    assert_eq!(start(twice), "there are two services /service/a");
    assert!(start(server().route("orders", async |_: RouteRequest| "")).starts_with("\"orders\" is not a path"));
    let twice = server().route("/orders/*", async |_: RouteRequest| "").route("/orders/*", async |_: RouteRequest| "");
    assert_eq!(start(twice), "there are two routes /orders/*");
    let missing = start(server().service("/service/a", async |AppState(_): AppState<u8>| ()));
    assert_eq!(missing, "the service /service/a takes AppState<u8>, but Builder::state got none");
    let closed = async |_: Handshake| Err(Refusal::new(403, "closed"));
    assert_eq!(start(server().authenticate(closed).authenticate(closed)), "authenticate was called twice");
}

#[test]
fn a_handle_publishes_many_and_delivers_to_one() {
    let server = TestServer::start(Settings { shards: 2, ..settings() });
    let (mut ws, mut other) = (server.session(), server.session());
    ws.subscribe("/m/**");
    let published = server.handle.publish_many((0..3).map(|number| ("/m/a", number.to_string())));
    assert_eq!(published.expect("taken"), 3);
    assert_eq!((0..3).map(|_| ws.next_json()[0]["data"].clone()).collect::<Vec<_>>(), [0, 1, 2]);
    let failed = server.handle.publish_many([("/m/a", "3"), ("/meta/x", "4"), ("/m/a", "5")]).expect_err("no channel");
    assert_eq!((failed.published, failed.error), (1, PublishError::Channel("/meta/x".into())));
    assert_eq!(ws.next_json()[0]["data"], 3);
    assert!(server.handle.deliver(&other.id, "/service/hint", "\"you\"").expect("taken"));
    assert_eq!(other.next_json(), json!([{"channel": "/service/hint", "data": "you"}]));
    assert!(!server.handle.deliver("nobody", "/m/a", "1").expect("no mistake"));
    assert_eq!(server.handle.deliver(&ws.id, "/meta/connect", "1"), Err(PublishError::Channel("/meta/connect".into())));
    assert_eq!(server.handle.deliver(&ws.id, "/m/a", "{"), Err(PublishError::Data));
}
