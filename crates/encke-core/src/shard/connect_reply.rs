//! Replies to connects: acknowledgements, advice, the `ext` with positions and losses, and the answer to a held
//! connect. `connect` leads here for connects that are answered at once. `flush` and `tick` lead here when a held
//! connect has messages or its time is up; so does everything that ends a session or drains the server.

use std::collections::BTreeSet;

use bayeux::advice::Advice;
use bayeux::ext::Heartbeat;
use bayeux::{Message, RawJson, Reply, ext};

use crate::application::EndReason;
use crate::connections::socket::GOING_AWAY;
use crate::events::{SessionKey, SocketKey};
use crate::outbox::{InFlight, Kind, payloads};
use crate::protocol::batch::ext_of;
use crate::sessions::loss::Loss;
use crate::sessions::session::{ReplyTo, Session};
use crate::sessions::unacked::Unacked;
use crate::shard::Parts;

impl Parts {
    /// Processes the `ext` of a connect: the batches that it confirms are done.
    pub(super) fn confirm(&mut self, key: SessionKey, ext: Option<RawJson<'_>>) {
        if let Some(session) = self.sessions.get_mut(key).filter(|session| session.unacked().is_some())
            && let Some(batch) = ext.and_then(ext::acknowledged)
        {
            self.metrics.deliveries.add(session.confirm(batch));
        }
    }

    /// The member `timesync` of a reply's `ext`.
    pub(super) fn timesync(&self, message: &Message<'_>) -> Option<String> {
        let wall_ms = self.now.wall_ms as i64;
        let timesync = ext::Timesync::read(message.ext?)?.reply(wall_ms, wall_ms)?;
        Some(format!("\"timesync\":{timesync}"))
    }

    /// The time of day, if the settings ask for timestamps.
    pub(super) fn timestamp(&self) -> Option<String> {
        self.settings.given().timestamps.then(|| ext::timestamp(self.now.wall_ms as i64))
    }

    /// The same as raw JSON, for publications.
    pub(super) fn raw_timestamp(&self) -> Option<String> {
        self.timestamp().map(|timestamp| format!("\"{timestamp}\""))
    }

    /// The `ext` of a connect reply: the number of the batch that it closes, the client's position in each history, and
    /// the time.
    pub(super) fn connect_ext(
        &mut self,
        key: SessionKey,
        on: Option<SocketKey>,
        timesync: Option<String>,
    ) -> Option<String> {
        let heartbeat = self.heartbeat(key, on);
        let ack = self.sessions.get_mut(key).and_then(Session::close_batch).map(|batch| format!("\"ack\":{batch}"));
        ext_of([ack, heartbeat, timesync])
    }

    /// The advice for a connect reply. A draining server spreads its clients over time.
    pub(super) fn take_advice(&mut self, key: SessionKey) -> Option<Advice> {
        let (terms, advises_grace) = (self.settings.terms(), self.settings.given().handshake_reconnect);
        let protocol = &mut self.sessions.get_mut(key)?.protocol;
        let max_interval_ms = advises_grace.then(|| protocol.grace_ms(&terms));
        let advice = protocol.take_advice(&terms).map(|advice| Advice { max_interval_ms, ..advice });
        if self.connections.draining {
            self.await_return(key);
            return Some(Advice::retry(terms.timeout_ms, self.jitter_ms()));
        }
        advice
    }

    /// A random delay within the time over which a draining server spreads its clients.
    pub(super) fn jitter_ms(&mut self) -> u64 {
        let mut random = [0; 4];
        (self.entropy)(&mut random);
        u64::from(u32::from_le_bytes(random)) % self.settings.given().drain_spread_ms.max(1)
    }

    /// Detaches the session from its WebSocket, as it continues over HTTP requests. A connect held on the WebSocket is
    /// answered there.
    pub(super) fn leave_socket(&mut self, key: SessionKey) {
        if self.sessions.get(key).is_some_and(|session| session.socket().is_some()) {
            if self.acknowledges(key) {
                // The messages go out with the newer connect. A batch number in this reply would overtake the number of
                // that one.
                self.take_held(key);
            }
            // Without `prime`: its messages would come back from the WebSocket with the cursors behind them, and the
            // withdrawal of a subscribe in this batch would remove them.
            self.reply_to_held(key, None);
            self.detach(key);
        }
    }

