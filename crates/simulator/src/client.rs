//! A client: what it is, and what it decides to do next.

use std::collections::BTreeMap;

use crate::application::{ECHO, WHISPER, WHISPER_TO};
use crate::checker::{Publication, Wish};
use crate::follower::Follower;
use crate::network::{Exchange, State, Up};
use crate::script::{LONG_BYTES, Transport};
use crate::world::World;

/// One client.
#[derive(Debug)]
pub struct Client {
    /// How it wants to be served now.
    pub transport: Transport,
    /// The browser it is a window of.
    pub browser: usize,
    /// How far it is.
    pub phase: Phase,
    /// Its WebSocket, if it uses one.
    pub conn: Option<usize>,
    /// WebSockets that it used before and still reads.
    pub old_conns: Vec<usize>,
    /// The request that is under way, other than a connect, or the connect it came back with: only one, so that messages stay in order.
    pub busy: Option<usize>,
    /// Replies it waits for, by message id.
    pub awaited: BTreeMap<u64, Awaited>,
    /// Its connect: the message id, and when it was sent.
    pub connect: Option<(u64, u64)>,
    /// When it may connect or shake hands next, in milliseconds.
    pub next_ms: u64,
    /// The pause between connects it was told, in milliseconds.
    pub interval_ms: u64,
    /// The stream its publications belong to.
    pub stream: usize,
    /// Whether it reads.
    pub reading: bool,
    /// The last batch it has received, if its session acknowledges.
    pub acknowledged: Option<i64>,
    /// What it knows of the past, if it replays.
    pub follower: Option<Follower>,
    /// Error replies without an id that it has to expect, for garbage.
    pub nameless: usize,
}

/// How far a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has no session.
    Away,
    /// It has asked for one.
    Shaking,
    /// It has this session.
    On(usize),
    /// It has left permanently.
    Vanished,
}

/// A reply that is awaited.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// Where it has to come.
    pub route: Route,
    /// The session that the message was of: its WebSocket may carry another one since.
    pub session: Option<usize>,
    /// Whether it has to come at all.
    pub owed: bool,
    /// What it answers.
    pub what: What,
}

/// What carries a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A WebSocket.
    Conn(usize),
    /// An HTTP exchange.
    Exchange(usize),
}

/// What a message asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A session.
    Handshake,
    /// To be told what comes.
    Connect,
    /// The end of the session.
    Disconnect,
    /// These subscriptions.
    Subscribe(Vec<String>),
    /// The end of this subscription.
    Unsubscribe(String),
    /// This publication.
    Publish(usize),
    /// Something that is to be refused, or does not matter.
    Odd,
}

/// A message before it has an id.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its channel.
    pub channel: String,
    /// More fields, each with a comma before it.
    pub fields: String,
    /// What it is about.
    pub what: What,
}

impl Client {
    /// A client that is not there yet.
    pub fn new(transport: Transport, browser: usize) -> Client {
        Client {
            transport,
            browser,
            phase: Phase::Away,
            conn: None,
            old_conns: Vec::new(),
            busy: None,
            awaited: BTreeMap::new(),
            connect: None,
            next_ms: 0,
            interval_ms: 0,
            stream: 0,
            reading: true,
            acknowledged: None,
            follower: None,
            nameless: 0,
        }
    }

    /// Its session.
    pub fn session(&self) -> Option<usize> {
        match self.phase {
            Phase::On(session) => Some(session),
            _ => None,
        }
    }

    /// Whether it waits for nothing but its connect.
    pub fn is_settled(&self) -> bool {
        self.phase != Phase::Shaking && self.first_owed().is_none()
    }

    /// A message whose reply is owed, other than a connect.
    pub fn first_owed(&self) -> Option<(u64, &What)> {
        let owed = |(id, awaited): (&u64, &Awaited)| !matches!(awaited.what, What::Connect) && awaited.owed && *id > 0;
        self.awaited.iter().find(|(id, awaited)| owed((id, awaited))).map(|(id, awaited)| (*id, &awaited.what))
    }

    /// Since when it waits for the reply to its connect, in milliseconds.
    pub fn connect_since_ms(&self) -> Option<u64> {
        let (id, since_ms) = self.connect?;
        self.awaited.get(&id).filter(|awaited| awaited.owed).map(|_| since_ms)
    }
}

