//! One WebSocket connection of the load: a subscriber or the publisher, in either dialect.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use rustix::event::epoll::EventFlags;
use serde_json::Value;
use websocket::{Opcode, frame, handshake};

use crate::dialect::Dialect;
use crate::load::{Client, MESSAGE_BYTES_MAX, READ_BYTES};
use crate::problem::Problem;
use crate::reader::{Reader, Tally};

/// What a connection is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// Receives what is published to the fan-out's one channel.
    Subscribe,
    /// Subscribes to a channel of its own, this prefix and its number.
    SubscribeAlone(String),
    /// Publishes.
    Publish,
}

/// What all connections of a run have in common.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the server speaks.
    pub dialect: Dialect,
    /// The path to connect to.
    pub path: String,
    /// What the connections are for.
    pub purpose: Purpose,
}

/// A connection.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
    index: u32,
    state: State,
    plan: Plan,
    tail: Vec<u8>,
    unsent: Vec<u8>,
    /// What it has received.
    pub tally: Tally,
    /// How many of its publications the server has acknowledged.
    pub acknowledged: u64,
}

/// ```text
/// Connecting → Upgrading → Open                                                  floor
/// Connecting → Upgrading → Handshaking → FirstConnect → Subscribing → Open       Bayeux; the publisher skips Subscribing
/// ```
#[derive(Debug)]
enum State {
    Connecting,
    Upgrading { key: String },
    Handshaking,
    FirstConnect { client_id: String },
    Subscribing { client_id: String },
    Open { client_id: String },
}

impl Client for Session {
    type Plan = Plan;

    fn start(plan: &Plan, index: u32, stream: TcpStream) -> Self {
        Session {
            stream,
            index,
            state: State::Connecting,
            plan: plan.clone(),
            tail: Vec::new(),
            unsent: Vec::new(),
            tally: Tally::default(),
            acknowledged: 0,
        }
    }

    fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn ready(&mut self, flags: EventFlags, scratch: &mut [u8], reader: &mut Reader) -> Result<(), Problem> {
        if flags.contains(EventFlags::OUT) {
            self.connected()?;
            self.flush()?;
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(scratch, reader)?;
            self.flush()?;
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    fn wants_write(&self) -> bool {
        !self.unsent.is_empty() || matches!(self.state, State::Connecting)
    }

    fn leave(&mut self) {
        let State::Open { client_id } = &self.state else { return };
        if self.plan.dialect == Dialect::Bayeux {
            self.send(&format!(r#"[{{"id":"5","channel":"/meta/disconnect","clientId":"{client_id}"}}]"#));
            // The socket is closed in a moment, whatever became of this.
            let _ = self.flush();
        }
    }
}

impl Session {
    /// Publishes in one message: sequence number and planned time of each publication.
    pub fn publish(&mut self, publications: impl Iterator<Item = (u32, u64)>) -> Result<(), Problem> {
        let State::Open { client_id } = &self.state else {
            return Err(Problem::Usage("the publisher is not open".into()));
        };
        let mut payload = Vec::new();
        self.plan.dialect.publish(client_id, publications, &mut payload);
        frame::masked(Opcode::Text, &payload, MASK_KEY, &mut self.unsent);
        if self.unsent.len() > UNSENT_BYTES_MAX {
            return Err(Problem::Server(format!("takes no publications: {UNSENT_BYTES_MAX} bytes wait for it")));
        }
        self.flush()
    }

    fn connected(&mut self) -> Result<(), Problem> {
        if !matches!(self.state, State::Connecting) {
            return Ok(());
        }
        if let Some(error) = self.stream.take_error()? {
            return Err(Problem::Server(format!("connect: {error}")));
        }
        let key = handshake::client_key((u128::from(self.index) + 1).wrapping_mul(KEY_SEED).to_be_bytes());
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n",
            self.plan.path
        );
        self.unsent.extend_from_slice(request.as_bytes());
        self.state = State::Upgrading { key };
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Problem> {
        while !self.unsent.is_empty() {
            match (&self.stream).write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Problem::Server(format!("write: {error}"))),
            }
        }
        Ok(())
    }

    fn receive(&mut self, scratch: &mut [u8], reader: &mut Reader) -> Result<(), Problem> {
        let kept = self.tail.len();
        scratch[..kept].copy_from_slice(&self.tail);
        let read = match (&self.stream).read(&mut scratch[kept..kept + READ_BYTES]) {
            Ok(0) => return Err(Problem::Server("closed the connection".into())),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(Problem::Server(format!("read: {error}"))),
        };
        reader.arrived();
        let bytes = &scratch[..kept + read];
        let mut used = 0;
        if let State::Upgrading { key } = &self.state {
            let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
                return self.keep(bytes);
            };
            check_upgrade(&bytes[..end], key)?;
            used = end + 4;
            self.upgraded();
        }
        used += self.frames(&bytes[used..], reader)?;
        self.keep(&bytes[used..])
    }

    fn keep(&mut self, rest: &[u8]) -> Result<(), Problem> {
        if rest.len() > MESSAGE_BYTES_MAX {
            return Err(Problem::Server(format!("sent a message over {MESSAGE_BYTES_MAX} bytes")));
        }
        self.tail.clear();
        self.tail.extend_from_slice(rest);
        Ok(())
    }

    /// Takes all whole frames and says how many bytes they are.
    fn frames(&mut self, bytes: &[u8], reader: &mut Reader) -> Result<usize, Problem> {
        let mut at = 0;
        while let Some((head, length)) = frame::split(&bytes[at..]) {
            let payload = &bytes[at + head..at + head + length];
            if bytes[at] != WHOLE_TEXT {
                self.control(bytes[at], payload)?;
            } else if !reader.take(payload, self.index, &mut self.tally) {
                self.parse(payload, reader)?;
            }
            at += head + length;
        }
        Ok(at)
    }

    fn control(&mut self, first: u8, payload: &[u8]) -> Result<(), Problem> {
        match first {
            WHOLE_PING => frame::masked(Opcode::Pong, payload, MASK_KEY, &mut self.unsent),
            WHOLE_PONG => {}
            WHOLE_CLOSE => {
                let reason = String::from_utf8_lossy(payload.get(2..).unwrap_or_default());
                return Err(Problem::Server(format!("closed the WebSocket: {reason}")));
            }
            other => return Err(Problem::Server(format!("sent a frame that begins with {other:#04x}"))),
        }
        Ok(())
    }

    fn parse(&mut self, payload: &[u8], reader: &mut Reader) -> Result<(), Problem> {
        let messages: Vec<Value> = serde_json::from_slice(payload)
            .map_err(|error| Problem::Server(format!("sent no Bayeux messages: {error}")))?;
        let alone = (messages.len() == 1).then_some(payload);
        for message in &messages {
            if !reader.take_parsed(message, alone, self.index, &mut self.tally) {
                self.reply(message)?;
            }
        }
        Ok(())
    }

    fn reply(&mut self, message: &Value) -> Result<(), Problem> {
        let channel = message["channel"].as_str().unwrap_or_default();
        if message["successful"] != Value::Bool(true) {
            return Err(Problem::Server(format!("refused {message}")));
        }
        let state = std::mem::replace(&mut self.state, State::Handshaking);
        self.state = match (channel, state) {
            ("/meta/handshake", State::Handshaking) => {
                let client_id = message["clientId"].as_str().unwrap_or_default().to_owned();
                self.send(&format!(
                    r#"[{{"id":"2","channel":"/meta/connect","clientId":"{client_id}","connectionType":"websocket","advice":{{"timeout":0}}}}]"#
                ));
                State::FirstConnect { client_id }
            }
            ("/meta/connect", State::FirstConnect { client_id }) => self.subscribe(client_id),
            ("/meta/subscribe", State::Subscribing { client_id }) => {
                self.hold(&client_id);
                State::Open { client_id }
            }
            ("/meta/connect", State::Open { client_id }) => {
                // Who leaves is told with the last connect not to come again.
                if message["advice"]["reconnect"] != "none" {
                    self.hold(&client_id);
                }
                State::Open { client_id }
            }
            (_, state) => {
                self.acknowledged += 1;
                state
            }
        };
        Ok(())
    }

    fn upgraded(&mut self) {
        self.state = match self.plan.dialect {
            Dialect::Floor => State::Open { client_id: String::new() },
            Dialect::Bayeux => {
                self.send(
                    r#"[{"id":"1","channel":"/meta/handshake","version":"1.0","minimumVersion":"1.0","supportedConnectionTypes":["websocket","long-polling"]}]"#,
                );
                State::Handshaking
            }
        };
    }

    fn subscribe(&mut self, client_id: String) -> State {
        let channel = match &self.plan.purpose {
            Purpose::Subscribe => crate::dialect::FANOUT_CHANNEL.to_owned(),
            Purpose::SubscribeAlone(prefix) => format!("{prefix}{}", self.index),
            Purpose::Publish => {
                self.hold(&client_id);
                return State::Open { client_id };
            }
        };
        self.send(&format!(
            r#"[{{"id":"3","channel":"/meta/subscribe","clientId":"{client_id}","subscription":"{channel}"}}]"#
        ));
        State::Subscribing { client_id }
    }

    /// Sends the connect that the server holds as the heartbeat.
    fn hold(&mut self, client_id: &str) {
        self.send(&format!(
            r#"[{{"id":"4","channel":"/meta/connect","clientId":"{client_id}","connectionType":"websocket"}}]"#
        ));
    }

    fn send(&mut self, text: &str) {
        frame::masked(Opcode::Text, text.as_bytes(), MASK_KEY, &mut self.unsent);
    }
}

/// Checks status and digest of the server's answer (RFC 6455 §4.1).
fn check_upgrade(head: &[u8], key: &str) -> Result<(), Problem> {
    let head = String::from_utf8_lossy(head);
    let line = head.lines().next().unwrap_or_default();
    if line.split(' ').nth(1) != Some("101") {
        return Err(Problem::Server(format!("did not upgrade: {line}")));
    }
    let accept = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(name, value)| name.eq_ignore_ascii_case("sec-websocket-accept").then(|| value.trim().to_owned()));
    if accept.as_deref() != Some(handshake::accept(key).as_str()) {
        return Err(Problem::Server("answered the upgrade with a wrong digest".into()));
    }
    Ok(())
}

const WHOLE_TEXT: u8 = 0x81;
const WHOLE_CLOSE: u8 = 0x88;
const WHOLE_PING: u8 = 0x89;
const WHOLE_PONG: u8 = 0x8A;
/// Any key but zero, so that the server has to unmask; a load has nothing to hide from proxies (RFC 6455 §10.3).
const MASK_KEY: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];
/// Odd and large, so that each session has a key of its own.
const KEY_SEED: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
/// About 100,000 publications.
const UNSENT_BYTES_MAX: usize = 16 * 1024 * 1024;
