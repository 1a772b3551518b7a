//! WebSockets and streams: their opening and closing, their own queues beside those of their sessions, and the frames that
//! go there: replies, pongs, the close frame.

use std::sync::Arc;

use websocket::{Compression, Opcode, frame};

use crate::clients::newcomers::Origins;
use crate::delivery::connections::reached::Reached;
use crate::delivery::connections::socket::{OwnHead, Phase, STRANGER_REPLIES_BYTES_MAX, Socket, SocketOrigin, Stream};
use crate::delivery::outbox::arena::Frames;
use crate::delivery::outbox::format::Format;
use crate::delivery::outbox::{Kind, Outbox};
use crate::delivery::sessions::session::Session;
use crate::delivery::sessions::unacked::SOCKET_BATCH_BYTES_MAX;
use crate::delivery::{Delivery, GivenUp};
use crate::events::{Effect, SessionKey, SocketKey};
use crate::id::Id;
use crate::identity::Head;
use crate::memory::Counted;
use crate::opener::Opener;

impl Delivery {
    /// Notes where a WebSocket comes from. Its head counts as memory of the sessions.
    pub(crate) fn set_origin(&mut self, key: SocketKey, origins: Origins, head: Option<Arc<Head>>) {
        let account = self.encoder.account().clone();
        let Some(socket) = self.sockets.get_mut(key) else { return };
        socket.origins = origins;
        socket.head = head.map(|head| {
            let counted = Counted::new(&account, head.bytes());
            Box::new(OwnHead { head, counted })
        });
    }

    /// Adds a WebSocket that has been opened.
    pub(crate) fn open_socket(&mut self, opener: Opener) -> SocketKey {
        let key = self.sockets.insert(opener, self.now.ms);
        self.arm_socket(key, self.now.ms + self.settings.handshake_timeout_ms);
        self.metrics.sockets.set(self.sockets.len());
        key
    }

    /// Adds a stream that has been opened. It writes in this format, with ids that name these positions and later ones.
    pub(crate) fn open_stream(&mut self, opener: Opener, format: Format, reached: Option<Reached>) -> SocketKey {
        let key = self.open_socket(opener);
        if let Some(socket) = self.sockets.get_mut(key) {
            let max_ms = self.settings.stream_max_ms;
            let until_ms = if max_ms == 0 { u64::MAX } else { self.now.ms + max_ms };
            socket.own_mut().stream = Some(Stream { format, written: 0, until_ms, reached: reached.map(Box::new) });
            self.arm_socket(key, until_ms.min(self.now.ms + self.settings.stream_heartbeat_ms));
        }
        key
    }

    /// The stream that a session is attached to, and its format.
    pub(crate) fn stream_of(&self, key: SessionKey) -> Option<(SocketKey, Format)> {
        let socket = self.sessions.get(key)?.socket()?;
        self.sockets.get(socket)?.stream().map(|stream| (socket, stream.format))
    }

    /// Notes that a session, which this browser has opened, has left its stream.
    pub(super) fn has_left_stream(&mut self, browser: Option<Id>) {
        self.exchanges.discount(browser);
        self.metrics.streams.set((self.metrics.streams.get() as usize).saturating_sub(1));
    }

    /// True if a socket is a stream.
    pub(crate) fn is_stream(&self, key: SocketKey) -> bool {
        self.socket(key).is_some_and(|socket| socket.stream().is_some())
    }

    /// Sends something on an idle stream that its client ignores, so that proxies do not end it, and the kernel notices if
    /// the client is gone.
    pub(super) fn beat(&mut self, key: SocketKey) {
        let Some(socket) = self.sockets.get(key) else { return };
        let session = socket.session.and_then(|session| Some((session, self.sessions.get(session)?)));
        // Messages of a session that is not pushed to wait for a connect, however long that takes.
        let is_written = |(_, session): (_, &Session)| session.is_pushed_to() && !session.outbox.is_empty();
        if socket.out().is_some() || session.is_some_and(is_written) {
            return;
        }
        let plain = session.filter(|(_, session)| session.is_plain()).map(|(session, _)| session);
        // A client of Bayeux hears of losses with the replies to its connects.
        match plain.and_then(|session| self.heartbeat(session, Some(key), 0, |_| ("", None))) {
            None => self.tell(key, ""),
            Some(losses) => {
                let gap = format!("[{{\"gap\":\"gone\",{losses}}}]");
                let frames = self.encoder.single(Opcode::Text, gap.len(), |out| out.extend_from_slice(gap.as_bytes()));
                self.push_frames(key, &frames, Kind::Replies);
            }
        }
    }

