//! Budgets that several users share: one greedy address beside others, who get theirs.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{PLAIN, Scenario, TWO};
use crate::attack::{Arena, Http, Outcome, Peer, Poller, Readers, Session, Times, batch, done, elsewhere, handshake};

/// Many sessions make calls that are never answered, until they get no more.
///
/// Memory: the calls that wait, and some hundred sessions.
pub const CALLS: Scenario = Scenario {
    name: "shares-calls",
    title: "30 sessions make calls that are never answered; others call and come",
    settings: &["calls_waiting_max=400"],
    shards: TWO,
    lasts_ms: 1_500,
    grows_mib_max: 24,
    attack: |arena| Box::pin(calls(arena)),
    ..PLAIN
};

/// One address holds as many requests as it can.
///
/// Memory: the connections of held requests.
pub const HOLDS: Scenario = Scenario {
    name: "shares-holds",
    title: "one address holds as many requests as it gets; others hold one",
    settings: &["held_requests_max=800"],
    shards: TWO,
    lasts_ms: 1_500,
    grows_mib_max: 40,
    attack: |arena| Box::pin(holds(arena)),
    ..PLAIN
};

/// One address posts large bodies faster than they are processed, because the messages for the other shard wait.
///
/// Memory: the bodies that are being read (48 x 0.5 MiB, twice while they grow), those that wait, and the outboxes.
pub const BODIES: Scenario = Scenario {
    name: "shares-bodies",
    title: "one address posts half a mebibyte on each of 48 connections at once, again and again; others post little",
    settings: &["waiting_requests_bytes_max=4194304", "mailbox_bytes_max=65536"],
    shards: TWO,
    lasts_ms: 1_500,
    grows_mib_max: 128,
    attack: |arena| Box::pin(bodies(arena)),
    ..PLAIN
};

/// One client publishes on ever new channels of a rule with a history.
///
/// Memory: as many histories as there may be.
pub const HISTORIES: Scenario = Scenario {
    name: "shares-histories",
    title: "one client publishes on ever new channels with a history, and gets errors when they have none; others use another rule",
    settings: &["history_channels_max=2000"],
    shards: TWO,
    lasts_ms: 1_500,
    grows_mib_max: 24,
    retains_mib: 12,
    attack: |arena| Box::pin(histories(arena)),
    ..PLAIN
};

/// Strangers send handshakes with credentials of a mebibyte, of which a tree would have 500,000 values.
///
/// Memory: the bodies of some requests.
pub const CREDENTIALS: Scenario = Scenario {
    name: "shares-strangers",
    title: "strangers shake hands with a mebibyte of ext, again and again; others shake hands",
    config: "[auth]\nsecret = \"0123456789abcdef0123456789abcdef\"\nanonymous = true\n",
    shards: TWO,
    lasts_ms: 1_500,
    grows_mib_max: 12,
    attack: |arena| Box::pin(credentials(arena)),
    ..PLAIN
};

/// One address shakes hands faster than all together may.
///
/// Memory: some sessions that have not connected.
pub const RATES: Scenario = Scenario {
    name: "shares-rates",
    title: "one address shakes hands without end, of which the server allows 200 a second; others come",
    settings: &["handshakes_per_s_max=200"],
    shards: TWO,
    lasts_ms: 1_500,
    grows_mib_max: 24,
    attack: |arena| Box::pin(rates(arena)),
    ..PLAIN
};

async fn calls(arena: Arena) -> io::Result<Outcome> {
    let tries = elsewhere(arena, move || async move {
        let (mut tries, mut sessions) = (Tries::default(), Vec::new());
        for _ in 0..GREEDY_SESSIONS {
            let mut session = Session::open(arena, GREEDY, "").await?;
            let call = call(&session.id);
            while let Some(is_accepted) = arena.during(async { Ok(session.ask(&call).await.is_ok()) }).await? {
                tries.made += 1;
                tries.refused += u64::from(!is_accepted);
                if !is_accepted {
                    break;
                }
            }
            sessions.push(session);
        }
        tokio::time::sleep(arena.left()).await;
        Ok(tries)
    });
    let others = others(arena, async |arena, peer| {
        let mut session = Session::open(arena, peer, "").await?;
        let call = call(&session.id);
        session.ask(&call).await.map(drop)
    });
    let others = others.await;
    Ok(others.add_to(done(tries).await?.outcome("calls that nobody answers")))
}

