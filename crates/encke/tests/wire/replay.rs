//! History and the replay extension on the wire, and clients that ask for strange positions (row 31 of `docs/bad-input.md`).

use std::collections::BTreeMap;

use encke::{ChannelRule, Settings};
use serde_json::{Value, json};

use crate::common::{Poller, TestServer, Ws, publications, settings, wait_until};

/// Settings with a history of `/h/**`.
fn with(rule: ChannelRule) -> Settings {
    Settings { channels: vec![ChannelRule { pattern: "/h/**".into(), ..rule }], ..settings() }
}

fn kept(messages: usize) -> ChannelRule {
    ChannelRule { history_messages: messages, ..ChannelRule::default() }
}

fn publish(server: &TestServer, channel: &str, data: impl ToString) {
    let data = data.to_string();
    wait_until("the server takes a publication", || server.handle.publish(channel, &data).is_ok());
}

/// Waits until histories hold so many messages.
fn wait_kept(server: &TestServer, count: u64) {
    server.wait_for_exactly("encke_history_messages", count);
}

/// A client that replays, over either transport.
enum Client {
    Ws(Box<Ws>),
    Http(Box<Poller>),
}

/// A message that came: its number, and what was published.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heard {
    id: u64,
    data: Value,
}

impl Client {
    fn websocket(server: &TestServer) -> Client {
        Client::websocket_with(server, json!({ "replay": true }))
    }

    fn websocket_with(server: &TestServer, ext: Value) -> Client {
        let mut ws = server.websocket();
        ws.send_json(&json!([{ "channel": "/meta/handshake", "version": "1.0", "id": "1", "ext": ext,
            "supportedConnectionTypes": ["websocket"] }]));
        let reply = ws.next_json()[0].clone();
        assert_eq!(reply["ext"], ext);
        ws.id = reply["clientId"].as_str().expect("a session").to_owned();
        Client::Ws(Box::new(ws))
    }

    fn poller(server: &TestServer) -> Client {
        Client::poller_with(server, json!({ "replay": true }))
    }

    fn poller_with(server: &TestServer, ext: Value) -> Client {
        let mut http = server.http();
        let handshake = json!([{ "channel": "/meta/handshake", "version": "1.0", "id": "1", "ext": ext,
            "supportedConnectionTypes": ["long-polling"] }]);
        let reply = http.post(&handshake).messages().remove(0);
        assert_eq!(reply["ext"], ext);
        Client::Http(Box::new(Poller::of(reply["clientId"].as_str().expect("a session").to_owned(), http)))
    }

    fn call(&mut self, message: Value) -> Value {
        match self {
            Client::Ws(ws) => ws.call(message),
            Client::Http(poller) => {
                let mut message = message;
                message["clientId"] = json!(poller.id);
                let replies = poller.http.post(&json!([message])).messages();
                replies.into_iter().find(|reply| reply["id"] == message["id"]).expect("a reply")
            }
        }
    }

    /// Subscribes; the reply.
    fn try_subscribe(&mut self, name: Value, replay: Value) -> Value {
        let ext = if replay.is_null() { json!({}) } else { json!({ "replay": replay }) };
        self.call(json!({ "id": "s", "channel": "/meta/subscribe", "subscription": name, "ext": ext }))
    }

    /// Subscribes to one channel; what the reply says of it.
    fn subscribe(&mut self, name: &str, replay: Value) -> Value {
        let reply = self.try_subscribe(json!(name), replay);
        assert_eq!(reply["successful"], true, "{reply}");
        reply["ext"]["replay"][name].clone()
    }

    /// Whatever comes next. Over HTTP that is the response to a connect.
    fn next(&mut self) -> Vec<Value> {
        match self {
            Client::Ws(ws) => ws.next_json().as_array().expect("an array").clone(),
            Client::Http(poller) => poller.poll(json!({ "advice": { "timeout": 0 } })),
        }
    }

    /// The next messages, so many of them.
    fn hear(&mut self, count: usize) -> Vec<Heard> {
        let mut heard = Vec::new();
        while heard.len() < count {
            let messages = publications(&self.next());
            heard.extend(messages.iter().map(told));
        }
        heard
    }

