//! Events of sessions: sockets, timers, and the session state machines.

use std::time::{Duration, Instant};

use encke_client::Error;
use encke_client::session::{Event, RequestClass, Transmission};

use crate::engine::clients::{Clients, Stage};
use crate::engine::clock::now_us;
use crate::engine::error::ConnectionError;
use crate::engine::events_link::Step;
use crate::engine::http::{self, Head};
use crate::engine::http_link::{Progress, Request, RequestTag};
use crate::engine::poll::Ready;
use crate::engine::pool::Outcome;
use crate::engine::session::{Connection, Reconnection, Session, SessionState};

impl Clients {
    /// Begins the connection of a session that is [`SessionState::Opening`].
    pub(super) fn open_connection(&mut self, index: usize) {
        let opened = match &mut self.sessions[index].connection {
            Connection::WebSocket(link) => link.open(index, &self.shared),
            Connection::Stream(link) => self.http2.open(index, link, &self.shared),
            Connection::Http { link, .. } => link.open(index as u64, &self.shared),
            // Its requests go over the pool, and its stream opens with the session.
            Connection::Events { .. } => return self.connected(index),
        };
        match opened {
            Ok(()) => self.watch(index),
            Err(error) => self.error(index, error),
        }
    }

    /// Serves a socket that is ready.
    pub(super) fn serve(&mut self, ready: &Ready) {
        let index = ready.token as usize;
        if index >= self.sessions.len() {
            let shared = index - self.total;
            if let Some(link) = shared.checked_sub(self.pool.len()) {
                let served = self.http2.step(link, ready, &mut self.sessions, &mut self.shared);
                return self.served(served);
            }
            let outcome = self.pool.step(shared, ready, &mut self.shared);
            return self.pool_outcome(outcome);
        }
        let Session { protocol, connection, .. } = &mut self.sessions[index];
        match connection {
            Connection::WebSocket(link) => match link.step(ready, index, protocol, &mut self.shared) {
                Ok(false) => self.watch(index),
                Ok(true) => self.settle(index),
                Err(error) => self.error(index, error),
            },
            // Its socket has another token.
            Connection::Stream(_) => {}
            Connection::Http { link, .. } => match link.step(ready, &mut self.shared) {
                Ok(Progress::None | Progress::Closed) => self.watch(index),
                Ok(Progress::Connected) => self.connected(index),
                Ok(Progress::Answered(tag, response)) => {
                    self.answered(tag, &response);
                    self.watch(index);
                }
                Err(error) => self.error(index, error),
            },
            Connection::Events { link, .. } => match link.step(ready, index, protocol, &mut self.shared) {
                Ok(Step::Nothing) => self.watch(index),
                Ok(Step::Received) => self.settle(index),
                Ok(Step::Opened(connect)) => {
                    let tag = RequestTag { session: index, publications: None };
                    connect.into_iter().for_each(|connect| self.send_pooled(tag, connect.as_bytes()));
                    self.open_if_complete(index);
                    self.settle(index);
                }
                Err(error) => self.error(index, error),
            },
        }
    }

    /// Runs the timers that are due, and reopens connections within the limit.
    pub(super) fn wake(&mut self) {
        let now = now_us();
        while let Some((at_us, index)) = self.timers.due(now) {
            let session = &mut self.sessions[index as usize];
            if !session.timer.fire(at_us) {
                continue;
            }
            if session.reopen_us.is_some_and(|reopen_us| reopen_us <= now) {
                session.reopen_us = None;
                self.to_reopen.push_back(index as usize);
            }
            let instant = Instant::now();
            if session.protocol.wake_at().is_some_and(|wake_at| wake_at <= instant) {
                session.protocol.wake(instant);
            }
            self.settle(index as usize);
        }
        while self.opening_now < self.opening_at_once
            && let Some(index) = self.to_reopen.pop_front()
        {
            if self.sessions[index].state == SessionState::Away {
                self.set_state(index, SessionState::Opening);
                self.open_connection(index);
            }
        }
    }

