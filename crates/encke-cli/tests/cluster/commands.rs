//! The HTTP API of one node reaches sessions, users and tokens of all nodes.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use encke::{ClusterSettings, Server, Settings};
use encke_client::{Client, Transport};
use encke_nats::NatsSettings;
use serde_json::{Value, json};

use crate::nats::{Keeping, Nats};
use crate::node::Node;
use crate::sessions::{handshake, poll, wait_for_records};
use crate::{EVENT_MAX, next, run, wait_until};

const KEY: &str = "commanding-key-0123456789";
const SECRET: &str = "a secret of thirty-two bytes, two";

/// The end of the configuration of a node that checks tokens and has a key of the HTTP API.
pub(crate) fn settings() -> String {
    format!(
        "[auth]\nsecret = \"{SECRET}\"\n[[api_keys]]\nname = \"m\"\nkey = \"{KEY}\"\nscopes = [\"deliver\", \"read\", \"manage\"]\n"
    )
}

/// Starts nodes that know of each other.
fn start<const N: usize>(nats: &Nats, names: [&str; N]) -> [Node; N] {
    start_with(nats, names, "")
}

/// The same with more at the end of their configuration.
pub(crate) fn start_with<const N: usize>(nats: &Nats, names: [&str; N], more: &str) -> [Node; N] {
    let nodes = names.map(|name| Node::start(nats, name, &(settings() + more)));
    nodes.iter().for_each(|node| node.wait_for("encke_cluster_nodes", N as u64));
    nodes
}

/// A token of a user.
pub(crate) fn token(user: &str, id: &str) -> String {
    let made = Command::new(env!("CARGO_BIN_EXE_encke"))
        .args(["token", "make", user, "--secret-env", "TEST_SECRET", "--id", id])
        .env("TEST_SECRET", SECRET)
        .output()
        .expect("the program runs");
    String::from_utf8(made.stdout).expect("a token").trim().to_owned()
}

/// The status and the body of the answer of the HTTP API.
pub(crate) fn api(node: &Node, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let address = node.url.trim_start_matches("http://");
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {KEY}\r\nConnection: close\r\n");
    if !body.is_empty() {
        head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    let mut stream = TcpStream::connect(address).expect("the node listens");
    stream.set_read_timeout(Some(EVENT_MAX)).expect("a time limit");
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let (_, body) = response.split_once("\r\n\r\n").expect("a body");
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn post(node: &Node, operation: &str, body: &Value) -> (u16, Value) {
    api(node, "POST", &format!("/api/v1/{operation}"), Some(body))
}

/// All items of a list, in pages of two.
fn list(node: &Node, operation: &str, query: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, page) = api(node, "GET", &format!("/api/v1/{operation}?limit=2{query}{cursor}"), None);
        assert_eq!(status, 200, "{page}");
        all.extend(page[operation].as_array().expect("a list").iter().cloned());
        let Some(next) = page["next"].as_str() else { return all };
        cursor = format!("&cursor={next}");
    }
}

/// The names of the sessions of all nodes.
fn sessions(node: &Node) -> BTreeSet<String> {
    let all = list(node, "sessions", "");
    let names: BTreeSet<String> = all.iter().map(|session| session["id"].as_str().expect("an id").to_owned()).collect();
    assert_eq!(names.len(), all.len(), "a session is on two pages");
    names
}

async fn open(node: &Node, user: &str, id: &str) -> Client {
    open_at(&node.url, user, id, Transport::WebSocket).await
}

/// Opens a session of a user, with the token of this id.
pub(crate) async fn open_at(url: &str, user: &str, id: &str, transport: Transport) -> Client {
    let token = token(user, id);
    let provider = move || {
        let token = token.clone();
        async move { Ok::<_, Infallible>(token) }
    };
    let builder = Client::builder().transport(transport).reply_timeout(EVENT_MAX).token(provider);
    builder.connect(url).await.expect("a session")
}

/// The error of a handshake with a token. Null if it succeeds.
pub(crate) fn refusal(node: &Node, token: &str) -> Value {
    let handshake = json!([{"channel": "/meta/handshake", "version": "1.0", "ext": {"token": token},
        "supportedConnectionTypes": ["long-polling"]}]);
    api(node, "POST", "/cometd", Some(&handshake)).1[0]["error"].clone()
}

const REVOKED: &str = "401:token_revoked:handshake_denied";