    fn ids(&mut self, count: usize) -> Vec<u64> {
        self.hear(count).into_iter().map(|heard| heard.id).collect()
    }

    /// The next messages, by their data, which are numbers.
    fn numbers(&mut self, count: usize) -> Vec<u64> {
        self.hear(count).into_iter().map(|heard| heard.data.as_u64().expect("a number")).collect()
    }
}

/// A message with a place; both places it is told in agree.
fn told(message: &Value) -> Heard {
    let id = message["data"]["event"]["replayId"].as_u64().unwrap_or_else(|| panic!("no place: {message}"));
    assert_eq!(message["ext"]["replay"]["id"], id, "{message}");
    assert!(message["ext"]["replay"]["epoch"].is_string(), "{message}");
    let data = message["data"].get("payload").unwrap_or(&message["data"]).clone();
    Heard { id, data }
}

const OPEN: [fn(&TestServer) -> Client; 2] = [Client::websocket, Client::poller];

fn both(server: &TestServer) -> [Client; 2] {
    [Client::websocket(server), Client::poller(server)]
}

#[test]
fn who_comes_late_gets_what_was_kept_and_then_what_comes_on_both_transports() {
    for (shards, open) in [(1, OPEN[0]), (1, OPEN[1]), (3, OPEN[0]), (3, OPEN[1])] {
        let server = TestServer::start(Settings { shards, ..with(kept(1_000)) });
        for number in 0..100 {
            publish(&server, "/h/a", number);
        }
        wait_kept(&server, 100);
        let mut client = open(&server);
        let answer = client.subscribe("/h/a", json!({ "/h/a": -2 }));
        assert_eq!((&answer["recovered"], &answer["lost"]), (&json!(true), &Value::Null));
        let first = answer["from"].as_u64().expect("a number");
        assert_eq!(answer["latest"], first + 99);
        let heard = client.hear(100);
        assert_eq!(heard.iter().map(|one| one.id).collect::<Vec<_>>(), (first..first + 100).collect::<Vec<_>>());
        assert_eq!(
            heard.iter().map(|one| one.data.clone()).collect::<Vec<_>>(),
            (0..100).map(|n| json!(n)).collect::<Vec<_>>()
        );
        publish(&server, "/h/b", 1);
        publish(&server, "/h/a", 100);
        assert_eq!(client.ids(1), [first + 100]);
    }
}

#[test]
fn positions_may_be_numbers_strings_maps_or_have_an_epoch() {
    let server = TestServer::start(with(kept(100)));
    for number in 0..10 {
        publish(&server, "/h/a", number);
    }
    wait_kept(&server, 10);
    let answer = Client::poller(&server).subscribe("/h/a", Value::Null);
    let (epoch, latest) = (answer["epoch"].clone(), answer["latest"].as_u64().expect("a number"));
    let fifth = latest - 5;
    for replay in [
        json!(fifth),
        json!(fifth.to_string()),
        json!({ "/h/a": fifth }),
        json!({ "/h/a": fifth.to_string(), "/other": -2 }),
        json!({ "/h/a": { "id": fifth, "epoch": epoch } }),
        json!({ "/h/a": { "id": fifth.to_string() } }),
        json!({ "id": fifth, "epoch": epoch, "/h/a": fifth }),
    ] {
        // The last one is a map with names that are no channels; their positions must be ones all the same.
        for mut client in both(&server) {
            let reply = client.try_subscribe(json!("/h/a"), replay.clone());
            if reply["successful"] == false {
                assert_eq!(replay["epoch"], epoch, "only an epoch by itself is no position");
                continue;
            }
            let answer = &reply["ext"]["replay"]["/h/a"];
            assert_eq!((&answer["recovered"], &answer["from"]), (&json!(true), &json!(fifth + 1)), "{replay}");
            assert_eq!(client.numbers(5), [5, 6, 7, 8, 9], "{replay}");
        }
    }
}

