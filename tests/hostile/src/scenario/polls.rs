//! Responses of long-polling: their size is limited, and a client that reads one is not silent.

use std::io;
use std::time::{Duration, Instant};

use super::{PLAIN, Scenario, TWO};
use crate::attack::{Arena, Outcome, Peer, Poller, Session, mib, publication, text_frame};

/// Many responses that nobody reads.
///
/// Memory: `response_bytes_max` (256 KiB) for each session, as text and on its way; the backlog once, and the publisher's messages.
pub const UNREAD: Scenario = Scenario {
    name: "polls-unread",
    title: "200 sessions with the same 13 MB of messages connect over long-polling and never read",
    lasts_ms: 2_000,
    grows_mib_max: 112,
    attack: |arena| Box::pin(unread(arena, "", Request::Post)),
    ..PLAIN
};

/// The same with sessions that acknowledge: each has its own batches.
pub const UNREAD_ACK: Scenario = Scenario {
    name: "polls-unread-ack",
    title: "the same by sessions that acknowledge",
    shards: TWO,
    attack: |arena| Box::pin(unread(arena, r#","ext":{"ack":true}"#, Request::Post)),
    ..UNREAD
};

/// The same over callback-polling, where a response is a script with everything in a string.
pub const UNREAD_SCRIPTS: Scenario = Scenario {
    name: "scripts-unread",
    title: "the same over callback-polling",
    shards: TWO,
    attack: |arena| Box::pin(unread(arena, "", Request::Script)),
    ..UNREAD
};

/// A backlog that takes longer to read than a session may be silent.
///
/// Memory: the backlog once, a response for each reader.
pub const SLOW: Scenario = Scenario {
    name: "polls-slow",
    title: "readers over long-polling, with and without ack, take 6 MB steadily for longer than a session may be silent",
    settings: &["max_interval_ms=2000"],
    lasts_ms: 4_000,
    grows_mib_max: 48,
    attack: |arena| Box::pin(slow(arena)),
    ..PLAIN
};

/// The request type of the connects whose responses nobody reads.
#[derive(Clone, Copy)]
enum Request {
    Post,
    Script,
}

async fn unread(arena: Arena, fields: &str, request: Request) -> io::Result<Outcome> {
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let mut session = Poller::open(arena, narrow(), fields).await?;
        session.subscribe(r#""/backlog""#, "").await?;
        sessions.push(session);
    }
    let bytes = publish(arena, BACKLOG_MESSAGES).await?;
    for session in &mut sessions {
        let connect = session.connect(20_000);
        match request {
            Request::Post => session.http.send(&connect).await?,
            Request::Script => session.http.send_script(&connect.replace("long-polling", "callback-polling")).await?,
        }
    }
    tokio::time::sleep(arena.left()).await;
    Ok(Outcome::did(bytes, format!("{} wait for each of {SESSIONS} sessions", mib(bytes))))
}

async fn slow(arena: Arena) -> io::Result<Outcome> {
    let mut readers = Vec::new();
    for fields in ["", r#","ext":{"ack":true}"#, r#","ext":{"ack":true}"#, ""] {
        let mut reader = Poller::open(arena, narrow(), fields).await?;
        reader.subscribe(r#""/backlog""#, "").await?;
        readers.push(reader);
    }
    publish(arena, SLOW_MESSAGES).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for reader in readers {
        tasks.spawn_local(take(arena, reader));
    }
    let mut outcome = Outcome::default();
    let mut took = Vec::new();
    for taken in tasks.join_all().await {
        match taken {
            Ok((messages, time)) => {
                let lacks = || {
                    format!("a steady reader got {messages} of {SLOW_MESSAGES} messages in {:.1} s", time.as_secs_f64())
                };
                outcome = outcome.broke((messages != SLOW_MESSAGES).then(lacks));
                took.push(format!("{:.1} s", time.as_secs_f64()));
            }
            Err(error) => outcome.broken.push(format!("a steady reader: {error}")),
        }
    }
    outcome.amount = took.len() as u64;
    outcome.did = format!("{} readers took {} messages each in {}", took.len(), SLOW_MESSAGES, took.join(", "));
    Ok(outcome)
}

/// Reads all messages at a steady rate, over as many connects as needed. Returns their number and the time.
async fn take(arena: Arena, mut reader: Poller) -> io::Result<(usize, Duration)> {
    let (began, mut messages) = (Instant::now(), 0);
    let deadline = arena.until + SLOW_OVERTIME;
    let mut is_all = false;
    while !is_all && Instant::now() < deadline {
        // One more connect after the last message: the session must still exist.
        is_all = messages == SLOW_MESSAGES;
        let connect = reader.connect(if is_all { 0 } else { 1_000 });
        reader.http.send(&connect).await?;
        let body = reader.http.receive_at(SLOW_BYTES_PER_S).await?;
        if body.contains("402::") {
            return Err(io::Error::other(format!("after {messages} messages {body}")));
        }
        messages += body.matches(r#""channel":"/backlog""#).count();
        let batch = body.rsplit_once(r#""ack":"#).and_then(|(_, rest)| rest.split(['}', ',']).next()?.parse().ok());
        reader.batch = batch.or(reader.batch);
    }
    Ok((messages, began.elapsed()))
}

/// Publishes `messages` messages, and waits for their replies.
async fn publish(arena: Arena, messages: usize) -> io::Result<u64> {
    let mut publisher = Session::open(arena, Peer::default(), "").await?;
    let text = format!("[{}]", publication("/backlog", &publisher.id, &format!("\"{}\"", "x".repeat(MESSAGE_BYTES))));
    for _ in 0..messages {
        publisher.ask(&text).await?;
    }
    Ok((messages * text_frame(&text).len()) as u64)
}

/// A small receive buffer: unread bytes stay with the server.
fn narrow() -> Peer {
    Peer { receive_bytes: Some(32 * 1024), ..Peer::default() }
}

const SESSIONS: usize = 200;
const BACKLOG_MESSAGES: usize = 130;
/// Small enough that a response of the greatest size holds some.
const MESSAGE_BYTES: usize = 100_000;
const SLOW_MESSAGES: usize = 60;
/// 6 MB in 3 s.
const SLOW_BYTES_PER_S: usize = 2_000_000;
/// The time after the end of the attack at which a reader gives up. A busy machine lets readers of low priority run seldom.
const SLOW_OVERTIME: Duration = Duration::from_secs(60);
