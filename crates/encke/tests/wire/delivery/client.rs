//! A client of any transport.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::common::{Frame, Http, Stream, Tcp, TestServer, Ws};

/// The way in which messages come to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    WebSocket,
    LongPolling,
    CallbackPolling,
    EventStream,
    JsonLines,
}

/// A session.
pub struct Client {
    transport: Transport,
    id: String,
    /// The last batch that it has received.
    pub acknowledged: i64,
    acknowledges: bool,
    messages: u64,
    /// The connect that the server holds.
    held: Option<Value>,
    /// For what it sends beside its connects, and the cookie. A WebSocket carries both.
    http: Http,
    down: Option<Down>,
    /// Publications that nobody has asked for yet.
    received: VecDeque<Value>,
}

/// The connection that brings messages.
enum Down {
    Ws(Box<Ws>),
    Polls(Http),
    Stream(Stream),
}

impl Transport {
    fn connection_type(self) -> &'static str {
        match self {
            Transport::WebSocket => "websocket",
            Transport::LongPolling => "long-polling",
            Transport::CallbackPolling => "callback-polling",
            Transport::EventStream => "eventsource",
            Transport::JsonLines => "json-stream",
        }
    }
}

impl Client {
    /// Opens a session, and connects once.
    #[track_caller]
    pub fn open(server: &TestServer, transport: Transport, ext: Value) -> Client {
        let mut client = Client {
            transport,
            id: String::new(),
            acknowledged: 0,
            acknowledges: ext["ack"] == true,
            messages: 0,
            held: None,
            http: server.http(),
            down: None,
            received: VecDeque::new(),
        };
        if transport == Transport::WebSocket {
            client.down = Some(Down::Ws(Box::new(server.websocket())));
        }
        let reply = client.call(json!({"channel": "/meta/handshake", "version": "1.0", "ext": ext,
            "supportedConnectionTypes": [transport.connection_type()]}));
        assert_eq!(reply["successful"], true, "{reply}");
        client.id = reply["clientId"].as_str().expect("an id").to_owned();
        if client.down.is_none() {
            client.connect_again(server);
        }
        assert_eq!(client.connect()["successful"], true);
        client
    }

    /// The same session with a connection whose buffers take only a few kilobytes.
    #[track_caller]
    pub fn narrow(mut self, server: &TestServer) -> Client {
        self.break_off();
        self.connect_on(server, Tcp::narrow(server.address()));
        assert_eq!(self.connect()["successful"], true);
        self
    }

    /// Ends the connections without a word.
    pub fn break_off(&mut self) {
        self.held = None;
        match self.down.take() {
            Some(Down::Ws(ws)) => ws.tcp.reset(),
            Some(Down::Polls(http)) => http.tcp.reset(),
            Some(Down::Stream(stream)) => stream.tcp.reset(),
            None => {}
        }
    }

    /// Opens the connections again.
    #[track_caller]
    pub fn connect_again(&mut self, server: &TestServer) {
        self.connect_on(server, server.tcp());
    }

    #[track_caller]
    fn connect_on(&mut self, server: &TestServer, tcp: Tcp) {
        let cookie = self.http.cookie.clone();
        self.http = server.http();
        self.http.cookie.clone_from(&cookie);
        let accept = match self.transport {
            Transport::WebSocket => {
                let mut ws = Ws::upgrade(tcp, server.address(), &[]);
                ws.id.clone_from(&self.id);
                self.down = Some(Down::Ws(Box::new(ws)));
                return;
            }
            Transport::LongPolling | Transport::CallbackPolling => {
                let mut http = Http::on(tcp, server.address());
                http.cookie = cookie;
                self.down = Some(Down::Polls(http));
                return;
            }
            Transport::EventStream => "text/event-stream",
            Transport::JsonLines => "application/x-ndjson",
        };
        let cookie = format!("BAYEUX_BROWSER={}", cookie.unwrap_or_default());
        let fields = [("accept", accept), ("cookie", &cookie)];
        let stream = Stream::on(tcp, server.address(), &format!("/cometd/{}", self.id), &fields);
        self.down = Some(Down::Stream(stream));
    }

    /// Opens the connections again, and connects.
    #[track_caller]
    pub fn come_back(&mut self, server: &TestServer) {
        self.connect_again(server);
        let reply = self.connect();
        assert_eq!(reply["successful"], true, "{reply}");
    }

    #[track_caller]
    pub fn subscribe(&mut self, channel: &str) {
        self.subscribe_from(channel, Value::Null);
    }

    /// Subscribes, with what came after a position.
    #[track_caller]
    pub fn subscribe_from(&mut self, channel: &str, replay: Value) {
        let ext = if replay.is_null() { json!({}) } else { json!({"replay": replay}) };
        let reply = self.call(json!({"channel": "/meta/subscribe", "subscription": channel, "ext": ext}));
        assert_eq!(reply["successful"], true, "{reply}");
    }

    /// Sends a message. Returns its reply.
    #[track_caller]
    pub fn call(&mut self, message: Value) -> Value {
        let message = self.mine(message);
        let messages = match &mut self.down {
            Some(Down::Ws(ws)) => {
                ws.send_json(&json!([message]));
                return self.reply_on_way_down(&message);
            }
            _ => exchange(self.transport, &mut self.http, &message),
        };
        self.take(messages, &message).unwrap_or_else(|| panic!("no reply to {message}"))
    }

