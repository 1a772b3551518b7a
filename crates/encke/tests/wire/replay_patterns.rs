//! Patterns over more channels than begin together: the server reads them page by page.

use std::collections::BTreeMap;

use encke::Settings;
use serde_json::{Map, Value, json};

use crate::common::{Folder, TestServer, publications};
use crate::replay::client::{Client, OPEN, publish, reported, stored, wait_stored, with};
use crate::restarts::moved;

const CHANNELS: u64 = 1_200;
const PATTERN: &str = "/h/p/*";

fn channel(number: u64) -> String {
    format!("/h/p/{number}")
}

/// Publishes a message on each of these channels: their data are the round.
fn publish_round(server: &TestServer, channels: std::ops::Range<u64>, round: u64) {
    channels.for_each(|number| publish(server, &channel(number), round));
}

/// The rounds that a client has received of each channel, and the last position of each.
#[derive(Default)]
struct Received {
    rounds: BTreeMap<String, Vec<u64>>,
    positions: Map<String, Value>,
    count: usize,
}

impl Received {
    fn take(&mut self, messages: &[Value]) {
        for message in publications(messages) {
            let name = message["channel"].as_str().expect("a channel").to_owned();
            let round = reported(&message).data.as_u64().expect("a number");
            assert!(message["ext"]["replay"]["lost"].is_null(), "{message}");
            self.positions.insert(name.clone(), message["ext"]["replay"].clone());
            self.rounds.entry(name).or_default().push(round);
            self.count += 1;
        }
    }

    fn read(&mut self, client: &mut Client, count: usize) {
        while self.count < count {
            let messages = client.next();
            self.take(&messages);
        }
    }

    #[track_caller]
    fn is_complete(&self, channels: u64, rounds: &[u64]) {
        assert_eq!(self.rounds.len() as u64, channels);
        for (name, received) in &self.rounds {
            assert_eq!(received, rounds, "{name}");
        }
    }
}

/// Subscribes to the pattern and returns the reply. On a WebSocket messages may come before it.
fn subscribe(client: &mut Client, replay: Value, received: &mut Received) -> Value {
    let message = json!({"id": "s", "channel": "/meta/subscribe", "subscription": PATTERN, "ext": {"replay": replay}});
    let Client::Ws(ws) = client else { return client.call(message) };
    let mine = ws.mine(message);
    ws.send_json(&json!([mine]));
    loop {
        let messages = ws.next_json();
        let messages = messages.as_array().expect("messages");
        received.take(messages);
        if let Some(reply) = messages.iter().find(|message| message["id"] == mine["id"]) {
            return reply.clone();
        }
    }
}

#[test]
fn a_pattern_over_many_channels_brings_all_messages_and_live_ones_in_order_and_once() {
    for (shards, open) in [1, 3].into_iter().flat_map(|shards| OPEN.map(|open| (shards, open))) {
        let server = TestServer::start(Settings { shards, ..with(stored(10)) });
        publish_round(&server, 0..CHANNELS, 0);
        wait_stored(&server, CHANNELS);
        let mut client = open(&server);
        let reply = client.try_subscribe(json!(PATTERN), json!({ PATTERN: -2 }));
        assert_eq!(reply["successful"], true, "{reply}");
        let answers = reply["ext"]["replay"].as_object().expect("answers");
        assert!(answers.len() <= 256 && reply.to_string().len() < 65_536, "a client can read the reply");
        let mut received = Received::default();
        received.read(&mut client, 1);
        // Live messages of channels that have begun, and of others.
        publish_round(&server, 0..CHANNELS, 1);
        received.read(&mut client, CHANNELS as usize);
        publish_round(&server, 0..CHANNELS, 2);
        received.read(&mut client, 3 * CHANNELS as usize);
        received.is_complete(CHANNELS, &[0, 1, 2]);
        publish(&server, "/h/p/new", 0);
        received.read(&mut client, 3 * CHANNELS as usize + 1);
        assert_eq!(received.rounds["/h/p/new"], [0]);
    }
}

#[test]
fn positions_of_a_pattern_come_in_several_subscribes_and_others_begin_with_their_first_message() {
    for open in OPEN {
        let server = TestServer::start(Settings { shards: 2, ..with(stored(10)) });
        publish_round(&server, 0..CHANNELS, 0);
        wait_stored(&server, CHANNELS);
        let mut first = open(&server);
        first.try_subscribe(json!(PATTERN), json!({ PATTERN: -2 }));
        let mut received = Received::default();
        received.read(&mut first, CHANNELS as usize);
        first.call(json!({ "id": "d", "channel": "/meta/disconnect" }));
        // One message on each known channel, and 300 channels that are new to the client.
        publish_round(&server, 0..CHANNELS + 300, 1);
        wait_stored(&server, 2 * CHANNELS + 300);
        let (mut next, mut rest) = (open(&server), Received::default());
        let positions: Vec<_> = received.positions.into_iter().collect();
        for part in positions.chunks(500) {
            let mut part: Map<String, Value> = part.iter().cloned().collect();
            part.insert(PATTERN.into(), json!({ "more": true }));
            let reply = subscribe(&mut next, json!(part), &mut rest);
            assert_eq!(reply["successful"], true, "{reply}");
        }
        // Messages of channels without a position wait until the last part has come.
        publish_round(&server, CHANNELS..CHANNELS + 300, 2);
        wait_stored(&server, 2 * CHANNELS + 600);
        subscribe(&mut next, json!({ PATTERN: -2 }), &mut rest);
        rest.read(&mut next, CHANNELS as usize + 600);
        assert_eq!(rest.rounds.len() as u64, CHANNELS + 300);
        for number in 0..CHANNELS + 300 {
            let wanted: &[u64] = if number < CHANNELS { &[1] } else { &[1, 2] };
            assert_eq!(rest.rounds[&channel(number)], wanted, "{number}");
        }
        publish_round(&server, 0..CHANNELS + 300, 3);
        rest.read(&mut next, CHANNELS as usize + 600 + CHANNELS as usize + 300);
        assert!(rest.rounds.values().all(|rounds| rounds.last() == Some(&3)));
    }
}

