//! `/meta/connect` (Bayeux 1.0 §4.2): confirms what the client has received, then answers the connect, holds it, or
//! ends the session. A held connect is answered when it has messages, its time is up, its session ends, or the server
//! drains.

use bayeux::advice::Advice;
use bayeux::session::Verdict;
use bayeux::{ChannelKind, Message, RawJson, Reply, ext};

use crate::application::EndReason;
use crate::delivery::{CaughtUp, GOING_AWAY, HeldConnect, ReplyTo, Session};
use crate::events::{SessionKey, SocketKey};
use crate::protocol::batch::{Batch, Outcome, Via, ext_of, success};
use crate::shard::Machines;

impl Machines {
    pub(super) fn connect(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey) {
        let on = match batch.via {
            Via::Socket(socket) => Some(socket),
            Via::Http { .. } => self.stream_for(key, message.connection_type.as_deref()),
        };
        self.has_arrived(key);
        self.delivery.was_read(key);
        if self.delivery.acknowledges(key)
            && let Some(confirmed) = message.ext.and_then(ext::acknowledged)
        {
            self.delivery.confirm(key, confirmed);
        }
        self.refresh_by_connect(batch, message, key);
        if on.is_some() {
            self.delivery.supersede(key);
        } else if !self.stays_on_stream(key, message) {
            self.leave_socket(key);
            self.delivery.supersede(key);
        }
        if batch.begun.as_ref().is_none_or(|begun| !begun.gives_again) {
            self.prime(key);
        }
        if self.delivery.is_inactive(key) {
            self.end_later(key, EndReason::Kicked);
        }
        let may_hold = !self.env.is_draining && (on.is_some() || batch.len == 1);
        let Some(connected) = self.delivery.connect(key, on, message.advice, may_hold) else {
            // The reply to its previous connect did not fit any more, which has ended the session.
            return self.beside().refuse_unknown(batch, message, ChannelKind::Connect);
        };
        // The first connect of a session gets the advice, too, if the next one could be held (CometD 9).
        let may_be_surplus = connected.could_be_held && on.is_none();
        let surplus = may_be_surplus.then(|| self.surplus(batch, key)).flatten();
        // The report of a session that had not connected yet was left out.
        if message.advice.is_some() || connected.is_first {
            self.note_change(key);
        }
        let mut advice = None;
        let (mut successful, mut is_last) = (true, false);
        match (connected.verdict, surplus) {
            (Verdict::Disconnect, _) if connected.is_last => {
                advice = Some(Advice::none());
                is_last = true;
            }
            (_, Some(surplus)) => {
                self.env.metrics.surplus_connects.add(1);
                successful = surplus.interval_ms.is_some();
                advice = Some(surplus);
                self.delivery.release(key);
            }
            (Verdict::Hold { .. }, None) => return self.hold(batch, message, key, on),
            (Verdict::Disconnect | Verdict::Answer, None) => {}
        }
        self.delivery.arm(key);
        let advice = advice.or_else(|| self.take_advice(key)).map(|advice| advice.to_json());
        let (ext, timestamp) = (self.connect_ext(key, on, self.env.timesync(message)), self.env.timestamp());
        let reply = Reply {
            successful: Some(successful),
            advice: advice.as_deref().map(RawJson::trusted),
            ..success(bayeux::channel::META_CONNECT, message.id.as_ref(), &ext, &timestamp)
        };
        match (&batch.via, on) {
            (Via::Http { .. }, Some(stream)) => self.reply_on_stream(batch, &reply, stream, is_last),
            _ => {
                batch.comes_to(if is_last { Outcome::EndsSession } else { Outcome::Connected });
                batch.reply(&reply);
            }
        }
    }

    /// The advice to poll, if the browser of this session holds as many connects as it may.
    fn surplus(&self, batch: &Batch, key: SessionKey) -> Option<Advice> {
        let Via::Http { peer, .. } = &batch.via else { return None };
        let (browser, settings) = (self.delivery.session(key)?.browser()?, self.env.settings.given());
        let max = self.env.settings.browser_sessions_max(peer)?;
        let is_surplus = self.delivery.held_by(&browser) >= max;
        is_surplus.then(|| Advice::multiple_clients(settings.browser_surplus_interval_ms))
    }

