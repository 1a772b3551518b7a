//! The client's handling of its input, and the checks there.

use bayeux::json::{decode_string, elements, integer, member, members};
use encke_core::{Id, Response};

use crate::channels::OBITUARIES;
use crate::checker::{Invariant, Subscription};
use crate::client::{Awaited, Phase, Route, What};
use crate::network::{Found, Item};
use crate::sabotage::Sabotage;
use crate::script::Transport;
use crate::texts::{
    OBITUARY, field, is_about_credentials, is_ending, is_failed_call, is_over_limit, is_token_refused, is_undecided,
    json_of, number_of, split_position,
};
use crate::world::World;
use crate::world::inspecting::TEXT_BYTES_MAX;

impl World {
    /// A client reads a random amount of its input.
    pub(super) fn read(&mut self, client: usize) {
        if self.clients[client].reading {
            for _ in 0..=self.rng.below(4) {
                self.read_one(client);
            }
        }
    }

    /// A client reads one item. False if there is none.
    pub(super) fn read_one(&mut self, client: usize) -> bool {
        let at = self.overtaking(client);
        if let Some(Item::Response(exchange, _)) = self.network.inboxes[client].get(at)
            && !self.healing
            && self.network.exchanges[*exchange].read_ms > self.now.ms
        {
            return false;
        }
        let Some(item) = self.network.inboxes[client].remove(at) else { return false };
        match item {
            Item::Bytes(conn, mut bytes) => {
                self.sip(client, conn, &mut bytes);
                self.garble(conn, &mut bytes);
                for found in self.network.read(conn, bytes) {
                    self.found(client, conn, found);
                }
            }
            Item::End(conn) => {
                self.note(|_| format!("client {client} sees the end of connection {conn}"));
                self.drop_conn(client, conn);
            }
            Item::Response(exchange, response) => self.response(client, exchange, &response),
            Item::Failed(exchange) => self.failed(client, exchange),
        }
        true
    }

    /// A client that reads slowly takes only the first bytes. The others stay in the kernel.
    fn sip(&mut self, client: usize, conn: usize, bytes: &mut Vec<u8>) {
        let sip_bytes = self.scenario.sip_bytes;
        if sip_bytes > 0 && client.is_multiple_of(2) && bytes.len() > sip_bytes && !self.healing {
            let rest = bytes.split_off(1 + self.rng.below(sip_bytes));
            self.network.inboxes[client].push_front(Item::Bytes(conn, rest));
            self.checker.tally.sips += 1;
        }
    }

    /// Chooses the next item a client reads: for a client that replays, a response may overtake.
    fn overtaking(&mut self, client: usize) -> usize {
        let inbox = &self.network.inboxes[client];
        if self.clients[client].follower.is_none()
            || self.has_unread_stream(client)
            || inbox.len() < 2
            || !self.rng.chance(300)
        {
            return 0;
        }
        let at = self.rng.below(inbox.len());
        let overtakes = at > 0 && matches!(inbox[at], Item::Response(..));
        self.checker.tally.overtaken += u64::from(overtakes);
        if overtakes { at } else { 0 }
    }

    fn found(&mut self, client: usize, conn: usize, found: Found) {
        match found {
            Found::Text(text) if self.is_given_up(client, conn, &text) => self.checker.lost(client, &text),
            Found::Text(text) => {
                self.fits(conn, &text);
                for text in self.tampered(text) {
                    self.note(|_| format!("client {client} reads on connection {conn}: {text}"));
                    self.text(client, Route::Conn(conn), &text);
                }
            }
            Found::Pong(_) => {}
            Found::Close(code) => {
                self.note(|_| format!("client {client} reads a close frame, {code}, on connection {conn}"));
                self.drop_conn(client, conn);
            }
            Found::Breach(breach) => self.checker.fail(Invariant::CleanFrames, format!("connection {conn}: {breach}")),
        }
    }

    pub(super) fn drop_conn(&mut self, client: usize, conn: usize) {
        if self.network.conns[conn].stream.is_some() {
            // A connect that was held there gets no reply.
            let connects = |awaited: &&mut Awaited| awaited.what == What::Connect;
            self.clients[client].awaited.values_mut().filter(connects).for_each(|awaited| awaited.owed = false);
        }
        if self.network.conns[conn].client_open {
            for text in self.network.leave(conn) {
                self.checker.lost(client, &text);
            }
        }
        self.end_route(client, Route::Conn(conn));
        self.walk_away(client, self.network.conns[conn].session);
    }

