//! Decisions and answers of a backend: one greedy owner beside others, who get theirs.

use std::io;
use std::time::Duration;

use tokio::task::JoinSet;

use super::shares::{GREEDY, Tries, from, others};
use super::{PLAIN, Scenario, TWO};
use crate::attack::{Arena, Http, Outcome, POISON, Peer, SLOW, Session, batch, done, elsewhere, handshake, refresh};

/// The sessions of one user send credentials about which the backend decides late.
///
/// Memory: some sessions, and the credentials that wait.
pub const REFRESHES: Scenario = Scenario {
    name: "shares-refreshes",
    title: "30 sessions of one user send new credentials without end; others come, and refresh theirs",
    settings: &["calls_waiting_max=64"],
    config: WEBHOOKS,
    shards: TWO,
    grows_mib_max: 24,
    attack: |arena| Box::pin(refreshes(arena)),
    ..PLAIN
};

/// Handshakes about which the backend decides late, and messages at which it fails.
///
/// Memory: some sessions, and the events that wait.
pub const WEBHOOK: Scenario = Scenario {
    name: "shares-webhook",
    title: "24 strangers shake hands and one user publishes what the backend answers with 500; others come and publish",
    config: WEBHOOKS,
    shards: TWO,
    lasts_ms: 3_000,
    grows_mib_max: 24,
    attack: |arena| Box::pin(webhook(arena)),
    ..PLAIN
};

/// Handshakes about which the backend decides late, more than may wait.
///
/// Memory: the handshakes that wait.
pub const DECISIONS: Scenario = Scenario {
    name: "shares-decisions",
    title: "one address shakes hands on 60 connections, and the backend decides late; others come",
    settings: &["decisions_waiting_max=16"],
    config: WEBHOOKS,
    shards: TWO,
    lasts_ms: 3_000,
    grows_mib_max: 24,
    attack: |arena| Box::pin(decisions(arena)),
    ..PLAIN
};

/// Requests for another protocol that the backend answers late.
///
/// Memory: the connections and heads of requests.
pub const PROXY: Scenario = Scenario {
    name: "shares-proxy",
    title: "one address asks the backend for 100 WebSockets that it answers late; others get their answers",
    config: "[proxy]\nbackend = \"http://{backend}\"\nrequests_max = 24\n",
    shards: TWO,
    grows_mib_max: 24,
    attack: |arena| Box::pin(proxy(arena)),
    ..PLAIN
};

async fn refreshes(arena: Arena) -> io::Result<Outcome> {
    let sent = elsewhere(arena, move || async move {
        let (mut sessions, mut sent) = (Vec::new(), 0);
        for _ in 0..SESSIONS {
            sessions.push(Session::open(arena, GREEDY, r#","ext":{"user":"greedy"}"#).await?);
        }
        while !arena.is_over() {
            for session in &mut sessions {
                let all = vec![refresh(&session.id, SLOW); AT_ONCE];
                session.socket.send(&format!("[{}]", all.join(","))).await?;
                let Some(_) = arena.during(session.socket.receive()).await? else { break };
                sent += AT_ONCE as u64;
            }
        }
        Ok(sent)
    });
    let others = others(arena, async |arena, peer| {
        let mut session = Session::open(arena, peer, r#","ext":{"user":"other"}"#).await?;
        session.refresh("new").await
    });
    let others = others.await;
    let sent = done(sent).await?;
    Ok(others.add_to(Outcome::did(sent, format!("{sent} refreshes of one user"))))
}

async fn webhook(arena: Arena) -> io::Result<Outcome> {
    let strangers = elsewhere(arena, move || strangers(arena, STRANGERS));
    let poisoned = elsewhere(arena, move || async move {
        let mut session = Session::open(arena, POISONER, r#","ext":{"user":"greedy"}"#).await?;
        let text = batch([HOOKED; AT_ONCE], &session.id, &format!("\"{POISON}\""));
        let mut published = 0;
        while !arena.is_over() {
            session.socket.send(&text).await?;
            published += AT_ONCE as u64;
            let Some(_) = arena.during(session.socket.receive()).await? else { break };
        }
        Ok(published)
    });
    let others = others(arena, async |arena, peer| {
        let mut session = Session::open(arena, peer, r#","ext":{"user":"other"}"#).await?;
        let publication = batch([HOOKED], &session.id, "1");
        session.ask(&publication).await.map(drop)
    });
    let others = others.await;
    let (Tries { made, .. }, published) = (done(strangers).await?, done(poisoned).await?);
    let did = format!("{made} slow handshakes, {published} messages at which the backend fails");
    Ok(others.add_to(Outcome::did(made.min(published), did)))
}

async fn decisions(arena: Arena) -> io::Result<Outcome> {
    let strangers = elsewhere(arena, move || strangers(arena, MANY_STRANGERS));
    let others =
        others(arena, async |arena, peer| Session::open(arena, peer, r#","ext":{"user":"other"}"#).await.map(drop));
    let others = others.await;
    Ok(others.add_to(done(strangers).await?.outcome("slow handshakes")))
}

/// Clients of one address shake hands, again and again; the backend decides late.
async fn strangers(arena: Arena, count: usize) -> io::Result<Tries> {
    let mut strangers = JoinSet::new();
    for _ in 0..count {
        strangers.spawn_local(stranger(arena, Http::open(arena, GREEDY).await?));
    }
    let mut all = Tries::default();
    for tries in strangers.join_all().await {
        let Tries { made, refused } = tries?;
        (all.made, all.refused) = (all.made + made, all.refused + refused);
    }
    Ok(all)
}

async fn stranger(arena: Arena, mut http: Http) -> io::Result<Tries> {
    let text = handshake("long-polling", &format!(r#","ext":{{"user":"{SLOW}"}}"#));
    let mut tries = Tries::default();
    while !arena.is_over() {
        http.send(&text).await?;
        tries.made += 1;
        let Some(reply) = arena.during(http.receive()).await? else { break };
        tries.refused += u64::from(reply.contains("503::decisions_waiting_max"));
        tokio::time::sleep(HANDSHAKE_PAUSE).await;
    }
    Ok(tries)
}

async fn proxy(arena: Arena) -> io::Result<Outcome> {
    let asked = elsewhere(arena, move || async move {
        let mut waiting = Vec::new();
        for _ in 0..UPGRADES {
            let mut http = Http::open(arena, GREEDY).await?;
            http.upgrade(&format!("/app/{SLOW}")).await?;
            waiting.push(http);
        }
        tokio::time::sleep(arena.left()).await;
        Ok(waiting.len() as u64)
    });
    let others = others(arena, async |arena, peer| {
        let mut http = Http::open(arena, peer).await?;
        http.get("/app/other").await?;
        let body = http.receive().await?;
        if body == "[]" { Ok(()) } else { Err(io::Error::other(body)) }
    });
    let others = others.await;
    let asked = done(asked).await?;
    Ok(others.add_to(Outcome::did(asked, format!("{asked} requests for another protocol"))))
}

const WEBHOOKS: &str = "[[webhooks]]\nurl = \"http://{backend}/\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
                        events = [\"handshake\", \"refresh\", \"publish\"]\nchannels = [\"/hooked/**\"]\n\
                        requests_in_flight_max = 16\nqueue_messages_max = 64\n";
const POISONER: Peer = from(67);
const HOOKED: &str = "/hooked/a";
const SESSIONS: usize = 30;
const AT_ONCE: usize = 20;
const STRANGERS: usize = 24;
const MANY_STRANGERS: usize = 60;
const HANDSHAKE_PAUSE: Duration = Duration::from_millis(20);
const UPGRADES: usize = 100;
