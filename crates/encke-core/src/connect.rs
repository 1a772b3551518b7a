//! `/meta/connect`: answered at once, or held until something comes (Bayeux 1.0 §4.2, CometD 9).

use bayeux::advice::Advice;
use bayeux::session::{Circumstances, Verdict};
use bayeux::{ChannelKind, Message, RawJson, Reply};

use super::batch::{Batch, Via, ext_of};
use super::effect::{Response, SessionKey, SocketKey};
use super::outbox::Kind;
use super::session::{Ended, Session};
use super::sockets::GOING_AWAY;
use super::{Carrier, Held, HeldVia, Shard};

impl Shard {
    pub(super) fn connect(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        let on = match batch.via {
            Via::Socket(socket) => Some(socket),
            Via::Http { .. } => None,
        };
        let socket = on.is_some();
        self.has_arrived(key);
        self.confirm(key, message.ext);
        if !socket {
            self.leave_socket(key);
        }
        self.supersede(key);
        if batch.begun.as_ref().is_none_or(|begun| !begun.is_pending()) {
            self.prime(key);
        }
        if self.is_inactive(key) {
            self.end_later(key);
        }
        let (now_ms, terms) = (self.now.ms, self.terms);
        let room = self.response_room();
        let (has_room, response_bytes_max) = (socket || room.is_some(), room.unwrap_or(0));
        let Some(session) = self.sessions.get_mut(key) else {
            // Its own last reply did not fit any more.
            return self.refuse_unknown(batch, message, ChannelKind::Connect);
        };
        let circumstances = Circumstances {
            advice: message.advice,
            may_hold: !self.draining && (socket || batch.len == 1),
            queued: session.has_something_for(on) && has_room,
        };
        // The rest of what a response has no room for comes with the next connect, and the last one says farewell.
        let is_last = session.fits(on, response_bytes_max);
        let verdict = session.protocol.connect(now_ms, &terms, &circumstances);
        if verdict == Verdict::Farewell && socket {
            // Each connect takes some of what waits: its client is not silent.
            session.protocol.end(now_ms, &terms);
        }
        // A connect that could be held, if not this one then the next: the first of a session is told, too (CometD 9).
        let surplus = (circumstances.may_hold && !circumstances.queued).then(|| self.surplus(batch, key)).flatten();
        let mut advice = None;
        let mut successful = true;
        match (verdict, surplus) {
            (Verdict::Farewell, _) if is_last => {
                advice = Some(Advice::none());
                batch.farewell = true;
            }
            (_, Some(surplus)) => {
                self.metrics.surplus_connects.add(1);
                successful = surplus.interval_ms.is_some();
                advice = Some(surplus);
                self.release(key);
            }
            (Verdict::Hold { .. }, None) => return self.hold(batch, message, key),
            (Verdict::Farewell | Verdict::Answer, None) => {}
        }
        self.arm(key);
        batch.connected = true;
        let advice = advice.or_else(|| self.take_advice(key)).map(|advice| advice.to_json());
        let (ext, timestamp) = (self.connect_ext(key, on, self.timesync(message)), self.timestamp());
        batch.reply(&Reply {
            id: message.id.as_ref(),
            successful: Some(successful),
            advice: advice.as_deref().map(RawJson::trusted),
            ext: ext.as_deref().map(RawJson::trusted),
            timestamp: timestamp.as_deref(),
            ..Reply::new(bayeux::channel::META_CONNECT)
        });
    }

    /// The `ext` of a connect reply: the number of the batch it closes, how far the client is in each history, and the time.
    fn connect_ext(&mut self, key: SessionKey, on: Option<SocketKey>, timesync: Option<String>) -> Option<String> {
        let heartbeat = self.heartbeat(key, on);
        ext_of([self.close_batch(key), heartbeat, timesync])
    }

    /// The advice for a connect reply; a draining server spreads its clients over time.
    fn take_advice(&mut self, key: SessionKey) -> Option<Advice> {
        let (terms, says_grace) = (self.terms, self.settings.handshake_reconnect);
        let protocol = &mut self.sessions.get_mut(key)?.protocol;
        let max_interval_ms = says_grace.then(|| protocol.grace_ms(&terms));
        let advice = protocol.take_advice(&terms).map(|advice| Advice { max_interval_ms, ..advice });
        if self.draining {
            self.await_return(key);
            return Some(Advice::retry(terms.timeout_ms, self.jitter_ms()));
        }
        advice
    }

