//! Work that grows with the backlog: a message must cost the same however full an outbox is.

use std::io;

use super::{PLAIN, Scenario};
use crate::attack::{Arena, Outcome, Peer, Poller, Session, batch, done, elsewhere};

/// Full outboxes of different channels, in which each further message replaces one.
///
/// Memory: for each sleeper the queue of twice 100,000 messages; they share the messages; and a batch of the publisher.
pub const LATEST: Scenario = Scenario {
    name: "keep-latest",
    title: "newer messages for 50 sessions that sleep while 100,000 channels wait for each under keep-latest",
    settings: &[r#"channels=[{pattern="/latest/**",slow_consumer="keep-latest"}]"#],
    lasts_ms: 2_000,
    grows_mib_max: 128,
    attack: |arena| Box::pin(latest(arena)),
    ..PLAIN
};

/// Subscribes with a position, from sessions with a full outbox.
///
/// Memory: all sessions share the waiting messages.
pub const POSITIONS: Scenario = Scenario {
    name: "positions",
    title: "100 connections subscribe with a position over and over while 99,000 messages wait for each",
    settings: &[r#"channels=[{pattern="/stored/**",history_messages=10}]"#],
    lasts_ms: 2_500,
    grows_mib_max: 64,
    attack: |arena| Box::pin(positions(arena)),
    ..PLAIN
};

async fn latest(arena: Arena) -> io::Result<Outcome> {
    let mut sleepers = Vec::new();
    for _ in 0..SLEEPERS {
        let mut sleeper = Poller::open_on(arena, 0).await?;
        sleeper.subscribe(r#""/latest/**""#, "").await?;
        sleepers.push(sleeper);
    }
    let sent = elsewhere(arena, move || async move {
        let mut publisher = Session::open_on(arena, 0, Peer::default()).await?;
        let mut sent = 0;
        while !arena.is_over() {
            let channels = (sent..sent + BATCH).map(|nth| format!("/latest/{}", nth % LATEST_CHANNELS));
            let text = batch(channels, &publisher.id, "1");
            if arena.during(publisher.ask(&text)).await?.is_none() {
                break;
            }
            sent += BATCH;
        }
        Ok(sent)
    });
    let sent = done(sent).await?;
    Ok(Outcome::did(sent, format!("{sent} messages on different channels for {} sleepers", sleepers.len())))
}

async fn positions(arena: Arena) -> io::Result<Outcome> {
    let mut sleepers = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut sleeper = Poller::open(arena, Peer::default(), r#","ext":{"replay":true}"#).await?;
        sleeper.subscribe(r#"["/full","/stored/a"]"#, "").await?;
        sleepers.push(sleeper);
    }
    let mut publisher = Session::open(arena, Peer::default(), "").await?;
    let text = batch(["/full"; FILL_BATCH], &publisher.id, "1");
    for _ in 0..FILL / FILL_BATCH {
        publisher.ask(&text).await?;
    }
    // There are messages to replay, so the outbox is searched for them.
    let text = batch(["/stored/a"; 10], &publisher.id, "1");
    publisher.ask(&text).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for mut sleeper in sleepers {
        tasks.spawn_local(async move {
            arena
                .again(1, async || sleeper.subscribe(r#""/stored/a""#, r#","ext":{"replay":{"/stored/a":-2}}"#).await)
                .await
        });
    }
    let asked: u64 = tasks.join_all().await.into_iter().sum();
    Ok(Outcome::did(asked, format!("{asked} positions of {CONNECTIONS} sessions with {FILL} messages waiting")))
}

const BATCH: u64 = 1_000;
const SLEEPERS: usize = 50;
const LATEST_CHANNELS: u64 = 100_000;
const CONNECTIONS: usize = 100;
const FILL: usize = 99_000;
const FILL_BATCH: usize = 900;
