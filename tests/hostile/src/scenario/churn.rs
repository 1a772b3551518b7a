//! Sessions and subscriptions that come and go: their memory must be freed.

use std::io;

use super::{PLAIN, Scenario};
use crate::attack::{Arena, Http, Outcome, Peer, Session, connect, done, elsewhere, handshake};

/// Sessions that are opened, connect once and expire, over a few connections.
///
/// Memory: less than a KiB for each of some 50,000 sessions.
pub const SESSIONS: Scenario = Scenario {
    name: "churn-sessions",
    title: "sessions are opened by the ten thousand, connect once and are left",
    lasts_ms: 2_000,
    grows_mib_max: 64,
    attack: |arena| Box::pin(sessions(arena)),
    ..PLAIN
};

/// Subscriptions to unique names, all of them ended afterwards.
///
/// Memory: some 250 bytes for each of 500,000 subscriptions to unique names.
pub const SUBSCRIPTIONS: Scenario = Scenario {
    name: "churn-channels",
    title: "500,000 subscriptions, each to a different channel, and all of them ended",
    lasts_ms: 2_500,
    grows_mib_max: 160,
    attack: |arena| Box::pin(subscriptions(arena)),
    ..PLAIN
};

async fn sessions(arena: Arena) -> io::Result<Outcome> {
    let work = [(); THREADS].map(|()| elsewhere(arena, move || open_and_leave(arena)));
    let mut opened = 0;
    for work in work {
        opened += done(work).await?;
    }
    Ok(Outcome::did(opened, format!("{opened} sessions")))
}

/// Opens sessions over one connection, many requests at once: a handshake for each, then a connect. The sessions
/// expire.
async fn open_and_leave(arena: Arena) -> io::Result<u64> {
    let mut http = Http::open(arena, Peer::default()).await?;
    let mut opened = 0;
    while !arena.is_over() {
        http.cookie.clear();
        for _ in 0..AT_ONCE {
            http.send(&handshake("long-polling", "")).await?;
        }
        let mut sessions = Vec::new();
        for _ in 0..AT_ONCE {
            let body = http.receive().await?;
            let id = body.split_once(r#""clientId":""#).and_then(|(_, rest)| rest.split('"').next());
            sessions.push((id.ok_or_else(|| io::Error::other(body.clone()))?.to_string(), http.cookie.clone()));
        }
        for (id, cookie) in sessions {
            http.cookie = cookie;
            http.send(&connect("long-polling", &id, 0)).await?;
        }
        for _ in 0..AT_ONCE {
            http.receive().await?;
        }
        opened += AT_ONCE as u64;
    }
    Ok(opened)
}

async fn subscriptions(arena: Arena) -> io::Result<Outcome> {
    let mut sessions = Vec::new();
    let mut subscribed = 0;
    for nth in 0..SUBSCRIBERS {
        if arena.is_over() {
            break;
        }
        let mut session = Session::open(arena, Peer::default(), "").await?;
        for part in 0..PARTS {
            let names: Vec<String> = (0..NAMES).map(|name| format!("\"/churn/{nth}/{part}/{name}\"")).collect();
            session.subscribe(&format!("[{}]", names.join(",")), "").await?;
            subscribed += NAMES as u64;
        }
        sessions.push(session);
    }
    for mut session in sessions {
        let text = format!(r#"[{{"channel":"/meta/disconnect","clientId":"{}"}}]"#, session.id);
        session.ask(&text).await?;
    }
    Ok(Outcome::did(subscribed, format!("{subscribed} subscriptions")))
}

const THREADS: usize = 2;
const AT_ONCE: usize = 50;
const SUBSCRIBERS: usize = 500;
const PARTS: usize = 4;
const NAMES: usize = 250;
