//! Rooms whose members are known: changes are announced on `/presence/room/NAME`, and each empty line on standard input lists the users
//! of `/room/1`.
//!
//! To run it: `cargo run -p encke --example presence -- 127.0.0.1:8080`

use std::error::Error;

use encke::{Builder, ChannelRule, Handle, Handshake, Identity, Refusal, Server, Settings};
use serde::Deserialize;

/// The `ext` of a handshake.
#[derive(Deserialize)]
struct Ext {
    user: String,
}

/// The server with its rooms.
pub fn server() -> Builder {
    let rooms = ChannelRule { pattern: "/room/*".into(), presence: true, ..ChannelRule::default() };
    let settings = Settings { channels: vec![rooms], presence_interval_ms: 100, ..Settings::default() };
    Server::builder().settings(settings).authenticate(named)
}

/// Believes the name that a client gives. An application would check a password or a token.
async fn named(handshake: Handshake) -> Result<Identity, Refusal> {
    let ext = handshake.ext().and_then(|ext| serde_json::from_str::<Ext>(ext).ok());
    let ext = ext.filter(|ext| !ext.user.is_empty());
    ext.map(|ext| Identity::of_user(&ext.user)).ok_or(Refusal::new(401, "no_user"))
}

/// The users in a room with the numbers of their sessions, page by page.
pub fn users(handle: &Handle, room: &str) -> Vec<(String, usize)> {
    let (mut users, mut after) = (Vec::new(), String::new());
    loop {
        let page = handle.presence(room, &after, 100);
        users.extend(page.members.into_iter().map(|member| (member.user, member.sessions)));
        match page.next {
            Some(next) => after = next,
            None => return users,
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into()).parse()?;
    let running = server().listen(listen).start()?;
    println!("handshakes with ext {{\"user\":\"ann\"}} go to http://{}/cometd", running.address());
    for line in std::io::stdin().lines() {
        line?;
        println!("{:?}", users(&running.handle(), "/room/1"));
    }
    running.handle().drain();
    running.join();
    Ok(())
}
