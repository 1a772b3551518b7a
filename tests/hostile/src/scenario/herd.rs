//! Large messages that arrive at the same moment: a client that reads is not slow.

use std::io;

use super::{PLAIN, Scenario};
use crate::attack::{Arena, Outcome, Peer, Progress, Readers, Session, done, elsewhere, publication, text_frame};

/// All publishers finish their messages at once.
///
/// Memory: the messages being read (20 × 0.9 MB, in buffers that double), and an outbox of twice `outbox_bytes_max`, shared.
pub const HERD: Scenario = Scenario {
    name: "herd",
    title: "20 publishers finish messages of 0.9 MB in the same moment, for 40 fast readers, again and again",
    lasts_ms: 2_000,
    grows_mib_max: 112,
    attack: |arena| Box::pin(herd(arena)),
    ..PLAIN
};

async fn herd(arena: Arena) -> io::Result<Outcome> {
    let readers = Readers::open(arena, READERS, Some(0), r#""/herd""#).await?;
    let progress = readers.progress.clone();
    let rounds: usize = done(elsewhere(arena, move || publish(arena, progress))).await?;
    let outcome =
        Outcome::did(rounds as u64, format!("{rounds} rounds of {PUBLISHERS} messages for {READERS} fast readers"));
    Ok(outcome.broke(readers.ended()))
}

/// Sends all messages except for their last byte, then the last bytes. The next round begins when all readers have
/// read this one.
async fn publish(arena: Arena, progress: Progress) -> io::Result<usize> {
    let mut publishers = Vec::new();
    for _ in 0..PUBLISHERS {
        publishers.push(Session::open_on(arena, 0, Peer::default()).await?);
    }
    let data = format!("\"{}\"", "x".repeat(MESSAGE_BYTES));
    let mut rounds = 0;
    while !arena.is_over() {
        for part in [0, 1] {
            for Session { socket, id } in &mut publishers {
                let frame = text_frame(&format!("[{}]", publication("/herd", id, &data)));
                let (most, last) = frame.split_at(frame.len() - 1);
                if arena.during(socket.send_raw([most, last][part])).await?.is_none() {
                    return Ok(rounds);
                }
            }
        }
        rounds += 1;
        progress.reach(arena, (rounds * PUBLISHERS * MESSAGE_BYTES) as u64).await;
    }
    Ok(rounds)
}

const READERS: usize = 40;
const PUBLISHERS: usize = 20;
const MESSAGE_BYTES: usize = 900_000;
