//! Handshakes without a connect: they must take no room from newcomers, and none for long.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

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
    let bytes = elsewhere(arena, move || async move {
        let mut socket = Socket::open(arena, other(66)).await?;
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
    let mut refused = Vec::new();
    let mut newcomers = 0;
    while !arena.is_over() {
        tokio::time::sleep(NEWCOMER_EVERY).await;
        newcomers += 1;
        refused.extend(come(arena).await.err());
    }
    let asked: u64 = done(bytes).await?;
    // The attackers have left.
    for _ in 0..NEWCOMERS_AFTER {
        newcomers += 1;
        refused.extend(come(arena).await.err());
    }
    let outcome = Outcome::did(format!("{asked} handshakes over one connection, {newcomers} newcomers"));
    let first = refused.first().map(io::Error::to_string).unwrap_or_default();
    let refused = format!("{} of {newcomers} newcomers were refused: {first}", refused.len());
    Ok(outcome.broke((!first.is_empty()).then_some(refused)))
}

/// Another client opens a session and leaves at once.
async fn come(arena: Arena) -> io::Result<()> {
    let mut session = Session::open(arena, other(7), "").await?;
    session.subscribe(r#""/news""#, "").await?;
    let id = session.id.clone();
    session.ask(&format!(r#"[{{"channel":"/meta/disconnect","clientId":"{id}"}}]"#)).await.map(drop)
}

/// Another machine, from the server's view.
fn other(last: u8) -> Peer {
    Peer { address: Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))), ..Peer::default() }
}

const AT_ONCE: usize = 500;
const READ_FULL: usize = 256 * 1024;
const NEWCOMER_EVERY: std::time::Duration = std::time::Duration::from_millis(100);
const NEWCOMERS_AFTER: usize = 5;
