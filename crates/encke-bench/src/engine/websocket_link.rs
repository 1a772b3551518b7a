//! The WebSocket of one session on a connection that it alone has.

use std::time::Instant;

use websocket::handshake;

use crate::engine::error::ConnectionError;
use crate::engine::http::{self, Head};
use crate::engine::poll::Ready;
use crate::engine::protocol::Protocol;
use crate::engine::shared::WorkerShared;
use crate::engine::socket::Socket;
use crate::engine::websocket::{WebSocket, write_text};

/// A WebSocket connection.
///
/// ```text
/// None ── open ──▶ connecting ──▶ upgrading ──▶ upgraded
/// ```
#[derive(Debug, Default)]
pub(super) struct WebSocketLink {
    pub(super) socket: Option<Socket>,
    upgraded: bool,
    websocket: WebSocket,
}

impl WebSocketLink {
    /// Returns true after the upgrade.
    pub(super) fn is_upgraded(&self) -> bool {
        self.upgraded
    }

    /// Begins the connection.
    pub(super) fn open(&mut self, session: usize, shared: &WorkerShared) -> Result<(), ConnectionError> {
        let socket = Socket::connect(shared.target_of(session)).map_err(|error| ConnectionError::connecting(&error))?;
        *self = WebSocketLink { socket: Some(socket), ..WebSocketLink::default() };
        Ok(())
    }

    /// Reads and writes as `ready` allows. Returns true if the session received something.
    pub(super) fn step(
        &mut self,
        ready: &Ready,
        session: usize,
        protocol: &mut Protocol,
        shared: &mut WorkerShared,
    ) -> Result<bool, ConnectionError> {
        let WebSocketLink { socket: Some(socket), upgraded, websocket } = self else { return Ok(false) };
        if socket.is_connecting() {
            if ready.writable {
                socket.connected().map_err(|error| ConnectionError::connecting(&error))?;
                let request = shared.target_of(session).upgrade_request(&key(session), shared.inflater.is_some());
                socket.out().extend_from_slice(request.as_bytes());
                socket.flush().map_err(|error| ConnectionError::broken(&error))?;
            }
            return Ok(false);
        }
        let mut for_session = None;
        if ready.readable {
            for_session = shared.receive(socket, |bytes, out, shared| {
                let mut used = 0;
                if !*upgraded {
                    let Some((head, length)) = http::head(bytes).map_err(ConnectionError::NotSpoken)? else {
                        return Ok((0, false));
                    };
                    check_upgrade(&head, session, shared)?;
                    *upgraded = true;
                    protocol.connection_opened(Instant::now());
                    used = length;
                }
                let (length, for_session) = websocket.take(&bytes[used..], out, session, protocol, shared)?;
                Ok((used + length, for_session || used > 0))
            })?;
        }
        if ready.writable || socket.unsent_bytes() > 0 {
            self.flush()?;
        }
        Ok(for_session.unwrap_or_default())
    }

    /// Sends a text message.
    pub(super) fn send(&mut self, text: &[u8]) -> Result<(), ConnectionError> {
        let Some(socket) = &mut self.socket else { return Err(ConnectionError::Lost("is not connected".into())) };
        write_text(text, socket.out());
        self.flush()
    }

    fn flush(&mut self) -> Result<(), ConnectionError> {
        let flushed = self.socket.as_mut().map_or(Ok(()), Socket::flush);
        flushed.map_err(|error| ConnectionError::broken(&error))
    }
}

/// Checks status and digest of the server's answer (RFC 6455 §4.1), and that it compresses if it is to.
fn check_upgrade(head: &Head, session: usize, shared: &WorkerShared) -> Result<(), ConnectionError> {
    if head.status != 101 {
        let text = format!("did not switch to WebSocket but answered {}", head.reason);
        return Err(ConnectionError::NotSpoken(text));
    }
    if head.websocket_accept.as_deref() != Some(handshake::accept(&key(session)).as_str()) {
        return Err(ConnectionError::NotSpoken("answered the WebSocket upgrade with a wrong digest".into()));
    }
    if shared.inflater.is_some() && !head.has_extension {
        return Err(ConnectionError::NotSpoken("declined to compress: no rule of its channels does".into()));
    }
    Ok(())
}

/// The `Sec-WebSocket-Key`: each session has its own.
fn key(session: usize) -> String {
    handshake::client_key((session as u128 + 1).wrapping_mul(KEY_SEED).to_be_bytes())
}

/// Odd and large, so that keys look random.
const KEY_SEED: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
