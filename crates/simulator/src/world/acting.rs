//! A client's choice of its next action.

use crate::channels::ANNOUNCED;
use crate::checker::Subscription;
use crate::client::{Outgoing, Phase, Route, What};
use crate::exchange::{Exchange, State};
use crate::network::{Item, Up};
use crate::world::World;

impl World {
    /// Lets a client act.
    pub(super) fn act(&mut self, client: usize) {
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
                if self.rng.chance(300) && self.stream(client, session) {
                    return;
                }
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

    pub(super) fn subscribe(&mut self, client: usize, session: usize) {
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
    pub(super) fn name(&mut self) -> String {
        let follows_members = self.scenario.has_presence() && !self.scenario.users.is_empty() && self.rng.chance(400);
        let name = if follows_members { self.rng.pick(&ANNOUNCED) } else { self.scenario.subscription(&mut self.rng) };
        name.to_owned()
    }

    fn unsubscribe(&mut self, client: usize, session: usize) {
        let subscriptions = &self.checker.sessions[session].subscriptions;
        let granted = subscriptions.iter().filter(|(_, subscription)| matches!(subscription, Subscription::Granted(_)));
        let mut granted: Vec<String> = granted.map(|(name, _)| name.clone()).collect();
        granted.retain(|name| !self.changes.is_changing(session, name));
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
    pub(super) fn disconnect(&mut self, client: usize) {
        let Some(session) = self.clients[client].session() else { return };
        let message = Outgoing { channel: "/meta/disconnect".into(), fields: String::new(), what: What::Disconnect };
        if self.send(client, vec![message]) {
            self.abandon(client, session);
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
    pub(super) fn break_exchange(&mut self, client: usize) {
        let open =
            |x: &Exchange| x.client == client && x.client_waits && matches!(x.state, State::Sent(_) | State::Open);
        if let Some(exchange) = self.network.exchanges.iter().rposition(open) {
            self.checker.tally.breaks += 1;
            self.note(|_| format!("the connection of request {exchange} breaks"));
            self.network.exchanges[exchange].client_waits = false;
            self.network.inboxes[client].push_back(Item::Failed(exchange));
        }
    }
}

/// The time for which a client waits for the reply to a connect that may have been overtaken, in milliseconds.
const CONNECT_WAIT_MAX_MS: u64 = 300;