    fn response(&mut self, client: usize, exchange: usize, response: &Response) {
        let Response { status, body, set_browser, .. } = response;
        let state = &self.network.exchanges[exchange];
        let (transport, waits, connects) = (state.transport, state.client_waits, state.connects);
        let ids = state.ids.clone();
        let text = json_of(transport, body);
        let lied_to = self.sabotage == Sabotage::FalseReceipt && text.contains("\"data\"") && self.rng.chance(500);
        let is_long = self.scenario.laden && text.len() > TEXT_BYTES_MAX;
        let faults = if is_long { LONG_FAULTS } else { self.scenario.faults };
        if !waits || lied_to || (!self.healing && self.rng.chance(faults)) {
            // The kernel had it; it is lost on the way to the client.
            self.checker.tally.long_lost += u64::from(is_long);
            if !lied_to {
                self.checker.lost(client, &text);
            }
            return self.failed(client, exchange);
        }
        self.note(|_| format!("client {client} gets {status} for request {exchange}: {text}"));
        if let Some(browser) = set_browser {
            self.set_cookie(client, *browser);
        }
        let route = Route::Exchange(exchange);
        if *status == 200 && transport.format().is_some() && self.answers_given_up(client, &text) {
            self.checker.lost(client, &text);
        } else if *status == 200 {
            for text in self.tampered(text) {
                self.text(client, route, &text);
            }
            let comes_there = |awaited: &Awaited| awaited.what == What::Connect && self.has_streamed(client);
            let is_missing = |awaited: &Awaited| awaited.route == route && !comes_there(awaited);
            let missing = self.clients[client].awaited.iter().find(|(_, awaited)| is_missing(awaited));
            if let Some((id, _)) = missing {
                let detail = format!("the response to request {exchange} ({ids:?}) answers not its message {id}");
                self.checker.fail(Invariant::OneReply, detail);
            }
        } else if !matches!((*status, connects), (400 | 413, _) | (409 | 503, true))
            || (*status < 410 && ids.is_empty() && *status != 400)
        {
            let detail = format!("request {exchange} got the status {status}, messages {ids:?}");
            self.checker.fail(Invariant::OneResponse, detail);
        }
        self.end_route(client, route);
        if self.clients[client].busy == Some(exchange) {
            self.clients[client].busy = None;
        }
    }

    /// A request got no response. Some clients send it again.
    fn failed(&mut self, client: usize, exchange: usize) {
        self.note(|_| format!("client {client}: request {exchange} failed"));
        let route = Route::Exchange(exchange);
        let awaited = self.clients[client].awaited.values().any(|awaited| awaited.route == route);
        let state = &mut self.network.exchanges[exchange];
        state.client_waits = false;
        let (session, body, ids, connects) = (state.session, state.body.clone(), state.ids.clone(), state.connects);
        // A client that has acknowledged a batch does not later acknowledge an older one.
        let overtaken = self.clients[client].acknowledged.is_some()
            && connects
            && self.clients[client].connect.is_none_or(|(current, _)| !ids.contains(&current));
        let state = &mut self.network.exchanges[exchange];
        // A request sent by an attacker without a cookie is not repeated: it would have a cookie then. A client that
        // resubscribes at positions names newer ones when it comes again.
        let follows = self.clients[client].follower.is_some();
        let again = awaited
            && !follows
            && !overtaken
            && state.sign_of_life
            && self.clients[client].transport != Transport::WebSocket
            && self.clients[client].session() == session
            && self.clients[client].phase != Phase::Vanished;
        if !again || !self.rng.chance(400) {
            self.end_route(client, route);
            let leaves = self.walk_away(client, session);
            // The messages of a lost response come again on another transport, with possibly a smaller limit.
            let is_on = !self.healing && session.is_some() && self.clients[client].session() == session;
            if is_on && !leaves && self.scenario.laden && self.rng.chance(800) {
                self.switch(client);
            }
            return;
        }
        self.note(|_| format!("client {client} sends it again"));
        self.lose_sight(client);
        let next = Route::Exchange(self.network.exchanges.len());
        for id in &ids {
            if let Some(awaited) = self.clients[client].awaited.get_mut(id) {
                awaited.route = next;
                if let What::Publish(number) = awaited.what {
                    self.checker.publications[number].repeated = true;
                }
            }
        }
        self.post(client, session, body, ids, connects);
    }

