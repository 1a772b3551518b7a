//! Publishers that are faster than other shards can take: the bytes between shards are limited.

use std::io;

use tokio::task::JoinSet;

use super::{PLAIN, Scenario};
use crate::attack::{Arena, Outcome, Peer, Poller, Readers, Session, batch, done, elsewhere, mib, text_frame};

/// Publishers on the first shard, readers on the last.
///
/// Memory: twice `mailbox_bytes_max` (2 × 8 MiB), the requests being read (4 × 2 MiB), and outboxes, which share what they hold (16 MiB,
/// in memory at most twice that).
pub const FLOOD_HTTP: Scenario = Scenario {
    name: "shard-messages-http",
    title: "publishers over HTTP on one shard, as fast as requests are taken, for 200 readers on the other",
    lasts_ms: 2_000,
    grows_mib_max: 80,
    attack: |arena| Box::pin(flood_http(arena)),
    ..PLAIN
};

/// Publishers on channels with a history, half of which the other shard owns.
///
/// Memory: as above; the histories hold 320 small messages.
pub const FLOOD_HISTORY: Scenario = Scenario {
    name: "shard-messages-history",
    title: "WebSockets publish on channels with a history, half of them another shard's, as fast as they are read",
    settings: &[r#"channels=[{pattern="/stored/**",history_messages=20}]"#],
    lasts_ms: 2_000,
    grows_mib_max: 80,
    attack: |arena| Box::pin(flood_history(arena)),
    ..PLAIN
};

async fn flood_http(arena: Arena) -> io::Result<Outcome> {
    let _readers = Readers::open(arena, READERS, Some(arena.shards - 1), r#""/flood""#).await?;
    let publishers = elsewhere(arena, move || async move {
        let data = format!("\"{}\"", "x".repeat(MESSAGE_BYTES));
        let mut publishers = JoinSet::new();
        for _ in 0..PUBLISHERS {
            let mut publisher = Poller::open_on(arena, 0).await?;
            let batch = batch(["/flood"; BATCH], &publisher.id, &data);
            publishers.spawn_local(async move {
                arena.again(batch.len(), async || publisher.ask(&batch).await.map(drop)).await
            });
        }
        Ok(publishers.join_all().await.into_iter().sum())
    });
    let bytes = done(publishers).await?;
    Ok(Outcome::did(bytes, format!("{} published for {READERS} readers", mib(bytes))))
}

async fn flood_history(arena: Arena) -> io::Result<Outcome> {
    let _readers = Readers::open(arena, HISTORY_READERS, None, r#""/stored/**""#).await?;
    let publishers = elsewhere(arena, move || async move {
        let mut publishers = JoinSet::new();
        for _ in 0..PUBLISHERS {
            let Session { mut socket, id } = Session::open(arena, Peer::default(), "").await?;
            // Channels in turn: each message goes only to its owner.
            let channels = (0..SMALL_BATCH).map(|nth| format!("/stored/{}", nth % CHANNELS));
            let frame = text_frame(&batch(channels, &id, r#""small""#));
            publishers
                .spawn_local(async move { arena.again(frame.len(), async || socket.send_raw(&frame).await).await });
        }
        Ok(publishers.join_all().await.into_iter().sum())
    });
    let bytes = done(publishers).await?;
    Ok(Outcome::did(bytes, format!("{} published on {CHANNELS} channels", mib(bytes))))
}

const READERS: usize = 200;
const PUBLISHERS: usize = 4;
const MESSAGE_BYTES: usize = 60_000;
const BATCH: usize = 16;
const HISTORY_READERS: usize = 20;
const CHANNELS: usize = 16;
const SMALL_BATCH: usize = 900;