#[test]
fn a_pattern_goes_on_after_a_restart_where_it_was() {
    let folder = Folder::new();
    let stored = Settings { outbox_messages_max: 100, data: folder.name(), shards: 2, ..with(stored(10)) };
    let server = TestServer::start(stored.clone());
    publish_round(&server, 0..CHANNELS, 0);
    wait_stored(&server, CHANNELS);
    let mut client = Client::poller(&server);
    client.try_subscribe(json!(PATTERN), json!({ PATTERN: -2 }));
    let mut received = Received::default();
    received.read(&mut client, 10);
    assert!(received.count < CHANNELS as usize / 2);
    server.stop();
    let server = TestServer::start(Settings { shards: 3, ..stored });
    publish_round(&server, 0..CHANNELS, 1);
    let Client::Http(poller) = client else { unreachable!("a poller") };
    let mut client = Client::Http(Box::new(moved(&poller, &server)));
    received.read(&mut client, 2 * CHANNELS as usize);
    received.is_complete(CHANNELS, &[0, 1]);
}

#[test]
fn messages_that_leave_a_history_before_its_channel_begins_are_reported() {
    let server = TestServer::start(with(stored(1)));
    publish_round(&server, 0..CHANNELS, 0);
    wait_stored(&server, CHANNELS);
    let mut client = Client::poller(&server);
    client.try_subscribe(json!(PATTERN), json!({ PATTERN: -2 }));
    // The session has no connect: no page begins.
    publish_round(&server, 0..CHANNELS, 1);
    server.wait_for("encke_publications", 2 * CHANNELS);
    let (mut seen, mut lost) = (BTreeMap::new(), 0);
    while seen.len() < CHANNELS as usize {
        for message in publications(&client.next()) {
            lost += usize::from(!message["ext"]["replay"]["lost"].is_null());
            let earlier = seen.insert(message["channel"].to_string(), message["data"].as_u64());
            assert_eq!((earlier, message["data"].as_u64()), (None, Some(1)), "{message}");
        }
    }
    assert_eq!(lost, CHANNELS as usize);
}

#[test]
fn an_unsubscribe_ends_the_pages_of_a_pattern() {
    let server = TestServer::start(with(stored(10)));
    publish_round(&server, 0..CHANNELS, 0);
    wait_stored(&server, CHANNELS);
    let mut client = Client::poller(&server);
    client.try_subscribe(json!(PATTERN), json!({ PATTERN: -2 }));
    client.call(json!({ "id": "u", "channel": "/meta/unsubscribe", "subscription": PATTERN }));
    client.try_subscribe(json!(PATTERN), json!({ PATTERN: -1 }));
    // In the order of names it is the last one.
    publish(&server, &channel(999), 1);
    let received = client.receive(1);
    assert_eq!(received[0].data, 1, "the new subscription begins with new messages");
}

#[test]
fn the_last_messages_of_a_channel_and_of_the_channels_of_a_pattern() {
    for open in OPEN {
        let server = TestServer::start(with(stored(10)));
        (0..5).for_each(|round| publish_round(&server, 0..CHANNELS, round));
        wait_stored(&server, 5 * CHANNELS);
        let mut client = open(&server);
        let answer = client.subscribe("/h/p/7", json!({ "/h/p/7": { "last": 3 } }));
        assert_eq!(answer["recovered"], true);
        assert_eq!(client.numbers(3), [2, 3, 4]);
        let mut other = open(&server);
        assert_eq!(other.subscribe("/h/p/7", json!({ "/h/p/7": { "last": 50 } }))["recovered"], true);
        assert_eq!(other.numbers(5), [0, 1, 2, 3, 4]);
        let mut recent = open(&server);
        let hour = json!({ "/h/p/8": { "last_ms": 3_600_000 } });
        assert_eq!(recent.subscribe("/h/p/8", hour)["recovered"], true);
        assert_eq!(recent.numbers(5), [0, 1, 2, 3, 4]);
        std::thread::sleep(std::time::Duration::from_millis(5));
        let answer = recent.subscribe("/h/p/9", json!({ "/h/p/9": { "last_ms": 1 } }));
        assert_eq!(answer["from"].as_u64(), answer["latest"].as_u64().map(|latest| latest + 1));
        let mut all = open(&server);
        all.try_subscribe(json!(PATTERN), json!({ PATTERN: { "last": 1 } }));
        let mut received = Received::default();
        received.read(&mut all, CHANNELS as usize);
        received.is_complete(CHANNELS, &[4]);
    }
}
