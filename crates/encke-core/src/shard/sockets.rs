//! The table of WebSockets, and their own queues beside those of their sessions. The server calls
//! [`Shard::socket_opened`], [`Shard::socket_writable`] and [`Shard::socket_pong`]. `attach`, `connect_reply` and
//! `ending` lead here when a session leaves its WebSocket.

use std::sync::Arc;

use crate::clients::newcomers::Origins;
use crate::connections::socket::{Opener, OwnHead, Phase, STRANGER_REPLIES_BYTES_MAX, Socket};
use crate::events::{Effect, SessionKey, SocketKey};
use crate::identity::Head;
use crate::outbox::arena::Frames;
use crate::outbox::memory::Counted;
use crate::outbox::{Kind, Outbox};
use crate::sessions::session::Session;
use crate::shard::Parts;

impl Parts {
    /// Notes where a WebSocket comes from. Its head counts as memory of the sessions.
    pub(super) fn set_origin(&mut self, key: SocketKey, origins: Origins, head: Option<Arc<Head>>) {
        let account = self.fanout.encoder.account().clone();
        let Some(socket) = self.socket_mut(key) else { return };
        socket.origins = origins;
        socket.head = head.map(|head| {
            let counted = Counted::new(&account, head.bytes());
            Box::new(OwnHead { head, counted })
        });
    }

    /// True if frames may be sent on this WebSocket.
    pub(super) fn is_open(&self, key: SocketKey) -> bool {
        self.socket(key).is_some_and(|socket| socket.phase == Phase::Open)
    }

    pub(super) fn open_socket(&mut self, opener: Opener) -> SocketKey {
        let now = self.now;
        let key = self.connections.sockets.insert(opener, now.ms);
        self.arm_socket(key, now.ms + self.settings.given().handshake_timeout_ms);
        self.metrics.sockets.set(self.connections.sockets.len());
        key
    }

    /// Schedules a socket that was blocked. Its client has read some of what the kernel held: it is not silent.
    pub(super) fn unblock(&mut self, key: SocketKey) {
        let now_ms = self.now.ms;
        if let Some(socket) = self.socket_mut(key).filter(|socket| socket.marks.is_blocked()) {
            socket.marks.unblock();
            socket.last_received_ms = now_ms;
            let session = socket.session;
            session.and_then(|key| self.sessions.get_mut(key)).into_iter().for_each(|session| session.marks.unblock());
            session.into_iter().for_each(|session| self.is_blocked_behind(session));
            self.write_socket(key);
        }
    }

    /// Notes that the kernel takes no more bytes for a session. Its replies wait behind those that the kernels of both
    /// sides hold.
    pub(super) fn is_blocked_behind(&mut self, key: SessionKey) {
        let kernel_bytes = KERNEL_BYTES.max(2 * self.settings.given().socket_send_buffer_bytes);
        let (now_ms, terms) = (self.now.ms, self.settings.terms());
        if let Some(session) = self.sessions.get_mut(key) {
            session.has_to_read(kernel_bytes, now_ms, &terms);
        }
    }

    pub(crate) fn socket(&self, key: SocketKey) -> Option<&Socket> {
        self.connections.sockets.get(key)
    }

    pub(super) fn socket_mut(&mut self, key: SocketKey) -> Option<&mut Socket> {
        self.connections.sockets.get_mut(key)
    }

    /// Detaches a session from its socket. A socket that has only a part of a frame cannot send anything else and is
    /// shut.
    pub(super) fn detach(&mut self, session: SessionKey) {
        let now_ms = self.now.ms;
        let Some(socket) = self.sessions.get(session).and_then(|session| session.socket()) else { return };
        self.take_back(socket);
        let Some(state) = self.sessions.get_mut(session) else { return };
        let left = state.detach();
        self.metrics.deliveries.add(left.messages);
        state.marks.unblock();
        if let Some(state) = self.socket_mut(socket) {
            state.session = None;
            state.alone_ms = now_ms;
            self.arm_socket(socket, now_ms + self.settings.given().handshake_timeout_ms);
        }
        if left.is_torn {
            self.abort_socket(socket);
        } else if let Some(state) = self.socket_mut(socket) {
            // Replies stay on the socket on which the client asked. Until now the session listed the socket for
            // writing.
            if !left.replies.is_empty() {
                state.own_mut().out.append(left.replies);
            }
            if state.out().is_some() {
                self.write_socket(socket);
            }
        }
    }

    /// Sends the remaining queue of a removed session on its socket.
    pub(super) fn inherit(&mut self, key: SocketKey, outbox: Outbox) {
        let now_ms = self.now.ms;
        let Some(socket) = self.socket_mut(key) else { return };
        socket.session = None;
        socket.alone_ms = now_ms;
        if socket.phase == Phase::Closed {
            socket.own = None;
            return self.discard(outbox);
        }
        let own = socket.own_mut();
        own.handed = (0, 0);
        let gone = own.out.append(outbox);
        socket.free_own();
        self.metrics.deliveries.add(gone);
        self.arm_socket(key, now_ms + self.settings.given().handshake_timeout_ms);
        self.write_socket(key);
    }

