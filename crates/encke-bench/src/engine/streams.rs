//! Connections, each of one session or of several that have streams on it.

use crate::engine::clients::Clients;
use crate::engine::error::ConnectionError;
use crate::engine::http2::Served;
use crate::engine::session::Connection;
use crate::engine::socket::Socket;

impl Clients {
    /// The connection of a session, which other sessions may share.
    pub(super) fn socket_mut(&mut self, index: usize) -> &mut Option<Socket> {
        match &mut self.sessions[index].connection {
            Connection::WebSocket(link) => &mut link.socket,
            Connection::Stream(_) => self.http2.socket_mut(index),
            Connection::Http { link, .. } => link.socket_mut(),
            Connection::Events { link, .. } => &mut link.socket,
        }
    }

    /// The connection of a session is lost, to all sessions that share it.
    pub(super) fn lose(&mut self, index: usize, error: ConnectionError) {
        if matches!(self.sessions[index].connection, Connection::Stream(_)) {
            let served = self.http2.lose(index, &error);
            return self.served(served);
        }
        self.error(index, error);
    }

    /// Closes the connection of a session, or its stream if it shares one.
    pub(super) fn close(&mut self, index: usize) {
        let session = &mut self.sessions[index];
        if let Connection::Stream(stream) = &session.connection {
            self.http2.leave(index, stream);
        }
        session.close();
        let outcome = self.pool.give_up(index, &self.shared);
        self.pool_outcome(outcome);
    }

    /// Processes what has happened to the sessions of a connection.
    pub(super) fn served(&mut self, served: Served) {
        served.received.into_iter().for_each(|index| self.settle(index));
        served.lost.into_iter().for_each(|(index, error)| self.error(index, error));
    }
}
