//! The WebSocket of one session on a stream of an HTTP/2 connection, which others may share.

use std::time::Instant;

use crate::engine::begun::Begun;
use crate::engine::error::ConnectionError;
use crate::engine::protocol::Protocol;
use crate::engine::shared::WorkerShared;
use crate::engine::websocket::WebSocket;

/// A stream with a WebSocket.
///
/// ```text
/// None ── number ──▶ requested ── 200 ──▶ open
/// ```
#[derive(Debug, Default)]
pub(super) struct StreamLink {
    /// Its index on the connection.
    pub(super) stream: Option<usize>,
    is_open: bool,
    websocket: WebSocket,
    /// The beginning of a frame.
    begun: Begun,
}

impl StreamLink {
    /// Returns true after the server's answer.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Takes the status of the server's answer (RFC 8441 §5).
    pub(super) fn answered(&mut self, status: u16, protocol: &mut Protocol) -> Result<(), ConnectionError> {
        if !(200..300).contains(&status) {
            let text = format!("did not open a WebSocket over HTTP/2 but answered {status}");
            return Err(ConnectionError::NotSpoken(text));
        }
        self.is_open = true;
        protocol.connection_opened(Instant::now());
        Ok(())
    }

    /// Takes bytes of the stream, and appends the frames that answer them to `out`. Returns true if the session received something.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        session: usize,
        protocol: &mut Protocol,
        shared: &mut WorkerShared,
    ) -> Result<bool, ConnectionError> {
        let StreamLink { websocket, begun, .. } = self;
        begun.take(bytes, |bytes| websocket.take(bytes, out, session, protocol, shared))
    }
}
