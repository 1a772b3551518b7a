//! WebSockets: which session each carries, and how it ends.

use bayeux::BayeuxError;
use websocket::{Opcode, frame};

use super::arena::Frames;
use super::batch::{Batch, Via, client_of};
use super::effect::{Closing, Effect, Now, Peer, SessionKey, SocketKey};
use super::ids::Id;
use super::newcomers::Origins;
use super::outbox::{Kind, Lent, Outbox};
use super::session::Ended;
use super::{Carrier, Dirty, Shard, batch_error_body};

/// The code and the reason that the WebSockets of a draining server are closed with.
pub(super) const GOING_AWAY: (u16, &str) = (1001, "server going away");

/// A WebSocket as its shard keeps it.
#[derive(Debug)]
pub struct Socket {
    generation: u32,
    /// The session it carries.
    pub(super) session: Option<SessionKey>,
    /// What goes out before anything of the session: replies while there is none, and the close frame.
    pub(super) out: Outbox,
    /// What its session's outbox is charged with for messages that wait here.
    pub(super) handed: Lent,
    /// The browser of its upgrade request.
    pub(super) browser: Option<Id>,
    /// Its connection and its address.
    pub(super) origins: Origins,
    pub(super) phase: Phase,
    /// Whether the kernel takes nothing at the moment.
    pub(super) blocked: bool,
    pub(super) dirty: bool,
    /// The payload of the latest ping that has no answer yet, while the kernel takes nothing.
    pub(super) pong: Option<Box<[u8]>>,
    /// Bytes of pongs that were queued since something was written last.
    pub(super) pong_bytes: usize,
    /// Replies to its publications that are not kept yet.
    pub(super) unkept: u32,
    /// Replies that come after those: to its client's goodbye, after which that listens no more.
    pub(super) last_words: Vec<u8>,
    /// When its client was heard last, in milliseconds.
    pub(super) heard_ms: u64,
    /// When it lost its session or was opened, in milliseconds.
    pub(super) alone_ms: u64,
    /// When its entry in the timer wheel comes, in milliseconds; `u64::MAX` for none.
    pub(super) armed_ms: u64,
}

impl Socket {
    /// Whether it is the one that this key was made for.
    pub(super) fn is(&self, key: SocketKey) -> bool {
        self.generation == key.generation
    }

    /// Whether anything can be written to it now.
    pub(super) fn may_write(&self) -> bool {
        !self.blocked && self.phase != Phase::Closed
    }
}

/// How far a WebSocket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// The close frame is queued; when all is written, or the time is up, it is shut.
    Closing {
        until_ms: u64,
    },
    /// Whoever runs it has been told to shut it.
    Closed,
}

/// What became of bytes from a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// They were worked through.
    Here,
    /// Their session lives on another shard: the socket must move there, and this text be received there first.
    Elsewhere(usize),
}

impl Shard {
    /// A WebSocket has been opened; `browser` is the cookie of its upgrade request.
    pub fn socket_opened(&mut self, now: Now, browser: Option<Id>) -> SocketKey {
        self.now = now;
        self.sockets_opened = self.sockets_opened.wrapping_add(1);
        let generation = self.sockets_opened;
        let index = self.sockets.insert(Socket {
            generation,
            session: None,
            out: Outbox::default(),
            browser,
            origins: [0; 2],
            phase: Phase::Open,
            blocked: false,
            dirty: false,
            pong: None,
            pong_bytes: 0,
            handed: (0, 0),
            unkept: 0,
            last_words: Vec::new(),
            heard_ms: now.ms,
            alone_ms: now.ms,
            armed_ms: u64::MAX,
        }) as u32;
        let key = SocketKey { index, generation };
        self.arm_socket(key, now.ms + self.settings.handshake_timeout_ms);
        self.metrics.sockets.set(self.sockets.len());
        key
    }

    /// Notes where a WebSocket comes from.
    pub fn socket_is_of(&mut self, key: SocketKey, peer: Peer) {
        let origins = self.newcomers.origins(peer);
        if let Some(socket) = self.socket_mut(key) {
            socket.origins = origins;
        }
    }

