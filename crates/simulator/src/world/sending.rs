//! Sending: a client's message travels as a text on its WebSocket, or as a request.

use encke_core::{ExchangeId, HttpTransport, Request};

use crate::channels::{ECHO, WHISPER, WHISPER_TO};
use crate::checker::Published;
use crate::client::{Awaited, Outgoing, Phase, Route, What, odd};
use crate::exchange::{Exchange, State};
use crate::network::Up;
use crate::script::{LONG_BYTES, Transport};
use crate::texts::form_of;
use crate::world::World;

impl World {
    /// True if the client's transport takes messages now. Over HTTP one request is under way at a time, and one
    /// connect.
    pub(super) fn may_send(&self, client: usize, connects: bool) -> bool {
        let state = &self.clients[client];
        state.transport == Transport::WebSocket || connects || state.busy.is_none()
    }

    /// Sends a batch on the client's current transport. False if that cannot take it yet.
    pub(super) fn send(&mut self, client: usize, messages: Vec<Outgoing>) -> bool {
        let connects = messages.iter().any(|message| message.what == What::Connect);
        // A message that is wrong in itself is no sign of life.
        let alive = messages.iter().any(|message| message.what != What::Odd);
        if !self.may_send(client, connects) {
            return false;
        }
        let route = match self.clients[client].transport {
            Transport::WebSocket => Route::Conn(self.conn_of(client)),
            _ => Route::Exchange(self.network.exchanges.len()),
        };
        let (text, ids) = self.write(client, route, messages);
        let session = self.clients[client].session();
        match route {
            Route::Conn(conn) => {
                let state = &mut self.network.conns[conn];
                state.session = session.or(state.session);
                self.network.conns[conn].up.push_back(Up::Text(text, session.filter(|_| alive)));
            }
            Route::Exchange(number) => {
                self.post(client, session, text, ids, connects);
                self.network.exchanges[number].sign_of_life = alive;
            }
        }
        true
    }

    /// The client's WebSocket, or a new one.
    fn conn_of(&mut self, client: usize) -> usize {
        if let Some(conn) = self.clients[client].conn {
            return conn;
        }
        let shard = self.rng.below(self.shards.len());
        let browser = self.browsers[self.clients[client].browser].0;
        let conn = self.network.open(client, shard, self.scenario.kernel_bytes, browser);
        self.clients[client].conn = Some(conn);
        conn
    }

    /// The client opens a stream, if its transport has one and it has none. True if it does so now.
    pub(super) fn stream(&mut self, client: usize, session: usize) -> bool {
        let state = &self.clients[client];
        // The messages of a stream that overtakes the subscribe at positions would be those behind what is missing.
        let asks = state.busy.is_some_and(|exchange| self.network.exchanges[exchange].connects);
        let Some(format) = state.transport.format().filter(|_| state.conn.is_none() && !asks) else { return false };
        let (id, browser) = (self.checker.sessions[session].id, self.browsers[state.browser].0);
        let conn = self.network.open_stream(client, id, self.scenario.kernel_bytes, browser, format);
        self.network.conns[conn].session = Some(session);
        self.clients[client].conn = Some(conn);
        self.note(|_| format!("client {client} opens stream {conn}"));
        true
    }

    /// Sends a request.
    pub(super) fn post(&mut self, client: usize, session: Option<usize>, body: String, ids: Vec<u64>, connects: bool) {
        let transport = self.clients[client].transport;
        let shard = self.rng.below(self.shards.len());
        let number = self.network.exchanges.len();
        let spoken = match transport {
            Transport::CallbackPolling => HttpTransport::CallbackPolling("cb".into()),
            _ => HttpTransport::LongPolling,
        };
        let request = Box::new(Request {
            exchange: ExchangeId { shard: shard as u16, number: number as u64 },
            transport: spoken,
            peer: encke_core::Peer::default(),
            head: None,
            browser: self.browsers[self.clients[client].browser].0,
            body: body.clone(),
            searched: encke_core::Searched::Nobody,
        });
        let state = State::Sent(request);
        let (client_waits, sign_of_life) = (true, true);
        self.network.request(Exchange {
            client,
            session,
            transport,
            ids,
            connects,
            sign_of_life,
            body,
            state,
            client_waits,
            shard,
            read_ms: 0,
        });
        if !connects {
            self.clients[client].busy = Some(number);
        }
    }

    /// Writes a batch as JSON. Returns it with the ids of its messages, whose replies are awaited from now on.
    fn write(&mut self, client: usize, route: Route, messages: Vec<Outgoing>) -> (String, Vec<u64>) {
        let own = self.clients[client].session();
        let session = own.map(|session| self.checker.sessions[session].text.clone());
        let mut ids = Vec::new();
        let mut texts = Vec::new();
        for Outgoing { channel, fields, what } in messages {
            self.message_ids += 1;
            let id = self.message_ids;
            let client_id = match &session {
                Some(session) if what != What::Handshake => format!(",\"clientId\":\"{session}\""),
                _ => String::new(),
            };
            texts.push(format!("{{\"channel\":\"{channel}\",\"id\":\"{id}\"{client_id}{fields}}}"));
            if what == What::Connect {
                // The older connect may get no reply.
                for awaited in self.clients[client].awaited.values_mut().filter(|awaited| awaited.what == What::Connect)
                {
                    awaited.owed = false;
                }
            }
            self.clients[client].awaited.insert(id, Awaited { route, session: own, owed: true, what });
            ids.push(id);
        }
        (format!("[{}]", texts.join(",")), ids)
    }