    /// Holds a connect, on this WebSocket or stream, or with its request.
    fn hold(&mut self, batch: &mut Batch, message: &Message<'_>, key: SessionKey, on: Option<SocketKey>) {
        let on = match (&batch.via, on) {
            (_, Some(socket)) | (&Via::Socket(socket), None) => ReplyTo::Socket(socket),
            (Via::Http { exchange, transport, .. }, None) => {
                let on = ReplyTo::Request(*exchange, transport.clone());
                batch.comes_to(Outcome::Held);
                on
            }
        };
        let held =
            HeldConnect { id: message.id.clone().map(bayeux::Id::into_owned), timesync: self.env.timesync(message) };
        self.delivery.hold(key, on, held);
    }

    /// The `ext` of a connect reply: the number of the batch that it closes, the client's position in each history, and
    /// the time.
    pub(super) fn connect_ext(
        &mut self,
        key: SessionKey,
        on: Option<SocketKey>,
        timesync: Option<String>,
    ) -> Option<String> {
        let Machines { delivery, channels, .. } = self;
        let heartbeat = delivery.heartbeat(key, on, channels.count_of(key.index), |slot| channels.at(key.index, slot));
        let ack = delivery.close_batch(key).map(|batch| format!("\"ack\":{batch}"));
        ext_of([ack, heartbeat, timesync])
    }

    /// The advice for a connect reply. A draining server spreads its clients over time.
    pub(super) fn take_advice(&mut self, key: SessionKey) -> Option<Advice> {
        let advice = self.delivery.take_advice(key);
        if self.env.is_draining && self.delivery.has(key) {
            self.delivery.await_return(key);
            return Some(Advice::retry(self.delivery.terms_of(key).timeout_ms, self.env.jitter_ms()));
        }
        advice
    }

    /// Fills the outbox of a session out of the histories that it replays, before a reply takes messages along.
    pub(super) fn prime(&mut self, key: SessionKey) {
        self.begin_page(key);
        let caught_up = self.delivery.prime(key);
        self.note_caught_up(caught_up);
    }

    /// Notes how far sessions have read channels that they get live now.
    pub(super) fn note_caught_up(&mut self, caught_up: Vec<CaughtUp>) {
        caught_up.into_iter().for_each(|(name, received)| self.channels.note_received(&name, received));
    }

    /// Detaches the session from its WebSocket, as it continues over HTTP requests. A connect held on the WebSocket is
    /// answered there.
    pub(super) fn leave_socket(&mut self, key: SessionKey) {
        if self.delivery.session(key).is_some_and(|session| session.socket().is_some()) {
            if self.delivery.acknowledges(key) {
                self.reply_without_messages(key);
            }
            // Without `prime`: its messages would come back from the WebSocket with the cursors behind them, and the
            // withdrawal of a subscribe in this batch would remove them.
            self.reply_to_held(key, None);
            self.delivery.detach(key);
        }
    }

    /// Answers, in a cluster, the request that holds the connect of a session that replays and does not acknowledge, before the session
    /// begins at positions. Its client may have given that request up at another node, and come here by a further one: it would never
    /// see the messages that the response takes along, and knows no position before them.
    pub(super) fn leave_request(&mut self, key: SessionKey) {
        let is_by_request = |session: &Session| session.is_held() && session.socket().is_none();
        let may_be_lost = self.env.shared.is_clustered() && self.delivery.session(key).is_some_and(is_by_request);
        if may_be_lost && !self.delivery.acknowledges(key) {
            self.reply_without_messages(key);
        }
    }

    /// Answers the held connect without messages, a batch number and positions. The connect of an acknowledging session leaves its
    /// WebSocket so: the messages go out with the newer connect, and a batch number in this reply would overtake the number of that
    /// one. Without a reply the client would wait for it if the newer connect is only a late one that it has given up.
    fn reply_without_messages(&mut self, key: SessionKey) {
        let Some((reply_to, held)) = self.delivery.take_held(key) else { return };
        let (ext, timestamp) = (ext_of([held.timesync]), self.env.timestamp());
        let mut reply = Vec::with_capacity(128);
        success(bayeux::channel::META_CONNECT, held.id.as_ref(), &ext, &timestamp).write(&mut reply);
        match reply_to {
            ReplyTo::Socket(socket) => {
                let replied = self.delivery.reply_on_socket(socket, None, &reply);
                self.end_given_up(replied);
            }
            ReplyTo::Request(exchange, transport) => {
                self.delivery.respond_with(exchange, &transport, Some(key), false, &reply, None);
            }
        }
    }

