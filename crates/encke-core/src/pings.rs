//! Pings and pongs of WebSockets (RFC 6455 §5.5.2).

use websocket::Opcode;

use super::Shard;
use super::effect::{Now, SocketKey};
use super::sockets::Phase;

impl Shard {
    /// A ping has come: it is answered with its payload. While the kernel takes nothing, or when many come at once, only the latest is
    /// (RFC 6455 §5.5.3 allows it), so that nobody makes pongs pile up.
    pub fn socket_ping(&mut self, now: Now, key: SocketKey, payload: &[u8]) {
        self.now = now;
        let Some(socket) = self.socket_mut(key).filter(|socket| socket.phase == Phase::Open) else { return };
        socket.heard_ms = now.ms;
        if socket.blocked || socket.pong_bytes > PONG_BYTES_MAX {
            socket.pong = Some(payload.into());
        } else {
            socket.pong_bytes += payload.len() + 2;
            self.write_frame(key, Opcode::Pong, payload);
        }
    }

    /// A pong has come: the client lives.
    pub fn socket_pong(&mut self, now: Now, key: SocketKey) {
        self.now = now;
        if let Some(socket) = self.socket_mut(key) {
            socket.heard_ms = now.ms;
        }
    }
}

/// Bytes of pongs that may be queued between two writes; of more pings only the latest is answered.
const PONG_BYTES_MAX: usize = 16 * 1024;