impl World {
    /// A client does something.
    pub(crate) fn act(&mut self, client: usize) {
        match self.clients[client].phase {
            Phase::Vanished | Phase::Shaking => {}
            Phase::Away => {
                let returns = !self.healing || (self.clients[client].follower.is_some() && !self.drained);
                if returns && self.now.ms >= self.clients[client].next_ms {
                    self.shake_hands(client);
                }
            }
            Phase::On(session) => {
                if self.clients[client].follower.as_ref().is_some_and(|follower| follower.names_places) {
                    return self.name_places(client, session);
                }
                self.forget_overdue_connect(client);
                if (self.healing || self.rng.chance(300)) && self.resume(client, session) {
                    return;
                }
                let due = self.clients[client].connect.is_none() && self.now.ms >= self.clients[client].next_ms;
                if due && (self.healing || self.rng.chance(700)) {
                    return self.connect(client);
                }
                if !self.healing {
                    self.do_something(client, session);
                }
            }
        }
    }

    /// A connect that may have been overtaken gets no reply: clients give up waiting some time.
    fn forget_overdue_connect(&mut self, client: usize) {
        let state = &mut self.clients[client];
        if let Some((id, since_ms)) = state.connect
            && self.now.ms > since_ms + PATIENCE_MS
            && state.awaited.get(&id).is_some_and(|awaited| !awaited.owed)
        {
            state.connect = None;
        }
    }

    fn do_something(&mut self, client: usize, session: usize) {
        if self.rng.chance(self.scenario.oddities) {
            return self.do_something_odd(client);
        }
        match self.rng.below(100) {
            0..50 => {
                let count = if self.rng.chance(300) { 1 + self.rng.below(6) } else { 1 };
                // Publications on one channel in a row are handed out together.
                let only = self.rng.chance(500).then(|| self.scenario.channel(&mut self.rng));
                let mut messages = Vec::new();
                for _ in 0..count {
                    let channel = only.unwrap_or_else(|| self.scenario.channel(&mut self.rng));
                    messages.push(self.publication_on(client, session, channel));
                }
                self.send(client, messages);
            }
            50..74 => self.subscribe(client, session),
            74..79 => self.unsubscribe(client, session),
            79..85 => {
                let message = self.whisper(client, session);
                self.send(client, vec![message]);
            }
            85..88 => self.switch(client),
            88..90 => self.clients[client].reading = false,
            90..94 => self.clients[client].reading = true,
            94 if self.rng.chance(300) => self.say_goodbye(client),
            95..97 => {
                if let Some(conn) = self.clients[client].conn {
                    let up =
                        if self.rng.chance(500) { Up::Pong } else { Up::Ping(vec![7; self.network.rng.below(126)]) };
                    self.network.conns[conn].up.push_back(up);
                }
            }
            97 => self.give_up_a_request(client),
            _ => {
                // A batch of everything.
                let mut messages = vec![self.publication(client, session), self.whisper(client, session)];
                messages.push(self.publication(client, session));
                self.send(client, messages);
            }
        }
    }

    fn shake_hands(&mut self, client: usize) {
        self.cut_off(client);
        // Salesforce's clients offer to replay with their subscribes only: all subscribes of one that replays do.
        let offers_replay = self.clients[client].follower.is_some() && client % 4 != 1;
        let acknowledges = if self.scenario.laden { 900 } else { 400 };
        let ext = match (self.rng.chance(acknowledges), offers_replay) {
            (true, true) => ",\"ext\":{\"ack\":true,\"replay\":true}",
            (true, false) => ",\"ext\":{\"ack\":true}",
            (false, true) => ",\"ext\":{\"replay\":true}",
            (false, false) => "",
        };
        let mut messages = vec![Outgoing {
            channel: "/meta/handshake".into(),
            fields: format!("{HANDSHAKE_FIELDS}{ext}"),
            what: What::Handshake,
        }];
        // "MUST ignore" anything else in the batch of a handshake (Bayeux 1.0 §4.1).
        if self.rng.chance(50) {
            messages.push(odd("/a", ",\"data\":1"));
        }
        if self.send(client, messages) {
            self.clients[client].phase = Phase::Shaking;
        }
    }

    fn connect(&mut self, client: usize) {
        let fields = match self.rng.below(20) {
            0 => ",\"connectionType\":\"x\",\"advice\":{\"timeout\":0}",
            1 => ",\"connectionType\":\"x\",\"advice\":{\"timeout\":150,\"interval\":20}",
            _ => ",\"connectionType\":\"x\"",
        };
        if self.clients[client].acknowledged.is_some() {
            self.abandon_connects(client);
        }
        let ext = self.clients[client].acknowledged.map(|batch| format!(",\"ext\":{{\"ack\":{batch}}}"));
        let fields = format!("{fields}{}", ext.unwrap_or_default());
        let connect = Outgoing { channel: "/meta/connect".into(), fields, what: What::Connect };
        let id = self.clients[client].awaited.keys().last().copied();
        if self.send(client, vec![connect]) {
            let sent = self.clients[client].awaited.keys().last().copied();
            debug_assert_ne!(id, sent);
            self.clients[client].connect = sent.map(|id| (id, self.now.ms));
        }
    }

