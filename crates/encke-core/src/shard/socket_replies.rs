//! Frames that the server sends on a WebSocket beside publications: replies, batches of an acknowledging session,
//! pongs, and the close frame. `websocket` leads here with the replies of a batch, `connect_reply` with the answer to a
//! held connect, and the server with [`Shard::socket_ping`] and [`Shard::socket_send`].

use websocket::{Opcode, frame};

use crate::connections::socket::Phase;
use crate::events::{SessionKey, SocketKey};
use crate::outbox::Kind;
use crate::outbox::arena::Frames;
use crate::sessions::unacked::SOCKET_BATCH_BYTES_MAX;
use crate::shard::Parts;

impl Parts {
    /// Sends the last closed batch as one frame, with the replies after its messages.
    fn send_batch(&mut self, key: SessionKey, socket: SocketKey, replies: &[u8]) {
        let mut parts = Vec::new();
        let bytes_max = SOCKET_BATCH_BYTES_MAX.saturating_sub(replies.len());
        self.send_messages(key, Some(socket), Some(bytes_max), |messages| messages.join(&mut parts));
        let bytes = parts.iter().map(Frames::bytes).sum::<usize>() + replies.len() + 2;
        if self.is_unread(socket, bytes) {
            return self.cut_off(socket);
        }
        if bytes <= COPY_BYTES_MAX {
            let frames = self.fanout.encoder.single(Opcode::Text, bytes, |out| {
                out.push(b'[');
                parts.iter().for_each(|part| out.extend_from_slice(&part.chunk.slice(part.start, part.end)));
                out.extend_from_slice(replies);
                out.push(b']');
            });
            return self.push_frames(socket, &frames, Kind::Replies);
        }
        let [head, end] = self.fanout.encoder.around(bytes, replies);
        for part in [&head].into_iter().chain(&parts).chain([&end]) {
            self.push_frames(socket, part, Kind::Replies);
        }
    }

    /// Answers a ping with its payload. While the kernel takes nothing, or if many pings come at once, only the latest
    /// is answered (RFC 6455 §5.5.3 allows it), so that pongs cannot pile up.
    pub(super) fn pong(&mut self, key: SocketKey, payload: &[u8]) {
        let now_ms = self.now.ms;
        let Some(socket) = self.socket_mut(key).filter(|socket| socket.phase == Phase::Open) else { return };
        socket.last_received_ms = now_ms;
        let is_blocked = socket.marks.is_blocked();
        let own = socket.own_mut();
        if is_blocked || own.pong_bytes > PONG_BYTES_MAX {
            own.pong = Some(payload.into());
        } else {
            own.pong_bytes += payload.len() + 2;
            self.write_frame(key, Opcode::Pong, payload);
        }
    }

    /// Sends replies as one frame, after everything that waits already. If they contain the reply to a connect of an
    /// acknowledging session, its messages go into the same frame.
    pub(super) fn reply_on_socket(&mut self, key: SocketKey, connect: Option<SessionKey>, replies: &[u8]) {
        if let Some(session) = connect.filter(|session| self.acknowledges(*session)) {
            return self.send_batch(session, key, replies);
        }
        if connect.is_some_and(|session| !self.hand_to_socket(session, key)) {
            return self.cut_off(key);
        }
        let frames = self.fanout.encoder.replies(replies);
        self.push_on_socket(key, &frames, Kind::Replies);
    }

    pub(super) fn write_frame(&mut self, key: SocketKey, opcode: Opcode, payload: &[u8]) {
        let frames = self.fanout.encoder.single(opcode, payload.len(), |bytes| bytes.extend_from_slice(payload));
        self.push_on_socket(key, &frames, Kind::Replies);
    }

    /// Queues a frame for the socket itself, not for its session. If too much waits already, the socket and its session
    /// end.
    fn push_on_socket(&mut self, key: SocketKey, frames: &Frames, kind: Kind) {
        if kind == Kind::Replies && self.is_unread(key, frames.bytes()) {
            return self.cut_off(key);
        }
        self.push_frames(key, frames, kind);
    }

    /// Queues a close frame after everything that waits. The socket is shut after that.
    pub(super) fn close_socket(&mut self, key: SocketKey, code: u16, reason: &str) {
        let until_ms = self.now.ms + self.settings.given().handshake_timeout_ms;
        let Some(socket) = self.socket_mut(key).filter(|socket| socket.phase == Phase::Open) else { return };
        socket.phase = Phase::Closing { until_ms };
        let mut bytes = Vec::with_capacity(64);
        frame::close(code, reason, &mut bytes);
        let frames = self.fanout.encoder.copy_single(&bytes);
        self.push_on_socket(key, &frames, Kind::Close);
        self.arm_socket(key, until_ms);
    }
}

/// Batches of up to this many bytes are copied into one frame. That is cheaper than several pieces for each session;
/// larger batches share pieces.
const COPY_BYTES_MAX: usize = 4096;

/// The most bytes of pongs queued between two writes. Beyond them only the latest ping is answered.
const PONG_BYTES_MAX: usize = 16 * 1024;