    /// Processes a session's pending events and transmissions, and sets its next timer.
    pub(super) fn settle(&mut self, index: usize) {
        loop {
            self.note_repeats(index);
            while let Some(event) = self.sessions[index].protocol.event() {
                self.handle_event(index, event);
            }
            let Some(transmission) = self.sessions[index].protocol.transmit() else { break };
            self.transmit(index, &transmission);
        }
        self.watch(index);
        let session = &mut self.sessions[index];
        let wake_us =
            session.protocol.wake_at().map(|at| now_us() + micros(at.saturating_duration_since(Instant::now())));
        if let Some(at_us) = wake_us.into_iter().chain(session.reopen_us).min() {
            self.timers.set(index as u32, at_us, &mut session.timer);
        }
    }

    /// A session's connection is of no use any more.
    pub(super) fn error(&mut self, index: usize, error: ConnectionError) {
        self.note_repeats(index);
        self.give_up_replies_of(index);
        let session = &mut self.sessions[index];
        session.has_broken = true;
        let was_announced = session.is_announced();
        self.close(index);
        let session = &mut self.sessions[index];
        match (session.state, self.stage) {
            (SessionState::Gone | SessionState::Away, _) => return,
            (SessionState::Disconnecting, _) => return self.set_state(index, SessionState::Gone),
            (_, Stage::Opening) => {
                self.failure.get_or_insert(error);
                return self.set_state(index, SessionState::Gone);
            }
            (SessionState::Opening | SessionState::Open, _) => {}
        }
        match &error {
            ConnectionError::Refused(reason) => return self.drop_session(index, reason),
            // The session knows of a connection only when it can be used.
            _ if was_announced => session.protocol.connection_lost(error.reason(), Instant::now()),
            _ => session.protocol.connection_failed(error.reason(), Instant::now()),
        }
        self.settle(index);
    }

    /// Handles the outcome of a pool step.
    pub(super) fn pool_outcome(&mut self, outcome: Outcome) {
        if let Some((tag, response)) = outcome.answered {
            self.answered(tag, &response);
        }
        let Some(error) = outcome.error else { return };
        for tag in outcome.lost {
            match tag.publications {
                None => self.error(tag.session, error.clone()),
                Some(ids) => {
                    self.give_up(ids);
                    self.first_loss.get_or_insert_with(|| format!("a publication: the server {}", error.reason()));
                }
            }
        }
    }

    /// Changes a session's state and the counters.
    pub(super) fn set_state(&mut self, index: usize, state: SessionState) {
        let before = std::mem::replace(&mut self.sessions[index].state, state);
        self.count_state(before, state);
    }

    /// Updates the counters for a session that changes from `before` to `after`.
    fn count_state(&mut self, before: SessionState, after: SessionState) {
        self.connected =
            self.connected + u64::from(after == SessionState::Open) - u64::from(before == SessionState::Open);
        self.opening_now = self.opening_now + usize::from(after == SessionState::Opening)
            - usize::from(before == SessionState::Opening);
        self.disconnecting = self.disconnecting + usize::from(after == SessionState::Disconnecting)
            - usize::from(before == SessionState::Disconnecting);
    }

    /// Sends a request over the pool.
    pub(super) fn send_pooled(&mut self, tag: RequestTag, body: &[u8]) {
        let bytes = self.request(tag.session, body);
        let outcome = self.pool.send(Request { tag, bytes }, &self.shared);
        self.pool_outcome(outcome);
    }

    fn connected(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        // Otherwise a connection was made again for the next request, which the session need not know.
        if session.state == SessionState::Opening && !session.announced {
            session.announced = true;
            session.protocol.connection_opened(Instant::now());
        }
        self.settle(index);
    }

