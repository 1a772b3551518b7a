//! Signs of life of clients, and what may be done while publications wait for their fan-out.

use crate::clients::newcomers::Origins;
use crate::delivery::connections::socket::Phase;
use crate::delivery::sessions::session::Session;
use crate::delivery::{Delivery, GivenUp};
use crate::events::{Effect, SessionKey, SocketKey};
use crate::id::Id;
use crate::opener::Opener;

/// The sessions and WebSockets of a shard while publications wait for their fan-out. It reaches no outbox that they go
/// to, because they come before everything that is queued later.
pub(crate) struct Aside<'a>(&'a mut Delivery);

impl Delivery {
    /// The sessions and WebSockets, without a way to outboxes.
    #[inline]
    pub(crate) fn aside(&mut self) -> Aside<'_> {
        Aside(self)
    }

    /// True if a session acknowledges messages.
    pub(crate) fn acknowledges(&self, key: SessionKey) -> bool {
        self.sessions.get(key).is_some_and(|session| session.unacked().is_some())
    }

    /// True if the client of a session has only connected for too long (the activity extension).
    pub(crate) fn is_inactive(&self, key: SessionKey) -> bool {
        let max_ms = self.settings.activity_timeout_ms;
        let quiet_ms = |session: &Session| self.now.ms.saturating_sub(session.active_ms);
        max_ms > 0 && self.sessions.get(key).is_some_and(|session| quiet_ms(session) >= max_ms)
    }

    /// True if a client may use a session. Knowing the client id is not enough for a session that a browser opened
    /// (CometD 9: `402::session_unknown`). Only programs need no more, on a WebSocket without any cookie: Faye's client
    /// shakes hands over HTTP and does not send the cookie with its WebSocket. A page's browser sends its cookie, or it
    /// is another browser.
    #[inline]
    pub(crate) fn is_usable(&self, key: SessionKey, opener: Opener) -> bool {
        self.sessions.get(key).is_some_and(|session| {
            let own = session.browser.is_none() || session.browser == opener.browser() || opener == Opener::Program;
            own || self.settings.trust_client_session
        })
    }

    /// Notes that the kernel takes no more bytes for a session. Its replies wait behind those that the kernels of both
    /// sides hold.
    pub(super) fn is_blocked_behind(&mut self, key: SessionKey) {
        let kernel_bytes = KERNEL_BYTES.max(2 * self.settings.socket_send_buffer_bytes);
        let (now_ms, terms) = (self.now.ms, self.terms_of(key));
        if let Some(session) = self.sessions.get_mut(key) {
            session.has_to_read(kernel_bytes, now_ms, &terms);
        }
    }

    /// Keeps a session from expiring before its client comes back as a draining server advises.
    pub(crate) fn await_return(&mut self, key: SessionKey) {
        let (ms, terms) = (self.now.ms + self.settings.drain_spread_ms, self.terms_of(key));
        self.sessions.get_mut(key).into_iter().for_each(|session| session.protocol.received(ms, &terms));
    }
}