    /// Sends fields on a stream that concern no message.
    pub(crate) fn tell(&mut self, key: SocketKey, fields: &str) {
        let frames = self.encoder.single(Opcode::Ping, fields.len(), |out| out.extend_from_slice(fields.as_bytes()));
        self.push_frames(key, &frames, Kind::Replies);
    }

    /// Removes a WebSocket that is gone. Its session lives on: the queue waits for the next connection.
    pub(crate) fn socket_is_gone(&mut self, key: SocketKey) {
        if let Some(session) = self.socket(key).and_then(|socket| socket.session) {
            self.take_held(session);
            self.detach(session);
        }
        if let Some(socket) = self.sockets.remove(key) {
            self.disarm(socket.armed_ms);
            self.metrics.sockets.set(self.sockets.len());
        }
    }

    /// Notes that a page of a browser has opened a WebSocket. Then the session of a browser needs that browser's cookie.
    pub(crate) fn is_of_page(&mut self, key: SocketKey) {
        if let Some(socket) = self.sockets.get_mut(key).filter(|socket| socket.opener == Opener::Program) {
            socket.opener = Opener::Page;
        }
    }

    /// Compresses the messages on a WebSocket from now on: its client takes that.
    pub(crate) fn set_compression(&mut self, key: SocketKey, compression: Option<Compression>) {
        self.sockets.get_mut(key).into_iter().for_each(|socket| socket.compression = compression);
    }

    /// The origin of a WebSocket, for the shard to which it moves.
    pub(crate) fn origin_of(&self, key: SocketKey) -> Option<SocketOrigin> {
        let Socket { opener, origins, head, compression, is_carried, .. } = self.socket(key)?;
        let head = head.as_ref().map(|own| own.head.clone());
        Some(SocketOrigin {
            opener: *opener,
            origins: *origins,
            head,
            compression: *compression,
            is_carried: *is_carried,
        })
    }

    /// Adds a WebSocket that another shard has passed on.
    pub(crate) fn socket_moved_here(&mut self, origin: SocketOrigin) -> SocketKey {
        let key = self.open_socket(origin.opener);
        self.set_origin(key, origin.origins, origin.head);
        self.set_compression(key, origin.compression);
        self.sockets.get_mut(key).into_iter().for_each(|socket| socket.is_carried = origin.is_carried);
        key
    }

    /// True if a socket without a session may move to another shard. One with unsent bytes cannot: they would be lost, and
    /// half a frame would corrupt everything after it. One whose replies wait for the history store would never get them
    /// there. Such a socket is shut, and its client connects again.
    pub(crate) fn may_move(&mut self, key: SocketKey) -> bool {
        let Some(socket) = self.socket(key) else { return false };
        let may_move = socket.out().is_none() && socket.pending_replies == 0;
        if !may_move {
            self.abort_socket(key);
        }
        may_move
    }

    /// True if replies on a WebSocket are still to come.
    pub(crate) fn owes_replies(&self, key: SocketKey) -> bool {
        self.socket(key).is_some_and(|socket| socket.pending_replies > 0)
    }

    /// Takes the reply to a disconnect, if replies to publications on the WebSocket are still to come: it follows them.
    pub(crate) fn keep_final_replies(&mut self, key: SocketKey, replies: &mut Vec<u8>) {
        if let Some(socket) = self.sockets.get_mut(key).filter(|socket| socket.pending_replies > 0) {
            let final_replies = &mut socket.own_mut().final_replies;
            // A client may send disconnect twice.
            if !final_replies.is_empty() && !replies.is_empty() {
                final_replies.push(b',');
            }
            final_replies.append(replies);
        }
    }