#[test]
fn from_now_on_means_nothing_of_the_past() {
    for shards in [1, 3] {
        let server = TestServer::start(Settings { shards, ..with(kept(100)) });
        publish(&server, "/h/a", 1);
        wait_kept(&server, 1);
        for (at, replay) in [Value::Null, json!(-1), json!({ "/h/a": "-1" }), json!({ "/h/b": -2 })].iter().enumerate()
        {
            for mut client in both(&server) {
                let answer = client.subscribe("/h/a", replay.clone());
                assert_eq!(answer["from"].as_u64().expect("from"), answer["latest"].as_u64().expect("latest") + 1);
                publish(&server, "/h/a", 10 + at);
                assert_eq!(client.numbers(1), [10 + at as u64]);
            }
        }
    }
}

#[test]
fn a_position_that_is_gone_is_said_to_be_and_what_is_kept_follows() {
    let server = TestServer::start(with(kept(10)));
    let first = Client::poller(&server).subscribe("/h/a", Value::Null)["from"].as_u64().expect("a number");
    for number in 0..30 {
        publish(&server, "/h/a", number);
    }
    server.wait_for("encke_publications", 30);
    let oldest = first + 20;
    for (replay, lost) in [
        (json!(first + 3), json!({ "from": first + 4, "to": oldest - 1 })),
        (json!(0), json!({ "from": 1, "to": oldest - 1 })),
        (json!(first + 30), Value::Null),
        (json!(i64::MAX), Value::Null),
        (json!({ "/h/a": { "id": first + 25, "epoch": "another" } }), Value::Null),
    ] {
        for mut client in both(&server) {
            let answer = client.subscribe("/h/a", replay.clone());
            assert_eq!((&answer["recovered"], &answer["from"]), (&json!(false), &json!(oldest)), "{replay}");
            assert_eq!(answer["lost"], lost, "{replay}");
            assert_eq!(client.numbers(10), (20..30).collect::<Vec<_>>());
        }
    }
    assert_eq!(server.metric("encke_replay_positions_gone"), 10);
    // The last one that is gone is the first from which on all is there.
    let answer = Client::poller(&server).subscribe("/h/a", json!(oldest - 1));
    assert_eq!((&answer["recovered"], &answer["from"]), (&json!(true), &json!(oldest)));
}

#[test]
fn messages_go_when_they_are_too_old_or_too_many_bytes_and_their_channel_is_remembered() {
    let server = TestServer::start(with(ChannelRule { history_ms: 200, ..kept(10) }));
    publish(&server, "/h/a", 1);
    wait_kept(&server, 1);
    let before = Client::poller(&server).subscribe("/h/a", Value::Null);
    wait_kept(&server, 0);
    let latest = before["latest"].as_u64().expect("a number");
    let answer =
        Client::poller(&server).subscribe("/h/a", json!({ "/h/a": { "id": latest, "epoch": before["epoch"] } }));
    assert_eq!((&answer["recovered"], &answer["from"]), (&json!(true), &json!(latest + 1)), "nothing was missed");
    let answer = Client::poller(&server).subscribe("/h/a", json!(latest - 1));
    assert_eq!((&answer["recovered"], &answer["lost"]), (&json!(false), &json!({ "from": latest, "to": latest })));

    let server = TestServer::start(with(ChannelRule { history_bytes: 1_000, ..kept(100) }));
    for _ in 0..50 {
        publish(&server, "/h/a", format!("\"{}\"", "x".repeat(100)));
    }
    server.wait_for("encke_publications", 50);
    assert!(server.metric("encke_history_bytes") <= 1_000);
    assert!(server.metric("encke_history_messages") >= 4);
}

#[test]
fn a_server_that_has_started_anew_knows_older_positions_to_be_gone() {
    let server = TestServer::start(with(kept(10)));
    publish(&server, "/h/a", 1);
    wait_kept(&server, 1);
    let before = Client::poller(&server).subscribe("/h/a", Value::Null);
    drop(server);
    let server = TestServer::start(with(kept(10)));
    publish(&server, "/h/a", 2);
    wait_kept(&server, 1);
    for replay in [before["latest"].clone(), json!({ "/h/a": { "id": before["latest"], "epoch": before["epoch"] } })] {
        let mut client = Client::poller(&server);
        assert_eq!(client.subscribe("/h/a", replay)["recovered"], false);
        assert_eq!(client.numbers(1), [2]);
    }
}

