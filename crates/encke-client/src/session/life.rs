//! The life of a session: its state after each reply, break and moment.

use std::time::Instant;

use bayeux::channel::{META_CONNECT, META_DISCONNECT, META_HANDSHAKE};
use bayeux::ext::{ClientLimits, Stamped};
use bayeux::{ClientAdvice, Message as ClientMessage, RawJson, Reconnect, ServerMessage, parse_server_batch};

use crate::{Error, LostReason, NotBayeux, Refusal};

use super::timing::after;
use super::{Change, ClientSession, ConnectionType, Event, PendingChange, RequestClass, Sent, State};

impl ClientSession {
    /// There is a connection to the server: resumes the old session, or opens one.
    pub fn connection_opened(&mut self, now: Instant) {
        if !matches!(self.state, State::Disconnected) {
            return;
        }
        if self.client_id.is_some() {
            let mut id = 0;
            self.batch(|session| {
                session.resubscribe_after_break();
                id = session.send_connect(true);
            });
            self.state = State::Resuming(self.sent(id, now));
        } else {
            self.send_handshake(now);
        }
    }

    /// The connection broke. The time is for symmetry with the other calls: nothing depends on it.
    pub fn connection_lost(&mut self, reason: LostReason, _now: Instant) {
        match self.state {
            State::Disconnected | State::Ended => {}
            State::Disconnecting { id } => {
                self.state = State::Ended;
                self.replied(id, META_DISCONNECT, Err(Error::ConnectionLost(reason)));
            }
            _ => self.lose(reason),
        }
    }

    /// The connection could not be opened; the next pause is longer.
    pub fn connection_failed(&mut self, reason: LostReason, _now: Instant) {
        if matches!(self.state, State::Disconnected) {
            self.timing.failed();
            self.lose(reason);
        }
    }

    /// Takes one text from the server: an array, or a message alone.
    ///
    /// # Errors
    /// The text is something else. Nothing of it has been worked on; the caller closes the connection and calls
    /// [`ClientSession::connection_lost`], or gives up.
    pub fn received(&mut self, text: &str, now: Instant) -> Result<(), NotBayeux> {
        // A text answers no message that it has caused itself.
        let last_sent = self.last_id;
        let mut messages = parse_server_batch(text)?;
        if self.recovery.is_some() && messages.iter().any(|message| self.is_late(message)) {
            return Ok(());
        }
        self.put_resubscribe_replies_first(&mut messages);
        for message in messages {
            if self.is_ended() {
                break;
            }
            if self.extensions.pass(&message) {
                self.take(message, last_sent, now)?;
            }
        }
        Ok(())
    }