    /// The client opens a session.
    pub(super) fn shake_hands(&mut self, client: usize) {
        self.cut_off(client);
        let acknowledges = if self.scenario.laden { 900 } else { 400 };
        let ack = self.rng.chance(acknowledges).then(|| "\"ack\":true".to_owned());
        // Clients of jsforce offer replay only in subscribes: all subscribes of one that replays do.
        let offers_replay = self.clients[client].follower.is_some() && client % 4 != 1;
        let replay = offers_replay.then(|| format!("\"replay\":{}", form_of(client).offer()));
        let ext: Vec<String> = ack.into_iter().chain(replay).collect();
        let ext = if ext.is_empty() { String::new() } else { format!(",\"ext\":{{{}}}", ext.join(",")) };
        let mut messages = vec![Outgoing {
            channel: "/meta/handshake".into(),
            fields: format!("{HANDSHAKE_FIELDS}{ext}"),
            what: What::Handshake,
        }];
        // The server "MUST ignore" any other message in the batch of a handshake (Bayeux 1.0 §4.1).
        if self.rng.chance(50) {
            messages.push(odd("/a", ",\"data\":1"));
        }
        if self.send(client, messages) {
            self.clients[client].phase = Phase::Shaking;
        }
    }

    /// The client connects.
    pub(super) fn connect(&mut self, client: usize) {
        let advice = match self.rng.below(20) {
            0 => ",\"advice\":{\"timeout\":0}",
            1 => ",\"advice\":{\"timeout\":150,\"interval\":20}",
            _ => "",
        };
        let fields = format!(",\"connectionType\":\"{}\"{advice}", self.clients[client].transport.name());
        if self.clients[client].acknowledged.is_some() {
            self.abandon_connects(client);
        }
        let ack = self.clients[client].acknowledged.map(|batch| format!("\"ack\":{batch}"));
        let auth = (!self.scenario.users.is_empty() && self.rng.chance(50)).then(|| "\"auth\":{}".to_owned());
        let ext: Vec<String> = ack.into_iter().chain(auth).collect();
        let ext = if ext.is_empty() { String::new() } else { format!(",\"ext\":{{{}}}", ext.join(",")) };
        let fields = format!("{fields}{ext}");
        let connect = Outgoing { channel: "/meta/connect".into(), fields, what: What::Connect };
        let id = self.clients[client].awaited.keys().last().copied();
        if self.send(client, vec![connect]) {
            let sent = self.clients[client].awaited.keys().last().copied();
            debug_assert_ne!(id, sent);
            self.clients[client].connect = sent.map(|id| (id, self.now.ms));
        }
    }

    pub(super) fn publication(&mut self, client: usize, session: usize) -> Outgoing {
        let channel = self.scenario.channel(&mut self.rng);
        self.publication_on(client, session, channel)
    }

    pub(super) fn publication_on(&mut self, client: usize, session: usize, channel: &str) -> Outgoing {
        let (number, data) = self.data(client, session, channel);
        let hostile = if self.rng.chance(100) { HOSTILE_FIELDS } else { "" };
        Outgoing { channel: channel.into(), fields: format!("{hostile},\"data\":{data}"), what: What::Publish(number) }
    }

    pub(super) fn whisper(&mut self, client: usize, session: usize) -> Outgoing {
        let echo = self.rng.chance(400);
        let (number, data) = self.data(client, session, if echo { ECHO } else { WHISPER });
        let to = self.rng.below(self.clients.len());
        let channel = if echo { ECHO.to_owned() } else { format!("{WHISPER_TO}{to}") };
        Outgoing { channel, fields: format!(",\"data\":{data}"), what: What::Publish(number) }
    }

    /// The number and data of a new publication.
    pub(super) fn data(&mut self, client: usize, from: usize, channel: &str) -> (usize, String) {
        let number = self.checker.publications.len();
        let mut padding = "é".repeat(self.rng.below(self.scenario.padding_bytes / 2 + 1));
        if self.rng.chance(self.scenario.long) {
            padding = "x".repeat(self.rng.pick(&LONG_BYTES));
        }
        let data = format!("{{\"k\":{number},\"big\":12345678901234567890.10,\"t\":\"{padding}\"}}");
        let stream = self.clients[client].stream * self.clients.len() + client;
        let (channel, repeated, copies) = (channel.to_owned(), false, 0);
        self.checker.publications.push(Published { from, stream, channel, data: data.clone(), repeated, copies });
        (number, data)
    }
}

/// Fields that a publisher must not be able to send to subscribers, and one that it may.
const HOSTILE_FIELDS: &str = concat!(
    ",\"advice\":{\"reconnect\":\"none\"},\"successful\":false,\"error\":\"402::session_unknown\"",
    ",\"subscription\":\"/a\",\"connectionType\":\"websocket\",\"x-custom\":[1,2.50]"
);
const HANDSHAKE_FIELDS: &str = ",\"version\":\"1.0\",\"supportedConnectionTypes\":[\"websocket\",\"long-polling\"]";
