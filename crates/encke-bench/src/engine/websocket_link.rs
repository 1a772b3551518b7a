//! The WebSocket of one session.

use std::time::Instant;

use websocket::{Opcode, frame, handshake};

use crate::engine::error::ConnectionError;
use crate::engine::http::{self, Head};
use crate::engine::poll::Ready;
use crate::engine::protocol::Protocol;
use crate::engine::shared::WorkerShared;
use crate::engine::socket::{MESSAGE_BYTES_MAX, Socket};
use crate::order::Transport;

/// A WebSocket connection.
///
/// ```text
/// None ── open ──▶ connecting ──▶ upgrading ──▶ upgraded
/// ```
#[derive(Debug, Default)]
pub(super) struct WebSocketLink {
    pub(super) socket: Option<Socket>,
    upgraded: bool,
    /// The beginning of a message that comes in several frames.
    fragments: Vec<u8>,
}

impl WebSocketLink {
    /// Returns true after the upgrade.
    pub(super) fn is_upgraded(&self) -> bool {
        self.upgraded
    }

    /// Begins the connection.
    pub(super) fn open(&mut self, shared: &WorkerShared) -> Result<(), ConnectionError> {
        let socket = Socket::connect(&shared.target).map_err(|error| ConnectionError::connecting(&error))?;
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
        let Some(socket) = &mut self.socket else { return Ok(false) };
        if socket.is_connecting() {
            if ready.writable {
                socket.connected().map_err(|error| ConnectionError::connecting(&error))?;
                let request = shared.target.upgrade_request(&key(session), shared.inflater.is_some());
                socket.out().extend_from_slice(request.as_bytes());
                socket.flush().map_err(|error| ConnectionError::broken(&error))?;
            }
            return Ok(false);
        }
        let mut scratch = std::mem::take(&mut shared.scratch);
        let for_session = match ready.readable.then(|| socket.receive(&mut scratch)) {
            None | Some(Ok(None)) => Ok(false),
            Some(Ok(Some(bytes))) => self.take(bytes, session, protocol, shared),
            Some(Err(error)) => Err(ConnectionError::broken(&error)),
        };
        shared.scratch = scratch;
        let for_session = for_session?;
        if ready.writable {
            self.flush()?;
        }
        Ok(for_session)
    }

    /// Sends a text message.
    pub(super) fn send(&mut self, text: &[u8]) -> Result<(), ConnectionError> {
        let Some(socket) = &mut self.socket else { return Err(ConnectionError::Lost("is not connected".into())) };
        frame::masked(Opcode::Text, text, MASK_KEY, socket.out());
        self.flush()
    }

    fn flush(&mut self) -> Result<(), ConnectionError> {
        let flushed = self.socket.as_mut().map_or(Ok(()), Socket::flush);
        flushed.map_err(|error| ConnectionError::broken(&error))
    }

    fn take(
        &mut self,
        bytes: &[u8],
        session: usize,
        protocol: &mut Protocol,
        shared: &mut WorkerShared,
    ) -> Result<bool, ConnectionError> {
        shared.reader.arrived();
        let (mut used, mut for_session) = (0, false);
        if !self.upgraded
            && let Some((head, length)) = http::head(bytes).map_err(ConnectionError::NotSpoken)?
        {
            check_upgrade(&head, session)?;
            if shared.inflater.is_some() && !head.has_extension {
                return Err(ConnectionError::NotSpoken("declined to compress: no rule of its channels does".into()));
            }
            self.upgraded = true;
            protocol.connection_opened(Instant::now());
            (used, for_session) = (length, true);
        }
        if self.upgraded {
            used += self.frames(&bytes[used..], session, protocol, shared, &mut for_session)?;
        }
        let Some(socket) = &mut self.socket else { return Ok(for_session) };
        socket.buffer(&bytes[used..]).map_err(|error| ConnectionError::Lost(error.to_string()))?;
        Ok(for_session)
    }

