//! Sessions that completed a handshake and never connected: few per client, and the first to go.

use crate::application::{Answer, Application, Handshake, NoApplication, Refusal};
use crate::delivery::Received;
use crate::events::{Effect, ExchangeId, Peer, Request, ShardMessage};
use crate::id::kernel_entropy;
use crate::identity::Identity;
use crate::now::Now;
use crate::settings::Settings;
use crate::shard::Shard;
use crate::shard::tests::{FakeKernel, NOW, Rig, member_of, post};

fn peer(connection: u64, last: u8) -> Peer {
    Peer { address: Some([10, 0, 0, last].into()), connection, is_multiplexed: false }
}

fn settings() -> Settings {
    Settings { trust_client_session: true, ..Settings::default() }
}

/// The reply to a handshake of this client.
fn handshake(rig: &mut Rig, peer: Peer, fields: &str) -> String {
    rig.exchanges += 1;
    let exchange = ExchangeId { shard: 0, number: rig.exchanges };
    let body = format!(r#"{{"channel":"/meta/handshake","version":"1.0"{fields}}}"#);
    rig.shard.request(NOW, Request { peer, ..post(exchange, body) });
    rig.response(exchange).expect("a response")
}

fn open(rig: &mut Rig, peer: Peer) -> String {
    member_of(&handshake(rig, peer, ""), "clientId")
}

/// The reply to a connect.
fn connected(rig: &mut Rig, client: &str) -> String {
    let exchange = rig.connect(client);
    rig.response(exchange).unwrap_or_default()
}

#[test]
fn requested_intervals_apply_from_the_first_connect() {
    let mut rig = Rig::new(1, settings(), Box::new(NoApplication));
    let asking = r#","advice":{"maxInterval":600000}"#;
    let clients: Vec<String> =
        (0..10).map(|_| member_of(&handshake(&mut rig, peer(1, 1), asking), "clientId")).collect();
    connected(&mut rig, &clients[3]);
    let at = |ms| Now { ms: NOW.ms + ms, ..NOW };
    rig.shard.advance(at(10_100));
    assert_eq!(rig.shard.sessions(), 1);
    rig.shard.advance(at(599_000));
    assert_eq!(rig.shard.sessions(), 1, "it has connected, and gets what it asked for");
    rig.shard.advance(at(601_000));
    assert_eq!(rig.shard.sessions(), 0);
}

#[test]
fn sessions_that_never_connected_are_limited_for_each_connection_and_address() {
    let limits = Settings { unconnected_per_connection_max: 20, unconnected_per_address_max: 50, ..settings() };
    let mut rig = Rig::new(1, limits, Box::new(NoApplication));
    let (witness, used) = (open(&mut rig, peer(9, 9)), open(&mut rig, peer(1, 1)));
    connected(&mut rig, &used);
    let first = open(&mut rig, peer(1, 1));
    let last = (0..1_000).map(|_| open(&mut rig, peer(1, 1))).last().expect("one");
    assert_eq!(rig.shard.sessions(), 2 + 20);
    assert!(connected(&mut rig, &first).contains("402::session_unknown"));
    (0..1_000).for_each(|connection| drop(open(&mut rig, peer(100 + connection, 1))));
    assert_eq!(rig.shard.sessions(), 2 + 50);
    assert_eq!(rig.shard.metrics().unused_ended.get(), 1 + 1_000 + 1_000 - 50);
    assert!(connected(&mut rig, &last).contains("402::session_unknown"), "the oldest of the address went");
    for client in [&witness, &used] {
        assert!(!connected(&mut rig, client).contains("402"));
    }
    // A socket is a connection, too.
    let socket = rig.shard.socket_opened(NOW, None);
    rig.shard.socket_is_of(socket, peer(5_000, 2), false, None);
    for _ in 0..100 {
        rig.shard.socket_text(NOW, socket, r#"{"channel":"/meta/handshake","version":"1.0"}"#);
        rig.flushed(socket);
    }
    assert_eq!(rig.shard.sessions(), 2 + 50 + 20);
}

#[test]
fn a_handshake_ends_the_turn_of_its_socket() {
    let mut rig = Rig::new(1, Settings { handshakes_per_s_max: 1, ..settings() }, Box::new(NoApplication));
    let socket = rig.shard.socket_opened(NOW, None);
    for answer in [r#""successful":true"#, "429:handshakes_per_s_max"] {
        let handshake = r#"{"channel":"/meta/handshake","version":"1.0"}"#;
        assert_eq!(rig.shard.socket_text(NOW, socket, handshake), Received::Handshake);
        let text = rig.flushed(socket);
        assert!(text.contains(answer), "{text}");
    }
    let connect = r#"{"channel":"/meta/connect","clientId":"1"}"#;
    assert_eq!(rig.shard.socket_text(NOW, socket, connect), Received::Here);
}

#[test]
fn at_sessions_max_sessions_that_never_connected_end_first_on_any_shard() {
    let limits = Settings { sessions_max: 10, ..settings() };
    let mut rig = Rig::new(2, limits, Box::new(NoApplication));
    let used = open(&mut rig, peer(1, 1));
    connected(&mut rig, &used);
    (0..100).for_each(|_| drop(open(&mut rig, peer(1, 1))));
    assert_eq!((rig.shard.sessions(), rig.shard.metrics().unused_ended.get()), (10, 91));
    // The other shard has no such session to end, so it asks this one.
    let (shared, settings) = (rig.shard.machines.env.shared.clone(), rig.shard.settings().clone());
    let other = Shard::new(1, shared, settings, kernel_entropy(), NOW);
    let mut other = Rig { shard: other, kernel: FakeKernel::default(), exchanges: 0 };
    let mut requests = 0;
    for number in 0..20 {
        let exchange = ExchangeId { shard: 1, number };
        let body = r#"{"channel":"/meta/handshake","version":"1.0"}"#.into();
        other.shard.request(NOW, Request { peer: peer(2, 2), ..post(exchange, body) });
        let effects = other.shard.take_effects();
        requests +=
            effects.iter().filter(|effect| matches!(effect, Effect::SendToShard(0, ShardMessage::MakeRoom))).count();
    }
    assert_eq!((requests, other.shard.sessions()), (1, 1), "then it ends its own session first");
    rig.shard.message(NOW, ShardMessage::MakeRoom);
    assert_eq!(rig.shard.sessions() + other.shard.sessions(), 10);
    assert!(!connected(&mut rig, &used).contains("402"));
}

/// Gives each session the user that its `ext` names.
struct Users;

impl Application for Users {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        Answer::Now(Ok(handshake.ext.map(|ext| Identity::of_user(&member_of(ext, "user")))))
    }
}

/// Opens sessions that connect until one is refused. Returns the connected ones.
fn fill(rig: &mut Rig, peer: Peer, fields: &str) -> Vec<String> {
    let mut clients = Vec::new();
    loop {
        let reply = handshake(rig, peer, fields);
        if reply.contains("413::sessions_max") {
            assert!(reply.contains(r#""interval":5000"#) && reply.contains(r#""reconnect":"handshake""#), "{reply}");
            return clients;
        }
        let client = member_of(&reply, "clientId");
        connected(rig, &client);
        clients.push(client);
    }
}

#[test]
fn one_address_or_user_leaves_sessions_for_others_and_gives_back_what_it_has() {
    let limits = Settings { sessions_max: 100, ..settings() };
    let mut rig = Rig::new(1, limits, Box::new(Users));
    let first = fill(&mut rig, peer(1, 1), "");
    assert_eq!(first.len(), 77, "7/8 of 7/8 for an owner that is alone");
    let user = |name| format!(r#","ext":{{"user":"{name}"}}"#);
    // A user is one owner wherever it comes from, and another one than its address.
    let mut ann = fill(&mut rig, peer(2, 1), &user("ann"));
    assert!(ann.len() >= 8, "{}", ann.len());
    assert!(handshake(&mut rig, peer(3, 2), &user("ann")).contains("413::sessions_max"));
    for last in 2..9 {
        assert!(!fill(&mut rig, peer(4, last), "").is_empty(), "address {last} finds no room");
    }
    // The greedy ones still get none, and one that leaves makes room for its next.
    assert!(handshake(&mut rig, peer(1, 1), "").contains("413::sessions_max"));
    let before = rig.shard.machines.env.shared.sessions.count();
    for client in first.iter().chain(&ann) {
        let body = format!(r#"{{"channel":"/meta/disconnect","clientId":"{client}"}}"#);
        rig.exchanges += 1;
        let exchange = ExchangeId { shard: 0, number: rig.exchanges };
        rig.shard.request(NOW, Request { peer: peer(1, 1), ..post(exchange, body) });
        rig.response(exchange).expect("a response");
    }
    assert_eq!(rig.shard.machines.env.shared.sessions.count(), before - first.len() - ann.len());
    ann = fill(&mut rig, peer(2, 1), &user("ann"));
    assert!(ann.len() > 50, "{}", ann.len());
}

#[test]
fn sessions_that_never_connected_take_no_part_from_others() {
    let limits = Settings { sessions_max: 100, ..settings() };
    let mut rig = Rig::new(1, limits, Box::new(NoApplication));
    (0..200).for_each(|number| drop(open(&mut rig, peer(number + 10, number as u8 % 50))));
    assert_eq!(rig.shard.sessions(), 100);
    let others = fill(&mut rig, peer(1, 200), "");
    assert!((60..80).contains(&others.len()), "{}", others.len());
    let further = fill(&mut rig, peer(2, 201), "");
    assert!(!further.is_empty());
    assert_eq!(rig.shard.sessions(), 100);
}

/// Denies handshakes that have an `ext`.
struct Doorkeeper;

impl Application for Doorkeeper {
    fn handshake(&self, handshake: &Handshake<'_>) -> Answer<Result<Option<Identity>, Refusal>> {
        Answer::Now(handshake.ext.map_or(Ok(None), |_| Err(Refusal::new(403, "no"))))
    }
}

#[test]
fn a_denied_handshake_ends_no_session() {
    let mut rig = Rig::new(1, Settings { sessions_max: 1, ..settings() }, Box::new(Doorkeeper));
    let first = open(&mut rig, peer(1, 1));
    assert!(handshake(&mut rig, peer(2, 2), r#","ext":{}"#).contains("403"));
    assert!(!connected(&mut rig, &first).contains("402"));
}