    /// Notes that replies that have waited until publications are persisted leave now. Returns those that follow them. None
    /// if the socket sends nothing more.
    pub(crate) fn pay_replies(&mut self, key: SocketKey, count: u32) -> Option<Vec<u8>> {
        let socket = self.sockets.get_mut(key)?;
        socket.pending_replies -= count;
        if socket.phase != Phase::Open {
            return None;
        }
        let own = socket.own.as_mut().filter(|_| socket.pending_replies == 0);
        Some(own.map(|own| std::mem::take(&mut own.final_replies)).unwrap_or_default())
    }

    /// The keys of all WebSockets.
    pub(crate) fn socket_keys(&self) -> Vec<SocketKey> {
        self.sockets.with_keys().map(|(key, _)| key).collect()
    }

    /// Schedules a socket that was blocked. Its client has read some of what the kernel held: it is not silent.
    pub(crate) fn unblock(&mut self, key: SocketKey) {
        let now_ms = self.now.ms;
        if let Some(socket) = self.sockets.get_mut(key).filter(|socket| socket.marks.is_blocked()) {
            socket.marks.unblock();
            socket.last_received_ms = now_ms;
            let session = socket.session;
            session.and_then(|key| self.sessions.get_mut(key)).into_iter().for_each(|session| session.marks.unblock());
            session.into_iter().for_each(|session| self.is_blocked_behind(session));
            self.write_socket(key);
        }
    }

    /// Sends the remaining queue of a removed session on its socket.
    pub(super) fn inherit(&mut self, key: SocketKey, outbox: Outbox) {
        let now_ms = self.now.ms;
        let Some(socket) = self.sockets.get_mut(key) else { return };
        socket.session = None;
        socket.alone_ms = now_ms;
        if socket.phase == Phase::Closed {
            socket.own = None;
            return self.discard(outbox);
        }
        let own = socket.own_mut();
        own.handed = (0, 0);
        own.out.append(outbox);
        socket.free_own();
        self.arm_socket(key, now_ms + self.settings.handshake_timeout_ms);
        self.write_socket(key);
    }