#[test]
fn a_pattern_begins_with_each_channel_where_the_map_says() {
    for (shards, open) in [(1, OPEN[0]), (1, OPEN[1]), (3, OPEN[0]), (3, OPEN[1])] {
        let server = TestServer::start(Settings { shards, ..with(kept(100)) });
        for number in 0..6 {
            publish(&server, &format!("/h/{}", number % 3), number);
        }
        publish(&server, "/h/deeper/x", 6);
        wait_kept(&server, 7);
        let mut client = open(&server);
        let reply = client.try_subscribe(json!("/h/*"), json!({ "/h/*": -2, "/h/1": -1, "/none": 5 }));
        let answers = reply["ext"]["replay"].as_object().expect("answers");
        assert_eq!(answers.keys().collect::<Vec<_>>(), ["/h/0", "/h/1", "/h/2"]);
        let mut numbers = client.numbers(4);
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 2, 3, 5]);
        publish(&server, "/h/new", 7);
        assert_eq!(client.numbers(1), [7]);
    }
}

#[test]
fn a_replay_and_what_is_published_meanwhile_join_without_gap_or_double() {
    for shards in [1, 3] {
        let server = TestServer::start(Settings { shards, mailbox_messages_max: 16, ..with(kept(100_000)) });
        for number in 0..2_000 {
            publish(&server, "/h/a", number);
        }
        let mut publishers: Vec<Ws> = (0..2).map(|_| server.session()).collect();
        let total = 6_000;
        let mut clients = Vec::new();
        for round in 0..40 {
            for (at, ws) in publishers.iter_mut().enumerate() {
                let numbers = (0..50).map(|n| 2_000 + (round * 100 + at * 50 + n));
                let batch: Vec<_> =
                    numbers.map(|n| ws.mine(json!({ "id": "p", "channel": "/h/a", "data": n }))).collect();
                ws.send_json(&json!(batch));
                ws.next_json();
            }
            if round % 10 == 0 {
                clients.extend(both(&server).into_iter().map(|mut client| {
                    let answer = client.subscribe("/h/a", json!(-2));
                    (client, answer["from"].as_u64().expect("a number"))
                }));
            }
        }
        let mut order: BTreeMap<u64, Value> = BTreeMap::new();
        for (client, first) in &mut clients {
            let heard = client.hear(total);
            for (one, id) in heard.iter().zip(*first..) {
                assert_eq!(one.id, id, "{shards} shards");
                assert_eq!(order.entry(id).or_insert_with(|| one.data.clone()), &one.data, "all see one order");
            }
            assert_eq!(heard.len(), total);
        }
    }
}

#[test]
fn with_acknowledgements_a_replay_comes_once_and_in_order_though_responses_are_lost() {
    let server = TestServer::start(with(kept(10_000)));
    for number in 0..3_000 {
        publish(&server, "/h/a", number);
    }
    wait_kept(&server, 3_000);
    let mut client = Client::poller_with(&server, json!({ "ack": true, "replay": true }));
    client.subscribe("/h/a", json!(-2));
    let Client::Http(poller) = &mut client else { panic!("a poller") };
    let (mut acknowledged, mut numbers, mut tries) = (0, Vec::new(), 0);
    while numbers.len() < 3_000 {
        let messages = poller.poll(json!({ "ext": { "ack": acknowledged }, "advice": { "timeout": 0 } }));
        tries += 1;
        // Every other response is lost, says the client.
        if tries % 2 == 0 {
            continue;
        }
        let reply = messages.iter().find(|message| message["channel"] == "/meta/connect").expect("a reply");
        acknowledged = reply["ext"]["ack"].as_i64().expect("a number");
        numbers.extend(publications(&messages).iter().map(|message| told(message).data.as_u64().expect("a number")));
    }
    assert_eq!(numbers, (0..3_000).collect::<Vec<_>>());
}