#[test]
fn a_user_is_reached_and_disconnected_on_all_nodes() {
    run(async {
        let nats = Nats::start(&[]);
        let [a, b, c] = start(&nats, ["a", "b", "c"]);
        let (on_b, on_c, other) = (open(&b, "ann", "1").await, open(&c, "ann", "2").await, open(&b, "bob", "3").await);
        let mut letters = [
            on_b.subscribe("/letters").await.expect("subscribed"),
            on_c.subscribe("/letters").await.expect("subscribed"),
        ];
        let letter = json!({"user": "ann", "channel": "/letters", "data": {"text": "\u{e4}"}});
        let reached = json!({"sessions": 2, "nodes": 3, "answered": 3});
        assert_eq!(post(&a, "deliver", &letter), (200, reached));
        for letters in &mut letters {
            assert_eq!(next(letters).await.1, "{\"text\":\"\u{e4}\"}");
        }
        let before = sessions(&a);
        let of_bob: Vec<String> = list(&a, "sessions", "")
            .iter()
            .filter(|session| session["user"] == "bob")
            .map(|session| session["id"].as_str().expect("an id").to_owned())
            .collect();
        assert_eq!((before.len(), of_bob.len()), (3, 1));
        let ended = json!({"sessions": 2, "nodes": 3, "answered": 3, "recorded": false});
        assert_eq!(post(&a, "disconnect", &json!({"user": "ann"})), (200, ended), "NATS keeps no keys");
        wait_until("the sessions of ann end", || {
            let left: Vec<String> = sessions(&b).intersection(&before).cloned().collect();
            left == of_bob
        });
        assert_eq!(
            post(&a, "disconnect", &json!({"user": "nobody"})).1,
            json!({"sessions": 0, "nodes": 3, "answered": 3, "recorded": false})
        );
        drop(other);
    });
}

#[test]
fn a_list_at_one_node_has_the_sessions_and_channels_of_all_and_their_names_work_everywhere() {
    run(async {
        let nats = Nats::start(&[]);
        let nodes = start(&nats, ["a", "b", "c"]);
        let mut clients = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            for (index, channel) in ["/all", "/some/*"].into_iter().enumerate().take(1 + number % 2) {
                let client = open(node, "ann", &format!("{number}{index}")).await;
                let all = client.subscribe("/all").await.expect("subscribed");
                let more = client.subscribe(channel).await.expect("subscribed");
                clients.push((client, all, more));
            }
        }
        let names = nodes.each_ref().map(sessions);
        assert_eq!(names[0].len(), 4);
        assert!(names.iter().all(|listed| *listed == names[0]), "a session has one name on all nodes");
        for node in &nodes {
            let mut channels = list(node, "channels", "");
            channels.sort_by_key(|channel| channel["channel"].to_string());
            let all = json!([{"channel": "/all", "subscribers": 4}, {"channel": "/some/*", "subscribers": 1}]);
            assert_eq!(json!(channels), all);
            assert_eq!(list(node, "channels", "&pattern=/some/*"), [json!({"channel": "/some/*", "subscribers": 1})]);
        }
        let own: Vec<usize> = nodes.iter().map(|node| list(node, "sessions", "&cluster=false").len()).collect();
        assert_eq!(own, [1, 2, 1]);
        for name in &names[0] {
            for node in &nodes {
                let (status, shown) = api(node, "GET", &format!("/api/v1/sessions/{name}"), None);
                assert_eq!((status, shown["id"].as_str()), (200, Some(name.as_str())), "{shown}");
                assert!(shown["channels"].as_array().expect("a list").contains(&json!("/all")));
            }
        }
        let name = names[0].first().expect("a session");
        for (node, operation, channels) in [(&nodes[0], "subscribe", 3), (&nodes[2], "unsubscribe", 2)] {
            let (status, answer) = post(node, operation, &json!({"session": name, "channel": "/added"}));
            assert_eq!((status, &answer["sessions"]), (200, &json!(1)), "{answer}");
            let (_, shown) = api(&nodes[1], "GET", &format!("/api/v1/sessions/{name}"), None);
            assert!(shown["channels"].as_array().expect("a list").len() <= channels, "{shown}");
        }
        assert_eq!(post(&nodes[0], "disconnect", &json!({"session": name})).0, 200);
        wait_until("it ends", || !sessions(&nodes[1]).contains(name));
        for node in &nodes {
            assert_eq!(post(node, "disconnect", &json!({"session": name})).0, 404);
        }
    });
}