    pub(crate) fn publication(&mut self, client: usize, session: usize) -> Outgoing {
        let channel = self.scenario.channel(&mut self.rng);
        self.publication_on(client, session, channel)
    }

    fn publication_on(&mut self, client: usize, session: usize, channel: &str) -> Outgoing {
        let (number, data) = self.data(client, session, channel);
        let hostile = if self.rng.chance(100) { HOSTILE_FIELDS } else { "" };
        Outgoing { channel: channel.into(), fields: format!("{hostile},\"data\":{data}"), what: What::Publish(number) }
    }

    fn whisper(&mut self, client: usize, session: usize) -> Outgoing {
        let echo = self.rng.chance(400);
        let (number, data) = self.data(client, session, if echo { ECHO } else { WHISPER });
        let to = self.rng.below(self.clients.len());
        let channel = if echo { ECHO.to_owned() } else { format!("{WHISPER_TO}{to}") };
        Outgoing { channel, fields: format!(",\"data\":{data}"), what: What::Publish(number) }
    }

    /// The data of a new publication, and its number.
    fn data(&mut self, client: usize, from: usize, channel: &str) -> (usize, String) {
        let number = self.checker.publications.len();
        let mut padding = "é".repeat(self.rng.below(self.scenario.padding_bytes / 2 + 1));
        if self.rng.chance(self.scenario.long) {
            padding = "x".repeat(self.rng.pick(&LONG_BYTES));
        }
        let data = format!("{{\"k\":{number},\"big\":12345678901234567890.10,\"t\":\"{padding}\"}}");
        let stream = self.clients[client].stream * self.clients.len() + client;
        let (channel, repeated, copies) = (channel.to_owned(), false, 0);
        self.checker.publications.push(Publication { from, stream, channel, data: data.clone(), repeated, copies });
        (number, data)
    }

    fn subscribe(&mut self, client: usize, session: usize) {
        let mut names: Vec<String> = vec![self.scenario.subscription(&mut self.rng).to_owned()];
        if self.rng.chance(200) {
            names.push(self.scenario.subscription(&mut self.rng).to_owned());
        }
        let wishes = &mut self.checker.sessions[session].wishes;
        // What a client is not sure of it leaves alone: an earlier request may still be on its way.
        names.retain(|name| wishes.get(name) != Some(&Wish::Unsure));
        if names.is_empty() || !self.may_send(client, false) {
            return;
        }
        let positions = self.positions(client, session, &names);
        let wishes = &mut self.checker.sessions[session].wishes;
        for name in &names {
            if matches!(wishes.get(name), None | Some(Wish::Gone(_))) {
                wishes.insert(name.clone(), Wish::Asked);
            }
        }
        let raw = if names.len() == 1 { format!("\"{}\"", names[0]) } else { format!("[\"{}\"]", names.join("\",\"")) };
        let fields = format!(",\"subscription\":{raw}{positions}");
        self.send(client, vec![Outgoing { channel: "/meta/subscribe".into(), fields, what: What::Subscribe(names) }]);
    }

    fn unsubscribe(&mut self, client: usize, session: usize) {
        let wishes = &self.checker.sessions[session].wishes;
        let granted = wishes.iter().filter(|(_, wish)| matches!(wish, Wish::Granted(_)));
        let granted: Vec<String> = granted.map(|(name, _)| name.clone()).collect();
        if granted.is_empty() || !self.may_send(client, false) {
            return;
        }
        let name = granted[self.rng.below(granted.len())].clone();
        self.give_up(client, session, &name);
        self.checker.withdraw(session, &name);
        let fields = format!(",\"subscription\":\"{name}\"");
        let what = What::Unsubscribe(name);
        self.send(client, vec![Outgoing { channel: "/meta/unsubscribe".into(), fields, what }]);
    }

    /// The client says that it leaves.
    pub(crate) fn say_goodbye(&mut self, client: usize) {
        let Some(session) = self.clients[client].session() else { return };
        let goodbye = Outgoing { channel: "/meta/disconnect".into(), fields: String::new(), what: What::Disconnect };
        if self.send(client, vec![goodbye]) {
            self.forsake(client, session);
        }
    }

    /// The client has no more use for its session.
    pub(crate) fn forsake(&mut self, client: usize, session: usize) {
        self.checker.leave(session);
        let pause_ms = self.rng.between(0, 200);
        let state = &mut self.clients[client];
        state.phase = Phase::Away;
        state.connect = None;
        state.next_ms = self.now.ms + pause_ms;
        state.stream += 1;
        if let Some(follower) = &mut state.follower {
            follower.footing.clear();
            follower.names_places = false;
        }
        for awaited in state.awaited.values_mut() {
            awaited.owed &= awaited.what != What::Connect;
        }
        self.recorder.with(|desk| desk.sessions[client] = None);
    }