    /// A moment within the time that the clients of a draining server spread over.
    pub(super) fn jitter_ms(&mut self) -> u64 {
        let mut random = [0; 4];
        (self.entropy)(&mut random);
        u64::from(u32::from_le_bytes(random)) % self.settings.drain_spread_ms.max(1)
    }

    /// Whether the browser of this session holds as many connects as it may: then the advice to poll.
    fn surplus(&self, batch: &Batch, key: SessionKey) -> Option<Advice> {
        let Via::Http { .. } = batch.via else { return None };
        let browser = self.sessions.get(key)?.browser?;
        let max = usize::try_from(self.settings.browser_sessions_max).ok()?;
        let held = self.browsers.get(&browser).copied().unwrap_or(0) as usize;
        (held >= max).then(|| Advice::multiple_clients(self.settings.browser_surplus_interval_ms))
    }

    fn hold(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        let timesync = self.timesync(message);
        let via = match &batch.via {
            Via::Socket(_) => HeldVia::Socket,
            Via::Http { exchange, transport, .. } => HeldVia::Exchange(*exchange, transport.clone()),
        };
        let Some(session) = self.sessions.get_mut(key) else { return };
        if let HeldVia::Exchange(exchange, _) = &via {
            self.exchanges.insert(*exchange, key);
            if let Some(browser) = session.browser {
                *self.browsers.entry(browser).or_default() += 1;
            }
            batch.held = true;
        }
        session.held = Some(Box::new(Held { via, id: message.id.clone().map(bayeux::Id::into_owned), timesync }));
        self.metrics.held.set(self.metrics.held.get() as usize + 1);
        let waits_for_room = batch.held && session.is_due() && !session.dirty;
        if waits_for_room && self.response_room().is_none() {
            self.answer_when_there_is_room(key);
        }
        self.arm(key);
    }

    /// The session goes on over requests: its WebSocket carries it no more, and a connect that is held there is answered there.
    pub(super) fn leave_socket(&mut self, key: SessionKey) {
        if self.sessions.get(key).is_some_and(|session| matches!(session.carrier, Carrier::Socket(_))) {
            if self.acknowledges(key) {
                // Its messages go out with the newer connect; a batch number here would overtake that one's.
                self.take_held(key);
            }
            self.answer_held(key, None);
            self.detach(key);
        }
    }

    /// A newer connect has come. The older one ends: its request with an error status, on a WebSocket without a word (CometD 9).
    pub(super) fn supersede(&mut self, key: SessionKey) {
        if let Some(held) = self.take_held(key)
            && let HeldVia::Exchange(exchange, _) = held.via
        {
            self.respond(exchange, Response::empty(self.settings.duplicate_connect_status));
        }
    }

    /// Takes the held connect out of a session, and puts the accounts right.
    pub(super) fn take_held(&mut self, key: SessionKey) -> Option<Box<Held>> {
        let session = self.sessions.get_mut(key)?;
        let held = session.held.take()?;
        self.metrics.held.set((self.metrics.held.get() as usize).saturating_sub(1));
        if let HeldVia::Exchange(exchange, _) = &held.via {
            self.exchanges.remove(exchange);
            if let Some(browser) = session.browser
                && let Some(count) = self.browsers.get_mut(&browser)
            {
                *count -= 1;
                if *count == 0 {
                    self.browsers.remove(&browser);
                }
            }
        }
        self.release(key);
        Some(held)
    }