    /// The time at which [`ClientSession::wake`] is to be called, if nothing else happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        match self.state {
            State::Disconnected | State::TokenDue | State::Disconnecting { .. } | State::Ended => None,
            State::HandshakeDue(at) | State::ConnectDue(at) => Some(at),
            State::Resubscribing { deadline, .. } => Some(deadline),
            State::Handshaking(sent) | State::Resuming(sent) | State::Connected(sent) => Some(sent.deadline),
        }
    }

    /// Does everything that is due by now: connects, handshakes, or finds the server gone. A call too early does nothing.
    pub fn wake(&mut self, now: Instant) {
        match self.state {
            State::HandshakeDue(at) if at <= now => self.send_handshake(now),
            State::ConnectDue(at) if at <= now => {
                let id = self.send_connect(false);
                let deadline = after(after(now, self.timing.hold), self.options.reply_timeout);
                self.state = State::Connected(Sent { id, deadline });
            }
            State::Handshaking(Sent { deadline, .. })
            | State::Resubscribing { deadline, .. }
            | State::Resuming(Sent { deadline, .. })
            | State::Connected(Sent { deadline, .. })
                if deadline <= now =>
            {
                self.lose(LostReason::NoReply);
            }
            _ => {}
        }
    }

    fn take(&mut self, message: ServerMessage<'_>, last_sent: u64, now: Instant) -> Result<(), NotBayeux> {
        if !message.is_reply() {
            self.watch_tokens(&message);
            self.delivered(message);
            return Ok(());
        }
        if message.is_meta()
            && let Some(advice) = message.advice
        {
            self.timing.advise(advice);
        }
        let (id, resubscribe) = (message.number(), self.resubscribe_of(&message));
        self.take_ext(&message);
        let answers = |sent: Sent| sent.id <= last_sent && sent.is_answered_by(id);
        if let Some(at) = resubscribe {
            self.resubscribed(at, &message, now);
            return Ok(());
        }
        match (self.state.clone(), &*message.channel) {
            (State::Handshaking(sent), META_HANDSHAKE) if answers(sent) => self.handshake_replied(&message, now)?,
            (State::Resuming(sent), META_CONNECT) if answers(sent) => self.resume_replied(&message, now),
            (State::Connected(sent), META_CONNECT) if answers(sent) => self.connect_replied(&message, now),
            (State::Disconnecting { id: sent }, META_DISCONNECT) if id.is_none_or(|id| id == sent) => {
                self.state = State::Ended;
                self.client_id = None;
                self.replied(sent, META_DISCONNECT, outcome(&message).map_err(Error::Refused));
            }
            // A server that ends a session says so with a disconnect that answers nothing.
            (_, META_DISCONNECT) if id.is_none() => match message.reconnect() {
                Some(Reconnect::Handshake | Reconnect::Retry) => self.renew(now),
                _ => {
                    let reason = message.error.as_deref().unwrap_or(ENDED_BY_SERVER);
                    let refusal = Refusal::new(META_DISCONNECT, reason);
                    self.end(refusal, now);
                }
            },
            // An older connect that a newer one replaced, or whose reply came after a break.
            (_, META_HANDSHAKE | META_CONNECT) => {}
            _ => self.other_replied(&message, now),
        }
        Ok(())
    }

    /// True for the reply to a connect that the session has given up, on a connection of the caller that has not ended with it. What the
    /// session has not confirmed comes again; its next connect may be written already.
    fn is_late(&self, message: &ServerMessage<'_>) -> bool {
        message.channel == META_CONNECT
            && match self.state {
                State::Resuming(sent) | State::Connected(sent) => !sent.is_answered_by(message.number()),
                State::ConnectDue(_) | State::Disconnecting { .. } | State::Ended => false,
                _ => true,
            }
    }

    fn handshake_replied(&mut self, message: &ServerMessage<'_>, now: Instant) -> Result<(), NotBayeux> {
        if message.successful.is_none() || (message.successful == Some(true) && message.client_id.is_none()) {
            return Err(NotBayeux::NoClientId);
        }
        if let Some(bytes) = message.client_id.as_deref().map(str::len).filter(|bytes| *bytes > CLIENT_ID_BYTES_MAX) {
            return Err(NotBayeux::LongClientId(bytes));
        }
        match (outcome(message), message.reconnect()) {
            (Ok(()), _) => {
                self.client_id = message.client_id.as_deref().map(Into::into);
                let limits = message.ext.and_then(ClientLimits::read);
                self.message_bytes_max = limits.map_or(u64::MAX, |limits| limits.message_bytes);
                if self.subscriptions.is_empty() {
                    self.open(now, false);
                } else {
                    self.resubscribe_all(RequestClass::Other);
                    self.state = State::Resubscribing { deadline: self.deadline(now), resumed: false };
                }
            }
            (Err(refusal), Some(Reconnect::Retry | Reconnect::Handshake)) => {
                tracing::warn!(%refusal, "no session, trying on as the server advises");
                self.renew(now);
            }
            (Err(refusal), Some(Reconnect::None) | None) => self.end(refusal, now),
        }
        Ok(())
    }

    /// The error for a publication that cannot be sent now, or is longer than the server takes.
    pub(super) fn refusal_of(&self, channel: &str, data: RawJson<'_>) -> Option<Error> {
        let (bytes, bytes_max) = (data.as_str().len() + channel.len() + ENVELOPE_BYTES, self.message_bytes_max);
        match self.is_open() {
            false => Some(Error::Closed),
            true => (bytes as u64 > bytes_max).then_some(Error::TooLarge { bytes, bytes_max }),
        }
    }

    fn resume_replied(&mut self, message: &ServerMessage<'_>, now: Instant) {
        match (outcome(message), message.reconnect()) {
            (Ok(()), Some(Reconnect::None)) => self.end(Refusal::new(META_CONNECT, ENDED_BY_SERVER), now),
            (Err(refusal), Some(Reconnect::None)) => self.end(refusal, now),
            (_, Some(Reconnect::Handshake)) | (Err(_), None) => self.renew(now),
            (Ok(()), _) => {
                self.timing.succeeded();
                if self.resubscribes.is_empty() {
                    self.open(now, true);
                } else {
                    self.state = State::Resubscribing { deadline: self.deadline(now), resumed: true };
                }
            }
            (Err(refusal), Some(Reconnect::Retry)) => self.lose(LostReason::Refused(refusal)),
        }
    }

    fn connect_replied(&mut self, message: &ServerMessage<'_>, now: Instant) {
        match (outcome(message), message.reconnect()) {
            (Ok(()), Some(Reconnect::None)) => self.end(Refusal::new(META_CONNECT, ENDED_BY_SERVER), now),
            (Err(refusal), Some(Reconnect::None)) => self.end(refusal, now),
            (_, Some(Reconnect::Handshake)) => self.renew(now),
            (Ok(()), _) => {
                self.timing.succeeded();
                self.state = State::ConnectDue(after(now, self.timing.interval));
                self.wake(now);
            }
            (Err(_), _) => {
                self.timing.failed();
                let pause = self.timing.pause(self.options.backoff_step, self.options.backoff_max);
                self.state = State::ConnectDue(after(now, pause));
            }
        }
    }

    /// A reply to something other than a handshake or a connect.
    fn other_replied(&mut self, message: &ServerMessage<'_>, now: Instant) {
        let Some(id) = message.number() else { return };
        let advised = message.advice.and_then(|advice| advice.reconnect);
        let outcome = outcome(message);
        let pending = self.pending_changes.iter().position(|pending| pending.id == id);
        let session_gone = match &outcome {
            Ok(()) => false,
            Err(refusal) => advised == Some(Reconnect::Handshake) || (pending.is_some() && refusal.code() == Some(402)),
        };
        match pending {
            // It is sent again in the next session, and gets its reply then.
            Some(_) if session_gone => {}
            Some(at) => {
                let pending = self.pending_changes.remove(at);
                if self.pending_changes.is_empty() {
                    self.pending_changes = Vec::new();
                }
                self.settle(pending, outcome.is_ok());
                self.replied(id, &message.channel, outcome.map_err(Error::Refused));
            }
            None => {
                let (channel, outcome) = (message.channel.as_ref().into(), outcome.map_err(Error::Refused));
                let stamped = message.ext.and_then(Stamped::read).filter(|_| outcome.is_ok());
                let position = stamped.map(|stamped| stamped.position.into_owned());
                self.events.push_back(Event::Replied { id, channel, outcome, position });
            }
        }
        if session_gone && self.is_open() {
            self.renew(now);
        }
    }

    /// Notes the subscriptions that a new session has to repeat.
    fn settle(&mut self, settled: PendingChange, granted: bool) {
        match settled.change {
            Change::Unsubscribe => {
                self.subscriptions.retain(|channel| !settled.channels.contains(channel));
                let Some(replay) = self.recovery.as_mut().and_then(|recovery| recovery.replay.as_mut()) else { return };
                settled.channels.iter().for_each(|channel| replay.forget(channel, &self.subscriptions));
            }
            Change::Subscribe => {
                if let Some(replay) = self.replay() {
                    replay.has_restarted(&settled.channels);
                }
                for channel in settled.channels.into_iter().filter(|_| granted) {
                    if !self.subscriptions.contains(&channel) {
                        self.subscriptions.push(channel);
                    }
                }
            }
        }
    }

    /// The session can be used. Changes of subscriptions without a reply are sent again: they may have been lost on their way.
    pub(super) fn open(&mut self, now: Instant, resumed: bool) {
        self.state = State::ConnectDue(if resumed { after(now, self.timing.interval) } else { now });
        self.events.push_back(Event::Opened { resumed });
        self.report_gaps(resumed);
        let pending_changes = std::mem::take(&mut self.pending_changes);
        self.batch(|session| {
            for PendingChange { id, change, channels } in &pending_changes {
                session.send_change(RequestClass::Other, *id, *change, channels, false);
            }
        });
        self.pending_changes = pending_changes;
        self.wake(now);
    }

    /// The server does not know the session, or not yet: a handshake over the same connection, at once the first time.
    pub(super) fn renew(&mut self, now: Instant) {
        let refused = matches!(self.state, State::Handshaking(_));
        self.client_id = None;
        let pause = if refused || self.timing.is_failing() {
            self.timing.failed();
            self.timing.pause(self.options.backoff_step, self.options.backoff_max)
        } else {
            self.timing.failed();
            self.timing.interval
        };
        self.state = State::HandshakeDue(after(now, pause));
        self.wake(now);
    }

    /// Sends a connect: with `at_once` the server does not hold it.
    fn send_connect(&mut self, at_once: bool) -> u64 {
        let id = self.next_id();
        let connection_type = match self.options.connection_type {
            // There is no stream yet; the server may not know that the earlier one broke.
            ConnectionType::EventSource if at_once => ConnectionType::LongPolling,
            connection_type => connection_type,
        };
        let message = ClientMessage {
            connection_type: Some(connection_type.name().into()),
            advice: at_once.then_some(ClientAdvice { timeout_ms: Some(0), ..ClientAdvice::default() }),
            ..ClientMessage::new(META_CONNECT)
        };
        self.send(RequestClass::Connect, id, message);
        id
    }

    pub(super) fn send_handshake(&mut self, now: Instant) {
        (self.client_id, self.resubscribes) = (None, Vec::new());
        if self.lacks_token() {
            return;
        }
        let id = self.next_id();
        let types = format!("[\"{}\"]", self.options.connection_type.name());
        let message = ClientMessage {
            version: Some(RawJson::trusted("\"1.0\"")),
            supported_connection_types: Some(RawJson::trusted(&types)),
            ..ClientMessage::new(META_HANDSHAKE)
        };
        self.send(RequestClass::Handshake, id, message);
        self.state = State::Handshaking(self.sent(id, now));
    }

    /// The connection is of no use any more, nor are the texts that wait for it.
    pub(super) fn lose(&mut self, reason: LostReason) {
        if matches!(
            self.state,
            State::HandshakeDue(_)
                | State::TokenDue
                | State::Handshaking(_)
                | State::Resubscribing { .. }
                | State::Resuming(_)
        ) {
            self.timing.failed();
        }
        if matches!(self.state, State::Resubscribing { resumed: false, .. }) {
            // The server may not have its subscriptions, and a resumed session does not send them again.
            self.client_id = None;
        }
        self.state = State::Disconnected;
        self.out.clear();
        self.resubscribes = Vec::new();
        if let Some(recovery) = &mut self.recovery {
            recovery.connection_lost();
        }
        let reopen_in = self.timing.pause(self.options.backoff_step, self.options.backoff_max);
        self.events.push_back(Event::Lost { reason, reopen_in });
    }

    pub(super) fn finish(&mut self, error: Error) {
        self.state = State::Ended;
        self.client_id = None;
        self.out.clear();
        self.events.push_back(Event::Ended(error));
    }

    fn sent(&self, id: u64, now: Instant) -> Sent {
        Sent { id, deadline: self.deadline(now) }
    }

    fn deadline(&self, now: Instant) -> Instant {
        after(now, self.options.reply_timeout)
    }
}

impl Sent {
    /// A reply without an id answers the message that waits for a reply on its channel.
    fn is_answered_by(self, id: Option<u64>) -> bool {
        id.is_none_or(|id| id == self.id)
    }
}

/// The outcome that a reply reports.
pub(super) fn outcome(message: &ServerMessage<'_>) -> Result<(), Refusal> {
    if message.successful == Some(true) {
        return Ok(());
    }
    Err(Refusal::new(&*message.channel, message.error.as_deref().unwrap_or_default()))
}

/// The longest id of a session, in bytes: each message repeats it.
const CLIENT_ID_BYTES_MAX: usize = 1024;

const ENDED_BY_SERVER: &str = "the server ended the session";

/// The bytes of a publication beside its channel and its data: its fields, its id and that of its session.
const ENVELOPE_BYTES: usize = 200;
