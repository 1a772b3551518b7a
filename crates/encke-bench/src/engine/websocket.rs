//! The messages of one WebSocket, out of the bytes that come (RFC 6455 §5), and its messages to the server.

use std::time::Instant;

use websocket::{Opcode, frame};

use crate::engine::error::ConnectionError;
use crate::engine::protocol::Protocol;
use crate::engine::shared::WorkerShared;
use crate::engine::socket::MESSAGE_BYTES_MAX;
use crate::order::Transport;

/// A WebSocket without its connection.
#[derive(Debug, Default)]
pub(super) struct WebSocket {
    /// The beginning of a message that comes in several frames.
    fragments: Vec<u8>,
}

impl WebSocket {
    /// Takes all complete frames, and appends the frames that answer them to `out`. Returns the length of the frames in bytes, and true if the
    /// session received something.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        session: usize,
        protocol: &mut Protocol,
        shared: &mut WorkerShared,
    ) -> Result<(usize, bool), ConnectionError> {
        let (mut at, mut for_session) = (0, false);
        while let Some((head, length)) = frame::split(&bytes[at..]) {
            let payload = &bytes[at + head..at + head + length];
            if bytes[at] == WHOLE_TEXT {
                for_session |= take_text(payload, session, protocol, shared)?;
            } else {
                for_session |= self.take_other(bytes[at], payload, out, session, protocol, shared)?;
            }
            at += head + length;
        }
        match bytes.get(at + 1) {
            Some(masked) if masked & 0x80 != 0 => Err(ConnectionError::NotSpoken("sent a masked frame".into())),
            _ => Ok((at, for_session)),
        }
    }

    #[inline(never)]
    fn take_other(
        &mut self,
        first: u8,
        payload: &[u8],
        out: &mut Vec<u8>,
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
            WHOLE_PING => frame::masked(Opcode::Pong, payload, MASK_KEY, out),
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

/// Appends the frame of a text message to the server.
pub(super) fn write_text(text: &[u8], out: &mut Vec<u8>) {
    frame::masked(Opcode::Text, text, MASK_KEY, out);
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