    /// Moves the queue of a session that gets messages with connects only to its socket, because a connect reply is
    /// about to follow it there. Returns false if the socket has too much already: its client sends requests and does
    /// not read.
    pub(super) fn hand_to_socket(&mut self, session: SessionKey, key: SocketKey) -> bool {
        let Parts { connections, sessions, settings, .. } = self;
        let lends = |session: &&mut Session| session.socket_with_messages() == Some(key) && session.may_send(Some(key));
        let Some(session) = sessions.get_mut(session).filter(lends) else { return true };
        let Some(socket) = connections.sockets.unclosed(key) else { return true };
        if socket.out_bytes() + session.outbox.waiting_bytes() > 2 * settings.capacity().bytes_max {
            return false;
        }
        if !session.outbox.is_empty() {
            let (messages, charge) = session.outbox.hand_over();
            let own = socket.own_mut();
            own.out.append(messages);
            own.handed = (own.handed.0 + charge.0, own.handed.1 + charge.1);
        }
        session.was_sent();
        true
    }

    /// Returns messages of a closing socket that the kernel has not taken to its session, if that gets messages with
    /// connects only.
    fn take_back(&mut self, key: SocketKey) {
        let Parts { connections, sessions, .. } = self;
        let Some(socket) = connections.sockets.get_mut(key) else { return };
        let session = socket.session.and_then(|session| sessions.get_mut(session));
        if let Some(session) = session.filter(|session| session.socket_with_messages().is_some()) {
            let Some(own) = &mut socket.own else { return };
            session.outbox.settle_charge(std::mem::take(&mut own.handed));
            session.outbox.prepend(std::mem::take(&mut own.out));
            socket.free_own();
        }
    }

    /// True if a socket has so many waiting replies that this many bytes more are too many. Messages of an
    /// acknowledging session do not count: that session's outbox bounds them.
    pub(super) fn is_unread(&mut self, key: SocketKey, bytes: usize) -> bool {
        let bytes_max = self.settings.capacity().bytes_max;
        let Parts { connections, sessions, .. } = self;
        let Some(socket) = connections.sockets.get_mut(key) else { return false };
        let mut own_has_too_many = |bytes_max: usize| match &mut socket.own {
            Some(own) => own.out.has_too_many_replies(bytes, bytes_max),
            None => bytes > bytes_max,
        };
        match socket.session.and_then(|session| sessions.get_mut(session)) {
            // Sessions that the socket had before have left their replies in its own queue.
            Some(session) if session.is_pushed_to() => {
                session.outbox.has_too_many_replies(bytes, bytes_max) || own_has_too_many(bytes_max)
            }
            Some(session) => own_has_too_many(bytes_max + session.outbox.lent_bytes()),
            None => own_has_too_many(bytes_max.min(STRANGER_REPLIES_BYTES_MAX.max(2 * bytes))),
        }
    }

    /// Queues frames on a socket. A socket that was shut gets none: nobody would write them, and they would hold
    /// memory. The frames go to the outbox of its session if that gets messages as they come, else to the socket's own.
    pub(super) fn push_frames(&mut self, key: SocketKey, frames: &Frames, kind: Kind) {
        let Parts { connections, sessions, schedule, .. } = self;
        let Some(socket) = connections.sockets.unclosed(key) else { return };
        let Some((session, state)) = socket.session.and_then(|key| Some((key, sessions.get_mut(key)?))) else {
            socket.own_mut().out.push(frames, kind);
            return self.write_socket(key);
        };
        let outbox = if state.is_pushed_to() { &mut state.outbox } else { &mut socket.own_mut().out };
        outbox.push(frames, kind);
        schedule.write_session(session, &mut state.marks);
    }

    /// Schedules a socket that has output. A socket with a session is written with its session.
    fn write_socket(&mut self, key: SocketKey) {
        let Parts { connections, sessions, schedule, .. } = self;
        let Some(socket) = connections.sockets.get_mut(key) else { return };
        match socket.session {
            Some(session) => {
                let state = sessions.get_mut(session);
                state.into_iter().for_each(|state| schedule.write_session(session, &mut state.marks));
            }
            None => schedule.write_socket(key, &mut socket.marks),
        }
    }

    /// Shuts a socket at once and discards its queue. Bytes that the kernel already has may still arrive.
    pub(super) fn abort_socket(&mut self, key: SocketKey) {
        self.end_socket(key, Effect::Close(key));
    }

    /// Resets a socket whose client does not read. The kernel discards its send buffer, too.
    pub(crate) fn reset_socket(&mut self, key: SocketKey) {
        self.end_socket(key, Effect::Reset(key));
    }

    fn end_socket(&mut self, key: SocketKey, effect: Effect) {
        self.take_back(key);
        let session = self.socket(key).and_then(|socket| socket.session).and_then(|key| self.sessions.get_mut(key));
        if let Some(session) = session.filter(|session| session.socket_with_messages().is_some()) {
            let left = session.outbox.leave_attachment();
            self.metrics.deliveries.add(left.messages);
        }
        let Some(socket) = self.socket_mut(key) else { return };
        let own = socket.own.take();
        if std::mem::replace(&mut socket.phase, Phase::Closed) != Phase::Closed {
            self.effects.push(effect);
        }
        own.into_iter().for_each(|own| self.discard(own.out));
    }
}

/// The bytes that the kernels of both sides hold for a client that reads slowly, if buffers have their usual size.
const KERNEL_BYTES: usize = 256 * 1024;
