//! Messages that stop before their end: the server gives them up, and nobody else notices.

use std::io;

use super::{PLAIN, Scenario};
use crate::attack::{Arena, Http, Outcome, Peer, Socket, text_frame};

/// Large messages that never end.
///
/// Memory: `incomplete_bytes_max` (64 MiB) for each of two shards, and the bytes that the kernel delivers meanwhile.
pub const INCOMPLETE: Scenario = Scenario {
    name: "incomplete",
    title: "300 sockets and 100 requests send 0.9 MB of a message of 1 MB and stop",
    lasts_ms: 2_500,
    grows_mib_max: 160,
    attack: |arena| Box::pin(incomplete(arena)),
    ..PLAIN
};

async fn incomplete(arena: Arena) -> io::Result<Outcome> {
    let text = "x".repeat(MESSAGE_BYTES);
    let most = &text_frame(&text)[..SENT_BYTES];
    let (mut sockets, mut requests, mut sent) = (Vec::new(), Vec::new(), 0);
    while sockets.len() < SOCKETS && !arena.is_over() {
        let mut socket = Socket::open(arena, Peer::default()).await?;
        // A socket that was given up takes no more.
        sent += u64::from(arena.during(socket.send_raw(most)).await.is_ok());
        sockets.push(socket);
        if sockets.len() % 3 == 0 {
            let mut http = Http::open(arena, Peer::default()).await?;
            sent += u64::from(arena.during(http.send_part(&text, SENT_BYTES)).await.is_ok());
            requests.push(http);
        }
    }
    tokio::time::sleep(arena.left()).await;
    let did = format!("{sent} messages that stop over {} sockets and {} requests", sockets.len(), requests.len());
    Ok(Outcome::did(sent, did))
}

const SOCKETS: usize = 300;
const MESSAGE_BYTES: usize = 1_000_000;
const SENT_BYTES: usize = 900_000;
