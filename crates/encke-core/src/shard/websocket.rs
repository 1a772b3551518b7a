//! Messages from WebSockets and their close. The server calls [`Shard::socket_text`] for each text message,
//! [`Shard::socket_close`] to close a WebSocket, and [`Shard::socket_closed`] when it is gone.

use std::sync::Arc;

use bayeux::BayeuxError;
use websocket::{Compression, Opcode};

use crate::application::EndReason;
use crate::delivery::{GOING_AWAY, Received, Session, Socket, SocketOrigin};
use crate::events::{Closing, Peer, SocketKey};
use crate::id::Id;
use crate::identity::Head;
use crate::now::Now;
use crate::opener::Opener;
use crate::protocol::batch::{Batch, Outcome, Via, batch_error_body, client_of};
use crate::shard::{Machines, Shard};

impl Shard {
    /// Processes a text message.
    pub fn socket_text(&mut self, now: Now, key: SocketKey, text: &str) -> Received {
        let mut beside = self.beside_burst_at(now);
        let Some((opener, attached, is_carried)) = beside.sessions.hear(key) else { return Received::Here };
        let messages = match bayeux::parse_batch(text, beside.env.settings.limits()) {
            Ok(messages) => messages,
            Err(error) => {
                let machines = self.settle_burst();
                machines.env.metrics.batches_refused.add(1);
                let body = batch_error_body(BayeuxError::from(error));
                let written = machines.delivery.write_frame(key, Opcode::Text, &body);
                machines.end_given_up(written);
                return Received::Here;
            }
        };
        // A socket may only use the session attached to it, even if its client knows other ids (CometD 9).
        let attached = attached.and_then(|key| Some((key, beside.sessions.id_of(key)?)));
        let (handshake, client) = client_of(&messages);
        if handshake && is_carried {
            // The application would see no head and no address. The node that the client reaches next has both.
            return self.settle_burst().connect_again(key);
        }
        let found = match (client, attached) {
            (Some(client), Some((key, attached))) => attached.is(client).then_some(key),
            (Some(client), None) => match Id::parse(client) {
                Some(id) => {
                    let (home, shared) = (beside.env.shared.shard_of(&id), &beside.env.shared);
                    if home != beside.env.index && home < shared.shards {
                        return self.settle_burst().send_away(key, home);
                    }
                    let found = beside.sessions.find(&id);
                    if found.is_none() && is_carried {
                        // It must not be carried twice: each time the limits by address would know less of its client.
                        return self.settle_burst().connect_again(key);
                    }
                    if found.is_none() && shared.is_clustered() && !beside.requests.searched.remove(&key) {
                        return self.settle_burst().search_for_socket(id, key);
                    }
                    found
                }
                None => None,
            },
            (None, _) => None,
        };
        let carries = attached.is_none();
        let session = found.filter(|key| beside.sessions.is_usable(*key, opener));
        let room = beside.requests.take_room();
        if let Some(session) = session
            && carries
        {
            self.settle_burst().delivery.carry(session, key, &messages);
        }
        let mut batch = Batch::new(Via::Socket(key), messages.len(), handshake, session, room);
        self.process(&mut batch, &messages);
        match self.answer_on_socket(key, batch) {
            Received::Here if handshake => Received::Handshake,
            received => received,
        }
    }

    /// Sends the replies of a batch as far as it has been processed. If it waits for the application, it is suspended.
    pub(super) fn answer_on_socket(&mut self, key: SocketKey, mut batch: Batch) -> Received {
        let mut beside = self.beside_burst();
        // The client's own publications come before the replies. Those of others do not reach it without a subscription.
        let is_unreached = |key| beside.sessions.id_of(key).is_some() && beside.channels.count_of(key.index) == 0;
        let is_beside = batch.is(Outcome::Replies) && batch.decisions.is_none() && !beside.env.is_draining;
        if !is_beside || !(batch.replies.is_empty() || batch.session.is_some_and(is_unreached)) {
            return self.settle_burst().answer_on_socket(key, batch);
        }
        let has_replies = !batch.replies.is_empty();
        let replied = if has_replies { beside.sessions.reply_unreached(key, &batch.replies) } else { Ok(()) };
        beside.requests.reuse(std::mem::take(&mut batch.replies));
        if replied.is_err() {
            self.settle_burst().end_given_up(replied);
        }
        Received::Here
    }

    /// Closes the socket with this code after everything that waits is written.
    pub fn socket_close(&mut self, now: Now, key: SocketKey, closing: Closing) {
        self.settle_burst_at(now).delivery.close_socket(key, closing.code, closing.reason);
    }

    /// Removes a socket that is gone. Its session lives on: the queue waits for the next connection. The session of a client
    /// without Bayeux ends: such a client goes on with another.
    pub fn socket_closed(&mut self, now: Now, key: SocketKey) {
        let machines = self.settle_burst_at(now);
        let session = machines.delivery.socket(key).and_then(Socket::session);
        machines.requests.searched.remove(&key);
        machines.delivery.socket_is_gone(key);
        if let Some(session) = session.filter(|key| machines.delivery.session(*key).is_some_and(Session::is_plain)) {
            machines.end_session(session, EndReason::Disconnected);
        }
    }

