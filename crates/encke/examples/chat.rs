//! CometD's chat service in Rust: rooms with members, private messages, a filter of words. CometD's demo page and its
//! clients work with it unchanged. The page docs/chat-in-rust.md shows it beside the Java that it was made from.
//!
//! To run it: `cargo run -p encke --example chat -- 127.0.0.1:8080`

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::sync::{Arc, Mutex};

use encke::{
    Access, Actions, AppState, Builder, Call, Data, Grant, Operation, Publishing, Server, SessionEvent, Verdict,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The members of each room: the session of each name.
type Rooms = Arc<Mutex<HashMap<String, BTreeMap<String, String>>>>;

/// A call that adds a member to a room.
#[derive(Deserialize)]
struct Join {
    room: String,
    user: String,
}

/// A message for some members of a room.
#[derive(Deserialize)]
struct Private {
    room: String,
    user: String,
    /// The names of its receivers, with commas between them.
    peer: String,
    chat: String,
}

/// The server with the chat's hooks.
pub fn server() -> Builder {
    Server::builder()
        .state(Rooms::default())
        .authorize("/chat/**", |_: &Access| Grant::Grant)
        .authorize("/members/**", |access: &Access| match access.operation() {
            Operation::Create | Operation::Subscribe => Grant::Grant,
            Operation::Publish => Grant::Ignore,
        })
        .filter("/chat/**", clean)
        .service("/service/members", join)
        .service("/service/privatechat", private)
        .on_session(leave)
}

/// Removes markup, and drops a message with a bad word.
fn clean(_: &Publishing, Data(mut value): Data<Value>) -> Verdict {
    let texts = value.as_object_mut().into_iter().flat_map(|fields| fields.values_mut());
    for text in texts.filter(|value| value.is_string()) {
        let old = text.as_str().unwrap_or_default();
        if old.split(|c: char| !c.is_alphanumeric()).any(|word| word.eq_ignore_ascii_case("dang")) {
            return Verdict::Delete;
        }
        *text = without_markup(old).into();
    }
    Verdict::Replace(value.to_string())
}

fn without_markup(text: &str) -> String {
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// Adds the caller to a room. All members get the names.
async fn join(call: Call, AppState(rooms): AppState<Rooms>, Data(Join { room, user }): Data<Join>) -> Actions {
    let mut actions = Actions::default();
    let mut rooms = rooms.lock().expect("no thread panics with it");
    let members = rooms.entry(room.clone()).or_default();
    members.insert(without_markup(&user), call.session().to_owned());
    publish_members(&room, members, &mut actions);
    actions
}

/// Removes a session that has ended from its rooms.
fn leave(event: &SessionEvent, actions: &mut Actions, AppState(rooms): AppState<Rooms>) {
    let SessionEvent::Ended { caller, .. } = event else { return };
    let mut rooms = rooms.lock().expect("no thread panics with it");
    for (room, members) in rooms.iter_mut() {
        let before = members.len();
        members.retain(|_, member| member != caller.session());
        if members.len() < before {
            publish_members(room, members, actions);
        }
    }
    rooms.retain(|_, members| !members.is_empty());
}

/// Publishes the names of a room: `/members/demo` for `/chat/demo`.
fn publish_members(room: &str, members: &BTreeMap<String, String>, actions: &mut Actions) {
    let names: Vec<&String> = members.keys().collect();
    actions.publish(&room.replacen("/chat/", "/members/", 1), &json!(names).to_string());
}

/// Sends a message to the named members of a room and to the caller.
async fn private(call: Call, AppState(rooms): AppState<Rooms>, Data(private): Data<Private>) -> Actions {
    let mut actions = Actions::default();
    let rooms = rooms.lock().expect("no thread panics with it");
    let Some(members) = rooms.get(&private.room) else { return actions };
    let peers = private.peer.split(',').filter_map(|name| members.get(name.trim())).take(16);
    let mut sessions: Vec<&str> = peers.map(String::as_str).filter(|session| *session != call.session()).collect();
    sessions.push(call.session());
    let (chat, user) = (without_markup(&private.chat), without_markup(&private.user));
    let data = json!({"chat": chat, "user": user, "scope": "private"}).to_string();
    for session in sessions {
        actions.deliver(session, &private.room, &data, call.id());
    }
    actions
}

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let running = server().listen(listen).start()?;
    println!("chat on http://{}/cometd", running.address());
    running.join();
    Ok(())
}
