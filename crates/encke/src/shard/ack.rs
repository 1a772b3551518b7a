//! The acknowledgement extension: what a client has not confirmed is sent again after a break (CometD 9, `ack`).
//!
//! A session that asked for it at its handshake gets messages with connect replies only, on every transport. Each such reply
//! closes a batch and carries its number (`"ext":{"ack":7}`); the next connect says which batch came last. What was in later
//! ones goes out again, before anything newer. On a WebSocket the messages and the reply are one frame, so a client has
//! either both or neither and sees nothing twice. What went out on the very WebSocket that a connect comes on will still
//! arrive there, and is not sent again.
//!
//! ```text
//!   outbox ── take ──▶ batch 7, kept ──▶ reply, ack 7
//!                        │  ▲               │
//!      connect, ack ≥ 7  │  └── connect, ack < 7: sent again, now with ack 8
//!                        ▼
//!                     settled
//! ```

use std::collections::VecDeque;

use bayeux::ext;
use smallvec::SmallVec;
use websocket::{Opcode, frame};

use super::Shard;
use super::arena::Frames;
use super::effect::{SessionKey, SocketKey};
use super::outbox::{InFlight, Kind, Outbox};

/// What a session has been sent and not confirmed.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The number of the last batch that was closed; the first is 1.
    closed: u64,
    /// Oldest first. A confirmed batch confirms those before it.
    kept: VecDeque<Kept>,
}

/// Messages that may have to be sent again.
#[derive(Debug)]
struct Kept {
    /// The batch they were first in.
    batch: u64,
    /// The WebSockets they went out on, the latest last: an older one may come back with a connect that was long on its way.
    sockets: SmallVec<[SocketKey; 1]>,
    messages: InFlight,
}

/// On a WebSocket one batch is one frame: clients bound how large that may be (64 KiB with Jetty's). A single message may be
/// larger.
pub(super) const SOCKET_BATCH_BYTES_MAX: usize = 60_000;
/// Batches up to so many bytes are copied together: cheaper than several pieces for each session, which share the large ones.
const COPY_BYTES_MAX: usize = 4096;
/// A client uses one WebSocket at a time; of so many that are closing late ones may still be heard.
const SOCKETS_MAX: usize = 8;

impl Ledger {
    /// Of an earlier life of the server: the number of the batch that was closed last, and what of which batch was not confirmed,
    /// oldest first. The WebSockets it went out on are gone.
    pub fn restored(closed: u64, batches: impl Iterator<Item = (u64, InFlight)>) -> Ledger {
        let kept = batches.map(|(batch, messages)| Kept { batch, sockets: SmallVec::new(), messages });
        Ledger { closed, kept: kept.collect() }
    }

    /// The number of the batch that was closed last.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// What was not confirmed, with the number of the batch it was first in; oldest first.
    pub fn unconfirmed(&self) -> impl Iterator<Item = (u64, &InFlight)> {
        self.kept.iter().map(|kept| (kept.batch, &kept.messages))
    }

    /// Whether something has to be sent again to a client that connects on this WebSocket, or by a request.
    pub fn is_owing(&self, socket: Option<SocketKey>) -> bool {
        self.kept.iter().any(|kept| !kept.arrives_on(socket))
    }

    /// The number of the batch that the next reply closes.
    pub fn next_batch(&self) -> u64 {
        self.closed + 1
    }

    /// The client has received this batch and all before it. Returns how many messages are done with.
    fn confirm(&mut self, batch: i64, outbox: &mut Outbox) -> usize {
        let mut done = 0;
        while let Some(kept) = self.kept.pop_front_if(|kept| i64::try_from(kept.batch).is_ok_and(|kept| kept <= batch))
        {
            done += kept.messages.messages();
            outbox.settle(&kept.messages);
        }
        done
    }

    /// Lets go of unconfirmed messages that `keep`, given the payload, does not want.
    pub fn withdraw(&mut self, outbox: &mut Outbox, mut keep: impl FnMut(&[u8]) -> bool) {
        self.kept.iter_mut().for_each(|kept| outbox.withdraw(&mut kept.messages, &mut keep));
        self.kept.retain(|kept| kept.messages.messages() > 0);
    }

