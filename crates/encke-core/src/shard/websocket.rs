//! Messages from WebSockets and their close. The server calls [`Shard::socket_text`] for each text message,
//! [`Shard::socket_close`] to close a WebSocket, and [`Shard::socket_closed`] when it is gone.

use std::sync::Arc;

use bayeux::BayeuxError;
use websocket::Opcode;

use crate::application::EndReason;
use crate::connections::socket::{GOING_AWAY, Opener, Phase, Received, Socket, SocketOrigin};
use crate::events::{Closing, Peer, SocketKey};
use crate::identity::Head;
use crate::now::Now;
use crate::protocol::batch::{Batch, Outcome, Via, batch_error_body, client_of};
use crate::sessions::id::Id;
use crate::shard::{Parts, Shard};

impl Shard {
    /// Processes a text message.
    pub fn socket_text(&mut self, now: Now, key: SocketKey, text: &str) -> Received {
        let parts = self.beside_burst();
        parts.now = now;
        let Some(socket) = parts.socket_mut(key).filter(|socket| socket.phase == Phase::Open) else {
            return Received::Here;
        };
        socket.last_received_ms = now.ms;
        let (opener, carried) = (socket.opener, socket.session);
        let messages = match bayeux::parse_batch(text, parts.settings.limits()) {
            Ok(messages) => messages,
            Err(error) => {
                let parts = self.settle_burst();
                parts.metrics.batches_refused.add(1);
                parts.write_frame(key, Opcode::Text, &batch_error_body(BayeuxError::from(error)));
                return Received::Here;
            }
        };
        // A socket may only use the session attached to it, even if its client knows other ids (CometD 9).
        let carried = carried.and_then(|key| Some((key, parts.sessions.get(key)?.id)));
        let (handshake, client) = client_of(&messages);
        let found = match (client, carried) {
            (Some(client), Some((key, carried))) => carried.is(client).then_some(key),
            (Some(client), None) => match Id::parse(client) {
                Some(id) if id.shard() != parts.index && id.shard() < parts.shared.shards => {
                    return parts.send_away(key, id.shard());
                }
                id => id.and_then(|id| parts.sessions.find(&id)),
            },
            (None, _) => None,
        };
        let session = found.filter(|key| parts.is_usable(*key, opener));
        let room = parts.requests.take_room();
        if let Some(session) = session
            && carried.is_none()
        {
            self.settle_burst().carry(session, key, &messages);
        }
        let mut batch = Batch::new(Via::Socket(key), messages.len(), handshake, session, room);
        self.process(&mut batch, &messages);
        self.answer_on_socket(key, batch)
    }

    /// Sends the replies of a batch as far as it has been processed. If it waits for the application, it is suspended.
    pub(super) fn answer_on_socket(&mut self, key: SocketKey, mut batch: Batch) -> Received {
        // The client's own publications come before the replies. Those of others do not reach it without a subscription.
        let parts = self.parts();
        let session = batch.session.filter(|key| parts.sessions.get(*key).is_some());
        let is_reached = session.is_none_or(|key| parts.channels.count_of(key.index) > 0);
        let ends = batch.is(Outcome::EndsSession) || parts.connections.draining;
        let fans_out = ends || (is_reached && !batch.replies.is_empty());
        let parts = if fans_out { self.settle_burst() } else { self.beside_burst() };
        if batch.is(Outcome::Disconnected)
            && let Some(socket) = parts.socket_mut(key).filter(|socket| socket.pending_replies > 0)
        {
            let final_replies = &mut socket.own_mut().final_replies;
            // A client may send disconnect twice.
            if !final_replies.is_empty() && !batch.replies.is_empty() {
                final_replies.push(b',');
            }
            final_replies.append(&mut batch.replies);
        }
        if !batch.replies.is_empty() && batch.decisions.is_some() && !parts.is_open(key) {
            // The socket is gone, or is about to be, since the batch was suspended.
            batch.session.into_iter().for_each(|session| parts.late_to_session(session, &batch.replies));
        } else if !batch.replies.is_empty() {
            parts.reply_on_socket(key, batch.session.filter(|_| batch.is_connected()), &batch.replies);
        }
        parts.requests.reuse(std::mem::take(&mut batch.replies));
        if batch.waits() {
            batch.replies_have_left();
            parts.suspend(batch);
            return Received::Waits;
        }
        if batch.decisions.is_some() {
            parts.set_suspended(key, false);
        }
        if batch.is(Outcome::EndsSession)
            && let Some(session) = batch.session
        {
            parts.remove_session(session, EndReason::Kicked);
            parts.close_socket(key, 1000, "session ended");
        }
        if parts.connections.draining {
            parts.close_socket(key, GOING_AWAY.0, GOING_AWAY.1);
        }
        Received::Here
    }

