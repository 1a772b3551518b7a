//! Messages from WebSockets and their close. The server calls [`Shard::socket_text`] for each text message,
//! [`Shard::socket_close`] to close a WebSocket, and [`Shard::socket_closed`] when it is gone.

use bayeux::BayeuxError;
use websocket::Opcode;

use crate::connections::socket::{GOING_AWAY, Phase, Received};
use crate::events::{Closing, SocketKey};
use crate::now::Now;
use crate::protocol::batch::{Batch, Outcome, Via, batch_error_body, client_of};
use crate::sessions::session::Ended;
use crate::shard::Shard;

impl Shard {
    /// Processes a text message.
    pub fn socket_text(&mut self, now: Now, key: SocketKey, text: &str) -> Received {
        self.now = now;
        let Some(socket) = self.socket_mut(key).filter(|socket| socket.phase == Phase::Open) else {
            return Received::Here;
        };
        socket.last_received_ms = now.ms;
        let (browser, carried) = (socket.browser, socket.session);
        let messages = match bayeux::parse_batch(text, &self.limits) {
            Ok(messages) => messages,
            Err(error) => {
                self.metrics.batches_refused.add(1);
                self.write_frame(key, Opcode::Text, &batch_error_body(BayeuxError::from(error)));
                return Received::Here;
            }
        };
        // A socket may only use the session attached to it, even if its client knows other ids (CometD 9).
        let carried = carried.and_then(|key| Some((key, self.sessions.get(key)?.id)));
        let found = match (client_of(&messages), carried) {
            (Some(id), Some((key, carried))) => (id == carried).then_some(key),
            (Some(id), None) if id.shard() != self.index && id.shard() < self.shared.shards => {
                return self.send_away(key, id.shard());
            }
            (Some(id), None) => self.sessions.find(&id),
            (None, _) => None,
        };
        let session = found.filter(|key| self.is_usable(*key, browser, true));
        if let Some(session) = session {
            self.carry(session, key, &messages);
        }
        let room = std::mem::take(&mut self.replies);
        let mut batch = Batch::new(Via::Socket(key), &messages, session, room);
        self.process(&mut batch, &messages);
        // The client's own publications come before the replies.
        let session = batch.session.and_then(|key| self.sessions.get(key));
        if !batch.replies.is_empty() && session.is_none_or(|session| !session.subscriptions.is_empty()) {
            self.fan_out_pending();
        }
        if batch.is(Outcome::Disconnected)
            && let Some(socket) = self.socket_mut(key).filter(|socket| socket.pending_replies > 0)
        {
            // A client may send disconnect twice.
            if !socket.final_replies.is_empty() && !batch.replies.is_empty() {
                socket.final_replies.push(b',');
            }
            socket.final_replies.append(&mut batch.replies);
        }
        if !batch.replies.is_empty() {
            self.reply_on_socket(key, batch.session.filter(|_| batch.is_connected()), &batch.replies);
        }
        if batch.replies.capacity() <= REPLIES_BUFFER_BYTES_MAX {
            self.replies = std::mem::take(&mut batch.replies);
            self.replies.clear();
        }
        if batch.is(Outcome::EndsSession)
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

    /// Lets a socket without a session move to the shard of the session that its client names. A socket with unsent
    /// bytes cannot move: they would be lost, and half a frame would corrupt everything after it. A socket whose
    /// replies wait for the history store would never get them there. Such a socket is shut, and its client connects
    /// again.
    fn send_away(&mut self, key: SocketKey, home: usize) -> Received {
        let Some(socket) = self.socket(key) else { return Received::Here };
        if socket.out.is_empty() && socket.pending_replies == 0 {
            return Received::Elsewhere(home);
        }
        self.abort_socket(key);
        Received::Here
    }

    /// Closes the socket with this code after everything that waits is written.
    pub fn socket_close(&mut self, now: Now, key: SocketKey, closing: Closing) {
        self.now = now;
        self.fan_out_pending();
        self.close_socket(key, closing.code, closing.reason);
    }

    /// Removes a socket that is gone. Its session lives on: the queue waits for the next connection.
    pub fn socket_closed(&mut self, now: Now, key: SocketKey) {
        self.now = now;
        self.fan_out_pending();
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
}

/// The size up to which the buffer of a batch's replies is reused for the next batch.
const REPLIES_BUFFER_BYTES_MAX: usize = 4096;
