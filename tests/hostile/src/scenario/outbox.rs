//! Small messages that hold large chunks: the limit of waiting messages counts the memory they occupy.

use std::io;

use super::{PLAIN, Scenario};
use crate::attack::{
    Arena, Outcome, Peer, Poller, Readers, Session, batch, done, elsewhere, mib, publication, text_frame,
};

/// One sleeping session on a quiet channel, beside a busy one.
///
/// Memory: the outbox of the sleeper and that of the reader, each at most twice `outbox_bytes_max` (16 MiB).
pub const SLEEPER: Scenario = Scenario {
    name: "sleeper",
    title: "a session sleeps on a channel with small messages, each of them between large ones of another channel",
    lasts_ms: 2_000,
    grows_mib_max: 64,
    attack: |arena| Box::pin(sleeper(arena)),
    ..PLAIN
};

/// Sessions without a connection, whose messages are never adjacent.
///
/// Memory: twice `sessions_bytes_max`, and messages between shards.
pub const RANGES: Scenario = Scenario {
    name: "ranges",
    title: "2,000 sessions with closed sockets, half on each of two channels, get tiny messages in turn",
    settings: &["sessions_bytes_max=134217728"],
    lasts_ms: 2_500,
    grows_mib_max: 288,
    attack: |arena| Box::pin(ranges(arena)),
    ..PLAIN
};

async fn sleeper(arena: Arena) -> io::Result<Outcome> {
    let mut sleeper = Poller::open_on(arena, 0).await?;
    sleeper.subscribe(r#""/sleep""#, "").await?;
    let _reader = Readers::open(arena, 1, Some(0), r#""/busy""#).await?;
    let bytes = elsewhere(arena, move || async move {
        let Session { mut socket, id } = Session::open_on(arena, 0, Peer::default()).await?;
        let small = publication("/sleep", &id, r#""so little""#);
        let large = publication("/busy", &id, &format!("\"{}\"", "x".repeat(LARGE_BYTES)));
        let frame = text_frame(&format!("[{}]", [small, large].join(",")));
        Ok(arena.again(frame.len(), async || socket.send_raw(&frame).await).await)
    });
    let bytes: u64 = done(bytes).await?;
    Ok(Outcome::did(bytes, format!("{} small messages beside {}", bytes / LARGE_BYTES as u64, mib(bytes))))
}

async fn ranges(arena: Arena) -> io::Result<Outcome> {
    for nth in 0..SESSIONS {
        let mut session = Session::open(arena, Peer::default(), "").await?;
        session.subscribe(["\"/odd\"", "\"/even\""][nth % 2], "").await?;
    }
    let Session { mut socket, id } = Session::open(arena, Peer::default(), "").await?;
    let frame = text_frame(&batch(["/odd", "/even"].into_iter().cycle().take(BATCH), &id, "1"));
    let bytes = arena.again(frame.len(), async || socket.send_raw(&frame).await).await;
    Ok(Outcome::did(bytes, format!("{} of tiny messages for {SESSIONS} sessions", mib(bytes))))
}

const LARGE_BYTES: usize = 16_000;
const SESSIONS: usize = 2_000;
const BATCH: usize = 900;
