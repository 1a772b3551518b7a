//! Decisions and answers of a backend: one greedy owner beside others, who get theirs.

use std::io;

use super::shares::{GREEDY, from, others};
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
                sent += AT_ONCE;
            }
        }
        Ok(sent)
    });
    let others = others(arena, async |arena, peer| {
        let mut session = Session::open(arena, peer, r#","ext":{"user":"other"}"#).await?;
        session.refresh("new").await
    });
    let others = others.await;
    Ok(others.add_to(Outcome::did(format!("{} refreshes of one user", done(sent).await?))))
}

async fn webhook(arena: Arena) -> io::Result<Outcome> {
    let strangers = elsewhere(arena, move || async move {
        let mut strangers = Vec::new();
        for _ in 0..STRANGERS {
            strangers.push(Http::open(arena, GREEDY).await?);
        }
        let text = handshake("long-polling", &format!(r#","ext":{{"user":"{SLOW}"}}"#));
        let mut shaken = 0;
        while !arena.is_over() {
            for stranger in &mut strangers {
                stranger.send(&text).await?;
                shaken += 1;
            }
            for stranger in &mut strangers {
                let Some(_) = arena.during(stranger.receive()).await? else { break };
            }
        }
        Ok(shaken)
    });
    let poisoned = elsewhere(arena, move || async move {
        let mut session = Session::open(arena, POISONER, r#","ext":{"user":"greedy"}"#).await?;
        let text = batch([HOOKED; AT_ONCE], &session.id, &format!("\"{POISON}\""));
        let mut published = 0;
        while !arena.is_over() {
            session.socket.send(&text).await?;
            published += AT_ONCE;
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
    let (shaken, published) = (done(strangers).await?, done(poisoned).await?);
    Ok(others
        .add_to(Outcome::did(format!("{shaken} slow handshakes, {published} messages at which the backend fails"))))
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
        Ok(waiting.len())
    });
    let others = others(arena, async |arena, peer| {
        let mut http = Http::open(arena, peer).await?;
        http.get("/app/other").await?;
        let body = http.receive().await?;
        if body == "[]" { Ok(()) } else { Err(io::Error::other(body)) }
    });
    let others = others.await;
    Ok(others.add_to(Outcome::did(format!("{} requests for another protocol", done(asked).await?))))
}

const WEBHOOKS: &str = "[[webhooks]]\nurl = \"http://{backend}/\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
                        events = [\"handshake\", \"refresh\", \"publish\"]\nchannels = [\"/hooked/**\"]\n\
                        requests_in_flight_max = 16\nqueue_messages_max = 64\n";
const POISONER: Peer = from(67);
const HOOKED: &str = "/hooked/a";
const SESSIONS: usize = 30;
const AT_ONCE: usize = 20;
const STRANGERS: usize = 24;
const UPGRADES: usize = 100;
