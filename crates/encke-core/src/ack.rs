//! The acknowledgement extension: what a client has not confirmed is sent again after a break (CometD 9, `ack`).
//!
//! A session that asked for it at its handshake gets messages with connect replies only, on every transport. Each such reply
//! closes a batch and carries its number (`"ext":{"ack":7}`); the next connect says which batch came last. What was in later
//! ones goes out again, before anything newer. On a WebSocket the messages and the reply are one frame, so a client has
//! either both or neither and sees nothing twice; how large that may be is bounded, and what has no room is left for the next one. What
//! went out on the very WebSocket that a connect comes on will still arrive there, and is not sent again.
//!
//! ```text
//!   outbox ── take ──▶ batch 7, kept ──▶ reply, ack 7
//!                        │  ▲               │
//!      connect, ack ≥ 7  │  └── connect, ack < 7: sent again, now with ack 8
//!                        ▼
//!                     settled
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use bayeux::{RawJson, ext};
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
    /// The batches that show, when one of them is confirmed, that these have arrived, the latest last. A range ends where a batch had no
    /// room for them, and the next begins with the batch that they were in again.
    batches: SmallVec<[Range<u64>; 1]>,
    /// The WebSockets they went out on, the latest last: an older one may come back with a connect that was long on its way.
    sockets: SmallVec<[SocketKey; 1]>,
    messages: InFlight,
}

/// On a WebSocket one batch is one frame, in bytes, what is sent again and the replies in it: clients bound how large that may be (64 KiB
/// with Jetty's). A single message may be larger, and goes alone.
pub(super) const SOCKET_BATCH_BYTES_MAX: usize = 60_000;
/// The reply to a connect is shorter than that.
const REPLY_BYTES: usize = 1_024;
/// Batches up to so many bytes are copied together: cheaper than several pieces for each session, which share the large ones.
const COPY_BYTES_MAX: usize = 4096;
/// A client uses one WebSocket at a time; of so many that are closing late ones may still be heard.
const SOCKETS_MAX: usize = 8;
/// Of messages that were left out again and again the last few batches are remembered.
const RANGES_MAX: usize = 4;

impl Ledger {
    /// Of an earlier life of the server: the number of the batch that was closed last, and what was not confirmed with the batches it was
    /// in, oldest first. The WebSockets it went out on are gone.
    pub fn restored(closed: u64, kept: impl Iterator<Item = (Vec<Range<u64>>, InFlight)>) -> Ledger {
        let restored =
            |(batches, messages)| Kept { batches: SmallVec::from_vec(batches), ..Kept::new(0, None, messages) };
        Ledger { closed, kept: kept.map(restored).collect() }
    }

    /// The number of the batch that was closed last.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// What was not confirmed, with the batches that it was in; oldest first. A range without an end goes up to [`u64::MAX`].
    pub fn unconfirmed(&self) -> impl Iterator<Item = (&[Range<u64>], &InFlight)> {
        self.kept.iter().map(|kept| (&*kept.batches, &kept.messages))
    }

