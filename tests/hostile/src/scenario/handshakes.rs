//! Handshakes without a connect: they must take no room from newcomers, and none for long.

use std::io;

use super::shares::{GREEDY, OTHER, others};
use super::{PLAIN, Scenario};
use crate::attack::{Arena, Outcome, Peer, Session, Socket, done, elsewhere, handshake, text_frame};

/// One connection opens sessions, requests a life of ten minutes for them, and leaves.
///
/// Memory: sessions that never connect are few; most of it is their waiting replies.
pub const HANDSHAKES: Scenario = Scenario {
    name: "handshakes",
    title: "one connection opens sessions by the hundred thousand, asks for ten minutes of grace, and leaves; others come",
    settings: &["sessions_max=50000"],
    lasts_ms: 2_000,
    grows_mib_max: 40,
    attack: |arena| Box::pin(handshakes(arena)),
    ..PLAIN
};

async fn handshakes(arena: Arena) -> io::Result<Outcome> {
    let asked = elsewhere(arena, move || async move {
        let mut socket = Socket::open(arena, GREEDY).await?;
        let frame = text_frame(&handshake("websocket", r#","advice":{"maxInterval":600000}"#));
        let frames = frame.repeat(AT_ONCE);
        let asked = arena.again(AT_ONCE, async || {
            socket.send_raw(&frames).await?;
            // The attacker reads the replies, so that they do not end the attack.
            while socket.skim().await? == READ_FULL {}
            Ok(())
        });
        Ok(asked.await)
    });
    let mut others = others(arena, come).await;
    let asked = done(asked).await?;
    for _ in 0..NEWCOMERS_AFTER {
        others.note(come(arena, OTHER).await, " after the attackers had left");
    }
    Ok(others.add_to(Outcome::did(asked, format!("{asked} handshakes over one connection"))))
}

/// Another client opens a session and leaves at once.
async fn come(arena: Arena, peer: Peer) -> io::Result<()> {
    let mut session = Session::open(arena, peer, "").await?;
    session.subscribe(r#""/news""#, "").await?;
    let id = session.id.clone();
    session.ask(&format!(r#"[{{"channel":"/meta/disconnect","clientId":"{id}"}}]"#)).await.map(drop)
}

const AT_ONCE: usize = 500;
const READ_FULL: usize = 256 * 1024;
const NEWCOMERS_AFTER: usize = 5;