    /// Adds a WebSocket that has been opened. `browser` is the browser id in the cookie of its upgrade request.
    pub fn socket_opened(&mut self, now: Now, browser: Option<Id>) -> SocketKey {
        self.settle_burst_at(now).delivery.open_socket(browser.map_or(Opener::Program, Opener::Browser))
    }

    /// Notes the origin of a WebSocket, and the head of its upgrade request if the application reads heads. `is_of_page`:
    /// a page of a browser opened it. Then the session of a browser needs that browser's cookie.
    pub fn socket_is_of(&mut self, key: SocketKey, peer: Peer, is_of_page: bool, head: Option<Arc<Head>>) {
        let Machines { delivery, clients, .. } = self.settle_burst();
        delivery.set_origin(key, clients.newcomers.origins(peer), head);
        if is_of_page {
            delivery.is_of_page(key);
        }
    }

    /// Compresses messages on a WebSocket as its client and the server have agreed.
    pub fn socket_compresses(&mut self, key: SocketKey, compression: Compression) {
        self.settle_burst().delivery.set_compression(key, Some(compression));
    }

    /// The origin of a WebSocket, for the shard to which it moves.
    pub fn socket_origin(&self, key: SocketKey) -> Option<SocketOrigin> {
        self.machines.delivery.origin_of(key)
    }

    /// Adds a WebSocket that another shard has passed on.
    pub fn socket_moved_here(&mut self, now: Now, origin: SocketOrigin) -> SocketKey {
        self.settle_burst_at(now).delivery.socket_moved_here(origin)
    }

    /// Notes that the kernel takes bytes again.
    pub fn socket_writable(&mut self, now: Now, key: SocketKey) {
        self.settle_burst_at(now).delivery.unblock(key);
    }

    /// Notes a pong: the client is alive.
    pub fn socket_pong(&mut self, now: Now, key: SocketKey) {
        self.beside_burst_at(now).sessions.hear(key);
    }

    /// Answers a ping with its payload, or only the latest of many.
    pub fn socket_ping(&mut self, now: Now, key: SocketKey, payload: &[u8]) {
        let machines = self.settle_burst_at(now);
        let answered = machines.delivery.pong(key, payload);
        machines.end_given_up(answered);
    }

    /// Sends a message that is not a Bayeux message.
    pub fn socket_send(&mut self, now: Now, key: SocketKey, opcode: Opcode, payload: &[u8]) {
        let machines = self.settle_burst_at(now);
        machines.delivery.aside().touch(key);
        let written = machines.delivery.write_message(key, opcode, payload);
        machines.end_given_up(written);
    }

    /// Notes that a socket waits to be read. Its client is not silent: neither the socket nor its session expires.
    pub fn socket_waits(&mut self, now: Now, key: SocketKey) {
        let mut beside = self.beside_burst_at(now);
        if let Some(session) = beside.sessions.touch(key) {
            beside.sessions.active(session);
        }
    }
}

impl Machines {
    fn answer_on_socket(&mut self, key: SocketKey, mut batch: Batch) -> Received {
        if batch.is(Outcome::Disconnected) {
            self.delivery.keep_final_replies(key, &mut batch.replies);
        }
        if !batch.replies.is_empty() && batch.decisions.is_some() && !self.delivery.is_open(key) {
            // The socket is gone, or is about to be, since the batch was suspended.
            batch.session.into_iter().for_each(|session| self.late_to_session(session, &batch.replies, None));
        } else if !batch.replies.is_empty() {
            let connect = batch.session.filter(|_| batch.is_connected());
            let replied = self.delivery.reply_on_socket(key, connect, &batch.replies);
            self.end_given_up(replied);
        }
        self.requests.reuse(std::mem::take(&mut batch.replies));
        if batch.waits() {
            batch.replies_have_left();
            self.suspend(batch);
            return Received::Waits;
        }
        if batch.decisions.is_some() {
            self.delivery.aside().set_suspended(key, false);
        }
        if batch.is(Outcome::EndsSession)
            && let Some(session) = batch.session
        {
            self.end_session(session, EndReason::Kicked);
            self.delivery.close_socket(key, 1000, "session ended");
        }
        if self.env.is_draining {
            self.delivery.close_socket(key, GOING_AWAY.0, GOING_AWAY.1);
        }
        Received::Here
    }

    /// Closes a socket that another node carries, so that its client connects again and its next text is seen by the node that it reaches.
    fn connect_again(&mut self, key: SocketKey) -> Received {
        self.delivery.close_socket(key, CONNECT_AGAIN.code, CONNECT_AGAIN.reason);
        Received::Here
    }

    /// Lets a socket without a session move to the shard of the session that its client names, if it can.
    fn send_away(&mut self, key: SocketKey, home: usize) -> Received {
        if self.delivery.may_move(key) { Received::Elsewhere(home) } else { Received::Here }
    }
}

/// The close of a WebSocket that another node carries, and whose client wants something that this node must not do for it.
const CONNECT_AGAIN: Closing = Closing { code: 1013, reason: "connect again" };