    /// Answers the held connect. Over HTTP the response takes the waiting messages along.
    pub(super) fn answer_held(&mut self, key: SessionKey, advice: Option<Advice>) {
        if self.delivery.session(key).is_some_and(|session| session.is_held()) {
            self.prime(key);
            self.reply_to_held(key, advice);
        }
    }

    /// Answers the held connect with the messages that wait already.
    fn reply_to_held(&mut self, key: SessionKey, advice: Option<Advice>) {
        let Some((reply_to, held)) = self.delivery.take_held(key) else { return };
        let advice = advice.or_else(|| self.take_advice(key)).map(|advice| advice.to_json());
        let on = match &reply_to {
            ReplyTo::Socket(socket) => Some(*socket),
            ReplyTo::Request(..) => None,
        };
        let (ext, timestamp) = (self.connect_ext(key, on, held.timesync), self.env.timestamp());
        let mut reply = Vec::with_capacity(128);
        let advice = advice.as_deref().map(RawJson::trusted);
        Reply { advice, ..success(bayeux::channel::META_CONNECT, held.id.as_ref(), &ext, &timestamp) }
            .write(&mut reply);
        match reply_to {
            ReplyTo::Socket(socket) => {
                let replied = self.delivery.reply_on_socket(socket, Some(key), &reply);
                self.end_given_up(replied);
            }
            ReplyTo::Request(exchange, transport) => {
                self.delivery.respond_with(exchange, &transport, Some(key), true, &reply, None);
            }
        }
    }

    /// Answers the held connect for the last time: the advice says not to reconnect.
    pub(super) fn disconnect_held(&mut self, key: SessionKey) {
        self.answer_held(key, Some(Advice::none()));
    }

    /// Ends a session from the server's side. Its client gets a disconnect message: at once if its connection can take
    /// all that waits, else with its next connects. Other nodes learn at once that it has ended.
    pub(super) fn kick(&mut self, key: SessionKey, why: EndReason) {
        if let Some(id) = self.delivery.session(key).map(|session| *session.id()) {
            self.note_end(id, why.binds());
        }
        self.end_later(key, why);
        let Some(session) = self.delivery.session(key) else { return };
        let (socket, is_held) = (session.socket(), session.is_held());
        if self.delivery.takes_all(key) {
            self.disconnect_held(key);
            self.end_session(key, why);
            if let Some(socket) = socket {
                self.delivery.close_socket(socket, 1000, "session ended");
            }
        } else if is_held {
            // The next connects get the rest, and the last of them gets the disconnect advice.
            self.answer_held(key, None);
            self.delivery.end_with_next_connects(key);
        }
    }

    /// Puts the disconnect message, without an id, into the outbox, and lets the session end with its next connect. The
    /// session gets no later publications, because otherwise its queue might never become empty.
    pub(super) fn end_later(&mut self, key: SessionKey, why: EndReason) {
        let last: &[u8] = match why {
            EndReason::TokenExpired => {
                br#"[{"channel":"/meta/disconnect","successful":true,"error":"401::token_expired"}]"#
            }
            EndReason::Revoked => br#"[{"channel":"/meta/disconnect","successful":true,"error":"401::token_revoked"}]"#,
            _ => br#"[{"channel":"/meta/disconnect","successful":true}]"#,
        };
        if matches!(why, EndReason::TokenExpired | EndReason::Revoked) {
            self.clients.end_rights(key, why);
        }
        if self.delivery.end_later(key, last) {
            self.drop_subscriptions(key);
        }
    }

    /// Advises all clients to come back later, each at its own time, and closes their WebSockets and streams. Refuses new sessions
    /// from now on.
    pub(super) fn drain(&mut self) {
        self.env.is_draining = true;
        for key in self.delivery.keys() {
            self.answer_held(key, None);
        }
        for socket in self.delivery.socket_keys() {
            if self.delivery.is_stream(socket) {
                let retry_ms = self.env.jitter_ms();
                self.delivery.tell(socket, &format!("retry: {retry_ms}"));
            }
            self.delivery.close_socket(socket, GOING_AWAY.0, GOING_AWAY.1);
        }
    }
}