    /// Answers the held connect. Over HTTP the response takes the waiting messages along.
    pub(super) fn answer_held(&mut self, key: SessionKey, advice: Option<Advice>) {
        if self.sessions.get(key).is_some_and(Session::is_held) {
            self.prime(key);
            self.reply_to_held(key, advice);
        }
    }

    /// Answers the held connect with the messages that wait already.
    fn reply_to_held(&mut self, key: SessionKey, advice: Option<Advice>) {
        let Some((reply_to, held)) = self.take_held(key) else { return };
        let advice = advice.or_else(|| self.take_advice(key)).map(|advice| advice.to_json());
        let on = match &reply_to {
            ReplyTo::Socket(socket) => Some(*socket),
            ReplyTo::Request(..) => None,
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
        match reply_to {
            ReplyTo::Socket(socket) => self.reply_on_socket(socket, Some(key), &reply),
            ReplyTo::Request(exchange, transport) => {
                self.respond_with(exchange, &transport, Some(key), true, &reply, None);
            }
        }
    }

    /// Answers the held connect for the last time: the advice says not to reconnect.
    pub(super) fn disconnect_held(&mut self, key: SessionKey) {
        self.answer_held(key, Some(Advice::none()));
    }

    /// Ends a session from the server's side. Its client gets a disconnect message: at once if its connection can take
    /// all that waits, else with its next connects.
    pub(super) fn kick(&mut self, key: SessionKey, why: EndReason) {
        self.end_later(key, why);
        let room = self.response_room().unwrap_or(0);
        let Some(session) = self.sessions.get(key) else { return };
        let (socket, is_held) = (session.socket(), session.is_held());
        // On a WebSocket only a session that acknowledges gets its queue in batches.
        let takes_all = (socket.is_some() && session.unacked().is_none()) || session.fits(socket, room);
        if takes_all && !session.is_away() {
            self.disconnect_held(key);
            self.remove_session(key, why);
            if let Some(socket) = socket {
                self.close_socket(socket, 1000, "session ended");
            }
        } else if is_held {
            // The next connects get the rest, and the last of them gets the disconnect advice.
            self.answer_held(key, None);
            let (now_ms, terms) = (self.now.ms, self.settings.terms());
            if let Some(session) = self.sessions.get_mut(key) {
                session.protocol.end(now_ms, &terms);
            }
            self.arm(key);
        }
    }

    /// Puts the disconnect message, without an id, into the outbox, and lets the session end with its next connect. The
    /// session gets no later publications, because otherwise its queue might never become empty.
    pub(super) fn end_later(&mut self, key: SessionKey, why: EndReason) {
        let (now_ms, terms) = (self.now.ms, self.settings.terms());
        let payload: &[u8] = match why {
            EndReason::TokenExpired => {
                br#"[{"channel":"/meta/disconnect","successful":true,"error":"401::token_expired"}]"#
            }
            EndReason::Revoked => br#"[{"channel":"/meta/disconnect","successful":true,"error":"401::token_revoked"}]"#,
            _ => br#"[{"channel":"/meta/disconnect","successful":true}]"#,
        };
        if matches!(why, EndReason::TokenExpired | EndReason::Revoked) {
            self.clients.end_rights(key, why);
        }
        let frames = self
            .fanout
            .encoder
            .single(websocket::Opcode::Text, payload.len(), |bytes| bytes.extend_from_slice(payload));
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

    /// Advises all clients to come back later, each at its own time, and closes their WebSockets. Refuses new sessions
    /// from now on.
    pub(super) fn drain(&mut self) {
        self.connections.draining = true;
        for key in self.sessions.keys() {
            self.answer_held(key, None);
        }
        let sockets: Vec<SocketKey> = self.connections.sockets.with_keys().map(|(key, _)| key).collect();
        for socket in sockets {
            self.close_socket(socket, GOING_AWAY.0, GOING_AWAY.1);
        }
    }

    /// Keeps a session from expiring before its client comes back as advised.
    fn await_return(&mut self, key: SessionKey) {
        let (now_ms, terms, spread_ms) = (self.now.ms, self.settings.terms(), self.settings.given().drain_spread_ms);
        if let Some(session) = self.sessions.get_mut(key) {
            session.protocol.received(now_ms + spread_ms, &terms);
        }
    }

    /// The member `replay` of the `ext` of a connect reply on this WebSocket, or in a response: the client's position
    /// in the history of each channel it subscribes to, and what it has lost.
    ///
    /// A client takes a position as received up to there, so no reply may overtake messages. A position is reported
    /// only if no message waits for the client that has not gone out on this very connection. A loss is reported only
    /// if no message of its channel waits. Nothing is reported while a response is on its way, because its messages may
    /// come back. So it does not matter how many of the waiting messages go with this reply.
    fn heartbeat(&mut self, key: SessionKey, on: Option<SocketKey>) -> Option<String> {
        let session = self.sessions.get(key).filter(|session| session.may_send(on))?;
        let waiting = session.replay.as_ref().filter(|replay| replay.has_losses()).map(|_| Waiting::of(session, on));
        self.metrics.losses_delayed.add(usize::from(matches!(waiting, Some(Waiting::Any))));
        let quiet = session.outbox.is_empty() && !session.must_resend(on);
        let batch = session.unacked().map(Unacked::next_batch);
        let session = self.sessions.get_mut(key)?;
        let replay = session.replay.as_mut()?;
        let losses = waiting.map(|waiting| replay.report_losses(batch, |name| waiting.has(name))).unwrap_or_default();
        let (count, first) = (self.channels.count_of(key.index), replay.beat);
        let lost: BTreeSet<&str> = losses.iter().map(|loss| &*loss.name).collect();
        let mut members = Vec::new();
        let mut looked_at = 0;
        while quiet && looked_at < count && members.len() < HEARTBEAT_CHANNELS_MAX {
            let (name, received) = self.channels.at(key.index, (first + looked_at) % count);
            looked_at += 1;
            let cursor = replay.cursors.of(name);
            let is_lost = lost.contains(name);
            let far = match (cursor, received) {
                _ if name.ends_with('*') => None,
                (Some(cursor), _) if cursor.below > 0 => None,
                (Some(cursor), Some(received)) if !cursor.open && received.serial >= cursor.ring.serial => {
                    Some((received.epoch.clone(), received.id.max(cursor.next - 1)))
                }
                (Some(cursor), _) => Some((cursor.epoch.clone(), cursor.next - 1)),
                (None, received) => received.map(|received| (received.epoch.clone(), received.id)),
            };
            if let Some((epoch, id)) = far.filter(|_| !is_lost) {
                let heartbeat = Heartbeat { epoch: (*epoch).into(), offset: Some(id), lost: None };
                members.push(format!("\"{name}\":{}", heartbeat.to_json()));
            }
        }
        replay.beat = if count == 0 { 0 } else { (first + looked_at) % count };
        members.extend(losses.iter().map(Loss::to_member));
        (!members.is_empty()).then(|| format!("\"replay\":{{{}}}", members.join(",")))
    }
}

/// The channels of the messages that wait for a session.
enum Waiting {
    /// These channels.
    Of(BTreeSet<String>),
    /// Unknown: there are too many messages to look at.
    Any,
}

impl Waiting {
    /// The waiting messages that a reply on this WebSocket, or in a response, may overtake.
    fn of(session: &Session, on: Option<SocketKey>) -> Waiting {
        let unacked = session.unacked();
        if on.is_some() && unacked.is_none() {
            // The queue goes out before the reply.
            return Waiting::Of(BTreeSet::new());
        }
        let to_resend = unacked.into_iter().flat_map(|unacked| unacked.to_resend(on));
        if session.outbox.waiting_bytes() + to_resend.clone().map(InFlight::bytes).sum::<usize>() > WAITING_BYTES_MAX {
            return Waiting::Any;
        }
        let mut channels = BTreeSet::new();
        for frames in to_resend.flat_map(InFlight::ranges).chain(session.outbox.message_ranges()) {
            let bytes = frames.chunk.slice(frames.start, frames.end);
            let names = payloads(&bytes).filter_map(ext::position_of).map(|(channel, ..)| channel.into_owned());
            channels.extend(names);
        }
        Waiting::Of(channels)
    }

    fn has(&self, channel: &str) -> bool {
        match self {
            Waiting::Of(channels) => channels.contains(channel),
            Waiting::Any => true,
        }
    }
}

/// The most waiting bytes that are searched before a loss is reported. With more, the loss waits for a later connect:
/// each one takes some.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// The most channels whose position one connect reply reports. The next replies report the others.
const HEARTBEAT_CHANNELS_MAX: usize = 64;
