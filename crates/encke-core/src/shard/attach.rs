use crate::events::{SessionKey, SocketKey};
use crate::sessions::session::Attachment;
use crate::shard::{Dirty, Shard};

impl Shard {
    /// Lets a socket carry a session if it does not yet: with a connect always, with anything else only while nothing carries it.
    pub(super) fn carry(&mut self, session: SessionKey, socket: SocketKey, messages: &[bayeux::Message<'_>]) {
        let connects = || messages.iter().any(|m| m.channel.as_deref() == Some(bayeux::channel::META_CONNECT));
        let Some(state) = self.sessions.get(session) else { return };
        match state.attachment {
            Attachment::Socket(current) if current == socket => {}
            Attachment::Requests if state.held.is_none() => self.attach(session, socket),
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
        state.attachment = Attachment::Socket(socket);
        if !state.outbox.is_empty() && !state.dirty {
            state.dirty = true;
            self.dirty.push_back(Dirty::Session(session));
        }
        if let Some(socket) = self.socket_mut(socket) {
            socket.session = Some(session);
        }
        self.replay_later(session);
    }
}
