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

use smallvec::SmallVec;

use crate::events::SocketKey;
use crate::outbox::{InFlight, Outbox};

/// What a session has been sent and not confirmed.
#[derive(Debug, Default)]
pub struct Unacked {
    /// The number of the last batch that was closed; the first is 1.
    pub(crate) closed: u64,
    /// Oldest first. A confirmed batch confirms those before it.
    entry: VecDeque<Entry>,
}

/// Messages that may have to be sent again.
#[derive(Debug)]
struct Entry {
    /// The batches that show, when one of them is confirmed, that these have arrived, the latest last. A range ends where a batch had no
    /// room for them, and the next begins with the batch that they were in again.
    batches: SmallVec<[Range<u64>; 1]>,
    /// The WebSockets they went out on, the latest last: an older one may come back with a connect that was long on its way.
    sockets: SmallVec<[SocketKey; 1]>,
    messages: InFlight,
}

/// On a WebSocket one batch is one frame, in bytes, what is sent again and the replies in it: clients bound how large that may be (64 KiB
/// with Jetty's). A single message may be larger, and goes alone.
pub(crate) const SOCKET_BATCH_BYTES_MAX: usize = 60_000;

/// The reply to a connect is shorter than that.
const REPLY_BYTES: usize = 1_024;

/// A client uses one WebSocket at a time; of so many that are closing late ones may still be heard.
const SOCKETS_MAX: usize = 8;

/// Of messages that were left out again and again the last few batches are remembered.
const RANGES_MAX: usize = 4;

impl Unacked {
    /// Of an earlier life of the server: the number of the batch that was closed last, and what was not confirmed with the batches it was
    /// in, oldest first. The WebSockets it went out on are gone.
    pub fn restored(closed: u64, entry: impl Iterator<Item = (Vec<Range<u64>>, InFlight)>) -> Unacked {
        let restored =
            |(batches, messages)| Entry { batches: SmallVec::from_vec(batches), ..Entry::new(0, None, messages) };
        Unacked { closed, entry: entry.map(restored).collect() }
    }

    /// The number of the batch that was closed last.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// What was not confirmed, with the batches that it was in; oldest first. A range without an end goes up to [`u64::MAX`].
    pub fn unconfirmed(&self) -> impl Iterator<Item = (&[Range<u64>], &InFlight)> {
        self.entry.iter().map(|entry| (&*entry.batches, &entry.messages))
    }

    /// The same, to be changed.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut InFlight> {
        self.entry.iter_mut().map(|entry| &mut entry.messages)
    }

    /// All that was not confirmed, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &InFlight> {
        self.entry.iter().map(|entry| &entry.messages)
    }

    /// Whether something has to be sent again to a client that connects on this WebSocket, or by a request.
    pub fn is_owing(&self, socket: Option<SocketKey>) -> bool {
        self.owed(socket).next().is_some()
    }

    /// What has to be sent again to it; oldest first.
    pub fn owed(&self, socket: Option<SocketKey>) -> impl Iterator<Item = &InFlight> + Clone {
        self.entry.iter().filter(move |entry| !entry.arrives_on(socket)).map(|entry| &entry.messages)
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
    pub(crate) fn confirm(&mut self, batch: i64, outbox: &mut Outbox) -> usize {
        let mut done = 0;
        let Ok(batch) = u64::try_from(batch) else { return 0 };
        while let Some(entry) =
            self.entry.pop_front_if(|entry| entry.batches.iter().any(|range| range.contains(&batch)))
        {
            done += entry.messages.messages();
            outbox.settle(&entry.messages);
        }
        done
    }

    /// Lets go of unconfirmed messages that `keep`, given the payload, does not want.
    pub fn withdraw(&mut self, outbox: &mut Outbox, mut keep: impl FnMut(&[u8]) -> bool) {
        self.entry.iter_mut().for_each(|entry| outbox.withdraw(&mut entry.messages, &mut keep));
        self.entry.retain(|entry| entry.messages.messages() > 0);
    }

    /// Hands out the batch that was closed last: what is owed, then what waits, up to so many bytes, but at least one message; nothing
    /// where it may have no bytes. Returns how many messages go out again.
    pub(crate) fn send(
        &mut self,
        outbox: &mut Outbox,
        socket: Option<SocketKey>,
        bytes_max: Option<usize>,
        mut send: impl FnMut(&InFlight),
    ) -> usize {
        let batch = self.closed;
        let (mut again, mut left) = (0, bytes_max.unwrap_or(0));
        let mut at = 0;
        while let Some(entry) = self.entry.get_mut(at) {
            at += 1;
            if entry.arrives_on(socket) {
                entry.is_in(batch);
                continue;
            }
            let fits = outbox.split(&mut entry.messages, left, again == 0 && bytes_max.is_some());
            let rest = std::mem::replace(&mut entry.messages, fits);
            left = if rest.messages() > 0 { 0 } else { left.saturating_sub(entry.messages.bytes()) };
            if entry.messages.messages() == 0 {
                entry.messages = rest;
                entry.is_left_out_of(batch);
                continue;
            }
            let behind = (rest.messages() > 0).then(|| entry.with(rest));
            send(&entry.messages);
            entry.is_in(batch);
            entry.went_out_on(socket);
            again += entry.messages.messages();
            if let Some(behind) = behind {
                self.entry.insert(at, behind);
            }
        }
        let messages = outbox.take_oldest(left, again == 0 && bytes_max.is_some());
        if messages.messages() > 0 {
            send(&messages);
            self.entry.push_back(Entry::new(batch, socket, messages));
        }
        again
    }
}

impl Entry {
    fn new(batch: u64, socket: Option<SocketKey>, messages: InFlight) -> Entry {
        let batches = std::iter::once(batch..u64::MAX).collect();
        Entry { batches, sockets: socket.into_iter().collect(), messages }
    }

    /// Others that were in the same batches.
    fn with(&self, messages: InFlight) -> Entry {
        Entry { batches: self.batches.clone(), sockets: self.sockets.clone(), messages }
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
