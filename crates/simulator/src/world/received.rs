//! The server has received something of a session: a sign of life.

use crate::exchange::Exchange;
use crate::world::World;

impl World {
    /// The server has received a well-formed message of a session.
    pub(super) fn received(&mut self, session: Option<usize>) {
        let now_ms = self.now.ms;
        if let Some(session) = session.and_then(|session| self.checker.sessions.get_mut(session)) {
            session.spoke_ms = now_ms;
            // Without its cookie the request is refused: then it neither shows that its client lives, nor ends the time to
            // read a response. The checker cannot know which.
            session.last_received_ms = if session.strayed { session.last_received_ms.min(now_ms) } else { now_ms };
        }
    }

    /// A connect over HTTP has arrived. If its client has moved to a WebSocket since, the server detaches that from
    /// the session again: it cannot know which of the two its client meant last.
    pub(super) fn overtaken(&mut self, exchange: usize) {
        let Exchange { client, session, connects, transport, .. } = self.network.exchanges[exchange];
        // The reply to a connect of a stream's client comes on the stream.
        let on_socket = self.clients[client].conn.is_some() && transport.format().is_none();
        if connects && session.is_some() && on_socket && self.clients[client].session() == session {
            self.lose_sight(client);
        }
    }

    /// The same, where the late connect came on a WebSocket that its client has left.
    pub(super) fn overtaken_on(&mut self, conn: usize, text: &str) {
        let client = self.network.conns[conn].client;
        if self.clients[client].conn.is_some_and(|now| now != conn) && text.contains("\"/meta/connect\"") {
            self.lose_sight(client);
        }
    }

    /// Processes requests that waited in a shard.
    pub(super) fn requests_are_worked_through(&mut self, shard: usize) {
        for (to, exchange) in std::mem::take(&mut self.waiting) {
            if to != shard || self.shards[shard].has_waiting(self.network.id_of(exchange)) {
                self.waiting.push((to, exchange));
                continue;
            }
            self.overtaken(exchange);
            let exchange = &self.network.exchanges[exchange];
            self.received(exchange.session.filter(|_| exchange.sign_of_life));
        }
    }
}
