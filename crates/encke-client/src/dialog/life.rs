//! The life of a session: what each reply, break and moment makes of it.

use std::time::Instant;

use crate::Error;
use crate::message::{Envelope, Incoming, Reconnect};

use super::pace::after;
use super::{Asked, CONNECT, Change, DISCONNECT, Dialog, Event, HANDSHAKE, Lane, Sent, State};

impl Dialog {
    /// There is a way to the server: goes on with the old session, or opens one.
    pub fn carrier_opened(&mut self, now: Instant) {
        if !matches!(self.state, State::Away) {
            return;
        }
        if self.client_id.is_some() {
            let mut id = 0;
            self.batch(|dialog| {
                dialog.name_places();
                id = dialog.send_connect(true);
            });
            self.state = State::Resuming(self.awaited(id, now));
        } else {
            self.shake(now);
        }
    }

    /// The way to the server broke. The moment is for symmetry with the other calls: nothing depends on it.
    pub fn carrier_lost(&mut self, reason: &str, _now: Instant) {
        match self.state {
            State::Away | State::Over => {}
            State::Leaving { id } => {
                self.state = State::Over;
                self.replied(id, DISCONNECT, Err(reason.into()));
            }
            _ => self.lose(reason),
        }
    }

    /// The way to the server could not be opened; the next pause is longer.
    pub fn carrier_failed(&mut self, reason: &str, _now: Instant) {
        if matches!(self.state, State::Away) {
            self.pace.failed();
            self.lose(reason);
        }
    }

    /// Takes one text from the server: an array, or a message alone.
    ///
    /// # Errors
    /// [`Error::NotBayeux`]: the text is something else. None of it has been worked on; the caller closes the carrier and says
    /// [`Dialog::carrier_lost`], or gives up.
    pub fn received(&mut self, text: &str, now: Instant) -> Result<(), Error> {
        let mut messages = Incoming::parse(text).map_err(|_| not_bayeux("it sent something that is not Bayeux"))?;
        self.put_naming_first(&mut messages);
        for message in messages {
            if self.is_over() {
                break;
            }
            if self.extensions.keep(&message) {
                self.take(message, now)?;
            }
        }
        Ok(())
    }