    /// Takes all complete frames. Returns their length in bytes.
    fn frames(
        &mut self,
        bytes: &[u8],
        session: usize,
        protocol: &mut Protocol,
        shared: &mut WorkerShared,
        for_session: &mut bool,
    ) -> Result<usize, ConnectionError> {
        let mut at = 0;
        while let Some((head, length)) = frame::split(&bytes[at..]) {
            let payload = &bytes[at + head..at + head + length];
            if bytes[at] == WHOLE_TEXT {
                *for_session |= take_text(payload, session, protocol, shared)?;
            } else {
                *for_session |= self.take_other(bytes[at], payload, session, protocol, shared)?;
            }
            at += head + length;
        }
        match bytes.get(at + 1) {
            Some(masked) if masked & 0x80 != 0 => Err(ConnectionError::NotSpoken("sent a masked frame".into())),
            _ => Ok(at),
        }
    }

    #[inline(never)]
    fn take_other(
        &mut self,
        first: u8,
        payload: &[u8],
        session: usize,
        protocol: &mut Protocol,
        shared: &mut WorkerShared,
    ) -> Result<bool, ConnectionError> {
        if first == WHOLE_COMPRESSED
            && let Some(mut inflater) = shared.inflater.take()
        {
            let taken = match inflater.inflate(payload, MESSAGE_BYTES_MAX) {
                Ok(text) => take_text(text, session, protocol, shared),
                Err(error) => Err(ConnectionError::Lost(error.to_string())),
            };
            shared.inflater = Some(inflater);
            return taken;
        }
        match first {
            FIRST_OF_TEXT | FURTHER | LAST => {
                self.fragments.extend_from_slice(payload);
                if self.fragments.len() > MESSAGE_BYTES_MAX {
                    return Err(ConnectionError::Lost(format!("sent a message over {MESSAGE_BYTES_MAX} bytes")));
                }
                if first == LAST {
                    let whole = std::mem::take(&mut self.fragments);
                    return take_text(&whole, session, protocol, shared);
                }
            }
            WHOLE_PING => {
                if let Some(socket) = &mut self.socket {
                    frame::masked(Opcode::Pong, payload, MASK_KEY, socket.out());
                    self.flush()?;
                }
            }
            WHOLE_PONG => {}
            WHOLE_CLOSE => {
                let reason = String::from_utf8_lossy(payload.get(2..).unwrap_or_default()).into_owned();
                let code = payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code));
                return Err(ConnectionError::Lost(
                    format!("closed the WebSocket: {code} {reason}").trim_end().to_owned(),
                ));
            }
            other => return Err(ConnectionError::NotSpoken(format!("sent a frame that begins with {other:#04x}"))),
        }
        Ok(false)
    }
}

/// Takes the text of one message. Returns true if the session received any of it.
#[inline]
fn take_text(
    payload: &[u8],
    session: usize,
    protocol: &mut Protocol,
    shared: &mut WorkerShared,
) -> Result<bool, ConnectionError> {
    if shared.transport != Transport::Raw {
        return shared.take_bayeux(payload, session, protocol);
    }
    if shared.reader.take_bare(payload, session) {
        return Ok(false);
    }
    protocol.received(payload, Instant::now()).map_err(ConnectionError::NotSpoken)?;
    Ok(true)
}

/// Checks status and digest of the server's answer (RFC 6455 §4.1).
fn check_upgrade(head: &Head, session: usize) -> Result<(), ConnectionError> {
    if head.status != 101 {
        let text = format!("did not switch to WebSocket but answered {}", head.reason);
        return Err(ConnectionError::NotSpoken(text));
    }
    if head.websocket_accept.as_deref() != Some(handshake::accept(&key(session)).as_str()) {
        return Err(ConnectionError::NotSpoken("answered the WebSocket upgrade with a wrong digest".into()));
    }
    Ok(())
}

/// The `Sec-WebSocket-Key`: each session has its own.
fn key(session: usize) -> String {
    handshake::client_key((session as u128 + 1).wrapping_mul(KEY_SEED).to_be_bytes())
}

const WHOLE_TEXT: u8 = 0x81;
const WHOLE_COMPRESSED: u8 = 0xC1;
const FIRST_OF_TEXT: u8 = 0x01;
const FURTHER: u8 = 0x00;
const LAST: u8 = 0x80;
const WHOLE_CLOSE: u8 = 0x88;
const WHOLE_PING: u8 = 0x89;
const WHOLE_PONG: u8 = 0x8A;
/// Any key but zero, so that the server has to unmask; a load has nothing to hide from proxies (RFC 6455 §10.3).
const MASK_KEY: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];
/// Odd and large, so that keys look random.
const KEY_SEED: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