    /// The same, to be changed.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut InFlight> {
        self.kept.iter_mut().map(|kept| &mut kept.messages)
    }

    /// All that was not confirmed, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &InFlight> {
        self.kept.iter().map(|kept| &kept.messages)
    }

    /// Whether something has to be sent again to a client that connects on this WebSocket, or by a request.
    pub fn is_owing(&self, socket: Option<SocketKey>) -> bool {
        self.owed(socket).next().is_some()
    }

    /// What has to be sent again to it; oldest first.
    pub fn owed(&self, socket: Option<SocketKey>) -> impl Iterator<Item = &InFlight> + Clone {
        self.kept.iter().filter(move |kept| !kept.arrives_on(socket)).map(|kept| &kept.messages)
    }

    /// Whether all that is owed on a WebSocket, and all that waits, goes into one batch there.
    pub fn fits(&self, outbox: &Outbox, socket: Option<SocketKey>) -> bool {
        let owed_bytes: usize = self.owed(socket).map(InFlight::bytes).sum();
        owed_bytes + outbox.waiting_bytes() + REPLY_BYTES <= SOCKET_BATCH_BYTES_MAX
    }

    /// The number of the batch that the next reply closes.
    pub fn next_batch(&self) -> u64 {
        self.closed + 1
    }

    /// The client has received this batch and all before it. Returns how many messages are done with.
    fn confirm(&mut self, batch: i64, outbox: &mut Outbox) -> usize {
        let mut done = 0;
        let Ok(batch) = u64::try_from(batch) else { return 0 };
        while let Some(kept) = self.kept.pop_front_if(|kept| kept.batches.iter().any(|range| range.contains(&batch))) {
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

    /// Hands out the batch that was closed last: what is owed, then what waits, up to so many bytes, but at least one message; nothing
    /// where it may have no bytes. Returns how many messages go out again.
    fn send(
        &mut self,
        outbox: &mut Outbox,
        socket: Option<SocketKey>,
        bytes_max: Option<usize>,
        mut send: impl FnMut(&InFlight),
    ) -> usize {
        let batch = self.closed;
        let (mut again, mut left) = (0, bytes_max.unwrap_or(0));
        let mut at = 0;
        while let Some(kept) = self.kept.get_mut(at) {
            at += 1;
            if kept.arrives_on(socket) {
                kept.is_in(batch);
                continue;
            }
            let fits = outbox.split(&mut kept.messages, left, again == 0 && bytes_max.is_some());
            let rest = std::mem::replace(&mut kept.messages, fits);
            left = if rest.messages() > 0 { 0 } else { left.saturating_sub(kept.messages.bytes()) };
            if kept.messages.messages() == 0 {
                kept.messages = rest;
                kept.is_left_out_of(batch);
                continue;
            }
            let behind = (rest.messages() > 0).then(|| kept.with(rest));
            send(&kept.messages);
            kept.is_in(batch);
            kept.went_out_on(socket);
            again += kept.messages.messages();
            if let Some(behind) = behind {
                self.kept.insert(at, behind);
            }
        }
        let messages = outbox.take_oldest(left, again == 0 && bytes_max.is_some());
        if messages.messages() > 0 {
            send(&messages);
            self.kept.push_back(Kept::new(batch, socket, messages));
        }
        again
    }
}

impl Kept {
    fn new(batch: u64, socket: Option<SocketKey>, messages: InFlight) -> Kept {
        let batches = std::iter::once(batch..u64::MAX).collect();
        Kept { batches, sockets: socket.into_iter().collect(), messages }
    }

    /// Others that were in the same batches.
    fn with(&self, messages: InFlight) -> Kept {
        Kept { batches: self.batches.clone(), sockets: self.sockets.clone(), messages }
    }

    /// Since which batch they were in each; None if the last one had no room for them.
    fn in_since(&self) -> Option<u64> {
        self.batches.last().filter(|range| range.end == u64::MAX).map(|range| range.start)
    }

    fn is_in(&mut self, batch: u64) {
        if self.in_since().is_none() {
            if self.batches.len() == RANGES_MAX {
                self.batches.remove(0);
            }
            self.batches.push(batch..u64::MAX);
        }
    }

    fn is_left_out_of(&mut self, batch: u64) {
        if let Some(range) = self.batches.last_mut().filter(|range| range.end == u64::MAX) {
            range.end = batch;
        }
    }

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
    pub(super) fn confirm(&mut self, key: SessionKey, ext: Option<RawJson<'_>>) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(ledger) = &mut session.ledger else { return };
        if let Some(batch) = ext.and_then(ext::acknowledged) {
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

    /// Writes the messages of the batch that was closed last into a response, up to so many bytes, but at least one; none where there
    /// is no room.
    pub(super) fn write_batch(&mut self, key: SessionKey, bytes_max: Option<usize>, body: &mut Vec<u8>) {
        self.send_messages(key, None, bytes_max, |messages| messages.write(body));
    }

    /// Sends the batch that was closed last as one frame, with the replies behind its messages.
    pub(super) fn send_batch(&mut self, key: SessionKey, socket: SocketKey, replies: &[u8]) {
        let mut parts = Vec::new();
        let bytes_max = SOCKET_BATCH_BYTES_MAX.saturating_sub(replies.len());
        self.send_messages(key, Some(socket), Some(bytes_max), |messages| messages.join(&mut parts));
        let bytes = parts.iter().map(Frames::bytes).sum::<usize>() + replies.len() + 2;
        if self.is_unread(socket, bytes) {
            return self.cut_off(socket);
        }
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
        for part in [&head].into_iter().chain(&parts).chain([&tail]) {
            self.push_frames(socket, part, Kind::Replies);
        }
    }

    fn send_messages(
        &mut self,
        key: SessionKey,
        socket: Option<SocketKey>,
        bytes_max: Option<usize>,
        send: impl FnMut(&InFlight),
    ) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let bytes_max = bytes_max.filter(|_| !session.awaits_withdrawal());
        let Some(ledger) = &mut session.ledger else { return };
        let again = ledger.send(&mut session.outbox, socket, bytes_max, send);
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