impl Aside<'_> {
    /// True if the client of a session replays.
    pub(crate) fn replays(&self, key: SessionKey) -> bool {
        self.0.sessions.get(key).is_some_and(|session| session.replays())
    }

    /// The session with this id.
    pub(crate) fn find(&self, id: &Id) -> Option<SessionKey> {
        self.0.sessions.find(id)
    }

    /// The id of a session.
    #[inline]
    pub(crate) fn id_of(&self, key: SessionKey) -> Option<&Id> {
        Some(&self.0.sessions.get(key)?.id)
    }

    /// The id of a session, unless the server has ended it: then its client may only fetch what waits for it.
    #[inline]
    pub(crate) fn id_of_entitled(&self, key: SessionKey) -> Option<&Id> {
        let session = self.0.sessions.get(key)?;
        if session.protocol.is_ending() { None } else { Some(&session.id) }
    }

    /// Notes that a session's client lives.
    pub(crate) fn received(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.0.now.ms, self.0.terms_of(key));
        if let Some(session) = self.0.sessions.get_mut(key) {
            session.protocol.received(now_ms, &terms);
        }
    }

    /// Notes that the client did something other than connecting (the activity extension). It is alive.
    #[inline]
    pub(crate) fn active(&mut self, key: SessionKey) {
        let (now_ms, terms) = (self.0.now.ms, self.0.terms_of(key));
        if let Some(session) = self.0.sessions.get_mut(key) {
            session.active_ms = now_ms;
            session.protocol.received(now_ms, &terms);
        }
    }

    /// The same for the session with this id.
    pub(crate) fn alive(&mut self, session: &Id) {
        if let Some(key) = self.find(session) {
            self.active(key);
        }
    }

    /// True if a client may use a session: see [`Delivery::is_usable`].
    #[inline]
    pub(crate) fn is_usable(&self, key: SessionKey, opener: Opener) -> bool {
        self.0.is_usable(key, opener)
    }

    /// Notes that a text has come from a WebSocket. Returns its opener, its session, and true if another node carries it. None if it
    /// is not open.
    #[inline]
    pub(crate) fn hear(&mut self, key: SocketKey) -> Option<(Opener, Option<SessionKey>, bool)> {
        let socket = self.0.sockets.get_mut(key).filter(|socket| socket.phase == Phase::Open)?;
        socket.last_received_ms = self.0.now.ms;
        Some((socket.opener, socket.session, socket.is_carried))
    }

    /// Notes that the client of a WebSocket is not silent, with a session or without. Returns its session.
    pub(crate) fn touch(&mut self, key: SocketKey) -> Option<SessionKey> {
        let now_ms = self.0.now.ms;
        let socket = self.0.sockets.get_mut(key)?;
        (socket.last_received_ms, socket.alone_ms) = (now_ms, now_ms);
        socket.session
    }

    /// Moves the effects so far to the end of `effects`.
    pub(crate) fn move_effects(&mut self, effects: &mut Vec<Effect>) {
        self.0.move_effects(effects);
    }

    /// Notes that a socket must not be read, or may be read again. Its client is not silent meanwhile.
    pub(crate) fn set_suspended(&mut self, key: SocketKey, is_suspended: bool) {
        let now_ms = self.0.now.ms;
        let Some(socket) = self.0.sockets.get_mut(key) else { return };
        let was_suspended = std::mem::replace(&mut socket.is_suspended, is_suspended);
        (socket.last_received_ms, socket.alone_ms) = (now_ms, now_ms);
        if was_suspended && !is_suspended {
            self.0.effects.push(Effect::Continue(key));
        }
    }

    /// The connection and the address of a WebSocket.
    pub(crate) fn origins_of(&self, key: SocketKey) -> Origins {
        self.0.sockets.get(key).map_or([0; 2], |socket| socket.origins)
    }

    /// Notes that a reply on a WebSocket waits until a publication is persisted.
    pub(crate) fn owe_reply(&mut self, key: SocketKey) {
        self.0.sockets.get_mut(key).into_iter().for_each(|socket| socket.pending_replies += 1);
    }

    /// True if little room is left for further responses. A client that does not take its own is then given up soon.
    #[inline]
    pub(crate) fn is_short_of_responses(&self) -> bool {
        self.0.is_short_of_responses()
    }

    /// Sends replies on a WebSocket whose session subscribes to nothing, so that no publication comes before them.
    pub(crate) fn reply_unreached(&mut self, key: SocketKey, replies: &[u8]) -> Result<(), GivenUp> {
        self.0.reply_on_socket(key, None, replies)
    }
}

/// The bytes that the kernels of both sides hold for a client that reads slowly, if buffers have their usual size.
const KERNEL_BYTES: usize = 256 * 1024;