#[test]
fn a_token_that_is_revoked_at_one_node_is_refused_at_all_also_by_one_that_starts_later() {
    run(async {
        let nats = Keeping::start("revoked");
        let [a, b] = start(&nats.nats, ["a", "b"]);
        let (stolen, valid) = (token("ann", "stolen"), token("ann", "valid"));
        let _session = open(&b, "ann", "stolen").await;
        let before = sessions(&b);
        let answer = json!({"sessions": 1, "durable": true, "nodes": 2, "answered": 2});
        assert_eq!(post(&a, "revoke", &json!({"token_id": "stolen"})), (200, answer));
        wait_until("its session ends", || sessions(&b).is_disjoint(&before));
        // It takes no client before it knows.
        let c = Node::begin(&nats.nats, "c", &settings());
        for node in [&a, &b, &c] {
            assert_eq!((refusal(node, &stolen), refusal(node, &valid)), (json!(REVOKED), Value::Null));
        }
        drop((a, b, c));
        let all_again = Node::begin(&nats.nats, "d", &settings());
        assert_eq!(refusal(&all_again, &stolen), json!(REVOKED), "NATS has it");
    });
}

#[test]
fn without_nats_a_revocation_holds_on_its_node_and_reaches_the_others_when_it_is_back() {
    let mut nats = Keeping::start("revoked-away");
    let [a, b] = start(&nats.nats, ["a", "b"]);
    let stolen = token("ann", "stolen");
    nats.nats.kill();
    [&a, &b].iter().for_each(|node| node.wait_for("encke_cluster_connected", 0));
    let (status, problem) = post(&a, "revoke", &json!({"token_id": "stolen"}));
    assert_eq!((status, problem["type"].as_str()), (503, Some("urn:encke:problem:busy")), "{problem}");
    assert_eq!((refusal(&a, &stolen), refusal(&b, &stolen)), (json!(REVOKED), Value::Null));
    let answer = json!({"sessions": 0, "nodes": 2, "answered": 1, "recorded": false});
    assert_eq!(post(&a, "disconnect", &json!({"user": "nobody"})), (200, answer), "it does not wait");
    nats.nats.begin();
    wait_until("the other node knows", || refusal(&b, &stolen) == json!(REVOKED));
}

#[test]
fn a_killed_node_is_not_waited_for_and_one_that_does_not_answer_is_counted() {
    let nats = Nats::start(&[]);
    let more = format!("command_wait_ms = 2500\n{}", settings());
    let [a, b, c] = ["a", "b", "c"].map(|name| Node::start(&nats, name, &more));
    [&a, &b, &c].iter().for_each(|node| node.wait_for("encke_cluster_nodes", 3));
    c.signal("STOP");
    let nobody = json!({"user": "nobody"});
    let ended = |nodes, answered| json!({"sessions": 0, "nodes": nodes, "answered": answered, "recorded": false});
    assert_eq!(post(&a, "disconnect", &nobody).1, ended(3, 2));
    assert_eq!(post(&a, "disconnect", &json!({"session": "0".repeat(32)})).0, 503, "the silent node may have it");
    c.signal("CONT");
    drop(c);
    assert_eq!(post(&a, "disconnect", &nobody).1, ended(2, 2));
    a.wait_for("encke_cluster_nodes", 2);
    assert_eq!(post(&b, "disconnect", &json!({"session": "0".repeat(32)})).0, 404);
}