    fn set_cookie(&mut self, client: usize, browser: Id) {
        let slot = self.clients[client].browser;
        let cookie = &mut self.browsers[slot];
        cookie.0 = Some(browser);
        cookie.1 += 1;
        if cookie.1 > 1 {
            // The browser drops the cookie with which other sessions were opened.
            for session in &mut self.checker.sessions {
                session.strayed |= self.clients[session.client].browser == slot;
            }
        }
    }

    /// One batch from the server.
    pub(super) fn text(&mut self, client: usize, route: Route, text: &str) {
        self.checker.no_secrets(client, text);
        if !text.starts_with('[') || bayeux::json::validate(text, usize::MAX).is_err() {
            return self.checker.fail(Invariant::CleanMessages, format!("client {client} got no batch: {text}"));
        }
        for raw in elements(text) {
            let data = member(raw, "data");
            let published = |data: &&str| number_of(data).is_some() || split_position(data).is_some();
            match data.filter(published) {
                Some(data) => self.message(client, route, raw, data),
                // It counts as a message for the limits, and for nothing else.
                None if data.is_some_and(|data| is_failed_call(data) || is_about_credentials(data)) => {}
                // The witness checks what they say.
                None if data.is_some() && field(raw, "channel").starts_with(ANNOUNCEMENTS) => {
                    self.check_announcement(self.session_on(route), &field(raw, "channel"));
                }
                None if data == Some(OBITUARY) && field(raw, "channel") == OBITUARIES => {}
                None => self.reply(client, route, raw),
            }
        }
    }

    /// Handles a publication.
    pub(super) fn message(&mut self, client: usize, route: Route, raw: &str, data: &str) {
        let channel = field(raw, "channel");
        let service = channel.starts_with("/service/");
        for (key, _) in members(raw) {
            let allowed = ["channel", "data", "ext", "timestamp", "x-custom"].iter().any(|name| key.is(name))
                || (service && (key.is("id") || key.is("successful")));
            if !allowed {
                let detail = format!("client {client} got a message with the field {}: {raw}", key.raw());
                self.checker.fail(Invariant::CleanMessages, detail);
            }
        }
        match self.session_on(route) {
            Some(session) => {
                if let Some(data) = self.with_positions(client, session, raw, &channel, data) {
                    self.check_rights(session, &data);
                    self.checker.arrived(session, &channel, &data);
                }
            }
            None => {
                let detail = format!("client {client} got a message without a session: {raw}");
                self.checker.fail(Invariant::OnlySubscribers, detail);
            }
        }
    }

    pub(super) fn reply(&mut self, client: usize, route: Route, raw: &str) {
        self.checker.tally.replies += 1;
        let successful = member(raw, "successful") == Some("true");
        let error = field(raw, "error");
        let Some(id) = member(raw, "id").and_then(decode_string).and_then(|id| id.parse::<u64>().ok()) else {
            if field(raw, "channel") == "/meta/disconnect" && successful {
                return self.ended_by_server(client, route);
            }
            if successful || self.clients[client].nameless == 0 {
                self.checker.fail(Invariant::OneReply, format!("client {client} got a reply to nothing: {raw}"));
            }
            return;
        };
        if self.is_late_reply(client, route, id, raw) {
            return;
        }
        let awaited = self.clients[client].awaited.remove(&id).or_else(|| self.given_up_connect(client, route, raw));
        let Some(awaited) = awaited else {
            return self
                .checker
                .fail(Invariant::OneReply, format!("client {client} got a reply it did not await: {raw}"));
        };
        let is_on_stream = |route| matches!(route, Route::Conn(conn) if self.network.conns[conn].stream.is_some());
        let comes_on_stream = awaited.what == What::Connect && is_on_stream(route);
        if awaited.route != route && !comes_on_stream {
            let detail = format!("client {client} got a reply on {route:?} instead of {:?}: {raw}", awaited.route);
            return self.checker.fail(Invariant::OneReply, detail);
        }
        if awaited.what != What::Handshake && member(raw, "clientId").is_some() {
            self.checker.fail(Invariant::SecretIds, format!("client {client} got a client id in a reply: {raw}"));
        }
        if awaited.what == What::Odd {
            if successful {
                self.checker.fail(Invariant::OneReply, format!("client {client}: what is wrong succeeded: {raw}"));
            }
            return;
        }
        if error.starts_with("402") && awaited.what != What::Handshake {
            return self.unknown(client, route, raw);
        }
        self.answered(client, route, id, &awaited.what, awaited.owed, raw);
    }