    /// A text message has come.
    pub fn socket_text(&mut self, now: Now, key: SocketKey, text: &str) -> Received {
        self.now = now;
        let Some(socket) = self.socket_mut(key).filter(|socket| socket.phase == Phase::Open) else {
            return Received::Here;
        };
        socket.heard_ms = now.ms;
        let browser = socket.browser;
        let limits = self.limits.clone();
        let messages = match bayeux::parse_batch(text, &limits) {
            Ok(messages) => messages,
            Err(error) => {
                self.metrics.batches_refused.add(1);
                self.write_frame(key, Opcode::Text, &batch_error_body(BayeuxError::from(error)));
                return Received::Here;
            }
        };
        // A socket speaks for the session it carries only, whatever other ids its client knows (CometD 9).
        let carried = self.socket(key).and_then(|socket| self.sessions.get(socket.session?)).map(|session| session.id);
        let client = client_of(&messages).filter(|id| carried.is_none_or(|carried| carried == *id));
        if let Some(home) = client.map(|id| id.shard())
            && home != self.index
            && home < self.shared.shards
        {
            return self.send_away(key, home);
        }
        let session = client.and_then(|id| self.usable(&id, browser, true));
        if let Some(session) = session {
            self.carry(session, key, &messages);
        }
        let mut batch = Batch::new(Via::Socket(key), &messages, session);
        self.process(&mut batch, &messages);
        // Its own messages come before the replies.
        let session = batch.session.and_then(|key| self.sessions.get(key));
        if !batch.replies.is_empty() && session.is_none_or(|session| !session.subscriptions.is_empty()) {
            self.spread();
        }
        if batch.parted
            && let Some(socket) = self.socket_mut(key).filter(|socket| socket.unkept > 0)
        {
            // A client may say goodbye twice.
            if !socket.last_words.is_empty() && !batch.replies.is_empty() {
                socket.last_words.push(b',');
            }
            socket.last_words.append(&mut batch.replies);
        }
        if !batch.replies.is_empty() {
            self.reply_on_socket(key, batch.session.filter(|_| batch.connected), &batch.replies);
        }
        if batch.farewell
            && let Some(session) = batch.session
        {
            self.remove_session(session, Ended::Kicked);
            self.close_socket(key, 1000, "session ended");
        }
        if self.draining {
            self.close_socket(key, GOING_AWAY.0, GOING_AWAY.1);
        }
        Received::Here
    }

    /// Lets a socket that carries nothing go to the shard of the session it speaks for. One with bytes of its own still to write cannot:
    /// they would be lost there, and half a frame would spoil all that follows. One whose replies wait until something is kept would never
    /// get them there. It is shut, and its client comes again.
    fn send_away(&mut self, key: SocketKey, home: usize) -> Received {
        let Some(socket) = self.socket(key) else { return Received::Here };
        if socket.out.is_empty() && socket.unkept == 0 {
            return Received::Elsewhere(home);
        }
        self.abort_socket(key);
        Received::Here
    }

    /// The socket is to be closed: with this code when all that waits is written.
    pub fn socket_close(&mut self, now: Now, key: SocketKey, closing: Closing) {
        self.now = now;
        self.spread();
        self.close_socket(key, closing.code, closing.reason);
    }

    /// The socket is gone. Its session lives on: what waits, waits for the next carrier.
    pub fn socket_closed(&mut self, now: Now, key: SocketKey) {
        self.now = now;
        self.spread();
        if let Some(session) = self.socket(key).and_then(|socket| socket.session) {
            self.take_held(session);
            self.detach(session);
        }
        if self.socket(key).is_some() {
            let socket = self.sockets.remove(key.index as usize);
            self.disarm(socket.armed_ms);
            self.metrics.sockets.set(self.sockets.len());
        }
    }

    /// The kernel takes bytes again.
    pub fn socket_writable(&mut self, now: Now, key: SocketKey) {
        self.now = now;
        if let Some(socket) = self.socket_mut(key)
            && socket.blocked
        {
            socket.blocked = false;
            socket.dirty = true;
            self.dirty.push_back(Dirty::Socket(key));
        }
    }

    /// Whether the kernel took nothing at the last try: whoever runs the socket must wait until it does, and say so.
    pub fn is_blocked(&self, key: SocketKey) -> bool {
        self.socket(key).is_some_and(|socket| socket.blocked)
    }

