//! Users, tokens, and subscriptions that the API changes.

use encke::{ChannelRule, Handshake, Identity, Refusal, RemovalError, Scope, Server, Settings, SubscriptionError};
use serde_json::json;

use super::{Api, KEY, keys, serve};
use crate::common::{TestServer, Ws, settings};

/// Believes who a client says it is: `ext` is the text `user/token`.
async fn believe(handshake: Handshake) -> Result<Identity, Refusal> {
    let identity = handshake.ext().and_then(|ext| {
        let (user, token) = ext.split('"').nth(3)?.split_once('/')?;
        Some(Identity { token_id: Some(token.into()), ..Identity::of_user(user) })
    });
    Ok(identity.unwrap_or_default())
}

fn serve_users(settings: Settings) -> TestServer {
    let server = TestServer::of(Server::builder().settings(settings).authenticate(believe));
    server.handle.set_api_keys(keys(&[("all", KEY, &Scope::ALL)]));
    server
}

/// A session of a user, opened with a token.
fn session_of(server: &TestServer, user: &str, token: &str) -> Ws {
    let mut ws = server.websocket();
    let ext = json!({"who": format!("{user}/{token}")});
    let types = ["websocket"];
    ws.send_json(&json!([{"id": "h", "channel": "/meta/handshake", "version": "1.0",
        "supportedConnectionTypes": types, "ext": ext}]));
    let reply = ws.next_json();
    ws.id = reply[0]["clientId"].as_str().expect("an id").to_owned();
    let advice = json!({"timeout": 0});
    ws.call(json!({"id": "c", "channel": "/meta/connect", "connectionType": "websocket", "advice": advice}));
    ws
}

#[test]
fn a_message_for_a_user_reaches_all_sessions_of_the_user_and_no_others() {
    let server = serve_users(Settings { shards: 3, ..settings() });
    let mut ann: Vec<Ws> = (0..5).map(|_| session_of(&server, "ann", "t1")).collect();
    let mut bob = session_of(&server, "bob", "t2");
    let mut nobody = server.session();
    let mut api = Api::of(&server);
    let message = |user: &str| json!({"user": user, "channel": "/letters", "data": user});
    assert_eq!(api.post("/deliver", &message("ann")), json!({"sessions": 5}));
    assert_eq!(api.post("/deliver", &message("eve")), json!({"sessions": 0}));
    assert_eq!(api.post("/deliver", &message("bob")), json!({"sessions": 1}));
    for ws in &mut ann {
        assert_eq!(ws.next_json(), json!([{"channel": "/letters", "data": "ann"}]));
    }
    assert_eq!(bob.next_json(), json!([{"channel": "/letters", "data": "bob"}]));
    nobody.subscribe("/x");
    assert_eq!(api.get(&format!("/sessions/{}", bob.id))["user"], "bob");
    assert_eq!(api.get(&format!("/sessions/{}", nobody.id)).get("user"), None);
    assert_eq!(api.problem("POST", "/deliver", &message("").to_string())["errors"][0]["pointer"], "#/user");
}

