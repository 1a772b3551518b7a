//! A Bayeux session over long-polling, all on one connection: handshake, subscription, then one held connect after
//! another (Bayeux 1.0 §4 and §6.1). Another one publishes the chunks.

use serde_json::{Value, json};

use super::listener::{Listener, ListenerShared};
use crate::engine::Target;
use crate::engine::clock::now_us;
use crate::engine::http::{self, Head, Piece, Responses};

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    role: Role,
    state: State,
    client_id: String,
    /// The value of the `Cookie` header.
    cookies: String,
    responses: Responses,
    head: Head,
    body: Vec<u8>,
}

#[derive(Debug)]
enum Role {
    Listens(Listener),
    Publishes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Handshaking,
    Subscribing,
    Connected,
}

impl Session {
    pub(super) fn listens(listener: Listener) -> Session {
        Session::new(Role::Listens(listener))
    }

    pub(super) fn publishes() -> Session {
        Session::new(Role::Publishes)
    }

    fn new(role: Role) -> Session {
        Session {
            role,
            state: State::Handshaking,
            client_id: String::new(),
            cookies: String::new(),
            responses: Responses::default(),
            head: Head::default(),
            body: Vec::new(),
        }
    }

    pub(super) fn listener(&self) -> Option<&Listener> {
        match &self.role {
            Role::Listens(listener) => Some(listener),
            Role::Publishes => None,
        }
    }

    pub(super) fn listener_mut(&mut self) -> Option<&mut Listener> {
        match &mut self.role {
            Role::Listens(listener) => Some(listener),
            Role::Publishes => None,
        }
    }

    /// Shakes hands.
    pub(super) fn connected(&mut self, target: &Target, out: &mut Vec<u8>, shared: &mut ListenerShared) {
        let handshake = json!([{"id": "1", "channel": "/meta/handshake", "version": "1.0", "minimumVersion": "1.0",
            "supportedConnectionTypes": ["long-polling"]}]);
        self.post(&handshake, target, out);
        shared.sent += 1;
    }

    /// Takes responses and sends the next request.
    ///
    /// # Errors
    /// The server refuses, or the response is not Bayeux.
    pub(super) fn received(
        &mut self,
        bytes: &[u8],
        target: &Target,
        out: &mut Vec<u8>,
        shared: &mut ListenerShared,
    ) -> Result<usize, String> {
        let mut at = 0;
        while let Some((piece, used)) = self.responses.next(&bytes[at..])? {
            at += used;
            match piece {
                Piece::Head(head) => self.head = head,
                Piece::Body(body) => {
                    self.body.extend_from_slice(body);
                    if self.body.len() > BODY_BYTES_MAX {
                        return Err(format!("answered with over {BODY_BYTES_MAX} bytes"));
                    }
                }
                Piece::End if self.head.status >= 200 => self.answered(target, out, shared)?,
                Piece::End => {}
            }
        }
        Ok(at)
    }

    /// Publishes the next chunk, which is due at `due_us`.
    pub(super) fn publish(&mut self, due_us: u64, target: &Target, out: &mut Vec<u8>, shared: &mut ListenerShared) {
        shared.published += 1;
        let data = json!({"chunk": shared.published, "due": due_us});
        let message = json!([{"id": "p", "channel": CHANNEL, "clientId": self.client_id, "data": data}]);
        self.post(&message, target, out);
    }

    /// Keeps a session that only publishes from expiring, with a connect that is answered at once.
    pub(super) fn keep_alive(&mut self, target: &Target, out: &mut Vec<u8>) {
        let connect = json!([{"id": "k", "channel": "/meta/connect", "clientId": self.client_id,
            "connectionType": "long-polling", "advice": {"timeout": 0}}]);
        self.post(&connect, target, out);
    }

    fn answered(&mut self, target: &Target, out: &mut Vec<u8>, shared: &mut ListenerShared) -> Result<(), String> {
        let body = std::mem::take(&mut self.body);
        if self.head.status != 200 {
            return Err(format!("answered {}", self.head.reason));
        }
        http::set_cookies(&mut self.cookies, &self.head.cookies);
        shared.bytes += body.len() as u64;
        let messages: Vec<Value> = serde_json::from_slice(&body).map_err(|_| "answered with no batch of messages")?;
        for message in &messages {
            self.take(message, shared)?;
        }
        self.send_next(target, out, shared)
    }

    fn take(&mut self, message: &Value, shared: &mut ListenerShared) -> Result<(), String> {
        let channel = message["channel"].as_str().unwrap_or_default();
        if message["successful"] == false {
            let error = message["error"].as_str().unwrap_or("no reason given");
            return Err(format!("refused {channel}: {error}"));
        }
        match (channel, &mut self.role) {
            ("/meta/handshake", _) => {
                let id = message["clientId"].as_str().ok_or("gave no clientId")?;
                self.client_id = id.to_owned();
            }
            (CHANNEL, Role::Listens(listener)) if message.get("data").is_some() => {
                let number =
                    |name: &str| message["data"][name].as_u64().ok_or("delivered something else than was sent");
                listener.chunk(number("chunk")?, Some(number("due")?), shared);
            }
            ("/meta/subscribe", Role::Listens(listener)) => listener.welcome(shared.published + 1, shared),
            _ => {}
        }
        Ok(())
    }

    fn send_next(&mut self, target: &Target, out: &mut Vec<u8>, shared: &mut ListenerShared) -> Result<(), String> {
        let id = &self.client_id;
        let next = match (self.state, &self.role) {
            (State::Handshaking, _) if id.is_empty() => return Err("did not answer the handshake".into()),
            (State::Handshaking, Role::Publishes) => {
                self.state = State::Connected;
                shared.can_publish = true;
                return Ok(());
            }
            (State::Connected, Role::Publishes) | (State::Subscribing, Role::Publishes) => return Ok(()),
            (State::Handshaking, Role::Listens(_)) => {
                self.state = State::Subscribing;
                json!([{"id": "2", "channel": "/meta/subscribe", "clientId": id, "subscription": CHANNEL}])
            }
            (State::Subscribing, Role::Listens(listener)) if !listener.is_welcomed() => {
                return Err("did not answer the subscription".into());
            }
            (State::Subscribing | State::Connected, Role::Listens(_)) => {
                self.state = State::Connected;
                json!([{"id": "3", "channel": "/meta/connect", "clientId": id, "connectionType": "long-polling"}])
            }
        };
        self.post(&next, target, out);
        shared.sent += 1;
        Ok(())
    }

    fn post(&self, messages: &Value, target: &Target, out: &mut Vec<u8>) {
        http::post(target, &self.cookies, messages.to_string().as_bytes(), out);
    }
}

/// The time of the publisher's next keep-alive.
pub(super) fn next_keep_alive_us() -> u64 {
    now_us() + KEEP_ALIVE_EVERY_US
}

/// The channel of the chunks.
const CHANNEL: &str = "/flood/chunks";
/// Servers forget a session after ten seconds and more.
const KEEP_ALIVE_EVERY_US: u64 = 3_000_000;
/// Length of one answer, in bytes.
const BODY_BYTES_MAX: usize = 1024 * 1024;