    /// Takes the response to a request of a session, whichever connection it came on. Its body is in `shared.body`.
    fn answered(&mut self, tag: RequestTag, response: &Head) {
        let index = tag.session;
        if response.status != 200 {
            let text = format!("answered {}", response.reason);
            let Some(ids) = tag.publications else { return self.error(index, ConnectionError::NotSpoken(text)) };
            self.give_up(ids);
            self.first_loss.get_or_insert_with(|| format!("a publication: the server {text}"));
            return;
        }
        let body = std::mem::take(&mut self.shared.body);
        let Session { protocol, connection, .. } = &mut self.sessions[index];
        if let Connection::Http { cookies, .. } | Connection::Events { cookies, .. } = connection {
            http::set_cookies(cookies, &response.cookies);
        }
        let for_session = self.shared.take_bayeux(&body, index, protocol);
        self.shared.body = body;
        // The response is over: a publication without a reply in it gets none.
        tag.publications.into_iter().for_each(|ids| self.give_up(ids));
        if self.sessions[index].reconnection == Reconnection::No {
            // A long-polling session without a request under way does not notice that its server was gone.
            self.sessions[index].reconnection = Reconnection::Connect;
        }
        match for_session {
            Ok(false) => {}
            Ok(true) => self.settle(index),
            Err(error) => self.error(index, error),
        }
    }

    /// Counts the messages that the session dropped as repeats. After a break a repeat is allowed, otherwise it is a
    /// doubled delivery.
    fn note_repeats(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        let repeats = session.protocol.repeats();
        let again = repeats - std::mem::replace(&mut session.repeats, repeats);
        self.breaks.again += again;
        if !session.has_broken {
            self.shared.reader.tally.note_doubled(again);
        }
    }

    fn handle_event(&mut self, index: usize, event: Event) {
        let session = &mut self.sessions[index];
        match event {
            Event::Opened { resumed } => {
                // A session that starts over although its connection holds counts as broken, too.
                session.has_broken |= session.state == SessionState::Open;
                (session.usable, session.reconnection) =
                    (true, if resumed { Reconnection::Connect } else { Reconnection::Handshake });
                let is_subscriber = index < self.subscriber_count;
                self.breaks.resumed += u64::from(resumed && is_subscriber);
                self.breaks.renewed += u64::from(!resumed && is_subscriber);
                self.open_stream(index);
                self.open_if_complete(index);
            }
            Event::Replied { channel, .. } if channel == "/meta/disconnect" => {
                self.close(index);
                self.set_state(index, SessionState::Gone);
            }
            Event::Replied { id, outcome, .. } if session.subscribing == Some(id) => match outcome {
                Ok(()) => {
                    session.subscribing = None;
                    self.open_if_complete(index);
                }
                Err(error) => {
                    self.error(index, ConnectionError::Refused(format!("refused a subscription: {}", refusal(&error))))
                }
            },
            Event::Replied { channel, outcome: Err(error), .. } => {
                self.first_loss.get_or_insert_with(|| format!("the server refused {channel}: {}", refusal(&error)));
            }
            Event::Message(message) => self.shared.reader.take_message(&message, index),
            Event::Gap(_) => self.breaks.gaps += 1,
            Event::Lost { reason, reopen_in } => self.lost(index, reason.to_string(), reopen_in),
            Event::Ended(error) => self.error(index, ConnectionError::Refused(format!("ended the session: {error}"))),
            _ => {}
        }
    }

    /// Opens the stream of a session that has server-sent events.
    fn open_stream(&mut self, index: usize) {
        let Session { connection, protocol, .. } = &mut self.sessions[index];
        let Connection::Events { link, cookies } = connection else { return };
        let request = http::get_events(&self.shared.target, cookies, protocol.client_id());
        if let Err(error) = link.open(&request, &self.shared) {
            self.error(index, error);
        }
    }

    fn open_if_complete(&mut self, index: usize) {
        let session = &self.sessions[index];
        let is_complete = session.usable && session.subscribing.is_none() && session.can_receive();
        if is_complete && session.state == SessionState::Opening {
            self.set_state(index, SessionState::Open);
        }
    }