fn call(id: &str) -> String {
    format!(r#"[{{"channel":"/service/demo/order","clientId":"{id}","data":{{"request":1,"ask":{{"never":true}}}}}}]"#)
}

async fn holds(arena: Arena) -> io::Result<Outcome> {
    let tries = elsewhere(arena, move || async move {
        let mut held = Vec::new();
        while held.len() < HOLDS_WANTED && !arena.is_over() {
            let mut http = Http::open(arena, GREEDY).await?;
            http.get("/hold/shares?timeout=60").await?;
            held.push(http);
        }
        tokio::time::sleep(arena.left()).await;
        let mut tries = Tries { made: held.len() as u64, refused: 0 };
        for http in &mut held {
            // A response that is there already is a refusal.
            tries.refused += u64::from(tokio::time::timeout(Duration::ZERO, http.receive()).await.is_ok());
        }
        Ok(tries)
    });
    let others = others(arena, async |arena, peer| {
        let mut http = Http::open(arena, peer).await?;
        http.get("/hold/others?timeout=0").await?;
        let body = http.receive().await?;
        if body == "[]" { Ok(()) } else { Err(io::Error::other(body)) }
    });
    let others = others.await;
    Ok(others.add_to(done(tries).await?.outcome("requests to hold")))
}

async fn bodies(arena: Arena) -> io::Result<Outcome> {
    let _readers = Readers::open(arena, BODY_READERS, None, r#""/bodies""#).await?;
    let tries = elsewhere(arena, move || async move {
        let data = format!("\"{}\"", "x".repeat(BODY_DATA_BYTES));
        let mut posters = JoinSet::new();
        for _ in 0..POSTERS {
            let mut poster = Poller::open(arena, GREEDY, "").await?;
            let body = batch(["/bodies"; 100], &poster.id, &data);
            posters.spawn_local(async move {
                let mut tries = Tries::default();
                while !arena.is_over() {
                    poster.http.send(&body).await?;
                    let Some(reply) = arena.during(poster.http.receive()).await? else { break };
                    tries.made += 1;
                    tries.refused += u64::from(reply.contains("too many requests wait"));
                }
                io::Result::Ok(tries)
            });
        }
        posters.join_all().await.into_iter().try_fold(Tries::default(), |sum, tries| {
            let Tries { made, refused } = tries?;
            Ok(Tries { made: sum.made + made, refused: sum.refused + refused })
        })
    });
    let others = others(arena, async |arena, peer| {
        let mut poller = Poller::open(arena, peer, "").await?;
        let publication = batch(["/others"], &poller.id, "1");
        poller.ask(&publication).await.map(drop)
    });
    let others = others.await;
    Ok(others.add_to(done(tries).await?.outcome("bodies")))
}

async fn histories(arena: Arena) -> io::Result<Outcome> {
    let tries = elsewhere(arena, move || async move {
        let mut session = Session::open(arena, GREEDY, "").await?;
        let mut tries = Tries::default();
        while !arena.is_over() {
            let names = (tries.made..tries.made + AT_ONCE).map(|nth| format!("/demo/game/{nth}"));
            session.socket.send(&batch(names, &session.id, "1")).await?;
            let Some(replies) = arena.during(session.socket.receive()).await? else { break };
            tries.refused += replies.matches("413::history_channels_max").count() as u64;
            tries.made += AT_ONCE;
        }
        Ok(tries)
    });
    let mut nth = 0;
    let others = others(arena, async |arena, peer| {
        nth += 1;
        let mut session = Session::open(arena, peer, "").await?;
        let publication = batch([format!("/demo/slides/{nth}")], &session.id, "1");
        session.ask(&publication).await.map(drop)
    });
    let others = others.await;
    Ok(others.add_to(done(tries).await?.outcome("channels")))
}

async fn credentials(arena: Arena) -> io::Result<Outcome> {
    let shaken = elsewhere(arena, move || async move {
        let mut http = Http::open(arena, GREEDY).await?;
        let numbers = "0,".repeat(NUMBERS);
        let text = handshake("long-polling", &format!(r#","ext":{{"auth":{{"token":null}},"n":[{numbers}0]}}"#));
        Ok(arena.again(1, async || http.ask(&text).await.map(drop)).await)
    });
    let others = others(arena, async |arena, peer| Session::open(arena, peer, "").await.map(drop)).await;
    let shaken = done(shaken).await?;
    Ok(others.add_to(Outcome::did(shaken, format!("{shaken} handshakes of a mebibyte"))))
}

async fn rates(arena: Arena) -> io::Result<Outcome> {
    let tries = elsewhere(arena, move || async move {
        let mut http = Http::open(arena, GREEDY).await?;
        let text = handshake("long-polling", "");
        let mut tries = Tries::default();
        while !arena.is_over() {
            http.cookie.clear();
            http.send(&text).await?;
            let Some(reply) = arena.during(http.receive()).await? else { break };
            tries.made += 1;
            tries.refused += u64::from(reply.contains("429:handshakes_per_s_max"));
        }
        Ok(tries)
    });
    let others = others(arena, async |arena, peer| Session::open(arena, peer, "").await.map(drop)).await;
    Ok(others.add_to(done(tries).await?.outcome("handshakes")))
}

/// The attempts of a greedy owner to get more of what is shared.
#[derive(Default)]
pub(super) struct Tries {
    pub(super) made: u64,
    pub(super) refused: u64,
}

impl Tries {
    /// The outcome of an attack on a limit; without refusals the attack did not reach it.
    pub(super) fn outcome(self, what: &str) -> Outcome {
        Outcome::did(self.refused, format!("{} {what}, {} refused", self.made, self.refused))
    }
}

/// The times of others who came during an attack, and their refusals.
#[derive(Default)]
pub(super) struct Others {
    times: Times,
    refused: Vec<String>,
}

/// Others come until the attack is over, to the server under attack and in turn to the one that nobody attacks.
pub(super) async fn others(arena: Arena, mut one: impl AsyncFnMut(Arena, Peer) -> io::Result<()>) -> Others {
    let mut others = Others::default();
    while !arena.is_over() {
        tokio::time::sleep(OTHER_EVERY).await;
        let began = Instant::now();
        others.note(one(arena, OTHER).await, "");
        others.times.attacked.push((began, Instant::now()));
        let began = Instant::now();
        others.note(one(arena.beside(), OTHER).await, " at the server that nobody attacks");
        others.times.unattacked.push(began.elapsed());
    }
    others
}

impl Others {
    pub(super) fn note(&mut self, result: io::Result<()>, server: &str) {
        self.refused.extend(result.err().map(|error| format!("{error}{server}")));
    }

    /// Adds their times, and the complaint of the first that was refused. An attack during which no other came shows nothing.
    pub(super) fn add_to(self, outcome: Outcome) -> Outcome {
        let (count, came) = (self.refused.len(), self.times.attacked.len());
        let refused = self.refused.first().map(|first| format!("{count} of {came} others were refused: {first}"));
        let (amount, mut did) = (outcome.amount.min(came as u64), outcome.did);
        if came == 0 {
            did += ", and no others came";
        }
        Outcome { amount, did, others: self.times, ..Outcome::default() }.broke(refused)
    }
}

/// Another machine, from the server's view.
pub(super) const fn from(last: u8) -> Peer {
    Peer { address: Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))), receive_bytes: None }
}

pub(super) const GREEDY: Peer = from(66);
pub(super) const OTHER: Peer = from(7);
const GREEDY_SESSIONS: usize = 30;
const HOLDS_WANTED: usize = 900;
const POSTERS: usize = 48;
const BODY_READERS: usize = 20;
const BODY_DATA_BYTES: usize = 5_000;
const AT_ONCE: u64 = 500;
const NUMBERS: usize = 500_000;
const OTHER_EVERY: Duration = Duration::from_millis(50);
