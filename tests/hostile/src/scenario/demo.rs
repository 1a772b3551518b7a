//! The demo's rooms: a rename must cost its sender, not the room.

use std::io;
use std::time::Duration;

use super::{PLAIN, Scenario};
use crate::attack::{Arena, Outcome, Peer, Readers, Session, done, elsewhere};

/// A large room on the demo's own channels, and one member that renames itself repeatedly.
///
/// Memory: changes of one name, which outboxes share.
pub const RENAMES: Scenario = Scenario {
    name: "renames",
    title: "one member of a demo room of 490 changes its name 1,000 times in one message, again and again",
    lasts_ms: 1_500,
    grows_mib_max: 48,
    attack: |arena| Box::pin(renames(arena, "/service/demo/members", "/demo/chat/full", "/demo/members/full")),
    ..PLAIN
};

/// The same on the channels of CometD's demo, where each change carries the whole list.
///
/// Memory: lists of 490 names of 240 bytes; outboxes share them.
pub const RENAMES_COMETD: Scenario = Scenario {
    name: "renames-cometd",
    title: "the same in a room of CometD's demo, where each change brings the whole list",
    settings: &["demo_cometd_channels=true"],
    lasts_ms: 1_500,
    grows_mib_max: 80,
    attack: |arena| Box::pin(renames(arena, "/service/members", "/chat/full", "/members/full")),
    ..PLAIN
};

async fn renames(arena: Arena, service: &'static str, room: &'static str, list: &'static str) -> io::Result<Outcome> {
    let readers = Readers::open(arena, READERS, None, &format!("\"{list}\"")).await?;
    let join = move |id: &str, name: &str| {
        format!(r#"{{"channel":"{service}","clientId":"{id}","data":{{"room":"{room}","user":"{name}"}}}}"#)
    };
    let mut members = Vec::new();
    for nth in 0..MEMBERS {
        let mut member = Session::open(arena, Peer::default(), "").await?;
        let name = format!("{nth:03}{}", "<".repeat(NAME_MORE));
        // Members that join too fast for the room remain outside.
        if member.ask(&format!("[{}]", join(&member.id, &name))).await.is_ok() {
            members.push(member);
        }
    }
    let renamed = elsewhere(arena, move || async move {
        let mut member = Session::open(arena, Peer::default(), "").await?;
        let names: Vec<String> = (0..AT_ONCE).map(|nth| join(&member.id, &format!("me {nth}"))).collect();
        let text = format!("[{}]", names.join(","));
        let mut renamed = 0;
        while !arena.is_over() {
            // A refusal is a reply, too.
            if let Ok(None) = arena.during(member.ask(&text)).await {
                break;
            }
            renamed += AT_ONCE as u64;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(renamed)
    });
    let renamed = done(renamed).await?;
    let outcome = Outcome::did(renamed, format!("{renamed} renames in a room of {}", members.len()));
    Ok(outcome.broke(readers.ended()))
}

const READERS: usize = 5;
const MEMBERS: usize = 490;
const NAME_MORE: usize = 60;
const AT_ONCE: usize = 1_000;
const PAUSE: Duration = Duration::from_millis(100);
