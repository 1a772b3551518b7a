//! The connection of a session: a WebSocket, or a request whose connect is held. A session leaves one before it takes
//! another.

use crate::delivery::Delivery;
use crate::delivery::sessions::session::{HeldConnect, ReplyTo};
use crate::events::{Response, SessionKey, SocketKey};

impl Delivery {
    /// Attaches a session to a socket if its messages allow it: a connect always does, other messages only while the
    /// session has no connection.
    pub(crate) fn carry(&mut self, session: SessionKey, socket: SocketKey, messages: &[bayeux::Message<'_>]) {
        let connects = || messages.iter().any(|m| m.channel.as_deref() == Some(bayeux::channel::META_CONNECT));
        let Some(state) = self.sessions.get(session) else { return };
        if state.socket() != Some(socket) && (state.is_away() || connects()) {
            self.attach(session, socket);
        }
    }

    /// Attaches the session to this socket and detaches it from its previous connection.
    pub(crate) fn attach(&mut self, session: SessionKey, socket: SocketKey) {
        let before = self.socket(socket).and_then(|socket| socket.session);
        if let Some(before) = before.filter(|before| *before != session) {
            self.take_held(before);
            self.detach(before);
        }
        self.supersede(session);
        self.detach(session);
        self.settle_manner(session);
        let is_stream = self.is_stream(socket);
        let Some(state) = self.sessions.get_mut(session) else { return };
        if is_stream {
            self.exchanges.count(state.browser);
            self.metrics.streams.add(1);
        }
        state.attach(socket);
        if !state.outbox.is_empty() {
            self.schedule.write_session(session, &mut state.marks);
        }
        if let Some(socket) = self.sockets.get_mut(socket) {
            socket.session = Some(session);
        }
        self.replay_later(session);
    }

    /// Detaches a session from its socket. A socket that has only a part of a frame cannot send anything else and is
    /// shut. A stream ends.
    pub(crate) fn detach(&mut self, session: SessionKey) {
        let (now_ms, terms) = (self.now.ms, self.terms_of(session));
        let Some(socket) = self.sessions.get(session).and_then(|session| session.socket()) else { return };
        let is_stream = self.is_stream(socket);
        self.take_back(socket);
        let Some(state) = self.sessions.get_mut(session) else { return };
        let browser = state.browser;
        let left = state.detach();
        if is_stream {
            // Its client was not silent until now.
            state.protocol.received(now_ms, &terms);
            self.has_left_stream(browser);
        }
        let Some(state) = self.sessions.get_mut(session) else { return };
        state.marks.unblock();
        if let Some(state) = self.sockets.get_mut(socket) {
            state.session = None;
            state.alone_ms = now_ms;
            self.arm_socket(socket, now_ms + self.settings.handshake_timeout_ms);
        }
        if left.is_torn {
            self.abort_socket(socket);
        } else if let Some(state) = self.sockets.get_mut(socket) {
            // Replies stay on the socket on which the client asked. Until now the session listed the socket for
            // writing.
            if !left.replies.is_empty() {
                state.own_mut().out.append(left.replies);
            }
            if state.out().is_some() {
                self.write_socket(socket);
            }
            if is_stream {
                // It serves this session only.
                self.close_socket(socket, 1000, "");
            }
        }
    }

    /// Returns messages of a closing socket that the kernel has not taken to its session, if that gets messages with
    /// connects only.
    pub(super) fn take_back(&mut self, key: SocketKey) {
        let Delivery { sockets, sessions, .. } = self;
        let Some(socket) = sockets.get_mut(key) else { return };
        let session = socket.session.and_then(|session| sessions.get_mut(session));
        if let Some(session) = session.filter(|session| session.socket_with_messages().is_some()) {
            let Some(own) = &mut socket.own else { return };
            session.outbox.settle_charge(std::mem::take(&mut own.handed));
            session.outbox.prepend(std::mem::take(&mut own.out));
            socket.free_own();
        }
    }

    /// Ends the held connect, as a newer one has come: over HTTP with an error status, on a WebSocket without a reply
    /// (CometD 9).
    pub(crate) fn supersede(&mut self, key: SessionKey) {
        self.end_held(key, self.settings.duplicate_connect_status);
    }

    /// Takes the held connect out of a session, and updates the counts.
    pub(crate) fn take_held(&mut self, key: SessionKey) -> Option<(ReplyTo, HeldConnect)> {
        let session = self.sessions.get_mut(key)?;
        let held = session.take_held()?;
        self.metrics.held.set((self.metrics.held.get() as usize).saturating_sub(1));
        if let ReplyTo::Request(exchange, _) = &held.0 {
            self.exchanges.release(exchange, session.browser);
        }
        self.release(key);
        Some(held)
    }

    /// Marks the session as holding no connect. Its expiry counts from now.
    pub(crate) fn release(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.now.ms, self.terms_of(key));
        if let Some(session) = self.sessions.get_mut(key) {
            session.protocol.release(now_ms, &terms);
            self.arm(key);
        }
    }

    /// Ends the held connect without a Bayeux reply. An HTTP request gets this status.
    pub(crate) fn end_held(&mut self, key: SessionKey, status: u16) {
        if let Some((ReplyTo::Request(exchange, _), _)) = self.take_held(key) {
            self.respond(exchange, Response::with_status(status));
        }
    }
}
