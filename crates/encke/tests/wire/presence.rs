//! Presence over real sockets: announcements, the service, the handle.

use encke::{ChannelRule, Handshake, Identity, Refusal, Server, Settings};
use serde_json::{Value, json};

use crate::common::{Folder, TestServer, Ws, settings, wait_until};

/// A server that believes the user in the `ext` of a handshake.
pub fn serving(settings: Settings) -> TestServer {
    let believe = async |handshake: Handshake| -> Result<Identity, Refusal> {
        let ext = handshake.ext().and_then(|ext| serde_json::from_str::<Value>(ext).ok());
        let user = ext.as_ref().and_then(|ext| ext["user"].as_str()).unwrap_or_default();
        Ok(Identity::of_user(user))
    };
    TestServer::of(Server::builder().settings(settings).authenticate(believe))
}

pub fn with_presence() -> Settings {
    let rule = ChannelRule { pattern: "/room/*".into(), presence: true, ..ChannelRule::default() };
    Settings { channels: vec![rule], presence_grace_ms: 60_000, presence_interval_ms: 20, ..settings() }
}

/// A session of this user.
pub fn session(server: &TestServer, user: &str) -> Ws {
    let mut ws = server.websocket();
    ws.send_json(&json!([{"id": "h", "channel": "/meta/handshake", "version": "1.0", "ext": {"user": user}}]));
    ws.id = ws.next_json()[0]["clientId"].as_str().expect("a session").to_string();
    ws
}

/// The next announcement: who joined, who left, the number of users.
fn next(ws: &mut Ws) -> (Value, Value, u64) {
    let message = ws.next_json()[0].clone();
    assert_eq!((&message["channel"], &message["data"]["channel"]), (&json!("/presence/room/1"), &json!("/room/1")));
    let data = &message["data"];
    (data["joined"].clone(), data["left"].clone(), data["users"].as_u64().expect("a number"))
}

#[test]
fn a_reload_is_neither_a_leave_nor_a_join() {
    let server = serving(Settings { shards: 2, ..with_presence() });
    let mut witness = session(&server, "witness");
    witness.subscribe("/presence/room/1");
    let mut ann = session(&server, "ann");
    ann.subscribe("/room/1");
    assert_eq!(next(&mut witness), (json!(["ann"]), json!([]), 1));
    ann.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    let mut ann = session(&server, "ann");
    ann.subscribe("/room/1");
    let mut bob = session(&server, "bob");
    bob.subscribe("/room/1");
    assert_eq!(next(&mut witness), (json!(["bob"]), json!([]), 2));
    wait_until("she is there again", || server.handle.presence("/room/1", "", 1).members[0].session_ids == [&*ann.id]);
}

#[test]
fn joins_and_leaves_are_announced() {
    let server = serving(Settings { presence_grace_ms: 1, ..with_presence() });
    let mut witness = session(&server, "witness");
    witness.subscribe("/presence/room/1");
    let (mut ann, mut bob) = (session(&server, "ann"), session(&server, "bob"));
    ann.subscribe("/room/1");
    assert_eq!(next(&mut witness), (json!(["ann"]), json!([]), 1));
    bob.subscribe("/room/1");
    assert_eq!(next(&mut witness), (json!(["bob"]), json!([]), 2));
    ann.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    assert_eq!(next(&mut witness), (json!([]), json!(["ann"]), 1));
    let members = server.handle.presence("/room/1", "", 10);
    assert_eq!((members.counts.users, &*members.members[0].user), (1, "bob"));
    assert_eq!((server.metric("encke_presence_members"), server.metric("encke_presence_channels")), (1, 1));
    bob.call(json!({"id": "u", "channel": "/meta/unsubscribe", "subscription": "/room/1"}));
    assert_eq!(next(&mut witness), (json!([]), json!(["bob"]), 0));
    server.wait_for_exactly("encke_presence_bytes", 0);
}

#[test]
fn the_service_answers_in_pages_and_names_no_session() {
    let server = serving(Settings { shards: 2, ..with_presence() });
    let mut members: Vec<Ws> = ["ann", "bob", "eve"].iter().map(|user| session(&server, user)).collect();
    members.iter_mut().for_each(|ws| ws.subscribe("/room/1"));
    let mut anonymous = server.session();
    anonymous.subscribe("/room/1");
    wait_until("all are listed", || server.handle.presence("/room/1", "", 1).counts.sessions == 4);
    let asker = &mut members[0];
    asker.send_json(&json!([asker.mine(json!({
        "id": "7", "channel": "/service/presence", "data": {"channel": "/room/1", "limit": 2},
    }))]));
    let mut received = Vec::new();
    while received.len() < 2 {
        received.extend(asker.next_json().as_array().expect("messages").iter().cloned());
    }
    let answer = received.iter().find(|message| message.get("data").is_some()).expect("an answer");
    let wanted = json!({
        "channel": "/room/1", "users": 3, "anonymous": 1, "sessions": 4,
        "members": [{"user": "ann", "sessions": 1}, {"user": "bob", "sessions": 1}], "next": "bob",
    });
    assert_eq!((&answer["id"], &answer["successful"], &answer["data"]), (&json!("7"), &json!(true), &wanted));
}

#[test]
fn sessions_that_survive_a_restart_stay_members_and_nobody_is_announced() {
    let folder = Folder::new();
    let durable = || Settings { data: folder.name(), ..with_presence() };
    let server = serving(durable());
    let mut witness = server.session();
    witness.subscribe("/presence/room/1");
    let mut anonymous = server.session();
    anonymous.subscribe("/room/1");
    wait_until("it is listed", || server.handle.presence("/room/1", "", 1).counts.anonymous == 1);
    server.stop();
    let server = serving(durable());
    assert_eq!(server.metric("encke_sessions_restored"), 2);
    wait_until("it is listed again", || server.handle.presence("/room/1", "", 1).counts.anonymous == 1);
    assert_eq!(server.metric("encke_publications"), 0, "no announcement");
}

#[test]
fn who_left_shortly_before_a_restart_is_announced_to_sessions_that_survive_it() {
    let folder = Folder::new();
    let durable = || Settings { data: folder.name(), ..with_presence() };
    let server = serving(durable());
    let mut witness = session(&server, "witness");
    witness.subscribe("/presence/room/1");
    let mut ann = session(&server, "ann");
    ann.subscribe("/room/1");
    assert_eq!(next(&mut witness), (json!(["ann"]), json!([]), 1));
    // Her grace would end long after the restart.
    ann.call(json!({"id": "d", "channel": "/meta/disconnect"}));
    let id = witness.id.clone();
    server.stop();
    let server = serving(durable());
    let mut witness = server.websocket();
    witness.id = id;
    witness.send_json(
        &json!([{"id": "c", "channel": "/meta/connect", "clientId": witness.id, "connectionType": "websocket"}]),
    );
    assert_eq!(next(&mut witness), (json!([]), json!(["ann"]), 0));
}