#[test]
fn the_name_of_a_session_that_has_moved_still_finds_it() {
    let nats = Keeping::start("moved");
    let keys = format!("[[api_keys]]\nname = \"m\"\nkey = \"{KEY}\"\nscopes = [\"deliver\", \"read\", \"manage\"]\n");
    let nodes = ["a", "b", "c"].map(|name| Node::start(&nats.nats, name, &keys));
    nodes.iter().for_each(|node| node.wait_for("encke_cluster_nodes", 3));
    let [a, b, _] = &nodes;
    let session = handshake(a);
    poll(a, &session);
    let name = sessions(b).pop_first().expect("a session");
    let mut stream = TcpStream::connect(b.url.trim_start_matches("http://")).expect("the node listens");
    let head = format!(
        "GET /cometd/{} HTTP/1.1\r\nHost: localhost\r\nCookie: {}\r\nAccept: text/event-stream\r\n\r\n",
        session.id, session.cookie
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    b.wait_for("encke_sessions_taken", 1);
    assert_eq!((list(a, "sessions", "&cluster=false").len(), list(b, "sessions", "&cluster=false").len()), (0, 1));
    for named in [&name, &session.id] {
        for node in &nodes {
            let (status, shown) = api(node, "GET", &format!("/api/v1/sessions/{named}"), None);
            assert_eq!((status, &shown["connected"]), (200, &json!(true)), "{shown}");
        }
    }
    assert_eq!(post(a, "disconnect", &json!({"session": name})).0, 200);
    wait_until("it ends", || sessions(a).is_empty());
}

#[test]
fn a_program_reaches_sessions_of_other_nodes_by_its_handle_in_order() {
    run(async {
        let nats = Nats::start(&[]);
        let [a] = start(&nats, ["a"]);
        let cluster = ClusterSettings::default();
        let engine = NatsSettings { servers: vec![nats.url()], ..NatsSettings::default() };
        let engine = encke_nats::Nats::new(engine, &cluster.name).expect("valid settings");
        let settings = Settings { listen: ([127, 0, 0, 1], 0).into(), ..Settings::default() };
        let program = Server::builder().settings(settings).cluster(cluster, engine).start().expect("it starts");
        a.wait_for("encke_cluster_nodes", 2);
        let handle = program.handle();
        let client = open(&a, "ann", "1").await;
        let mut letters = client.subscribe("/letters").await.expect("subscribed");
        let id = client.connected().expect("a session").client_id;
        // The first one is on its way when both nodes know of each other.
        while handle.deliver_to_user("ann", "/letters", "0").await.expect("valid") == 0 {}
        for number in 1..=100 {
            assert_eq!(handle.deliver(&id, "/letters", &number.to_string()), Ok(true));
        }
        for number in 0..=100 {
            assert_eq!(next(&mut letters).await.1, number.to_string());
        }
        assert_eq!(handle.unsubscribe_user("ann", "/letters").await, Ok(1));
        let (_, shown) = api(&a, "GET", &format!("/api/v1/sessions/{id}"), None);
        assert_eq!(shown["channels"], json!([]));
        assert!(handle.disconnect(&id));
        wait_until("the session ends", || api(&a, "GET", &format!("/api/v1/sessions/{id}"), None).0 == 404);
        handle.drain();
        program.join();
    });
}

#[test]
fn attributes_set_on_any_node_are_read_on_each_and_survive_the_kill_of_their_node() {
    run(async {
        let nats = Keeping::start("attributes");
        let key = format!("[[api_keys]]\nname = \"m\"\nkey = \"{KEY}\"\nscopes = [\"read\", \"manage\"]\n");
        let nodes = ["a", "b", "c"].map(|name| Node::start(&nats.nats, name, &key));
        nodes.iter().for_each(|node| node.wait_for("encke_cluster_nodes", 3));
        let [a, b, c] = nodes;
        let session = handshake(&a);
        assert_eq!(poll(&a, &session).0, 200);
        let path = format!("/api/v1/sessions/{}/attributes", session.id);
        let set = |node: &Node, body: Value| api(node, "POST", &path, Some(&body));
        let read = |node: &Node| api(node, "GET", &path, None);
        assert_eq!(set(&b, json!({"name": "cart", "value": ["tea"]})), (200, json!({"version": 1})));
        assert_eq!(set(&c, json!({"name": "seat", "value": 7, "version": 1})), (200, json!({"version": 2})));
        assert_eq!(set(&b, json!({"name": "seat", "value": 8, "version": 1})).0, 409, "c was first");
        let expected = json!({"version": 2, "attributes": {"cart": ["tea"], "seat": 7}});
        for node in [&a, &b, &c] {
            assert_eq!(read(node), (200, expected.clone()));
        }
        let terms = json!({"session": session.id, "terms": {"timeout_ms": 7_000}});
        assert_eq!(post(&c, "terms", &terms).0, 200);
        wait_for_records(&a, 1);
        a.signal("KILL");
        let mut advice = Value::Null;
        wait_until("another node has taken it", || {
            let (status, replies) = poll(&b, &session);
            advice = replies[0]["advice"].clone();
            status == 200 && replies[0]["successful"] == true
        });
        assert_eq!(advice["timeout"], 7_000);
        // Each take-over raises the version above all that the dead node may have given.
        let (_, taken) = read(&b);
        let version = taken["version"].as_u64().expect("a version");
        assert!(version > 2, "a change that the dead node made last is never mistaken for another");
        assert_eq!(taken["attributes"], expected["attributes"]);
        assert_eq!(read(&c), (200, taken));
        assert_eq!(api(&c, "DELETE", &format!("{path}?name=cart"), None), (200, json!({"version": version + 1})));
        assert_eq!(read(&b).1["attributes"], json!({"seat": 7}));
    });
}