    pub(super) fn socket(&self, key: SocketKey) -> Option<&Socket> {
        self.sockets.get(key.index as usize).filter(|socket| socket.is(key))
    }

    pub(super) fn socket_mut(&mut self, key: SocketKey) -> Option<&mut Socket> {
        self.sockets.get_mut(key.index as usize).filter(|socket| socket.is(key))
    }

    pub(super) fn socket_keys(&self) -> Vec<SocketKey> {
        let key = |(index, socket): (usize, &Socket)| SocketKey { index: index as u32, generation: socket.generation };
        self.sockets.iter().map(key).collect()
    }

    /// Lets a socket carry a session if it does not yet: with a connect always, with anything else only while nothing carries it.
    fn carry(&mut self, session: SessionKey, socket: SocketKey, messages: &[bayeux::Message<'_>]) {
        let connects = || messages.iter().any(|m| m.channel.as_deref() == Some(bayeux::channel::META_CONNECT));
        let Some(state) = self.sessions.get(session) else { return };
        match state.carrier {
            Carrier::Socket(current) if current == socket => {}
            Carrier::Requests if state.held.is_none() => self.attach(session, socket),
            _ if connects() => self.attach(session, socket),
            _ => {}
        }
    }

    /// The socket carries the session from now on; what carried it before does not.
    pub(super) fn attach(&mut self, session: SessionKey, socket: SocketKey) {
        let before = self.socket(socket).and_then(|socket| socket.session);
        if let Some(before) = before.filter(|before| *before != session) {
            self.take_held(before);
            self.detach(before);
        }
        self.supersede(session);
        self.detach(session);
        let Some(state) = self.sessions.get_mut(session) else { return };
        state.carrier = Carrier::Socket(socket);
        if !state.outbox.is_empty() && !state.dirty {
            state.dirty = true;
            self.dirty.push_back(Dirty::Session(session));
        }
        if let Some(socket) = self.socket_mut(socket) {
            socket.session = Some(session);
        }
        self.catch_up_later(session);
    }

    /// The session's socket carries it no more. A socket that has a part of a frame can carry nothing else and is shut.
    pub(super) fn detach(&mut self, session: SessionKey) {
        let now_ms = self.now.ms;
        let Some(state) = self.sessions.get(session) else { return };
        if let Carrier::Socket(socket) = state.carrier {
            self.take_back(socket);
        }
        let Some(state) = self.sessions.get_mut(session) else { return };
        let Carrier::Socket(socket) = std::mem::replace(&mut state.carrier, Carrier::Requests) else { return };
        let torn = state.outbox.is_mid_frame();
        let left = state.outbox.leave_carrier();
        self.metrics.deliveries.add(left.messages);
        state.urgent = !state.outbox.is_empty();
        state.dirty = false;
        if let Some(state) = self.socket_mut(socket) {
            state.session = None;
            state.alone_ms = now_ms;
            self.arm_socket(socket, now_ms + self.settings.handshake_timeout_ms);
        }
        if torn {
            self.abort_socket(socket);
        } else if let Some(state) = self.socket_mut(socket) {
            // Who asked on this socket hears on it. Until now it was listed by its session.
            state.out.append(left.replies);
            if !state.out.is_empty() {
                self.make_socket_dirty(socket);
            }
        }
    }

    /// What a removed session still had to say goes out on the socket that carried it.
    pub(super) fn inherit(&mut self, key: SocketKey, outbox: Outbox) {
        let now_ms = self.now.ms;
        let Some(socket) = self.socket_mut(key) else { return };
        (socket.session, socket.handed) = (None, (0, 0));
        socket.alone_ms = now_ms;
        if socket.phase == Phase::Closed {
            return socket.out = Outbox::default();
        }
        let gone = socket.out.append(outbox);
        self.metrics.deliveries.add(gone);
        self.arm_socket(key, now_ms + self.settings.handshake_timeout_ms);
        self.make_socket_dirty(key);
    }

    /// Replies as one frame: after everything that waits already. With the messages of an acknowledging session, if they
    /// hold the reply to its `connect`.
    pub(super) fn reply_on_socket(&mut self, key: SocketKey, connect: Option<SessionKey>, replies: &[u8]) {
        if let Some(session) = connect.filter(|session| self.acknowledges(*session)) {
            return self.send_batch(session, key, replies);
        }
        if connect.is_some_and(|session| !self.hand_to_socket(session, key)) {
            return self.cut_off(key);
        }
        let frames = self.own.frame(Opcode::Text, replies.len() + 2, |out| {
            [b"[", replies, b"]"].into_iter().for_each(|part| out.extend_from_slice(part));
        });
        self.push_on_socket(key, &frames, Kind::Replies);
    }

    /// A connect reply is about to be queued on a socket: what waits for a session that gets messages with connects only goes before
    /// it. False if the socket has too much already: its client asks and does not read.
    fn hand_to_socket(&mut self, session: SessionKey, key: SocketKey) -> bool {
        let Shard { sockets, sessions, capacity, .. } = self;
        let carried = sessions.get_mut(session).filter(|session| session.carrier == Carrier::Socket(key));
        let Some(session) = carried.filter(|session| session.with_connects && session.is_given()) else {
            return true;
        };
        let is_open = |socket: &&mut Socket| socket.is(key) && socket.phase != Phase::Closed;
        let Some(socket) = sockets.get_mut(key.index as usize).filter(is_open) else { return true };
        if socket.out.bytes() + session.outbox.waiting_bytes() > 2 * capacity.bytes_max {
            return false;
        }
        let (messages, charge) = session.outbox.hand_over();
        socket.out.append(messages);
        socket.handed = (socket.handed.0 + charge.0, socket.handed.1 + charge.1);
        session.urgent = false;
        session.lazy_due_ms = u64::MAX;
        true
    }

    /// A socket is done for: messages that the kernel has not taken go back to the session that gets them with connects only.
    fn take_back(&mut self, key: SocketKey) {
        let Shard { sockets, sessions, .. } = self;
        let Some(socket) = sockets.get_mut(key.index as usize).filter(|socket| socket.is(key)) else { return };
        let session = socket.session.and_then(|session| sessions.get_mut(session));
        if let Some(session) = session.filter(|session| session.with_connects && session.ledger.is_none()) {
            session.outbox.settle_charge(std::mem::take(&mut socket.handed));
            session.outbox.prepend(std::mem::take(&mut socket.out));
        }
    }

    /// The reply to a held connect on the session's own socket, if it has one.
    pub(super) fn reply_on_carrier(&mut self, session: SessionKey, reply: &[u8]) {
        if let Some(Carrier::Socket(socket)) = self.sessions.get(session).map(|session| session.carrier) {
            self.reply_on_socket(socket, Some(session), reply);
        }
    }

    /// Sends a frame that is no Bayeux message.
    pub fn socket_send(&mut self, now: Now, key: SocketKey, opcode: Opcode, payload: &[u8]) {
        self.now = now;
        if let Some(socket) = self.socket_mut(key) {
            socket.heard_ms = now.ms;
            socket.alone_ms = now.ms;
            self.write_frame(key, opcode, payload);
        }
    }

    pub(super) fn write_frame(&mut self, key: SocketKey, opcode: Opcode, payload: &[u8]) {
        let frames = self.own.frame(opcode, payload.len(), |bytes| bytes.extend_from_slice(payload));
        self.push_on_socket(key, &frames, Kind::Replies);
    }

    /// Queues a frame that is for the socket and not for the session, unless too much waits already.
    fn push_on_socket(&mut self, key: SocketKey, frames: &Frames, kind: Kind) {
        if kind == Kind::Replies && self.is_unread(key, frames.bytes()) {
            return self.cut_off(key);
        }
        self.push_frames(key, frames, kind);
    }

    /// Whether a socket has so many replies waiting that so many bytes more are too many. What it carries of an acknowledging
    /// session's messages is bounded by that one's outbox and is not held against it.
    pub(super) fn is_unread(&mut self, key: SocketKey, bytes: usize) -> bool {
        let bytes_max = self.capacity.bytes_max;
        let Shard { sockets, sessions, .. } = self;
        let Some(socket) = sockets.get_mut(key.index as usize).filter(|socket| socket.is(key)) else { return false };
        match socket.session.and_then(|session| sessions.get_mut(session)) {
            // Sessions that the socket carried before have left their replies in its own queue.
            Some(session) if session.is_pushed_to() => [&mut session.outbox, &mut socket.out]
                .into_iter()
                .any(|outbox| outbox.has_too_many_replies(bytes, bytes_max)),
            Some(session) => socket.out.has_too_many_replies(bytes, bytes_max + session.outbox.lent_bytes()),
            None => socket.out.has_too_many_replies(bytes, bytes_max.min(STRANGER_REPLIES_BYTES_MAX.max(2 * bytes))),
        }
    }

    /// Ends a socket, and its session, whose client asks and never reads what it asked for.
    pub(super) fn cut_off(&mut self, key: SocketKey) {
        tracing::info!("socket aborted: its client does not read the replies");
        self.metrics.websocket_errors.add(1);
        if let Some(session) = self.socket(key).and_then(|socket| socket.session) {
            self.remove_session(session, Ended::Slow);
        }
        self.reset_socket(key);
    }

    /// A socket that was shut gets no more: nobody would write it, and it would hold memory for nothing.
    pub(super) fn push_frames(&mut self, key: SocketKey, frames: &Frames, kind: Kind) {
        if self.socket(key).is_some_and(|socket| socket.phase == Phase::Closed) {
            return;
        }
        if let Some(outbox) = self.outbox_of_socket(key) {
            outbox.push(frames, kind);
            self.make_socket_dirty(key);
        }
    }

    /// Where a socket's own frames wait: behind the session's messages where there is one that gets them as they come.
    fn outbox_of_socket(&mut self, key: SocketKey) -> Option<&mut Outbox> {
        let socket = self.sockets.get_mut(key.index as usize).filter(|socket| socket.is(key))?;
        let session = socket.session.and_then(|session| self.sessions.get_mut(session));
        Some(session.filter(|session| session.is_pushed_to()).map_or(&mut socket.out, |session| &mut session.outbox))
    }

    fn make_socket_dirty(&mut self, key: SocketKey) {
        let Some(socket) = self.socket_mut(key) else { return };
        if let Some(session) = socket.session {
            if let Some(state) = self.sessions.get_mut(session)
                && !state.dirty
            {
                state.dirty = true;
                self.dirty.push_back(Dirty::Session(session));
            }
        } else if !socket.dirty && !socket.blocked {
            socket.dirty = true;
            self.dirty.push_back(Dirty::Socket(key));
        }
    }

    /// Queues a close frame behind everything that waits; then the socket is shut.
    pub(super) fn close_socket(&mut self, key: SocketKey, code: u16, reason: &str) {
        let until_ms = self.now.ms + self.settings.handshake_timeout_ms;
        let Some(socket) = self.socket_mut(key).filter(|socket| socket.phase == Phase::Open) else { return };
        socket.phase = Phase::Closing { until_ms };
        let mut bytes = Vec::with_capacity(64);
        frame::close(code, reason, &mut bytes);
        let frames = self.own.encoded(&bytes);
        self.push_on_socket(key, &frames, Kind::Close);
        self.arm_socket(key, until_ms);
    }

    /// Shuts a socket at once, whatever waits. What the kernel has already may still arrive.
    pub(super) fn abort_socket(&mut self, key: SocketKey) {
        self.end_socket(key, Effect::Close(key));
    }

    /// Gives up a socket whose client does not read: the kernel lets go of what it has for it, too.
    pub(super) fn reset_socket(&mut self, key: SocketKey) {
        self.end_socket(key, Effect::Reset(key));
    }

    fn end_socket(&mut self, key: SocketKey, effect: Effect) {
        self.take_back(key);
        let session = self.socket(key).and_then(|socket| socket.session).and_then(|key| self.sessions.get_mut(key));
        if let Some(session) = session.filter(|session| session.with_connects && session.ledger.is_none()) {
            let left = session.outbox.leave_carrier();
            self.metrics.deliveries.add(left.messages);
        }
        let Some(socket) = self.socket_mut(key) else { return };
        socket.out = Outbox::default();
        if std::mem::replace(&mut socket.phase, Phase::Closed) != Phase::Closed {
            self.effects.push(effect);
        }
    }
}

/// Bytes of replies that may wait on a socket without a session; a single batch may have more.
const STRANGER_REPLIES_BYTES_MAX: usize = 256 * 1024;
