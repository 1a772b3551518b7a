//! A flood on one channel: others must get their turn, on all shards.

use std::io;

use super::{PLAIN, Scenario};
use crate::attack::{Arena, Outcome, Peer, Readers, Session, done, elsewhere, mib, publication, text_frame};

/// Large messages as fast as the server reads, for readers on the last shard.
///
/// Memory: messages between shards and outboxes, as with `shard-messages-http`.
pub const FLOOD: Scenario = Scenario {
    name: "flood",
    title: "a publisher of 60 kB messages, as fast as they are taken, for 100 subscribers that read",
    lasts_ms: 2_500,
    grows_mib_max: 80,
    attack: |arena| Box::pin(flood(arena)),
    ..PLAIN
};

async fn flood(arena: Arena) -> io::Result<Outcome> {
    let readers = Readers::open(arena, READERS, Some(arena.shards - 1), r#""/flood""#).await?;
    let progress = readers.progress.clone();
    let messages = elsewhere(arena, move || async move {
        let Session { mut socket, id } = Session::open_on(arena, 0, Peer::default()).await?;
        let data = format!("\"{}\"", "x".repeat(MESSAGE_BYTES));
        let frame = text_frame(&format!("[{}]", publication("/flood", &id, &data)));
        let mut sent: u64 = 0;
        while !arena.is_over() && arena.during(socket.send_raw(&frame)).await?.is_some() {
            sent += 1;
            progress.reach(arena, sent.saturating_sub(AHEAD) * MESSAGE_BYTES as u64).await;
        }
        Ok(sent)
    });
    let messages = done(messages).await?;
    let did = format!("{} published for {READERS} readers", mib(messages * MESSAGE_BYTES as u64));
    Ok(Outcome::did(messages, did).broke(readers.ended()))
}

const READERS: usize = 100;
const MESSAGE_BYTES: usize = 60_000;
/// The number of messages under way: no more than an outbox holds, so that a reader that the machine halts does not
/// become slow.
const AHEAD: u64 = 250;
