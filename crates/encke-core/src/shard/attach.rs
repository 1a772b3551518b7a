//! Attaches a session to a WebSocket, which then delivers its messages. `websocket` leads here when a batch names a
//! session, and `handshake` when it opens one on a WebSocket.

use crate::events::{SessionKey, SocketKey};
use crate::shard::Parts;

impl Parts {
    /// Attaches a session to a socket if its messages allow it: a connect always does, other messages only while the
    /// session has no connection.
    pub(super) fn carry(&mut self, session: SessionKey, socket: SocketKey, messages: &[bayeux::Message<'_>]) {
        let connects = || messages.iter().any(|m| m.channel.as_deref() == Some(bayeux::channel::META_CONNECT));
        let Some(state) = self.sessions.get(session) else { return };
        if state.socket() != Some(socket) && (state.is_away() || connects()) {
            self.attach(session, socket);
        }
    }

    /// Attaches the session to this socket and detaches it from its previous connection.
    pub(super) fn attach(&mut self, session: SessionKey, socket: SocketKey) {
        let before = self.socket(socket).and_then(|socket| socket.session);
        if let Some(before) = before.filter(|before| *before != session) {
            self.take_held(before);
            self.detach(before);
        }
        self.supersede(session);
        self.detach(session);
        let Some(state) = self.sessions.get_mut(session) else { return };
        state.attach(socket);
        if !state.outbox.is_empty() {
            self.schedule.write_session(session, &mut state.marks);
        }
        if let Some(socket) = self.socket_mut(socket) {
            socket.session = Some(session);
        }
        self.replay_later(session);
    }
}
