//! Sockets that send and never read: neither the server nor the kernel may hold much for them.

use std::io;

use super::{PLAIN, Scenario};
use crate::attack::{Arena, Outcome, Peer, Session, Socket, done, elsewhere, mib};

/// Pings before any handshake.
///
/// Memory: a frame being read for each socket, and its latest pong.
pub const PINGS: Scenario = Scenario {
    name: "pings",
    title: "200 sockets without a session send pings and never read",
    lasts_ms: 1_500,
    grows_mib_max: 48,
    attack: |arena| Box::pin(pings(arena)),
    ..PLAIN
};

/// Subscribers that leave everything in the kernel's buffers.
///
/// Memory: outboxes share their contents, twice `outbox_bytes_max`, and messages between shards.
pub const DEAF: Scenario = Scenario {
    name: "deaf",
    title: "300 subscribers never read what is published for them, until they are given up",
    lasts_ms: 2_500,
    grows_mib_max: 80,
    // Each socket has `socket_send_buffer_bytes` (128 KiB), which a system may double, instead of its default of 4
    // MiB.
    kernel_mib_max: Some(80),
    attack: |arena| Box::pin(deaf(arena)),
    ..PLAIN
};

async fn pings(arena: Arena) -> io::Result<Outcome> {
    let mut ping = Vec::new();
    websocket::frame::masked(websocket::Opcode::Ping, &[b'x'; websocket::CONTROL_BYTES_MAX], [0; 4], &mut ping);
    let pings = ping.repeat(PINGS_AT_ONCE);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..PINGING {
        let mut socket = Socket::open(arena, narrow()).await?;
        let pings = pings.clone();
        tasks.spawn_local(async move { arena.again(pings.len(), async || socket.send_raw(&pings).await).await });
    }
    let bytes: u64 = tasks.join_all().await.into_iter().sum();
    Ok(Outcome::did(bytes, format!("{} of pings over {PINGING} sockets", mib(bytes))))
}

async fn deaf(arena: Arena) -> io::Result<Outcome> {
    let mut deaf = Vec::new();
    for _ in 0..DEAF_SOCKETS {
        let mut session = Session::open(arena, narrow(), "").await?;
        session.subscribe(r#""/deaf""#, "").await?;
        deaf.push(session);
    }
    let bytes = elsewhere(arena, move || Session::flood(arena, "/deaf", MESSAGE_BYTES));
    let bytes: u64 = done(bytes).await?;
    Ok(Outcome::did(bytes, format!("{} published for {DEAF_SOCKETS} that do not read", mib(bytes))))
}

/// A small receive buffer on the attackers' side.
fn narrow() -> Peer {
    Peer { receive_bytes: Some(4 * 1024), ..Peer::default() }
}

const PINGING: usize = 200;
const PINGS_AT_ONCE: usize = 400;
const DEAF_SOCKETS: usize = 300;
const MESSAGE_BYTES: usize = 60_000;