#[test]
fn a_user_is_disconnected_and_a_token_revoked() {
    let server = serve_users(Settings { shards: 2, ..settings() });
    let mut neighbour = server.neighbour();
    let (mut old, mut new) = (session_of(&server, "ann", "t1"), session_of(&server, "ann", "t2"));
    let mut bob: Vec<Ws> = (0..3).map(|number| session_of(&server, "bob", &format!("b{number}"))).collect();
    let mut api = Api::of(&server);
    assert_eq!(api.post("/revoke", &json!({"token_id": "t1"})), json!({"sessions": 1, "durable": false}));
    assert_eq!(old.next_json()[0]["channel"], "/meta/disconnect");
    new.subscribe("/x");
    assert_eq!(api.post("/disconnect", &json!({"user": "bob"})), json!({"sessions": 3}));
    bob.iter_mut().for_each(|ws| assert_eq!(ws.next_json()[0]["channel"], "/meta/disconnect"));
    assert_eq!(api.post("/revoke", &json!({"token_id": "t1"})), json!({"sessions": 0, "durable": false}));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    assert!(server.revoke("t1", u64::MAX));
    assert_eq!(runtime.block_on(server.handle.disconnect_user("ann")), 1);
    assert_eq!(new.next_json()[0]["channel"], "/meta/disconnect");
    assert_eq!(api.problem("POST", "/revoke", r#"{"token_id":""}"#)["status"], 400);
    neighbour.lives(&server);
}

#[test]
fn a_handle_subscribes_a_session_and_removes_a_history() {
    let rule = ChannelRule { pattern: "/h/*".into(), history_messages: 10, ..ChannelRule::default() };
    let server = TestServer::start(Settings { shards: 2, subscriptions_max: 1, channels: vec![rule], ..settings() });
    let (mut ws, handle) = (server.session(), server.handle.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let subscribe = |id: &str, channel: &str| runtime.block_on(handle.subscribe_session(id, channel));
    assert_eq!(subscribe(&ws.id, "/h/a"), Ok(()));
    assert_eq!(subscribe(&ws.id, "/b"), Err(SubscriptionError::Full));
    assert_eq!(subscribe(&ws.id, "/meta/x"), Err(SubscriptionError::Channel("/meta/x".into())));
    assert_eq!(subscribe("nobody", "/b"), Err(SubscriptionError::SessionUnknown));
    handle.publish("/h/a", "1").expect("taken");
    assert_eq!(ws.next_json(), json!([{"channel": "/h/a", "data": 1}]));
    assert_eq!(runtime.block_on(handle.remove_history("/h/a")), Ok(1));
    assert_eq!(runtime.block_on(handle.remove_history("/b")), Err(RemovalError::NoHistory("/b".into())));
    assert_eq!(runtime.block_on(handle.unsubscribe_session(&ws.id, "/h/a")), Ok(()));
    // Its client may subscribe again: the subscription of the handle has left no count behind.
    ws.subscribe("/b");
    let id = ws.id.clone();
    server.stop();
    assert_eq!(subscribe(&id, "/h/a"), Err(SubscriptionError::Stopped));
    assert_eq!(runtime.block_on(handle.remove_history("/h/a")), Err(RemovalError::Stopped));
}

#[test]
fn the_api_subscribes_and_unsubscribes_a_session() {
    let server = serve(Settings { shards: 2, subscriptions_max: 2, ..settings() });
    let mut sessions: Vec<Ws> = (0..3).map(|_| server.session()).collect();
    let mut api = Api::of(&server);
    let change = |ws: &Ws, channel: &str| json!({"session": ws.id, "channel": channel});
    for ws in &sessions {
        for channel in ["/news/*", "/a", "/a"] {
            assert_eq!(api.post("/subscribe", &change(ws, channel)), json!({"sessions": 1}));
        }
    }
    let full = api.problem("POST", "/subscribe", &change(&sessions[0], "/third").to_string());
    assert_eq!((&full["status"], &full["type"]), (&json!(409), &json!("urn:encke:problem:full")));
    api.post("/publish", &json!({"channel": "/news/x", "data": 1}));
    for ws in &mut sessions {
        assert_eq!(ws.next_json(), json!([{"channel": "/news/x", "data": 1}]));
    }
    for ws in &sessions {
        assert_eq!(api.post("/unsubscribe", &change(ws, "/news/*")), json!({"sessions": 1}));
        assert_eq!(api.post("/unsubscribe", &change(ws, "/never")), json!({"sessions": 1}));
    }
    api.post("/publish", &json!({"channel": "/news/x", "data": 2}));
    api.post("/publish", &json!({"channel": "/a", "data": 3}));
    for ws in &mut sessions {
        assert_eq!(ws.next_json(), json!([{"channel": "/a", "data": 3}]));
    }
    assert_eq!(server.metric("encke_subscriptions"), 3);
    for (session, status) in [("x", 404), (&*"0".repeat(32), 404)] {
        let body = json!({"session": session, "channel": "/a"}).to_string();
        assert_eq!(api.problem("POST", "/subscribe", &body)["status"], status);
        assert_eq!(api.problem("POST", "/unsubscribe", &body)["status"], status);
    }
    for channel in ["a", "/meta/connect", "/service/x", "/a/*/b"] {
        assert_eq!(api.problem("POST", "/subscribe", &change(&sessions[0], channel).to_string())["status"], 400);
    }
}

#[test]
fn presence_lists_the_users_on_a_channel_page_by_page() {
    let rule = encke::ChannelRule { pattern: "/room/*".into(), presence: true, ..encke::ChannelRule::default() };
    let server = serve_users(Settings { shards: 2, channels: vec![rule], ..settings() });
    let names = ["ann", "ann", "bob", "eve"];
    let mut sessions: Vec<Ws> = names.iter().map(|user| session_of(&server, user, "t")).collect();
    sessions.push(server.session());
    sessions.iter_mut().for_each(|ws| ws.subscribe("/room/1"));
    let mut api = Api::of(&server);
    let first = api.get("/presence?channel=/room/1&limit=2");
    assert_eq!((&first["users"], &first["anonymous"], &first["sessions"]), (&json!(3), &json!(1), &json!(5)));
    let members = first["members"].as_array().expect("members");
    assert_eq!((members.len(), &members[0]["user"], &members[0]["sessions"]), (2, &json!("ann"), &json!(2)));
    let cursor = first["next"].as_str().expect("a cursor");
    let rest = api.get(&format!("/presence?channel=/room/1&limit=2&cursor={cursor}"));
    assert_eq!((&rest["members"][0]["user"], rest.get("next")), (&json!("eve"), None));
    let name = api.get(&format!("/sessions/{}", sessions[3].id))["id"].clone();
    assert_eq!(rest["members"][0]["session_ids"], json!([name]));
    assert_ne!(name, json!(sessions[3].id));
    assert_eq!(api.get("/presence?channel=/room/2")["users"], 0);
    let problem = api.problem("GET", "/presence?channel=/other", "");
    assert_eq!(
        (&problem["status"], &problem["detail"]),
        (&json!(404), &json!("the channel has no presence: no rule has presence for it"))
    );
}
