//! Several attacks at the same time, and limits so small that normal load becomes an attack.

use std::io;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{PLAIN, Scenario, TWO};
use crate::attack::{
    Arena, Outcome, Peer, Poller, Readers, Session, Socket, batch, done, elsewhere, handshake, mib, text_frame,
};

/// One message at a time between shards, and connections that come and go: no reader waits for a wake-up that never
/// comes.
///
/// Memory: the messages of 64 sessions.
pub const MAILBOX_OF_ONE: Scenario = Scenario {
    name: "mailbox-of-one",
    title: "64 sessions publish for each other over mailboxes that hold one message, while connections come and go by the dozen",
    settings: &["mailbox_bytes_max=1"],
    shards: TWO,
    lasts_ms: 2_000,
    grows_mib_max: 64,
    attack: |arena| Box::pin(mailbox_of_one(arena)),
    ..PLAIN
};

/// Sessions that acknowledge and replay, and then sleep, on a flooded channel with a history.
///
/// Memory: the history (2 MB), the part that sessions hold (twice `outbox_bytes_max`, shared), and messages between
/// shards.
pub const SURE_SLEEPERS: Scenario = Scenario {
    name: "sure-sleepers",
    title: "400 sessions with ack and replay, over WebSocket and long-polling, sleep on a channel with a history that is flooded",
    settings: &[r#"channels=[{pattern="/stored/**",history_messages=1000}]"#],
    shards: TWO,
    lasts_ms: 2_500,
    grows_mib_max: 96,
    retains_mib: 2,
    attack: |arena| Box::pin(sure_sleepers(arena)),
    ..PLAIN
};

/// Several attacks at once.
///
/// Memory: the sum of the limits of each attack.
pub const EVERYTHING: Scenario = Scenario {
    name: "everything",
    title: "a flood, subscribers that never read, pings, handshakes and sleepers at the same time",
    shards: TWO,
    lasts_ms: 3_000,
    grows_mib_max: 256,
    attack: |arena| Box::pin(everything(arena)),
    ..PLAIN
};

async fn mailbox_of_one(arena: Arena) -> io::Result<Outcome> {
    let mut sessions = Vec::new();
    for nth in 0..PEERS {
        let mut session = Session::open(arena, Peer::default(), "").await?;
        session.subscribe(&format!("\"/peers/{nth}\""), "").await?;
        sessions.push(session);
    }
    let mut tasks = JoinSet::new();
    for (nth, mut session) in sessions.into_iter().enumerate() {
        tasks.spawn_local(async move {
            let text = batch([format!("/peers/{}", (nth + 1) % PEERS)], &session.id, "1");
            let once = async || {
                session.ask(&text).await?;
                tokio::time::sleep(PUBLISH_PAUSE).await;
                Ok(())
            };
            arena.again(1, once).await
        });
    }
    tasks.spawn_local(async move {
        let once = async || {
            let mut newcomers = JoinSet::new();
            for _ in 0..PEERS {
                newcomers.spawn_local(Session::open(arena, Peer::default(), ""));
            }
            newcomers.join_all().await.into_iter().try_for_each(|session| session.map(drop))
        };
        arena.again(0, once).await
    });
    let published: u64 = tasks.join_all().await.into_iter().sum();
    Ok(Outcome::did(published, format!("{published} publications of {PEERS} sessions")))
}

async fn sure_sleepers(arena: Arena) -> io::Result<Outcome> {
    let fields = r#","ext":{"ack":true,"replay":true}"#;
    let (mut sockets, mut polls) = (Vec::new(), Vec::new());
    for nth in 0..SLEEPERS {
        if nth % 2 == 0 {
            let mut session = Session::open(arena, Peer::default(), fields).await?;
            session.subscribe(r#""/stored/a""#, r#","ext":{"replay":{"/stored/a":-1}}"#).await?;
            sockets.push(session);
        } else {
            let mut session = Poller::open(arena, Peer::default(), fields).await?;
            session.subscribe(r#""/stored/a""#, r#","ext":{"replay":{"/stored/a":-1}}"#).await?;
            polls.push(session);
        }
    }
    let bytes = elsewhere(arena, move || Session::flood(arena, "/stored/a", 2_000));
    let bytes = done(bytes).await?;
    Ok(Outcome::did(bytes, format!("{} published for {SLEEPERS} sleepers", mib(bytes))))
}

async fn everything(arena: Arena) -> io::Result<Outcome> {
    let _readers = Readers::open(arena, READERS, None, r#""/flood""#).await?;
    let mut deaf = Vec::new();
    for _ in 0..DEAF {
        let mut session = Session::open(arena, Peer { receive_bytes: Some(4096), ..Peer::default() }, "").await?;
        session.subscribe(r#""/flood""#, "").await?;
        deaf.push(session);
    }
    let flood = elsewhere(arena, move || Session::flood(arena, "/flood", 60_000));
    let mut tasks = JoinSet::new();
    let mut ping = Vec::new();
    websocket::frame::masked(websocket::Opcode::Ping, b"x", [0; 4], &mut ping);
    let pings = ping.repeat(1_000);
    for _ in 0..PINGING {
        let mut socket = Socket::open(arena, Peer::default()).await?;
        let pings = pings.clone();
        tasks.spawn_local(async move { arena.again(1, async || socket.send_raw(&pings).await).await });
    }
    let mut socket = Socket::open(arena, Peer::default()).await?;
    let handshakes = text_frame(&handshake("websocket", "")).repeat(100);
    tasks.spawn_local(async move {
        let once = async || {
            socket.send_raw(&handshakes).await?;
            socket.skim().await.map(drop)
        };
        arena.again(1, once).await
    });
    let mut poller = Poller::open(arena, Peer::default(), "").await?;
    poller.subscribe(r#"["/flood","/flood/**"]"#, "").await?;
    tasks.join_all().await;
    let bytes = done(flood).await?;
    Ok(Outcome::did(bytes, format!("{} published beside {DEAF} deaf and {PINGING} pinging sockets", mib(bytes))))
}

const PEERS: usize = 64;
const PUBLISH_PAUSE: Duration = Duration::from_millis(2);
const SLEEPERS: usize = 400;
const READERS: usize = 30;
const DEAF: usize = 50;
const PINGING: usize = 20;
