//! A client that replays, over either transport, for the tests.

use encke::{ChannelRule, Settings};
use serde_json::{Value, json};

use crate::common::{Poller, TestServer, Ws, publications, settings};

/// Settings with a history of `/h/**`.
pub fn with(rule: ChannelRule) -> Settings {
    Settings { channels: vec![ChannelRule { pattern: "/h/**".into(), ..rule }], ..settings() }
}

pub fn stored(messages: usize) -> ChannelRule {
    ChannelRule { history_messages: messages, ..ChannelRule::default() }
}

pub fn publish(server: &TestServer, channel: &str, data: impl ToString) {
    let data = data.to_string();
    server.publish(channel, &data);
}

/// Waits until histories hold `count` messages.
pub fn wait_stored(server: &TestServer, count: u64) {
    server.wait_for_exactly("encke_history_messages", count);
}

/// The offer of a client that reads positions in `ext`.
pub fn offer() -> Value {
    json!({ "positions": "ext" })
}

/// A client that replays, over either transport.
pub enum Client {
    Ws(Box<Ws>),
    Http(Box<Poller>),
}

/// A received message: its offset and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReceived {
    pub id: u64,
    pub data: Value,
}

impl Client {
    pub fn websocket(server: &TestServer) -> Client {
        Client::websocket_with(server, json!({ "replay": offer() }))
    }

    pub fn websocket_with(server: &TestServer, ext: Value) -> Client {
        let mut ws = server.websocket();
        ws.send_json(&json!([{ "channel": "/meta/handshake", "version": "1.0", "id": "1", "ext": ext,
            "supportedConnectionTypes": ["websocket"] }]));
        let reply = ws.next_json()[0].clone();
        assert_eq!(reply["ext"], ext);
        ws.id = reply["clientId"].as_str().expect("a session").to_owned();
        Client::Ws(Box::new(ws))
    }

    pub fn poller(server: &TestServer) -> Client {
        Client::poller_with(server, json!({ "replay": offer() }))
    }

    pub fn poller_with(server: &TestServer, ext: Value) -> Client {
        let mut http = server.http();
        let handshake = json!([{ "channel": "/meta/handshake", "version": "1.0", "id": "1", "ext": ext,
            "supportedConnectionTypes": ["long-polling"] }]);
        let reply = http.post(&handshake).messages().remove(0);
        assert_eq!(reply["ext"], ext);
        Client::Http(Box::new(Poller::of(reply["clientId"].as_str().expect("a session").to_owned(), http)))
    }

    pub fn call(&mut self, message: Value) -> Value {
        match self {
            Client::Ws(ws) => {
                let mine = ws.mine(message);
                ws.send_json(&json!([mine]));
                let reply = |messages: Value| {
                    messages.as_array().and_then(|all| all.iter().find(|one| one["id"] == mine["id"]).cloned())
                };
                loop {
                    if let Some(reply) = reply(ws.next_json()) {
                        return reply;
                    }
                }
            }
            Client::Http(poller) => {
                let mut message = message;
                message["clientId"] = json!(poller.id);
                let replies = poller.http.post(&json!([message])).messages();
                replies.into_iter().find(|reply| reply["id"] == message["id"]).expect("a reply")
            }
        }
    }

    /// Disconnects while messages arrive.
    pub fn call_off(&mut self) {
        let Client::Ws(ws) = self else { panic!("a WebSocket") };
        let disconnect = ws.mine(json!({ "id": "d", "channel": "/meta/disconnect" }));
        ws.send_json(&json!([disconnect]));
    }

    /// Subscribes. Returns the reply.
    pub fn try_subscribe(&mut self, name: Value, replay: Value) -> Value {
        let ext = if replay.is_null() { json!({}) } else { json!({ "replay": replay }) };
        self.call(json!({ "id": "s", "channel": "/meta/subscribe", "subscription": name, "ext": ext }))
    }

    /// Subscribes to one channel. Returns the reply's entry for it.
    pub fn subscribe(&mut self, name: &str, replay: Value) -> Value {
        let reply = self.try_subscribe(json!(name), replay);
        assert_eq!(reply["successful"], true, "{reply}");
        reply["ext"]["replay"][name].clone()
    }

    /// The next messages. Over HTTP these are the response to a connect.
    pub fn next(&mut self) -> Vec<Value> {
        match self {
            Client::Ws(ws) => ws.next_json().as_array().expect("an array").clone(),
            Client::Http(poller) => poller.poll(json!({ "advice": { "timeout": 0 } })),
        }
    }

    /// The next `count` messages.
    pub fn receive(&mut self, count: usize) -> Vec<LastReceived> {
        let mut received = Vec::new();
        while received.len() < count {
            let messages = publications(&self.next());
            received.extend(messages.iter().map(reported));
        }
        received
    }

    pub fn ids(&mut self, count: usize) -> Vec<u64> {
        self.receive(count).into_iter().map(|received| received.id).collect()
    }

    /// The next messages, as the numbers in their data.
    pub fn numbers(&mut self, count: usize) -> Vec<u64> {
        self.receive(count).into_iter().map(|received| received.data.as_u64().expect("a number")).collect()
    }
}

/// A message with a position in its `ext`.
pub fn reported(message: &Value) -> LastReceived {
    let position = &message["ext"]["replay"];
    let id = position["id"].as_u64().unwrap_or_else(|| panic!("no position: {message}"));
    assert!(position["epoch"].is_string(), "{message}");
    LastReceived { id, data: message["data"].clone() }
}

pub const OPEN: [fn(&TestServer) -> Client; 2] = [Client::websocket, Client::poller];

pub fn both(server: &TestServer) -> [Client; 2] {
    [Client::websocket(server), Client::poller(server)]
}