    /// A connect that is answered at once. Returns its reply. What it brings beside waits for the next [`Client::messages`].
    #[track_caller]
    pub fn connect(&mut self) -> Value {
        let mut connect = self.connect_message();
        connect["advice"] = json!({"timeout": 0});
        match self.down.as_mut().expect("a connection") {
            Down::Ws(ws) => ws.send_json(&json!([connect])),
            Down::Polls(http) => {
                let messages = exchange(self.transport, http, &connect);
                return self.take(messages, &connect).expect("a reply");
            }
            Down::Stream(_) => {
                let messages = exchange(self.transport, &mut self.http, &connect);
                if let Some(reply) = self.take(messages, &connect) {
                    return reply;
                }
            }
        }
        self.reply_on_way_down(&connect)
    }

    /// Sends a connect that is held, if none is.
    #[track_caller]
    pub fn start(&mut self) {
        if self.held.is_some() {
            return;
        }
        let connect = self.connect_message();
        self.held = Some(connect["id"].clone());
        match self.down.as_mut().expect("a connection") {
            Down::Ws(ws) => ws.send_json(&json!([connect])),
            Down::Polls(http) => send(self.transport, http, &connect),
            Down::Stream(_) => {
                let messages = exchange(self.transport, &mut self.http, &connect);
                self.take(messages, &connect);
            }
        }
    }

    /// Acknowledges all that has arrived. Nothing arrives meanwhile.
    #[track_caller]
    pub fn settle(&mut self) {
        assert_eq!(self.connect()["successful"], true);
        assert_eq!(self.connect()["successful"], true);
        assert_eq!(self.received, [0; 0]);
    }

    /// The next publications.
    #[track_caller]
    pub fn messages(&mut self, count: usize) -> Vec<Value> {
        while self.received.len() < count {
            self.start();
            let messages = self.read();
            self.take(messages, &Value::Null);
        }
        let messages: Vec<Value> = self.received.drain(..).collect();
        assert_eq!(messages.len(), count, "more than that: {messages:?}");
        messages
    }

    /// The data of the next publications.
    #[track_caller]
    pub fn data(&mut self, count: usize) -> Vec<Value> {
        self.messages(count).iter_mut().map(|message| message["data"].take()).collect()
    }

    fn connect_message(&mut self) -> Value {
        let connection_type = self.transport.connection_type();
        let mut connect = json!({"channel": "/meta/connect", "connectionType": connection_type});
        if self.acknowledges {
            connect["ext"] = json!({"ack": self.acknowledged});
        }
        self.mine(connect)
    }

    fn mine(&mut self, mut message: Value) -> Value {
        self.messages += 1;
        message["id"] = json!(self.messages.to_string());
        if !self.id.is_empty() {
            message["clientId"] = json!(self.id);
        }
        message
    }

    #[track_caller]
    fn reply_on_way_down(&mut self, message: &Value) -> Value {
        loop {
            let messages = self.read();
            if let Some(reply) = self.take(messages, message) {
                return reply;
            }
        }
    }

    /// The next messages of the connection that brings them.
    #[track_caller]
    fn read(&mut self) -> Vec<Value> {
        match self.down.as_mut().expect("a connection") {
            Down::Ws(ws) => match ws.next_frame() {
                Frame::Text(text) => serde_json::from_str(&text).expect("an array"),
                other => panic!("no text but {other:?}"),
            },
            Down::Polls(http) => unwrapped(self.transport, http),
            Down::Stream(stream) if self.transport == Transport::JsonLines => stream.line(),
            Down::Stream(stream) => stream.messages(),
        }
    }

    /// Keeps publications and acknowledgements. Returns the reply to `message`, if it is there.
    fn take(&mut self, messages: Vec<Value>, message: &Value) -> Option<Value> {
        let mut reply = None;
        for one in messages {
            if let Some(batch) = one["ext"]["ack"].as_i64().filter(|_| one["channel"] == "/meta/connect") {
                self.acknowledged = batch;
            }
            if one.get("successful").is_none() {
                self.received.push_back(one);
                continue;
            }
            self.held.take_if(|held| *held == one["id"]);
            if one["id"] == message["id"] {
                reply = Some(one);
            }
        }
        reply
    }
}

/// Sends a message over HTTP.
#[track_caller]
fn send(transport: Transport, http: &mut Http, message: &Value) {
    let body = json!([message]).to_string();
    if transport == Transport::CallbackPolling {
        let encoded: String = body.bytes().map(|byte| format!("%{byte:02x}")).collect();
        http.send("GET", &format!("/cometd?jsonp=back&message={encoded}"), &[], b"");
    } else {
        http.send("POST", "/cometd", &[("content-type", "application/json")], body.as_bytes());
    }
}

/// The messages of the response to a request.
#[track_caller]
fn unwrapped(transport: Transport, http: &mut Http) -> Vec<Value> {
    let response = http.receive();
    assert_eq!(response.status, 200, "{}", response.text());
    if transport != Transport::CallbackPolling {
        return response.messages();
    }
    let text = response.text();
    let json = text.strip_prefix("/**/back(").and_then(|text| text.strip_suffix(");"));
    serde_json::from_str(json.unwrap_or_else(|| panic!("no call: {text}"))).expect("an array")
}

/// Sends a message over HTTP. Returns what its response brings.
#[track_caller]
fn exchange(transport: Transport, http: &mut Http, message: &Value) -> Vec<Value> {
    send(transport, http, message);
    unwrapped(transport, http)
}