    fn answered(&mut self, client: usize, route: Route, id: u64, what: &What, owed: bool, raw: &str) {
        let successful = member(raw, "successful") == Some("true");
        let session = self.clients[client].session();
        if let Some(session) = session.filter(|session| self.is_of(route, *session)) {
            if let What::Subscribe(names) = what {
                self.check_subscription(session, names, raw);
            }
            match what {
                What::Connect => {
                    self.note_batch(client, raw);
                    self.reported_positions(client, session, raw);
                }
                What::Subscribe(_) if successful => self.reported_starts(client, session, raw),
                What::Subscribe(names) => self.not_reported(client, session, names),
                _ => {}
            }
        }
        match (what, session) {
            (What::Handshake, _) => self.welcomed(client, route, raw, successful),
            (What::Connect, Some(session)) if self.clients[client].connect.is_some_and(|(sent, _)| sent == id) => {
                self.connected(client, session, raw);
            }
            (What::Subscribe(names), Some(session)) if successful && owed => {
                let number = self.checker.publications.len();
                for name in names {
                    if let Some(subscription @ Subscription::Requested) =
                        self.checker.sessions[session].subscriptions.get_mut(name)
                    {
                        *subscription = Subscription::Granted(number);
                    }
                }
            }
            (What::Unsubscribe(name), Some(session)) if successful && owed => {
                let number = self.checker.publications.len();
                if let Some(subscription @ Subscription::Uncertain) =
                    self.checker.sessions[session].subscriptions.get_mut(name)
                {
                    *subscription = Subscription::Gone(number);
                }
            }
            (What::Publish(number), _) if self.is_refused_publication(*number, raw) => {}
            (What::Publish(number), _) if successful => {
                self.checker.confirmed.insert(*number);
            }
            // Delivered, and not persisted.
            (What::Publish(_), _) if self.log.is_some() && field(raw, "error").starts_with("507:/past/") => {}
            (What::Publish(_), _) if is_undecided(raw) => {}
            (What::Publish(_), _) if is_over_limit(raw) => self.checker.tally.over_limits += 1,
            (What::Publish(_), _) if is_ending(raw) && self.is_ended_with_reason(route) => {}
            (What::Publish(number), _) => {
                self.checker.fail(Invariant::OneReply, format!("publication {number} was refused: {raw}"));
            }
            _ => {}
        }
    }

    /// True if the server may have ended the session of a route: it was asked to, the credentials are over, or its client is inactive.
    fn is_ended_with_reason(&self, route: Route) -> bool {
        let inactive = self.scenario.settings.iter().any(|settings| settings.activity_timeout_ms > 0);
        self.session_on(route).is_some_and(|of| inactive || self.may_be_ended(of))
    }

    /// True if input on a route belongs to this session.
    fn is_of(&self, route: Route, session: usize) -> bool {
        self.session_on(route) == Some(session)
    }

