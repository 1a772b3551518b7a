//! Clients give something up: a session, a connection, a request, or the certainty of its result.

use bayeux::json::elements;

use crate::client::{Awaited, Phase, Route, What};
use crate::exchange::Exchange;
use crate::network::Item;
use crate::texts::field;
use crate::world::World;

impl World {
    /// The client abandons its session.
    pub(super) fn abandon(&mut self, client: usize, session: usize) {
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

    /// The client's unanswered requests may have been done or not, or may still be.
    pub(super) fn lose_sight(&mut self, client: usize) {
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
    pub(super) fn drop_old_conns(&mut self, client: usize) {
        for conn in std::mem::take(&mut self.clients[client].old_conns) {
            for text in self.network.leave(conn) {
                self.checker.lost(client, &text);
            }
            self.await_no_more(client, Route::Conn(conn));
        }
    }

    /// The client stops reading where an older connect might be answered: it is about to acknowledge the last batch.
    pub(super) fn abandon_connects(&mut self, client: usize) {
        self.drop_old_conns(client);
        self.abandon_requests(client, |exchange| exchange.connects);
    }

    /// The client stops waiting for these requests.
    pub(super) fn abandon_requests(&mut self, client: usize, which: fn(&Exchange) -> bool) {
        for exchange in 0..self.network.exchanges.len() {
            let state = &mut self.network.exchanges[exchange];
            if state.client == client && state.client_waits && which(state) {
                state.client_waits = false;
                self.end_route(client, Route::Exchange(exchange));
            }
        }
    }

    /// A client stops reading where replies to an older session or an older connect may arrive: it is about to
    /// resubscribe at positions.
    pub(super) fn cut_off(&mut self, client: usize) {
        if self.clients[client].follower.is_some() {
            let conn = self.clients[client].conn.take();
            self.clients[client].old_conns.extend(conn);
            self.drop_old_conns(client);
            self.abandon_requests(client, |_| true);
        }
    }

    /// A route is gone, from the view of the client.
    pub(super) fn end_route(&mut self, client: usize, route: Route) {
        if !self.clients[client].awaited.values().any(|awaited| awaited.route == route)
            && !self.is_in_use(client, route)
        {
            return;
        }
        if matches!(route, Route::Exchange(_)) && self.has_streamed(client) {
            self.await_on_stream(client, route);
        }
        self.lose_sight_of(client, route);
        self.await_no_more(client, route);
        let state = &mut self.clients[client];
        if state.connect.is_some_and(|(id, _)| !state.awaited.contains_key(&id)) {
            state.connect = None;
            state.next_ms = state.next_ms.min(self.now.ms);
        }
        match route {
            Route::Conn(conn) => {
                if state.conn == Some(conn) {
                    state.conn = None;
                }
                state.old_conns.retain(|old| *old != conn);
            }
            Route::Exchange(exchange) => {
                if state.busy == Some(exchange) {
                    state.busy = None;
                }
            }
        }
        if state.phase == Phase::Shaking && !state.awaited.values().any(|awaited| awaited.what == What::Handshake) {
            state.phase = Phase::Away;
        }
    }

    /// True for the answer to a connect that an acknowledging client has given up, on a stream: a later connect does not
    /// acknowledge its messages. The client drops it and opens another stream, on which they come again.
    pub(super) fn is_given_up(&mut self, client: usize, conn: usize, text: &str) -> bool {
        if self.network.conns[conn].stream.is_none() || self.clients[client].acknowledged.is_none() {
            return false;
        }
        if !self.network.conns[conn].client_open {
            return true;
        }
        let is_given_up = self.answers_given_up(client, text);
        if is_given_up {
            self.drop_conn(client, conn);
        }
        is_given_up
    }

    /// True for the answer to a connect that an acknowledging client has given up, or that was answered before.
    pub(super) fn answers_given_up(&mut self, client: usize, text: &str) -> bool {
        let state = &self.clients[client];
        let current = state.connect.map(|(id, _)| id.to_string());
        let is_other = |raw| field(raw, "channel") == "/meta/connect" && current.as_deref() != Some(&field(raw, "id"));
        let is_given_up = state.acknowledged.is_some() && elements(text).any(is_other);
        if is_given_up {
            self.note(|_| format!("client {client} drops the answer to a connect that it has given up: {text}"));
        }
        is_given_up
    }

    /// True if a client has ever had a stream.
    pub(super) fn has_streamed(&self, client: usize) -> bool {
        self.network.conns.iter().any(|conn| conn.client == client && conn.stream.is_some())
    }

    /// True if a client reads a stream, with its end, before a response that came later.
    pub(super) fn has_unread_stream(&self, client: usize) -> bool {
        let is_of_stream = |item: &Item| match item {
            Item::Bytes(conn, _) | Item::End(conn) => self.network.conns[*conn].stream.is_some(),
            Item::Response(..) | Item::Failed(_) => false,
        };
        self.network.inboxes[client].iter().any(is_of_stream)
    }

    /// The connect that a reply answers, if its client, which has a stream, gave its request up: the server may have held it on
    /// the stream.
    pub(super) fn given_up_connect(&self, client: usize, route: Route, raw: &str) -> Option<Awaited> {
        let streams = match route {
            Route::Conn(conn) => self.network.conns[conn].stream.is_some(),
            // The request may have come again over another transport.
            Route::Exchange(_) => self.has_streamed(client),
        };
        let connects = streams && field(raw, "channel") == "/meta/connect";
        connects.then(|| Awaited { route, session: self.session_on(route), owed: false, what: What::Connect })
    }

    /// The connect of a request may be held on the stream of its session, or be superseded there.
    fn await_on_stream(&mut self, client: usize, route: Route) {
        let state = &mut self.clients[client];
        let Some(conn) = state.conn.or(state.old_conns.last().copied()) else { return };
        for awaited in state.awaited.values_mut().filter(|it| it.route == route && it.what == What::Connect) {
            (awaited.owed, awaited.route) = (false, Route::Conn(conn));
        }
    }

    fn is_in_use(&self, client: usize, route: Route) -> bool {
        let state = &self.clients[client];
        match route {
            Route::Conn(conn) => state.conn == Some(conn) || state.old_conns.contains(&conn),
            Route::Exchange(exchange) => state.busy == Some(exchange),
        }
    }

    fn lose_sight_of(&mut self, client: usize, route: Route) {
        // Requests on other routes are not in doubt, but the streams are.
        let elsewhere: Vec<(u64, Awaited)> = self.clients[client]
            .awaited
            .iter()
            .filter(|(_, awaited)| awaited.route != route)
            .map(|(id, awaited)| (*id, awaited.clone()))
            .collect();
        self.clients[client].awaited.retain(|_, awaited| awaited.route == route);
        self.lose_sight(client);
        self.clients[client].awaited.extend(elsewhere);
    }
}
