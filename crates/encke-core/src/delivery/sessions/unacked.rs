//! The acknowledgement extension: messages that a client has not confirmed are sent again after a break (CometD 9,
//! `ack`).
//!
//! A session that asked for it at its handshake gets messages with connect replies only, on every transport. Each such
//! reply closes a batch and carries its number (`"ext":{"ack":7}`). The next connect confirms the last batch that the
//! client received. Messages of later batches are sent again, before anything newer. On a WebSocket the messages and
//! the reply are one frame, so a client gets either both or neither and sees nothing twice. The size of that frame is
//! limited; messages that do not fit wait for the next one. Messages that went out on the same WebSocket as the connect
//! will still arrive there, and are not sent again.
//!
//! ```text
//!   outbox ── take ──▶ batch 7, stored ──▶ reply, ack 7
//!                        │  ▲                 │
//!      connect, ack ≥ 7  │  └── connect, ack < 7: sent again, now with ack 8
//!                        ▼
//!                    confirmed
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use smallvec::SmallVec;

use crate::delivery::outbox::{InFlight, Outbox};
use crate::events::SocketKey;

/// Messages that a session has been sent and has not confirmed.
#[derive(Debug, Default)]
pub struct Unacked {
    /// The number of the last batch that was closed; the first is 1.
    pub(crate) closed: u64,
    /// The messages that the client has confirmed.
    confirmed: u64,
    /// Oldest first. A confirmed batch confirms those before it.
    entry: VecDeque<Entry>,
}

/// Messages that may have to be sent again.
#[derive(Debug)]
struct Entry {
    /// The batches that confirm these messages, as ranges, the latest last. A range ends at a batch that had no room
    /// for them; the next range begins at the batch that held them again.
    batches: SmallVec<[Range<u64>; 1]>,
    /// The WebSockets they went out on, the latest last. A delayed connect may still arrive on an older one.
    sockets: SmallVec<[SocketKey; 1]>,
    messages: InFlight,
}

/// The size limit of a batch on a WebSocket, in bytes. A batch is one frame and includes the messages sent again and
/// the replies. Clients limit the frame size (64 KiB with Jetty's). A single message may be larger, and is sent alone.
pub(crate) const SOCKET_BATCH_BYTES_MAX: usize = 60_000;

/// The maximum length of the reply to a connect.
const REPLY_BYTES: usize = 1_024;

/// The number of WebSockets remembered. A client uses one at a time; connects may still arrive on a few that are
/// closing.
const SOCKETS_MAX: usize = 8;

/// The number of ranges remembered for messages that were left out repeatedly; the latest ones stay.
const RANGES_MAX: usize = 4;

impl Unacked {
    /// Restores the state saved by an earlier process: the number of the last closed batch, and the unconfirmed
    /// messages with their batches, oldest first. The WebSockets they went out on are gone.
    pub fn restored(closed: u64, entry: impl Iterator<Item = (Vec<Range<u64>>, InFlight)>) -> Unacked {
        let restored =
            |(batches, messages)| Entry { batches: SmallVec::from_vec(batches), ..Entry::new(0, None, messages) };
        Unacked { closed, confirmed: 0, entry: entry.map(restored).collect() }
    }

    /// The number of the last closed batch.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// The number of messages that the client has confirmed.
    pub(crate) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// The unconfirmed messages with their batches, oldest first. A range without an end goes up to [`u64::MAX`].
    pub fn unconfirmed(&self) -> impl Iterator<Item = (&[Range<u64>], &InFlight)> {
        self.entry.iter().map(|entry| (&*entry.batches, &entry.messages))
    }

    /// The unconfirmed messages, taken out.
    pub(crate) fn into_messages(self) -> impl Iterator<Item = InFlight> {
        self.entry.into_iter().map(|entry| entry.messages)
    }

    /// The unconfirmed messages, mutable.
    pub fn messages_mut(&mut self) -> impl Iterator<Item = &mut InFlight> {
        self.entry.iter_mut().map(|entry| &mut entry.messages)
    }

    /// The unconfirmed messages, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &InFlight> {
        self.entry.iter().map(|entry| &entry.messages)
    }

    /// True if something has to be sent again to a client that connects on this WebSocket, or by a request.
    pub fn must_resend(&self, socket: Option<SocketKey>) -> bool {
        self.to_resend(socket).next().is_some()
    }

    /// The messages to send again to such a client, oldest first.
    pub fn to_resend(&self, socket: Option<SocketKey>) -> impl Iterator<Item = &InFlight> + Clone {
        self.entry.iter().filter(move |entry| !entry.arrives_on(socket)).map(|entry| &entry.messages)
    }

    /// True if all messages to send again on a WebSocket, and all queued ones, fit into one batch there.
    pub fn fits(&self, outbox: &Outbox, socket: Option<SocketKey>) -> bool {
        let resend_bytes: usize = self.to_resend(socket).map(InFlight::bytes).sum();
        resend_bytes + outbox.waiting_bytes() + REPLY_BYTES <= SOCKET_BATCH_BYTES_MAX
    }

    /// The number of the batch that the next reply closes.
    pub fn next_batch(&self) -> u64 {
        self.closed + 1
    }

    /// Removes the messages that the client has confirmed: it has received this batch and all before it. Returns their
    /// number.
    pub(crate) fn confirm(&mut self, batch: i64, outbox: &mut Outbox) -> usize {
        let mut done = 0;
        let Ok(batch) = u64::try_from(batch) else { return 0 };
        while let Some(entry) =
            self.entry.pop_front_if(|entry| entry.batches.iter().any(|range| range.contains(&batch)))
        {
            done += entry.messages.messages();
            outbox.settle(&entry.messages);
        }
        self.confirmed += done as u64;
        done
    }

    /// Withdraws the unconfirmed messages for whose payload `keep` is false.
    pub fn withdraw(&mut self, outbox: &mut Outbox, mut keep: impl FnMut(&[u8]) -> bool) {
        self.entry.iter_mut().for_each(|entry| outbox.withdraw(&mut entry.messages, &mut keep));
        self.entry.retain(|entry| entry.messages.messages() > 0);
    }

    /// Sends the last closed batch: first the messages to send again, then queued ones. Sends up to `bytes_max` bytes,
    /// but at least one message; nothing if `bytes_max` is None. Returns the number of messages sent again.
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

    /// An entry for other messages of the same batches.
    fn with(&self, messages: InFlight) -> Entry {
        Entry { batches: self.batches.clone(), sockets: self.sockets.clone(), messages }
    }

    /// The first batch of the current range; None if the last batch had no room for these messages.
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

    /// True if its messages arrive, without being sent again, before anything written to this WebSocket now.
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