    /// Closes the socket with this code after everything that waits is written.
    pub fn socket_close(&mut self, now: Now, key: SocketKey, closing: Closing) {
        self.settle_burst_at(now).close_socket(key, closing.code, closing.reason);
    }

    /// Removes a socket that is gone. Its session lives on: the queue waits for the next connection.
    pub fn socket_closed(&mut self, now: Now, key: SocketKey) {
        let parts = self.settle_burst_at(now);
        if let Some(session) = parts.socket(key).and_then(|socket| socket.session) {
            parts.take_held(session);
            parts.detach(session);
        }
        if let Some(socket) = parts.connections.sockets.remove(key) {
            parts.disarm(socket.armed_ms);
            parts.metrics.sockets.set(parts.connections.sockets.len());
        }
    }

    /// Adds a WebSocket that has been opened. `browser` is the browser id in the cookie of its upgrade request.
    pub fn socket_opened(&mut self, now: Now, browser: Option<Id>) -> SocketKey {
        self.settle_burst_at(now).open_socket(browser.map_or(Opener::Program, Opener::Browser))
    }

    /// Notes the origin of a WebSocket, and the head of its upgrade request if the application reads heads. `is_of_page`:
    /// a page of a browser opened it. Then the session of a browser needs that browser's cookie.
    pub fn socket_is_of(&mut self, key: SocketKey, peer: Peer, is_of_page: bool, head: Option<Arc<Head>>) {
        let parts = self.beside_burst();
        let origins = parts.clients.origins(peer);
        parts.set_origin(key, origins, head);
        if let Some(socket) = parts.socket_mut(key).filter(|socket| is_of_page && socket.opener == Opener::Program) {
            socket.opener = Opener::Page;
        }
    }

    /// The origin of a WebSocket, for the shard to which it moves.
    pub fn socket_origin(&self, key: SocketKey) -> Option<SocketOrigin> {
        let Socket { opener, origins, head, .. } = self.parts().socket(key)?;
        let head = head.as_ref().map(|own| own.head.clone());
        Some(SocketOrigin { opener: *opener, origins: *origins, head })
    }

    /// Adds a WebSocket that another shard has passed on.
    pub fn socket_moved_here(&mut self, now: Now, origin: SocketOrigin) -> SocketKey {
        let parts = self.settle_burst_at(now);
        let key = parts.open_socket(origin.opener);
        parts.set_origin(key, origin.origins, origin.head);
        key
    }

    /// Notes that the kernel takes bytes again.
    pub fn socket_writable(&mut self, now: Now, key: SocketKey) {
        self.settle_burst_at(now).unblock(key);
    }

    /// Notes a pong: the client is alive.
    pub fn socket_pong(&mut self, now: Now, key: SocketKey) {
        if let Some(socket) = self.settle_burst_at(now).socket_mut(key) {
            socket.last_received_ms = now.ms;
        }
    }

    /// Answers a ping with its payload, or only the latest of many.
    pub fn socket_ping(&mut self, now: Now, key: SocketKey, payload: &[u8]) {
        self.settle_burst_at(now).pong(key, payload);
    }

    /// Sends a frame that is not a Bayeux message.
    pub fn socket_send(&mut self, now: Now, key: SocketKey, opcode: Opcode, payload: &[u8]) {
        let parts = self.settle_burst_at(now);
        if let Some(socket) = parts.socket_mut(key) {
            (socket.last_received_ms, socket.alone_ms) = (now.ms, now.ms);
            parts.write_frame(key, opcode, payload);
        }
    }

    /// Notes that a socket waits to be read. Its client is not silent: neither the socket nor its session expires.
    pub fn socket_waits(&mut self, now: Now, key: SocketKey) {
        let parts = self.beside_burst();
        parts.now = now;
        let Some(socket) = parts.socket_mut(key) else { return };
        (socket.last_received_ms, socket.alone_ms) = (now.ms, now.ms);
        if let Some(session) = socket.session {
            parts.active(session);
        }
    }
}

impl Parts {
    /// Lets a socket without a session move to the shard of the session that its client names. A socket with unsent
    /// bytes cannot move: they would be lost, and half a frame would corrupt everything after it. A socket whose
    /// replies wait for the history store would never get them there. Such a socket is shut, and its client connects
    /// again.
    fn send_away(&mut self, key: SocketKey, home: usize) -> Received {
        let Some(socket) = self.socket(key) else { return Received::Here };
        if socket.out().is_none() && socket.pending_replies == 0 {
            return Received::Elsewhere(home);
        }
        self.abort_socket(key);
        Received::Here
    }
}