    /// Moves the queue of a session that gets messages with connects only to its socket, because a connect reply is
    /// about to follow it there. Returns false if the socket has too much already: its client sends requests and does
    /// not read.
    fn hand_to_socket(&mut self, session: SessionKey, key: SocketKey) -> bool {
        let Delivery { sockets, sessions, capacity, .. } = self;
        let lends = |session: &&mut Session| session.socket_with_messages() == Some(key) && session.may_send(Some(key));
        let Some(session) = sessions.get_mut(session).filter(lends) else { return true };
        let Some(socket) = sockets.unclosed(key) else { return true };
        if socket.out_bytes() + session.outbox.waiting_bytes() > 2 * capacity.bytes_max {
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

    /// True if a socket has so many waiting replies that this many bytes more are too many. Messages of an
    /// acknowledging session do not count: that session's outbox bounds them.
    fn is_unread(&mut self, key: SocketKey, bytes: usize) -> bool {
        let bytes_max = self.capacity.bytes_max;
        let Delivery { sockets, sessions, .. } = self;
        let Some(socket) = sockets.get_mut(key) else { return false };
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
    fn push_frames(&mut self, key: SocketKey, frames: &Frames, kind: Kind) {
        let Delivery { sockets, sessions, schedule, .. } = self;
        let Some(socket) = sockets.unclosed(key) else { return };
        let Some((session, state)) = socket.session.and_then(|key| Some((key, sessions.get_mut(key)?))) else {
            socket.own_mut().out.push(frames, kind);
            return self.write_socket(key);
        };
        let outbox = if state.is_pushed_to() { &mut state.outbox } else { &mut socket.own_mut().out };
        outbox.push(frames, kind);
        schedule.write_session(session, &mut state.marks);
    }

    /// Schedules a socket that has output. A socket with a session is written with its session.
    pub(super) fn write_socket(&mut self, key: SocketKey) {
        let Delivery { sockets, sessions, schedule, .. } = self;
        let Some(socket) = sockets.get_mut(key) else { return };
        match socket.session {
            Some(session) => {
                let state = sessions.get_mut(session);
                state.into_iter().for_each(|state| schedule.write_session(session, &mut state.marks));
            }
            None => schedule.write_socket(key, &mut socket.marks),
        }
    }

    /// Shuts a socket at once and discards its queue. Bytes that the kernel already has may still arrive.
    pub(crate) fn abort_socket(&mut self, key: SocketKey) {
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
            session.outbox.leave_attachment();
        }
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let mut own = socket.own.take();
        if let Some(stream) = own.as_mut().and_then(|own| own.stream.take()) {
            socket.own_mut().stream = Some(stream);
        }
        if std::mem::replace(&mut socket.phase, Phase::Closed) != Phase::Closed {
            self.effects.push(effect);
        }
        own.into_iter().for_each(|own| self.discard(own.out));
    }

    /// Sends the last closed batch as one frame, with the replies after its messages.
    fn send_batch(&mut self, key: SessionKey, socket: SocketKey, replies: &[u8]) -> Result<(), GivenUp> {
        let mut ranges = Vec::new();
        let bytes_max = SOCKET_BATCH_BYTES_MAX.saturating_sub(replies.len());
        self.send_messages(key, Some(socket), Some(bytes_max), |messages| ranges.extend(messages.ranges().cloned()));
        let compression = self.socket(socket).and_then(|socket| socket.compression);
        if let Some(compression) = compression.filter(|_| ranges.iter().any(|range| range.chunk.is_compressible())) {
            let compressor = &mut self.encoder.compressor;
            let batch = compressor.batch(&ranges, compression, replies);
            let frames = self.encoder.copy_single(&batch);
            return self.push_on_socket(socket, &frames);
        }
        let parts: Vec<Frames> = ranges.iter().map(|frames| frames.text(Format::Joined)).collect();
        let bytes = parts.iter().map(Frames::bytes).sum::<usize>() + replies.len() + 2;
        if self.is_unread(socket, bytes) {
            return Err(GivenUp::Socket(socket));
        }
        if bytes <= COPY_BYTES_MAX || self.is_stream(socket) {
            let frames = self.encoder.single(Opcode::Text, bytes, |out| {
                out.push(b'[');
                parts.iter().for_each(|part| out.extend_from_slice(&part.chunk.slice(part.start, part.end)));
                out.extend_from_slice(replies);
                out.push(b']');
            });
            self.push_frames(socket, &frames, Kind::Replies);
            return Ok(());
        }
        let [head, end] = self.encoder.around(bytes, replies);
        for part in [&head].into_iter().chain(&parts).chain([&end]) {
            self.push_frames(socket, part, Kind::Replies);
        }
        Ok(())
    }

    /// Answers a ping with its payload. While the kernel takes nothing, or if many pings come at once, only the latest
    /// is answered (RFC 6455 §5.5.3 allows it), so that pongs cannot pile up.
    pub(crate) fn pong(&mut self, key: SocketKey, payload: &[u8]) -> Result<(), GivenUp> {
        let now_ms = self.now.ms;
        let Some(socket) = self.sockets.get_mut(key).filter(|socket| socket.phase == Phase::Open) else {
            return Ok(());
        };
        socket.last_received_ms = now_ms;
        let is_blocked = socket.marks.is_blocked();
        let own = socket.own_mut();
        if is_blocked || own.pong_bytes > PONG_BYTES_MAX {
            own.pong = Some(payload.into());
            return Ok(());
        }
        own.pong_bytes += payload.len() + 2;
        self.write_frame(key, Opcode::Pong, payload)
    }

    /// Sends replies as one frame, after everything that waits already. If they contain the reply to a connect of an
    /// acknowledging session, its messages go into the same frame.
    pub(crate) fn reply_on_socket(
        &mut self,
        key: SocketKey,
        connect: Option<SessionKey>,
        replies: &[u8],
    ) -> Result<(), GivenUp> {
        if let Some(session) = connect.filter(|session| self.acknowledges(*session)) {
            return self.send_batch(session, key, replies);
        }
        if connect.is_some_and(|session| !self.hand_to_socket(session, key)) {
            return Err(GivenUp::Socket(key));
        }
        let frames = self.encoder.replies(replies);
        self.push_on_socket(key, &frames)
    }

    /// Sends replies on a WebSocket before the messages that wait for its session.
    pub(crate) fn reply_first(&mut self, key: SocketKey, replies: &[u8]) -> Result<(), GivenUp> {
        let session = self.socket(key).and_then(|socket| socket.session);
        let is_pushed_to = |session: &SessionKey| self.session(*session).is_some_and(Session::is_pushed_to);
        let Some(session) = session.filter(is_pushed_to) else { return self.reply_on_socket(key, None, replies) };
        let frames = self.encoder.replies(replies);
        if self.is_unread(key, frames.bytes()) {
            return Err(GivenUp::Socket(key));
        }
        self.push_first(session, &frames, Kind::Replies);
        Ok(())
    }

    /// Delivers a message to a session before those that wait. False if there is no room.
    pub(crate) fn deliver_first(&mut self, key: SessionKey, frames: &Frames) -> bool {
        let session = self.session(key);
        let has_room = session.is_some_and(|session| !session.outbox.is_full(1, frames.bytes(), &self.capacity));
        if has_room {
            self.push_first(key, frames, Kind::Messages);
        }
        has_room
    }

    fn push_first(&mut self, key: SessionKey, frames: &Frames, kind: Kind) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.outbox.push_first(frames, kind);
        self.schedule.write_session(key, &mut session.marks);
    }

    /// Sends a message that is no Bayeux message, compressed if the client takes that.
    pub(crate) fn write_message(&mut self, key: SocketKey, opcode: Opcode, message: &[u8]) -> Result<(), GivenUp> {
        let Some(compression) = self.socket(key).and_then(|socket| socket.compression) else {
            return self.write_frame(key, opcode, message);
        };
        let frame = self.encoder.compressor.single(opcode, message, compression);
        let frames = self.encoder.copy_single(&frame);
        self.push_on_socket(key, &frames)
    }

    /// Sends a frame that is not a batch of replies.
    pub(crate) fn write_frame(&mut self, key: SocketKey, opcode: Opcode, payload: &[u8]) -> Result<(), GivenUp> {
        let frames = self.encoder.single(opcode, payload.len(), |bytes| bytes.extend_from_slice(payload));
        self.push_on_socket(key, &frames)
    }

    /// Queues a frame for the socket itself, not for its session, unless too much waits already.
    fn push_on_socket(&mut self, key: SocketKey, frames: &Frames) -> Result<(), GivenUp> {
        if self.is_unread(key, frames.bytes()) {
            return Err(GivenUp::Socket(key));
        }
        self.push_frames(key, frames, Kind::Replies);
        Ok(())
    }

    /// Queues a close frame after everything that waits. The socket is shut after that.
    pub(crate) fn close_socket(&mut self, key: SocketKey, code: u16, reason: &str) {
        let until_ms = self.now.ms + self.settings.handshake_timeout_ms;
        let Some(socket) = self.sockets.get_mut(key).filter(|socket| socket.phase == Phase::Open) else { return };
        socket.phase = Phase::Closing { until_ms: until_ms.to_ne_bytes() };
        let mut bytes = Vec::with_capacity(64);
        frame::close(code, reason, &mut bytes);
        let frames = self.encoder.copy_single(&bytes);
        self.push_frames(key, &frames, Kind::Close);
        self.arm_socket(key, until_ms);
    }
}

/// Batches of up to this many bytes are copied into one frame. That is cheaper than several pieces for each session;
/// larger batches share pieces, unless they go to a stream, which writes whole frames only.
const COPY_BYTES_MAX: usize = 4096;

/// The most bytes of pongs queued between two writes. Beyond them only the latest ping is answered.
const PONG_BYTES_MAX: usize = 16 * 1024;
