//! The latest message of a channel at once, for new subscriptions over either transport, with replay and without (`retain_last`).

use encke::{Access, ChannelRule, Grant, Server, Settings};
use serde_json::{Value, json};

use crate::common::{Poller, Stream, TestServer, Ws, publications};
use crate::replay::client::{offer, publish, wait_stored, with};

/// A client, with the messages that it has got.
enum Client {
    Ws(Ws),
    Http(Box<Poller>),
}

impl Client {
    fn websocket(server: &TestServer, ext: &Value) -> Client {
        let mut ws = server.websocket();
        ws.send_json(&handshake("websocket", ext));
        ws.id = ws.next_json()[0]["clientId"].as_str().expect("a session").to_owned();
        Client::Ws(ws)
    }

    fn poller(server: &TestServer, ext: &Value) -> Client {
        let mut http = server.http();
        let reply = http.post(&handshake("long-polling", ext)).messages().remove(0);
        Client::Http(Box::new(Poller::of(reply["clientId"].as_str().expect("a session").to_owned(), http)))
    }

    /// Subscribes, and returns the next `count` data from then on.
    fn subscribe(&mut self, names: Value, count: usize) -> Vec<Value> {
        let mut message = json!({"id": "s", "channel": "/meta/subscribe", "subscription": names});
        let messages = match self {
            Client::Ws(ws) => {
                ws.send_json(&json!([ws.mine(message)]));
                Vec::new()
            }
            Client::Http(poller) => {
                message["clientId"] = json!(poller.id);
                poller.http.post(&json!([message])).messages()
            }
        };
        self.receive(messages, count)
    }

    fn receive(&mut self, mut messages: Vec<Value>, count: usize) -> Vec<Value> {
        while publications(&messages).len() < count {
            messages.extend(match self {
                Client::Ws(ws) => ws.next_json().as_array().expect("an array").clone(),
                Client::Http(poller) => poller.poll(json!({ "advice": { "timeout": 0 } })),
            });
        }
        publications(&messages).iter().map(|message| message["data"].clone()).collect()
    }
}

fn handshake(transport: &str, ext: &Value) -> Value {
    json!([{"channel": "/meta/handshake", "version": "1.0", "ext": ext, "supportedConnectionTypes": [transport]}])
}

#[test]
fn a_new_subscription_gets_the_latest_message_at_once_and_then_live_ones_over_either_transport() {
    let plain = json!({});
    let kinds = [plain.clone(), json!({"replay": offer()})];
    let opens: [fn(&TestServer, &Value) -> Client; 2] = [Client::websocket, Client::poller];
    for ((shards, open), ext) in [1, 3]
        .into_iter()
        .flat_map(|shards| opens.map(|open| (shards, open)))
        .flat_map(|way| kinds.clone().map(|ext| (way, ext)))
    {
        let rule = ChannelRule { retain_last: true, ..ChannelRule::default() };
        let server = TestServer::start(Settings { shards, ..with(rule) });
        for number in 0..3 {
            publish(&server, "/h/a", number);
            publish(&server, "/h/b", 10 + number);
        }
        server.wait_for("encke_publications", 6);
        wait_stored(&server, 2);
        let mut client = open(&server, &ext);
        assert_eq!(client.subscribe(json!(["/h/a"]), 1), [json!(2)], "{ext}");
        assert_eq!(client.subscribe(json!("/h/*"), 1), [json!(12)], "{ext}: of the other channel");
        publish(&server, "/h/c", "\"live\"");
        assert_eq!(client.receive(Vec::new(), 1), [json!("live")], "{ext}");
        let mut all = open(&server, &plain).subscribe(json!("/h/*"), 3);
        all.sort_by_key(Value::to_string);
        assert_eq!(all, [json!("live"), json!(12), json!(2)], "{ext}");
    }
}

#[test]
fn a_stream_begins_with_the_latest_message_of_each_channel() {
    for path in ["/stream/h/a,/h/b", "/stream/h/*", "/stream/h/a,/h/*", "/stream/h/*?min_interval_ms=500"] {
        let rule = ChannelRule { retain_last: true, history_messages: 10, ..ChannelRule::default() };
        let server = TestServer::start(with(rule));
        for (channel, number) in [("/h/a", 16), ("/h/a", 17), ("/h/b", 18)] {
            publish(&server, channel, number);
        }
        wait_stored(&server, 3);
        let mut stream = Stream::open(server.address(), path, &[]);
        let mut next = || {
            let event =
                std::iter::from_fn(|| stream.event()).find(|event| event.contains("\"data\"")).expect("a message");
            event.split("\"data\":").nth(1).and_then(|rest| rest.split([',', '}']).next()).expect("data").to_owned()
        };
        let mut first = [next(), next()];
        first.sort();
        assert_eq!(first, ["17", "18"], "{path}");
        publish(&server, "/h/a", 19);
        assert_eq!(next(), "19", "{path}");
    }
}

#[test]
fn a_channel_that_a_client_may_not_subscribe_to_gives_it_no_latest_message() {
    let rule = ChannelRule { retain_last: true, ..ChannelRule::default() };
    let server = TestServer::of(
        Server::builder().settings(with(rule)).authorize("/h/b", |_: &Access| Grant::deny("nobody_reads_it")),
    );
    publish(&server, "/h/a", 1);
    publish(&server, "/h/b", 2);
    wait_stored(&server, 2);
    let mut client = Client::websocket(&server, &json!({}));
    // It may not have the pattern either.
    for name in ["/h/b", "/h/*"] {
        client.subscribe(json!(name), 0);
    }
    assert_eq!(client.subscribe(json!("/h/a"), 1), [json!(1)]);
    publish(&server, "/h/a", 3);
    assert_eq!(client.receive(Vec::new(), 1), [json!(3)]);
}