    fn lost(&mut self, index: usize, reason: String, reopen_in: Duration) {
        self.give_up_replies_of(index);
        self.close(index);
        let session = &mut self.sessions[index];
        session.has_broken = true;
        match (session.state, self.stage) {
            (SessionState::Gone, _) => {}
            (SessionState::Disconnecting, _) => self.set_state(index, SessionState::Gone),
            (_, Stage::Opening) => self.error(index, ConnectionError::Lost(reason)),
            (SessionState::Opening | SessionState::Open | SessionState::Away, _) if self.reconnect => {
                let pause_us = self.breaker.as_mut().map_or(micros(reopen_in), |breaker| breaker.offline_us());
                // The test needs messages published while others are offline, so publishers return soon.
                let is_publisher = index >= self.subscriber_count;
                session.reopen_us =
                    Some(now_us() + if is_publisher { pause_us.min(PUBLISHER_PAUSE_US) } else { pause_us });
                self.first_loss.get_or_insert(reason);
                self.set_state(index, SessionState::Away);
            }
            (SessionState::Opening | SessionState::Open | SessionState::Away, _) => self.drop_session(index, &reason),
        }
    }

    fn drop_session(&mut self, index: usize, reason: &str) {
        self.close(index);
        if self.sessions[index].state != SessionState::Gone {
            self.dropped += 1;
            self.first_loss.get_or_insert_with(|| reason.to_owned());
            self.set_state(index, SessionState::Gone);
        }
    }

    /// Sends a text of a session: over its own connection where that is free, or if it is the connect.
    fn transmit(&mut self, index: usize, transmission: &Transmission) {
        let body = transmission.text.as_bytes();
        let tag = RequestTag { session: index, publications: None };
        let sent = match &mut self.sessions[index].connection {
            Connection::WebSocket(link) => link.send(body),
            Connection::Stream(link) => self.http2.send(index, link, body, &mut self.shared),
            Connection::Events { link, .. } => {
                if transmission.class == RequestClass::Connect && link.is_opening() {
                    return link.wait(&transmission.text);
                }
                return self.send_pooled(tag, body);
            }
            Connection::Http { link, .. } if transmission.class != RequestClass::Connect && link.is_busy() => {
                return self.send_pooled(tag, body);
            }
            Connection::Http { .. } => {
                let bytes = self.request(index, body);
                let Connection::Http { link, .. } = &mut self.sessions[index].connection else { return };
                link.send(Request { tag, bytes }, index as u64, &self.shared)
            }
        };
        if let Err(error) = sent {
            self.error(index, error);
        }
    }

    fn request(&self, index: usize, body: &[u8]) -> Vec<u8> {
        let (Connection::Http { cookies, .. } | Connection::Events { cookies, .. }) = &self.sessions[index].connection
        else {
            return Vec::new();
        };
        let mut bytes = Vec::new();
        http::post(&self.shared.target, cookies, body, &mut bytes);
        bytes
    }

    /// Registers the events that the session's connection waits for with epoll.
    pub(super) fn watch(&mut self, index: usize) {
        let watched = match &mut self.sessions[index].connection {
            Connection::WebSocket(link) => match &mut link.socket {
                Some(socket) => socket.watch(&self.shared.poll, index as u64).map_err(ConnectionError::from),
                None => Ok(()),
            },
            Connection::Stream(_) => {
                let served = self.http2.flush(index, &self.shared);
                return self.served(served);
            }
            Connection::Http { link, .. } => link.pump(index as u64, &self.shared),
            Connection::Events { link, .. } => match &mut link.socket {
                Some(socket) => socket.watch(&self.shared.poll, index as u64).map_err(ConnectionError::from),
                None => Ok(()),
            },
        };
        if let Err(error) = watched {
            self.error(index, error);
        }
    }
}

/// The longest that a publisher stays away.
const PUBLISHER_PAUSE_US: u64 = 100_000;

fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}

/// The Bayeux error of a refusal.
fn refusal(error: &Error) -> String {
    match error {
        Error::Refused(refusal) => refusal.error.clone(),
        error => error.to_string(),
    }
}