    /// When [`Dialog::wake`] is to be called, if nothing else happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        match self.state {
            State::Away | State::Leaving { .. } | State::Over => None,
            State::Unshaken(at) | State::Due(at) => Some(at),
            State::Restoring { deadline, .. } => Some(deadline),
            State::Handshaking(sent) | State::Resuming(sent) | State::Held(sent) => Some(sent.deadline),
        }
    }

    /// Does what is due by now: connects, handshakes, or finds the server gone. A call too early does nothing.
    pub fn wake(&mut self, now: Instant) {
        match self.state {
            State::Unshaken(at) if at <= now => self.shake(now),
            State::Due(at) if at <= now => {
                let id = self.send_connect(false);
                let deadline = after(after(now, self.pace.held), self.options.network_delay_max);
                self.state = State::Held(Sent { id, deadline });
            }
            State::Handshaking(Sent { deadline, .. })
            | State::Restoring { deadline, .. }
            | State::Resuming(Sent { deadline, .. })
            | State::Held(Sent { deadline, .. })
                if deadline <= now =>
            {
                self.lose("the server does not answer");
            }
            _ => {}
        }
    }

    fn take(&mut self, mut message: Incoming<'_>, now: Instant) -> Result<(), Error> {
        if !message.is_reply() {
            self.delivered(message);
            return Ok(());
        }
        if message.is_meta()
            && let Some(advice) = message.advice
        {
            self.pace.advise(advice);
        }
        let (id, naming) = (message.id(), self.naming_of(&message));
        self.take_ext(&message);
        // A reply without an id answers whatever is waited for on its channel.
        let answers = |sent: Sent| id.is_none_or(|id| id == sent.id);
        if let Some(at) = naming {
            self.named(at, message, now);
            return Ok(());
        }
        match (self.state.clone(), &*message.channel) {
            (State::Handshaking(sent), HANDSHAKE) if answers(sent) => self.handshake_replied(message, now)?,
            (State::Resuming(sent), CONNECT) if answers(sent) => self.resume_replied(message, now),
            (State::Held(sent), CONNECT) if answers(sent) => self.connect_replied(message, now),
            (State::Leaving { id: sent }, DISCONNECT) if id.is_none_or(|id| id == sent) => {
                self.state = State::Over;
                self.client_id = None;
                self.replied(sent, DISCONNECT, message.outcome());
            }
            // A server that ends a session says so with a disconnect that answers nothing.
            (_, DISCONNECT) if id.is_none() => match message.reconnect() {
                Some(Reconnect::Handshake | Reconnect::Retry) => self.renew(now),
                _ => self.end(DISCONNECT, ENDED_BY_SERVER),
            },
            // An older connect that a newer one replaced, or that was answered after a break.
            (_, HANDSHAKE | CONNECT) => {}
            _ => self.other_replied(message, now),
        }
        Ok(())
    }

    fn handshake_replied(&mut self, mut message: Incoming<'_>, now: Instant) -> Result<(), Error> {
        if message.successful.is_none() || (message.successful == Some(true) && message.client_id.is_none()) {
            return Err(not_bayeux("its handshake reply has no clientId"));
        }
        let reconnect = message.reconnect();
        match (message.outcome(), reconnect) {
            (Ok(()), _) => {
                self.client_id = message.client_id;
                if self.subscriptions.is_empty() {
                    self.open(now, false);
                } else {
                    self.name_all(Lane::Other);
                    self.state = State::Restoring { deadline: self.deadline(now), resumed: false };
                }
            }
            (Err(_), Some(Reconnect::Retry | Reconnect::Handshake)) => self.renew(now),
            (Err(error), Some(Reconnect::None) | None) => self.end(HANDSHAKE, &error),
        }
        Ok(())
    }

    fn resume_replied(&mut self, mut message: Incoming<'_>, now: Instant) {
        let reconnect = message.reconnect();
        match (message.outcome(), reconnect) {
            (Ok(()), Some(Reconnect::None)) => self.end(CONNECT, ENDED_BY_SERVER),
            (Err(error), Some(Reconnect::None)) => self.end(CONNECT, &error),
            (_, Some(Reconnect::Handshake)) | (Err(_), None) => self.renew(now),
            (Ok(()), _) => {
                self.pace.succeeded();
                if self.naming.is_empty() {
                    self.open(now, true);
                } else {
                    self.state = State::Restoring { deadline: self.deadline(now), resumed: true };
                }
            }
            (Err(error), Some(Reconnect::Retry)) => self.lose(&error),
        }
    }

    fn connect_replied(&mut self, mut message: Incoming<'_>, now: Instant) {
        let reconnect = message.reconnect();
        match (message.outcome(), reconnect) {
            (Ok(()), Some(Reconnect::None)) => self.end(CONNECT, ENDED_BY_SERVER),
            (Err(error), Some(Reconnect::None)) => self.end(CONNECT, &error),
            (_, Some(Reconnect::Handshake)) => self.renew(now),
            (Ok(()), _) => {
                self.pace.succeeded();
                self.state = State::Due(after(now, self.pace.interval));
                self.wake(now);
            }
            (Err(_), _) => {
                self.pace.failed();
                let pause = self.pace.pause(self.options.backoff_step, self.options.backoff_max);
                self.state = State::Due(after(now, pause));
            }
        }
    }

    /// A reply to something other than a handshake or a connect.
    fn other_replied(&mut self, mut message: Incoming<'_>, now: Instant) {
        let Some(id) = message.id() else { return };
        let advised = message.advice.and_then(|advice| advice.reconnect);
        let outcome = message.outcome();
        let asked = self.asked.iter().position(|asked| asked.id == id);
        let session_gone = match &outcome {
            Ok(()) => false,
            Err(error) => advised == Some(Reconnect::Handshake) || (asked.is_some() && error.starts_with("402")),
        };
        match asked {
            // It is asked for again in the next session, and answered then.
            Some(_) if session_gone => {}
            Some(at) => {
                let asked = self.asked.remove(at);
                if self.asked.is_empty() {
                    self.asked = Vec::new();
                }
                self.settle(asked, outcome.is_ok());
                self.replied(id, &message.channel, outcome);
            }
            None => self.replied(id, &message.channel, outcome),
        }
        if session_gone && self.is_open() {
            self.renew(now);
        }
    }

    /// Keeps what a new session is to have again.
    fn settle(&mut self, asked: Asked, granted: bool) {
        match asked.change {
            Change::Unsubscribe => {
                self.subscriptions.retain(|channel| !asked.channels.contains(channel));
                let Some(replay) = self.recovery.as_mut().and_then(|recovery| recovery.replay.as_mut()) else { return };
                asked.channels.iter().for_each(|channel| replay.forget(channel, &self.subscriptions));
            }
            Change::Subscribe => {
                if let Some(replay) = self.replay() {
                    replay.has_begun(&asked.channels);
                }
                for channel in asked.channels.into_iter().filter(|_| granted) {
                    if !self.subscriptions.contains(&channel) {
                        self.subscriptions.push(channel);
                    }
                }
            }
        }
    }

    /// The session can be used. What was asked before is said again, for it may have been lost on its way.
    pub(super) fn open(&mut self, now: Instant, resumed: bool) {
        self.state = State::Due(if resumed { after(now, self.pace.interval) } else { now });
        self.events.push_back(Event::Opened { resumed });
        self.tell_gaps(resumed);
        let asked = std::mem::take(&mut self.asked);
        self.batch(|dialog| {
            for Asked { id, change, channels } in &asked {
                dialog.send_change(Lane::Other, *id, *change, channels, false);
            }
        });
        self.asked = asked;
        self.wake(now);
    }

    /// The server does not know the session, or not yet: a handshake over the same carrier, at once the first time.
    pub(super) fn renew(&mut self, now: Instant) {
        let refused = matches!(self.state, State::Handshaking(_));
        self.client_id = None;
        let pause = if refused || self.pace.is_failing() {
            self.pace.failed();
            self.pace.pause(self.options.backoff_step, self.options.backoff_max)
        } else {
            self.pace.failed();
            self.pace.interval
        };
        self.state = State::Unshaken(after(now, pause));
        self.wake(now);
    }

    fn shake(&mut self, now: Instant) {
        (self.client_id, self.naming) = (None, Vec::new());
        let id = self.next_id();
        let envelope = Envelope {
            channel: HANDSHAKE,
            version: Some("1.0"),
            supported_connection_types: Some([self.options.connection_type.name()]),
            ..Envelope::default()
        };
        self.send(Lane::Other, id, envelope);
        self.state = State::Handshaking(self.awaited(id, now));
    }

    /// The carrier is of no use any more, and what waited for it is void.
    pub(super) fn lose(&mut self, reason: &str) {
        if matches!(
            self.state,
            State::Unshaken(_) | State::Handshaking(_) | State::Restoring { .. } | State::Resuming(_)
        ) {
            self.pace.failed();
        }
        self.state = State::Away;
        self.out.clear();
        self.naming = Vec::new();
        if let Some(recovery) = &mut self.recovery {
            recovery.carrier_lost();
        }
        let reopen_in = self.pace.pause(self.options.backoff_step, self.options.backoff_max);
        self.events.push_back(Event::Lost { reason: reason.into(), reopen_in });
    }

    pub(super) fn end(&mut self, channel: &str, error: &str) {
        self.finish(Error::Refused { channel: channel.into(), error: error.into() });
    }

    pub(super) fn finish(&mut self, error: Error) {
        self.state = State::Over;
        self.client_id = None;
        self.out.clear();
        self.events.push_back(Event::Ended(error));
    }

    fn awaited(&self, id: u64, now: Instant) -> Sent {
        Sent { id, deadline: self.deadline(now) }
    }

    fn deadline(&self, now: Instant) -> Instant {
        after(now, self.options.network_delay_max)
    }
}

/// The caller knows where it is.
fn not_bayeux(reason: &str) -> Error {
    Error::NotBayeux { address: "the other end".into(), reason: reason.into() }
}

const ENDED_BY_SERVER: &str = "the server ended the session";