    /// The reply to a handshake.
    fn welcomed(&mut self, client: usize, route: Route, raw: &str, successful: bool) {
        if self.clients[client].phase != Phase::Shaking {
            return;
        }
        self.clients[client].phase = Phase::Away;
        self.clients[client].next_ms = self.now.ms + 500;
        let text = field(raw, "clientId");
        let Some(id) = Id::parse(&text).filter(|_| successful) else {
            let is_limited = is_over_limit(raw) || is_token_refused(raw);
            if !self.has_drained && !is_undecided(raw) && !is_limited {
                self.checker.fail(Invariant::LivesOn, format!("client {client} was refused: {raw}"));
            }
            return;
        };
        let session = self.checker.open(&text, id, client);
        let acknowledges = member(raw, "ext").and_then(|ext| member(ext, "ack")) == Some("true");
        self.checker.sessions[session].acknowledges = acknowledges;
        let follows = member(raw, "ext").and_then(|ext| member(ext, "replay")) == Some("true");
        // Or it is about to send the offer with its first subscribe.
        self.checker.sessions[session].follows = follows || self.clients[client].follower.is_some();
        self.clients[client].acknowledged = acknowledges.then_some(0);
        self.checker.sessions[session].strayed = self.browsers[self.clients[client].browser].1 > 1;
        self.checker.sessions[session].cookie = matches!(route, Route::Exchange(_));
        // It may have ended while its reply was on the way.
        self.checker.sessions[session].alive = self.shards[id.shard()].waiting(&id).is_some();
        if let Route::Conn(conn) = route {
            self.network.conns[conn].session = Some(session);
        }
        let state = &mut self.clients[client];
        state.phase = Phase::On(session);
        state.connect = None;
        state.next_ms = self.now.ms;
        state.interval_ms = 0;
        state.stream += 1;
        self.recorder.with(|recording| recording.sessions[client] = Some(text));
    }

    /// Notes the number of the batch that a connect reply closes.
    fn note_batch(&mut self, client: usize, raw: &str) {
        let batch = member(raw, "ext").and_then(|ext| member(ext, "ack")).and_then(integer);
        if let Some(acknowledged) = &mut self.clients[client].acknowledged {
            *acknowledged = batch.unwrap_or(*acknowledged);
        }
    }

    /// The reply to the connect that the client waits for.
    fn connected(&mut self, client: usize, session: usize, raw: &str) {
        self.drop_old_conns(client);
        let advice = member(raw, "advice");
        let state = &mut self.clients[client];
        state.connect = None;
        if let Some(interval_ms) = advice.and_then(|advice| member(advice, "interval")).and_then(integer) {
            state.interval_ms = interval_ms.max(0) as u64;
        }
        state.next_ms = self.now.ms + state.interval_ms;
        if self.scenario.laden && !self.healing && self.rng.chance(400) {
            // After a late connect, one reply carries many messages.
            state.next_ms += self.rng.between(0, LULL_MS);
        }
        match advice.map(|advice| field(advice, "reconnect")).as_deref() {
            Some("none") => {
                let surplus = advice.is_some_and(|advice| member(advice, "multiple-clients").is_some());
                let known = &self.checker.sessions[session];
                let ends = surplus
                    || self.may_be_ended(session)
                    || known.left
                    || self.scenario.settings.iter().any(|s| s.activity_timeout_ms > 0);
                if !ends {
                    self.checker
                        .fail(Invariant::LivesOn, format!("client {client} was advised not to reconnect: {raw}"));
                }
                self.abandon(client, session);
            }
            Some("handshake") => self.abandon(client, session),
            _ => {}
        }
    }

    /// The server does not know the session.
    fn unknown(&mut self, client: usize, route: Route, raw: &str) {
        let session = self.session_on(route);
        let Some(session) = session else { return };
        let state = &self.checker.sessions[session];
        if state.alive && !state.left && !state.strayed {
            let detail = format!("session {session} of client {client} is alive, but the server said: {raw}");
            self.checker.fail(Invariant::LivesOn, detail);
        }
        if self.clients[client].session() == Some(session) {
            self.abandon(client, session);
        }
    }

    /// The server reports that it has ended the session.
    fn ended_by_server(&mut self, client: usize, route: Route) {
        let session = self.session_on(route);
        let Some(session) = session else { return };
        let inactive = self.scenario.settings.iter().any(|settings| settings.activity_timeout_ms > 0);
        if !self.may_be_ended(session) && !inactive {
            self.checker.fail(Invariant::LivesOn, format!("session {session} was ended by the server for nothing"));
        }
        if self.clients[client].session() == Some(session) {
            self.abandon(client, session);
        }
    }
}

/// The chance that a long response gets lost, per thousand.
const LONG_FAULTS: usize = 800;
/// The longest pause of a client before it connects again, in milliseconds.
const LULL_MS: u64 = 400;
/// The channels of announcements begin with it.
const ANNOUNCEMENTS: &str = "/presence/";
