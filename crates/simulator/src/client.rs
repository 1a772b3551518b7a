//! A client: its state, and its choice of the next action.

use std::collections::BTreeMap;

use crate::application::{ECHO, WHISPER, WHISPER_TO};
use crate::checker::{Published, Subscription};
use crate::claims::ANNOUNCED;
use crate::follower::Follower;
use crate::network::{Exchange, State, Up};
use crate::script::{LONG_BYTES, Transport};
use crate::world::World;

/// One client.
#[derive(Debug)]
pub struct Client {
    /// The transport it uses now.
    pub transport: Transport,
    /// The browser of which it is a window.
    pub browser: usize,
    /// Its phase.
    pub phase: Phase,
    /// Its WebSocket, if it uses one.
    pub conn: Option<usize>,
    /// Earlier WebSockets that it still reads.
    pub old_conns: Vec<usize>,
    /// Its pending request other than a connect, or the connect with which it resumed. There is only one, so that
    /// messages stay in order.
    pub busy: Option<usize>,
    /// The replies it awaits, by message id.
    pub awaited: BTreeMap<u64, Awaited>,
    /// Its connect: the message id, and the time it was sent.
    pub connect: Option<(u64, u64)>,
    /// The earliest time of the next connect or handshake, in milliseconds.
    pub next_ms: u64,
    /// The advised pause between connects, in milliseconds.
    pub interval_ms: u64,
    /// The stream of its publications.
    pub stream: usize,
    /// True if it reads.
    pub reading: bool,
    /// The last batch it has received, if its session acknowledges.
    pub acknowledged: Option<i64>,
    /// Its replay state, if it replays.
    pub follower: Option<Follower>,
    /// The number of error replies without an id that it expects, for garbage.
    pub nameless: usize,
}

/// The phase of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has no session.
    Away,
    /// It has sent a handshake.
    Shaking,
    /// It has this session.
    On(usize),
    /// It has left permanently.
    Vanished,
}

/// An awaited reply.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// The route on which the reply has to come.
    pub route: Route,
    /// The session of the message: its WebSocket may carry another one since.
    pub session: Option<usize>,
    /// True if the reply must come.
    pub owed: bool,
    /// The request that it answers.
    pub what: What,
}

/// The route of a message: a WebSocket or an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A WebSocket.
    Conn(usize),
    /// An HTTP exchange.
    Exchange(usize),
}

/// The request in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Open a session.
    Handshake,
    /// Wait for messages.
    Connect,
    /// End the session.
    Disconnect,
    /// Subscribe to these names.
    Subscribe(Vec<String>),
    /// End this subscription.
    Unsubscribe(String),
    /// Publish this publication.
    Publish(usize),
    /// A message that is refused or has no effect.
    Odd,
}

/// A message before it has an id.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Its channel.
    pub channel: String,
    /// More fields, each with a comma before it.
    pub fields: String,
    /// The request in it.
    pub what: What,
}

impl Client {
    /// A client without a session.
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

    /// True if it waits only for its connect.
    pub fn is_settled(&self) -> bool {
        self.phase != Phase::Shaking && self.first_owed().is_none()
    }

    /// A message other than a connect whose reply is owed.
    pub fn first_owed(&self) -> Option<(u64, &What)> {
        let owed = |(id, awaited): (&u64, &Awaited)| !matches!(awaited.what, What::Connect) && awaited.owed && *id > 0;
        self.awaited.iter().find(|(id, awaited)| owed((id, awaited))).map(|(id, awaited)| (*id, &awaited.what))
    }

    /// The time since which it awaits the reply to its connect, in milliseconds.
    pub fn connect_since_ms(&self) -> Option<u64> {
        let (id, since_ms) = self.connect?;
        self.awaited.get(&id).filter(|awaited| awaited.owed).map(|_| since_ms)
    }
}

