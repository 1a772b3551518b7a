//! Replays beside busy channels, over requests that overtake each other, and with responses that fail.

mod losses;

use crate::application::NoApplication;
use crate::events::{ExchangeId, SocketKey};
use crate::id::Id;
use crate::settings::{ChannelRule, Settings, SlowConsumer};
use crate::shard::tests::{NOW, Rig, member_of};

/// A client.
struct Client {
    rig: Rig,
    id: String,
    socket: Option<SocketKey>,
    /// The last batch that it received, if it acknowledges.
    batch: u64,
}

/// The transport of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Requests,
    WebSocket,
}

impl Client {
    fn new(by: By, ext: &str, settings: Settings) -> Client {
        let rule = |pattern: &str| ChannelRule { pattern: pattern.into(), ..ChannelRule::default() };
        let brief = |name, slow_consumer| ChannelRule { slow_consumer, slow_consumer_bytes: 5_000, ..rule(name) };
        let channels = vec![
            ChannelRule { history_messages: 1_000, ..rule("/a") },
            ChannelRule { history_messages: 5, ..rule("/short") },
            ChannelRule { lazy: true, lazy_timeout_ms: 1_000_000, ..rule("/lazy") },
            ChannelRule { slow_consumer: SlowConsumer::DropOldest, ..rule("/drop") },
            brief("/brief", SlowConsumer::DropOldest),
            brief("/latest", SlowConsumer::KeepLatest),
            ChannelRule { history_messages: 1_000, ..brief("/past", SlowConsumer::KeepLatest) },
        ];
        let settings = Settings { channels, lazy_timeout_max_ms: 1_000_000, trust_client_session: true, ..settings };
        let mut rig = Rig::new(1, settings, Box::new(NoApplication));
        let handshake = format!(r#"{{"channel":"/meta/handshake","version":"1.0","ext":{ext}}}"#);
        let (socket, reply) = match by {
            By::WebSocket => {
                let socket = rig.shard.socket_opened(NOW, None);
                rig.shard.socket_text(NOW, socket, &handshake);
                (Some(socket), rig.flushed(socket))
            }
            By::Requests => {
                let exchange = rig.request(handshake);
                (None, rig.response(exchange).expect("a response"))
            }
        };
        let mut client = Client { rig, id: member_of(&reply, "clientId"), socket, batch: 0 };
        client.connect();
        client
    }

    fn text(&self, channel: &str, fields: &str) -> String {
        format!(r#"{{"channel":"{channel}","clientId":"{}"{fields}}}"#, self.id)
    }

    fn say(&mut self, channel: &str, fields: &str) -> String {
        let text = self.text(channel, fields);
        self.say_all(&text)
    }

    fn say_all(&mut self, text: &str) -> String {
        match self.socket {
            Some(socket) => {
                self.rig.shard.socket_text(NOW, socket, text);
                self.rig.flushed(socket)
            }
            None => {
                let exchange = self.rig.request(text.into());
                let response = self.rig.response(exchange).expect("a response");
                self.rig.shard.delivered(NOW, exchange, true);
                response
            }
        }
    }

    /// Connects with an immediate reply.
    fn connect(&mut self) -> String {
        let ext = format!(r#","advice":{{"timeout":0}},"ext":{{"ack":{}}}"#, self.batch);
        let reply = self.say("/meta/connect", &ext);
        self.batch = numbers(&reply, "\"ack\":").last().copied().unwrap_or(self.batch);
        reply
    }

    /// A connect that is held.
    fn hold(&mut self) -> ExchangeId {
        let ext = format!(r#","ext":{{"ack":{}}}"#, self.batch);
        let text = self.text("/meta/connect", &ext);
        self.rig.request(text)
    }

    fn subscribe(&mut self, name: &str, replay: &str) -> String {
        self.say("/meta/subscribe", &format!(r#","subscription":"{name}","ext":{{"replay":{replay}}}"#))
    }

    fn publish(&mut self, channel: &str, count: usize) {
        let data = format!("\"{}\"", "x".repeat(1_000));
        for _ in 0..count {
            self.rig.shard.publish_now(channel, data.as_str());
        }
    }

    /// Makes the session too slow from this offset on, in this ring of a channel or a later one.
    fn resort_to_history(&mut self, channel: &str, number: u64, later: u64) {
        let key = self.rig.shard.machines.delivery.find(&Id::parse(&self.id).expect("an id")).expect("a session");
        let mut position = self.rig.shard.machines.env.shared.histories.find(channel, number).expect("a ring");
        position.ring.serial += later;
        self.rig.shard.settle_burst().delivery.resort_to_history(key, channel, &position, number);
    }
}

/// The numbers behind each occurrence of this word.
fn numbers(text: &str, word: &str) -> Vec<u64> {
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    text.match_indices(word).filter_map(|(at, word)| digits(&text[at + word.len()..])).collect()
}

/// The offsets of the messages in a text.
fn positions(text: &str) -> Vec<u64> {
    numbers(text, "\"replayId\":")
}

/// Publishes more than the ring of `/short` and the outbox have room for; the next response is lost on its way. Returns
/// the first offset.
fn overrun(client: &mut Client, before: usize) -> u64 {
    let first = numbers(&client.subscribe("/short", "-1"), "\"from\":")[0];
    client.subscribe("/b", "-1");
    client.publish("/short", 30);
    client.publish("/b", before);
    let lost = client.hold();
    assert!(client.rig.response(lost).is_some());
    client.rig.shard.delivered(NOW, lost, false);
    first
}

const NOBODY: SocketKey = SocketKey { index: 9, generation: 9 };

#[test]
fn a_replay_continues_beside_a_channel_with_messages_for_each_connect() {
    let (replay, both) = (r#"{"replay":true}"#, r#"{"ack":true,"replay":true}"#);
    for (by, ext) in [(By::Requests, replay), (By::Requests, both), (By::WebSocket, both)] {
        for busy in ["/b", "/lazy"] {
            let mut client = Client::new(by, ext, Settings::default());
            client.publish("/a", 200);
            client.subscribe(busy, "-1");
            let mut received = positions(&client.subscribe("/a", "-2"));
            for _ in 0..20 {
                client.publish(busy, 2);
                received.extend(positions(&client.connect()));
            }
            assert_eq!(received.len(), 200, "{by:?} {ext} beside {busy}");
            assert!(received.is_sorted_by(|one, next| one + 1 == *next), "{by:?} {ext} beside {busy}");
        }
    }
}

/// The fan-out leaves the channels of the pattern to its pages, and the client gets them by another subscription.
#[test]
fn a_pattern_that_is_given_up_before_all_its_positions_are_named_withholds_nothing() {
    for by in [By::WebSocket, By::Requests] {
        let mut client = Client::new(by, r#"{"replay":true}"#, Settings::default());
        client.subscribe("/**", r#"{"/**":-1}"#);
        client.subscribe("/*", r#"{"/*":{"more":true}}"#);
        client.publish("/a", 2);
        let mut received = positions(&client.connect());
        assert_eq!(received, [0; 0], "they wait for the positions");
        received.extend(positions(&client.say("/meta/unsubscribe", r#","subscription":"/*""#)));
        client.publish("/a", 2);
        (0..3).for_each(|_| received.extend(positions(&client.connect())));
        assert_eq!(received.len(), 4, "{by:?}");
        assert!(received.is_sorted_by(|one, next| one + 1 == *next), "{by:?}");
    }
}

#[test]
fn a_session_replays_a_limited_number_of_patterns_at_once() {
    let mut client = Client::new(By::Requests, r#"{"replay":true}"#, Settings::default());
    let mut subscribe = |number: usize| {
        let name = format!("/p{number}/*");
        client.subscribe(&name, &format!(r#"{{"{name}":{{"more":true}}}}"#))
    };
    assert!((0..256).all(|number| subscribe(number).contains(r#""successful":true"#)));
    let refused = subscribe(256);
    assert!(refused.contains(r#""successful":false"#) && refused.contains("replay"), "{refused}");
}

#[test]
fn a_replay_on_a_websocket_does_not_wait_for_lazy_messages() {
    let mut client = Client::new(By::WebSocket, r#"{"replay":true}"#, Settings::default());
    client.subscribe("/a", "-1");
    client.subscribe("/lazy", "-1");
    client.publish("/a", 3);
    let socket = client.socket.expect("a WebSocket");
    let first = positions(&client.rig.flushed(socket))[0];
    client.publish("/lazy", 1);
    assert_eq!(client.rig.flushed(socket), "");
    client.resort_to_history("/a", first, 0);
    let received = client.rig.flushed(socket);
    assert_eq!(positions(&received).len(), 3);
    assert!(received.contains("\"/lazy\""), "lazy messages are included");
}

#[test]
fn a_held_connect_delivers_a_replay_that_begins_meanwhile_even_if_lazy_messages_wait() {
    let mut client = Client::new(By::Requests, r#"{"replay":true}"#, Settings::default());
    client.publish("/a", 3);
    client.subscribe("/lazy", "-1");
    let held = client.hold();
    client.publish("/lazy", 1);
    assert_eq!(client.rig.response(held), None);
    let text = client.text("/meta/subscribe", r#","subscription":"/a","ext":{"replay":-2}"#);
    client.rig.request(text);
    assert_eq!(positions(&client.rig.response(held).expect("a response")).len(), 3);
}

#[test]
fn a_replay_leaves_room_for_live_messages() {
    let settings = Settings { outbox_messages_max: 40, ..Settings::default() };
    let mut client = Client::new(By::Requests, r#"{"ack":true,"replay":true}"#, settings);
    client.publish("/a", 200);
    client.subscribe("/b", "-1");
    client.subscribe("/a", "-2");
    client.publish("/b", 29);
    // It is sent again and again, and never confirmed.
    for _ in 0..3 {
        client.batch = 1;
        client.connect();
    }
    client.publish("/b", 10);
    assert_eq!(client.rig.shard.sessions(), 1);
}

#[test]
fn messages_with_positions_come_with_connects_only() {
    let mut client = Client::new(By::Requests, r#"{"replay":true}"#, Settings::default());
    client.subscribe("/a", "-1");
    let held = client.hold();
    client.publish("/a", 3);
    // The connect is about to be answered when a publication arrives on another connection.
    let text = client.text("/c", r#","data":1"#);
    let other = client.rig.request(text);
    let (mut held_back, mut response) = (String::new(), String::new());
    client.rig.flushed(NOBODY);
    for effect in client.rig.shard.take_effects() {
        if let crate::Effect::Respond(exchange, one) = effect {
            let text = String::from_utf8_lossy(&one.body).into_owned();
            *(if exchange == other { &mut response } else { &mut held_back }) = text;
            assert!(exchange == other || exchange == held);
        }
    }
    assert_eq!((positions(&response).len(), positions(&held_back).len()), (0, 3), "{response} {held_back}");
}

#[test]
fn a_connect_reports_no_position_while_a_response_may_still_fail() {
    let mut client = Client::new(By::Requests, r#"{"replay":true}"#, Settings::default());
    client.subscribe("/a", "-1");
    client.publish("/a", 3);
    let text = client.text("/meta/connect", r#","advice":{"timeout":0}"#);
    let lost = client.rig.request(text);
    assert_eq!(positions(&client.rig.response(lost).expect("a response")).len(), 3);
    let reply = client.connect();
    assert!(!reply.contains("\"replay\""), "{reply}");
    client.rig.shard.delivered(NOW, lost, false);
    assert_eq!(positions(&client.connect()).len(), 3);
}

#[test]
fn resubscribing_while_a_response_fails_delivers_nothing_twice() {
    for ext in [r#"{"replay":true}"#, r#"{"ack":true,"replay":true}"#] {
        let mut client = Client::new(By::Requests, ext, Settings::default());
        let start = numbers(&client.subscribe("/a", "-1"), "\"latest\":")[0];
        client.subscribe("/b", "-1");
        client.publish("/a", 5);
        client.publish("/b", 1);
        let text = client.text("/meta/connect", &format!(r#","ext":{{"ack":{}}}"#, client.batch));
        let lost = client.rig.request(text);
        assert_eq!(positions(&client.rig.response(lost).expect("a response")).len(), 5);
        // Its connection breaks; the client uses another one before the server notices.
        client.subscribe("/a", &(start + 2).to_string());
        client.rig.shard.delivered(NOW, lost, false);
        let reply = client.connect();
        assert_eq!(positions(&reply), [start + 3, start + 4, start + 5], "{ext}: {reply}");
        assert_eq!(reply.matches("\"/b\"").count(), 1, "a message of another channel is sent again");
    }
}

#[test]
fn resubscribing_by_a_request_while_a_websocket_has_half_of_a_message_delivers_nothing_twice() {
    let mut client = Client::new(By::WebSocket, r#"{"replay":true}"#, Settings::default());
    let start = numbers(&client.subscribe("/a", "-1"), "\"from\":")[0];
    client.publish("/a", 1);
    client.rig.kernel.room = 100;
    client.rig.flushed(client.socket.take().expect("a WebSocket"));
    client.subscribe("/a", &(start - 1).to_string());
    assert_eq!(positions(&client.connect()), [start]);
}

#[test]
fn a_full_outbox_retains_messages_that_its_ring_no_longer_has() {
    let settings = Settings { outbox_messages_max: 10, ..Settings::default() };
    let mut client = Client::new(By::Requests, r#"{"replay":true}"#, settings);
    client.subscribe("/short", "-1");
    client.subscribe("/drop", "-1");
    client.publish("/short", 10);
    client.publish("/drop", 1);
    let received: String = (0..4).map(|_| client.connect()).collect();
    assert_eq!(positions(&received).len(), 10);
    assert!(!received.contains("\"lost\"") && received.contains("\"/drop\""));
}

#[test]
fn messages_of_an_earlier_ring_are_reported_lost() {
    let mut client = Client::new(By::Requests, r#"{"replay":true}"#, Settings::default());
    client.publish("/a", 3);
    client.subscribe("/a", "-1");
    client.resort_to_history("/a", 7, 1);
    client.resort_to_history("/a", 9, 2);
    let received: String = (0..2).map(|_| client.connect()).collect();
    assert!(received.contains(r#""lost":{"from":7,"to":null}"#), "{received}");
}

#[test]
fn each_reply_reports_one_loss_of_a_channel() {
    let (replay, both) = (r#"{"replay":true}"#, r#"{"ack":true,"replay":true}"#);
    for (by, ext) in [By::Requests, By::WebSocket].into_iter().flat_map(|by| [(by, replay), (by, both)]) {
        let mut client = Client::new(by, ext, Settings::default());
        client.publish("/a", 3);
        client.subscribe("/a", "-1");
        (0..3).for_each(|life| client.resort_to_history("/a", 7 + life, 1 + life));
        let mut reported = Vec::new();
        for _ in 0..8 {
            let reply = client.connect();
            let lost = numbers(&reply, "\"lost\":{\"from\":");
            assert!(lost.len() < 2, "{by:?} {ext}: one loss for each channel: {reply}");
            reported.extend(lost);
        }
        reported.dedup();
        assert_eq!(reported, [7, 8, 9], "{by:?} {ext}");
    }
}

#[test]
fn requesting_all_stored_messages_forgets_no_loss() {
    let settings = Settings { outbox_messages_max: 10, ..Settings::default() };
    let mut client = Client::new(By::Requests, r#"{"replay":true}"#, settings);
    let first = overrun(&mut client, 0);
    client.subscribe("/short", "-2");
    let received: String = (0..9).map(|_| client.connect()).collect();
    assert_eq!(positions(&received).len(), 15);
    assert!(received.contains(&format!(r#""lost":{{"from":{},"to":{}}}"#, first + 10, first + 24)), "{received}");
}

#[test]
fn a_full_outbox_delivers_nothing_more_of_an_unsubscribed_channel() {
    for ext in [r#"{"replay":true}"#, r#"{"ack":true,"replay":true}"#] {
        let settings = Settings { outbox_messages_max: 4, ..Settings::default() };
        let mut client = Client::new(By::Requests, ext, settings);
        client.subscribe("/a", "-1");
        client.subscribe("/b", "-1");
        client.publish("/a", 2);
        client.say("/meta/unsubscribe", r#","subscription":"/a""#);
        client.publish("/a", 3);
        client.publish("/b", 4);
        let received: String = (0..6).map(|_| client.connect()).collect();
        assert_eq!(received.matches("\"/b\"").count(), 4, "{received}");
        assert!(positions(&received).is_empty(), "{received}");
    }
}

/// The positions in a connect reply.
fn beats(text: &str) -> Vec<u64> {
    let at = text.find("\"/meta/connect\"").expect("a reply to the connect");
    numbers(&text[at..], "\"/a\":{\"id\":")
}

#[test]
fn no_connect_reply_names_a_position_beyond_the_messages_that_a_cut_batch_left_out() {
    let mut client = Client::new(By::Requests, r#"{"ack":true,"replay":true}"#, Settings::default());
    client.subscribe("/a", "-1");
    client.connect();
    client.publish("/a", 200);
    // This response is lost, and its messages are sent again on a WebSocket, where a batch holds less.
    client.hold();
    client.socket = Some(client.rig.shard.socket_opened(NOW, None));
    let (mut received, mut named) = (Vec::new(), None);
    for _ in 0..8 {
        let reply = client.connect();
        received.extend(positions(&reply));
        let last = *received.last().expect("messages");
        assert!(beats(&reply).iter().all(|id| *id <= last), "{:?} after {last}", beats(&reply));
        named = beats(&reply).last().copied().or(named);
    }
    assert_eq!((received.len(), named), (200, received.last().copied()), "all arrive, and then the position");
}

#[test]
fn no_message_of_a_history_is_dropped_by_a_rule_with_bytes() {
    for (channel, other) in [("/a", "/brief"), ("/a", "/latest"), ("/past", "/past"), ("/past", "/brief")] {
        let mut client = Client::new(By::WebSocket, r#"{"replay":true}"#, Settings::default());
        client.subscribe(channel, "-1");
        client.subscribe(other, "-1");
        client.rig.kernel.room = 0;
        client.publish(channel, 4);
        client.publish(other, 30);
        client.publish(channel, 4);
        client.rig.kernel.room = usize::MAX / 2;
        let received: String = (0..20).map(|_| client.connect()).collect();
        let (ids, count) = (numbers(&received, "\"replayId\":"), if channel == other { 38 } else { 8 });
        assert!(ids.is_sorted() && ids.len() == count && !received.contains("\"lost\":{"), "{channel}, {other}");
    }
}