    /// The client goes on over another transport, or another connection of the same kind.
    pub(crate) fn switch(&mut self, client: usize) {
        self.checker.tally.switches += 1;
        self.walk_away(client, self.clients[client].session());
        let to = self.rng.pick(&[
            Transport::WebSocket,
            Transport::WebSocket,
            Transport::LongPolling,
            Transport::LongPolling,
            Transport::CallbackPolling,
        ]);
        // Who has said which batch came last must not read on where later ones may come.
        let careful = self.clients[client].acknowledged.is_none() && self.rng.chance(600);
        self.note(|_| format!("client {client} switches to {to:?}, carefully: {careful}"));
        self.lose_sight(client);
        let state = &mut self.clients[client];
        state.transport = to;
        state.connect = None;
        state.next_ms = self.now.ms;
        if let Some(conn) = state.conn.take() {
            state.old_conns.push(conn);
            if !careful {
                self.drop_old_conns(client);
            }
        }
    }

    /// What the client has asked for and got no reply to may have been done or not, or may still be.
    pub(crate) fn lose_sight(&mut self, client: usize) {
        let session = self.clients[client].session();
        let mut unsure = Vec::new();
        for awaited in self.clients[client].awaited.values_mut() {
            awaited.owed = false;
            match &awaited.what {
                What::Subscribe(names) => unsure.extend(names.iter().cloned()),
                What::Unsubscribe(name) => unsure.push(name.clone()),
                _ => {}
            }
        }
        self.clients[client].stream += 1;
        if let Some(session) = session {
            for name in unsure {
                self.checker.withdraw(session, &name);
            }
        }
    }

    /// The client lets go of the connections it used before.
    pub(crate) fn drop_old_conns(&mut self, client: usize) {
        for conn in std::mem::take(&mut self.clients[client].old_conns) {
            for text in self.network.leave(conn) {
                self.checker.lost(client, &text);
            }
            self.await_no_more(client, Route::Conn(conn));
        }
    }

    /// The client reads no more where an older connect might be answered: it is about to say which batch came last.
    fn abandon_connects(&mut self, client: usize) {
        self.drop_old_conns(client);
        self.abandon_requests(client, |exchange| exchange.connects);
    }

    /// The client waits no longer for these requests.
    pub(crate) fn abandon_requests(&mut self, client: usize, which: fn(&Exchange) -> bool) {
        for exchange in 0..self.network.exchanges.len() {
            let state = &mut self.network.exchanges[exchange];
            if state.client == client && state.client_waits && which(state) {
                state.client_waits = false;
                self.end_route(client, Route::Exchange(exchange));
            }
        }
    }

    /// The client waits no longer for one of its requests.
    fn give_up_a_request(&mut self, client: usize) {
        let open =
            |x: &Exchange| x.client == client && x.client_waits && matches!(x.state, State::Sent(_) | State::Open);
        if let Some(exchange) = self.network.exchanges.iter().rposition(open) {
            self.note(|_| format!("client {client} gives up request {exchange}"));
            self.network.exchanges[exchange].client_waits = false;
            self.end_route(client, Route::Exchange(exchange));
            self.walk_away(client, self.network.exchanges[exchange].session);
        }
    }

    /// The connection of a request breaks: the server notices, and its client, too.
    pub(crate) fn break_exchange(&mut self, client: usize) {
        let open =
            |x: &Exchange| x.client == client && x.client_waits && matches!(x.state, State::Sent(_) | State::Open);
        if let Some(exchange) = self.network.exchanges.iter().rposition(open) {
            self.checker.tally.breaks += 1;
            self.note(|_| format!("the connection of request {exchange} breaks"));
            self.network.exchanges[exchange].client_waits = false;
            self.network.inboxes[client].push_back(crate::network::Item::Failed(exchange));
        }
    }
}

/// A message that does not matter.
pub(crate) fn odd(channel: &str, fields: &str) -> Outgoing {
    Outgoing { channel: channel.into(), fields: fields.into(), what: What::Odd }
}

/// How long a client waits for the reply to a connect that may have been overtaken, in milliseconds.
const PATIENCE_MS: u64 = 300;
const HANDSHAKE_FIELDS: &str = ",\"version\":\"1.0\",\"supportedConnectionTypes\":[\"websocket\",\"long-polling\"]";
/// What a publisher must not be able to say to subscribers, and one field that it may.
const HOSTILE_FIELDS: &str = concat!(
    ",\"advice\":{\"reconnect\":\"none\"},\"successful\":false,\"error\":\"402::session_unknown\"",
    ",\"subscription\":\"/a\",\"connectionType\":\"websocket\",\"x-custom\":[1,2.50]"
);