impl World {
    /// Lets a client act.
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
                if self.clients[client].follower.as_ref().is_some_and(|follower| follower.names_positions) {
                    return self.name_positions(client, session);
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

    /// A connect that may have been overtaken gets no reply: clients stop waiting after a while.
    fn forget_overdue_connect(&mut self, client: usize) {
        let state = &mut self.clients[client];
        if let Some((id, since_ms)) = state.connect
            && self.now.ms > since_ms + CONNECT_WAIT_MAX_MS
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
                // Consecutive publications on one channel are fanned out together.
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
            94 if self.rng.chance(300) => self.disconnect(client),
            95..97 => {
                if let Some(conn) = self.clients[client].conn {
                    let up =
                        if self.rng.chance(500) { Up::Pong } else { Up::Ping(vec![7; self.network.rng.below(126)]) };
                    self.network.conns[conn].up.push_back(up);
                }
            }
            97 => self.give_up_a_request(client),
            _ => {
                // A batch of all kinds of messages.
                let mut messages = vec![self.publication(client, session), self.whisper(client, session)];
                messages.push(self.publication(client, session));
                self.send(client, messages);
            }
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

    /// The number and data of a new publication.
    fn data(&mut self, client: usize, from: usize, channel: &str) -> (usize, String) {
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

    fn subscribe(&mut self, client: usize, session: usize) {
        let mut names: Vec<String> = vec![self.name()];
        if self.rng.chance(200) {
            names.push(self.name());
        }
        let subscriptions = &mut self.checker.sessions[session].subscriptions;
        // The client leaves uncertain subscriptions alone: an earlier request may still be on its way.
        names.retain(|name| subscriptions.get(name) != Some(&Subscription::Uncertain));
        if names.is_empty() || !self.may_send(client, false) {
            return;
        }
        let positions = self.positions(client, session, &names);
        let subscriptions = &mut self.checker.sessions[session].subscriptions;
        for name in &names {
            if matches!(subscriptions.get(name), None | Some(Subscription::Gone(_))) {
                subscriptions.insert(name.clone(), Subscription::Requested);
            }
        }
        let raw = if names.len() == 1 { format!("\"{}\"", names[0]) } else { format!("[\"{}\"]", names.join("\",\"")) };
        let fields = format!(",\"subscription\":{raw}{positions}");
        self.send(client, vec![Outgoing { channel: "/meta/subscribe".into(), fields, what: What::Subscribe(names) }]);
    }

    /// A name to subscribe to.
    fn name(&mut self) -> String {
        let follows_members = self.has_presence() && !self.scenario.users.is_empty() && self.rng.chance(400);
        let name = if follows_members { self.rng.pick(&ANNOUNCED) } else { self.scenario.subscription(&mut self.rng) };
        name.to_owned()
    }

    fn unsubscribe(&mut self, client: usize, session: usize) {
        let subscriptions = &self.checker.sessions[session].subscriptions;
        let granted = subscriptions.iter().filter(|(_, subscription)| matches!(subscription, Subscription::Granted(_)));
        let mut granted: Vec<String> = granted.map(|(name, _)| name.clone()).collect();
        granted.retain(|name| !self.is_changing(session, name));
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

    /// The client disconnects.
    pub(crate) fn disconnect(&mut self, client: usize) {
        let Some(session) = self.clients[client].session() else { return };
        let message = Outgoing { channel: "/meta/disconnect".into(), fields: String::new(), what: What::Disconnect };
        if self.send(client, vec![message]) {
            self.abandon(client, session);
        }
    }

    /// The client abandons its session.
    pub(crate) fn abandon(&mut self, client: usize, session: usize) {
        self.checker.leave(session);
        let pause_ms = self.rng.between(0, 200);
        let state = &mut self.clients[client];
        state.phase = Phase::Away;
        state.connect = None;
        state.next_ms = self.now.ms + pause_ms;
        state.stream += 1;
        if let Some(follower) = &mut state.follower {
            follower.footing.clear();
            follower.names_positions = false;
        }
        for awaited in state.awaited.values_mut() {
            awaited.owed &= awaited.what != What::Connect;
        }
        self.recorder.with(|recording| recording.sessions[client] = None);
    }

    /// The client continues over another transport, or over another connection of the same kind.
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
        // A client that has acknowledged a batch must not read on where later ones may arrive.
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

    /// The client's unanswered requests may have been done or not, or may still be.
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

    /// The client drops the connections it used before.
    pub(crate) fn drop_old_conns(&mut self, client: usize) {
        for conn in std::mem::take(&mut self.clients[client].old_conns) {
            for text in self.network.leave(conn) {
                self.checker.lost(client, &text);
            }
            self.await_no_more(client, Route::Conn(conn));
        }
    }

    /// The client stops reading where an older connect might be answered: it is about to acknowledge the last batch.
    pub(crate) fn abandon_connects(&mut self, client: usize) {
        self.drop_old_conns(client);
        self.abandon_requests(client, |exchange| exchange.connects);
    }

    /// The client stops waiting for these requests.
    pub(crate) fn abandon_requests(&mut self, client: usize, which: fn(&Exchange) -> bool) {
        for exchange in 0..self.network.exchanges.len() {
            let state = &mut self.network.exchanges[exchange];
            if state.client == client && state.client_waits && which(state) {
                state.client_waits = false;
                self.end_route(client, Route::Exchange(exchange));
            }
        }
    }

    /// The client stops waiting for one of its requests.
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

    /// The connection of a request breaks. The server and the client both notice.
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

/// A message without effect.
pub(crate) fn odd(channel: &str, fields: &str) -> Outgoing {
    Outgoing { channel: channel.into(), fields: fields.into(), what: What::Odd }
}

/// The time for which a client waits for the reply to a connect that may have been overtaken, in milliseconds.
const CONNECT_WAIT_MAX_MS: u64 = 300;
/// Fields that a publisher must not be able to send to subscribers, and one that it may.
const HOSTILE_FIELDS: &str = concat!(
    ",\"advice\":{\"reconnect\":\"none\"},\"successful\":false,\"error\":\"402::session_unknown\"",
    ",\"subscription\":\"/a\",\"connectionType\":\"websocket\",\"x-custom\":[1,2.50]"
);
