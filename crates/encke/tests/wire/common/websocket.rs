//! A hand-written WebSocket client: complete frames, broken frames, and a Bayeux session on top.

use std::net::SocketAddr;

use serde_json::{Value, json};
use websocket::deflate::Inflater;
use websocket::{Compression, Decoder, Event, Flow, Opcode, Role};

use super::Tcp;

/// A frame from the server, or the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(u16, String),
    /// The connection has ended.
    End,
}

/// A WebSocket.
pub struct Ws {
    pub tcp: Tcp,
    decoder: Decoder,
    inflater: Inflater,
    /// The bytes of frames that it has read.
    pub read: usize,
    frames: std::collections::VecDeque<Frame>,
    /// The id of its session.
    pub id: String,
    sent: u64,
}

/// A complete masked frame.
pub fn frame(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    websocket::frame::masked(opcode, payload, [1, 2, 3, 4], &mut bytes);
    bytes
}

/// A masked frame with any first byte: the test chooses flags and opcode. At most 65,535 bytes of payload.
pub fn raw_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = frame(Opcode::Binary, payload);
    bytes[0] = first;
    bytes
}

/// A masked close frame.
pub fn close_frame(code: u16, reason: &str) -> Vec<u8> {
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend_from_slice(reason.as_bytes());
    frame(Opcode::Close, &payload)
}

impl Ws {
    #[track_caller]
    pub fn connect(address: SocketAddr, headers: &[(&str, &str)]) -> Ws {
        Ws::upgrade(Tcp::connect(address), address, headers)
    }

    /// Opens a WebSocket on a connection.
    #[track_caller]
    pub fn upgrade(mut tcp: Tcp, address: SocketAddr, headers: &[(&str, &str)]) -> Ws {
        tcp.send(Ws::request(address, headers));
        let response = tcp.response().expect("a response");
        assert_eq!(response.status, 101, "{}", response.text());
        let mut ws = Ws::opened(tcp);
        if response.header("sec-websocket-extensions").is_some() {
            ws.decoder.take_compressed();
        }
        ws
    }

    /// Opens a WebSocket whose messages are compressed.
    #[track_caller]
    pub fn compressed(tcp: Tcp, address: SocketAddr) -> Ws {
        let ws = Ws::upgrade(tcp, address, &[("sec-websocket-extensions", Compression::OFFER)]);
        assert!(ws.decoder.takes_compressed());
        ws
    }

    /// The upgrade request for a WebSocket.
    pub fn request(address: SocketAddr, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut request = format!(
            "GET /cometd HTTP/1.1\r\nhost: {address}\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        );
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        (request + "\r\n").into_bytes()
    }

    /// A connection whose upgrade the server has accepted.
    pub fn opened(tcp: Tcp) -> Ws {
        let decoder = Decoder::new(Role::Client, 64 * 1024 * 1024);
        Ws {
            tcp,
            decoder,
            inflater: Inflater::default(),
            read: 0,
            frames: Default::default(),
            id: String::new(),
            sent: 0,
        }
    }

    #[track_caller]
    pub fn send_raw(&mut self, bytes: impl AsRef<[u8]>) {
        self.tcp.send(bytes);
    }

    #[track_caller]
    pub fn send_text(&mut self, text: &str) {
        self.send_raw(frame(Opcode::Text, text.as_bytes()));
    }

    #[track_caller]
    pub fn send_json(&mut self, messages: &Value) {
        self.send_text(&messages.to_string());
    }

    /// The next frame.
    #[track_caller]
    pub fn next_frame(&mut self) -> Frame {
        while self.frames.is_empty() {
            let mut bytes = self.tcp.read_some();
            if bytes.is_empty() {
                return Frame::End;
            }
            self.read += bytes.len();
            let frames = &mut self.frames;
            let fed = self.decoder.feed_with(&mut bytes, &mut self.inflater, &mut |event| {
                frames.push_back(match event {
                    Event::Text(text) => Frame::Text(text.to_owned()),
                    Event::Binary(bytes) => Frame::Binary(bytes.to_vec()),
                    Event::Ping(bytes) => Frame::Ping(bytes.to_vec()),
                    Event::Pong(bytes) => Frame::Pong(bytes.to_vec()),
                    Event::Close(close) => close.map_or(Frame::Close(1005, String::new()), |(code, reason)| {
                        Frame::Close(code, reason.to_owned())
                    }),
                });
                Flow::Continue
            });
            fed.expect("the server keeps to RFC 6455");
        }
        self.frames.pop_front().unwrap_or(Frame::End)
    }

    /// The next frame, which must be a text of JSON.
    #[track_caller]
    pub fn next_json(&mut self) -> Value {
        match self.next_frame() {
            Frame::Text(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("no text but {other:?}"),
        }
    }

    /// The code and reason with which the server closes; earlier frames are skipped.
    #[track_caller]
    pub fn closed(&mut self) -> (u16, String) {
        loop {
            match self.next_frame() {
                Frame::Close(code, reason) => return (code, reason),
                Frame::End => panic!("the connection ended without a close frame"),
                _ => {}
            }
        }
    }

    /// True if the connection ends now, without another frame.
    #[track_caller]
    pub fn ends(&mut self) -> bool {
        let next = self.next_frame();
        assert_eq!(next, Frame::End);
        true
    }

    /// Opens a session and connects once, so that later connects are held.
    #[track_caller]
    pub fn handshake(&mut self) {
        self.send_json(&json!([{"id": "h", "channel": "/meta/handshake", "version": "1.0",
            "supportedConnectionTypes": ["websocket"]}]));
        let reply = self.next_json();
        assert_eq!(reply[0]["successful"], true, "{reply}");
        self.id = reply[0]["clientId"].as_str().expect("an id").to_owned();
        let reply = self.call(json!({"id": "c", "channel": "/meta/connect", "connectionType": "websocket",
            "advice": {"timeout": 0}}));
        assert_eq!(reply["successful"], true, "{reply}");
    }

    /// Adds the session's id to a message.
    pub fn mine(&self, mut message: Value) -> Value {
        message["clientId"] = json!(self.id);
        message
    }

    /// Sends one message of the session. Returns its reply, which must be the next frame.
    #[track_caller]
    pub fn call(&mut self, message: Value) -> Value {
        let message = self.mine(message);
        self.send_json(&json!([message]));
        let mut replies = self.next_json();
        assert_eq!(replies[0]["id"], message["id"], "{replies}");
        replies[0].take()
    }

    #[track_caller]
    pub fn subscribe(&mut self, channel: &str) {
        let reply = self.call(json!({"id": "s", "channel": "/meta/subscribe", "subscription": channel}));
        assert_eq!(reply["successful"], true, "{reply}");
    }

    /// Publishes to a channel to which this session is not subscribed.
    #[track_caller]
    pub fn publish(&mut self, channel: &str, data: Value) {
        let reply = self.call(json!({"id": "p", "channel": channel, "data": data}));
        assert_eq!(reply["successful"], true, "{reply}");
    }

    /// Sends a connect that is held. Returns its id.
    #[track_caller]
    pub fn start_connect(&mut self) -> String {
        self.sent += 1;
        let id = format!("held{}", self.sent);
        let message = self.mine(json!({"id": id, "channel": "/meta/connect", "connectionType": "websocket"}));
        self.send_json(&json!([message]));
        id
    }
}