    /// Hands out the batch that was closed last: what is owed, then what waits. Returns how many messages go out again.
    fn send(&mut self, outbox: &mut Outbox, socket: Option<SocketKey>, mut send: impl FnMut(&InFlight)) -> usize {
        let bytes_max = if socket.is_some() { SOCKET_BATCH_BYTES_MAX } else { usize::MAX };
        let (mut again, mut bytes) = (0, 0);
        for kept in self.kept.iter_mut().filter(|kept| !kept.arrives_on(socket)) {
            send(&kept.messages);
            kept.went_out_on(socket);
            again += kept.messages.messages();
            bytes += kept.messages.bytes();
        }
        if bytes < bytes_max && !outbox.is_empty() {
            let messages = outbox.take_oldest(bytes_max - bytes);
            send(&messages);
            self.kept.push_back(Kept { batch: self.closed, sockets: socket.into_iter().collect(), messages });
        }
        again
    }
}

impl Kept {
    /// Whether its messages come, without being sent again, before anything that is written to this WebSocket now.
    fn arrives_on(&self, socket: Option<SocketKey>) -> bool {
        socket.is_some_and(|socket| self.sockets.contains(&socket))
    }

    fn went_out_on(&mut self, socket: Option<SocketKey>) {
        if socket.is_some() && self.sockets.len() == SOCKETS_MAX {
            self.sockets.remove(0);
        }
        self.sockets.extend(socket);
    }
}

impl Shard {
    /// A connect of a session has come: what it confirms is done with.
    pub(super) fn confirm(&mut self, key: SessionKey, raw_ext: Option<&str>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(ledger) = &mut session.ledger else { return };
        if let Some(batch) = raw_ext.and_then(ext::acknowledged) {
            let done = ledger.confirm(batch, &mut session.outbox);
            if let Some(replay) = &mut session.replay {
                replay.confirm(batch);
            }
            self.metrics.deliveries.add(done);
        }
    }

    /// Whether a session acknowledges what it gets.
    pub(super) fn acknowledges(&self, key: SessionKey) -> bool {
        self.sessions.get(key).is_some_and(|session| session.ledger.is_some())
    }

    /// Closes the batch of a connect reply, where the session acknowledges: the member `ack` of the reply's `ext`.
    pub(super) fn close_batch(&mut self, key: SessionKey) -> Option<String> {
        let ledger = self.sessions.get_mut(key)?.ledger.as_mut()?;
        ledger.closed += 1;
        Some(format!("\"ack\":{}", ledger.closed))
    }

    /// Writes the messages of the batch that was closed last into a response.
    pub(super) fn write_batch(&mut self, key: SessionKey, body: &mut Vec<u8>) {
        self.send_messages(key, None, |messages| messages.write(body));
    }

    /// Sends the batch that was closed last as one frame, with the replies behind its messages.
    pub(super) fn send_batch(&mut self, key: SessionKey, socket: SocketKey, replies: &[u8]) {
        let mut parts = Vec::new();
        self.send_messages(key, Some(socket), |messages| messages.join(&mut parts));
        let bytes = parts.iter().map(Frames::bytes).sum::<usize>() + replies.len() + 2;
        if bytes <= COPY_BYTES_MAX {
            let frames = self.own.frame(Opcode::Text, bytes, |out| {
                out.push(b'[');
                parts.iter().for_each(|part| out.extend_from_slice(&part.chunk.slice(part.start, part.end)));
                out.extend_from_slice(replies);
                out.push(b']');
            });
            return self.push_frames(socket, &frames, Kind::Replies);
        }
        let head = self.parts.part(frame::header_bytes(bytes) + 1, |out| {
            frame::header(Opcode::Text, bytes, out);
            out.push(b'[');
        });
        let tail = self.parts.part(replies.len() + 1, |out| {
            out.extend_from_slice(replies);
            out.push(b']');
        });
        // Bounded when they came into the outbox.
        for part in [&head].into_iter().chain(&parts).chain([&tail]) {
            self.push_frames(socket, part, Kind::Replies);
        }
    }

    fn send_messages(&mut self, key: SessionKey, socket: Option<SocketKey>, send: impl FnMut(&InFlight)) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(ledger) = &mut session.ledger else { return };
        let again = ledger.send(&mut session.outbox, socket, send);
        if again > 0 {
            tracing::debug!(session = ?session.id, messages = again, "sent again: not acknowledged");
            self.metrics.resent.add(again);
        }
        if session.outbox.is_empty() {
            session.urgent = false;
            session.lazy_due_ms = u64::MAX;
        }
    }
}

#[cfg(test)]
mod tests;