    /// The session holds no connect any more: its expiry counts from now.
    fn release(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.now.ms, self.terms);
        if let Some(session) = self.sessions.get_mut(key) {
            session.protocol.release(now_ms, &terms);
            self.arm(key);
        }
    }

    /// Answers the held connect, with all messages that wait where it is a request.
    pub(super) fn answer_held(&mut self, key: SessionKey, advice: Option<Advice>) {
        let Some(held) = self.take_held(key) else { return };
        self.prime(key);
        let advice = advice.or_else(|| self.take_advice(key)).map(|advice| advice.to_json());
        let on = match (&held.via, self.sessions.get(key).map(|session| session.carrier)) {
            (HeldVia::Socket, Some(Carrier::Socket(socket))) => Some(socket),
            _ => None,
        };
        let (ext, timestamp) = (self.connect_ext(key, on, held.timesync), self.timestamp());
        let mut reply = Vec::with_capacity(128);
        Reply {
            id: held.id.as_ref(),
            successful: Some(true),
            advice: advice.as_deref().map(RawJson::trusted),
            ext: ext.as_deref().map(RawJson::trusted),
            timestamp: timestamp.as_deref(),
            ..Reply::new(bayeux::channel::META_CONNECT)
        }
        .write(&mut reply);
        match held.via {
            HeldVia::Socket => self.reply_on_carrier(key, &reply),
            HeldVia::Exchange(exchange, transport) => {
                self.respond_with(exchange, &transport, Some(key), true, &reply, None);
            }
        }
    }

    /// Answers the held connect for the last time: its client is not to come back.
    pub(super) fn farewell_to_held(&mut self, key: SessionKey) {
        self.answer_held(key, Some(Advice::none()));
    }

    /// The held connect of a session that is being removed gets no answer here, but its request must not wait for ever.
    pub(super) fn let_go_of_held(&mut self, key: SessionKey) {
        if let Some(held) = self.take_held(key)
            && let HeldVia::Exchange(exchange, _) = held.via
        {
            self.respond(exchange, Response::empty(503));
        }
    }

    fn is_inactive(&self, key: SessionKey) -> bool {
        let max_ms = self.settings.activity_timeout_ms;
        let quiet_ms = |session: &Session| self.now.ms.saturating_sub(session.active_ms);
        max_ms > 0 && self.sessions.get(key).is_some_and(|session| quiet_ms(session) >= max_ms)
    }

    /// Ends a session from the server's side. Its client is told so: at once where something can carry all that waits, else at its next
    /// connects.
    pub(super) fn kick(&mut self, key: SessionKey, why: Ended) {
        self.end_later(key);
        let room = self.response_room().unwrap_or(0);
        let Some(session) = self.sessions.get(key) else { return };
        let is_held = session.held.is_some();
        match session.carrier {
            // On a WebSocket only who acknowledges gets what waits in batches.
            Carrier::Socket(socket) if session.ledger.is_none() || session.fits(Some(socket), room) => {
                self.farewell_to_held(key);
                self.remove_session(key, why);
                self.close_socket(socket, 1000, "session ended");
            }
            Carrier::Requests if is_held && session.fits(None, room) => {
                self.farewell_to_held(key);
                self.remove_session(key, why);
            }
            _ if !is_held => {}
            _ => {
                // The next connects get the rest, and the last of them says farewell.
                self.answer_held(key, None);
                let (now_ms, terms) = (self.now.ms, self.terms);
                if let Some(session) = self.sessions.get_mut(key) {
                    session.protocol.end(now_ms, &terms);
                }
                self.arm(key);
            }
        }
    }

    /// Puts the disconnect message, without an id, into the outbox and lets the session end with its next connect. What is published from
    /// now on is not for it: else there might always be more than fits.
    fn end_later(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.now.ms, self.terms);
        let payload: &[u8] = br#"[{"channel":"/meta/disconnect","successful":true}]"#;
        let frames = self.own.frame(websocket::Opcode::Text, payload.len(), |bytes| bytes.extend_from_slice(payload));
        let Some(session) = self.sessions.get_mut(key) else { return };
        if session.protocol.is_ending() {
            return;
        }
        if !session.protocol.is_held() {
            session.protocol.end(now_ms, &terms);
        }
        session.outbox.push(&frames, Kind::Messages);
        session.urgent = true;
        self.drop_subscriptions(key);
        self.arm(key);
    }

    /// Advises all clients to come back later, each at its own time, and closes their WebSockets. New sessions are refused from now on.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        for key in self.sessions.keys() {
            self.answer_held(key, None);
        }
        for socket in self.socket_keys() {
            self.close_socket(socket, GOING_AWAY.0, GOING_AWAY.1);
        }
    }

    /// A session whose client is told to come back later must not expire before.
    fn await_return(&mut self, key: SessionKey) {
        let (now_ms, terms, spread_ms) = (self.now.ms, self.terms, self.settings.drain_spread_ms);
        if let Some(session) = self.sessions.get_mut(key) {
            session.protocol.heard(now_ms + spread_ms, &terms);
        }
    }

    /// Whether the server is about to stop.
    pub fn is_draining(&self) -> bool {
        self.draining
    }
}

impl Response {
    /// A response without a body.
    pub(super) fn empty(status: u16) -> Response {
        Response { status, body: bytes::Bytes::new(), set_browser: None, confirm: None }
    }
}
